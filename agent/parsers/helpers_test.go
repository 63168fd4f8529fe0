package parsers_test

import (
	"slices"
	"testing"

	"github.com/cubby-sandbox/cubby/agent/parsers"
	"github.com/cubby-sandbox/cubby/agent/validate"
)

// code is a case of a table.
type code struct{ language, source string }

// check looks at code with a policy.
func check(t *testing.T, p *validate.Policy, language, source string) validate.Report {
	t.Helper()
	v, err := validate.New(nil, validate.Options{Policy: p, Checkers: parsers.Checkers()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Validate(t.Context(), validate.Code{Language: language, Source: source})
	if err != nil {
		t.Fatalf("%q: %v", source, err)
	}
	return r
}

// checkSeen compares the rules of all that a checker sees in code with what must
// be seen; a case that wants nothing must see nothing.
func checkSeen(t *testing.T, language, source string, want ...string) {
	t.Helper()
	r := check(t, &validate.Policy{Default: validate.Review}, language, source)
	if !r.Valid || r.Unchecked {
		t.Fatalf("%q: valid %v, unchecked %v: %+v", source, r.Valid, r.Unchecked, r.Errors)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Rule)
		if f.Line == 0 || f.Column == 0 || f.Evidence == "" || f.Message == "" {
			t.Errorf("%q: incomplete: %+v", source, f)
		}
	}
	for _, id := range want {
		if !slices.Contains(got, id) {
			t.Errorf("%q: %s is not among %q", source, id, got)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("%q: found %q", source, got)
	}
}
