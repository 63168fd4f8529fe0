//go:build linux

package commands

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// runs says whether a process of that number still runs anything.
func runs(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/cmdline")
	return err == nil && len(b) > 0 // a process that has ended has no command line
}

// family starts a shell with a child and returns the child's process id and the
// shell's. The stream ends with ctx.
func (b *box) family(ctx context.Context, attached bool) (child string, shell uint32) {
	b.Helper()
	req := connect.NewRequest(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "sleep 1000 & echo $!; wait"}}})
	if attached {
		req.Header().Set(protocol.HeaderAttached, "1")
	}
	stream, err := b.processes().Start(ctx, req)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stream.Close() })
	for child == "" && stream.Receive() {
		e := stream.Msg().GetEvent()
		if s := e.GetStart(); s != nil {
			shell = s.GetPid()
		}
		child = strings.TrimSpace(string(e.GetData().GetStdout()))
	}
	if child == "" {
		b.Fatal(stream.Err())
	}
	return child, shell
}

func (b *box) processes() envdconnect.ProcessClient {
	return envdconnect.NewProcessClient(http.DefaultClient, b.envd.URL, connect.WithProtoJSON())
}

func (b *box) soon(what string, is func() bool) {
	b.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.Error("not soon:", what)
}

// TestAttached: a command ends with its call if that asked for it, with what it
// has started; without that it goes on.
func TestAttached(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(t.Context())
	with, _ := b.family(ctx, true)
	without, shell := b.family(ctx, false)
	cancel()
	b.soon("the attached command has ended", func() bool { return !runs(with) })
	list, err := b.processes().List(t.Context(), connect.NewRequest(&envd.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetPid() != shell || !runs(without) {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestAttachedAfterARestore: what cuts the call of an attached command off then is no
// end of its client.
func TestAttachedAfterARestore(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(t.Context())
	child, shell := b.family(ctx, true)
	c := b.g.table.find(&envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: shell}})
	b.machine.Restored()
	cancel()
	b.soon("the call has ended", func() bool { return len(c.following()) == 0 })
	if !runs(child) {
		t.Error("the command was ended")
	}
	c.kill()
}

// TestSignalGroup: a signal is for one process, and for its group if the client
// asks for that.
func TestSignalGroup(t *testing.T) {
	b := newBox(t)
	for _, sig := range []envd.Signal{envd.Signal_SIGNAL_SIGTERM, envd.Signal_SIGNAL_SIGKILL} {
		for _, group := range []bool{true, false} {
			child, shell := b.family(t.Context(), false)
			req := connect.NewRequest(&envd.SendSignalRequest{Signal: sig,
				Process: &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: shell}}})
			if group {
				req.Header().Set(protocol.HeaderSignalGroup, "1")
			}
			if _, err := b.processes().SendSignal(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			b.soon("the shell has ended", func() bool { return b.g.table.find(req.Msg.GetProcess()) == nil })
			if group {
				b.soon("its child has ended", func() bool { return !runs(child) })
			} else if !runs(child) {
				t.Errorf("%v to the shell ended its child", sig)
			}
			if !group { // the test's own to clean up
				if pid, err := strconv.Atoi(child); err == nil && pid > 1 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
}
