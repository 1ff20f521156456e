package telemetry

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// logHandler adds the ids of the request and of the trace to log lines, and counts warnings and
// errors.
type logHandler struct {
	slog.Handler
	warnings, errors prometheus.Counter
}

// Logger returns a logger that adds the request id and the trace id of a line's context to it,
// and counts the lines for the metrics.
func (m *Metrics) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(&logHandler{log.Handler(), m.logLines.WithLabelValues("warn"), m.logLines.WithLabelValues("error")})
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Level >= slog.LevelError:
		h.errors.Inc()
	case r.Level >= slog.LevelWarn:
		h.warnings.Inc()
	}
	if id := RequestFrom(ctx).ID(); id != "" && !has(&r, "request_id") {
		r.AddAttrs(slog.String("request_id", id))
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// has reports whether a line has an attribute already.
func has(r *slog.Record, name string) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = a.Key == name
		return !found
	})
	return found
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.warnings, h.errors}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.warnings, h.errors}
}
