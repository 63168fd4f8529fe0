package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// telemetry notes what is told of spans and counters.
type telemetry struct {
	trace.TracerProvider
	metric.MeterProvider
	mu    sync.Mutex
	notes []string
}

func (r *telemetry) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *telemetry) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return tracer{tracenoop.Tracer{}, r}
}

func (r *telemetry) Meter(string, ...metric.MeterOption) metric.Meter {
	return meter{metricnoop.Meter{}, r}
}

type tracer struct {
	trace.Tracer
	r *telemetry
}

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	t.r.note("span %s %v", name, cfg.Attributes())
	return t.Tracer.Start(ctx, name)
}

type meter struct {
	metric.Meter
	r *telemetry
}

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{metricnoop.Int64Counter{}, m.r, name}, nil
}

type counter struct {
	metric.Int64Counter
	r    *telemetry
	name string
}

func (c counter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	set := metric.NewAddConfig(opts).Attributes()
	c.r.note("%s %d %v", c.name, n, set.ToSlice())
}

// talker is a model of two replies.
type talker struct {
	model
	n *int
}

func (m talker) Generate(context.Context, Request, func(Delta)) (*Reply, error) {
	*m.n++
	text := "```python\nsecret code\n```"
	if *m.n > 1 {
		text = "secret answer"
	}
	return &Reply{Message: Message{RoleAssistant, []Part{Text{text}}}, Stop: StopEnd, Usage: Usage{10, 5}}, nil
}

type fixed struct{ executor }

func (fixed) Languages() []string                                { return []string{"python"} }
func (fixed) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter { return nil }
func (fixed) ExecuteCode(context.Context, codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return codeexec.CodeExecutionResult{Output: "secret output", Outcome: codeexec.OutcomeOK}, nil
}

// TestTelemetry: spans, counts and logs of a question, without what was said in
// it.
func TestTelemetry(t *testing.T) {
	r := &telemetry{}
	var log bytes.Buffer
	a, err := New(talker{model{ModelInfo{Name: "m"}}, new(int)}, fixed{}, WithTracerProvider(r), WithMeterProvider(r),
		WithLogger(slog.New(slog.NewJSONHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Session("s").Ask(t.Context(), Question{Text: "a secret question"}, nil); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(r.notes, "\n")
	for _, want := range []string{"span agent.answer", "span agent.generate", "span agent.run", "agent.turns 1", "agent.tokens 10", "agent.tokens 5", "agent.runs 1", "agent.questions 1"} {
		if !slices.ContainsFunc(r.notes, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if all += log.String(); strings.Contains(all, "secret") {
		t.Errorf("what was said is told:\n%s", all)
	}
	if !strings.Contains(log.String(), `"msg":"run"`) || !strings.Contains(log.String(), `"msg":"question answered"`) {
		t.Errorf("log: %s", log.String())
	}
}
