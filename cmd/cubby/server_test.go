//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cubby-sandbox/cubby/cmd/internal/ownerconfig"
)

// onFake is a server of sandboxes that are not real.
func onFake(t *testing.T) (*fakeServer, *remote) {
	t.Helper()
	f := newFakeServer()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	t.Setenv("E2B_API_KEY", fakeKey)
	r, err := openRemote(ownerconfig.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

// TestNarrow: a table fits into the terminal, whatever is in it, and without one
// nothing is cut.
func TestNarrow(t *testing.T) {
	_, r := onFake(t)
	show := func(cols uint16) string {
		terminal, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		if err := pty.Setsize(tty, &pty.Winsize{Cols: cols, Rows: 24}); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		if code := execute(t.Context(), []string{"ls", "--server", r.at.APIURL}, stdio{strings.NewReader(""), tty, &errs}, nil, newEngineProgram()); code != 0 {
			t.Fatalf("status %d: %s", code, &errs)
		}
		tty.Close()
		b, _ := io.ReadAll(terminal) // its end is an error
		return strings.ReplaceAll(string(b), "\r\n", "\n")
	}
	const want80 = `ID                     TEMPLATE       STATE    AGE  LEFT  CPU  MEM   METADATA
iannnnnnnnnnnnnnnnnnn  code-interpr…  running  90m  5h    1    512M  "a=b"=c,ab…
ihostilllllllllllllle  "x\x1b[2J\u2…  paused   3h   -     16   1.5G  "\x1b]0;ti…
isilentttttttttttttt1  -              -        -    -     -    -     -
isilentttttttttttttt2  base           running  0s   0s    2    2G    -
`
	if got := show(80); got != want80 {
		t.Errorf("80 columns:\n%s", got)
	}
	const want40 = `ID                     STATE    AGE
iannnnnnnnnnnnnnnnnnn  running  90m
ihostilllllllllllllle  paused   3h
isilentttttttttttttt1  -        -
isilentttttttttttttt2  running  0s
`
	if got := show(40); got != want40 {
		t.Errorf("40 columns:\n%s", got)
	}
	wide := show(300)
	for _, want := range []string{`"a=b"=c,about="what she wants to have done today, and tomorrow",user=ann`,
		`"x\x1b[2J\u202ey"`, `"\x1b]0;title\a"="red\x1b[31m\r\nifaked  base",名前=説明`} {
		if !strings.Contains(wide, want) {
			t.Errorf("300 columns, without %s:\n%s", want, wide)
		}
	}
	for _, cols := range []int{30, 35, 40, 41, 50, 60, 70, 78, 79, 80, 82, 90, 100, 120} {
		for line := range strings.Lines(show(uint16(cols))) {
			if n := cells(strings.TrimSuffix(line, "\n")); n > cols {
				t.Errorf("%d columns, %d used: %s", cols, n, line)
			}
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"", 1, ""}} {
		if got := shorten(test.text, test.n); got != test.want || cells(got) > test.n {
			t.Errorf("%q to %d: %q", test.text, test.n, got)
		}
	}
}

func TestShortAmounts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 59 * time.Second: "59s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		2 * time.Hour: "2h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 2000 * 24 * time.Hour: "2000d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for bytes, want := range map[int64]string{1: "1M", 512 << 20: "512M", 1 << 30: "1G", 3 << 29: "1.5G", 64 << 30: "64G"} {
		if got := size(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// TestAllAsks: on a terminal, every sandbox of a team is ended by who says yes.
func TestAllAsks(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 4, "Yes\n": 4, "n\n": 0, "\n": 0, "\x04": 0} {
		f, r := onFake(t)
		terminal, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(terminal, answer); err != nil {
			t.Fatal(err)
		}
		code := execute(t.Context(), []string{"kill", "--all", "--server", r.at.APIURL}, stdio{tty, io.Discard, tty}, nil, newEngineProgram())
		tty.Close()
		said, _ := io.ReadAll(terminal)
		terminal.Close()
		if code != 0 || len(f.changes) != want || !strings.Contains(string(said), "End 4 sandboxes at "+r.at.APIURL) {
			t.Errorf("%q: status %d, %v, %s", answer, code, f.changes, said)
		}
	}
}

// TestWhereItAsks: whoever sits at standard input is asked where it is seen, and
// nothing ends where it would not be.
func TestWhereItAsks(t *testing.T) {
	for _, test := range []struct {
		name           string
		typed          bool // at a terminal
		sawOut, sawErr bool
		args           []string
		status, ended  int
		asked          bool
	}{
		{"standard error is a log", true, true, false, nil, exitOK, 0, true},
		{"standard output is a file", true, false, true, nil, exitOK, 0, true},
		{"neither is seen", true, false, false, nil, exitUsage, 0, false},
		{"neither is seen, and yes is said", true, false, false, []string{"-y"}, exitOK, 4, false},
		{"a script", false, true, true, nil, exitOK, 4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := onFake(t)
			terminal, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			if _, err := io.WriteString(terminal, "n\n"); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			std := stdio{strings.NewReader(""), io.Discard, &log}
			if test.typed {
				std.in = tty
			}
			if test.sawOut {
				std.out = tty
			}
			if test.sawErr {
				std.err = tty
			}
			code := execute(t.Context(), append([]string{"kill", "--all", "--server", r.at.APIURL}, test.args...), std, nil, newEngineProgram())
			tty.Close()
			said, _ := io.ReadAll(terminal) // its end is an error
			if code != test.status || len(f.changes) != test.ended || strings.Contains(string(said), "[y/N]") != test.asked {
				t.Errorf("status %d, %v, %s%s", code, f.changes, said, &log)
			}
			if code == exitUsage && !strings.Contains(log.String(), "give --yes (-y)") {
				t.Error(log.String())
			}
		})
	}
}

// TestUnreadWords: every sandbox is ended, whoever reads which; a lost id is told by
// the status, and words beside the answer are not missed.
func TestUnreadWords(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	unread, noReader := io.Pipe()
	unread.CloseWithError(syscall.EPIPE)
	for _, test := range []struct {
		name     string
		args     []string
		out, err io.Writer
		status   int
		ended    int
	}{
		{"full", []string{"kill", "--all"}, full, io.Discard, exitLost, 4},
		{"a reader that has gone", []string{"kill", "--all"}, noReader, io.Discard, exitBrokenPipe, 4},
		{"by id", []string{"kill", "iann", "ihos"}, full, io.Discard, exitLost, 2},
		{"words", []string{"kill", "--all"}, io.Discard, full, exitOK, 4},
		{"none to end", []string{"kill", "--all", "--metadata", "user=bob"}, io.Discard, full, exitOK, 0},
		{"none to list", []string{"ls", "--metadata", "user=bob"}, io.Discard, full, exitOK, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := onFake(t)
			code := execute(t.Context(), append(test.args, "--server", r.at.APIURL), stdio{strings.NewReader(""), test.out, test.err}, nil, newEngineProgram())
			if code != test.status || len(f.changes) != test.ended {
				t.Errorf("status %d, want %d; changed: %v", code, test.status, f.changes)
			}
		})
	}
}

// TestFollow: a log goes on until its sandbox ends, and shows each line once.
func TestFollow(t *testing.T) {
	f, r := onFake(t)
	out := &lockedBuffer{}
	v := logView{remote: r, out: out, pause: time.Millisecond, shown: map[string]bool{}}
	over := make(chan error)
	go func() { over <- v.show(t.Context(), "iann", true) }()
	for !strings.Contains(out.String(), "Sandbox created") {
		time.Sleep(time.Millisecond)
	}
	if err := r.Kill(t.Context(), "iannnnnnnnnnnnnnnnnnn"); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Count(got, "\n") != 3 || !strings.Contains(got, `info   Sandbox created  by="a b" template_id=base é=""`) ||
		!strings.Contains(got, `\x1bcwarn  a "b"\n\x1b[2J\u202ec  "\u009b1m"=\r`) || !strings.HasSuffix(got, "info   Sandbox ended: it was killed\n") {
		t.Errorf("got\n%s", got)
	}
	if !slices.Equal(f.changes, []string{"killed iannnnnnnnnnnnnnnnnnn"}) {
		t.Errorf("changed: %v", f.changes)
	}
}

// TestNetworkLog: what code wanted to connect to is a line for each decision and each end,
// in their order and once, until the sandbox ends; names that it made up obey nothing.
func TestNetworkLog(t *testing.T) {
	f := newFakeServer()
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/network") {
			f.ServeHTTP(w, r)
			return
		}
		const later = `,{"time":"2026-01-02T03:04:06Z","proto":"tcp","addr":"192.0.2.1:22","allowed":true,"rule":"192.0.2.1"}`
		answer := `{"flows":[{"time":"2026-01-02T03:04:05Z","proto":"tcp","host":"a\u001b[2J.example","addr":"198.18.0.1:443","reason":"no","entry":"a.example"},
			{"time":"2026-01-02T03:04:04Z","proto":"tcp","addr":"192.0.2.1:80","allowed":true,"sent":5,"received":6,"end":"2026-01-02T03:04:09Z"}`
		select {
		case <-ended:
			answer += later
		default:
			close(ended)
		}
		io.WriteString(w, answer+"]}")
	}))
	defer srv.Close()
	t.Setenv("E2B_API_KEY", fakeKey)
	t.Setenv("TZ", "UTC")
	r, err := openRemote(ownerconfig.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	v := logView{remote: r, out: out, network: true, pause: time.Millisecond, shown: map[string]bool{}}
	over := make(chan error, 1)
	go func() { over <- v.show(t.Context(), "iannnnnnnnnnnnnnnnnnn", true) }()
	for deadline := time.Now().Add(time.Minute); strings.Count(out.String(), "\n") < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got\n%s", out.String())
		}
	}
	if err := r.Kill(t.Context(), "iannnnnnnnnnnnnnnnnnn"); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.TrimSpace(line[len("2006-01-02 15:04:05.000"):]))
	}
	want := []string{
		`warn   refused  allow=a.example host=a\x1b[2J.example reason=no to="tcp 198.18.0.1:443"`,
		`info   ended  received=6 sent=5 to="tcp 192.0.2.1:80" took=5s`,
		`info   allowed  rule=192.0.2.1 to="tcp 192.0.2.1:22"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFollowLost: a log goes on where its server has been away for a moment, and one
// that stays away is told of in one line.
func TestFollowLost(t *testing.T) {
	for _, back := range []bool{true, false} {
		f := newFakeServer()
		var away atomic.Bool
		asked, following := make(chan struct{}, 1), make(chan struct{}, 1)
		tell := func(c chan struct{}) {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				tell(asked)
				panic(http.ErrAbortHandler) // the connection breaks off
			}
			if strings.HasSuffix(r.URL.Path, "/iannnnnnnnnnnnnnnnnnn") { // what was there has been shown
				tell(following)
			}
			f.ServeHTTP(w, r)
		}))
		defer srv.Close()
		t.Setenv("E2B_API_KEY", fakeKey)
		r, err := openRemote(ownerconfig.Options{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		out := &lockedBuffer{}
		v := logView{remote: r, out: out, pause: time.Millisecond, shown: map[string]bool{}}
		if back {
			v.patience = time.Hour
		}
		over := make(chan error, 1)
		go func() { over <- v.show(t.Context(), "iann", true) }()
		<-following
		away.Store(true)
		<-asked
		if !back {
			var said bytes.Buffer
			code := report(&said, r.explain(<-over))
			if code != exitCannotRun || !strings.HasPrefix(said.String(), "cubby: follow the log: the server has gone away: ") || !strings.Contains(said.String(), srv.URL) {
				t.Errorf("status %d: %s", code, &said)
			}
			continue
		}
		away.Store(false)
		if err := r.Kill(t.Context(), "iannnnnnnnnnnnnnnnnnn"); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil || !strings.HasSuffix(out.String(), "Sandbox ended: it was killed\n") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestInterruptedCreate: a sandbox whose create is under way when nobody wants it
// any more is ended when the create answers, and the create given up when it does
// not.
func TestInterruptedCreate(t *testing.T) {
	for _, answers := range []bool{true, false} {
		f, r := onFake(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := signalError{syscall.SIGINT}
		over := make(chan struct{})
		f.creating = func(request context.Context) {
			defer close(over)
			cancel(why)
			if !answers {
				<-request.Done()
			}
		}
		sbx, _, err := fresh{remote: r, tell: func(err error) { t.Error(err) }}.obtain(ctx, time.Minute)
		<-over
		if sbx != nil || !errors.Is(err, why) {
			t.Errorf("%v, %v", sbx, err)
		}
		if killed := slices.Contains(f.changes, "killed ifake"); killed != answers {
			t.Errorf("answers: %v, changes: %v", answers, f.changes)
		}
	}
}

// TestServerIsLost: a run that loses its sandbox, or the whole server, says which.
func TestServerIsLost(t *testing.T) {
	h := newHome(t)
	server := h.serve(t, "127.0.0.1:0")
	for _, test := range []struct {
		name string
		end  func()
		says []string
	}{
		{"the sandbox", func() {
			if out, err := h.command(t, "kill", "--all").CombinedOutput(); err != nil || !strings.Contains(string(out), "1 sandbox ended") {
				t.Errorf("%v: %s", err, out)
			}
		}, []string{"ended at", "it was killed"}},
		{"the server", func() {
			server.cmd.Process.Kill()
			<-server.exited
		}, []string{"the server does not answer", server.url, filepath.Join(h.config, "cubby", "config.json"), "cubby serve"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := h.command(t, "run", "--server", "-e", "import time\nprint('hello', flush=True)\ntime.sleep(1000)")
			var errs bytes.Buffer
			run.Stderr = &errs
			out, err := run.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, len("hello\n"))); err != nil {
				t.Errorf("%v: %s", err, &errs)
			}
			test.end()
			_ = run.Wait() // its status is looked at below
			if code := run.ProcessState.ExitCode(); code != exitCannotRun {
				t.Errorf("status %d", code)
			}
			for _, want := range test.says {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("%q is not in %s", want, &errs)
				}
			}
		})
	}
}
