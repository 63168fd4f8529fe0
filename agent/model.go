package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Model is a language model. Implementations are safe for concurrent use.
type Model interface {
	// Info says what the model is and takes.
	Info() ModelInfo
	// Generate asks for one reply. It calls stream (unless nil) with every piece
	// as it arrives, in order and from one goroutine at a time, and returns the
	// whole; it does not ask twice by itself: [Retry] does. An error of the
	// endpoint is a *ModelError. ctx bounds all of it: Generate returns when it
	// ends, with its error as it is.
	Generate(ctx context.Context, req Request, stream func(Delta)) (*Reply, error)
}

// ModelInfo describes a model.
type ModelInfo struct {
	Provider string // such as "openai"
	Name     string // as the provider calls it
	Images   bool   // it takes [Image] parts
	Tools    bool   // it takes Request.Tools
}

// Request is what a model is asked.
type Request struct {
	System   string
	Messages []Message
	Tools    []ToolSpec
	// MaxTokens bounds the reply; 0 leaves it to the implementation.
	MaxTokens   int
	Temperature *float64 // nil is the model's default
}

// Role says whose a message is.
type Role string

// Roles.
const (
	RoleUser      Role = "user" // also results of tools
	RoleAssistant Role = "assistant"
)

// Message is one side's turn.
type Message struct {
	Role  Role
	Parts []Part
}

// UserText returns a message of the user that is a text.
func UserText(text string) Message { return Message{RoleUser, []Part{Text{text}}} }

// Text returns the message's texts, one after the other.
func (m Message) Text() string {
	s := ""
	for _, p := range m.Parts {
		if t, ok := p.(Text); ok {
			s += t.Text
		}
	}
	return s
}

// Part is a piece of a message: [Text], [Image], [Thinking], [ToolCall] or
// [ToolResult].
type Part interface{ part() }

// Text is text.
type Text struct{ Text string }

// Image is a picture: PNG, JPEG, GIF or WebP.
type Image struct {
	Name     string // for the reader; need not be unique
	MIMEType string
	Data     []byte
}

// Thinking is what a model wrote for itself. Opaque is what its provider wants
// back with the conversation, such as a signature; implementations that do not
// know it leave the part out.
type Thinking struct {
	Text   string
	Opaque json.RawMessage
}

// ToolCall is a model's wish to call a tool.
type ToolCall struct {
	ID        string // pairs it with its ToolResult
	Name      string
	Arguments json.RawMessage // an object, or whatever the model wrote: hostile
}

// ToolResult answers a ToolCall, in a message of the user.
type ToolResult struct {
	CallID  string
	Name    string
	Parts   []Part // Text and Image
	IsError bool
}

func (Text) part()       {}
func (Image) part()      {}
func (Thinking) part()   {}
func (ToolCall) part()   {}
func (ToolResult) part() {}

// ToolSpec tells a model of a tool. Schema is a JSON Schema of type object.
type ToolSpec struct {
	Name, Description string
	Schema            json.RawMessage
}

// Delta is a piece of a reply that arrives. One field is set.
type Delta struct {
	Text     string
	Thinking string
	// ToolName begins a call of a tool; ToolArguments goes on with the last one.
	ToolName, ToolArguments string
}

// Reply is a whole reply.
type Reply struct {
	Message Message // of RoleAssistant
	Stop    StopReason
	Usage   Usage
	Model   string // as the endpoint calls it
}

// StopReason is why a reply ended.
type StopReason string

// Reasons.
const (
	StopEnd     StopReason = "end"
	StopTools   StopReason = "tools"   // it calls tools
	StopLength  StopReason = "length"  // MaxTokens, or the model's own bound
	StopRefused StopReason = "refused" // by the provider's filter
)

// Usage counts tokens.
type Usage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage { return Usage{u.Input + v.Input, u.Output + v.Output} }

// Total is the sum of both.
func (u Usage) Total() int { return u.Input + u.Output }

// ModelError is what an endpoint, or the way to it, answered instead of a reply.
type ModelError struct {
	Kind       ModelErrorKind
	Provider   string
	Status     int           // of HTTP; 0 if there was no answer
	RetryAfter time.Duration // as the endpoint asked for; 0 if it did not
	Message    string        // the endpoint's, without secrets
	Hint       string        // what to do about it
	Err        error         // what it comes from, or nil
}

// ModelErrorKind tells errors of endpoints apart.
type ModelErrorKind string

// Kinds.
const (
	KindUnreachable     ModelErrorKind = "unreachable"     // nobody answers there
	KindUnauthorized    ModelErrorKind = "unauthorized"    // 401, 403
	KindUnknownModel    ModelErrorKind = "unknown_model"   // 404
	KindInvalidRequest  ModelErrorKind = "invalid_request" // other 4xx
	KindContextTooLong  ModelErrorKind = "context_too_long"
	KindRateLimited     ModelErrorKind = "rate_limited"     // 429
	KindOverloaded      ModelErrorKind = "overloaded"       // 5xx, 529
	KindStreamCut       ModelErrorKind = "stream_cut"       // it ended in the middle
	KindInvalidResponse ModelErrorKind = "invalid_response" // not the protocol
)

// Error says what happened and what to do about it.
func (e *ModelError) Error() string {
	s := fmt.Sprintf("model %s: %s", e.Provider, e.Kind)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	} else if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns Err.
func (e *ModelError) Unwrap() error { return e.Err }

// Temporary reports whether asking again may help.
func (e *ModelError) Temporary() bool {
	switch e.Kind {
	case KindUnreachable, KindRateLimited, KindOverloaded, KindStreamCut:
		return true
	}
	return false
}

// KindOf returns the kind of the *ModelError in err, or "".
func KindOf(err error) ModelErrorKind {
	var e *ModelError
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// AtTemperature returns a model that is asked with a temperature where a request
// names none, such as those of package agent/steps: 0 repeats itself most, 1 is
// most providers' default. Some models take none but their own and refuse others
// with KindInvalidRequest; Anthropic's ignore it while they think.
func AtTemperature(m Model, temperature float64) Model { return tempered{m, temperature} }

type tempered struct {
	Model
	temperature float64
}

func (m tempered) Generate(ctx context.Context, req Request, stream func(Delta)) (*Reply, error) {
	if req.Temperature == nil {
		req.Temperature = &m.temperature
	}
	return m.Model.Generate(ctx, req, stream)
}
