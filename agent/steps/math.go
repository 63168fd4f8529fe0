package steps

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

//go:embed math.py
var mathPython string

// MathError is an expression that has no value: it is none, or it is too much,
// or not defined.
type MathError struct {
	Expression string // clipped
	Reason     string
	Column     int // in characters, from 1; 0 if it is about the whole
}

// Error says why, and what to write instead.
func (e *MathError) Error() string {
	where := ""
	if e.Column > 0 {
		where = fmt.Sprintf(" (column %d)", e.Column)
	}
	return fmt.Sprintf("cannot compute %q: %s%s", e.Expression, e.Reason, where)
}

// ComputeMath computes an expression as Python would write it: numbers, + - * /
// // % **, comparisons, lists, pi, e, tau, inf, nan, and the functions of
// Python's math with or without "math." before them, as well as abs, round, min,
// max, sum, pow, len, int, float and range. It returns the value as Python
// prints it.
// Integers are exact. Anything else, and what would take long (expressions beyond
// 1,000 characters, integers beyond 4,000 digits, ranges beyond a million), is a
// *MathError: no expression can do more than compute, even in the sandbox where
// it is computed.
func ComputeMath(ctx context.Context, executor codeexec.CodeExecutor, expression string) (string, error) {
	refuse := func(reason string, column int) error {
		return &MathError{clip.Ellipsis(expression, 200), clip.Ellipsis(codeexec.CleanText(reason), maxMessage), column}
	}
	const most = 1000 // bytes
	if len(expression) > most {
		return "", refuse(fmt.Sprintf("it is longer than %d characters: compute parts of it", most), 0)
	}
	mark := newMark()
	code := fmt.Sprintf("%s\n_cubby_math(%q, %q)\n", mathPython, base64.StdEncoding.EncodeToString([]byte(expression)), mark)
	r, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks:  []codeexec.CodeBlock{{Code: code, Language: codeexec.Python}},
		ExecutionID: "steps-math", // what is there are these helpers, no state
	})
	if err != nil {
		return "", fmt.Errorf("compute: %w", err)
	}
	if r.TimedOut {
		return "", refuse("it takes too long", 0)
	}
	for line := range marked(r, mark) {
		var got struct {
			Value  *string `json:"value"`
			Reason string  `json:"reason"`
			Column int     `json:"column"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return "", fmt.Errorf("compute: the helper answered what is no JSON: %w", err)
		}
		if got.Value == nil {
			return "", refuse(got.Reason, max(got.Column, 0))
		}
		return *got.Value, nil
	}
	return "", fmt.Errorf("compute: %w", helperError(r))
}

// helperError is the error of a helper that ended without an answer.
func helperError(r codeexec.CodeExecutionResult) error {
	if x := ExplainResult(r, ""); x != nil {
		return fmt.Errorf("the helper in the sandbox failed: %s", clip.Ellipsis(x.String(), maxMessage))
	}
	return errors.New("the helper in the sandbox gave no answer; does the executor run Python 3?")
}
