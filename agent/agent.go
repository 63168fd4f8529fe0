package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Mode is how a model hands code over.
type Mode string

// Modes.
const (
	// ModeBlocks runs the fenced blocks of replies: for every model.
	ModeBlocks Mode = "blocks"
	// ModeTools runs what models pass to the tools execute_code and
	// execute_python: for models that take tools.
	ModeTools Mode = "tools"
)

// Validator looks at code before it runs. What it denies does not run, what it
// wants reviewed runs only if an [Approver] says so.
type Validator interface {
	Validate(ctx context.Context, code validate.Code) (validate.Report, error)
}

// Approver is asked before each run. The bound of time goes on meanwhile. It is called from one goroutine at a time
// for each session; an error ends the answer.
type Approver func(ctx context.Context, r ApprovalRequest) (Approval, error)

// ApprovalRequest is what may run.
type ApprovalRequest struct {
	Session  string
	Tool     string // the tool that would run it; empty for a block
	Language string
	Code     string
	// Arguments are what Tool would be called with.
	Arguments json.RawMessage
	Report    validate.Report // the zero value without a validator
	// Required says that the policy wants a person's decision. For the rest an
	// approver may say yes by itself.
	Required bool
}

// Approval is the decision. Reason is told to the model if it is no.
type Approval struct {
	Approved bool
	Reason   string
}

// Toolbox keeps tools that were made of code. Tools is asked before each turn.
type Toolbox interface {
	Tools(executor codeexec.CodeExecutor, executionID string) []Tool
}

// CodeTool is a [Tool] that runs code in the sandbox. The agent treats that code
// as it does a model's: validator, approval and audit log.
type CodeTool interface {
	Tool
	// Code returns the code that a call would run, and false if it would run none.
	Code(arguments []byte) (codeexec.CodeBlock, bool)
}

// Agent answers questions. It is safe for concurrent use.
type Agent struct {
	model        Model
	executor     codeexec.CodeExecutor
	mode         Mode
	tools        []Tool
	toolbox      Toolbox
	limits       Limits
	retry        RetryOptions
	instructions string
	validator    Validator
	approve      Approver
	audit        *Audit
	log          *slog.Logger
	tracer       trace.TracerProvider
	meter        metric.MeterProvider
	observe      *observer
	environment  environment
}

// Option configures an [Agent].
type Option func(*Agent)

// WithMode chooses how code is handed over; without it ModeBlocks.
func WithMode(m Mode) Option { return func(a *Agent) { a.mode = m } }

// WithTools lets the model call tools beside writing code.
func WithTools(t ...Tool) Option { return func(a *Agent) { a.tools = append(a.tools, t...) } }

// WithToolbox lets the model keep code as tools and call them later.
func WithToolbox(b Toolbox) Option { return func(a *Agent) { a.toolbox = b } }

// WithLimits bounds the work on each question.
func WithLimits(l Limits) Option { return func(a *Agent) { a.limits = l } }

// WithRetry says how often a model is asked again when that may help.
func WithRetry(o RetryOptions) Option { return func(a *Agent) { a.retry = o } }

// WithInstructions adds to what the model is told of its task.
func WithInstructions(text string) Option { return func(a *Agent) { a.instructions = text } }

// WithValidator looks at code before it runs: advice, since the sandbox is the
// wall.
func WithValidator(v Validator) Option { return func(a *Agent) { a.validator = v } }

// WithApproval asks before each run.
func WithApproval(f Approver) Option { return func(a *Agent) { a.approve = f } }

// WithAudit logs every run.
func WithAudit(l *Audit) Option { return func(a *Agent) { a.audit = l } }

// WithLogger takes lines about what happens; never code, output or questions.
func WithLogger(l *slog.Logger) Option { return func(a *Agent) { a.log = l } }

// WithTracerProvider takes spans; without it OpenTelemetry's global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(a *Agent) { a.tracer = p } }

// WithMeterProvider takes metrics; without it OpenTelemetry's global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(a *Agent) { a.meter = p } }

// New returns an agent. Model and executor stay the caller's, who closes the
// executor when no session is used any more.
func New(model Model, executor codeexec.CodeExecutor, opts ...Option) (*Agent, error) {
	a := &Agent{model: model, executor: executor, mode: ModeBlocks}
	for _, o := range opts {
		o(a)
	}
	if model == nil || executor == nil {
		return nil, errors.New("agent: a model and an executor are needed")
	}
	if a.mode != ModeBlocks && a.mode != ModeTools {
		return nil, fmt.Errorf("agent: mode %q: it is %q or %q", a.mode, ModeBlocks, ModeTools)
	}
	info := model.Info()
	if !info.Tools && (a.mode == ModeTools || len(a.tools) > 0 || a.toolbox != nil) {
		return nil, fmt.Errorf("agent: model %s does not take tools: use ModeBlocks, and neither tools nor a toolbox", info.Name)
	}
	names := []string{executeCode, executePython}
	for _, t := range a.tools {
		name := t.Spec().Name
		if !toolName(name) || slices.Contains(names, name) {
			return nil, fmt.Errorf("agent: tool %q: its name is taken, or not 1 to 64 letters, digits, underscores and hyphens", name)
		}
		names = append(names, name)
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.limits = a.limits.withDefaults()
	a.observe = newObserver(a.tracer, a.meter)
	return a, nil
}

// Session begins a conversation, or goes on in the sandbox of an earlier one with
// that id: variables and files are the executor's, kept under it. An empty id
// makes one.
func (a *Agent) Session(id string) *Session {
	if strings.TrimSpace(id) == "" {
		id = "agent-" + strings.ToLower(rand.Text()[:16])
	}
	return &Session{a: a, id: id, turn: make(chan struct{}, 1), place: &place{}}
}
