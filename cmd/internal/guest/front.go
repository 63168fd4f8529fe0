//go:build linux

package guest

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/watch"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Envd returns the handler of port 49983. Everything needs the sandbox's token, if
// it has one, except GET /health; /files takes a signed URL as well, and /init wants
// the host's token. Before the first /init there is nothing else but /health.
func (g *Guest) Envd() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(protocol.HeaderVersion, guestversion.Build())
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /init", g.handleInit)
	mux.HandleFunc("GET /files", g.files.Download)
	mux.HandleFunc("POST /files", g.files.Upload)
	mux.HandleFunc("POST /files/compose", g.files.Compose)
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { reply.JSON(w, http.StatusOK, g.settings.Variables()) })
	mux.HandleFunc("GET /metrics", g.metrics.Answer)
	mux.HandleFunc("POST /cubby/oom", g.interpreter.OutOfMemory)
	mux.HandleFunc("GET /cubby/activity", func(w http.ResponseWriter, _ *http.Request) {
		reply.JSON(w, http.StatusOK, protocol.Activity{Busy: g.commands.Busy() || g.interpreter.Busy()})
	})
	prefix, rpc := envdconnect.NewFilesystemHandler(filesystem{g.files, g.watches}, connect.WithReadMaxBytes(files.MaxCall))
	mux.Handle(prefix, rpc)
	mux.Handle(g.commands.Handler())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply.Error(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	return cors(g.initialised(g.guarded(mux)))
}

// guarded asks for the token, except where the handler itself decides, and for the
// host's where only the host may ask.
func (g *Guest) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := false
		switch call := r.Method + " " + r.URL.Path; {
		case call == "GET /health", call == "HEAD /health", call == "GET /files", call == "HEAD /files", call == "POST /files":
			allowed = true
		case r.URL.Path == "/init" || strings.HasPrefix(r.URL.Path, "/cubby/"):
			allowed = g.settings.FromHost(r)
		default:
			allowed = g.settings.Authorised(r)
		}
		if !allowed {
			reply.Error(w, http.StatusUnauthorized, reply.Unauthorised)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// cors lets any origin call: what protects a sandbox is its token.
func cors(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			// Repeated, because "*" would not cover Authorization.
			allowed := r.Header.Get("Access-Control-Request-Headers")
			if allowed == "" {
				allowed = "*"
			}
			header.Set("Access-Control-Allow-Headers", allowed)
			header.Set("Access-Control-Max-Age", "7200")
			header.Add("Vary", "Access-Control-Request-Headers")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// watcher is another name for watch.Service, as a struct cannot embed two of one name.
type watcher = watch.Service

// filesystem is envd's filesystem.Filesystem, of both services that serve it.
type filesystem struct {
	*files.Service
	*watcher
}

var _ envdconnect.FilesystemHandler = filesystem{}
