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

func (f *fake) StartProgram(_ context.Context, _ codeexec.Workspace, spec codeexec.InteractiveProgramSpec) (codeexec.ProgramSession, error) {
	f.ran = append(f.ran, spec.RunProgramSpec)
	return nil, nil
}

// A provider's variables reach every program, but lose to its own and to a clean
// environment.
func TestEnvInjection(t *testing.T) {
	f := &fake{}
	given := map[string]string{"TOKEN": "t", "LANG": "provider"}
	e, err := codeexec.EngineOf(codeexec.NewEnvInjectingCodeExecutor(f, func(context.Context) map[string]string { return given }))
	if err != nil {
		t.Fatal(err)
	}
	run := func(spec codeexec.RunProgramSpec) map[string]string {
		t.Helper()
		if _, err := e.Runner().RunProgram(t.Context(), codeexec.Workspace{}, spec); err != nil {
			t.Fatal(err)
		}
		return f.ran[len(f.ran)-1].Env
	}
	if env := run(codeexec.RunProgramSpec{Cmd: "env", Env: map[string]string{"LANG": "own"}}); env["TOKEN"] != "t" || env["LANG"] != "own" {
		t.Errorf("got %v", env)
	}
	if env := run(codeexec.RunProgramSpec{Cmd: "env", CleanEnv: true}); len(env) != 0 {
		t.Errorf("a clean environment has %v", env)
	}
	if _, err := e.Runner().StartProgram(t.Context(), codeexec.Workspace{}, codeexec.InteractiveProgramSpec{}); err != nil || f.ran[2].Env["TOKEN"] != "t" {
		t.Errorf("got %v, %v", f.ran[2].Env, err)
	}
	if len(given) != 2 {
		t.Error("the provider's map was changed")
	}
}

// A bootstrap is done once for each fingerprint; one that fails leaves nothing.
func TestWorkspaceBootstrap(t *testing.T) {
	spec := codeexec.WorkspaceBootstrapSpec{
		Files:    []codeexec.WorkspaceFile{{Path: "work/a", Content: []byte("a")}},
		Commands: []codeexec.WorkspaceCommand{{Cmd: "make", Args: []string{"ready"}}},
	}
	f := &fake{}
	create := func(spec codeexec.WorkspaceBootstrapSpec, policy codeexec.WorkspacePolicy) error {
		e, err := codeexec.EngineOf(codeexec.NewWorkspaceInitExecutor(f, codeexec.NewWorkspaceBootstrapHook(spec)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Manager().CreateWorkspace(t.Context(), "id", policy)
		return err
	}
	for range 2 {
		if err := create(spec, codeexec.WorkspacePolicy{Persist: true}); err != nil {
			t.Fatal(err)
		}
	}
	if f.files["work/a"] != "a" || len(f.ran) != 1 {
		t.Errorf("files %v, ran %v", f.files, f.ran)
	}
	spec.Files[0].Content = []byte("b")
	if err := create(spec, codeexec.WorkspacePolicy{Persist: true}); err != nil || f.files["work/a"] != "b" {
		t.Errorf("another spec: %v, %v", f.files, err)
	}
	spec.Commands[0].Cmd = "false"
	if err := create(spec, codeexec.WorkspacePolicy{}); err == nil || !strings.Contains(err.Error(), "no luck") || f.cleaned != 1 {
		t.Errorf("got %v, cleaned %d", err, f.cleaned)
	}
}

func TestWorkspaceRegistry(t *testing.T) {
	f := &fake{}
	r := codeexec.NewWorkspaceRegistry()
	acquire := func() codeexec.Workspace {
		t.Helper()
		ws, err := r.Acquire(t.Context(), f, "id")
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	t.Run("one for each id, made once", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { acquire() })
		}
		wg.Wait()
		if f.made != 1 {
			t.Errorf("it was made %d times", f.made)
		}
	})
	t.Run("invalidated", func(t *testing.T) {
		h, err := r.AcquireHandle(t.Context(), f, "id")
		if err != nil {
			t.Fatal(err)
		}
		r.Invalidate(h)
		next := acquire()
		r.Invalidate(h) // late, and of no consequence
		if next == h.Workspace || acquire() != next {
			t.Error("it was not made again, or twice")
		}
	})
	t.Run("lost with its instance", func(t *testing.T) {
		before := acquire()
		f.instance = "another"
		if after := acquire(); after == before {
			t.Error("it is in an instance that is gone")
		}
	})
	t.Run("a failure is not kept", func(t *testing.T) {
		f.err = errors.New("no room")
		if _, err := r.Acquire(t.Context(), f, "other"); cubby.CodeOf(err) != cubby.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		f.err = nil
		if _, err := r.Acquire(t.Context(), f, "other"); err != nil {
			t.Error(err)
		}
	})
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
	f := &fake{result: codeexec.CodeExecutionResult{Output: "secret output", Outcome: codeexec.OutcomeFailed, ExitCode: 1, Error: &codeexec.ExecutionError{Type: "SecretError", Message: "secret"}}}
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
	if _, err := own.Runner().RunProgram(t.Context(), codeexec.Workspace{}, codeexec.RunProgramSpec{Cmd: "secret", Env: map[string]string{"K": "secret"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Runner().StartProgram(t.Context(), codeexec.Workspace{}, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "secret"}}); err != nil {
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
