package agent

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// NewTool makes a tool of a Go function. The schemas come from the types: names
// by json tags, descriptions by jsonschema tags. In must be a struct or a map.
// What a model passes is checked before f is called, and what f returns before
// the model sees it, as JSON, or as it is if Out is a string.
//
//	type city struct {
//		Name string `json:"name" jsonschema:"the city's name in English"`
//	}
//	tool, err := agent.NewTool("population", "Inhabitants of a city", func(ctx context.Context, in city) (int, error) { … })
func NewTool[In, Out any](name, description string, f func(context.Context, In) (Out, error)) (Tool, error) {
	fail := func(err error) (Tool, error) { return nil, fmt.Errorf("agent: tool %q: %w", name, err) }
	if !toolName(name) {
		return fail(errors.New("a name is 1 to 64 letters, digits, underscores and hyphens"))
	}
	in, err := jsonschema.For[In](nil)
	if err != nil {
		return fail(err)
	}
	if in.Type != "object" {
		return fail(fmt.Errorf("its arguments are of JSON's type %q: take a struct", in.Type))
	}
	input, err := in.Resolve(nil)
	if err != nil {
		return fail(err)
	}
	schema, err := json.Marshal(in)
	if err != nil {
		return fail(err)
	}
	// What these are as JSON, their types do not tell.
	out, err := jsonschema.For[Out](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[[]byte]():          {Type: "string"},
		reflect.TypeFor[json.RawMessage](): {},
	}})
	if err != nil {
		return fail(err)
	}
	if marshals[Out]() {
		out = &jsonschema.Schema{}
	}
	output, err := out.Resolve(nil)
	if err != nil {
		return fail(err)
	}
	return &funcTool[In, Out]{ToolSpec{name, description, schema}, input, output, f}, nil
}

// marshals reports whether a type has a form of JSON of its own.
func marshals[T any]() bool {
	t := reflect.TypeFor[T]()
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func toolName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

type funcTool[In, Out any] struct {
	spec          ToolSpec
	input, output *jsonschema.Resolved
	f             func(context.Context, In) (Out, error)
}

func (t *funcTool[In, Out]) Spec() ToolSpec { return t.spec }

func (t *funcTool[In, Out]) Call(ctx context.Context, arguments json.RawMessage) (ToolOutput, error) {
	var in In
	if err := decodeChecked(arguments, t.input, &in); err != nil {
		return ToolOutput{}, fmt.Errorf("the arguments do not fit: %w", err)
	}
	out, err := t.f(ctx, in)
	if err != nil {
		return ToolOutput{}, err
	}
	if s, ok := any(out).(string); ok {
		return ToolOutput{Text: s}, nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return ToolOutput{}, fmt.Errorf("the tool returned what is no JSON: %w", err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return ToolOutput{}, fmt.Errorf("the tool returned what is no JSON: %w", err)
	}
	if err := t.output.Validate(value); err != nil {
		return ToolOutput{}, fmt.Errorf("the tool returned something of the wrong shape: %w", err)
	}
	return ToolOutput{Text: string(text)}, nil
}

// decodeChecked decodes one JSON value that fits a schema. Nothing means {}.
func decodeChecked(text json.RawMessage, schema *jsonschema.Resolved, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		text = json.RawMessage("{}")
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&value); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("no JSON: something follows the value")
	}
	if err := schema.Validate(value); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
