//go:build linux

package interpreter

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestCodeInput talks to code through its standard input, line by line, in every
// language and twice in the same kernel.
func TestCodeInput(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ name, language, code string }{
		{"python", settings.Python, "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)\nprint('end')"},
		{"input()", settings.Python, "while True:\n  try: print('got', input())\n  except EOFError: break\nprint('end')"},
		{"a child of python", settings.Python, "import os\nos.system('while read x; do echo got $x; done; echo end')"},
		{"javascript", settings.JavaScript, "for await (const l of require('readline').createInterface({ input: process.stdin })) console.log('got', l)\nconsole.log('end')"},
		{"events", settings.JavaScript, "process.stdin.on('data', d => console.log('got', String(d).trim())).on('end', () => console.log('end'))"},
		{"bash", settings.Bash, "while read x; do echo got $x; done; echo end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			for range 2 {
				next, stop := b.lines(t.Context(), guesttest.Call{
					Language: c.language, Code: c.code, Program: &protocol.Program{},
					Stdin: &protocol.Stdin{ID: "one"}, Header: map[string]string{protocol.HeaderDrain: "1"},
				})
				print := func(want string) {
					t.Helper()
					for {
						switch e := next(); {
						case e.Text == want:
							return
						case e.Type == protocol.EventEnd || e.Type == protocol.EventError:
							t.Fatalf("%+v instead of %q", e, want)
						}
					}
				}
				for _, line := range []string{"first", "second"} {
					if status, text := b.post(protocol.StdinPath+"/one", line+"\n"); status != http.StatusNoContent {
						t.Fatalf("%d %s", status, text)
					}
					print("got " + line + "\n")
				}
				if status, text := b.post(protocol.StdinPath+"/one?end", ""); status != http.StatusNoContent {
					t.Fatalf("%d %s", status, text)
				}
				print("end\n")
				for next().Type != protocol.EventEnd {
				}
				stop()
				if status, _ := b.post(protocol.StdinPath+"/one", "more"); status != http.StatusGone {
					t.Errorf("%d after the end", status)
				}
			}
		})
	}
	left, err := os.ReadDir(b.g.settings.Config.KernelDir)
	guesttest.Must(t, err)
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "stdin-") {
			t.Errorf("left: %s", e.Name())
		}
	}
}

// TestCodeInputThatNobodyReads is larger than any buffer: it holds nothing up, and
// who sends it learns that nobody reads it.
func TestCodeInputThatNobodyReads(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ language, code string }{
		{settings.Python, "import os, time\nwhile not os.path.exists('go'): time.sleep(.01)"},
		{settings.JavaScript, "while (!require('fs').existsSync('go')) await new Promise(r => setTimeout(r, 10))"},
		{settings.Bash, "while [[ ! -e go ]]; do sleep .01; done"},
	} {
		t.Run(c.language, func(t *testing.T) {
			b := &box{T: t, g: b.g, home: b.home, code: b.code}
			b.needs(c.language)
			defer os.Remove(b.at("go"))
			next, stop := b.lines(t.Context(), guesttest.Call{Language: c.language, Code: c.code, Stdin: &protocol.Stdin{ID: "many"}})
			defer stop()
			sent := make(chan int)
			go func() {
				status, _ := b.post(protocol.StdinPath+"/many?end", strings.Repeat("x", 1<<20))
				sent <- status
			}()
			if e := next(); e.Type != protocol.EventExecutions {
				t.Fatalf("%+v", e)
			}
			guesttest.Must(t, os.WriteFile(b.at("go"), nil, 0o644))
			for next().Type != protocol.EventEnd {
			}
			if status := <-sent; status != http.StatusGone {
				t.Errorf("status %d", status)
			}
		})
	}
}

// TestCodeWithoutInput: what E2B's clients run has no input, before and after code
// that had one; an empty one is an input.
func TestCodeWithoutInput(t *testing.T) {
	b := newBox(t)
	none := guesttest.Call{Code: "import sys\ntry: print([sys.stdin.read()])\nexcept Exception as e: print(type(e).__name__)\nprint([open(0, closefd=False).read()])"}
	empty := none
	empty.Stdin = &protocol.Stdin{}
	for i, c := range []guesttest.Call{none, empty, none} {
		want := "StdinNotImplementedError\n['']\n"
		if i == 1 {
			want = "['']\n['']\n"
		}
		if a := b.run(c); a.Stdout != want {
			t.Errorf("%d: %q %q", i, a.Stdout, a.Stderr)
		}
	}
	for _, c := range []struct{ language, code, want string }{
		{settings.JavaScript, "console.log([require('fs').readFileSync(0, 'utf8')]); process.stdin.on('data', console.log).on('end', () => console.log('end'))", "[ '' ]\nend\n"},
		{settings.Bash, "cat; read x; echo $?", "1\n"},
	} {
		t.Run(c.language, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			a := b.run(guesttest.Call{Language: c.language, Code: c.code, Stdin: &protocol.Stdin{}, Program: &protocol.Program{},
				Header: map[string]string{protocol.HeaderDrain: "1"}})
			if a.Stdout != c.want {
				t.Errorf("%q %q", a.Stdout, a.Stderr)
			}
		})
	}
}

// TestCodeInputByName: /dev/stdin opens and ends, also after the last byte was sent.
func TestCodeInputByName(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ language, code string }{
		{settings.Python, "print(open('/dev/stdin').read(), end=''); print(open('/dev/stdin').read() + 'end')"},
		{settings.JavaScript, "const fs = require('fs'); console.log(fs.readFileSync('/dev/stdin', 'utf8') + fs.readFileSync('/dev/stdin') + 'end')"},
		{settings.Bash, "cat /dev/stdin; cat /dev/stdin; echo end"},
	} {
		t.Run(c.language, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next, stop := b.lines(ctx, guesttest.Call{Language: c.language, Code: c.code, Stdin: &protocol.Stdin{ID: "two"}})
			defer stop()
			if status, text := b.post(protocol.StdinPath+"/two?end", "text\n"); status != http.StatusNoContent {
				t.Fatalf("%d %s", status, text)
			}
			out := ""
			for {
				e := next()
				if e.Type == protocol.EventStdout {
					out += e.Text
				}
				if e.Type == protocol.EventEnd {
					break
				}
			}
			if out != "text\nend\n" {
				t.Errorf("%q", out)
			}
		})
	}
}

func TestCodeInputIsRefused(t *testing.T) {
	b := newBox(t)
	_, stop := b.lines(t.Context(), guesttest.Call{Code: "import time; time.sleep(60)", Stdin: &protocol.Stdin{ID: "taken"}})
	defer stop()
	for _, c := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"of nobody", protocol.StdinPath + "/nobody", "x", http.StatusGone, "no execution reads this input"},
		{"an id twice", "/execute", `{"code":"1","cubbyStdin":{"id":"taken"}}`, http.StatusConflict, "an execution with an input of this id runs already"},
		{"an id that is a path", "/execute", `{"code":"1","cubbyStdin":{"id":"../x"}}`, http.StatusBadRequest, "the input's id is not up to 64 letters, digits and dashes"},
		{"a name that is a path", "/execute", `{"code":"1","cubbyProgram":{"name":"../x"}}`, http.StatusBadRequest, `bad name of a program "../x"`},
		{"a NUL in an argument", "/execute", `{"code":"1","cubbyProgram":{"args":["a\u0000"]}}`, http.StatusBadRequest, "an argument contains a NUL byte"},
		{"too many arguments", "/execute", `{"code":"1","cubbyProgram":{"args":["` + strings.Repeat("a", maxArgs) + `"]}}`, http.StatusBadRequest, "the arguments are over the limit of 2 MiB"},
	} {
		if status, text := b.post(c.path, c.body); status != c.status || text != c.text {
			t.Errorf("%s: %d %q", c.name, status, text)
		}
	}
	b.tell(protocol.InitRequest{AccessToken: "secret"})
	if status, _ := b.post(protocol.StdinPath+"/taken", "x"); status != http.StatusUnauthorized {
		t.Errorf("%d without the token", status)
	}
}

// TestProgram runs code as a program and compares what it is told with what the
// bare interpreters tell.
func TestProgram(t *testing.T) {
	b := newBox(t)
	odd := []string{"a", "b c", "d'e\"$x", "f\ng", "", "é"}
	for _, c := range []struct {
		name, language, code string
		program              protocol.Program
		want                 string
	}{
		{"python -c", settings.Python, "import sys; print(sys.argv)", protocol.Program{Args: odd[:2]}, "['-c', 'a', 'b c']\n"},
		{"python FILE", settings.Python, "import sys; print(sys.argv, __name__, __file__ == sys.argv[1], open(__file__).read()[:6])", protocol.Program{Name: "x.py", Args: []string{b.at("x.py")}}, "['x.py', '" + b.at("x.py") + "'] __main__ True import\n"},
		{"python -", settings.Python, "import sys; print(sys.argv)", protocol.Program{Name: "-"}, "['-']\n"},
		{"a cell after that", settings.Python, "import sys; print(sys.argv, '__file__' in globals())", protocol.Program{}, "['-c'] False\n"},
		{"threads and atexit", settings.Python, "import atexit, threading, time\natexit.register(print, 'bye')\nthreading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start()\nprint('main')", protocol.Program{}, "main\nthread\nbye\n"},
		{"a pool", settings.Python, "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(print, 'pool'); None", protocol.Program{}, "pool\n"},
		{"node -e", settings.JavaScript, "console.log(process.argv.slice(1).join('|'))", protocol.Program{Args: odd[:2]}, "a|b c\n"},
		{"node FILE", settings.JavaScript, "console.log(process.argv.slice(1).join('|'), __filename == process.argv[1], require.main === module)", protocol.Program{Name: "x.js", Args: odd[:1]}, b.at("x.js") + "|a true true\n"},
		{"node ends", settings.JavaScript, "process.on('exit', c => console.log('bye', c)); process.exitCode = 0", protocol.Program{Name: "x.js"}, "bye 0\n"},
		{"bash -c", settings.Bash, "echo $0 $# $2", protocol.Program{Args: odd}, "bash 6 b c\n"},
		{"bash FILE", settings.Bash, "#!/bin/bash\necho $0 $LINENO; printf '[%s]' \"$@\"", protocol.Program{Name: "x.sh", Args: odd}, "x.sh 2\n[" + strings.Join(odd, "][") + "]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			a := b.run(guesttest.Call{Language: c.language, Code: c.code, Program: &c.program, Header: map[string]string{protocol.HeaderDrain: "1"}})
			if a.Stdout != c.want || a.End.ExitCode != 0 {
				t.Errorf("%q, want %q; %q %+v", a.Stdout, c.want, a.Stderr, a.Failure)
			}
		})
	}
	a := b.run(guesttest.Call{Code: "\n1/0", Program: &protocol.Program{Name: "y.py"}})
	if a.Failure == nil || !strings.Contains(a.Failure.Traceback, `File "`+b.at("y.py")+`", line 2`) {
		t.Errorf("%+v", a.Failure)
	}
}
