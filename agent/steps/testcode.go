package steps

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

var (
	//go:embed driver.py
	driverPython string
	//go:embed testee.py
	testeePython string
	//go:embed testee.cjs
	testeeNode string
)

// Bounds of [TestCode].
const (
	MaxCases           = 500
	DefaultCaseTimeout = 5 * time.Second
	setupTimeout       = 15 * time.Second
	maxTestedCode      = 1 << 20 // bytes
	maxValues          = 2 << 20 // bytes, of all values that calls return, shared out evenly
	minValue           = 4 << 10
)

// Case is a call of the code and what it should return.
type Case struct {
	// Call is an expression in the code's language, such as "add(2, 3)".
	Call string `json:"call"`
	// Expected is compared by value: numbers, strings, booleans, nil, slices,
	// maps, structs by their JSON, and a [Literal] for what Go has no value of.
	// 5 is equal to 5.0, not to true or "5"; a slice is equal to a list or a
	// tuple; NaN is equal to NaN. A string is also equal to an object that prints
	// as it. What a promise or a coroutine gives is awaited.
	Expected any `json:"expected"`
	// Raises is the type of the error that the call should end with, such as
	// "ValueError", instead.
	Raises string `json:"raises,omitempty"`
	// Tolerance is by how much numbers may differ; 0 is not at all.
	Tolerance float64 `json:"tolerance,omitempty"`
	Name      string  `json:"name,omitempty"` // empty is Call
	// Timeout bounds the call; 0 means DefaultCaseTimeout. The executor's own
	// bound is for all calls together.
	Timeout time.Duration `json:"-"`
}

// Literal is a value as the code's language writes it, such as "(1, 2)" or
// "{1, 2}" in Python. Lists and tuples then differ. It is all of Case.Expected;
// within a slice or map it is a string.
type Literal string

// TestReport is what became of the cases.
type TestReport struct {
	Total   int          `json:"total"`
	Passed  int          `json:"passed"`
	Results []TestResult `json:"results"` // in the order of the cases
	// Error is why the code itself, without any call, failed; no case passed
	// then.
	Error *codeexec.ExecutionError `json:"error,omitempty"`
}

// OK reports whether all cases passed.
func (r TestReport) OK() bool { return r.Passed == r.Total }

// TestResult is what became of a case.
type TestResult struct {
	Test     string        `json:"test"` // its name
	Expected string        `json:"expected"`
	Actual   string        `json:"actual"` // as the language prints it, clipped; empty without a value
	Passed   bool          `json:"passed"`
	Error    string        `json:"error,omitempty"` // why there is no value
	Duration time.Duration `json:"duration"`        // of the call
}

// Transpiler makes a script of JavaScript or TypeScript: without types, and with
// require and module.exports in the place of import and export. The error is the
// code's; language is normalised. It must be safe for concurrent use, and bear
// hostile code of up to 1 MiB.
type Transpiler func(language, code string) (script string, err *codeexec.ExecutionError)

// TestOption configures [TestCode].
type TestOption func(*testRun)

// WithTranspiler lets [TestCode] run TypeScript, and JavaScript that has import or
// export. CommonJS of the module agent/parsers is a transpiler.
func WithTranspiler(t Transpiler) TestOption { return func(r *testRun) { r.transpile = t } }

// TestCode runs code of Python, JavaScript or TypeScript against cases, in one
// run of the executor. Each call begins with the code as it was defined, so that no
// call sees what another changed: Python's in a copy of the process, JavaScript's
// in a context where the code is defined anew. A call that fails, ends its process
// or never ends fails its case only, and what the code prints does not disturb. The
// code is no main program: in Python __name__ is not "__main__", and what only
// notebooks take (top-level await, magics) is a syntax error. TypeScript and modules
// of JavaScript need [WithTranspiler], and are an error without it.
//
// Values are compared here, not in the sandbox, but what they are is the
// sandbox's word: code that was written to cheat its tests can.
func TestCode(ctx context.Context, executor codeexec.CodeExecutor, code codeexec.CodeBlock,
	cases []Case, opts ...TestOption) (TestReport, error) {
	t := &testRun{report: TestReport{Total: len(cases), Results: make([]TestResult, len(cases))}, cases: cases, done: make([]bool, len(cases))}
	for _, o := range opts {
		o(t)
	}
	job, err := t.prepare(code)
	if err != nil {
		return t.report, fmt.Errorf("test code: %w", err)
	}
	if len(cases) == 0 {
		return t.report, nil
	}
	if t.report.Error != nil {
		t.fail("the code is not valid: " + t.report.Error.Error())
		return t.report, nil
	}
	payload, err := json.Marshal(job)
	if err != nil {
		return t.report, fmt.Errorf("test code: %w", err)
	}
	cell := fmt.Sprintf("%s\n_cubby_tests(%q)\n", driverPython, base64.StdEncoding.EncodeToString(payload))
	r, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{{Code: cell, Language: codeexec.Python}}, ExecutionID: newID("test"),
	})
	if err != nil {
		return t.report, fmt.Errorf("test code: %w", err)
	}
	answered := false
	for line := range marked(r, job.Mark) {
		answered = true
		t.take(line)
	}
	switch {
	case t.err != nil:
		return t.report, fmt.Errorf("test code: %w", t.err)
	case r.TimedOut:
		t.fail("not run: the executor's time for all calls together was over")
	case !answered:
		return t.report, fmt.Errorf("test code: %w", helperError(r))
	default:
		t.fail("not run: the tests ended before it")
	}
	return t.report, nil
}

// testJob is what the driver in the sandbox is told.
type testJob struct {
	Mark     string    `json:"mark"`
	Language string    `json:"language"`
	Testee   string    `json:"testee"` // the program that has the code and makes the calls
	Code     string    `json:"code"`
	Setup    float64   `json:"setup_seconds"`
	Budget   int       `json:"budget"` // bytes of a value
	Cases    []jobCase `json:"cases"`
}

type jobCase struct {
	Call    string  `json:"call"`
	Literal *string `json:"literal,omitempty"`
	Seconds float64 `json:"seconds"`
}

type testRun struct {
	report   TestReport
	cases    []Case
	expected []value
	done     []bool
	err      error // the caller's mistake

	transpile Transpiler // may be nil
}

func (t *testRun) prepare(code codeexec.CodeBlock) (testJob, error) {
	language := codeexec.NormalizeLanguage(code.Language)
	if len(code.Code) > maxTestedCode {
		return testJob{}, fmt.Errorf("the code is %d bytes; the most is %d", len(code.Code), maxTestedCode)
	}
	job := testJob{Mark: newMark(), Language: language, Code: code.Code, Setup: setupTimeout.Seconds(),
		Budget: max(maxValues/max(len(t.cases), 1), minValue)}
	switch language {
	case codeexec.Python:
		job.Testee = testeePython
	case codeexec.JavaScript, codeexec.TypeScript:
		job.Testee = testeeNode
		var err error
		if job.Code, err = t.script(language, code.Code); err != nil {
			return job, err
		}
	default:
		return job, fmt.Errorf("%q cannot be tested: write it in Python, JavaScript or TypeScript", clip.Ellipsis(language, 40))
	}
	if len(t.cases) > MaxCases {
		return job, fmt.Errorf("%d cases are too many: run at most %d at a time", len(t.cases), MaxCases)
	}
	for i, c := range t.cases {
		if strings.TrimSpace(c.Call) == "" {
			return job, fmt.Errorf("case %d has no Call", i)
		}
		t.report.Results[i].Test = cmp.Or(c.Name, c.Call)
		jc := jobCase{Call: c.Call, Seconds: cmp.Or(c.Timeout, DefaultCaseTimeout).Seconds()}
		want := value{}
		switch expected := c.Expected.(type) {
		case Literal:
			jc.Literal = new(string(expected))
			t.report.Results[i].Expected = string(expected)
		default:
			var err error
			if want, err = valueOf(expected); err != nil {
				return job, fmt.Errorf("case %d: Expected: %w", i, err)
			}
			t.report.Results[i].Expected = clip.Ellipsis(want.String(), maxMessage)
		}
		if c.Raises != "" {
			t.report.Results[i].Expected = c.Raises
		}
		t.expected = append(t.expected, want)
		job.Cases = append(job.Cases, jc)
	}
	return job, nil
}

// moduleWords are in code that is a module, and may be in other code.
var moduleWords = regexp.MustCompile(`\b(import|export)\b`)

// script makes code that vm.Script takes: no types, no import and export. What is
// wrong with the code becomes the report's error.
func (t *testRun) script(language, code string) (string, error) {
	if language == codeexec.JavaScript && !moduleWords.MatchString(code) {
		return code, nil // lines stay as they are
	}
	if t.transpile == nil {
		what := "TypeScript"
		if language == codeexec.JavaScript {
			what = "JavaScript with import or export"
		}
		return "", fmt.Errorf("%s needs a transpiler: pass WithTranspiler, or write JavaScript with require", what)
	}
	out, failed := t.transpile(language, code)
	if failed != nil {
		failed.Message = clip.Ellipsis(failed.Message, maxMessage)
		t.report.Error = failed
		return "", nil
	}
	return out, nil
}

// testLine is a line of the driver: hostile, since the code can write such too.
type testLine struct {
	Case    *int    `json:"i"`
	Literal any     `json:"literal"`
	NoValue string  `json:"no_literal"` // why a Literal is none
	Value   any     `json:"value"`
	Text    string  `json:"text"`
	Error   *testee `json:"error"`
	Setup   *testee `json:"setup_error"`
	Timeout bool    `json:"timeout"`
	Died    bool    `json:"died"`
	Seconds float64 `json:"seconds"`
}

type testee struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Line    int    `json:"line"`
}

func (e *testee) execution() *codeexec.ExecutionError {
	return &codeexec.ExecutionError{
		Type:    clip.Ellipsis(codeexec.CleanText(e.Type), maxLine),
		Message: clip.Ellipsis(codeexec.CleanText(e.Message), maxMessage), Line: max(e.Line, 0),
	}
}

func (t *testRun) take(text string) {
	var line testLine
	if json.Unmarshal([]byte(text), &line) != nil {
		return
	}
	if line.Setup != nil {
		t.report.Error = line.Setup.execution()
		t.fail("the code failed: " + t.report.Error.Error())
		return
	}
	if line.Case == nil || *line.Case < 0 || *line.Case >= len(t.cases) || t.done[*line.Case] {
		return
	}
	i := *line.Case
	if line.NoValue != "" {
		t.err = cmp.Or(t.err, fmt.Errorf("case %d: Expected is no literal: %s", i, clip.Ellipsis(codeexec.CleanText(line.NoValue), maxLine)))
		return
	}
	if line.Literal != nil {
		if want, ok := received(line.Literal, 0); ok {
			want.strict = true
			t.expected[i] = want
		}
		return
	}
	c, r := t.cases[i], &t.report.Results[i]
	t.done[i] = true
	if line.Seconds > 0 && line.Seconds < 1e6 {
		r.Duration = time.Duration(line.Seconds * float64(time.Second))
	}
	switch {
	case line.Timeout:
		r.Error = fmt.Sprintf("it did not end within %v", cmp.Or(c.Timeout, DefaultCaseTimeout))
	case line.Died:
		r.Error = "it ended its process"
	case line.Error != nil:
		e := line.Error.execution()
		r.Error = e.Error()
		if e.Line > 0 {
			r.Error += fmt.Sprintf(" (line %d)", e.Line)
		}
		r.Passed = c.Raises != "" && (e.Type == c.Raises || strings.HasSuffix(e.Type, "."+c.Raises))
	default:
		got, ok := received(line.Value, 0)
		r.Actual = clip.Ellipsis(codeexec.CleanText(line.Text), maxMessage)
		switch {
		case !ok:
			r.Error = "it returned nothing that could be read"
		case got.Kind == kindLarge:
			r.Error = "what it returned is too large to compare"
		default:
			r.Passed = c.Raises == "" && equal(t.expected[i], got, c.Tolerance, t.expected[i].strict, 0)
		}
	}
	if r.Passed {
		t.report.Passed++
	}
}

// fail ends the cases that have no result yet.
func (t *testRun) fail(why string) {
	for i := range t.done {
		if !t.done[i] {
			t.done[i], t.report.Results[i].Error = true, why
		}
	}
}
