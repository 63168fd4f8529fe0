package codeexec_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// fake is an executor and engine that writes down what it is asked.
type fake struct {
	codeexec.CodeExecutor
	codeexec.WorkspaceFS

	mu       sync.Mutex
	made     int
	cleaned  int
	instance string
	files    map[string]string
	ran      []codeexec.RunProgramSpec
	result   codeexec.CodeExecutionResult
	err      error
}

func (f *fake) Languages() []string { return []string{"python"} }
func (f *fake) ExecuteCode(context.Context, codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return f.result, f.err
}
func (f *fake) Engine() codeexec.Engine                    { return f }
func (f *fake) Manager() codeexec.WorkspaceManager         { return f }
func (f *fake) FS() codeexec.WorkspaceFS                   { return f }
func (f *fake) Runner() codeexec.ProgramRunner             { return f }
func (f *fake) Describe() codeexec.Capabilities            { return codeexec.Capabilities{Isolation: "none"} }
func (f *fake) InstanceID(context.Context) (string, error) { return f.instance, nil }

func (f *fake) CreateWorkspace(_ context.Context, id string, _ codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	if f.err != nil {
		return codeexec.Workspace{}, f.err
	}
	return codeexec.Workspace{ID: id, Path: strings.Repeat("x", f.made)}, nil
}

func (f *fake) Cleanup(context.Context, codeexec.Workspace) error { f.cleaned++; return nil }
func (f *fake) CleanupID(context.Context, string) error           { return nil }

func (f *fake) PutFiles(_ context.Context, _ codeexec.Workspace, files []codeexec.PutFile) error {
	for _, file := range files {
		if f.files == nil {
			f.files = map[string]string{}
		}
		f.files[file.Path] = string(file.Content)
	}
	return nil
}

func (f *fake) Collect(_ context.Context, _ codeexec.Workspace, patterns []string) ([]codeexec.File, error) {
	if content, ok := f.files[patterns[0]]; ok {
		return []codeexec.File{{Name: patterns[0], Content: []byte(content)}}, nil
	}
	return nil, nil
}

func (f *fake) RunProgram(_ context.Context, _ codeexec.Workspace, spec codeexec.RunProgramSpec) (codeexec.RunResult, error) {
	f.ran = append(f.ran, spec)
	if spec.Cmd == "false" {
		return codeexec.RunResult{ExitCode: 1, Stderr: "no luck"}, nil
	}
	return codeexec.RunResult{Stdout: "secret output"}, nil
}

func (f *fake) StartProgram(_ context.Context, _ codeexec.Workspace,
	spec codeexec.InteractiveProgramSpec) (codeexec.ProgramSession, error) {
	f.ran = append(f.ran, spec.RunProgramSpec)
	return nil, nil
}

// recorder writes down what spans and counters say.
type recorder struct {
	trace.Tracer
	metric.Meter
	mu    sync.Mutex
	spans []string
	attrs []attribute.KeyValue
	count []string
}

func (r *recorder) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	r.spans = append(r.spans, name)
	r.attrs = append(r.attrs, cfg.Attributes()...)
	return ctx, span{tracenoop.Span{}, r}
}

type span struct {
	trace.Span
	r *recorder
}

func (s span) SetAttributes(kv ...attribute.KeyValue) { s.r.attrs = append(s.r.attrs, kv...) }

func (r *recorder) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{metricnoop.Int64Counter{}, r, name}, nil
}

type counter struct {
	metric.Int64Counter
	r    *recorder
	name string
}

func (c counter) Add(_ context.Context, _ int64, opts ...metric.AddOption) {
	set := metric.NewAddConfig(opts).Attributes()
	outcome, _ := set.Value("codeexec.outcome")
	c.r.count = append(c.r.count, c.name+" "+outcome.AsString())
}

// Each execution and program is one line of log, one span and one count; nothing
// of the code, its arguments or its output is in any of them.
func TestObserve(t *testing.T) {
	f := &fake{result: codeexec.CodeExecutionResult{Output: "secret output", Outcome: codeexec.OutcomeFailed,
		ExitCode: 1, Error: &codeexec.ExecutionError{Type: "SecretError", Message: "secret"}}}
	var log bytes.Buffer
	r := &recorder{Tracer: tracenoop.Tracer{}, Meter: metricnoop.Meter{}}
	e := codeexec.Observe(f, codeexec.ObserveOptions{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Tracer: r, Meter: r, Backend: "fake"})
	in := codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: "py", Code: "print('secret')"}, {Language: "secret-language"}}}
	if got, err := e.ExecuteCode(t.Context(), in); err != nil || got.Output != "secret output" {
		t.Errorf("got %+v, %v", got, err)
	}
	f.err = &cubby.Error{Code: cubby.CodeSandboxGone, Err: errors.New("secret")}
	if _, err := e.ExecuteCode(t.Context(), in); err == nil {
		t.Error("the error is gone")
	}
	own, err := codeexec.EngineOf(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Runner().RunProgram(t.Context(), codeexec.Workspace{},
		codeexec.RunProgramSpec{Cmd: "secret", Env: map[string]string{"K": "secret"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Runner().StartProgram(t.Context(), codeexec.Workspace{},
		codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "secret"}}); err != nil {
		t.Fatal(err)
	}
	said := log.String()
	for _, a := range r.attrs {
		said += string(a.Key) + "=" + a.Value.Emit() + "\n"
	}
	if strings.Contains(strings.ToLower(said), "secret") {
		t.Errorf("it tells a secret: %s", said)
	}
	for _, want := range []string{`"outcome":"failed"`, `"code_size":15`, `"languages":"python,other"`, `"code":"sandbox_gone"`, `"backend":"fake"`, "codeexec.blocks=2", "program run"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s is missing in %s", want, said)
		}
	}
	if got := strings.Join(r.count, ", "); got != "codeexec.executions failed, codeexec.executions error, codeexec.programs ok, codeexec.programs ok" {
		t.Errorf("counted %s", got)
	}
	if got := strings.Join(r.spans, ", "); got != "codeexec.execute, codeexec.execute, codeexec.program, codeexec.session" {
		t.Errorf("spans %s", got)
	}
}
