//go:build linux

package commands

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// terminal is a command on a terminal, as pty.create of E2B's clients starts it.
func terminal(script string, cols, rows uint32) *envd.StartRequest {
	args := []string{"-i"}
	if script != "" {
		args = []string{"-c", script}
	}
	return &envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: append([]string{"--norc"}, args...)},
		Pty:     &envd.PTY{Size: &envd.PTY_Size{Cols: cols, Rows: rows}},
	}
}

func (b *box) resize(pid, cols, rows uint32) error {
	_, err := b.process().Update(context.Background(), connect.NewRequest(&envd.UpdateRequest{Process: byPID(pid),
		Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: cols, Rows: rows}}}))
	return err
}

func TestTerminal(t *testing.T) {
	b := newBox(t)
	s := b.startOK(terminal("", 101, 42))
	type_ := func(text string) {
		t.Helper()
		if err := b.send(s.pid, keys(text)); err != nil {
			t.Fatal(err)
		}
	}
	says := func(text string) {
		t.Helper()
		s.until(text, func() bool { return strings.Contains(string(s.pty), text) })
		_, after, _ := strings.Cut(string(s.pty), text)
		s.pty = []byte(after)
	}
	type_("echo typed-$((6*7))\n")
	says("typed-42") // not the echo of the input
	type_("stty size; tty | cut -c1-8; echo $TERM $LANG $LC_ALL\n")
	says("42 101")
	says("/dev/pts")
	says("xterm-256color C.UTF-8 C.UTF-8")
	if err := b.resize(s.pid, 133, 55); err != nil {
		t.Fatal(err)
	}
	type_("stty size\n")
	says("55 133")
	type_("sh -c 'echo started-$((1+1)); exec sleep 1000'\n")
	says("started-2")
	type_("\x03echo inter''rupted\n")
	says("interrupted")
	type_("exit 4\n")
	if s.all(); s.end.GetExitCode() != 4 {
		t.Errorf("ended with %v", s.end)
	}
	if len(s.stdout)+len(s.stderr) > 0 {
		t.Errorf("a terminal has one output: %q %q", s.stdout, s.stderr)
	}
}

func TestTerminalLastWords(t *testing.T) {
	b := newBox(t)
	s := b.startOK(terminal("seq 1 20000", 80, 24)).all()
	if lines := strings.Count(string(s.pty), "\r\n"); lines != 20000 {
		t.Errorf("%d of 20000 lines came", lines)
	}
}

// TestTerminalHangsUp: what holds a terminal open after its command does not hold
// the end up.
func TestTerminalHangsUp(t *testing.T) {
	b := newBox(t)
	s := b.startOK(terminal("setsid sleep 20 & echo $!; exit 6", 80, 24)).all()
	if s.end.GetExitCode() != 6 {
		t.Errorf("ended with %v", s.end)
	}
}

func TestTerminalKill(t *testing.T) {
	b := newBox(t)
	s := b.startOK(terminal("", 80, 24))
	if err := b.signal(byPID(s.pid), envd.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s.all(); s.end.GetStatus() != "signal: killed" || s.end.GetExited() {
		t.Errorf("ended with %v", s.end)
	}
}

func TestTerminalSize(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct {
		name string
		pty  *envd.PTY
		want string
	}{
		{"as said", &envd.PTY{Size: &envd.PTY_Size{Cols: 12, Rows: 34}}, "34 12"},
		{"not said", &envd.PTY{}, "24 80"},
		{"the largest", &envd.PTY{Size: &envd.PTY_Size{Cols: 65535, Rows: 65535}}, "65535 65535"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := terminal("stty size", 0, 0)
			req.Pty = test.pty
			if s := b.startOK(req).all(); strings.TrimSpace(string(s.pty)) != test.want {
				t.Errorf("size %q", s.pty)
			}
		})
	}
	s := b.startOK(terminal("sleep 1000", 80, 24))
	plain := b.startOK(cat())
	wantCode(t, b.resize(s.pid, 65536, 1), connect.CodeInvalidArgument, "65535")
	wantCode(t, b.resize(plain.pid, 80, 24), connect.CodeInternal, "no terminal")
	wantCode(t, b.resize(1, 80, 24), connect.CodeNotFound, "process with pid 1 not found")
	if _, err := b.process().Update(context.Background(), connect.NewRequest(&envd.UpdateRequest{Process: byPID(s.pid)})); err != nil {
		t.Error("an update of nothing:", err)
	}
}
