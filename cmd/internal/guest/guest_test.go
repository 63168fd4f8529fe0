//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMain(m *testing.M) { guesttest.Main(m, Main) }

// box is a guest that runs as an ordinary process, as whoever runs the tests.
type box struct {
	*testing.T
	g          *Guest
	home       string
	envd, code *httptest.Server
}

// newBox returns a guest that has been told the host's token and nothing else.
func newBox(t *testing.T, change ...func(*settings.Config)) *box {
	t.Helper()
	b := newUninitialised(t, change...)
	b.tell(protocol.InitRequest{HostToken: guesttest.HostToken})
	return b
}

// tell is one of the host's calls of /init.
func (b *box) tell(req protocol.InitRequest) {
	b.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	if resp, text := b.do("POST", "/init", bytes.NewReader(body), protocol.HeaderHostToken, guesttest.HostToken); resp.StatusCode != http.StatusNoContent {
		b.Fatal(resp.Status, text)
	}
}

func newUninitialised(t *testing.T, change ...func(*settings.Config)) *box {
	t.Helper()
	cfg := guesttest.Config(t)
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{T: t, g: g, home: cfg.Home, envd: httptest.NewServer(g.Envd()), code: httptest.NewServer(g.CodeInterpreter())}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		b.code.CloseClientConnections()
		g.Close()
		b.envd.Close()
		b.code.Close()
	})
	return b
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
