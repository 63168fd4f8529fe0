package agent

import (
	"encoding/json"
	"time"

	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Event is something that happens while a question is answered. Type says which
// fields are set.
type Event struct {
	Type EventType `json:"type"`
	Time time.Time `json:"time"`
	Turn int       `json:"turn"` // the model's replies are counted from 1
	// Run counts the executions of a session from 1.
	Run int `json:"run,omitempty"`

	Text string `json:"text,omitempty"` // question, text, thinking, output, answer, notice
	// Stream is "stdout" or "stderr" of an output.
	Stream string `json:"stream,omitempty"`

	Language string             `json:"language,omitempty"` // code
	Code     string             `json:"code,omitempty"`     // code
	Findings []validate.Finding `json:"findings,omitempty"` // code: what the policy found
	Decision string             `json:"decision,omitempty"` // code: allow, approved, or refused with Text

	Result *codeexec.CodeExecutionResult `json:"result,omitempty"` // result
	Files  []codeexec.File               `json:"files,omitempty"`  // question: put in; result, answer: new ones

	Tool      string          `json:"tool,omitempty"` // tool_call, tool_result
	Arguments json.RawMessage `json:"arguments,omitempty"`
	IsError   bool            `json:"is_error,omitempty"` // tool_result

	Usage *Usage `json:"usage,omitempty"` // reply: of this reply; answer: of all
}

// EventType is the type of an [Event].
type EventType string

// Types, in the order in which they come.
const (
	EventQuestion   EventType = "question"
	EventThinking   EventType = "thinking" // a piece of what the model thinks
	EventText       EventType = "text"     // a piece of the reply, code included
	EventReply      EventType = "reply"    // the reply is whole; Text is all of it
	EventCode       EventType = "code"     // about to run, or refused
	EventOutput     EventType = "output"   // a piece of what it prints
	EventResult     EventType = "result"   // it ended
	EventToolCall   EventType = "tool_call"
	EventToolResult EventType = "tool_result"
	// EventNotice is something to know: the model is asked again, the reply is
	// void and begins anew, a bound is near.
	EventNotice EventType = "notice"
	EventAnswer EventType = "answer"
)
