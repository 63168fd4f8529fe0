package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Names of the tools of [ModeTools], as tRPC-Agent's and the guides' have them.
const (
	executeCode   = "execute_code"
	executePython = "execute_python"
)

// ExecuteCodeSpec is the tool execute_code: blocks of code in these languages.
func ExecuteCodeSpec(languages []string) ToolSpec {
	schema := map[string]any{
		"type": "object",
		"properties": map[string]any{
			"code_blocks": map[string]any{
				"type":        "array",
				"description": "Code to run, in order, until one fails.",
				"items": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"language": map[string]any{"type": "string", "enum": languages},
						"code":     map[string]any{"type": "string", "description": "The code. Print what you need to know."},
					},
					"required": []string{"language", "code"},
				},
			},
		},
		"required": []string{"code_blocks"},
	}
	return ToolSpec{
		Name:        executeCode,
		Description: "Run code in a sandbox. Variables and files last from call to call. Answers with what it prints and shows.",
		Schema:      mustJSON(schema),
	}
}

// ExecutePythonSpec is the tool execute_python, whose one argument is the code.
func ExecutePythonSpec() ToolSpec {
	schema := map[string]any{
		"type": "object",
		"properties": map[string]any{
			"code": map[string]any{"type": "string", "description": "Python code to execute. Use print() for output."},
		},
		"required": []string{"code"},
	}
	return ToolSpec{
		Name:        executePython,
		Description: "Execute Python code in a sandboxed environment. Use for calculations, data analysis, or generating visualizations. Variables and files last from call to call.",
		Schema:      mustJSON(schema),
	}
}

// mustJSON is for values that are known to be JSON.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// ParseCodeCall reads the arguments of execute_code and execute_python as models
// really write them: the object of the schema, one block instead of an array of
// them, the array alone, JSON in a string, or for Python the bare code.
func ParseCodeCall(tool string, arguments json.RawMessage) ([]codeexec.CodeBlock, error) {
	text := bytes.TrimSpace(arguments)
	var s string
	if json.Unmarshal(text, &s) == nil { // JSON in a string
		if tool == executePython && !strings.HasPrefix(strings.TrimSpace(s), "{") {
			return checkedBlocks([]codeexec.CodeBlock{{Code: s, Language: codeexec.Python}})
		}
		text = []byte(s)
	}
	var call struct {
		codeexec.CodeBlock
		CodeBlocks json.RawMessage `json:"code_blocks"`
	}
	if len(text) > 0 && text[0] == '[' {
		call.CodeBlocks = text
	} else if err := json.Unmarshal(text, &call); err != nil {
		return nil, fmt.Errorf("the arguments are no JSON object: %w", err)
	}
	if len(call.CodeBlocks) == 0 || string(call.CodeBlocks) == "null" {
		if tool == executePython && call.Language == "" {
			call.Language = codeexec.Python
		}
		return checkedBlocks([]codeexec.CodeBlock{call.CodeBlock})
	}
	inner := call.CodeBlocks
	if json.Unmarshal(inner, &s) == nil {
		inner = []byte(s)
	}
	var blocks []codeexec.CodeBlock
	if err := json.Unmarshal(inner, &blocks); err != nil {
		var one codeexec.CodeBlock
		if json.Unmarshal(inner, &one) != nil {
			return nil, fmt.Errorf("code_blocks is no array of {language, code}: %w", err)
		}
		blocks = []codeexec.CodeBlock{one}
	}
	return checkedBlocks(blocks)
}

func checkedBlocks(blocks []codeexec.CodeBlock) ([]codeexec.CodeBlock, error) {
	if len(blocks) == 0 {
		return nil, errors.New("there is no code")
	}
	for _, b := range blocks {
		if strings.TrimSpace(b.Code) == "" {
			return nil, errors.New("there is no code")
		}
	}
	return blocks, nil
}
