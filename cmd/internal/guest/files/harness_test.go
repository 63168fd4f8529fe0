//go:build linux

package files

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMain(m *testing.M) { guesttest.Main(m, nil) }

// box is the service of a guest.
type box struct {
	*testing.T
	g     *Service
	guest *guesttest.Box
	home  string
	envd  *httptest.Server
}

func newBox(t *testing.T, change ...func(*settings.Config)) *box {
	t.Helper()
	b := &box{T: t, guest: guesttest.New(t, change...)}
	b.g, b.home = New(b.guest.Settings), b.guest.Home
	b.envd = b.guest.Serve(handler(b.g), func() {})
	return b
}

// rest are the calls that watch.
type rest struct {
	envdconnect.UnimplementedFilesystemHandler
}

type filesystem struct {
	*Service
	rest
}

// handler serves what a guest does of the service.
func handler(s *Service) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files", s.Download)
	mux.HandleFunc("POST /files", s.Upload)
	mux.HandleFunc("POST /files/compose", s.Compose)
	mux.Handle(envdconnect.NewFilesystemHandler(filesystem{Service: s}, connect.WithReadMaxBytes(MaxCall)))
	return mux
}

// tell is a call of /init.
func (b *box) tell(req protocol.InitRequest) { b.guest.Tell(req) }

func (b *box) do(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	b.Helper()
	return guesttest.Do(b, b.envd, method, path, body, header...)
}

func (b *box) filesystem() envdconnect.FilesystemClient {
	return envdconnect.NewFilesystemClient(guesttest.Plain, b.envd.URL, connect.WithProtoJSON())
}

func (b *box) at(name ...string) string { return filepath.Join(append([]string{b.home}, name...)...) }
