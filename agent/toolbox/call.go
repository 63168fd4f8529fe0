package toolbox

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/execerr"
	"github.com/google/jsonschema-go/jsonschema"
)

var (
	//go:embed call.py
	pythonCall string
	//go:embed call.cjs
	javascriptCall string
)

// Result is what became of a call. All of it comes out of a sandbox.
type Result struct {
	Value  json.RawMessage // what the function returned, on one line; nil if it did not
	Stdout string          // what it printed
	Stderr string
	Files  []codeexec.File // what it showed (pictures, documents), then what it wrote
}

// collected is what comes back of the working directory, as of an agent's runs:
// everything but what begins with a dot.
var collected = []string{"[!.]*", "[!.]*/**"}

// Call calls the tool of a name in an executor, in the working directory of an
// execution id. The function does not see that id's variables, nor leave any. If
// the arguments do not fit the schema nothing runs (invalid argument). If the
// function fails the error is, or wraps, a *codeexec.ExecutionError whose line is
// one of the tool's code. The result has what was printed also then.
//
// The code runs as the executor runs code: without a validator or an approver.
// The tools of [Box.Tools] are for an agent that has one.
func (b *Box) Call(ctx context.Context, executor codeexec.CodeExecutor, executionID, name string, args json.RawMessage) (Result, error) {
	k, err := b.Get(ctx, name)
	if err != nil {
		return Result{}, err
	}
	_, schema, err := k.normalized()
	if err != nil {
		return Result{}, err
	}
	return call(ctx, executor, executionID, k, schema, args)
}

// call calls a tool that may be kept or not.
func call(ctx context.Context, executor codeexec.CodeExecutor, id string, k Kept,
	schema *jsonschema.Resolved, args json.RawMessage) (Result, error) {
	op := "call tool " + k.Name
	args, err := arguments(schema, args)
	if err != nil {
		return Result{}, &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("the arguments do not fit: %w", err)}
	}
	// Other output cannot be taken for the result by accident.
	marker := "cubby-result-" + rand.Text() + ":"
	payload, err := json.Marshal(map[string]any{"name": k.Name, "function": k.Function, "code": k.Code, "args": args, "marker": marker})
	if err != nil {
		return Result{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	program := pythonCall
	if k.Language == codeexec.JavaScript {
		program = javascriptCall
	}
	ran, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		ExecutionID: id,
		Collect:     collected,
		CodeBlocks: []codeexec.CodeBlock{{Language: k.Language,
			Code: strings.Replace(program, "PAYLOAD", base64.StdEncoding.EncodeToString(payload), 1)}},
	})
	r := Result{Files: ran.OutputFiles}
	answer, said := "", false
	if len(ran.Blocks) > 0 {
		block := ran.Blocks[0]
		r.Stdout, r.Stderr = block.Stdout, block.Stderr
		if at := strings.LastIndex(r.Stdout, "\n"+marker); at >= 0 {
			answer, _, said = strings.Cut(r.Stdout[at+1+len(marker):], "\n")
			r.Stdout = r.Stdout[:at]
		}
	}
	if err != nil {
		return r, execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	if !said {
		return r, fmt.Errorf("%s: %w", op, unsaid(ran))
	}
	r.Value, err = parse(answer)
	if err != nil {
		return r, fmt.Errorf("%s: %w", op, err)
	}
	return r, nil
}

// unsaid is why there is no result.
func unsaid(ran codeexec.CodeExecutionResult) error {
	switch {
	case ran.TimedOut:
		return errors.New("it did not end in time, and was ended")
	case ran.Error != nil:
		return ran.Error
	case ran.Limit == "output" || ran.Truncated:
		return errors.New("it printed so much that its result was cut off: let it print less")
	case ran.Limit != "":
		return fmt.Errorf("it reached the limit of %s", ran.Limit)
	}
	return fmt.Errorf("it ended its process before it returned (exit code %d): let it return instead", ran.ExitCode)
}

// parse reads the answer of a call, which is the code's: hostile.
func parse(answer string) (json.RawMessage, error) {
	if len(answer) > MaxResult {
		return nil, fmt.Errorf("it returned %d bytes, of at most %d: let it write a file and return its name", len(answer), MaxResult)
	}
	var a struct {
		Value json.RawMessage
		Error *codeexec.ExecutionError
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil || a.Error == nil && len(a.Value) == 0 {
		return nil, errors.New("its result is not JSON")
	}
	if e := a.Error; e != nil {
		e.Type = cmp.Or(clip.Ellipsis(oneLine(e.Type), 200), "Error")
		e.Message = clip.Ellipsis(codeexec.CleanText(e.Message), 2000)
		e.Traceback = clip.Ellipsis(codeexec.CleanText(e.Traceback), 8000)
		e.Line = max(e.Line, 0)
		return nil, e
	}
	return a.Value, nil
}
