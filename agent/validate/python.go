package validate

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the helper
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// ExecutionID is the execution id under which Python is compiled: the state of
// conversations, which have others, is not touched.
const ExecutionID = "cubby-validate"

// Bounds of what the helper prints: whatever that is, it is hostile.
const (
	maxAnswer = 4 << 20 // bytes
	maxFacts  = 2000
	maxErrors = 10
)

//go:embed python.py
var pythonHelper string

// answer is what the helper prints.
type answer struct {
	Errors []struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Line    int    `json:"line"`
		Column  int    `json:"column"`
	} `json:"errors"`
	Facts []pythonFact `json:"facts"`
	Cut   bool         `json:"cut"` // there was more
}

// pythonFact is what the helper saw. Kind says of what Name is the name.
type pythonFact struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Detail string `json:"detail"`
}

// python looks at Python with the executor's own.
func (v *Validator) python(ctx context.Context, src *source.Source) (sightings, error) {
	if v.executor == nil || !slices.Contains(v.executor.Languages(), codeexec.Python) {
		return unchecked(codeexec.Python), nil
	}
	marker := "cubby-validate-" + rand.Text() + " "
	// The code travels as base64, in which nothing can be said to Python.
	cell := fmt.Sprintf("%s\n\n_cubby_validate(%q, %q)\n", pythonHelper, base64.StdEncoding.EncodeToString([]byte(src.Text)), marker)
	res, err := v.executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{{Language: codeexec.Python, Code: cell}}, ExecutionID: ExecutionID,
	})
	if err != nil {
		return sightings{}, fmt.Errorf("validate: Python could not be compiled: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return sightings{}, err
	}
	if len(res.Blocks) > 0 && res.Blocks[0].Unsupported {
		return unchecked(codeexec.Python), nil
	}
	a, err := readAnswer(res, marker)
	switch {
	case err == nil:
		return v.sightings(ctx, src, a)
	case res.TimedOut, res.Limit != "", res.ExitCode >= 128:
		// The compiler ended, and it was this code that it was given.
		return sightings{errors: []Fact{{
			Message: "Python's compiler could not bear this code: it ran out of time, memory or stack",
			Remedy:  "write it simpler and shorter",
		}}}, nil
	case res.Error != nil:
		return sightings{}, fmt.Errorf("validate: Python could not be compiled: %w", res.Error)
	}
	return sightings{}, fmt.Errorf("validate: Python could not be compiled: %w", err)
}

func readAnswer(res codeexec.CodeExecutionResult, marker string) (*answer, error) {
	out := res.Output
	if len(res.Blocks) > 0 {
		out = res.Blocks[0].Stdout
	}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, marker); ok {
			return decodeAnswer([]byte(rest))
		}
	}
	return nil, errors.New("the helper did not answer; is Python there 3.8 or later?")
}

func decodeAnswer(data []byte) (*answer, error) {
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("the helper's answer has more than %d bytes", maxAnswer)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var a answer
	if err := dec.Decode(&a); err != nil {
		return nil, fmt.Errorf("the helper's answer: %w", err)
	}
	if len(a.Facts) > maxFacts || len(a.Errors) > maxErrors {
		return nil, errors.New("the helper's answer is too long")
	}
	return &a, nil
}

// sightings makes facts for rules of what the helper saw.
func (v *Validator) sightings(ctx context.Context, src *source.Source, a *answer) (sightings, error) {
	var s sightings
	for _, e := range a.Errors {
		f := Fact{Message: clip.Head(source.Visible(e.Type)+": "+source.Visible(e.Message), 600)}
		f.Line, f.Column = src.Clamp(e.Line, e.Column)
		s.errors = append(s.errors, f)
	}
	for _, p := range a.Facts {
		line, column := src.Clamp(p.Line, p.Column)
		if p.Kind == "shell" {
			facts, err := v.shellLine(ctx, p.Detail)
			if err != nil {
				return sightings{}, err
			}
			for _, f := range facts {
				f.Line, f.Column = line, column
				s.facts = append(s.facts, f)
			}
			continue
		}
		if f, ok := p.fact(); ok {
			f.Line, f.Column = line, column
			s.facts = append(s.facts, f)
		}
	}
	if a.Cut {
		s.facts = append(s.facts, Fact{ID: uncheckedRest, Message: "the code does too many things for all to be looked at"})
	}
	return s, nil
}

// fact tells what rules are asked about; ok is false if that is nothing.
func (p pythonFact) fact() (f Fact, ok bool) {
	name := source.Label(p.Name)
	switch p.Kind {
	case "import":
		return Fact{ID: "python.import." + name, Message: "imports " + name}, true
	case "relative":
		return Fact{ID: "python.relative-import", Message: "imports from a package around it", Remedy: "import modules by their full names"}, true
	case "dunder":
		if harmlessDunders[name] {
			return Fact{}, false
		}
		return Fact{ID: "python.dunder." + name, Message: name + " leads to the insides of objects", Remedy: "use what the object offers"}, true
	case "computed":
		return Fact{ID: "python.dynamic." + name, Message: name + " with a name that is not known before it runs", Remedy: "write the attribute's name itself"}, true
	case "magic":
		return Fact{ID: "python.magic." + name, Message: "uses the magic %" + name}, true
	case "use":
		return useOf(name, p.Detail)
	}
	return Fact{}, false
}

// shellLine looks at a command that a line with "!" runs, or a cell with "%%bash".
// The facts have no position.
func (v *Validator) shellLine(ctx context.Context, command string) ([]Fact, error) {
	runs := Fact{ID: "python.process.shell", Message: "runs a command of the shell", Remedy: "do it in Python"}
	checker := v.checkers[codeexec.Bash]
	if checker == nil {
		return []Fact{runs, uncheckedFact(codeexec.Bash)}, nil
	}
	// The helper's word is hostile: its commands need not be in the code.
	_, unreadable := v.unreadable(command)
	if _, deep := source.New(command).TooDeep(); unreadable || deep {
		return []Fact{runs, {
			ID: "bash.dynamic.command", Message: "commands are nested too deeply to be looked at", Remedy: "write the commands themselves",
		}}, nil
	}
	seen, err := checker.Check(ctx, Code{Language: codeexec.Bash, Source: command})
	if err != nil {
		return nil, fmt.Errorf("validate: a command of the shell could not be checked: %w", err)
	}
	return append([]Fact{runs}, seen.Facts...), nil // with errors, it fails when it runs
}
