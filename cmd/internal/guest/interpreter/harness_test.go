//go:build linux

package interpreter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMain(m *testing.M) { guesttest.Main(m, nil) }

// box is the interpreter of a guest.
type box struct {
	*testing.T
	g          *Interpreter
	guest      *guesttest.Box
	machine    *restored.Machine
	home       string
	envd, code *httptest.Server
}

func newBox(t *testing.T, change ...func(*settings.Config)) *box {
	t.Helper()
	b := &box{T: t, guest: guesttest.New(t, change...), machine: restored.New()}
	b.home = b.guest.Home
	var err error
	if b.g, err = New(b.guest.Ctx, b.guest.Settings, b.guest.Children, b.machine); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cubby/oom", b.g.OutOfMemory)
	b.envd = b.guest.Serve(mux, func() {})
	b.code = b.guest.Serve(b.g.Handler(), b.g.Close)
	return b
}

// tell is a call of /init.
func (b *box) tell(req protocol.InitRequest) {
	b.guest.Tell(req)
	b.g.Warm(req.Warm)
}

func (b *box) do(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	b.Helper()
	return guesttest.Do(b, b.envd, method, path, body, header...)
}

func (b *box) request(ctx context.Context, c guesttest.Call) *http.Response {
	b.Helper()
	return guesttest.Post(ctx, b, b.code, c)
}

func (b *box) run(c guesttest.Call) guesttest.Answer {
	b.Helper()
	return guesttest.Run(b, b.code, c)
}

func (b *box) at(name ...string) string { return filepath.Join(append([]string{b.home}, name...)...) }
