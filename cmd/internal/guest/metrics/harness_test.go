//go:build linux

package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// box is the service of a guest.
type box struct {
	*testing.T
	g     *Service
	guest *guesttest.Box
	envd  *httptest.Server
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{T: t, guest: guesttest.New(t)}
	b.g = New(b.guest.Settings)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", b.g.Answer)
	b.envd = b.guest.Serve(mux, func() {})
	return b
}

// tell is a call of /init.
func (b *box) tell(req protocol.InitRequest) { b.guest.Tell(req) }

func (b *box) do(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	b.Helper()
	return guesttest.Do(b, b.envd, method, path, body, header...)
}
