//go:build linux

package commands

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
)

func cat() *envd.StartRequest {
	return &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "cat"}}
}

func TestStdin(t *testing.T) {
	b := newBox(t)
	s := b.startOK(cat())
	for _, text := range []string{"one\n", "", "two\n"} {
		if err := b.send(s.pid, stdin(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.closeStdin(s.pid); err != nil {
		t.Fatal(err)
	}
	if s.all(); string(s.stdout) != "one\ntwo\n" || s.end.GetExitCode() != 0 {
		t.Errorf("said %q, ended with %v", s.stdout, s.end)
	}
}

func TestStdinIsRefused(t *testing.T) {
	b := newBox(t)
	without := b.startOK(shell("sleep 1000"))
	closed := b.startOK(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	for range 2 { // twice is not an error
		if err := b.closeStdin(closed.pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.closeStdin(without.pid); err != nil {
		t.Error("closing what is not there:", err)
	}
	deaf := b.startOK(shell("exec 0<&-; echo deaf; exec sleep 1000"))
	deaf.until("it is deaf", func() bool { return len(deaf.stdout) > 0 })
	pty := b.startOK(terminal("sleep 1000", 80, 24))
	for _, test := range []struct {
		name string
		pid  uint32
		in   *envd.ProcessInput
		code connect.Code
	}{
		{"never there", without.pid, stdin("x"), connect.CodeInternal},
		{"closed by the client", closed.pid, stdin("x"), connect.CodeInternal},
		{"closed by the command", deaf.pid, stdin("x"), connect.CodeInternal},
		{"a terminal has none", pty.pid, stdin("x"), connect.CodeInternal},
		{"without a terminal", closed.pid, keys("x"), connect.CodeInternal},
		{"nowhere", closed.pid, nil, connect.CodeUnimplemented},
		{"unknown process", 1, stdin("x"), connect.CodeNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantCode(t, b.send(test.pid, test.in), test.code, "")
		})
	}
	wantCode(t, b.closeStdin(pty.pid), connect.CodeFailedPrecondition, "Ctrl+D")
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestLargeInput is more than a pipe holds; more than one message of it may be, it
// comes in pieces.
func TestLargeInput(t *testing.T) {
	b := newBox(t)
	s := b.startOK(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "wc", Args: []string{"-c"}}})
	const size = 64 << 20
	if err := b.send(s.pid, &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: make([]byte, size)}}); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(b.envd.URL+envdconnect.ProcessSendInputProcedure, "application/json", io.LimitReader(endless{}, maxInput+1))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "resource_exhausted") {
		t.Errorf("more than one message may be: %s %s", resp.Status, text)
	}
	if err := b.closeStdin(s.pid); err != nil {
		t.Fatal(err)
	}
	if s.all(); strings.TrimSpace(string(s.stdout)) != "67108864" {
		t.Errorf("%q bytes arrived", s.stdout)
	}
}

// TestInputWaits for a command that does not read, as long as both its client and
// the command are there.
func TestInputWaits(t *testing.T) {
	b := newBox(t)
	s := b.startOK(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	full := func(ctx context.Context) error {
		_, err := b.process().SendInput(ctx, connect.NewRequest(&envd.SendInputRequest{Process: byPID(s.pid),
			Input: &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}}))
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	wantCode(t, full(ctx), connect.CodeDeadlineExceeded, "")
	c := b.g.table.find(byPID(s.pid))
	guesttest.WaitFor(t, "nobody writes", func() bool { return len(c.in.sem) == 0 })
	failed := make(chan error)
	go func() { failed <- full(context.Background()) }()
	guesttest.WaitFor(t, "somebody writes", func() bool { return len(c.in.sem) == 1 })
	if err := b.signal(byPID(s.pid), envd.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-failed, connect.CodeInternal, "")
}

func TestStreamInput(t *testing.T) {
	b := newBox(t)
	s := b.startOK(cat())
	in := b.process().StreamInput(context.Background())
	messages := []*envd.StreamInputRequest{
		{Event: &envd.StreamInputRequest_Start{Start: &envd.StreamInputRequest_StartEvent{Process: byPID(s.pid)}}},
		{Event: &envd.StreamInputRequest_Keepalive{Keepalive: &envd.StreamInputRequest_KeepAlive{}}},
	}
	var want bytes.Buffer
	for i := range 100 {
		line := strings.Repeat(string(rune('a'+i%26)), i) + "\n"
		want.WriteString(line)
		data := &envd.StreamInputRequest_DataEvent{Input: stdin(line)}
		messages = append(messages, &envd.StreamInputRequest{Event: &envd.StreamInputRequest_Data{Data: data}})
	}
	for _, m := range messages {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if err := b.closeStdin(s.pid); err != nil {
		t.Fatal(err)
	}
	if s.all(); string(s.stdout) != want.String() {
		t.Errorf("said %q", s.stdout)
	}
	for _, test := range []struct {
		name string
		m    *envd.StreamInputRequest
		code connect.Code
	}{
		{"data before the start", messages[3], connect.CodeInvalidArgument},
		{"an ended process", messages[0], connect.CodeNotFound},
		{"nothing", &envd.StreamInputRequest{}, connect.CodeUnimplemented},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := b.process().StreamInput(context.Background())
			_ = in.Send(test.m)
			_, err := in.CloseAndReceive()
			wantCode(t, err, test.code, "")
		})
	}
}

// TestLargeInputsWaitForEachOther: with as many as may be in memory, the next
// waits until its client gives up.
func TestLargeInputsWaitForEachOther(t *testing.T) {
	s := &Service{large: make(chan struct{}, inputs)}
	inside := make(chan struct{})
	leave := make(chan struct{})
	h := s.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-leave
	}))
	request := func(ctx context.Context, size int64) *http.Request {
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://guest/process.Process/SendInput", nil)
		r.ContentLength = size
		return r
	}
	var all sync.WaitGroup
	for range inputs {
		all.Go(func() { h.ServeHTTP(nil, request(context.Background(), -1)) })
		<-inside
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.ServeHTTP(nil, request(ctx, largeInput+1))
	all.Go(func() { h.ServeHTTP(nil, request(context.Background(), largeInput)) })
	<-inside // a small one is let in
	close(leave)
	all.Wait()
}
