package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// entry is what the access log says of a request. It is filled while the request
// is served, by its own goroutine.
type entry struct {
	http.ResponseWriter
	id      uint64
	status  int
	bytes   int64
	sandbox string
	port    int
	team    string
}

// requests numbers the requests of this process.
var requests atomic.Uint64

type entryKey struct{}

// noteTeam says whose request it is, for the access log.
func noteTeam(ctx context.Context, team string) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.team = team
	}
}

// noteTarget says where a request goes, for the access log.
func noteTarget(ctx context.Context, t *target) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.sandbox, e.port, e.team = t.info.ID, t.port, t.info.TeamID
	}
}

func (e *entry) WriteHeader(status int) {
	if e.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *entry) Write(b []byte) (int, error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	n, err := e.ResponseWriter.Write(b)
	e.bytes += int64(n)
	return n, err
}

// Hijack takes the connection over, for another protocol or a tunnel.
func (e *entry) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(e.ResponseWriter).Hijack()
	if err == nil && e.status == 0 {
		e.status = http.StatusSwitchingProtocols
	}
	return c, rw, err
}

// Unwrap is for http.ResponseController.
func (e *entry) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// maxLoggedPath bounds a path in the access log, in bytes.
const maxLoggedPath = 512

// logged serves requests with h, writes the access log and answers panics. Of a
// request it logs what is no secret: no query, which may hold a signature, no
// headers, no bodies.
func (s *Server) logged(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		e := &entry{ResponseWriter: w, id: requests.Add(1)}
		r = r.WithContext(context.WithValue(r.Context(), entryKey{}, e))
		defer func() {
			p := recover()
			aborted := p == http.ErrAbortHandler //nolint:errorlint // a panic's value is no error chain
			if p != nil && !aborted {
				aborted = s.panicked(e, r, p)
			}
			s.access(e, r, start, aborted)
			if aborted {
				panic(http.ErrAbortHandler)
			}
		}()
		h(e, r)
	})
}

// panicked logs a bug and answers it, or reports that an answer had begun and
// must be cut.
func (s *Server) panicked(e *entry, r *http.Request, p any) (abort bool) {
	s.log.Error("panic", "request", e.id, "method", r.Method, "path", clip.Ellipsis(r.URL.Path, maxLoggedPath), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if e.status != 0 {
		return true
	}
	writeError(e, fault.Internal, "internal error", "the server's log has it under request "+strconv.FormatUint(e.id, 10))
	return false
}

func (s *Server) access(e *entry, r *http.Request, start time.Time, aborted bool) {
	if !s.cfg.Access.Enabled(r.Context(), slog.LevelInfo) {
		return
	}
	path := r.URL.Path
	if r.Method == http.MethodConnect {
		path = r.Host
	}
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs, slog.Uint64("request", e.id), slog.String("method", clip.Ellipsis(r.Method, 16)), slog.String("path", clip.Ellipsis(path, maxLoggedPath)),
		slog.Int("status", e.status), slog.Int64("bytes", e.bytes), slog.Float64("ms", float64(time.Since(start).Microseconds())/1000))
	if e.sandbox != "" {
		attrs = append(attrs, slog.String("sandbox_id", e.sandbox), slog.Int("port", e.port))
	}
	if e.team != "" {
		attrs = append(attrs, slog.String("team", e.team))
	}
	if aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	s.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}
