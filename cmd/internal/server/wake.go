package server

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// wake has a sandbox that is paused, or is being, resumed for a request that has been
// admitted, if it was created so. The guest, which judges access tokens and signatures,
// is not there: they are judged here, by its rules, so that nobody wakes a sandbox who
// could not use it. Nothing of the request's body has been read. Where the sandbox is not
// to be woken t stays as it is, and its ports say why they are closed.
func (s *Server) wake(r *http.Request, t *target) *refusal {
	if stateOf(t.info.State) != statePaused || !t.info.Lifecycle.AutoResume || onlyLooks(r, t.port) {
		return nil
	}
	if refused := t.admitToken(r); refused != nil {
		return refused
	}
	leave, refused := s.waiting.enter(t)
	if refused != nil {
		return refused
	}
	defer leave()
	ports, err := t.ports.Wake(r.Context())
	if err != nil {
		return s.notWoken(r, t, err)
	}
	t.ports, t.info = ports, ports.Info()
	return nil
}

// onlyLooks reports whether a request asks about a sandbox and for nothing of it. E2B's
// packages ask for the health of one to learn whether it is paused.
func onlyLooks(r *http.Request, port int) bool {
	return isPreflight(r) || isGuests(port) && (r.Method == http.MethodOptions || r.URL.Path == "/health")
}

// isGuests reports whether a port is the guest's own and not one of a user's program.
func isGuests(port int) bool {
	return port == protocol.EnvdPort || port == protocol.CodeInterpreterPort
}

// admitToken judges the access token of a request for one of the guest's ports as the
// guest would.
func (t *target) admitToken(r *http.Request) *refusal {
	got := r.Header.Get(protocol.HeaderAccessToken)
	switch {
	case !isGuests(t.port) || t.info.Token == "":
		return nil
	case subtle.ConstantTimeCompare([]byte(got), []byte(t.info.Token)) == 1:
		return nil
	case t.port == protocol.EnvdPort && got == "" && r.URL.Path == "/files" && takesSignature(r.Method):
		return t.admitSignature(r)
	case t.port == protocol.CodeInterpreterPort && got == "" && isContexts(r.URL.Path):
		return nil // admitContexts has asked for the token where contexts do
	}
	return &refusal{code: fault.Unauthenticated, message: "unauthorized access, please provide a valid access token or method signing if supported"}
}

func isContexts(path string) bool {
	return path == "/contexts" || strings.HasPrefix(path, "/contexts/")
}

func takesSignature(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodPost
}

// admitSignature judges the signature of a request for files.
func (t *target) admitSignature(r *http.Request) *refusal {
	sign, refused := readSignature(r)
	switch {
	case refused != nil:
		return refused
	case !sign.isBy(t.info.Token):
		return invalidSignature
	case sign.expired():
		return expiredSignature
	}
	return nil
}

// notWoken says why a sandbox was not resumed for a request.
func (s *Server) notWoken(r *http.Request, t *target, err error) *refusal {
	if errors.Is(err, host.ErrNotFound) {
		return s.ended(r, t.name)
	}
	if _, wrong := wrongState(err); wrong {
		return s.explain(r, t, err)
	}
	retryAfter, e := s.explained(r, "the sandbox could not be resumed", err)
	return &refusal{code: fault.FromHTTP(e.Code), id: t.name, message: e.Message, hint: e.Hint, retryAfter: retryAfter}
}

// waiters count the requests that wait for sandboxes to be resumed, by id: no more for
// each than it may have when it runs. The zero value is ready.
type waiters struct {
	mu    sync.Mutex
	count map[string]int
}

// enter counts a request, which ends with leave, or refuses it.
func (w *waiters) enter(t *target) (leave func(), refused *refusal) {
	id := t.info.ID
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[id] >= maxConns {
		return nil, tooMany(t)
	}
	if w.count == nil {
		w.count = map[string]int{}
	}
	w.count[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[id]--; w.count[id] == 0 {
			delete(w.count, id)
		}
	}, nil
}
