package steps

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// What comes from the sandbox is hostile: whatever it is, it is read, bounded,
// and equal to itself.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"i": 0, "value": {"k": "int", "v": "5"}, "text": "5", "seconds": 0.1}`)
	f.Add(`{"i": 0, "error": {"type": "X", "message": "y", "line": -3}}`)
	f.Add(`{"i": 0, "value": {"k": "dict", "v": [[{"k": "tuple", "v": [{"k": "float", "v": "1e400"}]}, {"k": "set", "v": [{"k": "none"}]}]]}}`)
	f.Add(`{"i": 0, "value": {"k": "float", "v": "nan"}}`)
	f.Add(`{"i": 0, "literal": {"k": "list", "v": [{"k": "other", "v": "x", "s": 5}]}}`)
	f.Add(`{"setup_error": {"type": "\u001b[31m", "message": ""}}`)
	f.Add(`{"i": 0, "value": {"k": "list", "v": {"k": "list"}}}`)
	f.Fuzz(func(t *testing.T, line string) {
		run := &testRun{
			report: TestReport{Total: 1, Results: make([]TestResult, 1)}, cases: []Case{{Call: "x", Expected: 5}},
			expected: []value{{Kind: kindInt, Text: "5"}}, done: make([]bool, 1),
		}
		run.take(line)
		run.fail("nothing came")
		r := run.report.Results[0]
		if len(r.Error) > 4000 || len(r.Actual) > 2*maxMessage || r.Duration < 0 || strings.Contains(r.Error+r.Actual, "\x1b") {
			t.Errorf("got %+v", r)
		}
		var x struct{ Value any }
		if json.Unmarshal([]byte(line), &x) != nil {
			return
		}
		if v, ok := received(x.Value, 0); ok && v.Kind != kindLarge && !equal(v, v, 0, true, 0) && !repeats(v) {
			t.Errorf("%s is not equal to itself", v)
		}
	})
}

// repeats reports whether a dictionary in v has a key twice, as none can.
func repeats(v value) bool {
	seen := map[string]bool{}
	for _, p := range v.Pairs {
		if seen[p[0].key()] || repeats(p[1]) {
			return true
		}
		seen[p[0].key()] = true
	}
	for _, item := range v.Items {
		if repeats(item) {
			return true
		}
	}
	return false
}

func FuzzExplain(f *testing.F) {
	f.Add("NameError", "name 'x' is not defined", 1, "  File \"a\", line 1\n    x\n    ^\n", "x\n")
	f.Add("X", "", -1, "", "")
	f.Add("SyntaxError", "\x1b[1m", 2, "File \"\", line 2\n ü = (\n     ^\n", "a\r\n\tü = (\r\n")
	f.Fuzz(func(t *testing.T, kind, message string, line int, traceback, code string) {
		x := Explain(&codeexec.ExecutionError{Type: kind, Message: message, Line: line, Traceback: traceback}, code)
		if s := x.String(); len(s) > 8000 || strings.ContainsAny(s, "\x1b\x00") || x.Line < 0 {
			t.Errorf("got %q", s)
		}
	})
}
