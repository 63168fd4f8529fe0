package validate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// maxFindings bounds a report.
const maxFindings = 100

// Code is what to look at. Language is as a model writes it, see
// [codeexec.NormalizeLanguage].
type Code struct {
	Language, Source string
}

// Options configure [New]. The zero value is usable.
type Options struct {
	// Policy decides about what is found; nil is [Production].
	Policy *Policy
	// MaxChars bounds the length of code, in characters, up to
	// [LargestMaxChars]; 0 leaves it to the policy.
	MaxChars int
	// Checkers look at JavaScript, TypeScript and Bash, by those names; see
	// [codeexec.NormalizeLanguage]. A language without one is
	// [Report.Unchecked], and code in it has to be reviewed where the policy
	// restricts that language.
	Checkers map[string]Checker
}

// Validator looks at code. It is safe for concurrent use.
type Validator struct {
	executor codeexec.CodeExecutor // nil: Python is unchecked
	checkers map[string]Checker
	policy   Policy
	maxChars int
}

// New makes a Validator. Python is compiled, not run, by the executor, which stays
// the caller's, under [ExecutionID]. Without an executor, or with one that has no
// Python, reports about Python are [Report.Unchecked]. Policy and map of checkers are
// copied.
func New(executor codeexec.CodeExecutor, opts Options) (*Validator, error) {
	if opts.Policy == nil {
		opts.Policy = Production()
	}
	if err := opts.Policy.check(); err != nil {
		return nil, fmt.Errorf("validate: policy: %w", err)
	}
	if opts.MaxChars < 0 || opts.MaxChars > LargestMaxChars {
		return nil, fmt.Errorf("validate: MaxChars is %d: it must be from 0 to %d", opts.MaxChars, LargestMaxChars)
	}
	if err := checkCheckers(opts.Checkers); err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	v := &Validator{
		executor: executor, checkers: maps.Clone(opts.Checkers), policy: *opts.Policy,
		maxChars: cmp.Or(opts.MaxChars, opts.Policy.MaxChars, DefaultMaxChars),
	}
	v.policy.Rules = slices.Clone(v.policy.Rules)
	return v, nil
}

// Validate looks at code. An error means that the checker could not do its work,
// such as a context that ended or an executor that failed; code that is not valid
// is no error. The report is advice: see the package's documentation.
func (v *Validator) Validate(ctx context.Context, code Code) (Report, error) {
	language := codeexec.NormalizeLanguage(code.Language)
	r := Report{Language: language, Decision: Allow}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if f, ok := v.unreadable(code.Source); ok {
		r.Errors, r.Decision = []Finding{f}, Deny
		return r, nil
	}
	src := source.New(code.Source)
	seen, err := v.look(ctx, src, language)
	if err != nil {
		return r, err
	}
	r.Unchecked = seen.unchecked
	for _, e := range seen.errors {
		r.Errors = append(r.Errors, Finding{
			Rule: "syntax", Decision: Deny, Line: e.Line, Column: e.Column,
			Message: e.Message, Remedy: e.Remedy, Evidence: src.Evidence(e.Line, e.Column),
		})
	}
	r.Valid = len(r.Errors) == 0
	r.Findings = v.judge(src, seen.facts)
	if !r.Valid {
		r.Decision = Deny
	}
	for _, f := range r.Findings {
		r.Decision = strictest(r.Decision, f.Decision)
	}
	return r, nil
}

// unreadable finds what no language takes.
func (v *Validator) unreadable(code string) (Finding, bool) {
	if n := utf8.RuneCountInString(code); n > v.maxChars {
		return Finding{
			Rule: "length", Decision: Deny,
			Message: fmt.Sprintf("the code has %d characters; at most %d are allowed", n, v.maxChars),
			Remedy:  "write less code at a time, and put data into files",
		}, true
	}
	if i := strings.IndexByte(code, 0); i >= 0 {
		line, column := source.New(code).Position(i)
		return Finding{
			Rule: "nul", Decision: Deny, Line: line, Column: column,
			Message: "the code contains a NUL character",
			Remedy:  `write it as an escape sequence, such as \0`,
		}, true
	}
	if !utf8.ValidString(code) {
		return Finding{
			Rule: "encoding", Decision: Deny, Message: "the code is not valid UTF-8",
			Remedy: "write bytes that are no text as escape sequences",
		}, true
	}
	return Finding{}, false
}

// judge makes findings of facts. Of those about one piece of code that different
// rules found, the strictest stays.
func (v *Validator) judge(src *source.Source, facts []Fact) []Finding {
	var findings []Finding
	for _, f := range facts {
		rule := v.policy.decide(f.ID)
		if rule.Decision == Allow && rule.Message == "" && !isUnchecked(f.ID) {
			continue
		}
		findings = append(findings, Finding{
			Rule: f.ID, Decision: rule.Decision, Line: f.Line, Column: f.Column,
			Message: cmp.Or(rule.Message, f.Message), Remedy: cmp.Or(rule.Remedy, f.Remedy),
		})
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, rank(b.Decision)-rank(a.Decision))
	})
	findings = slices.CompactFunc(findings, func(a, b Finding) bool {
		return a.Line == b.Line && a.Column == b.Column && lastWord(a.Rule) == lastWord(b.Rule) && isUnchecked(a.Rule) == isUnchecked(b.Rule)
	})
	if len(findings) > maxFindings {
		// What is denied must not be hidden by what is not.
		slices.SortStableFunc(findings, func(a, b Finding) int { return rank(b.Decision) - rank(a.Decision) })
		findings = findings[:maxFindings]
		slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	}
	for i, f := range findings {
		findings[i].Evidence = src.Evidence(f.Line, f.Column)
	}
	return findings
}

func lastWord(id string) string { return id[strings.LastIndexByte(id, '.')+1:] }
