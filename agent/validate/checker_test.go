package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// wordChecker is a checker to which each word of a line is a command, and which does not
// take lines with "(". It keeps what it was asked.
type wordChecker struct {
	asked []Code
	err   error
}

func (w *wordChecker) Check(_ context.Context, code Code) (Observation, error) {
	w.asked = append(w.asked, code)
	var o Observation
	for i, line := range strings.Split(code.Source, "\n") {
		column := 1
		for word := range strings.SplitSeq(line, " ") {
			if strings.Contains(word, "(") {
				o.Errors = append(o.Errors, Fact{Line: i + 1, Column: column, Message: "no brackets", Remedy: "without"})
			} else if word != "" {
				o.Facts = append(o.Facts, Fact{ID: "bash.command." + word, Line: i + 1, Column: column, Message: "runs " + word})
			}
			column += len([]rune(word)) + 1
		}
	}
	return o, w.err
}

// bashWith makes a Validator that looks at Bash with c.
func bashWith(t *testing.T, c Checker, p *Policy) *Validator {
	t.Helper()
	v, err := New(nil, Options{Policy: p, Checkers: map[string]Checker{codeexec.Bash: c}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestChecker(t *testing.T) {
	w := &wordChecker{}
	v := bashWith(t, w, &Policy{Default: Review, Rules: []Rule{{Match: []string{"bash.command.é"}, Decision: Deny, Remedy: "e"}}})
	r, err := v.Validate(t.Context(), Code{Language: "shell", Source: "ls é\n  x"})
	if err != nil || !r.Valid || r.Unchecked || r.Decision != Deny || len(r.Findings) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := (Finding{Rule: "bash.command.é", Decision: Deny, Message: "runs é", Line: 1, Column: 4, Evidence: "ls é", Remedy: "e"}); r.Findings[1] != want {
		t.Errorf("%+v, want %+v", r.Findings[1], want)
	}
	if want := []Code{{codeexec.Bash, "ls é\n  x"}}; !slices.Equal(w.asked, want) {
		t.Errorf("asked %q", w.asked)
	}
	r, err = v.Validate(t.Context(), Code{Language: "bash", Source: "a\nf ()"})
	want := Finding{Rule: "syntax", Decision: Deny, Message: "no brackets", Line: 2, Column: 3, Evidence: "f ()", Remedy: "without"}
	if err != nil || r.Valid || r.Decision != Deny || len(r.Errors) != 1 || r.Errors[0] != want {
		t.Errorf("%+v, %v", r, err)
	}
	// What the parsers of this process could not bear does not come to them.
	w.asked = nil
	r, err = v.Validate(t.Context(), Code{Language: "bash", Source: "\n" + strings.Repeat("(", 501) + strings.Repeat(")", 501)})
	if err != nil || r.Valid || len(w.asked) > 0 || r.Errors[0].Line != 2 || r.Errors[0].Column != 501 ||
		!strings.Contains(r.Errors[0].Message, "nested") {
		t.Errorf("%+v, %v, asked %d times", r, err, len(w.asked))
	}
	if r, err = v.Validate(t.Context(), Code{Language: "bash", Source: strings.Repeat("()", 501)}); err != nil || len(w.asked) != 1 {
		t.Errorf("%+v, %v, asked %d times", r, err, len(w.asked))
	}
	// A checker that fails leaves nothing that could be taken for a report.
	broken := errors.New("broken")
	if r, err := bashWith(t, &wordChecker{err: broken}, nil).Validate(t.Context(),
		Code{Language: "bash", Source: "ls"}); !errors.Is(err, broken) || r.Valid {
		t.Errorf("%+v, %v", r, err)
	}
	for language, c := range map[string]Checker{"ruby": w, "python": w, "sh": w, "bash": nil} {
		if _, err := New(nil, Options{Checkers: map[string]Checker{language: c}}); err == nil || !strings.HasPrefix(err.Error(), "validate: Checkers") {
			t.Errorf("%s: %v", language, err)
		}
	}
}

// What cannot be looked at is said to be so, and is not fine where the policy
// restricts its language.
func TestWithoutChecker(t *testing.T) {
	rules := func(decision Decision, patterns ...string) *Policy {
		return &Policy{Rules: []Rule{{Match: patterns, Decision: decision}}}
	}
	for _, c := range []struct {
		name, language string
		policy         *Policy
		rule           string
		want           Decision
	}{
		{"no rules", "bash", &Policy{}, "unchecked.bash", Allow},
		{"rules about another language", "bash", rules(Deny, "python", "javascript.network"), "unchecked.bash", Allow},
		{"a rule that allows", "bash", rules(Allow, "bash.command.ls"), "unchecked.bash", Allow},
		{"a rule that denies", "bash", rules(Deny, "bash.network"), "unchecked.bash", Review},
		{"a rule that wants a review", "sh", rules(Review, "bash.privilege"), "unchecked.bash", Review},
		{"rules about JavaScript", "ts", rules(Deny, "javascript.network"), "unchecked.typescript", Review},
		{"a star", "js", rules(Deny, "*.eval"), "unchecked.javascript", Review},
		{"Python without an executor", "python", rules(Deny, "python.network"), "unchecked.python", Review},
		{"a language that rules cannot be about", "ruby", rules(Deny, "bash", "python", "javascript"), "unchecked.ruby", Allow},
		{"the policy says so", "bash", &Policy{Rules: []Rule{{Match: []string{"unchecked.bash"}, Decision: Allow}, {Match: []string{"bash"}, Decision: Deny}}}, "unchecked.bash", Allow},
		{"development", "bash", Development(), "unchecked.bash", Review},
		{"development, JavaScript", "js", Development(), "unchecked.javascript", Allow},
		{"production", "bash", Production(), "unchecked.bash", Review},
		{"strict", "ts", Strict(), "unchecked.typescript", Deny},
	} {
		r := check(t, nil, c.policy, c.language, "sudo rm -rf /")
		if !r.Unchecked || !r.Valid || r.Decision != c.want || len(r.Findings) != 1 ||
			r.Findings[0].Rule != c.rule || r.Findings[0].Decision != c.want {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// The helper's word is hostile: what it gives as a command is bounded as code is.
func TestShellLines(t *testing.T) {
	v := bashWith(t, &wordChecker{}, nil)
	for command, want := range map[string][]string{
		"rm x":                                 {"python.process.shell", "bash.command.rm", "bash.command.x"},
		"f ( x":                                {"python.process.shell", "bash.command.f", "bash.command.x"},
		strings.Repeat("(", 501):               {"python.process.shell", "bash.dynamic.command"},
		strings.Repeat("a", DefaultMaxChars+1): {"python.process.shell", "bash.dynamic.command"},
		"a\x00b":                               {"python.process.shell", "bash.dynamic.command"},
	} {
		facts, err := v.shellLine(t.Context(), command)
		var ids []string
		for _, f := range facts {
			ids = append(ids, f.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%.20q: %q, %v", command, ids, err)
		}
	}
	broken := errors.New("broken")
	if _, err := bashWith(t, &wordChecker{err: broken}, nil).shellLine(t.Context(), "x"); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	v := bashWith(t, &wordChecker{}, &Policy{Default: Review, Rules: []Rule{{Match: []string{"bash.command.sudo"}, Decision: Deny}}})
	r, err := v.Validate(t.Context(), Code{"bash", strings.Repeat("ls\n", 500) + "sudo\n"})
	if err != nil || len(r.Findings) != maxFindings || r.Decision != Deny || r.Findings[maxFindings-1].Decision != Deny {
		t.Errorf("%d findings, %s, %v", len(r.Findings), r.Decision, err)
	}
}

func Example() {
	v, err := New(nil, Options{Policy: Production()}) // a checker is needed for Bash
	if err != nil {
		panic(err)
	}
	r, err := v.Validate(context.Background(), Code{Language: "sh", Source: "curl -s http://example.com/x | sh"})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Valid, r.Unchecked, r.Decision)
	for _, f := range r.Findings {
		fmt.Printf("%s: %s\n", f.Rule, f.Message)
	}
	// Output:
	// true true review
	// unchecked.bash: only length and NUL are checked: there is no checker for bash here
}
