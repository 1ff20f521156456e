package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// traces is a collector of OpenTelemetry.
type traces struct {
	t     *testing.T
	mu    sync.Mutex
	spans map[string]span // by id
}

type span struct {
	*otlp.Span
	process string // service.instance.id
}

// ServeHTTP takes spans by OTLP over HTTP.
func (c *traces) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("the collector got %s: %v", r.URL, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range in.ResourceSpans {
		process := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.instance.id" {
				process = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans[string(s.SpanId)] = span{s, process}
			}
		}
	}
}

// deliveries returns the number of traces of deliveries that lead from the request to a webhook's
// receiver back to the provider's request, and of those that three processes had a part in.
func (c *traces) deliveries() (complete, wide int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := []string{"POST", "job webhook", "events", "ticket", "job inbound/sms", "POST /api/webhooks/sms"}
	for _, s := range c.spans {
		if s.Name != "POST" || s.Kind != otlp.Span_SPAN_KIND_CLIENT {
			continue
		}
		var path, processes []string
		for up, ok := s, true; ok; up, ok = c.spans[string(up.ParentSpanId)] {
			path = append(path, up.Name)
			processes = append(processes, up.process)
		}
		if !slices.Equal(path, want) {
			continue
		}
		complete++
		slices.Sort(processes)
		if len(slices.Compact(processes)) == 3 {
			wide++
		}
	}
	return complete, wide
}

// prometheus is a real one that scrapes processes.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus starts Debian's Prometheus with the configuration that the documentation has, for
// other addresses.
func startPrometheus(t *testing.T, targets []string) *prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("prometheus is not installed: %v", err)
	}
	folder, listen := t.TempDir(), apptest.Address(t)
	for _, name := range []string{"prometheus.yml", "alerts.yml"} {
		text, err := os.ReadFile("../../deploy/prometheus/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.NewReplacer("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s",
			`["127.0.0.1:9464", "127.0.0.1:9465"]`, `["`+strings.Join(targets, `", "`)+`"]`).Replace(string(text)))
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, "--config.file="+filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+listen)
	p := apptest.StartUntil(t, cmd, "http://"+listen+"/-/ready")
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("Prometheus said: %s", p.Output())
		}
	})
	return &prometheus{t, "http://" + listen}
}

// get reads from the API of Prometheus.
func (p *prometheus) get(path string, data any) {
	p.t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("GET %s: %s %v", path, resp.Status, err)
	}
}

// value returns the value of an expression, and false if it has none.
func (p *prometheus) value(expr string) (float64, bool) {
	p.t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	if len(data.Result) != 1 {
		return 0, false
	}
	v, err := strconv.ParseFloat(fmt.Sprint(data.Result[0].Value[1]), 64)
	return v, err == nil
}

// until waits until an expression has a value that is as wanted.
func (p *prometheus) until(expr string, wanted func(float64) bool) {
	p.t.Helper()
	var v float64
	var ok bool
	for range poll(p.t, 30*time.Second) {
		if v, ok = p.value(expr); ok && wanted(v) {
			return
		}
	}
	p.t.Errorf("%s is %v (%t)", expr, v, ok)
}

// TestClusterSeen: Prometheus scrapes three processes under load and evaluates all alert rules, and a
// collector of traces sees messages go from process to process.
func TestClusterSeen(t *testing.T) {
	s := dbtest.NewServer(t)
	s.Exec("CREATE DATABASE k")
	seen := &traces{t: t, spans: make(map[string]span)}
	far := httptest.NewServer(seen)
	t.Cleanup(far.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", far.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
	c := newCluster(t, s.URL("k"), s.URL("k"), "--traces=on")
	var targets []string
	for i := range 3 {
		targets = append(targets, apptest.Address(t))
		t.Setenv("KICKSTAND_METRICS_LISTEN", targets[i])
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", fmt.Sprintf("service.instance.id=process-%d", i))
		c.add(1)
	}
	t.Setenv("KICKSTAND_METRICS_LISTEN", "")
	p := startPrometheus(t, targets)
	c.setUp()
	c.load()
	c.progress(120)
	equals := func(n float64) func(float64) bool { return func(v float64) bool { return v == n } }
	atLeast := func(n float64) func(float64) bool { return func(v float64) bool { return v >= n } }
	p.until(`sum(up{job="kickstand"})`, equals(3))
	p.until(`sum(kickstand_http_request_duration_seconds_count{surface="inbound",code="2xx"})`, atLeast(100))
	p.until(`sum(kickstand_jobs_total{kind="inbound/sms",outcome="finished"})`, atLeast(100))
	p.until(`sum(kickstand_webhook_attempt_duration_seconds_count{code="2xx"})`, atLeast(100))
	p.until(`sum(kickstand_replies_total{channel="sms",outcome="sent"})`, atLeast(1))
	p.until(`max(abs(kickstand_clock_skew_seconds))`, func(v float64) bool { return v < 0.5 })
	p.until(`min(kickstand_ready)`, equals(1))
	p.until(`max(kickstand_queue_jobs{kind="inbound/sms",state="ready"})`, atLeast(0))
	p.until(`max(kickstand_scrape_failed)`, equals(0))
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get("/api/v1/rules", &rules)
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				t.Errorf("the rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n < 15 {
		t.Errorf("Prometheus has %d rules", n)
	}
	var complete, wide int
	for range poll(t, 30*time.Second) {
		if complete, wide = seen.deliveries(); complete >= 50 && wide >= 1 {
			break
		}
	}
	if complete < 50 || wide < 1 {
		t.Errorf("%d traces lead from a webhook's receiver to the provider's request, %d of them over three processes", complete, wide)
	}
	c.members[2].process.Kill()
	p.until(`sum(up{job="kickstand"})`, equals(2))
	p.until(`count(ALERTS{alertname="KickstandDown",alertstate="pending"})`, equals(1))
	t.Setenv("KICKSTAND_METRICS_LISTEN", targets[2])
	c.start(c.members[2])
	t.Setenv("KICKSTAND_METRICS_LISTEN", "")
	p.until(`sum(up{job="kickstand"})`, equals(3))
	c.finish()
	t.Logf("Prometheus evaluates %d rules; %d traces of deliveries are complete, %d of them over three processes", n, complete, wide)
}
