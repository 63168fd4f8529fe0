package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Solution is a problem that code was to solve.
type Solution struct {
	Problem string
	// Output is what the code printed and showed as text, without escape codes:
	// the answer, if Success.
	Output string
	Repaired
}

// String is the solution for a person to read, or why there is none.
func (s Solution) String() string {
	if !s.Success {
		why := "nothing ran"
		if s.Why != nil {
			why = s.Why.String()
		}
		return "Failed to solve: " + why
	}
	return fmt.Sprintf("Problem: %s\n\nSolution:\n%s\n\nResult: %s", s.Problem, fenced(s.Code.Language, s.Code.Code), s.Output)
}

// SolveWithCode has the model write Python that solves a problem and prints the
// result, and runs and repairs it. See [agent.Agent] for questions that need to
// look at something first.
func SolveWithCode(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor,
	problem string, opts RepairOptions) (Solution, error) {
	task := Task{Text: problem, Requirements: []string{
		"Use only the standard library", "Print the final result", "Handle edge cases", "Keep it simple",
	}}
	return solve(ctx, model, executor, task, "", opts)
}

// solve generates, runs and repairs. before begins the code that runs.
func solve(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor, task Task,
	before string, opts RepairOptions) (Solution, error) {
	s := Solution{Problem: task.Text}
	code, err := GenerateCode(ctx, model, task)
	if err != nil {
		return s, err
	}
	code.Code = before + code.Code
	if opts.Purpose == "" {
		opts.Purpose = task.Text
	}
	s.Repaired, err = Repair(ctx, model, executor, code, opts)
	s.Output = strings.TrimSpace(codeexec.CleanText(s.Result.Output))
	return s, err
}

// AnalyzeData answers a question about rows with code that the model writes. Rows
// are a slice of structs, maps or whatever else is JSON; they are put into the
// file data.json, which the code has as the Python list data. The model sees how
// many there are and the first, not the rest.
func AnalyzeData(ctx context.Context, model agent.Model, executor codeexec.CodeExecutor, rows any,
	question string, opts RepairOptions) (Solution, error) {
	v := reflect.ValueOf(rows)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return Solution{Problem: question}, fmt.Errorf("analyze data: rows are a slice, not %T", rows)
	}
	content, err := json.Marshal(rows)
	if err != nil {
		return Solution{Problem: question}, fmt.Errorf("analyze data: the rows are no JSON: %w", err)
	}
	if string(content) == "null" {
		content = []byte("[]")
	}
	structure := "data is a list of 0 rows"
	if v.Len() > 0 {
		first, err := json.Marshal(v.Index(0).Interface())
		if err != nil {
			return Solution{Problem: question}, fmt.Errorf("analyze data: the rows are no JSON: %w", err)
		}
		structure = fmt.Sprintf("data is a list of %d rows. The first one, as JSON:\n%s", v.Len(), clip.Ellipsis(string(bytes.TrimSpace(first)), 2000))
	}
	const load = "import json\nwith open(\"data.json\", encoding=\"utf-8\") as f:\n    data = json.load(f)\n\n"
	opts.Files = append(opts.Files[:len(opts.Files):len(opts.Files)], codeexec.File{Name: "data.json", Content: content, SizeBytes: int64(len(content))})
	task := Task{
		Text: "Analyze this data to answer: " + question, Context: structure,
		Requirements: []string{"The list data is there already, loaded from data.json: do not define it", "Print the answer", "Handle missing values", "Keep it simple"},
	}
	s, err := solve(ctx, model, executor, task, load, opts)
	s.Problem = question
	return s, err
}
