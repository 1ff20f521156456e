package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// receiver is an OTLP collector.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	spans  []*otlp.Span
}

func collect(t *testing.T) *receiver {
	c := &receiver{status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range in.ResourceSpans {
			for _, s := range rs.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

// A proxy's trace continues in the request, and in a request to a receiver; a client's does not.
func TestTraceContinues(t *testing.T) {
	c := collect(t)
	tracer, err := telemetry.OpenTracer(t.Context(), "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	var passed []string
	far := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed = append(passed, r.Header.Get("Traceparent"))
	}))
	defer far.Close()
	s.Tracer = tracer
	s.Next = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, transport := range []http.RoundTripper{s.metrics.WebhookTransport(http.DefaultTransport), s.metrics.ProviderTransport(http.DefaultTransport)} {
			req, err := http.NewRequestWithContext(r.Context(), "POST", far.URL+"/planted", nil)
			if err != nil {
				t.Error(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				continue
			}
			res.Body.Close()
		}
	})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.get("/planted", "10.0.0.1:1", "Traceparent: "+parent)
	s.get("/planted", "192.0.2.1:1", "Traceparent: "+parent)
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	if len(passed) != 4 || passed[0][:35] != parent[:35] || passed[1] != "" || passed[2] == "" || passed[2][:35] == parent[:35] || passed[3] != "" {
		t.Errorf("receiver and provider got traceparent %q", passed)
	}
	traces := map[string]int{}
	for _, span := range c.spans {
		traces[string(span.TraceId)]++
		if strings.Contains(span.String(), "planted") {
			t.Errorf("a path is in span %s", span)
		}
	}
	if len(c.spans) != 6 || len(traces) != 2 {
		t.Errorf("%d spans of %d traces, want 6 of 2", len(c.spans), len(traces))
	}
	if text := scrape(t, s.metrics); !strings.Contains(text, `kickstand_webhook_attempt_duration_seconds_count{code="2xx"} 2`) || !strings.Contains(text, `kickstand_provider_request_duration_seconds_count{code="2xx"} 2`) {
		t.Errorf("requests to others are not counted: %s", text)
	}
}

// A collector that refuses is logged once.
func TestUnusableCollector(t *testing.T) {
	c := collect(t)
	c.status = http.StatusBadRequest
	var log bytes.Buffer
	tracer, err := telemetry.OpenTracer(t.Context(), "v1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 { // more than one batch
		_, span := tracer.Continue(t.Context(), "", "x", trace.SpanKindServer)
		span.End()
	}
	tracer.Close()
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "exporting traces") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

func TestNoTracer(t *testing.T) {
	var none *telemetry.Tracer
	ctx, span := none.Continue(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x", trace.SpanKindServer)
	telemetry.End(span, nil)
	if ctx != t.Context() || telemetry.Parent(ctx) != "" {
		t.Error("a trace began")
	}
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// Without traces a span costs a context's lookup.
func BenchmarkStartOff(b *testing.B) {
	ctx := telemetry.WithRequest(context.Background(), telemetry.NewRequest("1"))
	b.ReportAllocs()
	for b.Loop() {
		_, span := telemetry.Start(ctx, "x")
		span.End()
	}
}
