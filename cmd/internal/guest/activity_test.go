//go:build linux

package guest

import (
	"context"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"

	"connectrpc.com/connect"
)

// TestActivity: the host learns that a command or a cell runs; a terminal in which
// nothing happens is none.
func TestActivity(t *testing.T) {
	b := newBox(t)
	is := func(what string, want string) {
		t.Helper()
		guesttest.WaitFor(t, what, func() bool {
			_, text := b.do("GET", "/cubby/activity", nil, protocol.HeaderHostToken, guesttest.HostToken)
			return strings.TrimSpace(text) == want
		})
	}
	is("nothing", `{"busy":false}`)
	client := envdconnect.NewProcessClient(b.envd.Client(), b.envd.URL)
	start := func(req *envd.StartRequest) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.Start(ctx, connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		pid := stream.Msg().GetEvent().GetStart().GetPid()
		cancel() // it goes on without its client
		return func() {
			_, err := client.SendSignal(t.Context(), connect.NewRequest(&envd.SendSignalRequest{
				Process: &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: pid}}, Signal: envd.Signal_SIGNAL_SIGKILL}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	end := start(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"60"}}})
	is("a command", `{"busy":true}`)
	end()
	is("after it", `{"busy":false}`)
	end = start(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"60"}},
		Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 80, Rows: 24}}})
	is("a terminal", `{"busy":false}`)
	end()
}
