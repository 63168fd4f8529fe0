package toolbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/google/jsonschema-go/jsonschema"
)

// Bounds of a box and what is in it, in bytes unless they say otherwise.
const (
	MaxTools       = 100
	MaxCode        = 64 << 10
	MaxSchema      = 32 << 10
	MaxDescription = 1000 // characters
	MaxArguments   = 256 << 10
	MaxResult      = 1 << 20
)

// Kept is a function that was kept.
type Kept struct {
	// Name is 1 to 64 of a-z, 0-9 and underscores, and begins with a letter.
	Name        string `json:"name"`
	Description string `json:"description"` // one line: what it does, for a model
	Language    string `json:"language"`    // Python or JavaScript
	Code        string `json:"code"`
	// Function is the function of Code that is called: in Python with the
	// arguments by name, in JavaScript with one object of them. What it returns
	// must be JSON. It may be async.
	Function string `json:"function"`
	// Schema is the JSON Schema of the arguments, of type object and without
	// references.
	Schema  json.RawMessage `json:"schema"`
	Created time.Time       `json:"created"`           // Keep sets it if it is zero
	Session string          `json:"session,omitempty"` // where it was made
	// Hash is the SHA-256 of all that matters to a caller, in hexadecimal. Keep
	// sets it.
	Hash string `json:"hash"`
}

var (
	toolName     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	functionName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,99}$`)
)

// reserved are names of tools that an agent has anyway.
func reserved(name string) bool {
	return name == keepTool || name == "execute_code" || name == "execute_python"
}

func invalid(format string, args ...any) error {
	return &cubby.Error{Op: "keep tool", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf(format, args...)}
}

// normalized returns k as it is kept, and its schema ready for use.
func (k Kept) normalized() (Kept, *jsonschema.Resolved, error) {
	fail := func(format string, args ...any) (Kept, *jsonschema.Resolved, error) {
		return Kept{}, nil, invalid(format, args...)
	}
	if !toolName.MatchString(k.Name) {
		return fail("%.80q is no name of a tool: take 1 to 64 of a-z, 0-9 and underscores, a letter first", k.Name)
	}
	if reserved(k.Name) {
		return fail("the name %s is taken by a tool of the agent: take another", k.Name)
	}
	k.Description = oneLine(k.Description)
	if k.Description == "" || utf8.RuneCountInString(k.Description) > MaxDescription {
		return fail("describe what the tool does in 1 to %d characters", MaxDescription)
	}
	k.Language = codeexec.NormalizeLanguage(k.Language)
	if k.Language != codeexec.Python && k.Language != codeexec.JavaScript {
		return fail("tools are in python or javascript, not in %.40q", k.Language)
	}
	switch {
	case strings.TrimSpace(k.Code) == "":
		return fail("there is no code")
	case len(k.Code) > MaxCode:
		return fail("the code has %d bytes, of at most %d", len(k.Code), MaxCode)
	case !utf8.ValidString(k.Code) || strings.ContainsRune(k.Code, 0):
		return fail("the code is no text in UTF-8, or has a NUL")
	case !functionName.MatchString(k.Function):
		return fail("%.80q is no name of a function: name the one in the code that is to be called", k.Function)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, k.Schema); err != nil {
		return fail("the schema is no JSON: %w", err)
	}
	k.Schema = compact.Bytes()
	schema, err := resolve(k.Schema)
	if err != nil {
		return fail("the schema: %w", err)
	}
	return k, schema, nil
}

// oneLine makes one line of a text, without control characters.
func oneLine(s string) string { return strings.Join(strings.Fields(codeexec.CleanText(s)), " ") }

// resolve makes a schema ready for use. References are refused: one that leads
// to itself would never end.
func resolve(text json.RawMessage) (*jsonschema.Resolved, error) {
	if len(text) > MaxSchema {
		return nil, fmt.Errorf("%d bytes, of at most %d", len(text), MaxSchema)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	if refers(tree) {
		return nil, errors.New("it has references ($ref): write out what they mean")
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, errors.New(`its type must be "object", with the arguments as properties`)
	}
	return s.Resolve(nil)
}

func refers(tree any) bool {
	switch v := tree.(type) {
	case map[string]any:
		for name, value := range v {
			if name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef" || refers(value) {
				return true
			}
		}
	case []any:
		for _, value := range v {
			if refers(value) {
				return true
			}
		}
	}
	return false
}

// arguments checks them against the schema and returns them on one line. None
// are an empty object.
func arguments(schema *jsonschema.Resolved, args json.RawMessage) (json.RawMessage, error) {
	args = bytes.TrimSpace(args)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if len(args) > MaxArguments {
		return nil, fmt.Errorf("%d bytes, of at most %d", len(args), MaxArguments)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, args); err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	var value any
	if err := json.Unmarshal(compact.Bytes(), &value); err != nil {
		return nil, err
	}
	return compact.Bytes(), schema.Validate(value)
}

// hash is that of all but who made it when.
func (k Kept) hash() string {
	h := sha256.New()
	for _, s := range []string{k.Name, k.Description, k.Language, k.Code, k.Function, string(k.Schema)} {
		fmt.Fprintf(h, "%d:", len(s))
		io.WriteString(h, s)
	}
	return hex.EncodeToString(h.Sum(nil))
}
