//go:build linux

package commands

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// long is more than anything takes, even on a busy machine.
const long = 2 * time.Minute

// shell is what commands.run of E2B's clients starts.
func shell(script string) *envd.StartRequest {
	no := false
	return &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", script}}, Stdin: &no}
}

// stream is a command as its client sees it.
type stream struct {
	*testing.T
	next  func() bool
	msg   func() *envd.ProcessEvent
	err   func() error
	close func()
	pid   uint32
	// What has come.
	stdout, stderr, pty []byte
	keepalives          int
	end                 *envd.ProcessEvent_EndEvent
}

func (b *box) process() envdconnect.ProcessClient {
	return envdconnect.NewProcessClient(http.DefaultClient, b.envd.URL, connect.WithProtoJSON())
}

// start starts a command and returns when it runs. user is the default one if
// empty; a timeout of 0 is none.
func (b *box) start(req *envd.StartRequest, user string, timeout time.Duration) (*stream, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	b.Cleanup(cancel)
	r := connect.NewRequest(req)
	if user != "" {
		r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	if timeout > 0 {
		r.Header().Set("Connect-Timeout-Ms", fmt.Sprint(timeout.Milliseconds()))
	}
	st, err := b.process().Start(withoutDeadline(ctx), r)
	if err != nil {
		return nil, err
	}
	s := &stream{T: b.T, next: st.Receive, msg: func() *envd.ProcessEvent { return st.Msg().GetEvent() },
		err: st.Err, close: func() { cancel(); _ = st.Close() }}
	return s, s.first()
}

// withoutDeadline hides the deadline of ctx: a client would send it along, and the
// command would get it.
func withoutDeadline(ctx context.Context) context.Context { return plainContext{ctx} }

type plainContext struct{ context.Context }

func (plainContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (b *box) connect(req *envd.ProcessSelector, header ...string) (*stream, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	b.Cleanup(cancel)
	r := connect.NewRequest(&envd.ConnectRequest{Process: req})
	for i := 0; i < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	st, err := b.process().Connect(withoutDeadline(ctx), r)
	if err != nil {
		return nil, err
	}
	s := &stream{T: b.T, next: st.Receive, msg: func() *envd.ProcessEvent { return st.Msg().GetEvent() },
		err: st.Err, close: func() { cancel(); _ = st.Close() }}
	return s, s.first()
}

func byPID(pid uint32) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Tag{Tag: tag}}
}

// first takes the first message, which must be the start.
func (s *stream) first() error {
	s.Helper()
	if !s.next() {
		return s.err()
	}
	if s.pid = s.msg().GetStart().GetPid(); s.pid == 0 {
		s.Fatalf("the first event is %v", s.msg())
	}
	return nil
}

// one takes one more event and says whether there was one.
func (s *stream) one() bool {
	s.Helper()
	if !s.next() {
		return false
	}
	if s.end != nil {
		s.Fatalf("after the end comes %v", s.msg())
	}
	switch e := s.msg().GetEvent().(type) {
	case *envd.ProcessEvent_Data:
		if n := max(len(e.Data.GetStdout()), len(e.Data.GetStderr())); n > 32<<10 || len(e.Data.GetPty()) > 16<<10 {
			s.Fatalf("%d bytes in an event", n+len(e.Data.GetPty()))
		}
		s.stdout = append(s.stdout, e.Data.GetStdout()...)
		s.stderr = append(s.stderr, e.Data.GetStderr()...)
		s.pty = append(s.pty, e.Data.GetPty()...)
	case *envd.ProcessEvent_Keepalive:
		s.keepalives++
	case *envd.ProcessEvent_End:
		s.end = e.End
	default:
		s.Fatalf("unexpected: %v", s.msg())
	}
	return true
}

// until reads until ok, which must come to be.
func (s *stream) until(what string, ok func() bool) {
	s.Helper()
	for !ok() {
		if !s.one() {
			s.Fatalf("%s: the stream ended with %v after %q %q %q", what, s.err(), s.stdout, s.stderr, s.pty)
		}
	}
}

// all reads to the end.
func (s *stream) all() *stream {
	s.Helper()
	for s.one() {
	}
	if s.err() != nil || s.end == nil {
		s.Fatalf("end %v, error %v", s.end, s.err())
	}
	return s
}

func (b *box) startOK(req *envd.StartRequest) *stream {
	b.Helper()
	s, err := b.start(req, "", 0)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *box) signal(sel *envd.ProcessSelector, sig envd.Signal) error {
	_, err := b.process().SendSignal(context.Background(), connect.NewRequest(&envd.SendSignalRequest{Process: sel, Signal: sig}))
	return err
}

func (b *box) send(pid uint32, in *envd.ProcessInput) error {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	_, err := b.process().SendInput(ctx, connect.NewRequest(&envd.SendInputRequest{Process: byPID(pid), Input: in}))
	return err
}

func stdin(text string) *envd.ProcessInput {
	return &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: []byte(text)}}
}

func keys(text string) *envd.ProcessInput {
	return &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: []byte(text)}}
}

func (b *box) closeStdin(pid uint32) error {
	_, err := b.process().CloseStdin(context.Background(), connect.NewRequest(&envd.CloseStdinRequest{Process: byPID(pid)}))
	return err
}

func wantCode(t *testing.T, err error, code connect.Code, message string) {
	t.Helper()
	var ce *connect.Error
	if !errors.As(err, &ce) || ce.Code() != code || !strings.Contains(ce.Message(), message) {
		t.Errorf("got %v instead of %v: %s", err, code, message)
	}
}

func TestCommandEnds(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct {
		name, script, stdout, stderr string
		code                         int32
		exited                       bool
		status                       string
	}{
		{"output", "echo out; echo err >&2", "out\n", "err\n", 0, true, "exit status 0"},
		{"status", "exit 7", "", "", 7, true, "exit status 7"},
		{"a signal", "kill -9 $$", "", "", -1, false, "signal: killed"},
		{"not found in the shell", "exec /nonexistent 2>/dev/null", "", "", 127, true, "exit status 127"},
		{"no standard input", "cat; echo over", "over\n", "", 0, true, "exit status 0"},
		{"output is closed early", "exec >&- 2>&-; sleep .1; exit 3", "", "", 3, true, "exit status 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := b.startOK(shell(test.script)).all()
			if string(s.stdout) != test.stdout || string(s.stderr) != test.stderr {
				t.Errorf("said %q and %q", s.stdout, s.stderr)
			}
			e := s.end
			if e.GetExitCode() != test.code || e.GetExited() != test.exited || e.GetStatus() != test.status {
				t.Errorf("ended with %v", e)
			}
			if failed := test.code != 0; failed != (e.Error != nil) || failed && e.GetError() != test.status {
				t.Errorf("error %v", e.Error)
			}
		})
	}
}

// numbered are n variables of size bytes each, beside their names.
func numbered(n, size int) map[string]string {
	env := map[string]string{}
	for i := range n {
		env[fmt.Sprintf("V%d", i)] = strings.Repeat("x", size)
	}
	return env
}

func TestCommandIsRefused(t *testing.T) {
	b := newBox(t)
	dir := "/nonexistent"
	file := filepath.Join(b.home, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		req     *envd.StartRequest
		user    string
		code    connect.Code
		message string
	}{
		{"unknown user", shell("true"), "nobody-here", connect.CodeUnauthenticated, "invalid username: 'nobody-here'"},
		{"missing cwd", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Cwd: &dir}}, "", connect.CodeInvalidArgument, "cwd '/nonexistent' does not exist"},
		{"cwd is a file", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Cwd: &file}}, "", connect.CodeInvalidArgument, "is not a directory"},
		{"missing command", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "no-such-command"}}, "", connect.CodeInvalidArgument, "'no-such-command': executable file not found in $PATH"},
		{"missing path", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/no/such/command"}}, "", connect.CodeInvalidArgument, "no such file or directory"},
		{"not executable", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: file}}, "", connect.CodeInvalidArgument, "permission denied"},
		{"no command", &envd.StartRequest{}, "", connect.CodeInvalidArgument, "no command"},
		{"NUL in an argument", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "echo", Args: []string{"a\x00b"}}}, "", connect.CodeInvalidArgument, "an argument has a NUL character"},
		{"bad variable", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Envs: map[string]string{"A=B": "c"}}}, "", connect.CodeInvalidArgument, "bad environment variable"},
		{"arguments without end", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Args: slices.Repeat([]string{strings.Repeat("x", 1<<10)}, 2<<10)}},
			"", connect.CodeInvalidArgument, "put them into a file"},
		{"long argument", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Args: []string{strings.Repeat("x", 1<<20)}}}, "", connect.CodeInvalidArgument,
			"an argument has 1048576 bytes, and can have 131071: put it into a file"},
		{"large variable", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Envs: map[string]string{"BIG": strings.Repeat("x", 1<<20)}}},
			"", connect.CodeInvalidArgument,
			`the environment is too large: "BIG" has 1048580 bytes, and a variable can have 131071`},
		{"many variables", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Envs: numbered(20_000, 1)}}, "", connect.CodeInvalidArgument,
			"the environment is too large: it has 20000 variables, and can have 4096"},
		{"many large variables", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Envs: numbered(30, 100_000)}}, "", connect.CodeInvalidArgument,
			"the environment is too large: it has 3000"},
		{"terminal without end", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true"}, Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 1 << 20, Rows: 1}}},
			"", connect.CodeInvalidArgument, "65535"},
		{"message without end", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Args: []string{strings.Repeat("x", maxRequest)}}},
			"", connect.CodeResourceExhausted, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := b.start(test.req, test.user, 0)
			wantCode(t, err, test.code, test.message)
		})
	}
	if cs := &b.g.table; cs.count() != 0 || cs.size != 0 {
		t.Errorf("%d commands of %d bytes are left", cs.count(), cs.size)
	}
}

func TestCommandEnvironment(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{EnvVars: map[string]string{"GLOBAL": "sandbox", "BOTH": "sandbox", "LOGNAME": "sandbox"}})
	req := shell(`echo "$HOME|$USER|$LOGNAME|$PATH|$GLOBAL|$BOTH|$OWN|$E2B_SANDBOX|$PWD|$TERM"`)
	req.Process.Envs = map[string]string{"BOTH": "request", "OWN": "request", "TERM": "dumb"}
	want := b.home + "|user|sandbox|/usr/local/bin:/usr/bin:/bin|sandbox|request|request|true|" + b.home + "|dumb\n"
	if s := b.startOK(req).all(); string(s.stdout) != want {
		t.Errorf("got  %q\nwant %q", s.stdout, want)
	}
	t.Setenv("CUBBY_SECRET", "of the guest")
	if s := b.startOK(shell("env")).all(); strings.Contains(string(s.stdout), "CUBBY_SECRET") {
		t.Error("the guest's own environment is inherited")
	}
	t.Run("the request's PATH finds the command", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(b.home, "mine"), []byte("#!/bin/sh\necho mine\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := b.startOK(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "mine", Envs: map[string]string{"PATH": b.home}}}).all()
		if string(s.stdout) != "mine\n" {
			t.Errorf("said %q", s.stdout)
		}
	})
}

func TestCommandFolder(t *testing.T) {
	b := newBox(t)
	sub := filepath.Join(b.home, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, workdir, cwd, want string }{
		{"home", "", "", b.home},
		{"relative to home", "", "sub", sub},
		{"tilde", "", "~/sub", sub},
		{"absolute", "", "/", "/"},
		{"the template's", sub, "", sub},
		{"the request's before the template's", sub, "/", "/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := &box{T: t, Box: b.Box, g: b.g, home: b.home, envd: b.envd}
			if test.workdir != "" {
				b.tell(protocol.InitRequest{DefaultWorkdir: test.workdir})
			}
			req := &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "pwd"}}
			if test.cwd != "" {
				req.Process.Cwd = &test.cwd
			}
			if s := b.startOK(req).all(); string(s.stdout) != test.want+"\n" {
				t.Errorf("ran in %q instead of %q", s.stdout, test.want)
			}
		})
	}
}

// TestCommandFolderIsClosed starts a command in a folder that its user may not enter.
func TestCommandFolderIsClosed(t *testing.T) {
	b := newBox(t, func(c *settings.Config) {
		if os.Getuid() == 0 { // whom nothing is refused
			c.SwitchUser, c.UID, c.GID = true, 65534, 65534
		}
	})
	if err := os.Chmod(filepath.Dir(b.home), 0o711); err != nil { // of all folders of this test
		t.Fatal(err)
	}
	folder := filepath.Join(b.home, "folder")
	if err := os.Mkdir(folder, 0); err != nil {
		t.Fatal(err)
	}
	_, err := b.start(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Cwd: &folder}}, "", 0)
	wantCode(t, err, connect.CodeInvalidArgument, "start 'true' in '"+folder+"'")
}

func TestCommandSaysMuch(t *testing.T) {
	b := newBox(t)
	const size = 100 << 20
	s := b.startOK(shell(fmt.Sprintf("head -c %d /dev/zero; echo over >&2", size)))
	total := 0
	for s.one() {
		total += len(s.stdout)
		s.stdout = s.stdout[:0]
	}
	if s.err() != nil || total != size || string(s.stderr) != "over\n" || s.end.GetExitCode() != 0 {
		t.Errorf("%d of %d bytes came, %q, %v, %v", total, size, s.stderr, s.end, s.err())
	}
}

func TestManyCommandsAtOnce(t *testing.T) {
	b := newBox(t)
	const streams, lines = 300, 200
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			s, err := b.start(shell(fmt.Sprintf("for i in {1..%d}; do echo %d $i; done; exit %d", lines, i, i%50)), "", 0)
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
				return
			}
			defer s.close()
			for s.one() {
			}
			var want strings.Builder
			for j := range lines {
				fmt.Fprintln(&want, i, j+1)
			}
			if s.err() != nil || string(s.stdout) != want.String() || s.end.GetExitCode() != int32(i%50) {
				t.Errorf("stream %d broke: %v, %d bytes, %v", i, s.err(), len(s.stdout), s.end)
			}
		})
	}
	all.Wait()
}

func TestCommandIsFollowedByMany(t *testing.T) {
	b := newBox(t)
	first := b.startOK(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "cat"}})
	second, err := b.connect(byPID(first.pid))
	if err != nil {
		t.Fatal(err)
	}
	if second.pid != first.pid {
		t.Errorf("connected to %d instead of %d", second.pid, first.pid)
	}
	if err := b.send(first.pid, stdin("one\n")); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*stream{first, second} {
		s.until("the first line", func() bool { return string(s.stdout) == "one\n" })
	}
	first.close() // its command goes on
	if err := b.send(first.pid, stdin("two\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.closeStdin(first.pid); err != nil {
		t.Fatal(err)
	}
	if second.all(); string(second.stdout) != "one\ntwo\n" {
		t.Errorf("the other one got %q", second.stdout)
	}
}

// TestSlowFollower leaves a command without a reader: it is held up, nothing of it
// is lost, and its going away lets the command go on.
func TestSlowFollower(t *testing.T) {
	b := newBox(t)
	const size = 64 << 20
	s := b.startOK(shell(fmt.Sprintf("head -c %d /dev/zero; echo over > done", size)))
	var c *command
	guesttest.WaitFor(t, "the command", func() bool { c = b.g.table.find(byPID(s.pid)); return c != nil })
	f := c.following()[0]
	guesttest.WaitFor(t, "back-pressure", func() bool { return len(f.events) == waiting })
	if _, err := os.Stat(filepath.Join(b.home, "done")); err == nil {
		t.Error("the command has written to nobody")
	}
	s.close()
	select {
	case <-c.ended:
	case <-time.After(long):
		t.Fatal("the command is held up by a client that is gone")
	}
	if _, err := os.Stat(filepath.Join(b.home, "done")); err != nil || c.end.GetExitCode() != 0 {
		t.Error(err, c.end)
	}
}

// TestFollowersThatDoNotRead: one that holds up another is left behind and told so;
// one that holds up nobody but the command is waited for.
func TestFollowersThatDoNotRead(t *testing.T) {
	c := &command{info: &envd.ProcessInfo{Pid: 7}, ended: make(chan struct{}), stop: t.Context().Done(), patience: time.Millisecond}
	reads, stuck := c.follow(), c.follow()
	reads.events = make(chan *envd.ProcessEvent, 10*waiting)
	for range cap(reads.events) {
		c.tell(stdoutEvent([]byte("x")))
	}
	if len(reads.events) != cap(reads.events) {
		t.Errorf("%d of %d events came", len(reads.events), cap(reads.events))
	}
	g := &Service{ctx: t.Context()}
	sent := 0
	err := g.tellAll(t.Context(), c, stuck, http.Header{}, func(*envd.ProcessEvent) error { sent++; return nil }, nil)
	wantCode(t, err, connect.CodeResourceExhausted, "connect again")
	if sent > 1+waiting {
		t.Errorf("%d events were sent", sent)
	}
	c.leave(stuck)
	if c.leaveBehind(reads) {
		t.Error("the only follower was left behind")
	}
	c.leave(reads)
	if len(c.following()) != 0 {
		t.Error("somebody follows")
	}
}

func TestCommandTimeout(t *testing.T) {
	b := newBox(t)
	// The shell waits for a child, which must go too.
	s, err := b.start(shell("sleep 1000 & echo $! > child; wait"), "", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.connect(byPID(s.pid), "Connect-Timeout-Ms", fmt.Sprint(long.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	for s.one() {
	}
	wantCode(t, s.err(), connect.CodeDeadlineExceeded, "")
	guesttest.WaitFor(t, "the command's death", func() bool { return b.g.table.find(byPID(s.pid)) == nil })
	late, err := b.connect(byPID(s.pid))
	if err != nil {
		t.Fatal(err)
	}
	for who, f := range map[string]*stream{"who followed": other, "who comes late": late} {
		if f.all(); f.end.GetExitCode() != -1 || f.end.GetStatus() != "signal: killed" {
			t.Errorf("%s is told %v", who, f.end)
		}
	}
	child, _ := os.ReadFile(filepath.Join(b.home, "child"))
	var pid int
	if _, err := fmt.Sscan(string(child), &pid); err != nil {
		t.Fatalf("child %q: %v", child, err)
	}
	guesttest.WaitFor(t, "the child's death", func() bool {
		p, err := procfs.Read(pid)
		return err != nil || p.Zombie
	})
}

// TestTimeoutHoldsWithoutAClient: who goes away takes the stream along, not the
// command, and its time goes on.
func TestTimeoutHoldsWithoutAClient(t *testing.T) {
	b := newBox(t)
	s, err := b.start(shell("sleep 1000"), "", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := b.g.table.find(byPID(s.pid))
	s.close()
	guesttest.WaitFor(t, "nobody follows", func() bool { return len(c.following()) == 0 })
	select {
	case <-c.ended:
	case <-time.After(long):
		t.Fatal("it lives on")
	}
	if c.end.GetStatus() != "signal: killed" {
		t.Errorf("ended with %v", c.end)
	}
}

func TestSignals(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct {
		name, script string
		sig          envd.Signal
		status       string
	}{
		{"kill during a stream", "yes", envd.Signal_SIGNAL_SIGKILL, "signal: killed"},
		{"kill", "echo ready; exec sleep 1000", envd.Signal_SIGNAL_SIGKILL, "signal: killed"},
		{"terminate", "echo ready; exec sleep 1000", envd.Signal_SIGNAL_SIGTERM, "signal: terminated"},
		{"terminate is caught", "trap 'exit 9' TERM; echo ready; while :; do sleep .05; done", envd.Signal_SIGNAL_SIGTERM, "exit status 9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := b.startOK(shell(test.script))
			s.until("output", func() bool { return len(s.stdout) > 0 })
			if err := b.signal(byPID(s.pid), test.sig); err != nil {
				t.Fatal(err)
			}
			if s.all(); s.end.GetStatus() != test.status {
				t.Errorf("ended with %v", s.end)
			}
		})
	}
	s := b.startOK(shell("sleep 1000"))
	for _, test := range []struct {
		name    string
		sel     *envd.ProcessSelector
		sig     envd.Signal
		code    connect.Code
		message string
	}{
		{"bad signal", byPID(s.pid), envd.Signal(11), connect.CodeUnimplemented, "invalid signal"},
		{"no signal", byPID(s.pid), envd.Signal_SIGNAL_UNSPECIFIED, connect.CodeUnimplemented, "invalid signal"},
		{"unknown process", byPID(1), envd.Signal_SIGNAL_SIGKILL, connect.CodeNotFound, "process with pid 1 not found"},
		{"unknown tag", byTag("x"), envd.Signal_SIGNAL_SIGKILL, connect.CodeNotFound, "process with tag x not found"},
		{"no process", nil, envd.Signal_SIGNAL_SIGKILL, connect.CodeUnimplemented, "pid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantCode(t, b.signal(test.sel, test.sig), test.code, test.message)
		})
	}
}

func TestKeepalive(t *testing.T) {
	b := newBox(t)
	s := b.startOK(shell("sleep 1000"))
	follower, err := b.connect(byPID(s.pid), "Keepalive-Ping-Interval", "1")
	if err != nil {
		t.Fatal(err)
	}
	follower.until("signs of life", func() bool { return follower.keepalives == 2 })
}

// TestDaemon starts something that outlives the command and holds its output open:
// the command ends all the same, and the daemon is not killed by what it says.
func TestDaemon(t *testing.T) {
	b := newBox(t)
	s := b.startOK(shell(`
		(trap '' HUP; while [ ! -e stop ]; do echo daemon || exit; sleep .02; done; echo unharmed > result) &
		echo $! > daemon
		echo command`)).all()
	if out := string(s.stdout); !strings.Contains(out, "command\n") || s.end.GetExitCode() != 0 {
		t.Errorf("said %q, ended with %v", out, s.end)
	}
	if err := os.WriteFile(filepath.Join(b.home, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	guesttest.WaitFor(t, "the daemon's word", func() bool {
		out, _ := os.ReadFile(filepath.Join(b.home, "result"))
		return string(out) == "unharmed\n"
	})
	guesttest.WaitFor(t, "the end of its pipe", func() bool { return b.g.table.count() == 0 })
}

// TestLastWords come from a child that the command does not wait for.
func TestLastWords(t *testing.T) {
	b := newBox(t)
	s := b.startOK(shell(`exec > >(cat); seq 1 20000`)).all()
	if lines := strings.Count(string(s.stdout), "\n"); lines != 20000 {
		t.Errorf("%d of 20000 lines came", lines)
	}
}

// TestGuestEnds with commands that run: nothing of them is left.
func TestGuestEnds(t *testing.T) {
	b := newBox(t)
	quiet := b.startOK(shell("sleep 1000"))
	loud := b.startOK(shell("yes"))
	b.g.Refuse()
	b.End()
	b.g.Wait()
	for _, s := range []*stream{quiet, loud} {
		for s.one() {
		}
		if p, err := procfs.Read(int(s.pid)); err == nil && !p.Zombie {
			t.Errorf("%s lives on", p.Name)
		}
	}
	_, err := b.start(shell("true"), "", 0)
	wantCode(t, err, connect.CodeResourceExhausted, "ending")
	if syscall.Kill(int(quiet.pid), 0) == nil {
		t.Error("the process is there")
	}
}
