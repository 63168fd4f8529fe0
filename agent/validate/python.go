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
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cubby-sandbox/cubby/codeexec"
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
func (v *Validator) python(ctx context.Context, src *source) (sightings, error) {
	if v.executor == nil || !codeexec.Supports(v.executor.Languages(), codeexec.Python) {
		return unchecked(codeexec.Python), nil
	}
	marker := "cubby-validate-" + rand.Text() + " "
	// The code travels as base64, in which nothing can be said to Python.
	cell := fmt.Sprintf("%s\n\n_cubby_validate(%q, %q)\n", pythonHelper, base64.StdEncoding.EncodeToString([]byte(src.text)), marker)
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
		return a.sightings(src), nil
	case res.TimedOut, res.Limit != "", res.ExitCode >= 128:
		// The compiler ended, and it was this code that it was given.
		return sightings{errors: []Finding{{
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
func (a *answer) sightings(src *source) sightings {
	var s sightings
	for _, e := range a.Errors {
		f := Finding{Message: clip(visible(e.Type)+": "+visible(e.Message), 600)}
		f.Line, f.Column = src.clamp(e.Line, e.Column)
		f.Evidence = src.evidence(f.Line, f.Column)
		s.errors = append(s.errors, f)
	}
	for _, p := range a.Facts {
		line, column := src.clamp(p.Line, p.Column)
		if p.Kind == "shell" {
			s.facts = append(s.facts, shellLine(src, p.Detail, line, column)...)
			continue
		}
		if f, ok := p.fact(); ok {
			f.line, f.column = line, column
			s.facts = append(s.facts, f)
		}
	}
	if a.Cut {
		s.facts = append(s.facts, fact{id: "unchecked.rest", message: "the code does too many things for all to be looked at"})
	}
	return s
}

// fact tells what rules are asked about; ok is false if that is nothing.
func (p pythonFact) fact() (f fact, ok bool) {
	name := label(p.Name)
	switch p.Kind {
	case "import":
		return fact{id: "python.import." + name, message: "imports " + name}, true
	case "relative":
		return fact{id: "python.relative-import", message: "imports from a package around it", remedy: "import modules by their full names"}, true
	case "dunder":
		if harmlessDunders[name] {
			return fact{}, false
		}
		return fact{id: "python.dunder." + name, message: name + " leads to the insides of objects", remedy: "use what the object offers"}, true
	case "computed":
		return fact{id: "python.dynamic." + name, message: name + " with a name that is not known before it runs", remedy: "write the attribute's name itself"}, true
	case "magic":
		return fact{id: "python.magic." + name, message: "uses the magic %" + name}, true
	case "use":
		return useOf(name, p.Detail)
	}
	return fact{}, false
}

// shellLine looks at a command that a line with "!" runs.
func shellLine(src *source, text string, line, column int) []fact {
	facts := []fact{{
		id: "python.process.shell", line: line, column: column,
		message: "runs a command of the shell", remedy: "do it in Python",
	}}
	s := &shell{src: src, functions: map[string]bool{}}
	offset := 0
	if line > 0 {
		offset = src.lines[line-1]
	}
	s.script(text, nil, syntax.NewPos(uint(offset), 1, 1))
	for _, f := range s.facts {
		f.line, f.column = line, column
		facts = append(facts, f)
	}
	return facts
}
