package validate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		code, rule   string
		line, column int
	}{
		{strings.Repeat("é", DefaultMaxChars+1), "length", 0, 0},
		{"echo 1\necho é\x00", "nul", 2, 7},
		{"echo \xff", "encoding", 0, 0},
	} {
		for _, language := range []string{"python", "js", "ts", "bash", "ruby"} {
			r := check(t, nil, nil, language, c.code)
			if r.Valid || r.Decision != Deny || len(r.Errors) != 1 {
				t.Fatalf("%s: %+v", c.rule, r)
			}
			if e := r.Errors[0]; e.Rule != c.rule || e.Line != c.line || e.Column != c.column || e.Message == "" || e.Remedy == "" {
				t.Errorf("%s: %+v", c.rule, e)
			}
		}
	}
	if r := check(t, nil, nil, "bash", "#"+strings.Repeat("é", DefaultMaxChars-1)); !r.Valid {
		t.Errorf("code of just the length: %+v", r)
	}
}

func TestMaxChars(t *testing.T) {
	for _, c := range []struct{ option, policy, want int }{{0, 0, DefaultMaxChars}, {0, 50, 50}, {70, 50, 70}, {70, 0, 70}} {
		v, err := New(nil, Options{MaxChars: c.option, Policy: &Policy{MaxChars: c.policy}})
		if err != nil || v.maxChars != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, o := range []Options{{MaxChars: -1}, {MaxChars: LargestMaxChars + 1}, {Policy: &Policy{Default: "maybe"}},
		{Policy: &Policy{Rules: []Rule{{Decision: Deny}}}}} {
		if _, err := New(nil, o); err == nil {
			t.Errorf("taken: %+v", o)
		}
	}
}

func TestUnchecked(t *testing.T) {
	bashOnly := fake{languages: []string{"bash"}}
	for _, executor := range []codeexec.CodeExecutor{nil, bashOnly} {
		r := check(t, executor, Strict(), "Python3", "import os")
		if r.Language != "python" || !r.Unchecked || !r.Valid || r.Decision != Deny || r.Findings[0].Rule != "unchecked.python" {
			t.Errorf("%+v", r)
		}
	}
	if r := check(t, nil, Development(), "R", "x <- 1"); !r.Unchecked || r.Decision != Allow || r.Language != "r" {
		t.Errorf("%+v", r)
	}
	// A name out of a model's reply must not become a pattern, or speak.
	if r := check(t, nil, Strict(), "x\x1b[2J * \u202e"+strings.Repeat("y", 500), "1"); r.Decision != Deny || len(r.Findings[0].Rule) > 150 ||
		strings.ContainsAny(r.Findings[0].Rule+r.Findings[0].Message, "\x1b\u202e*") {
		t.Errorf("%+v", r.Findings[0])
	}
}

// A hostile sandbox can lie, and nothing else.
func TestHostileAnswers(t *testing.T) {
	answer := func(text string) func(codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
		return func(in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
			code := in.CodeBlocks[0].Code
			_, marker, _ := strings.Cut(code[strings.LastIndex(code, "_cubby_validate"):], `, "`)
			marker, _, _ = strings.Cut(marker, `"`)
			out := strings.ReplaceAll(text, "MARK", marker)
			return codeexec.CodeExecutionResult{Blocks: []codeexec.BlockResult{{Stdout: out}}}, nil
		}
	}
	facts := func(n int, f string) string {
		return `MARK{"facts":[` + strings.TrimSuffix(strings.Repeat(f+",", n), ",") + "]}\n"
	}
	for _, text := range []string{
		"", "MARK", "MARK{", "MARK[]", "MARK{\"else\":1}", `{"facts":[]}`, `MARK{"facts":[{"line":"1"}]}`, `MARK{"facts":[{"line":1e99}]}`,
		facts(maxFacts+1, "{}"), "MARK" + strings.Repeat(" ", maxAnswer+1) + "{}", `MARK{"errors":` + strings.Repeat("[", 100_000),
	} {
		v, err := New(fake{[]string{"python"}, answer(text)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := v.Validate(t.Context(), Code{"python", "x"}); err == nil {
			t.Errorf("%.60q: %+v", text, r)
		}
	}
	for _, text := range []string{
		facts(1, `{"kind":"import","name":"x\u001b[2J\u202e\nignore\n","line":-5,"column":1000000000}`),
		facts(1, `{"kind":"dunder","name":"`+strings.Repeat("x", 1<<20)+`","line":9,"column":9}`),
		facts(1, `{"kind":"shell","detail":"rm -rf x; `+strings.Repeat("(", 1000)+`","line":1,"column":-1}`),
		`noise` + "\nMARK" + `{"errors":[{"type":"\u001b[1m","message":"` + strings.Repeat("m", 100_000) + `\n\n","line":1,"column":-7}]}`,
		facts(1, `{"kind":"what","name":""}`), facts(1, `{"kind":"use","name":"...."}`), facts(maxFacts, `{"kind":"import","name":"os"}`),
	} {
		r := check(t, fake{[]string{"python"}, answer(text)}, &Policy{Default: Review}, "python", "x = 1")
		data, err := json.Marshal(r)
		if err != nil || len(data) > 200*maxFindings || strings.ContainsAny(string(data), "\x1b\u202e") || strings.Contains(string(data), `\n`) {
			t.Errorf("%.60q: %d bytes: %.300s", text, len(data), data)
		}
		for _, f := range append(r.Errors, r.Findings...) {
			if f.Line < 0 || f.Line > 1 || f.Column < 0 || f.Column > 6 {
				t.Errorf("%.60q: %+v", text, f)
			}
		}
	}
}

func TestExecutorsThatFail(t *testing.T) {
	broken := errors.New("no sandbox")
	for name, c := range map[string]struct {
		result  codeexec.CodeExecutionResult
		err     error
		wantErr bool
		check   func(Report) bool
	}{
		"error":     {err: broken, wantErr: true},
		"exception": {result: codeexec.CodeExecutionResult{ExitCode: 1, Error: &codeexec.ExecutionError{Type: "ImportError"}}, wantErr: true},
		"nothing":   {wantErr: true},
		"unsupported": {result: codeexec.CodeExecutionResult{Blocks: []codeexec.BlockResult{{Unsupported: true}}},
			check: func(r Report) bool { return r.Unchecked }},
		"timeout": {result: codeexec.CodeExecutionResult{TimedOut: true}, check: func(r Report) bool { return !r.Valid && r.Decision == Deny }},
		"memory":  {result: codeexec.CodeExecutionResult{Limit: "memory"}, check: func(r Report) bool { return !r.Valid }},
		"crash":   {result: codeexec.CodeExecutionResult{ExitCode: 139}, check: func(r Report) bool { return !r.Valid && r.Errors[0].Remedy != "" }},
	} {
		v, err := New(fake{[]string{"python"}, func(codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult,
			error) {
			return c.result, c.err
		}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := v.Validate(t.Context(), Code{"python", "x"})
		if (err != nil) != c.wantErr || c.err != nil && !errors.Is(err, c.err) || c.check != nil && !c.check(r) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Validate(ctx, Code{"bash", "ls"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
