package validate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Checker looks at code of one language. Those of the module agent/parsers are
// for JavaScript, TypeScript and Bash. It must be safe for concurrent use.
type Checker interface {
	// Check tells what a compiler would say of code, and what the code does; it
	// does not run it. The Validator has seen that the code is UTF-8 without NUL,
	// that it has at most [LargestMaxChars] characters, and that no more than 500
	// brackets are open at a time; code.Language is normalised. An error says that
	// the checker could not do its work: the code is then neither valid nor not.
	Check(ctx context.Context, code Code) (Observation, error)
}

// Observation is what a [Checker] saw in code.
type Observation struct {
	// Errors are why a compiler would not take the code; their IDs are not read.
	Errors []Fact
	// Facts are what the code does.
	Facts []Fact
}

// Fact is something in code, for a [Policy] to decide about.
type Fact struct {
	ID           string // words with dots between them, see [Policy]
	Line, Column int    // from 1, columns in characters; 0 if it is about the whole
	Message      string // what the code does: text that may be shown as it is
	Remedy       string // what to write instead; may be empty
}

// firstWords are the first words of facts about a language. Policies have rules for
// these languages only.
var firstWords = map[string]string{
	codeexec.Python: "python", codeexec.JavaScript: "javascript", codeexec.TypeScript: "javascript", codeexec.Bash: "bash",
}

// checkCheckers refuses checkers whose facts no rule could be about.
func checkCheckers(checkers map[string]Checker) error {
	for language, c := range checkers {
		switch {
		case language == codeexec.Python:
			return errors.New("Checkers: Python is compiled by the executor, and has no checker")
		case firstWords[language] == "":
			return fmt.Errorf("Checkers: %q: policies have rules about %s, %s and %s", language, codeexec.JavaScript, codeexec.TypeScript, codeexec.Bash)
		case c == nil:
			return fmt.Errorf("Checkers: that of %s is nil", language)
		}
	}
	return nil
}

// sightings are what was seen of code.
type sightings struct {
	errors, facts []Fact
	unchecked     bool
}

// look has code looked at by the checker of its language.
func (v *Validator) look(ctx context.Context, src *source.Source, language string) (sightings, error) {
	if language == codeexec.Python {
		return v.python(ctx, src)
	}
	checker := v.checkers[language]
	if checker == nil {
		return unchecked(language), nil
	}
	if offset, deep := src.TooDeep(); deep {
		f := Fact{Message: "the code is nested too deeply", Remedy: "write it in smaller pieces"}
		f.Line, f.Column = src.Position(offset)
		return sightings{errors: []Fact{f}}, nil
	}
	seen, err := checker.Check(ctx, Code{Language: language, Source: src.Text})
	if err != nil {
		return sightings{}, fmt.Errorf("validate: %s could not be checked: %w", language, err)
	}
	return sightings{errors: seen.Errors, facts: seen.Facts}, nil
}

// unchecked is what is seen of a language that nothing here can look at.
func unchecked(language string) sightings {
	return sightings{unchecked: true, facts: []Fact{uncheckedFact(language)}}
}

func uncheckedFact(language string) Fact {
	name := source.Label(language)
	return Fact{
		ID:      "unchecked." + name,
		Message: fmt.Sprintf("only length and NUL are checked: there is no checker for %s here", name),
	}
}

// uncheckedRest is the fact that there was more of Python than is looked at.
const uncheckedRest = "unchecked.rest"

func isUnchecked(id string) bool { return strings.HasPrefix(id, "unchecked.") }
