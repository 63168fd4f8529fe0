//go:build linux

package watch

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
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

type watcher = Service

type filesystem struct {
	*files.Service
	*watcher
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{T: t, guest: guesttest.New(t)}
	f := files.New(b.guest.Settings)
	b.g, b.home = New(b.guest.Ctx, f), b.guest.Home
	mux := http.NewServeMux()
	mux.Handle(envdconnect.NewFilesystemHandler(filesystem{f, b.g}, connect.WithReadMaxBytes(files.MaxCall)))
	b.envd = b.guest.Serve(mux, b.g.Wait)
	return b
}

func (b *box) filesystem() envdconnect.FilesystemClient {
	return envdconnect.NewFilesystemClient(guesttest.Plain, b.envd.URL, connect.WithProtoJSON())
}

func (b *box) at(name ...string) string { return filepath.Join(append([]string{b.home}, name...)...) }
