package agent

import (
	"context"
	"encoding/json"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Tool is a function that a model may call beside writing code. It runs in this
// program, not in the sandbox: what it lets the model do is its author's decision.
// See [NewTool]. Call must be safe for concurrent use.
type Tool interface {
	Spec() ToolSpec
	// Call runs it. Arguments are what the model wrote: Call checks them. An
	// error is told to the model, which may try again; one that wraps [ErrFatal]
	// ends the answer.
	Call(ctx context.Context, arguments json.RawMessage) (ToolOutput, error)
}

// ToolOutput is what a tool answers: Text for the model, pictures likewise, and
// files for the answer.
type ToolOutput struct {
	Text   string
	Images []Image
	Files  []codeexec.File
}
