//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (b *box) needs(language string) {
	b.Helper()
	if b.g.settings.Config.Interpreters[language] == "" {
		b.Skip("no " + language)
	}
}

func TestLanguages(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ language, code, stdout, result string }{
		{"", "print(6*7)", "42\n", ""},
		{"python", "'x' + 'y'", "", "xy"},
		{"py", "x = 5", "", ""},
		{"Python3", "x", "", "5"},
		{"javascript", "console.log(6*7)", "42\n", ""},
		{"js", "const y = 4; y + 1", "", "5"},
		{"typescript", "let z: number = y; z", "", "4"},
		{"bash", "echo hello; A=1", "hello\n", ""},
		{"sh", "echo $A", "1\n", ""},
	} {
		t.Run(c.language+" "+c.code, func(t *testing.T) {
			_, lang, _ := normalise(c.language)
			b := &box{T: t, g: b.g, home: b.home, envd: b.envd, code: b.code}
			b.needs(lang)
			a := b.run(guesttest.Call{Language: c.language, Code: c.code})
			result := ""
			if len(a.Results) > 0 {
				result = a.Results[0].Text
			}
			if a.Stdout != c.stdout || result != c.result || a.End.ExitCode != 0 || a.Failure != nil {
				t.Fatalf("%q, %q, %+v, %v, stderr %q", a.Stdout, result, a.End, a.Failure, a.Stderr)
			}
		})
	}
}

func TestOrderOfTheStream(t *testing.T) {
	b := newBox(t)
	// Between two streams there is an order only if the one was read first.
	a := b.run(guesttest.Call{Code: `
import fcntl, struct, sys, termios, time
def taken(fd):
    while struct.unpack('i', fcntl.ioctl(fd, termios.FIONREAD, b'0000'))[0]: time.sleep(.001)
print('one')
taken(1)
print('two', file=sys.stderr)
taken(2)
print('three')
1/0`})
	if a.Kinds != "nosoEe" || a.End.ExitCode != 1 || a.Failure.Name != "ZeroDivisionError" {
		t.Fatalf("%s %+v %+v", a.Kinds, a.End, a.Failure)
	}
	if a.Lines[0].ExecutionCount != 1 || a.Lines[1].Text != "one\n" || a.Lines[1].Timestamp == "" {
		t.Fatalf("%+v", a.Lines)
	}
	a = b.run(guesttest.Call{Code: "print('before')\n40 + 2"})
	if a.Kinds != "nore" || a.Lines[0].ExecutionCount != 2 || a.Results[0].Text != "42" || !a.Results[0].IsMainResult {
		t.Fatalf("%s %+v", a.Kinds, a.Results)
	}
	a = b.run(guesttest.Call{Language: "bash", Code: "printf 'no end of line'; (exit 7)"})
	if a.Stdout != "no end of line" || a.End.ExitCode != 7 || a.Failure != nil {
		t.Fatalf("%q %+v %v", a.Stdout, a.End, a.Failure)
	}
	a = b.run(guesttest.Call{Code: "import os\nfor c in 'h\u00e9\u20ac\U0001F600':\n  for x in c.encode(): os.write(1, bytes([x])); time.sleep(.025)\nos.write(1, b'\\xff')"})
	if a.Stdout != "h\u00e9\u20ac\U0001F600\uFFFD" {
		t.Fatalf("%q", a.Stdout)
	}
}

func TestOutputArrivesAsItIsWritten(t *testing.T) {
	b := newBox(t)
	// The code ends only when what it wrote has come.
	resp := b.request(context.Background(), guesttest.Call{Code: "import os, time\nprint('now', end='', flush=True)\nwhile not os.path.exists('seen'): time.sleep(.01)", Header: guesttest.Limit(2 * time.Minute)})
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var e protocol.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Text == "now" {
			guesttest.Must(t, os.WriteFile(b.at("seen"), nil, 0o644))
		}
		if e.Type == protocol.EventEnd {
			if e.EndOfExecution.TimedOut {
				t.Fatal("nothing came while the code ran")
			}
			break
		}
	}
}

func TestTimeLimit(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		name, language, setup, code, later string
		lost                               bool
	}{
		{"python sleeps", "python", "x = 1", "import time; time.sleep(60)", "print(x)", false},
		{"python spins", "python", "x = 1", "while True: pass", "print(x)", false},
		{"python will not stop", "python", "x = 1", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", "print('x' in globals())", true},
		{"bash sleeps", "bash", "x=1", "sleep 60", "echo $x", false},
		{"bash spins", "bash", "x=1", "while :; do :; done", "echo $x", false},
		{"javascript waits", "javascript", "x = 1", "await new Promise(r => setTimeout(r, 60000))", "console.log(x)", false},
		{"javascript spins", "javascript", "x = 1", "while (true) {}", "console.log(x)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			b.run(guesttest.Call{Language: c.language, Code: c.setup})
			begin := time.Now()
			a := b.run(guesttest.Call{Language: c.language, Code: c.code, Header: guesttest.Limit(300 * time.Millisecond)})
			if !a.End.TimedOut || a.End.ExitCode != 124 || a.End.Limit != "time" || a.End.StateLost != c.lost || a.Failure == nil || a.Failure.Name != "TimeoutError" {
				t.Fatalf("%+v %+v", a.End, a.Failure)
			}
			if d := time.Since(begin); d > 40*time.Second { // of a minute
				t.Fatalf("took %v", d)
			}
			want := "1\n"
			if c.lost {
				want = "False\n"
			}
			a = b.run(guesttest.Call{Language: c.language, Code: c.later})
			if a.Stdout != want || a.End.FreshKernel != c.lost || strings.Contains(a.Stderr, "this is a fresh one") != c.lost {
				t.Fatalf("%q %q %+v", a.Stdout, a.Stderr, a.End)
			}
		})
	}
}

func alive(pid int) bool {
	p, err := procfs.Read(pid)
	return err == nil && !p.Zombie
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	var pid int
	guesttest.WaitFor(t, file, func() bool {
		b, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	return pid
}

func TestKilledCellTakesItsProcessesAndNoOthers(t *testing.T) {
	b := newBox(t)
	b.run(guesttest.Call{Language: "bash", Code: "sleep 300 & echo $! > earlier"})
	earlier := readPID(t, filepath.Join(b.home, "earlier"))
	defer func() { _ = syscall.Kill(earlier, syscall.SIGKILL) }()
	a := b.run(guesttest.Call{Language: "bash", Code: "(trap '' TERM INT; echo $BASHPID > mine; while :; do sleep 1; done) & trap '' INT; while :; do :; done", Header: guesttest.Limit(500 * time.Millisecond)})
	if !a.End.TimedOut {
		t.Fatalf("%+v", a.End)
	}
	mine := readPID(t, filepath.Join(b.home, "mine"))
	guesttest.WaitFor(t, "the child's end", func() bool { return !alive(mine) })
	if !alive(earlier) {
		t.Fatal("the earlier job is gone too")
	}
	// A job outlives its cell and may write: nobody takes it, nobody dies of it.
	b.run(guesttest.Call{Language: "bash", Code: "(i=0; while :; do echo noise; echo $((++i)) > noises; sleep .01; done) & echo $! > job"})
	job := readPID(t, filepath.Join(b.home, "job"))
	defer func() { _ = syscall.Kill(job, syscall.SIGKILL) }()
	guesttest.WaitFor(t, "ten lines of the job", func() bool {
		if !alive(job) {
			t.Fatal("the job died")
		}
		b, _ := os.ReadFile(filepath.Join(b.home, "noises"))
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n >= 10
	})
}

func TestKernelThatEnds(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		code, name, value string
		status            int
		lost              bool
	}{
		{"import sys; sys.exit(0)", "", "", 0, false},
		{"import sys; sys.exit(3)", "SystemExit", "", 3, false},
		{"import os; os._exit(3)", "KernelExited", "exit status 3", 3, true},
		{"import os; os._exit(0)", "", "", 0, true},
		{"import os; os.kill(os.getpid(), 9)", "KernelDied", "killed by SIGKILL", 137, true},
		{"import os; print('last words', flush=True); os.abort()", "KernelDied", "killed by SIGABRT", 134, true},
	} {
		t.Run(c.code, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			a := b.run(guesttest.Call{Code: c.code})
			name, value := "", ""
			if a.Failure != nil {
				name, value = a.Failure.Name, a.Failure.Value
			}
			if name != c.name || c.value != "" && value != c.value || a.End.ExitCode != c.status || a.End.StateLost != c.lost {
				t.Fatalf("%q %q %+v", name, value, a.End)
			}
			a = b.run(guesttest.Call{Code: "print('next')"})
			if a.Stdout != "next\n" || a.End.FreshKernel != c.lost {
				t.Fatalf("%q %q %+v", a.Stdout, a.Stderr, a.End)
			}
			if note := "[cubby] the previous python kernel ended ("; c.lost && !strings.HasPrefix(a.Stderr, note) {
				t.Fatalf("%q", a.Stderr)
			}
		})
	}
}

func TestOutputLimit(t *testing.T) {
	b := newBox(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := b.run(guesttest.Call{
		Code:   "import os, sys\nb = b'x' * 65535 + b'\\n'\nfor _ in range(16384): os.write(1, b)\nprint('done', file=sys.stderr)",
		Header: map[string]string{protocol.HeaderMaxOutput: "100000"},
	})
	runtime.ReadMemStats(&after)
	if len(a.Stdout) != 100000 || a.Stderr != "done\n" || !a.End.Truncated || a.End.Limit != "output" || a.End.ExitCode != 0 {
		t.Fatalf("%d %q %+v", len(a.Stdout), a.Stderr, a.End)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Fatalf("the heap grew by %d bytes", grown)
	}
	a = b.run(guesttest.Call{Code: "print('\u20ac' * 10, end='')", Header: map[string]string{protocol.HeaderMaxOutput: "10"}})
	if a.Stdout != "\u20ac\u20ac\u20ac" || !a.End.Truncated {
		t.Fatalf("%q", a.Stdout)
	}
}

func TestClientThatLeaves(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(context.Background())
	resp := b.request(ctx, guesttest.Call{Code: "x = 1\nopen('begun', 'w').close()\nwhile True: pass"})
	b.until("begun")
	cancel()
	resp.Body.Close()
	a := b.run(guesttest.Call{Code: "print(x)"}) // waits for its turn
	if a.Stdout != "1\n" || a.End.FreshKernel {
		t.Fatalf("%q %+v", a.Stdout, a.End)
	}
}

// TestCellsGoOnAfterARestore cuts off clients as a restore does. Their cells end by
// themselves, or at their time limit, in the same kernel; what reads has read all.
func TestCellsGoOnAfterARestore(t *testing.T) {
	for name, c := range map[string]struct {
		call guesttest.Call
		want string
	}{
		"python": {guesttest.Call{Code: "import os, time\nx = 1; open('begun', 'w').close()\n" +
			"while not os.path.exists('cut'): time.sleep(.01)\nprint('to nobody'); x = 2"}, "2\n"},
		"its input ends": {guesttest.Call{Stdin: &protocol.Stdin{ID: "in"}, Code: "import sys\n" +
			"x = 1; open('begun', 'w').close(); x = [sys.stdin.read()]"}, "['']\n"},
		"its time limit holds": {guesttest.Call{Header: guesttest.Limit(2 * time.Second),
			Code: "import time\nx = 1; open('begun', 'w').close()\ntry: time.sleep(60)\nexcept KeyboardInterrupt: x = 3"}, "3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			ctx, cancel := context.WithCancel(context.Background())
			resp := b.request(ctx, c.call)
			b.until("begun")
			b.machine.Restored()
			cancel()
			resp.Body.Close()
			time.Sleep(50 * time.Millisecond) // for an interrupt, which must not come
			guesttest.Must(t, os.WriteFile(b.at("cut"), nil, 0o600))
			a := b.run(guesttest.Call{Code: "print(x)"}) // waits for its turn
			if a.Stdout != c.want || a.End.FreshKernel {
				t.Fatalf("%q %+v", a.Stdout, a.End)
			}
		})
	}
}

// A client that takes nothing holds the code up, but not beyond its time, and the
// context not much longer. The code does not stop by itself: what connections hold
// may be enough for it until then.
func TestClientThatTakesNothing(t *testing.T) {
	defer func(d time.Duration) { stuckTime = d }(stuckTime)
	stuckTime = 300 * time.Millisecond
	b := newBox(t)
	defer b.g.Close()
	resp := b.request(context.Background(), guesttest.Call{
		Code: `import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(os.getpid(), file=open('pid', 'w'), flush=True)
while True: os.write(1, b'x' * 65536)`,
		Header: guesttest.Limit(300 * time.Millisecond),
	})
	defer resp.Body.Close()
	pid := readPID(t, filepath.Join(b.home, "pid"))
	guesttest.WaitFor(t, "the kernel's end", func() bool { return !alive(pid) })
	if a := b.run(guesttest.Call{Code: "print('on')"}); a.Stdout != "on\n" || !a.End.FreshKernel {
		t.Fatalf("%q %+v", a.Stdout, a.End)
	}
}

// TestStreamsThatNobodyReads lets ten clients start code that prints without end,
// and read nothing of it. Who comes after them has the context soon, in a kernel
// that is still the same; a client that reads is not cut, however many wait.
func TestStreamsThatNobodyReads(t *testing.T) {
	defer func(d time.Duration) { unreadTime = d }(unreadTime)
	unreadTime = time.Second
	b := newBox(t)
	b.run(guesttest.Call{Code: "kept = 'kept'"})
	for range 10 {
		resp := b.request(t.Context(), guesttest.Call{Code: "while True: print('x' * 65536)"})
		defer resp.Body.Close()
	}
	// One that reads slowly, but reads: it prints more than connections hold.
	slow := b.request(t.Context(), guesttest.Call{Code: "for i in range(500): print('y' * 65536)"})
	defer slow.Body.Close()
	slowly := make(chan int64)
	go func() {
		var n int64
		for buf := make([]byte, 512<<10); ; {
			m, err := io.ReadFull(slow.Body, buf)
			n += int64(m)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the client that reads: %v after %d bytes", err, n)
				}
				slowly <- n
				return
			}
			time.Sleep(10 * time.Millisecond) // it is slow: nothing is waited for
		}
	}()
	if a := b.run(guesttest.Call{Code: "print(kept)"}); a.Stdout != "kept\n" || a.End.FreshKernel {
		t.Errorf("%q %+v", a.Stdout, a.End)
	}
	if n := <-slowly; n < 500*65536 {
		t.Errorf("the client that reads got %d bytes", n)
	}
}

// TestRestartUnderAnUnreadStream restarts a context whose client takes nothing, and
// deletes it.
func TestRestartUnderAnUnreadStream(t *testing.T) {
	b := newBox(t)
	c := b.context(settings.Python)
	for _, method := range []string{"restart", "delete"} {
		resp := b.request(t.Context(), guesttest.Call{Context: c.ID, Code: "open('full', 'w'); import os\nwhile True: os.write(1, b'x' * 65536)"})
		defer resp.Body.Close()
		guesttest.WaitFor(t, "a stream that is full", func() bool {
			for _, x := range b.g.contexts.all {
				x.mu.Lock()
				run := x.cell
				x.mu.Unlock()
				if x.ID == c.ID && run != nil && run.unread(50*time.Millisecond) {
					return true
				}
			}
			return false
		})
		path, verb := "/contexts/"+c.ID, http.MethodDelete
		if method == "restart" {
			path, verb = path+"/restart", http.MethodPost
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		req, _ := http.NewRequestWithContext(ctx, verb, b.code.URL+path, nil)
		answer, err := http.DefaultClient.Do(req)
		cancel()
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s: %v %v", method, answer, err)
		}
		answer.Body.Close()
	}
}

func TestEnvironment(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{EnvVars: map[string]string{"A": "init", "B": "init"}})
	for lang, code := range map[string]string{
		"python": "import os; print(os.environ['A'], os.environ['B'], os.environ.get('C'), os.environ['HOME'], [k for k in os.environ if k.startswith('CUBBY')])",
		"bash":   "echo $A $B ${C-None} $HOME '[]'",
	} {
		a := b.run(guesttest.Call{Language: lang, Code: code, Env: map[string]string{"B": "call", "C": "call"}})
		if want := "init call call " + b.home + " []\n"; a.Stdout != want {
			t.Errorf("%s: %q, want %q", lang, a.Stdout, want)
		}
		a = b.run(guesttest.Call{Language: lang, Code: code})
		if want := "init init None " + b.home + " []\n"; a.Stdout != want {
			t.Errorf("%s: %q, want %q", lang, a.Stdout, want)
		}
	}
}

func TestContexts(t *testing.T) {
	b := newBox(t)
	do := func(method, path, body string) (int, string) {
		t.Helper()
		req, _ := http.NewRequest(method, b.code.URL+path, strings.NewReader(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	list := func() (all []protocol.Context) {
		_, text := do("GET", "/contexts", "")
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := list(); len(all) != 2 || all[0].Language != "python" || all[1].Language != "javascript" || all[0].Cwd != b.home {
		t.Fatalf("%+v", all)
	}
	_ = os.Mkdir(filepath.Join(b.home, "sub"), 0o755)
	_ = os.WriteFile(filepath.Join(b.home, "file"), nil, 0o644)
	var c protocol.Context
	status, text := do("POST", "/contexts", `{"language":"py","cwd":"sub"}`)
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
		t.Fatal(status, text)
	}
	b.run(guesttest.Call{Code: "v = 'default'"})
	b.run(guesttest.Call{Context: c.ID, Code: "v = 'own'"})
	if a := b.run(guesttest.Call{Context: c.ID, Code: "import os; print(v, os.path.basename(os.getcwd()))"}); a.Stdout != "own sub\n" {
		t.Fatalf("%q", a.Stdout)
	}
	if status, text := do("POST", "/contexts/"+c.ID+"/restart", ""); status != 200 || text != "null" {
		t.Fatal(status, text)
	}
	if a := b.run(guesttest.Call{Context: c.ID, Code: "print('v' in globals())"}); a.Stdout != "False\n" || a.End.FreshKernel || a.Lines[0].ExecutionCount != 1 {
		t.Fatalf("%q %+v", a.Stdout, a.Lines)
	}
	if all := list(); len(all) != 3 || all[2] != c {
		t.Fatalf("%+v", all)
	}
	if status, _ := do("DELETE", "/contexts/"+c.ID, ""); status != 200 || len(list()) != 2 {
		t.Fatal(status)
	}
	for _, x := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"DELETE", "/contexts/nope", "", 404, "Context nope not found"},
		{"POST", "/contexts/nope/restart", "", 404, "Context nope not found"},
		{"POST", "/contexts", `{"language":"cobol"}`, 404, `unknown language "cobol"; this sandbox runs python, javascript, typescript, bash`},
		{"POST", "/contexts", `{"cwd":"/no/such"}`, 400, "does not exist"},
		{"POST", "/contexts", `{"cwd":"file"}`, 400, "does not exist"},
		{"POST", "/contexts", `{"cwd":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "too large"},
		{"POST", "/execute", `{"code":"1","env_vars":{"A=":"b"}}`, 400, `bad environment variable "A="`},
		{"POST", "/execute", `{"code":"1","env_vars":{"BIG":"` + strings.Repeat("x", 1<<20) + `"}}`, 413,
			`the environment is too large: "BIG" has 1048580 bytes, and a variable can have 131071`},
		{"POST", "/execute", `{"code":"1","env_vars":{` + manyVariables(20_000) + `}}`, 413,
			"the environment is too large: it has 20000 variables, and can have 4096"},
		{"POST", "/contexts", `{"shell":"fish"}`, 400, "unknown shell"},
		{"POST", "/execute", `{"code":"1","context_id":"nope"}`, 404, "Context nope not found"},
		{"POST", "/execute", `{"code":"1","context_id":"a","language":"python"}`, 400, "not both"},
		{"POST", "/execute", `{"code":"1","language":"cobol"}`, 404, `unknown language "cobol"; this sandbox runs python, javascript, typescript, bash`},
		{"POST", "/execute", `{"code":"a\u0000b"}`, 400, "source contains NUL bytes"},
		{"POST", "/execute", `{`, 400, "bad request"},
		{"GET", "/health", ``, 200, `"OK"`},
	} {
		if status, text := do(x.method, x.path, x.body); status != x.status || !strings.Contains(text, x.text) {
			t.Errorf("%s %s: %d %q", x.method, x.path, status, text)
		}
	}
}

// manyVariables are n variables as the inside of a JSON object.
func manyVariables(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"V%d":""`, i))
	}
	return strings.Join(all, ",")
}

func TestMissingInterpreter(t *testing.T) {
	b := newBox(t, func(c *settings.Config) {
		c.Interpreters = map[string]string{settings.Bash: "/no/such/bash"}
		c.Missing = map[string]string{settings.Python: "apt-get install python3"}
	})
	b.tell(protocol.InitRequest{Warm: []string{settings.Python, "cobol"}})
	for lang, want := range map[string]struct {
		status int
		text   string
	}{
		"python":     {404, "python is not installed: apt-get install python3; this sandbox runs bash"},
		"javascript": {404, "javascript is not installed"},
		"bash":       {500, "/no/such/bash"},
	} {
		resp := b.request(context.Background(), guesttest.Call{Language: lang, Code: "1"})
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want.status || !strings.Contains(string(text), want.text) {
			t.Errorf("%s: %d %q", lang, resp.StatusCode, text)
		}
	}
}

func TestTypeScriptSyntaxError(t *testing.T) {
	b := newBox(t)
	b.needs(settings.JavaScript)
	a := b.run(guesttest.Call{Language: "ts", Code: "let a: number = 1\nlet b: = 2"})
	if a.Failure == nil || a.Failure.Name != "SyntaxError" || !strings.Contains(a.Failure.Value, "line 2") || a.End.ExitCode != 1 {
		t.Fatalf("%+v %+v", a.Failure, a.End)
	}
}

// TestOutOfMemory is told what the host tells: the largest process goes at the
// first word, the whole run at the second.
func TestOutOfMemory(t *testing.T) {
	const alone = "import time\nb = bytearray(80_000_000)\nprint('full', flush=True)\ntime.sleep(30)"
	const withChild = `import subprocess, sys, time
code = "b = bytearray(80_000_000); print('full', flush=True); import time; time.sleep(30)"
p = subprocess.Popen([sys.executable, "-c", code])
time.sleep(30)`
	for _, test := range []struct {
		name, code string
		tell       []bool // whole_run of each call
	}{
		{"largest process", alone, []bool{false}},
		{"whole run", withChild, []bool{false, true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBox(t)
			resp := b.request(context.Background(), guesttest.Call{Code: test.code})
			defer resp.Body.Close()
			dec := json.NewDecoder(resp.Body)
			for {
				e := protocol.Event{EndOfExecution: &protocol.EndOfExecution{}}
				if err := dec.Decode(&e); err != nil {
					t.Fatal(err)
				}
				if e.Text == "full\n" {
					for _, whole := range test.tell {
						b.tellOOM(whole)
					}
				}
				if e.Type == protocol.EventEnd {
					if end := e.EndOfExecution; !end.OOMKilled || end.ExitCode != 137 || end.Limit != "memory" || !end.StateLost {
						t.Fatalf("%+v", end)
					}
					break
				}
			}
			if a := b.run(guesttest.Call{Code: "print('on')"}); a.Stdout != "on\n" || !a.End.FreshKernel {
				t.Fatalf("%q %+v", a.Stdout, a.End)
			}
		})
	}
}

// TestOutOfMemoryOfOthers: a cell that began after memory was over is spared, and
// so is an idle kernel.
func TestOutOfMemoryOfOthers(t *testing.T) {
	b := newBox(t)
	b.run(guesttest.Call{Code: "x = 1"})
	b.tellOOM(false)
	b.tellOOM(true)
	resp := b.request(context.Background(), guesttest.Call{Code: "import time; print('begun', flush=True); time.sleep(0.5); print(x)"})
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	var out string
	for {
		var e protocol.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		out += e.Text
		if e.Text == "begun\n" {
			b.tellOOM(true)
		}
		if e.Type == protocol.EventEnd {
			break
		}
	}
	if out != "begun\n1\n" {
		t.Errorf("%q", out)
	}
}

func (b *box) tellOOM(wholeRun bool) {
	b.Helper()
	resp, text := b.do("POST", "/cubby/oom", strings.NewReader(fmt.Sprintf(`{"whole_run":%v}`, wholeRun)), protocol.HeaderHostToken, guesttest.HostToken)
	if resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, text)
	}
}
