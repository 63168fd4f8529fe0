//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestLikeTheInterpreter runs small programs with `cubby run` and with the bare
// interpreter: standard output and exit status are the same, and standard error
// ends in the same line.
func TestLikeTheInterpreter(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	testenv.CheckLeaks(t)
	binary := testenv.Cubby(t)
	programs := []struct{ name, file, code, stdin string }{
		{"arguments", "x.py", "import sys; print(sys.argv, __name__)", ""},
		{"own name", "x.py", "import os; print(os.path.basename(__file__), os.path.isabs(__file__), open(__file__).read())", ""},
		{"main", "x.py", "def main(): print('main')\nif __name__ == '__main__': main()", ""},
		{"status", "x.py", "import sys; sys.exit(3)", ""},
		{"status of text", "x.py", "import sys; sys.exit('sorry')", ""},
		{"status beyond a byte", "x.py", "import sys; sys.exit(256 + 7)", ""},
		{"negative status", "x.py", "import sys; sys.exit(-1)", ""},
		{"at once", "x.py", "import os; print('a', flush=True); os._exit(4)", ""},
		{"error", "x.py", "print('a')\nraise ValueError('no')", ""},
		{"syntax", "x.py", "def", ""},
		{"signal", "x.py", "import os; os.kill(os.getpid(), 9)", ""},
		{"exit functions", "x.py", "import atexit; atexit.register(print, 'bye'); print('hi')", ""},
		{"exit functions after an error", "x.py", "import atexit; atexit.register(print, 'bye'); 1/0", ""},
		{"threads", "x.py", "import threading, time\ndef f(): time.sleep(.1); print('late')\nthreading.Thread(target=f).start(); print('hi')", ""},
		{"pools", "x.py", "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(2)\nfor i in range(3): p.submit(print, i).result()", ""},
		{"processes", "x.py", "from multiprocessing import Pool\ndef f(x): return x * x\nif __name__ == '__main__':\n    with Pool(2) as p: print(p.map(f, range(4)))", ""},
		{"asyncio", "x.py", "import asyncio\nasync def f(): await asyncio.sleep(0); print('a')\nasyncio.run(f())", ""},
		{"lines", "x.py", "import sys\nfor l in sys.stdin: print([l])", "a\r\nb\n\nc"},
		{"prompt", "x.py", "print([input('name? '), input()])", "Ann\nBob\n"},
		{"end of input", "x.py", "input()\ninput()", "one\n"},
		{"bytes", "x.py", "import sys; print(sys.stdin.buffer.read())", "\xff\x00\n"},
		{"odd text", "x.py", "import sys; print(ascii(sys.stdin.read()))", "\xff\n"},
		{"a child's input", "x.py", "import subprocess; print(subprocess.run(['wc', '-l'], capture_output=True, text=True).stdout)", "a\nb\n"},
		{"terminals", "x.py", "import sys, os; print(sys.stdin.isatty(), sys.stdin.fileno(), sys.stdin.readable(), sys.stdin.name, os.isatty(0))", "x"},

		{"arguments", "x.js", "console.log(process.argv.slice(2), require('path').basename(process.argv[1]))", ""},
		{"own name", "x.js", "console.log(require('path').basename(__filename), require.main === module)", ""},
		{"status", "x.js", "process.exit(3)", ""},
		{"status at the end", "x.js", "process.exitCode = 5; console.log('a')", ""},
		{"error", "x.js", "console.log('a'); throw new TypeError('no')", ""},
		{"rejection", "x.js", "console.log('a'); Promise.reject(new TypeError('no'))", ""},
		{"exit listeners", "x.js", "process.on('exit', c => console.log('bye', c)); setTimeout(() => console.log('late'), 50)", ""},
		{"lines", "x.js", "require('readline').createInterface({ input: process.stdin }).on('line', l => console.log([l]))", "a\nb\n\nc"},
		{"one line of many", "x.js", "const rl = require('readline').createInterface({ input: process.stdin }); rl.once('line', l => { console.log([l]); rl.close() })", "a\nb\n"},
		{"whole input", "x.js", "console.log(require('fs').readFileSync(0, 'utf8'))", "a\nb\n"},
		{"whole input by name", "x.js", "console.log(require('fs').readFileSync('/dev/stdin', 'utf8'))", "a\nb\n"},
		{"a question", "x.js", "const rl = require('readline').createInterface({ input: process.stdin, output: process.stdout }); rl.question('name? ', a => { console.log([a]); rl.close() })", "Ann\n"},
		{"piped on", "x.js", "process.stdin.pipe(process.stdout)", "a\nb\n"},
		{"never read", "x.js", "process.stdin; console.log('a')", "a\nb\n"},
		{"a child's input", "x.js", "console.log(require('child_process').execSync('wc -l', { stdio: ['inherit', 'pipe', 'inherit'] }).toString())", "a\nb\n"},

		{"arguments", "x.sh", "echo $0 $#; printf '[%s]' \"$@\"; shift; echo \"$1\"", ""},
		{"status", "x.sh", "false; exit 3", ""},
		{"status of the last", "x.sh", "(exit 7)", ""},
		{"set -e", "x.sh", "set -e\necho a\nfalse\necho b", ""},
		{"exit trap", "x.sh", "trap 'echo bye' EXIT; echo hi; exit 4", ""},
		{"lines", "x.sh", "while IFS= read -r l; do echo \"[$l]\"; done", "a\n\nb \nc\n"},
		{"options", "x.sh", "while getopts ab: o; do echo $o $OPTARG; done", ""},
		{"by name", "x.sh", "cat /dev/stdin", "a\nb\n"},
		{"part of it", "x.sh", "read x; echo $x; cat", "a\nb\n"},
		{"own folder", "x.sh", "cd \"$(dirname \"$0\")\" && head -c 3 x.sh", ""},
		{"not a command", "x.sh", "nosuchcommand; echo $?", ""},
		{"signal", "x.sh", "kill -KILL $$; sleep 10", ""},
	}
	slots := make(chan struct{}, 2)
	var all sync.WaitGroup
	defer all.Wait()
	for _, p := range programs {
		interpreter := map[string]string{".py": python, ".js": "node", ".sh": "bash"}[filepath.Ext(p.file)]
		path, err := exec.LookPath(interpreter)
		if err != nil {
			t.Logf("no %s", interpreter)
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, p.file), []byte(p.code), 0o644); err != nil {
				t.Error(err)
				return
			}
			bareOut, bareErr, bareStatus := outcome(t, dir, p.stdin, path, p.file, "-a", "b c")
			out, errs, status := outcome(t, dir, p.stdin, binary, "run", p.file, "--", "-a", "b c")
			if strings.HasPrefix(errs, "cubby: the code was killed by ") {
				errs = "" // it is the shell that would say so of the bare program
			}
			if out != bareOut || status != bareStatus || lastLine(errs) != lastLine(bareErr) {
				t.Errorf("%s in %s\n%s\ncubby: status %d, stdout %q, stderr %q\nbare:  status %d, stdout %q, stderr %q",
					p.name, p.file, p.code, status, out, errs, bareStatus, bareOut, bareErr)
			}
		})
	}
}

// outcome is what a program prints and its status, as a shell would have it.
func outcome(t *testing.T, dir, stdin, program string, args ...string) (stdout, stderr string, status int) {
	cmd := exec.Command(program, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &out, &errs
	cmd.Env = append(os.Environ(), "CUBBY_PYTHON="+python, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	status = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	return out.String(), errs.String(), status
}

// lastLine is the last line of a text that says something; Node's has a version.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if line != "" && !strings.HasPrefix(line, "Node.js v") && !strings.HasPrefix(line, "at ") {
			return line
		}
	}
	return ""
}
