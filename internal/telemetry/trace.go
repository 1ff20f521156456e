package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kickstand-dev/kickstand/internal/loop"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/kickstand-dev/kickstand"

// Tracer begins traces. The nil Tracer begins none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// OpenTracer returns a tracer that exports by OTLP over HTTP. The standard variables
// OTEL_EXPORTER_OTLP_…, OTEL_TRACES_SAMPLER… and OTEL_RESOURCE_ATTRIBUTES configure it. The caller
// closes it.
func OpenTracer(ctx context.Context, version string, log *slog.Logger) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "kickstand"), attribute.String("service.version", version)),
		resource.WithFromEnv(), resource.WithHost())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&loggedExporter{exporter, loop.NewTrouble(log, "exporting traces")}), sdktrace.WithResource(about))
	return &Tracer{p, p.Tracer(scope, trace.WithInstrumentationVersion(version))}, nil
}

// loggedExporter logs failures, which the library would write to standard error each time.
type loggedExporter struct {
	sdktrace.SpanExporter
	trouble *loop.Trouble
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.trouble.Observe(ctx, e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// Close exports the remaining spans, for at most five seconds.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Continue begins a span of a kind that continues the trace of a W3C traceparent, or begins a
// trace if parent is empty or invalid.
func (t *Tracer) Continue(ctx context.Context, parent, name string, kind trace.SpanKind, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	if t == nil {
		return ctx, noop.Span{}
	}
	if parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
}

// Parent returns the W3C traceparent of a context's span; empty if the span is not sampled.
func Parent(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Start begins a span below that of the context. Without a sampled one it returns the context and
// a span that does nothing. The caller ends the span.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name)
}

// End ends a span, with an error if err is not nil. The text of the error is not recorded: it may
// quote what a customer wrote.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// startClient begins the span of a request to another server: its host, without path and query,
// which may be secret.
func startClient(r *http.Request) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(r.Context())
	if !parent.IsRecording() {
		return r.Context(), noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname())))
}

func endClient(span trace.Span, res *http.Response, err error) {
	switch {
	case !span.IsRecording():
	case err != nil:
		span.SetStatus(codes.Error, "")
	default:
		span.SetAttributes(attribute.Int("http.response.status_code", res.StatusCode))
		if res.StatusCode >= 400 {
			span.SetStatus(codes.Error, "")
		}
	}
}
