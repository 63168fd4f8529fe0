package steps

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// FixCode has a model correct code that has a problem: an error, or what an
// [Explanation] says of one. It does not run it.
func FixCode(ctx context.Context, model agent.Model, code codeexec.CodeBlock, problem string) (codeexec.CodeBlock, error) {
	return fix(ctx, model, code, problem, "")
}

func fix(ctx context.Context, model agent.Model, code codeexec.CodeBlock, problem, purpose string) (codeexec.CodeBlock, error) {
	const most = 8 << 10
	language := codeexec.NormalizeLanguage(code.Language)
	prompt := "This code has an error:\n\n" + fenced(language, code.Code) + "\n\nError:\n\n" + fenced("text", clip.Ellipsis(codeexec.CleanText(problem), most))
	if purpose != "" {
		prompt += "\n\nThe code is for this:\n\n" + purpose
	}
	prompt += "\n\nProvide the corrected code, all of it."
	return askForCode(ctx, model, prompt, language)
}

// DefaultAttempts is how often code is run at most, with a correction before each
// run but the first.
const DefaultAttempts = 3

// RepairOptions configure [Repair]. The zero value is usable.
type RepairOptions struct {
	Attempts int // runs in all; 0 means DefaultAttempts
	// Validator looks at code before each run. What it finds not valid, or
	// unsafe, does not run and counts as a failure that the model is to correct.
	Validator Validator
	// Approve decides about code that is to be reviewed; without it such code
	// does not run. It is not asked about other code.
	Approve agent.Approver
	// Files are put beside the code before each run.
	Files []codeexec.File
	// Purpose tells the model what the code is for.
	Purpose string
	// OnAttempt, if set, is told the code before each attempt, from 1.
	OnAttempt func(attempt int, code codeexec.CodeBlock)
}

// Why [Repair] stopped without success.
const (
	StoppedAttempts  = "max attempts reached"
	StoppedSameError = "same error for the same code"
)

// Repaired is how a repair ended.
type Repaired struct {
	Success  bool
	Code     codeexec.CodeBlock // the last that was tried
	Attempts int
	// Result is that of the last run; the zero value if nothing ran.
	Result codeexec.CodeExecutionResult
	// Stopped is empty on success, else StoppedAttempts or StoppedSameError.
	Stopped string
	// Why is why the last attempt failed; nil on success.
	Why *Explanation
}

// Repair runs code and, while it fails, has the model correct it and runs it
// again, each time in a state of its own. It gives up after the attempts, or when
// the same code fails with the same error once more. An error means that model,
// validator or executor failed; Repaired then holds what was known.
func Repair(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor,
	code codeexec.CodeBlock, opts RepairOptions) (Repaired, error) {
	type failure struct{ language, code, kind, message string }
	seen := map[failure]bool{}
	r := Repaired{Code: code}
	for {
		r.Attempts++
		if opts.OnAttempt != nil {
			opts.OnAttempt(r.Attempts, r.Code)
		}
		if err := r.attempt(ctx, executor, opts); err != nil || r.Success {
			return r, err
		}
		f := failure{r.Code.Language, r.Code.Code, r.Why.Type, r.Why.Message}
		switch {
		case seen[f]:
			r.Stopped = StoppedSameError
			return r, nil
		case r.Attempts >= cmp.Or(opts.Attempts, DefaultAttempts):
			r.Stopped = StoppedAttempts
			return r, nil
		}
		seen[f] = true
		fixed, err := fix(ctx, model, r.Code, r.Why.String(), opts.Purpose)
		if err != nil {
			return r, err
		}
		r.Code = fixed
	}
}

// attempt validates and runs the code once.
func (r *Repaired) attempt(ctx context.Context, executor codeexec.CodeExecutor, opts RepairOptions) error {
	r.Result, r.Why = codeexec.CodeExecutionResult{}, nil
	v, err := admit(ctx, opts.Validator, opts.Approve, r.Code)
	if err != nil {
		return err
	}
	if !v.Valid {
		r.Why = &Explanation{Type: "Invalid code", Message: v.Reason}
		return nil
	}
	if r.Result, err = Execute(ctx, executor, r.Code, opts.Files...); err != nil {
		return err
	}
	r.Why = ExplainResult(r.Result, r.Code.Code)
	r.Success = r.Why == nil
	return nil
}

// admit says whether code may run. Without a validator it may: the sandbox is
// the wall.
func admit(ctx context.Context, v Validator, approve agent.Approver, code codeexec.CodeBlock) (Verdict, error) {
	if v == nil {
		return Verdict{Valid: true}, nil
	}
	verdict, err := ValidateCodeInput(ctx, v, code)
	if err != nil || !verdict.Valid || !verdict.Review {
		return verdict, err
	}
	if approve == nil {
		verdict.Valid = false
		verdict.Reason += "; nobody is here to do so: write it another way"
		return verdict, nil
	}
	said, err := approve(ctx, agent.ApprovalRequest{Language: code.Language, Code: code.Code, Report: verdict.Report, Required: true})
	if err != nil {
		return verdict, fmt.Errorf("approve code: %w", err)
	}
	if !said.Approved {
		verdict.Valid = false
		verdict.Reason += "; refused: " + cmp.Or(said.Reason, "no reason was given")
	}
	return verdict, nil
}

// RunWithRetry runs code and, when it fails, what the model makes of it, so many
// times more. It returns the last result, of a failure too. See [Repair], which
// tells more.
func RunWithRetry(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor, code codeexec.CodeBlock,
	retries int) (codeexec.CodeExecutionResult, error) {
	r, err := Repair(ctx, model, executor, code, RepairOptions{Attempts: max(retries, 0) + 1})
	return r.Result, err
}
