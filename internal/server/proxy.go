package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// proxy hands a request to a port of a sandbox.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, id string) {
	port, err := strconv.Atoi(r.Header.Get(protocol.HeaderSandboxPort))
	if err != nil || port < 1 || port > 65535 {
		writeError(w, http.StatusBadRequest, "Invalid sandbox port", "set the header "+protocol.HeaderSandboxPort+" to a port between 1 and 65535")
		return
	}
	box, err := s.host.Get(id)
	if err != nil {
		notFound(w, id)
		return
	}
	if port == protocol.EnvdPort && hostOnly(r.URL.Path) {
		writeError(w, http.StatusNotFound, "404 page not found", "")
		return
	}
	if port == protocol.CodeInterpreterPort && r.Method == http.MethodPost && r.URL.Path == "/execute" {
		end := box.BeginRun(runTimeout(r))
		defer end()
	}
	// Without it Go's server closes the request's body once the answer has
	// begun, and one to ten in a hundred streamed commands break under load.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
		s.log.Error("no full duplex", "err", err)
	}
	s.reverseProxy(box, port).ServeHTTP(w, r)
}

// hostOnly reports whether a path of envd is for the host alone. The guest
// cannot tell: every caller reaches it over the same channel.
func hostOnly(path string) bool {
	return path == "/init" || strings.HasPrefix(path, "/cubby/")
}

// runTimeout is the time that the client gives an execution; zero means none.
func runTimeout(r *http.Request) time.Duration {
	ms, err := strconv.ParseInt(r.Header.Get(protocol.HeaderTimeoutMS), 10, 64)
	if err != nil || ms <= 0 || ms > host.MaxTimeout.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (s *Server) reverseProxy(box *host.Sandbox, port int) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme = "http"
			p.Out.URL.Host = net.JoinHostPort("localhost", strconv.Itoa(port))
			p.Out.Host = p.In.Host
		},
		Transport:     box.Transport(port),
		FlushInterval: -1, // everything is a stream
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case errors.Is(err, context.Canceled):
				// The client went away; nobody reads an answer.
			case errors.Is(err, engine.ErrPortClosed):
				writeJSON(w, http.StatusBadGateway, protocol.ProxyError{
					SandboxID: box.ID, Port: port, Code: http.StatusBadGateway, Message: "The sandbox is running but port is not open"})
			default:
				s.log.Debug("data plane", "sandbox_id", box.ID, "port", port, "err", err)
				notFound(w, box.ID)
			}
		},
	}
}

func notFound(w http.ResponseWriter, id string) {
	writeJSON(w, http.StatusBadGateway, protocol.ProxyError{SandboxID: id, Code: http.StatusBadGateway, Message: "The sandbox was not found"})
}
