package validate

import (
	"context"
	"slices"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// rules returns the rules of all that a checker sees in code.
func rules(t *testing.T, executor codeexec.CodeExecutor, language, code string) []string {
	t.Helper()
	v, err := New(executor, Options{Policy: &Policy{Default: Review}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Validate(t.Context(), Code{language, code})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Valid || r.Unchecked {
		t.Fatalf("%q: valid %v, unchecked %v: %+v", code, r.Valid, r.Unchecked, r.Errors)
	}
	var ids []string
	for _, f := range r.Findings {
		ids = append(ids, f.Rule)
		if f.Line == 0 || f.Column == 0 || f.Evidence == "" || f.Message == "" {
			t.Errorf("%q: incomplete: %+v", code, f)
		}
	}
	return ids
}

// checkSeen compares with what must be seen; a case that wants nothing must see
// nothing.
func checkSeen(t *testing.T, executor codeexec.CodeExecutor, language, code string, want ...string) {
	t.Helper()
	got := rules(t, executor, language, code)
	for _, id := range want {
		if !slices.Contains(got, id) {
			t.Errorf("%q: %s is not among %q", code, id, got)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("%q: found %q", code, got)
	}
}

// check looks at code with a policy.
func check(t *testing.T, executor codeexec.CodeExecutor, p *Policy, language, code string) Report {
	t.Helper()
	v, err := New(executor, Options{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Validate(t.Context(), Code{language, code})
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	return r
}

// fake is an executor that answers what it is told to.
type fake struct {
	languages []string
	answer    func(codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error)
}

func (f fake) ExecuteCode(_ context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return f.answer(in)
}
func (fake) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter { return nil }
func (f fake) Languages() []string                              { return f.languages }
func (fake) Close() error                                       { return nil }
