package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// private requests a path of the private address.
func private(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// The private address has metrics and profiles, without the command line; the public one has
// neither.
func TestPrivateAddress(t *testing.T) {
	a := deployment(t, "http://localhost:8080", quiet)
	h := a.privateHandler()
	for path, want := range map[string]int{
		"/metrics": 200, "/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200,
		"/debug/pprof/cmdline": 404, "/tickets": 404, "/": 404,
	} {
		if w := private(h, path); w.Code != want {
			t.Errorf("GET %s: %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/profile"} {
		if w := a.request("GET", "localhost", path); w.Code != 404 {
			t.Errorf("the public address answers GET %s with %d", path, w.Code)
		}
	}
}

// Figures of the database are in the metrics, and a scrape without them still works.
func TestStoredFigures(t *testing.T) {
	a := withDefaultOrganization(t)
	h := a.privateHandler()
	a.mail(t, "1")
	text := private(h, "/metrics").Body.String()
	for _, want := range []string{
		`kickstand_queue_jobs{kind="inbound/email-raw",state="ready"} 1`, `kickstand_inbound_events_attention{state="dead"} 0`,
		`kickstand_scrape_failed 0`, `kickstand_ready{part="database"} 1`, `kickstand_event_streams 0`,
		`kickstand_http_request_duration_seconds_count{code="2xx",route="/api/webhooks/inbound-email",surface="inbound"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	lanes := regexp.MustCompile(`(?m)^kickstand_queue_lanes_waiting\{.*\} 1$`)
	if !lanes.MatchString(text) {
		t.Errorf("no lane waits:\n%s", strings.Join(regexp.MustCompile(`(?m)^kickstand_queue.*$`).FindAllString(text, -1), "\n"))
	}
	f := newFigures(a)
	f.at = time.Time{}
	if err := a.DB.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.stored(); err == nil {
		t.Error("figures of a closed database have no error")
	}
}

// withDefaultOrganization returns a deployment that accepts mail.
func withDefaultOrganization(t *testing.T, change ...func(*Config)) *App {
	t.Helper()
	a := deployment(t, "http://localhost:8080", quiet, append([]func(*Config){func(c *Config) {
		c.Secrets = map[string][]string{"email-raw": {deploymentSigns}}
	}}, change...)...)
	signUp(t, a, "First")
	return a
}

var metricName = regexp.MustCompile(`\b(kickstand|go|process)_[a-z_]+`)

// known returns the metrics of the program.
func known(t *testing.T) map[string]bool {
	t.Helper()
	a := deployment(t, "http://localhost:8080", quiet)
	h := a.privateHandler()
	a.request("GET", "localhost", "/healthz")
	m := a.metrics
	m.Job("sla", "finished", time.Second)
	m.Reply("sms", "sent")
	m.Blob("put", time.Second, nil)
	m.Commit("helpdesk")(1, time.Second)
	m.DatabaseOperation("helpdesk")("query", time.Second)
	broken := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, errors.New("no connection") })
	for _, transport := range []http.RoundTripper{m.WebhookTransport(broken), m.ProviderTransport(broken)} {
		if _, err := transport.RoundTrip(httptest.NewRequest("POST", "http://a.example/", nil)); err == nil {
			t.Fatal("a broken transport worked")
		}
	}
	names := map[string]bool{"kickstand_clock_skew_seconds": true} // absent on SQLite
	for line := range strings.Lines(private(h, "/metrics").Body.String()) {
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(kind), " ")
			names[name] = true
			if kind == "histogram" || kind == "summary" {
				names[name+"_bucket"], names[name+"_count"], names[name+"_sum"] = true, true, true
			}
		}
	}
	return names
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Dashboard, rules and documentation name metrics that exist, and the documentation has all.
func TestMetricsOfDeployment(t *testing.T) {
	names := known(t)
	var documented string
	for _, file := range []string{"deploy/grafana/kickstand.json", "deploy/prometheus/alerts.yml", "deploy/prometheus/alerts_test.yml", "docs/monitoring.md"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.Compact(slices.Sorted(slices.Values(metricName.FindAllString(string(text), -1))))
		if len(found) < 5 {
			t.Errorf("%s names only the metrics %q", file, found)
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s names the metric %s, which does not exist", file, name)
			}
		}
		documented = string(text)
	}
	for name := range names {
		if strings.HasPrefix(name, "kickstand_") && !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum") &&
			!strings.Contains(documented, "`"+name+"`") {
			t.Errorf("docs/monitoring.md lacks %s", name)
		}
	}
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	for _, alert := range alerts {
		if !strings.Contains(documented, "\n### "+alert[1]+"\n") || !strings.Contains(string(rules), "monitoring.md#"+strings.ToLower(alert[1])+"\n") {
			t.Errorf("docs/monitoring.md lacks the alert %s, or the rule does not link to it", alert[1])
		}
	}
	if len(alerts) < 10 {
		t.Errorf("%d alerts", len(alerts))
	}
	text, err := os.ReadFile("../../deploy/grafana/kickstand.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title  string
		Panels []struct{ Title string }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.Title == "" || len(dashboard.Panels) < 10 {
		t.Errorf("the dashboard %q has %d panels (%v)", dashboard.Title, len(dashboard.Panels), err)
	}
}

// A mail is accepted by one process and processed by another; both export to one collector. The
// receiver of the webhook gets the trace's id.
func TestTraceAcrossProcesses(t *testing.T) {
	var mu sync.Mutex
	var spans []*otlp.Span
	far := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range in.ResourceSpans {
			for _, s := range of.ScopeSpans {
				spans = append(spans, s.Spans...)
			}
		}
	}))
	defer far.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", far.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	received := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Header.Get("Traceparent")
	}))
	defer receiver.Close()

	folder, url := t.TempDir(), dbtest.URL(t)
	shared := func(c *Config) {
		c.Data, c.DatabaseURL, c.Traces, c.AllowPrivateReceivers = folder, url, true, true
	}
	accepts := withDefaultOrganization(t, shared, func(c *Config) { c.Worker = false })
	list, err := accepts.Accounts.Organizations(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("organizations %v, %v", list, err)
	}
	if _, err := accepts.Webhooks.Create(t.Context(), list[0].ID, webhook.New{URL: receiver.URL, Events: []string{"ticket.created"}}); err != nil {
		t.Fatal(err)
	}
	accepts.mail(t, "1")
	works := deployment(t, "http://localhost:8080", quiet, shared, func(c *Config) { c.Web = false })
	if err := works.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var passed string
	select {
	case passed = <-received:
	case <-time.After(30 * time.Second):
		t.Fatal("no delivery")
	}
	works.queue.Stop(context.Background())
	for _, a := range []*App{accepts, works} {
		if err := a.tracer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	byID := map[string]*otlp.Span{}
	for _, s := range spans {
		byID[string(s.SpanId)] = s
		if strings.Contains(s.String(), "client.example") || strings.Contains(s.String(), "Hello") {
			t.Errorf("span %s has what a customer wrote", s)
		}
	}
	// From the request to the receiver up to the request of the provider.
	var path []string
	for _, s := range spans {
		if s.Name == "POST" && s.Kind == otlp.Span_SPAN_KIND_CLIENT && string(s.TraceId) != "" {
			for up := s; up != nil; up = byID[string(up.ParentSpanId)] {
				path = append(path, up.Name)
			}
		}
	}
	want := []string{"POST", "job webhook", "events", "ticket", "job inbound/email-raw", "POST /api/webhooks/inbound-email"}
	if !slices.Equal(path, want) {
		t.Errorf("the delivery's trace is %q, want %q", path, want)
	}
	if len(spans) == 0 || len(passed) != 55 {
		t.Errorf("%d spans, the receiver got the traceparent %q", len(spans), passed)
	}
}
