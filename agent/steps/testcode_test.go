//go:build linux

package steps_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent/steps"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

func test(t *testing.T, code codeexec.CodeBlock, cases ...steps.Case) steps.TestReport {
	t.Helper()
	r, err := steps.TestCode(t.Context(), shared, code, cases)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != len(cases) || r.Total != len(cases) {
		t.Fatalf("%d results of %d", len(r.Results), len(cases))
	}
	return r
}

type point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

func TestValues(t *testing.T) {
	r := test(t, python(
		"import collections, decimal, os, sys, asyncio",
		"print('noise')",
		"items = []",
		"def same(x): return x",
		"def grow():",
		"    items.append(1)",
		"    print('more noise')",
		"    os.write(1, b'and more')",
		"    return len(items)",
		"class Always:",
		"    def __eq__(self, other): return True",
		"    __hash__ = None",
		"async def later(): return 7",
		"def boom(): raise ValueError('no ' + 'way')",
		"name = __name__",
	),
		steps.Case{Call: "same(5)", Expected: 5},
		steps.Case{Call: "same(5.0)", Expected: 5},
		steps.Case{Call: "same(5)", Expected: 5.0},
		steps.Case{Call: "2**100", Expected: steps.Literal("1267650600228229401496703205376")},
		steps.Case{Call: "0.1 + 0.2", Expected: 0.3, Tolerance: 1e-9},
		steps.Case{Call: "float('nan')", Expected: math.NaN()},
		steps.Case{Call: "'a' + 'b'", Expected: "ab"},
		steps.Case{Call: "None", Expected: nil},
		steps.Case{Call: "[1, (2, 3)]", Expected: []any{1, []int{2, 3}}},
		steps.Case{Call: "(1, 2)", Expected: steps.Literal("(1, 2)")},
		steps.Case{Call: "{2, 1, 3}", Expected: steps.Literal("{1, 2, 3}")},
		steps.Case{Call: "collections.Counter('aab')", Expected: map[string]int{"a": 2, "b": 1}},
		steps.Case{Call: "{'x': 1, 'y': 2.0}", Expected: point{1, 2}},
		steps.Case{Call: "{1: [True]}", Expected: map[int][]bool{1: {true}}},
		steps.Case{Call: "b'\\x00\\xff'", Expected: []byte{0, 255}},
		steps.Case{Call: "decimal.Decimal('1.50')", Expected: "1.50"},
		steps.Case{Call: "grow()", Expected: 1},
		steps.Case{Call: "grow()", Expected: 1, Name: "no call sees another's changes"},
		steps.Case{Call: "later()", Expected: 7},
		steps.Case{Call: "boom()", Raises: "ValueError"},
		steps.Case{Call: "name", Expected: "code_under_test"},
	)
	for _, x := range r.Results {
		if !x.Passed {
			t.Errorf("%+v", x)
		}
	}
	if !r.OK() {
		t.Errorf("%d of %d", r.Passed, r.Total)
	}

	r = test(t, python("class Always:", "    def __eq__(self, other): return True", "def boom(): ", "    raise ValueError('no way')"),
		steps.Case{Call: "True", Expected: 1},
		steps.Case{Call: "'5'", Expected: 5},
		steps.Case{Call: "5", Expected: "5"},
		steps.Case{Call: "[1, 2]", Expected: steps.Literal("(1, 2)")},
		steps.Case{Call: "Always()", Expected: 5},
		steps.Case{Call: "{'a': 1}", Expected: map[string]int{"a": 1, "b": 2}},
		steps.Case{Call: "10**20 + 1", Expected: 1e20},
		steps.Case{Call: "boom()", Expected: nil},
		steps.Case{Call: "1", Raises: "ValueError"},
		steps.Case{Call: "'x' * 10**8", Expected: "x"},
		steps.Case{Call: "1 +", Expected: 1},
	)
	if r.Passed != 0 {
		t.Errorf("%+v", r)
	}
	if got := r.Results[7].Error; got != "ValueError: no way (line 4)" {
		t.Errorf("got %q", got)
	}
	if got := r.Results[0]; got.Actual != "True" || got.Expected != "1" || got.Duration <= 0 {
		t.Errorf("got %+v", got)
	}
}

// A call that never ends, or ends everything, fails alone.
func TestBadCalls(t *testing.T) {
	cases := []steps.Case{
		{Call: "f(0)", Expected: 0},
		{Call: "f(1)", Timeout: 500 * time.Millisecond},
		{Call: "f(2)"},
		{Call: "f(3)"},
		{Call: "f(4)", Timeout: 500 * time.Millisecond},
		{Call: "f(5)", Expected: 5},
		{Call: "f(0)", Expected: 0},
	}
	for _, code := range []codeexec.CodeBlock{
		python("import os, sys, signal, time", "def f(n):", "    while n == 1:", "        try: sum(range(10**9))", "        except BaseException: pass",
			"    if n == 2: os._exit(0)", "    if n == 3: os.kill(os.getppid(), signal.SIGKILL)", "    if n == 4: os.write(1, b'x' * 10_000_000); sys.exit(3)",
			"    if n == 5 and os.fork() == 0: os.setsid(); time.sleep(600)", "    return n"),
		{Language: "js", Code: "function f(n) {\n  while (n === 1) {}\n  if (n === 2) process.exit(0);\n  if (n === 3) process.kill(process.pid, 'SIGKILL');\n" +
			"  if (n === 4) return new Promise(() => {});\n" +
			"  if (n === 5) require('child_process').spawn('sleep', ['600'], {detached: true, stdio: 'inherit'});\n  return n;\n}"},
	} {
		t.Run(code.Language, func(t *testing.T) {
			r := test(t, code, cases...)
			if r.Passed != 3 || !r.Results[0].Passed || !r.Results[5].Passed || !r.Results[6].Passed {
				t.Errorf("%+v", r)
			}
			if want := "it did not end within 500ms"; r.Results[1].Error != want {
				t.Errorf("got %q", r.Results[1].Error)
			}
			if want := "it ended its process"; r.Results[2].Error != want {
				t.Errorf("got %q", r.Results[2].Error)
			}
		})
	}
}

func TestJavaScript(t *testing.T) {
	code := codeexec.CodeBlock{Language: "javascript", Code: `
const fs = require("fs");
let n = 0;
console.log("noise");
process.stdout.write("noise without a line");
const grow = () => ++n;
async function later() { return { a: [1, 2n], m: new Map([["k", new Set([1])]]) }; }
class Point { constructor() { this.x = 1; this.y = 2; } }
function boom() {
  throw new RangeError("no");
}`}
	r := test(t, code,
		steps.Case{Call: "grow()", Expected: 1},
		steps.Case{Call: "grow();", Expected: 1},
		steps.Case{Call: "later()", Expected: map[string]any{"a": []int{1, 2}, "m": steps.Literal("x")}},
		steps.Case{Call: "({x: null, y: undefined})", Expected: map[string]any{"x": nil, "y": nil}},
		steps.Case{Call: "{a: 0.5}", Expected: map[string]float64{"a": 0.5}},
		steps.Case{Call: "new Point()", Expected: point{1, 2}},
		steps.Case{Call: "new Set([2, 1])", Expected: steps.Literal("new Set([1, 2])")},
		steps.Case{Call: "boom()", Raises: "RangeError"},
		steps.Case{Call: "boom()"},
		steps.Case{Call: "[1, NaN, -Infinity]", Expected: []float64{1, math.NaN(), math.Inf(-1)}},
		steps.Case{Call: "fs.existsSync('/')", Expected: true},
	)
	for i, x := range r.Results {
		if want := i != 2 && i != 8; x.Passed != want {
			t.Errorf("%+v", x)
		}
	}
	if got := r.Results[8].Error; got != "RangeError: no (line 10)" {
		t.Errorf("got %q", got)
	}
}

// TypeScript is what a transpiler makes of it; without one it is refused, not run
// as what it is not.
func TestTranspiler(t *testing.T) {
	ts := codeexec.CodeBlock{Language: "ts", Code: "const add = (a: number, b: number): number => a + b"}
	cases := []steps.Case{{Call: "add(2, 3)", Expected: 5}}
	var asked []string
	untyped := func(language, code string) (string, *codeexec.ExecutionError) {
		asked = append(asked, language+" "+code)
		return strings.ReplaceAll(code, ": number", ""), nil
	}
	r, err := steps.TestCode(t.Context(), shared, ts, cases, steps.WithTranspiler(untyped))
	if err != nil || !r.OK() || len(asked) != 1 || asked[0] != "typescript "+ts.Code {
		t.Errorf("%+v, %v; asked %q", r, err, asked)
	}
	// Scripts of JavaScript stay as they are.
	js := codeexec.CodeBlock{Language: "js", Code: "const add = (a, b) => a + b"}
	if r, err = steps.TestCode(t.Context(), shared, js, cases, steps.WithTranspiler(untyped)); err != nil || !r.OK() || len(asked) != 1 {
		t.Errorf("%+v, %v; asked %q", r, err, asked)
	}
	broken := func(string, string) (string, *codeexec.ExecutionError) {
		return "", &codeexec.ExecutionError{Type: "SyntaxError", Message: strings.Repeat("x", 1<<20), Line: 3}
	}
	r, err = steps.TestCode(t.Context(), shared, ts, cases, steps.WithTranspiler(broken))
	if err != nil || r.Passed != 0 || r.Error == nil || r.Error.Line != 3 || len(r.Error.Message) > 10_000 || r.Results[0].Error == "" {
		t.Errorf("%v", err)
	}
}

// Code that fails by itself fails all cases, with its error.
func TestSetupError(t *testing.T) {
	for want, code := range map[string]codeexec.CodeBlock{
		"ZeroDivisionError": python("x = 1", "1 / 0"),
		"SyntaxError":       python("def f(:"),
		"SystemExit":        python("import os", "os._exit(0)"),
		"ReferenceError":    {Language: "js", Code: "\nnope();"},
	} {
		r := test(t, code, steps.Case{Call: "1", Expected: 1}, steps.Case{Call: "2", Expected: 2})
		if r.Passed != 0 || r.Error == nil || r.Error.Type != want || r.Results[1].Error == "" {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

func TestTestCodeRefuses(t *testing.T) {
	for want, try := range map[string]struct {
		language, code string
		cases          []steps.Case
	}{
		"cannot be tested":       {"bash", "x = 1", []steps.Case{{Call: "1"}}},
		"no Call":                {"python", "x = 1", []steps.Case{{}}},
		"too many":               {"python", "x = 1", make([]steps.Case, 501)},
		"cannot be expect":       {"python", "x = 1", []steps.Case{{Call: "1", Expected: func() {}}}},
		"no literal":             {"python", "x = 1", []steps.Case{{Call: "1", Expected: steps.Literal("open('x')")}}},
		"the most is":            {"js", "export " + strings.Repeat("x", 1<<20), []steps.Case{{Call: "1"}}},
		"TypeScript needs a":     {"ts", "1", []steps.Case{{Call: "1"}}},
		"JavaScript with import": {"js", "import 'fs'", []steps.Case{{Call: "1"}}},
	} {
		_, err := steps.TestCode(context.Background(), shared, codeexec.CodeBlock{Language: try.language, Code: try.code}, try.cases)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// executor answers with the output that out makes of the code.
type executor struct {
	codeexec.CodeExecutor
	out func(mark string) codeexec.CodeExecutionResult
}

func (e executor) ExecuteCode(_ context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	code := in.CodeBlocks[0].Code
	_, payload, _ := strings.Cut(code, "\n_cubby_tests(\"")
	text, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(payload, "\")\n"))
	if err != nil {
		return codeexec.CodeExecutionResult{}, err
	}
	var job struct{ Mark string }
	if err := json.Unmarshal(text, &job); err != nil {
		return codeexec.CodeExecutionResult{}, err
	}
	return e.out(job.Mark), nil
}

// What the sandbox says is not believed beyond what it can know.
func TestHostileAnswers(t *testing.T) {
	three := []steps.Case{{Call: "a", Expected: 1}, {Call: "b", Expected: 2}, {Call: "c", Expected: []int{1}}}
	run := func(timedOut bool, lines ...string) (steps.TestReport, error) {
		return steps.TestCode(t.Context(), executor{out: func(mark string) codeexec.CodeExecutionResult {
			r := codeexec.CodeExecutionResult{TimedOut: timedOut, Outcome: codeexec.OutcomeFailed}
			r.Blocks = []codeexec.BlockResult{{Stdout: mark + strings.Join(lines, "\n"+mark) + "\n"}}
			return r
		}}, python("x = 1"), three)
	}
	r, err := run(true, `{"i": 0, "value": {"k": "int", "v": "1"}, "text": "\u001b[31m1", "seconds": 1e300}`, `{"i": 0, "value": {"k": "int", "v": "9"}}`)
	if err != nil || r.Passed != 1 || r.Results[0].Actual != "1" || r.Results[0].Duration != 0 || !strings.Contains(r.Results[2].Error, "time for all") {
		t.Errorf("got %+v, %v", r, err)
	}
	deep := strings.Repeat(`{"k":"list","v":[`, 4000) + strings.Repeat(`]}`, 4000)
	r, err = run(false, "no JSON", `[]`, `{"i": -1, "value": {"k": "int", "v": "1"}}`, `{"i": 99}`, `{"i": 0, "value": 5}`,
		`{"i": 1, "value": {"k": "int", "v": 2}}`, `{"i": 2, "value": `+deep+`}`)
	if err != nil || r.Passed != 0 || r.Results[2].Error != "it returned nothing that could be read" {
		t.Errorf("got %+v, %v", r, err)
	}
	nested := strings.Repeat(`{"k":"set","v":[`, 50) + strings.Repeat(`]}`, 50)
	if r, err = run(false, `{"i": 2, "value": {"k": "dict", "v": [[`+nested+`,{"k":"none"}]]}}`); err != nil || r.Passed != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	none := executor{out: func(string) codeexec.CodeExecutionResult {
		return codeexec.CodeExecutionResult{Outcome: codeexec.OutcomeFailed, ExitCode: 1, Error: &codeexec.ExecutionError{Type: "X", Message: "y"}}
	}}
	if _, err = steps.TestCode(t.Context(), none, python("x = 1"), three); err == nil || !strings.Contains(err.Error(), "X: y") {
		t.Errorf("got %v", err)
	}
}

// The same in programs without a kernel.
func TestWithoutSandbox(t *testing.T) {
	e, err := local.NewUnsafe(t.Context(), local.Config{WorkspaceRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := steps.TestCode(t.Context(), e, python("def add(a, b):", "    return a + b"), []steps.Case{{Call: "add(2, 3)", Expected: 5}})
	if err != nil || !r.OK() {
		t.Errorf("got %+v, %v", r, err)
	}
	if got, err := steps.ComputeMath(t.Context(), e, "6 * 7"); err != nil || got != "42" {
		t.Errorf("got %q, %v", got, err)
	}
}
