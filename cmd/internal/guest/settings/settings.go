//go:build linux

package settings

import (
	"path"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Settings are what the host has told the guest by POST /init so far. They are
// replaced as a whole and never changed: who needs several of them loads them once.
type Settings struct {
	HostToken string // of /init and /cubby/; empty before the first /init
	Token     string // of everything else; empty means open
	Env       map[string]string
	User      string // by default; empty is the configuration's
	Workdir   string // empty is the home
	Identity  Identity
	Limits    protocol.Limits // zero ones are unknown
	Offline   []string        // registries that are not reached
}

// Identity is who the sandbox is, as its code is told; what is empty it is not
// told.
type Identity struct{ SandboxID, TemplateID string }

// Variables returns E2B's names for it: its clients and templates look for them.
func (i Identity) Variables() map[string]string {
	vars := map[string]string{}
	if i.SandboxID != "" {
		vars["E2B_SANDBOX_ID"] = i.SandboxID
	}
	if i.TemplateID != "" {
		vars["E2B_TEMPLATE_ID"] = i.TemplateID
	}
	return vars
}

// With returns the settings after a request that was checked.
func (s Settings) With(req protocol.InitRequest) *Settings {
	keep := func(to *string, value string) {
		if value != "" {
			*to = value
		}
	}
	keep(&s.HostToken, req.HostToken)
	if req.Restored == protocol.RestoredCopy {
		s.Token = "" // whoever knows it knows that of the source
	}
	keep(&s.Token, req.AccessToken)
	keep(&s.User, req.DefaultUser)
	keep(&s.Identity.SandboxID, req.SandboxID)
	keep(&s.Identity.TemplateID, req.TemplateID)
	if req.DefaultWorkdir != "" {
		s.Workdir = path.Clean(req.DefaultWorkdir)
	}
	if req.EnvVars != nil {
		s.Env = req.EnvVars
	}
	if req.Offline != nil {
		s.Offline = req.Offline
	}
	for _, l := range []struct{ to, value *int }{
		{&s.Limits.MemoryMB, &req.Limits.MemoryMB}, {&s.Limits.DiskMB, &req.Limits.DiskMB}, {&s.Limits.PIDs, &req.Limits.PIDs},
	} {
		if *l.value != 0 {
			*l.to = *l.value
		}
	}
	if req.Limits.CPUs != 0 {
		s.Limits.CPUs = req.Limits.CPUs
	}
	return &s
}
