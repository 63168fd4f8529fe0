package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (w *wired) processes() envdconnect.ProcessClient {
	return envdconnect.NewProcessClient(&http.Client{Transport: w}, "http://cubby", connect.WithProtoJSON())
}

// said is what a command did.
type said struct {
	stdout, stderr, pty string
	end                 *envd.ProcessEvent_EndEvent
}

// command runs req to its end; started is called with its process id if not nil.
func (w *wired) command(req *envd.StartRequest, user string, timeout time.Duration, started func(uint32)) (s said, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r := connect.NewRequest(req)
	if user != "" {
		r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	var stdout, stderr, pty strings.Builder
	defer func() { s.stdout, s.stderr, s.pty = stdout.String(), stderr.String(), pty.String() }()
	stream, err := w.processes().Start(ctx, r)
	if err != nil {
		return s, err
	}
	defer stream.Close()
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *envd.ProcessEvent_Start:
			if started != nil {
				started(e.Start.GetPid())
			}
		case *envd.ProcessEvent_Data:
			stdout.Write(e.Data.GetStdout())
			stderr.Write(e.Data.GetStderr())
			pty.Write(e.Data.GetPty())
		case *envd.ProcessEvent_End:
			s.end = e.End
		}
	}
	if stream.Err() == nil && s.end == nil {
		return s, errors.New("a stream without an end")
	}
	return s, stream.Err()
}

func bashCommand(script string) *envd.StartRequest {
	no := false
	return &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", script}}, Stdin: &no}
}

// TestCommands runs commands in a real sandbox.
func TestCommands(t *testing.T) {
	w := wire(t, protocol.Limits{})
	for _, test := range []struct {
		name, user, script, stdout, status string
	}{
		{"user", "", "id -un; pwd; echo $HOME $USER $LOGNAME $E2B_SANDBOX", "user\n/home/user\n/home/user user user true\n", "exit status 0"},
		{"root", "root", "id -u; echo $HOME", "0\n/root\n", "exit status 0"},
		{"status", "", "exit 7", "", "exit status 7"},
		{"killed", "", "kill -9 $$", "", "signal: killed"},
		{"sudo", "", "sudo id -u", "0\n", "exit status 0"},
		{"output is held open", "", "sleep 30 & echo over", "over\n", "exit status 0"},
		{"last words", "", "seq 1 20000 | tail -n 1; exit 3", "20000\n", "exit status 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := w.command(bashCommand(test.script), test.user, time.Minute, nil)
			if err != nil || s.stdout != test.stdout || s.end.GetStatus() != test.status {
				t.Errorf("said %q %q, ended with %v, %v", s.stdout, s.stderr, s.end, err)
			}
		})
	}
	t.Run("out of time", func(t *testing.T) {
		s, err := w.command(bashCommand("echo begun; sleep 1000"), "", 2*time.Second, nil)
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded || s.stdout != "begun\n" {
			t.Errorf("said %q, %v", s.stdout, err)
		}
	})
	t.Run("much", func(t *testing.T) {
		s, err := w.command(bashCommand("head -c 100000000 /dev/zero"), "", time.Minute, nil)
		if err != nil || len(s.stdout) != 100_000_000 {
			t.Errorf("%d bytes, %v", len(s.stdout), err)
		}
	})
}

// TestManyCommands has hundreds of streams of one sandbox at once, none broken.
func TestManyCommands(t *testing.T) {
	w := wire(t, protocol.Limits{})
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			var want strings.Builder
			for j := range 20 {
				fmt.Fprintln(&want, i, j+1)
			}
			req := &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sh", Args: []string{"-c", fmt.Sprintf("i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo %d $i; done; exit %d", i, i%7)}}}
			s, err := w.command(req, "", 5*time.Minute, nil)
			if err != nil || s.stdout != want.String() || s.end.GetExitCode() != int32(i%7) {
				t.Errorf("stream %d: %q, %v, %v", i, s.stdout, s.end, err)
			}
		})
	}
	all.Wait()
}

// TestTerminalInSandbox types into a shell and resizes it.
func TestTerminalInSandbox(t *testing.T) {
	w := wire(t, protocol.Limits{})
	pid := make(chan uint32, 1)
	type result struct {
		said
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := w.command(&envd.StartRequest{
			Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i", "-l"}},
			Pty:     &envd.PTY{Size: &envd.PTY_Size{Cols: 101, Rows: 42}},
		}, "", time.Minute, func(p uint32) { pid <- p })
		done <- result{s, err}
	}()
	sel := &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: <-pid}}
	keys := func(text string) {
		t.Helper()
		in := &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: []byte(text)}}
		if _, err := w.processes().SendInput(t.Context(), connect.NewRequest(&envd.SendInputRequest{Process: sel, Input: in})); err != nil {
			t.Fatal(err)
		}
	}
	keys("stty size; tty; test -O $(tty) && echo mine-$((1+1)); echo $TERM\n")
	if _, err := w.processes().Update(t.Context(), connect.NewRequest(&envd.UpdateRequest{Process: sel,
		Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 133, Rows: 55}}})); err != nil {
		t.Fatal(err)
	}
	keys("stty size; sudo id -u\n")
	keys("exit 4\n")
	r := <-done
	for _, want := range []string{"/dev/pts/", "mine-2", "xterm-256color", "55 133", "\n0"} {
		if !strings.Contains(r.pty, want) {
			t.Errorf("%q is not in %q", want, r.pty)
		}
	}
	if r.err != nil || r.end.GetExitCode() != 4 {
		t.Errorf("ended with %v, %v", r.end, r.err)
	}
}
