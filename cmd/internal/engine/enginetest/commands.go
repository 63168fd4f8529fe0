package enginetest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (m *machine) processes() envdconnect.ProcessClient {
	return envdconnect.NewProcessClient(&http.Client{Transport: m.transport[protocol.EnvdPort]}, "http://guest", connect.WithProtoJSON())
}

// begin starts a command and leaves it.
func (m *machine) begin(t *testing.T, req *envd.StartRequest) *envd.ProcessSelector {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := m.processes().Start(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: stream.Msg().GetEvent().GetStart().GetPid()}}
}

// talk connects to a command, writes in and reads until the command says want.
func (m *machine) talk(t *testing.T, p *envd.ProcessSelector, in *envd.ProcessInput, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := m.processes().Connect(ctx, connect.NewRequest(&envd.ConnectRequest{Process: p}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	if _, err := m.processes().SendInput(ctx, connect.NewRequest(&envd.SendInputRequest{Process: p, Input: in})); err != nil {
		t.Fatal(err)
	}
	said := ""
	for !strings.Contains(said, want) {
		if !stream.Receive() {
			t.Fatalf("%q was not said, but %q: %v", want, said, stream.Err())
		}
		data := stream.Msg().GetEvent().GetData()
		said += string(data.GetStdout()) + string(data.GetPty())
	}
}

// testCheckpointCommands restores a machine with commands that run: they go on,
// and are reached as before.
func (s Suite) testCheckpointCommands(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{})
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	checkpointer := can[engine.Checkpointer](t, m0)
	pipe := m.begin(t, &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "bash", Args: []string{"-c", "while read line; do echo got $((++n)) $line; done"}}})
	terminal := m.begin(t, &envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "bash", Args: []string{"--norc", "-i"}},
		Pty:     &envd.PTY{Size: &envd.PTY_Size{Cols: 101, Rows: 42}},
	})
	stdin := func(text string) *envd.ProcessInput {
		return &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: []byte(text)}}
	}
	keys := func(text string) *envd.ProcessInput {
		return &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: []byte(text)}}
	}
	m.talk(t, pipe, stdin("before\n"), "got 1 before\n")
	m.talk(t, terminal, keys("x=4; stty size\n"), "42 101")
	m.talk(t, terminal, keys("sleep 1000; echo then\n"), "echo then\r\n")
	m.talk(t, terminal, keys("\x1a"), "Stopped")

	dir := t.TempDir() + "/image"
	mkdir(t, dir)
	if err := checkpointer.Checkpoint(t.Context(), dir, engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	m.talk(t, pipe, stdin("went on\n"), "got 2 went on\n")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	spec.ID += "r"
	r0, err := restorer.Restore(t.Context(), spec, dir, engine.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newMachine(t, r0)
	r.talk(t, pipe, stdin("after\n"), "got 2 after\n")
	if _, err := r.processes().Update(t.Context(), connect.NewRequest(&envd.UpdateRequest{Process: terminal,
		Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 133, Rows: 55}}})); err != nil {
		t.Fatal(err)
	}
	r.talk(t, terminal, keys("echo x is $x; stty size\n"), "x is 4\r\n55 133")
	r.talk(t, terminal, keys("jobs; fg\n"), "sleep 1000\r\n")
	r.talk(t, terminal, keys("\x03"), "$ ")
	r.talk(t, terminal, keys("echo ended with $?\n"), "ended with 130")
	for _, p := range []*envd.ProcessSelector{pipe, terminal} {
		if _, err := r.processes().SendSignal(t.Context(),
			connect.NewRequest(&envd.SendSignalRequest{Process: p, Signal: envd.Signal_SIGNAL_SIGKILL})); err != nil {
			t.Error(err)
		}
		stream, err := r.processes().Connect(t.Context(), connect.NewRequest(&envd.ConnectRequest{Process: p}))
		if err != nil {
			t.Fatal(err)
		}
		var end *envd.ProcessEvent_EndEvent
		for stream.Receive() {
			end = stream.Msg().GetEvent().GetEnd()
		}
		if err := stream.Close(); err != nil || end.GetStatus() != "signal: killed" {
			t.Errorf("ended with %v, %v", end, stream.Err())
		}
	}
	if got := r.must(t, "bash", "echo a new one"); got != "a new one" {
		t.Errorf("said %q", got)
	}
	p := r.begin(t, &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "cat"}})
	r.talk(t, p, stdin("started after\n"), "started after\n")
}
