package codeexec

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cubby-sandbox/cubby"
)

// scopeName names what is measured here, in OpenTelemetry's sense.
const scopeName = "github.com/cubby-sandbox/cubby/codeexec"

// ObserveOptions say where observations go. What is nil: logs are dropped, spans
// and metrics go to OpenTelemetry's global providers, which do nothing until a
// program sets them.
type ObserveOptions struct {
	Logger *slog.Logger
	Tracer trace.Tracer
	Meter  metric.Meter
	// Backend names the executor in all three, such as "e2b".
	Backend string
}

// Observe returns an executor that does what e does, and writes a line of log,
// a span and metrics for each execution and each program in its workspaces:
// sizes, a hash of the code, durations, how it ended. Never the code, its
// output, arguments or variables.
//
// Metrics: codeexec.executions and codeexec.programs count, by backend and
// outcome ("ok", "failed", "deadline_exceeded", "error"); codeexec.duration is in
// seconds, codeexec.output in bytes.
func Observe(e CodeExecutor, opts ObserveOptions) CodeExecutor {
	o := newObserver(opts)
	var observed CodeExecutor = observedExecutor{e, o}
	if own, err := EngineOf(e); err == nil {
		observed = withEngine{observed, engine{own.Manager(), own.FS(), observedRunner{own.Runner(), o}, own.Describe()}}
	}
	return observed
}

type observer struct {
	log        *slog.Logger
	tracer     trace.Tracer
	backend    attribute.KeyValue
	executions metric.Int64Counter
	programs   metric.Int64Counter
	duration   metric.Float64Histogram
	output     metric.Int64Histogram
}

func newObserver(opts ObserveOptions) *observer {
	o := &observer{log: opts.Logger, tracer: opts.Tracer, backend: attribute.String("codeexec.backend", cmp.Or(opts.Backend, "unknown"))}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.tracer == nil {
		o.tracer = otel.Tracer(scopeName)
	}
	meter := opts.Meter
	if meter == nil {
		meter = otel.Meter(scopeName)
	}
	// An instrument that cannot be made comes as one that does nothing.
	var errs [4]error
	o.executions, errs[0] = meter.Int64Counter("codeexec.executions", metric.WithDescription("Executions of code blocks"))
	o.programs, errs[1] = meter.Int64Counter("codeexec.programs", metric.WithDescription("Programs run in workspaces"))
	o.duration, errs[2] = meter.Float64Histogram("codeexec.duration", metric.WithUnit("s"), metric.WithDescription("Duration of executions and programs"))
	o.output, errs[3] = meter.Int64Histogram("codeexec.output", metric.WithUnit("By"), metric.WithDescription("Output of executions and programs"))
	for _, err := range errs {
		if err != nil {
			otel.Handle(err)
		}
	}
	return o
}

// outcomeError is the outcome of what the executor could not do.
const outcomeError = "error"

type observedExecutor struct {
	CodeExecutor
	o *observer
}

// Unwrap implements [Unwrapper].
func (e observedExecutor) Unwrap() CodeExecutor { return e.CodeExecutor }

func (e observedExecutor) ExecuteCode(ctx context.Context, in CodeExecutionInput) (CodeExecutionResult, error) {
	blocks := in.Blocks()
	if len(blocks) == 0 && len(in.InputFiles) == 0 {
		return e.CodeExecutor.ExecuteCode(ctx, in) // a question for the state; it runs nothing
	}
	var languages []string
	size, hash := 0, sha256.New()
	for _, b := range blocks {
		size += len(b.Code)
		hash.Write([]byte(b.Code))
		hash.Write([]byte{0})
		name := NormalizeLanguage(b.Language)
		if !slices.Contains(e.Languages(), name) {
			name = "other" // a model's own words
		}
		if !slices.Contains(languages, name) {
			languages = append(languages, name)
		}
	}
	sum := hex.EncodeToString(hash.Sum(nil)[:8])
	ctx, span := e.o.tracer.Start(ctx, "codeexec.execute", trace.WithAttributes(e.o.backend,
		attribute.Int("codeexec.blocks", len(blocks)), attribute.StringSlice("codeexec.languages", languages),
		attribute.Int("codeexec.code.size", size), attribute.String("codeexec.code.hash", sum)))
	defer span.End()
	began := time.Now()
	r, err := e.CodeExecutor.ExecuteCode(ctx, in)
	took := time.Since(began)

	outcome := string(r.Outcome)
	if err != nil {
		outcome = outcomeError
	}
	attrs := []slog.Attr{
		slog.Int("blocks", len(blocks)), slog.String("languages", strings.Join(languages, ",")), slog.Int("code_size", size),
		slog.String("code_hash", sum), slog.Int("exit_code", r.ExitCode), slog.Int("files", len(r.OutputFiles)),
		slog.Bool("truncated", r.Truncated), slog.String("limit", r.Limit),
	}
	if r.StateLost {
		attrs = append(attrs, slog.Bool("state_lost", true), slog.Bool("files_lost", r.FilesLost))
	}
	span.SetAttributes(attribute.Int("codeexec.exit_code", r.ExitCode), attribute.Int("codeexec.files", len(r.OutputFiles)),
		attribute.Bool("codeexec.truncated", r.Truncated), attribute.String("codeexec.limit", r.Limit))
	e.o.done(ctx, span, "code executed", outcome, err, took, len(r.Output), attrs)
	e.o.measure(ctx, outcome, took, len(r.Output))
	e.o.executions.Add(ctx, 1, metric.WithAttributes(e.o.backend, attribute.String("codeexec.outcome", outcome)))
	return r, err
}

// done writes what is the same for executions and programs.
func (o *observer) done(ctx context.Context, span trace.Span, what, outcome string, err error,
	took time.Duration, output int, attrs []slog.Attr) {
	attrs = append([]slog.Attr{
		slog.String("backend", o.backend.Value.AsString()), slog.String("outcome", outcome), slog.Duration("duration", took),
		slog.Int("output_size", output),
	}, attrs...)
	level := slog.LevelInfo
	span.SetAttributes(attribute.String("codeexec.outcome", outcome), attribute.Int("codeexec.output.size", output))
	if err != nil {
		// The error's text may quote what the code said; its code does not.
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("code", cubby.CodeOf(err).String()))
		span.SetStatus(codes.Error, cubby.CodeOf(err).String())
	}
	o.log.LogAttrs(ctx, level, what, attrs...)
}

// measure records what ended.
func (o *observer) measure(ctx context.Context, outcome string, took time.Duration, output int) {
	with := metric.WithAttributes(o.backend, attribute.String("codeexec.outcome", outcome))
	o.duration.Record(ctx, took.Seconds(), with)
	o.output.Record(ctx, int64(output), with)
}

type observedRunner struct {
	ProgramRunner
	o *observer
}

func (r observedRunner) RunProgram(ctx context.Context, ws Workspace, spec RunProgramSpec) (RunResult, error) {
	ctx, span := r.o.tracer.Start(ctx, "codeexec.program", trace.WithAttributes(r.o.backend))
	defer span.End()
	began := time.Now()
	res, err := r.ProgramRunner.RunProgram(ctx, ws, spec)
	outcome := string(OutcomeOK)
	switch {
	case err != nil:
		outcome = outcomeError
	case res.TimedOut:
		outcome = string(OutcomeDeadlineExceeded)
	case res.ExitCode != 0:
		outcome = string(OutcomeFailed)
	}
	span.SetAttributes(attribute.Int("codeexec.exit_code", res.ExitCode))
	took, output := time.Since(began), len(res.Stdout)+len(res.Stderr)
	r.o.done(ctx, span, "program run", outcome, err, took, output,
		[]slog.Attr{slog.Int("exit_code", res.ExitCode), slog.Bool("truncated", res.Truncated)})
	r.o.measure(ctx, outcome, took, output)
	r.o.programs.Add(ctx, 1, metric.WithAttributes(r.o.backend, attribute.String("codeexec.outcome", outcome)))
	return res, err
}

// StartProgram tells of the start only: a session is its caller's.
func (r observedRunner) StartProgram(ctx context.Context, ws Workspace, spec InteractiveProgramSpec) (ProgramSession, error) {
	ctx, span := r.o.tracer.Start(ctx, "codeexec.session", trace.WithAttributes(r.o.backend, attribute.Bool("codeexec.tty", spec.TTY)))
	defer span.End()
	began := time.Now()
	s, err := r.ProgramRunner.StartProgram(ctx, ws, spec)
	outcome := string(OutcomeOK)
	if err != nil {
		outcome = outcomeError
	}
	r.o.done(ctx, span, "program started", outcome, err, time.Since(began), 0, []slog.Attr{slog.Bool("tty", spec.TTY)})
	r.o.programs.Add(ctx, 1, metric.WithAttributes(r.o.backend, attribute.String("codeexec.outcome", outcome)))
	return s, err
}
