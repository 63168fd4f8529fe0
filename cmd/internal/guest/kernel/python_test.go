package kernel_test

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// pythonPath is the interpreter of the tests: Debian's, which has the packages.
func pythonPath(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("no python3 on this machine")
	return ""
}

func startPython(t testing.TB) *wireKernel {
	t.Helper()
	return wireStart(t, kernel.Python(pythonPath(t), wireScripts(t), false))
}

// needModule skips a test whose package is not installed.
func needModule(t testing.TB, modules ...string) {
	t.Helper()
	for _, m := range modules {
		if err := exec.Command(pythonPath(t), "-c", "import "+m).Run(); err != nil {
			t.Skipf("the Python package %s is not installed", m)
		}
	}
}

// pyCell is a cell and what must come of it. An empty field expects nothing,
// except for stderr, data and traceback, which are then not looked at.
type pyCell struct {
	code      string
	env       map[string]string
	cwd       string
	stdout    string
	stderr    string   // a part
	text      string   // text/plain of the main result
	data      string   // "MIME type[=exact value]" of the main result
	shows     []string // the MIME types of the other results, the richest of each
	err       string   // beginning of "Name: value"
	traceback string   // a part
	exit      int
}

// TestCommandFailed: of a cell that ends well it is told whether a command of its own failed.
func TestCommandFailed(t *testing.T) {
	k := startPython(t)
	for _, test := range []struct {
		code string
		want bool
	}{
		{"!true", false}, {"!false", true}, {"1", false}, {"!false\n!true", true}, {"x = !exit 3", true}, {"%pip nothing", true},
		{"import os; os.system('false')", false},
	} {
		if got := k.run(test.code); got.CommandFailed != test.want || got.ExitCode != 0 {
			t.Errorf("%q: %v, %+v", test.code, got.CommandFailed, got)
		}
	}
}

func (want pyCell) check(t *testing.T, k *wireKernel) {
	t.Helper()
	got := k.execute(kernel.Request{Code: want.code, Env: want.env, Cwd: want.cwd})
	if got.Exited {
		t.Fatalf("%q: the kernel ended with %d; stderr %s", want.code, got.ExitCode, got.Stderr)
	}
	if got.Stdout != want.stdout {
		t.Errorf("%q: stdout %q, want %q", want.code, got.Stdout, want.stdout)
	}
	if !strings.Contains(got.Stderr, want.stderr) {
		t.Errorf("%q: stderr %q, want %q in it", want.code, got.Stderr, want.stderr)
	}
	if got.Text() != want.text {
		t.Errorf("%q: result %q, want %q", want.code, got.Text(), want.text)
	}
	if !strings.HasPrefix(got.Err(), want.err) || (want.err == "") != (got.Err() == "") {
		t.Errorf("%q: error %q, want %q", want.code, got.Err(), want.err)
	}
	if got.ExitCode != want.exit {
		t.Errorf("%q: exit code %d, want %d", want.code, got.ExitCode, want.exit)
	}
	for _, e := range got.Errors {
		if !strings.Contains(e.Traceback, want.traceback) {
			t.Errorf("%q: traceback %s\nwant in it %s", want.code, e.Traceback, want.traceback)
		}
		if strings.Contains(e.Traceback, "python.py") || strings.Contains(e.Traceback, "\x1b") {
			t.Errorf("%q: the kernel shows in the traceback:\n%s", want.code, e.Traceback)
		}
	}
	if want.data != "" {
		kind, value, exact := strings.Cut(want.data, "=")
		found := false
		for _, r := range got.Results {
			if v, ok := r.Data[kind]; ok && r.Main && (!exact || string(v) == value || formOf(r, kind) == value) {
				found = true
			}
		}
		if !found {
			t.Errorf("%q: no %s in the results %v", want.code, want.data, got.Results)
		}
	}
	var shows []string
	for _, r := range got.Results {
		if !r.Main {
			shows = append(shows, richest(r))
		}
	}
	if !slices.Equal(shows, want.shows) {
		t.Errorf("%q: shows %q, want %q", want.code, shows, want.shows)
	}
}

// richest is the MIME type that a client would choose.
func richest(e kernel.Event) string {
	for _, kind := range []string{"image/png", "text/html", "text/markdown", "application/json"} {
		if _, ok := e.Data[kind]; ok {
			return kind
		}
	}
	return "text/plain"
}

// TestPython runs the cells of each case one after the other in one kernel.
func TestPython(t *testing.T) {
	for name, cells := range map[string][]pyCell{
		"hello":         {{code: "print('hello')", stdout: "hello\n"}},
		"nothing":       {{code: ""}, {code: "\n\n"}, {code: "# a comment"}, {code: "None"}},
		"expression":    {{code: "6*7", text: "42"}, {code: "'a'", text: "'a'"}, {code: "x = 1\nx", text: "1"}, {code: "_ + 1", text: "2"}},
		"semicolon":     {{code: "1;"}, {code: "1; # quiet"}, {code: "(1\n);"}, {code: "'a;'", text: "'a;'"}, {code: "2 # no; way", text: "2"}},
		"state":         {{code: "def f(x):\n    return x + y\ny = 1"}, {code: "f(2)", text: "3"}},
		"statement":     {{code: "if True:\n    5"}, {code: "x = 5"}},
		"byte order":    {{code: "\ufeffx = 1\nx", text: "1"}},
		"breakpoint":    {{code: "breakpoint()\n1", stderr: "breakpoint() does nothing", text: "1"}},
		"windows lines": {{code: "a = 1\r\nb = 2\r\na + b\r\n", text: "3"}},
		"main":          {{code: "def main():\n    print('ran')\nif __name__ == '__main__':\n    main()", stdout: "ran\n"}, {code: "__file__", err: "NameError:", exit: 1}, {code: "import sys; sys.argv, sys.path[0]", text: "([''], '')"}},
		"pickle": {{code: "import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int"},
			{code: "pickle.loads(pickle.dumps(P(1)))", text: "P(x=1)"}},
		"processes": {{code: "import multiprocessing as mp\ndef sq(x): return x * x"},
			{code: "with mp.get_context('fork').Pool(2) as p: print(p.map(sq, [1, 2, 3]))", stdout: "[1, 4, 9]\n"}},
		"fork":        {{code: "import os\nprint('a', end='')\nif (pid := os.fork()): os.waitpid(pid, 0)\nprint('b')", stdout: "ab\nb\n"}, {code: "1", text: "1"}},
		"fork fails":  {{code: "import os\npid = os.fork()\nif not pid: 1/0\nos.waitpid(pid, 0)[1] >> 8", stderr: "ZeroDivisionError", text: "1"}},
		"child order": {{code: "import subprocess, os\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c')\nos.system('echo d')\nprint('e')", stdout: "a\nb\nc\nd\ne\n"}},
		"descriptors": {{code: "import os, subprocess\nprint(subprocess.run('ls /proc/self/fd', shell=True, capture_output=True, text=True).stdout.split())", stdout: "['0', '1', '2', '3']\n"}},
		"wire hidden": {{code: "import os\nos.fstat(3)", err: "OSError: [Errno 9]", exit: 1}, {code: "os.closerange(3, 256)"}, {code: "1", text: "1"}},
		"json":        {{code: "[1, {'a': None}]", text: "[1, {'a': None}]", data: "application/json"}, {code: "{1, 2}", text: "{1, 2}"}, {code: "[float('nan')]", text: "[nan]"}},
		"surrogates":  {{code: "print('\\ud800')", stdout: "\\ud800\n"}, {code: "raise ValueError('\\ud800')", err: "ValueError: \ufffd", exit: 1}, {code: "chr(0x1f600)", text: "'\U0001f600'"}},
		"big result":  {{code: "'x' * 40_000_000", text: "<result of 38.1 MiB left out: over the limit of 32 MiB>"}},
		"error":       {{code: "def f(n):\n    return 1 / n\n\nf(0)", err: "ZeroDivisionError: division by zero", traceback: "Traceback (most recent call last):\n  File \"<cell 1>\", line 4, in <module>\n    f(0)\n", exit: 1}, {code: "f(1)", text: "1.0"}},
		"chained":     {{code: "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", err: "KeyError: 'k'", traceback: "direct cause of the following", exit: 1}},
		"syntax":      {{code: "1 +", err: "SyntaxError: invalid syntax", traceback: "  File \"<cell 1>\", line 1\n    1 +\n", exit: 1}, {code: "if True:\nx", err: "IndentationError:", exit: 1}, {code: "return", err: "SyntaxError: 'return' outside function", exit: 1}},
		"bad string":  {{code: "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()", err: "E: <no text", exit: 1}, {code: "class R:\n    def __repr__(self): raise ValueError('no')\nR()", err: "ValueError: no", exit: 1}},
		"recursion":   {{code: "def f(): f()\nf()", err: "RecursionError:", traceback: "more times]", exit: 1}, {code: "def a(): b()\ndef b(): a()\na()", err: "RecursionError:", traceback: "lines left out", exit: 1}},
		"huge error":  {{code: "raise ValueError('a' * 10_000_000)", err: "ValueError: aaa", exit: 1}},
		"warnings":    {{code: "import warnings\nwarnings.warn('careful')", stderr: "<cell 1>:2: UserWarning: careful\n  warnings.warn('careful')"}},
		"logging":     {{code: "import logging\nlogging.warning('w')", stderr: "WARNING:root:w\n"}},
		"source":      {{code: "def f(): return 1\nimport inspect\nprint(inspect.getsource(f), end='')", stdout: "def f(): return 1\n"}},
		"exit": {{code: "import sys\nsys.exit(0)"}, {code: "sys.exit(3)", err: "SystemExit: 3", exit: 3}, {code: "sys.exit('bye')", err: "SystemExit: bye", stderr: "bye\n", exit: 1}, {code: "exit()"},
			{code: "quit(2)", err: "SystemExit: 2", exit: 2}, {code: "raise SystemExit(-1)", err: "SystemExit: -1", exit: 255}, {code: "1", text: "1"}},
		"input":       {{code: "input('name? ')", err: "StdinNotImplementedError: this code runs without a terminal", exit: 1}, {code: "import sys\nsys.stdin.read()", err: "StdinNotImplementedError:", exit: 1}, {code: "try:\n    input()\nexcept EOFError:\n    print('none')", stdout: "none\n"}, {code: "import io\nsys.stdin = io.StringIO('5\\n')\ninput()", text: "'5'"}},
		"await":       {{code: "import asyncio\nawait asyncio.sleep(0, 'v')", text: "'v'"}, {code: "t = asyncio.create_task(asyncio.sleep(0.01, 't'))\nawait asyncio.sleep(0)"}, {code: "await t", text: "'t'"}, {code: "async def g():\n    yield 1\n[x async for x in g()]", text: "[1]"}, {code: "t = asyncio.create_task(asyncio.sleep(0, 2))\nawait t", text: "2"}},
		"await fails": {{code: "async def f(): 1/0\nawait f()", err: "ZeroDivisionError:", traceback: "last):\n  File \"<cell 1>\", line 2, in <module>", exit: 1}},
		"asyncio run": {{code: "import asyncio\nasync def main(): return 1\nasyncio.run(main())", text: "1"}, {code: "await main()", text: "1"}, {code: "asyncio.run(main())", text: "1"}},
		"future":      {{code: "from __future__ import annotations"}, {code: "def f(a: nosuch): pass\nf.__annotations__['a']", text: "'nosuch'"}},
		"indented":    {{code: "    s = '''x\n    y'''\n    s", text: "'x\\n    y'"}, {code: "  # note\n  x = 1\n  if x:\n    print(x)", stdout: "1\n"}, {code: "    %pwd\n    !echo a", stdout: "a\n"}},
		"environment": {{code: "import os\nos.environ['K'], os.getcwd()", env: map[string]string{"K": "v"}, cwd: "/", text: "('v', '/')"}, {code: "os.environ.get('K'), os.getcwd() == '/'", text: "(None, False)"}, {code: "1", cwd: "/nonesuch", err: "FileNotFoundError:", exit: 1}},
		"modules":     {{code: "open('m1.py', 'w').write('V = 1');"}, {code: "import m1\nm1.V", text: "1"}},
		"threads":     {{code: "import threading\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()", stdout: "t\n"}, {code: "t = threading.Thread(target=lambda: 1/0); t.start(); t.join()", stderr: "ZeroDivisionError"}},
		"print fast":  {{code: "import time; t = time.time()\nfor i in range(300_000): print(i, end='\\r' if i < 299_999 else '')\nprint()\nassert time.time() - t < 5", stdout: manyNumbers(300_000)}},
		"stdout games": {{code: "import os, sys, io\nos.close(1)"}, {code: "print(1)", stdout: "1\n"}, {code: "sys.stdout.close()\nprint(2)", stdout: "2\n"}, {code: "sys.stdout.detach();"}, {code: "print(3)", stdout: "3\n"}, {code: "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(4)", stdout: "4\n"}, {code: "sys.stdout = None"},
			{code: "print(5)", stdout: "5\n"}, {code: "sys.stdout = io.StringIO()\n1/0", err: "ZeroDivisionError:", exit: 1}, {code: "print(6)", stdout: "6\n"}, {code: "os.dup2(os.open('/dev/null', os.O_WRONLY), 2);"}, {code: "print(7, file=sys.stderr)", stderr: "7\n"}},
		"main swapped": {{code: "import sys, builtins\ndel sys.modules['__main__']\nbuiltins.print = None\nsys.displayhook = sys.excepthook = None"}, {code: "1", text: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startPython(t)
			for _, c := range cells {
				c.check(t, k)
			}
		})
	}
}

func manyNumbers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i))
		if i < n-1 {
			b.WriteByte('\r')
		}
	}
	return b.String() + "\n"
}

// TestPythonMagics covers what is not plain Python.
func TestPythonMagics(t *testing.T) {
	for name, cells := range map[string][]pyCell{
		"shell":         {{code: "!echo a; echo b", stdout: "a\nb\n"}, {code: "v = 'w'\n!echo {v} $v {v.upper()} $HOSTNAMELESS | tr w x", stdout: "x x W\n"}, {code: "!echo a b | awk '{print $2}'", stdout: "b\n"}, {code: "!false\n_exit_code", text: "1"}},
		"captured":      {{code: "out = !echo 1; echo 2\nout", text: "['1', '2']", data: "application/json"}},
		"in blocks":     {{code: "for i in range(2):\n    !echo $i", stdout: "0\n1\n"}, {code: "def f():\n    n = 3\n    !echo {n}\nf()", stdout: "3\n"}},
		"not in text":   {{code: "s = '''\n!echo no\n%nosuch\n'''\nx = (7\n%4)\nx", text: "3"}, {code: "s = '''\n!echo no\n'''\n!echo yes", stdout: "yes\n"}, {code: "a = [1,\n2]\n%pwd\nlen(a)", text: "2"}},
		"long lines":    {{code: "!echo a \\\n  b\nprint(1)", stdout: "a b\n1\n"}, {code: "!echo \"it's\"\nx = 'q'\n!echo $x", stdout: "it's\nq\n"}},
		"time":          {{code: "%time x = 5\nx", stdout: "*", text: "5"}, {code: "%%time\ny = 6\ny + x", stdout: "*", text: "11"}},
		"timeit":        {{code: "%timeit -n 2 -r 2 sum([1])", stdout: "*"}, {code: "%%timeit -n 2 -r 2\nx = 1", stdout: "*"}},
		"bash":          {{code: "%%bash\nfor i in 1 2; do echo $i; done", stdout: "1\n2\n"}, {code: "%%sh\nexit 3", err: "CalledProcessError: Command 'sh' returned non-zero exit status 3", exit: 1}},
		"files":         {{code: "%%writefile m.py\nprint(__name__, __import__('sys').argv[1:])\nW = 1", stdout: "Writing m.py\n"}, {code: "%run m.py a b", stdout: "__main__ ['a', 'b']\n"}, {code: "W", text: "1"}, {code: "%%writefile -a m.py\nW2 = 2", stdout: "Appending to m.py\n"}, {code: "%ls m.py", stdout: "m.py\n"}, {code: "import m\nm.W2", stdout: "m []\n", text: "2"}},
		"directories":   {{code: "%cd /", stdout: "/\n"}, {code: "%pwd", text: "'/'"}, {code: "%cd -q ~"}},
		"environment":   {{code: "%env A=b", stdout: "env: A=b\n"}, {code: "%env A", text: "'b'"}, {code: "!echo $A", stdout: "b\n"}},
		"capture":       {{code: "%%capture c\nprint(1)\n[2]"}, {code: "c.stdout, len(c.outputs)", text: "('1\\n', 1)"}, {code: "%%capture --no-stderr d\nprint(2)"}, {code: "d.stdout", text: "'2\\n'"}},
		"names":         {{code: "b = a = 1\n%who", stdout: "a\tb\n"}, {code: "%reset -f"}, {code: "%who", stdout: "Interactive namespace is empty.\n"}},
		"accepted":      {{code: "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n1", text: "1"}},
		"help":          {{code: "len?", stdout: "*"}, {code: "nosuch?", stdout: "Object `nosuch` not found.\n"}, {code: "def f():\n    'doc'\nf??", stdout: "Signature: f()\nType: function\nSource:\ndef f():\n    'doc'\n"}},
		"unknown":       {{code: "%nosuch", err: "UsageError: line magic %nosuch is not known here", exit: 1}, {code: "%%nosuch\nx", err: "UsageError: cell magic %%nosuch is not known here", exit: 1}},
		"still wrong":   {{code: "!echo a\nx = = 1", err: "SyntaxError: invalid syntax (<cell 1>, line 2)", exit: 1}, {code: "%%time\nx = = 1", err: "SyntaxError: invalid syntax (<cell 2>, line 2)", exit: 1}},
		"fail in lines": {{code: "!true\n\n1/0", err: "ZeroDivisionError:", traceback: "line 3, in <module>\n    1/0", exit: 1}, {code: "%%time\n\n1/0", err: "ZeroDivisionError:", traceback: "line 3, in <module>\n    1/0", stdout: "*", exit: 1}},
		"await":         {{code: "!true\nimport asyncio\nawait asyncio.sleep(0, 1)", text: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startPython(t)
			for _, c := range cells {
				if c.stdout == "*" { // times, or the words of a docstring
					k.checkLoose(t, c)
					continue
				}
				c.check(t, k)
			}
		})
	}
}

// checkLoose checks a cell whose output differs each time but must not be empty.
func (k *wireKernel) checkLoose(t *testing.T, want pyCell) {
	t.Helper()
	got := k.run(want.code)
	if got.Stdout == "" || got.Text() != want.text || got.ExitCode != want.exit || !strings.HasPrefix(got.Err(), want.err) {
		t.Errorf("%q: %+v", want.code, got)
	}
}
