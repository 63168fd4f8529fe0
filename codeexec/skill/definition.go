package skill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Definition is a tool as a model's provider wants it. The schemas are JSON
// Schema of objects.
type Definition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
	// Call runs the tool with a model's arguments. Arguments that make no sense are
	// an error of invalid_argument, whose text the model can act upon.
	Call func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) `json:"-"`
}

// maxArguments bounds what a model sends for one call, in bytes.
const maxArguments = 16 << 20

// Definitions returns the tools: skill_load, skill_list_docs, skill_select_docs,
// skill_run, skill_exec, skill_write_stdin, skill_poll_session and
// skill_kill_session.
func (t *Tools) Definitions() []Definition {
	return []Definition{
		define("skill_load", "Load a skill: how it is used, and its documents if asked for. Load a skill before you use it.", t.Load),
		define("skill_list_docs", "List a skill's documents.", t.ListDocs),
		define("skill_select_docs", "Choose which documents of a skill stay in the conversation.", t.SelectDocs),
		define("skill_run", "Run a shell command in a skill's folder and return what it printed and the files that it left in out/. Commands of a conversation share their files.", t.Run),
		define("skill_exec", "Start a shell command in a skill's folder that needs input or takes long. Go on with skill_write_stdin, skill_poll_session, skill_kill_session.", t.Exec),
		define("skill_write_stdin", "Type into a command that skill_exec started, and return what it prints.", t.WriteStdin),
		define("skill_poll_session", "Return what a command that skill_exec started has printed since.", t.PollSession),
		define("skill_kill_session", "End a command that skill_exec started.", t.KillSession),
	}
}

func define[In, Out any](name, description string, call func(context.Context, In) (Out, error)) Definition {
	return Definition{
		Name: name, Description: description,
		InputSchema: schemaJSON(reflect.TypeFor[In]()), OutputSchema: schemaJSON(reflect.TypeFor[Out]()),
		Call: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			var in In
			if err := decodeArguments(args, &in); err != nil {
				return nil, &cubby.Error{Op: name, Code: cubby.CodeInvalidArgument, Err: err}
			}
			out, err := call(ctx, in)
			if err != nil {
				return nil, err
			}
			b, err := json.Marshal(out)
			return b, execerr.Wrap(name, cubby.CodeInternal, err)
		},
	}
}

// decodeArguments reads an object, or, as some models send it, a string that
// holds one. Names that mean nothing are passed over.
func decodeArguments(args json.RawMessage, into any) error {
	if len(args) > maxArguments {
		return errors.New("the arguments are too long")
	}
	args = bytes.TrimSpace(args)
	if len(args) > 0 && args[0] == '"' {
		var inner string
		if err := json.Unmarshal(args, &inner); err != nil {
			return err
		}
		args = bytes.TrimSpace([]byte(inner))
	}
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = []byte("{}")
	}
	return json.Unmarshal(args, into)
}

// Strings is a list of texts; a model may write one text for a list of one.
type Strings []string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Strings) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		var one string
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*s = nil
		if one != "" {
			*s = Strings{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// schema is the part of JSON Schema that is needed here.
type schema struct {
	Type        string             `json:"type,omitempty"`
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Additional  *schema            `json:"additionalProperties,omitempty"`
}

// foreign describes fields of types of other packages.
var foreign = map[string]string{
	"InputSpec.From":          "artifact://NAME or artifact://NAME@VERSION, workspace://PATH, skill://NAME/PATH",
	"InputSpec.To":            "Path in the workspace; work/inputs/ and the name by default",
	"InputSpec.Mode":          "copy (default) or link",
	"InputSpec.Pin":           "Keep the version of the first time",
	"OutputSpec.Globs":        "Patterns below the workspace, such as out/**/*.csv",
	"OutputSpec.MaxFiles":     "100 by default",
	"OutputSpec.Save":         "Save the files as artifacts",
	"OutputSpec.MaxFileBytes": "4 MiB by default; longer files are cut",
}

func schemaJSON(t reflect.Type) json.RawMessage {
	b, err := json.Marshal(schemaOf(t))
	if err != nil {
		panic(err) // of maps, slices and strings
	}
	return b
}

func schemaOf(t reflect.Type) *schema {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.Slice:
		return &schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", Additional: schemaOf(t.Elem())}
	case reflect.Struct:
		s := &schema{Type: "object", Properties: map[string]*schema{}}
		s.fields(t)
		return s
	}
	return &schema{Type: "string"}
}

func (s *schema) fields(t reflect.Type) {
	for f := range t.Fields() {
		if f.Anonymous {
			s.fields(f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := schemaOf(f.Type)
		p.Description = f.Tag.Get("desc")
		if p.Description == "" {
			p.Description = foreign[t.Name()+"."+f.Name]
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			p.Enum = strings.Split(enum, ",")
		}
		s.Properties[name] = p
		if !strings.Contains(options, "omitempty") {
			s.Required = append(s.Required, name)
		}
	}
}
