//go:build linux

package commands

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMain(m *testing.M) { guesttest.Main(m, nil) }

// box is the service of a guest.
type box struct {
	*testing.T
	*guesttest.Box
	g       *Service
	machine *restored.Machine
	home    string
	envd    *httptest.Server
}

func newBox(t *testing.T, change ...func(*settings.Config)) *box {
	t.Helper()
	b := &box{T: t, Box: guesttest.New(t, change...), machine: restored.New()}
	b.g, b.home = New(b.Ctx, b.Settings, b.Children, b.machine), b.Home
	mux := http.NewServeMux()
	mux.Handle(b.g.Handler())
	b.envd = b.Serve(mux, b.g.Wait)
	return b
}

// tell is a call of /init.
func (b *box) tell(req protocol.InitRequest) {
	b.Tell(req)
	b.g.Bound(req.Limits.PIDs)
}
