package backend_test

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
)

func TestParseError(t *testing.T) {
	for name, tc := range map[string]struct {
		language, text string
		want           codeexec.ExecutionError
	}{
		"Python": {"python", `before
Traceback (most recent call last):
  File "/tmp/a.py", line 4, in <module>
    f()
  File "/tmp/a.py", line 2, in f
    return 1/0
           ~^~
ZeroDivisionError: division by zero
`, codeexec.ExecutionError{Type: "ZeroDivisionError", Message: "division by zero", Line: 2}},
		"Python: the library is not the block": {"py", `Traceback (most recent call last):
  File "<cell 3>", line 5, in <module>
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
`, codeexec.ExecutionError{Type: "json.decoder.JSONDecodeError", Message: "Expecting value: line 1 column 1 (char 0)", Line: 5}},
		"Python: a function of an earlier cell": {"python", `Traceback (most recent call last):
  File "<cell 7>", line 1, in <module>
  File "<cell 2>", line 9, in f
KeyError: 'x'
`, codeexec.ExecutionError{Type: "KeyError", Message: "'x'", Line: 1}},
		"Python: syntax": {"python", `  File "/tmp/b.py", line 3
    x = (
        ^
SyntaxError: '(' was never closed
`, codeexec.ExecutionError{Type: "SyntaxError", Message: "'(' was never closed", Line: 3}},
		"Python: the last of a chain": {"python", `Traceback (most recent call last):
  File "a.py", line 2, in <module>
KeyError: 'k'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
RuntimeError: two
lines
`, codeexec.ExecutionError{Type: "RuntimeError", Message: "two\nlines", Line: 4}},
		"Python: no message": {"python", "Traceback (most recent call last):\n  File \"<stdin>\", line 2, in <module>\nMine\n",
			codeexec.ExecutionError{Type: "Mine", Line: 2}},
		"Python: a group": {"python", `  + Exception Group Traceback (most recent call last):
  |   File "/tmp/c.py", line 1, in <module>
  |     raise ExceptionGroup("g",[ValueError("v")])
  | ExceptionGroup: g (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: v
    +------------------------------------
`, codeexec.ExecutionError{Type: "ExceptionGroup", Message: "g (1 sub-exception)", Line: 1}},
		"Python: coloured": {"python", "Traceback (most recent call last):\n  File \x1b[35m\"a.py\"\x1b[0m, line \x1b[35m1\x1b[0m, in <module>\n\x1b[1;35mValueError\x1b[0m: \x1b[35mx\x1b[0m\n",
			codeexec.ExecutionError{Type: "ValueError", Message: "x", Line: 1}},
		"Node": {"js", `/tmp/a.js:2
function f() { throw new TypeError("bad\nthing"); }
               ^

TypeError: bad
thing
    at f (/tmp/a.js:2:22)
    at Object.<anonymous> (/tmp/a.js:3:1)
    at Module._compile (node:internal/modules/cjs/loader:1521:14)

Node.js v20.20.2
`, codeexec.ExecutionError{Type: "TypeError", Message: "bad\nthing", Line: 2}},
		"Node: syntax": {"javascript", `/tmp/b.js:1
let a = ;
        ^

SyntaxError: Unexpected token ';'
    at wrapSafe (node:internal/modules/cjs/loader:1464:18)

Node.js v20.20.2
`, codeexec.ExecutionError{Type: "SyntaxError", Message: "Unexpected token ';'", Line: 1}},
		"Node: what was thrown is no error": {"js", "\n/tmp/c.js:7\nthrow \"boom\"\n^\nboom\n(Use `node --trace-uncaught ...` to show where the exception was thrown)\n",
			codeexec.ExecutionError{Type: "Error", Message: "boom", Line: 7}},
		"Node: with a code": {"js", "node:fs:573\n  return binding.open(\n                 ^\n\nError: ENOENT: no such file\n    at Object.openSync (node:fs:573:18)\n    at Object.<anonymous> (/tmp/e.js:4:4) {\n",
			codeexec.ExecutionError{Type: "Error", Message: "ENOENT: no such file", Line: 4}},
		"TypeScript: tsc": {"ts", "src/x.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.\n",
			codeexec.ExecutionError{Type: "TS2322", Message: "Type 'string' is not assignable to type 'number'.", Line: 3}},
		"TypeScript: esbuild": {"typescript", "x.ts:3:5: ERROR: Expected \";\" but found \"b\"\n",
			codeexec.ExecutionError{Type: "SyntaxError", Message: `Expected ";" but found "b"`, Line: 3}},
		"Bash": {"bash", "a.sh: line 2: foo: command not found\n",
			codeexec.ExecutionError{Type: "CommandNotFound", Message: "foo: command not found", Line: 2}},
		"Bash: syntax": {"sh", "b.sh: line 2: syntax error near unexpected token `then'\nb.sh: line 2: `if then'\n",
			codeexec.ExecutionError{Type: "SyntaxError", Message: "syntax error near unexpected token `then'", Line: 2}},
		"Bash: unbound": {"bash", "/x/code_0.sh: line 9: X: unbound variable\n",
			codeexec.ExecutionError{Type: "UnboundVariable", Message: "X: unbound variable", Line: 9}},
		"dash": {"sh", "a.sh: 2: foo: not found\n", codeexec.ExecutionError{Type: "CommandNotFound", Message: "foo: not found", Line: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got := backend.ParseError(tc.language, tc.text)
			if got == nil {
				t.Fatal("no error was found")
			}
			if got.Traceback == "" {
				t.Error("there is no traceback")
			}
			if got.Type != tc.want.Type || got.Message != tc.want.Message || got.Line != tc.want.Line {
				t.Errorf("got %q, %q, line %d; want %q, %q, line %d", got.Type, got.Message, got.Line, tc.want.Type, tc.want.Message, tc.want.Line)
			}
		})
	}
	for _, nothing := range []string{"", "just text\n", "Error\n", "warning: x\n"} {
		for _, language := range []string{"python", "bash", "r"} {
			if got := backend.ParseError(language, nothing); got != nil {
				t.Errorf("%s, %q: got %+v", language, nothing, got)
			}
		}
	}
}

func FuzzParseError(f *testing.F) {
	f.Add("python", "Traceback (most recent call last):\n  File \"a\", line 1\nE: x")
	f.Add("python", "  File \"a\", line 1\n    x\nSyntaxError: y")
	f.Add("js", "/a:1\nx\n^\n\nError: y\n    at a (b:1:2)")
	f.Add("ts", "a(1,2): error TS1: x")
	f.Add("bash", "a: line 1: b")
	f.Fuzz(func(t *testing.T, language, text string) {
		e := backend.ParseError(language, text)
		if e == nil {
			return
		}
		if e.Type == "" || e.Line < 0 || len(e.Type) > 200 || len(e.Message) > 8<<10 || strings.Contains(e.Traceback+e.Message, "\x1b") {
			t.Errorf("got %+v", e)
		}
	})
}
