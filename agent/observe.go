package agent

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scopeName names what is measured here, in OpenTelemetry's sense.
const scopeName = "github.com/cubby-sandbox/cubby/agent"

// observer holds the instruments. Spans: agent.answer for a question, in it
// agent.generate, agent.run and agent.tool. Metrics: agent.questions,
// agent.turns, agent.runs and agent.tokens count, agent.duration is a question's
// in seconds. None has code, output or text in it.
type observer struct {
	tracer                         trace.Tracer
	questions, turns, runs, tokens metric.Int64Counter
	duration                       metric.Float64Histogram
}

func newObserver(tp trace.TracerProvider, mp metric.MeterProvider) *observer {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	m := mp.Meter(scopeName)
	o := &observer{tracer: tp.Tracer(scopeName)}
	// An instrument that cannot be made comes as one that does nothing.
	var errs [5]error
	o.questions, errs[0] = m.Int64Counter("agent.questions", metric.WithDescription("Questions asked"))
	o.turns, errs[1] = m.Int64Counter("agent.turns", metric.WithDescription("Replies of the model"))
	o.runs, errs[2] = m.Int64Counter("agent.runs", metric.WithDescription("Runs of code and calls of tools"))
	o.tokens, errs[3] = m.Int64Counter("agent.tokens", metric.WithDescription("Tokens of requests and replies"))
	o.duration, errs[4] = m.Float64Histogram("agent.duration", metric.WithUnit("s"), metric.WithDescription("Duration of a question's work"))
	for _, err := range errs {
		if err != nil {
			otel.Handle(err)
		}
	}
	return o
}

func (o *observer) span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return o.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
}

// fail marks a span. The error's text may quote the model; its kind does not.
func fail(span trace.Span, err error, kind string) {
	if err != nil {
		span.SetStatus(codes.Error, kind)
	}
}

func (o *observer) replied(ctx context.Context, model string, u Usage) {
	with := attribute.String("agent.model", model)
	o.turns.Add(ctx, 1, metric.WithAttributes(with))
	o.tokens.Add(ctx, int64(u.Input), metric.WithAttributes(with, attribute.String("agent.direction", "input")))
	o.tokens.Add(ctx, int64(u.Output), metric.WithAttributes(with, attribute.String("agent.direction", "output")))
}

func (o *observer) ran(ctx context.Context, kind, outcome string) {
	o.runs.Add(ctx, 1, metric.WithAttributes(attribute.String("agent.kind", kind), attribute.String("agent.outcome", outcome)))
}

func (o *observer) answered(ctx context.Context, outcome string, took time.Duration) {
	with := metric.WithAttributes(attribute.String("agent.outcome", outcome))
	o.questions.Add(ctx, 1, with)
	o.duration.Record(ctx, took.Seconds(), with)
}
