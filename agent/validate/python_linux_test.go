package validate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// shared is one sandbox for all tests of this package.
type shared struct {
	once     sync.Once
	executor *e2b.CodeExecutor
	err      error
}

var box shared

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if box.executor != nil {
		if err := box.executor.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func sandboxed(t *testing.T) codeexec.CodeExecutor {
	t.Helper()
	box.once.Do(func() {
		box.executor, box.err = sandbox.New(t.Context(), sandbox.Config{Embedded: embedded.Config{Python: "/usr/bin/python3"}})
	})
	if box.err != nil {
		t.Fatal(box.err)
	}
	return box.executor
}

func TestPython(t *testing.T) {
	for _, c := range []struct {
		code string
		want []string
	}{
		{"import os.path", []string{"python.import.os.path"}},
		{"import math, os", []string{"python.import.math", "python.import.os"}},
		{"from os import path as p", []string{"python.import.os.path"}},
		{"from os import *\nsystem('x')", []string{"python.import.os", "python.process.os.system"}},
		{"from . import a", []string{"python.relative-import"}},
		{"def f():\n    import socket as s\n    s.create_connection(x)", []string{"python.import.socket", "python.network.socket.create_connection"}},
		{"import os as o\no.system('x')", []string{"python.process.os.system"}},
		{"import os\np = os\nq = p.popen\nq('x')", []string{"python.process.os.popen"}},
		{"from subprocess import run as r\nr(['x'])", []string{"python.import.subprocess.run", "python.process.subprocess.run"}},
		{"import os\ngetattr(os, 'sys' + 'tem')('x')", []string{"python.process.os.system"}},
		{"import os\ngetattr(os, name)('x')", []string{"python.dynamic.getattr"}},
		{"getattr(x, '__globals__')", []string{"python.dunder.__globals__"}},
		{"__import__('os').system('x')", []string{"python.import.os", "python.process.os.system"}},
		{"import importlib as i\ni.import_module('ctypes').CDLL('x')", []string{"python.import.ctypes", "python.native.ctypes.CDLL"}},
		{"().__class__.__base__.__subclasses__()", []string{"python.dunder.__subclasses__"}},
		{"f.__globals__['__builtins__']", []string{"python.dunder.__globals__", "python.dunder.__builtins__"}},
		{"try:\n    x\nexcept E as e:\n    e.__traceback__.tb_frame.f_globals", []string{"python.dunder.f_globals"}},
		{"eval('1')\nexec(x)\ncompile(x, 'y', 'exec')", []string{"python.dynamic.eval", "python.dynamic.exec", "python.dynamic.compile"}},
		{"f = eval", []string{"python.dynamic.eval"}},
		{"open('a')\n", []string{"python.file.open.read"}},
		{"open('a', 'wb')", []string{"python.file.open.write"}},
		{"open('a', mode=m)", []string{"python.file.open"}},
		{"from pathlib import Path\nPath('x').unlink()", []string{"python.file.pathlib.Path"}},
		{"import shutil\nshutil.rmtree('x')", []string{"python.file.shutil.rmtree"}},
		{"import urllib.request\nurllib.request.urlopen(u)", []string{"python.network.urllib.request.urlopen"}},
		{"import posix\nposix.system('x')", []string{"python.process.posix.system"}},
		{"!rm -rf x", []string{"python.process.shell", "unchecked.bash"}},
		{"a = !curl x", []string{"python.process.shell", "unchecked.bash"}},
		{"%pip install x", []string{"python.magic.pip"}},
		{"%%bash\nsudo x", []string{"python.magic.bash", "unchecked.bash"}},
		{"%%time\neval('1')", []string{"python.magic.time", "python.dynamic.eval"}},
		{"%time eval('1')", []string{"python.magic.time", "python.dynamic.eval"}},
		// Ordinary code is left alone: texts, comments, names of one's own.
		{"x = 'import os; eval()' # eval(x)", nil},
		{"class A:\n    def __init__(self):\n        super().__init__()\n    def eval(self):\n        return self.eval()\n", nil},
		{"def compile(x): return x\ncompile(1)", nil},
		{"re_compile = r.compile('x')\nsum(range(10)) % 3", nil},
		{"await f()\nasync with a as b: pass", nil},
	} {
		checkSeen(t, sandboxed(t), "py", c.code, c.want...)
	}
}

func TestPythonSyntax(t *testing.T) {
	for _, c := range []struct {
		code         string
		line, column int
		message      string
	}{
		{"x = (1,\n", 1, 5, "SyntaxError: '(' was never closed"},
		{"print 'x'", 1, 1, "SyntaxError: "},
		{"a = 1\nreturn a", 2, 1, "SyntaxError: 'return' outside function"},
		{"def f(x, x): pass", 1, 10, "SyntaxError: duplicate argument 'x'"},
		{"for x in y:\nprint(x)", 2, 1, "IndentationError: "},
		{"é = 'é' $", 1, 9, "SyntaxError: "},
		{"!ls\nx = = 1", 2, 5, "SyntaxError: "},
		{strings.Repeat("-", 9000) + "1", 0, 0, "nested too deeply"},
		{strings.Repeat("(", 9000), 1, 201, "too many nested parentheses"},
	} {
		r := check(t, sandboxed(t), nil, "python", c.code)
		if r.Valid || len(r.Errors) != 1 || r.Decision != Deny {
			t.Errorf("%.40q: %+v", c.code, r)
			continue
		}
		e := r.Errors[0]
		if e.Rule != "syntax" || e.Line != c.line || !strings.Contains(e.Message, c.message) {
			t.Errorf("%.40q: %+v", c.code, e)
		}
		if e.Column != c.column {
			t.Errorf("%.40q: column %d, want %d", c.code, e.Column, c.column)
		}
	}
}

// What the kernel runs is valid, and what it does not compile is not.
func TestPythonAsTheKernel(t *testing.T) {
	for _, code := range []string{
		"import asyncio\nawait asyncio.sleep(0)", "!true", "x = !echo 1 \\\n 2", "%time 1", "%%bash\ntrue", "  a = 1\n  b = a",
		"len?", "[x async for x in y()] if False else 1", "x = 7 %3", "'''\n!ls\n'''", "f(\n%x\n)", "return 1", "x = !", "from __future__ import annotations\n1",
		"1\nfrom __future__ import annotations", "if 1:\n\t!true\n", "%%nosuch\nx", "x = 'a' \\\n 'b'", "\ufeffx = 1", "yield 1", "nonlocal x",
	} {
		res, err := sandboxed(t).ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: code, ExecutionID: "kernel"})
		if err != nil {
			t.Fatal(err)
		}
		runs := res.Error == nil || !slices.Contains([]string{"SyntaxError", "IndentationError", "TabError"}, res.Error.Type)
		if r := check(t, sandboxed(t), &Policy{}, "python", code); r.Valid != runs {
			t.Errorf("%q: valid %v, but the kernel says %v; %+v", code, r.Valid, res.Error, r.Errors)
		}
	}
}

// Whatever the code is, none of it runs.
func TestPythonIsNotRun(t *testing.T) {
	write := "open('/tmp/ran', 'w').close()"
	for _, code := range []string{
		write, "%%bash\ntouch /tmp/ran", "!touch /tmp/ran", "%time " + write, "'''\n\"\"\"\n\")\n" + write + "\n'''", "\")\n" + write,
		"# coding: rot13\n" + write, "x: (" + write + ")", "@(" + write + ")\ndef f(a=" + write + "): pass", "f'{" + write + "}'",
		"class A:\n    " + write, "import antigravity", "1 if " + write + " else 2", "\\\")\n" + write,
	} {
		check(t, sandboxed(t), nil, "python", code)
	}
	res, err := sandboxed(t).ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "import os; print(os.path.exists('/tmp/ran'))", ExecutionID: ExecutionID})
	if err != nil || strings.TrimSpace(res.Output) != "False" {
		t.Errorf("%q %v", res.Output, err)
	}
}

// The package's documentation names these. They are here to say so honestly.
func TestKnownBypassesOfPython(t *testing.T) {
	for _, code := range []string{
		"import os\nf = [os][0].system\nf('id')",
		"import os\ndef call(m): return m.system('id')\ncall(os)",
		"'{0.__class__.__base__}'.format(1)",
		"import pandas as pd\npd.read_csv('http://169.254.169.254/')",
		"import os\nvars_of = os.path.os.sys.modules",
		"open('m.py', 'w').write('import subprocess')\nimport m",
		"import os\n(lambda o: o.popen('id'))(os)",
	} {
		if r := check(t, sandboxed(t), Production(), "python", code); r.Decision != Allow {
			t.Errorf("%q is seen by now: %+v; the documentation may say so", code, r.Findings)
		}
	}
}

func TestPythonManyFacts(t *testing.T) {
	code := strings.Repeat("eval(x);", 1200)
	r := check(t, sandboxed(t), Production(), "python", code)
	if r.Decision != Deny || len(r.Findings) == 0 || len(r.Findings) > maxFindings {
		t.Errorf("%v, %d findings", r.Decision, len(r.Findings))
	}
	var b strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&b, "import m%d\n", i)
	}
	v, err := New(sandboxed(t), Options{Policy: Production(), MaxChars: LargestMaxChars})
	if err != nil {
		t.Fatal(err)
	}
	r, err = v.Validate(t.Context(), Code{"python", b.String()})
	if err != nil || r.Decision != Review || r.Findings[0].Rule != "unchecked.rest" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestValidateAtOnce(t *testing.T) {
	v, err := New(sandboxed(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			r, err := v.Validate(t.Context(), Code{"python", strings.Repeat("\n", i) + "eval('1')"})
			if err != nil || len(r.Findings) != 1 || r.Findings[0].Line != i+1 {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
}
