//go:build linux

package commands

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestLateConnect(t *testing.T) {
	b := newBox(t)
	tag := "late"
	req := shell("exit 5")
	req.Tag = &tag
	s := b.startOK(req).all()
	for name, sel := range map[string]*envd.ProcessSelector{"pid": byPID(s.pid), "tag": byTag(tag)} {
		t.Run(name, func(t *testing.T) {
			again, err := b.connect(sel)
			if err != nil {
				t.Fatal(err)
			}
			if again.all(); again.pid != s.pid || again.end.GetExitCode() != 5 || again.end.GetStatus() != "exit status 5" {
				t.Errorf("told %d and %v", again.pid, again.end)
			}
		})
	}
	t.Run("not found by other calls", func(t *testing.T) {
		message := fmt.Sprintf("process with pid %d not found", s.pid)
		wantCode(t, b.signal(byPID(s.pid), envd.Signal_SIGNAL_SIGKILL), connect.CodeNotFound, message)
		wantCode(t, b.send(s.pid, stdin("x")), connect.CodeNotFound, message)
		wantCode(t, b.closeStdin(s.pid), connect.CodeNotFound, message)
	})
	t.Run("forgotten after half a minute", func(t *testing.T) {
		b.g.table.mu.Lock()
		b.g.table.past[0].at = time.Now().Add(-remembered)
		b.g.table.mu.Unlock()
		_, err := b.connect(byPID(s.pid))
		wantCode(t, err, connect.CodeNotFound, fmt.Sprintf("process with pid %d not found", s.pid))
		_, err = b.connect(byTag(tag))
		wantCode(t, err, connect.CodeNotFound, "process with tag late not found")
	})
}

func TestPastIsBounded(t *testing.T) {
	var cs table
	for pid := range uint32(3 * maxRemembered) {
		c := &command{info: &envd.ProcessInfo{Pid: pid + 1}}
		cs.add(c)
		cs.over(c)
	}
	if len(cs.past) != maxRemembered || len(cs.live) != 0 || cs.past[0].pid != 2*maxRemembered+1 {
		t.Errorf("%d are remembered, %d live", len(cs.past), len(cs.live))
	}
	again := &command{info: &envd.ProcessInfo{Pid: 3 * maxRemembered}}
	cs.add(again)
	if _, past := cs.findPast(byPID(3 * maxRemembered)); past {
		t.Error("the end of an earlier process is taken for that of a later one with its number")
	}
}

// count is how many places are taken.
func (cs *table) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.used
}

func TestCommandsAreBounded(t *testing.T) {
	var cs table
	var wg sync.WaitGroup
	for range maxCommands {
		if err := cs.reserve(t.Context(), &wg, 1); err != nil {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cs.reserve(gone, &wg, 1); !errors.Is(err, context.Canceled) {
		t.Error("a command too many did not wait until its client was gone:", err)
	}
	queued := make(chan error)
	go func() { queued <- cs.reserve(t.Context(), &wg, 1) }()
	cs.free(&wg, 1)
	if err := <-queued; err != nil {
		t.Error("after one has ended:", err)
	}
	cs.free(&wg, 1)
	if err := cs.reserve(t.Context(), &wg, maxConfigs); !errors.Is(err, errTooLarge) {
		t.Error("too long a configuration:", err)
	}
	cs.close()
	if err := cs.reserve(t.Context(), &wg, 1); !errors.Is(err, errClosing) {
		t.Error("while the guest ends:", err)
	}
	if cs.count() != maxCommands-1 {
		t.Errorf("%d places are taken", cs.count())
	}
}

// TestCommandsQueue starts more commands at once than the sandbox may have
// processes: all have their turn.
func TestCommandsQueue(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{Limits: protocol.Limits{PIDs: 4}})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			s, err := b.start(shell(fmt.Sprintf("echo %d", i)), "", 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.close()
			for s.one() {
			}
			if s.err() != nil || string(s.stdout) != fmt.Sprintln(i) {
				t.Errorf("command %d: %q, %v", i, s.stdout, s.err())
			}
			if n := b.g.table.count(); n > 4 {
				t.Errorf("%d run", n)
			}
		})
	}
	all.Wait()
}

// TestCommandsAreBoundedAnew lets in at once who waits when the bound is raised, and
// nobody where it falls below what runs.
func TestCommandsAreBoundedAnew(t *testing.T) {
	var cs table
	var wg sync.WaitGroup
	in := make(chan error)
	reserve := func(n int) {
		for range n {
			go func() { in <- cs.reserve(t.Context(), &wg, 0) }()
		}
	}
	enter := func(n int) {
		t.Helper()
		for range n {
			if err := <-in; err != nil {
				t.Fatal(err)
			}
		}
	}
	cs.bound(1)
	reserve(3)
	enter(1)
	cs.bound(3)
	enter(2)
	cs.bound(2)
	reserve(1)
	cs.free(&wg, 0)
	if n := cs.count(); n != 2 {
		t.Errorf("%d have a place of 2", n)
	}
	cs.free(&wg, 0)
	enter(1)
	cs.bound(0)
	reserve(maxCommands - 2)
	enter(maxCommands - 2)
	if n := cs.count(); n != maxCommands {
		t.Errorf("%d have a place", n)
	}
}

func TestListAndTags(t *testing.T) {
	b := newBox(t)
	tag := "server"
	req := &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}, Envs: map[string]string{"A": "b"}}, Tag: &tag}
	s := b.startOK(req)
	list := func() []*envd.ProcessInfo {
		t.Helper()
		resp, err := b.process().List(context.Background(), connect.NewRequest(&envd.ListRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Msg.GetProcesses()
	}
	all := list()
	if len(all) != 1 || all[0].GetPid() != s.pid || all[0].GetTag() != tag ||
		all[0].GetConfig().GetCmd() != "sleep" || all[0].GetConfig().GetEnvs()["A"] != "b" {
		t.Errorf("listed %v", all)
	}
	if err := b.signal(byTag(tag), envd.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s.all(); len(list()) != 0 {
		t.Errorf("after the end: %v", list())
	}
}
