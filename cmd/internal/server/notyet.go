package server

import (
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// instead says what to do without what is not there yet. E2B's packages show the
// message of an error and nothing else of it, so the advice is part of the message.
var instead = map[string]string{
	"changing a sandbox's metadata": "give it when the sandbox is created",
	"metrics of a team":             "ask for those of its sandboxes",
	"building templates":            "use the template \"base\", which has the tools of the server's machine: install there what is missing",
	"volumes":                       "write the files into each sandbox",
	"volumeMounts":                  "write the files into the sandbox",
	"iam":                           "leave it out",
	"mcp":                           "leave it out",
}

// notYet answers what comes with later versions.
func notYet(what string) teamHandler {
	return func(w http.ResponseWriter, _ *http.Request, _ string) { writeNotYet(w, what) }
}

func (s *Server) boxNotYet(what string) boxHandler {
	return func(w http.ResponseWriter, _ *http.Request, _ Sandbox) { writeNotYet(w, what) }
}

func writeNotYet(w http.ResponseWriter, what string) {
	writeError(w, fault.Unimplemented, "not implemented: "+what+". This version of Cubby does not have it yet: "+instead[what], "")
}
