package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// AuditRecord is a line of the audit log: one for each run of code, also one that
// was refused, and each call of a tool. It holds no output, and code only with
// [AuditCode].
type AuditRecord struct {
	Time    time.Time `json:"time"` // when it ended, UTC
	Session string    `json:"session"`
	Turn    int       `json:"turn"`
	Run     int       `json:"run,omitempty"` // of the session, from 1; 0 if it did not run
	Kind    string    `json:"kind"`          // "code" or "tool"

	Language   string `json:"language,omitempty"`
	CodeSHA256 string `json:"code_sha256,omitempty"` // hexadecimal, of the code as it ran
	CodeChars  int    `json:"code_chars,omitempty"`
	Tool       string `json:"tool,omitempty"`
	// ArgumentsSHA256 is of a tool's arguments, as the model wrote them.
	ArgumentsSHA256 string `json:"arguments_sha256,omitempty"`
	// Code and Arguments are the code and the arguments themselves, with
	// [AuditCode]. Bytes that are not UTF-8 are replaced; the hash is of the
	// original.
	Code      string `json:"code,omitempty"`
	Arguments string `json:"arguments,omitempty"`

	Policy   string   `json:"policy"`          // allow, review, deny; "none" without a validator
	Rules    []string `json:"rules,omitempty"` // of its findings
	Approval string   `json:"approval"`        // approved, refused, or "none" if nobody was asked

	Outcome     string `json:"outcome"` // ok, failed, deadline_exceeded, refused, error
	ExitCode    int    `json:"exit_code"`
	ErrorType   string `json:"error_type,omitempty"`
	OutputBytes int    `json:"output_bytes"`
	Files       int    `json:"files"`
	Truncated   bool   `json:"truncated,omitempty"`

	// What it cost: the run's time, and the tokens of the reply that asked for it
	// (of a reply with several runs, in its first).
	Seconds      float64 `json:"seconds"`
	InputTokens  int     `json:"input_tokens"`
	OutputTokens int     `json:"output_tokens"`
	Model        string  `json:"model"`
}

// Audit writes records as lines of JSON. It is safe for concurrent use. A record
// that cannot be written ends the answer: nothing more runs.
type Audit struct {
	code bool // records hold code and arguments

	mu sync.Mutex
	w  io.Writer
}

// AuditOption configures an [Audit].
type AuditOption func(*Audit)

// AuditCode writes the code of each run and the arguments of each call of a tool
// into the log, whole, for those who must be able to say later what ran. They may
// hold what users and their files said.
func AuditCode() AuditOption { return func(a *Audit) { a.code = true } }

// NewAudit writes to w, which stays the caller's.
func NewAudit(w io.Writer, opts ...AuditOption) *Audit {
	a := &Audit{w: w}
	for _, o := range opts {
		o(a)
	}
	return a
}

// OpenAudit appends to a file, made with mode 0600. The caller closes it.
func OpenAudit(path string, opts ...AuditOption) (*Audit, io.Closer, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("agent: audit log: %w", err)
	}
	return NewAudit(f, opts...), f, nil
}

func (a *Audit) write(r AuditRecord) error {
	if a == nil {
		return nil
	}
	if !a.code {
		r.Code, r.Arguments = "", ""
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("agent: audit log: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("agent: audit log: %w", err)
	}
	return nil
}
