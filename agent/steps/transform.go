package steps

import (
	"context"
	"fmt"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Transformed is what became of code that was to be changed.
type Transformed struct {
	// Code is what to go on with: the new code, or the old if Kept.
	Code codeexec.CodeBlock
	// Proposed is what the model wrote.
	Proposed codeexec.CodeBlock
	// Before and After are the tests of the old code and the new; zero without
	// cases.
	Before, After TestReport
	// Kept says that the old code was kept, since the new fails a test that the
	// old passes.
	Kept bool
}

// Transform has the model change code as an instruction says, without changing
// what it does, which the cases show: they are run before and after. Without
// cases nothing is run, and nothing is shown.
func Transform(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor, code codeexec.CodeBlock,
	instruction string, cases []Case) (Transformed, error) {
	t := Transformed{Code: code}
	var err error
	if len(cases) > 0 {
		if t.Before, err = TestCode(ctx, executor, code, cases); err != nil {
			return t, fmt.Errorf("transform code: before: %w", err)
		}
	}
	language := codeexec.NormalizeLanguage(code.Language)
	prompt := "Transform this code:\n\n" + fenced(language, code.Code) + "\n\nTransformation: " + instruction +
		"\n\nNames and behaviour stay as they are where the transformation does not say otherwise. Provide the transformed code, all of it."
	if t.Proposed, err = askForCode(ctx, model, prompt, language); err != nil {
		return t, err
	}
	if len(cases) > 0 {
		if t.After, err = TestCode(ctx, executor, t.Proposed, cases); err != nil {
			t.Kept = true
			return t, fmt.Errorf("transform code: after: %w", err)
		}
		for i, old := range t.Before.Results {
			if old.Passed && !t.After.Results[i].Passed {
				t.Kept = true
				return t, nil
			}
		}
	}
	t.Code = t.Proposed
	return t, nil
}
