package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// site is an edge before some routes.
type site struct {
	*telemetry.Edge
	metrics *telemetry.Metrics
	access  bytes.Buffer
	log     bytes.Buffer
}

func open(t testing.TB) *site {
	s := &site{metrics: telemetry.NewMetrics("v1")}
	log := s.metrics.Logger(slog.New(slog.NewJSONHandler(&s.log, nil)))
	mux := http.NewServeMux()
	mux.Handle("GET /tickets/{id}", telemetry.Routed("web", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		telemetry.RequestFrom(r.Context()).SetClient("org-1", "key-1")
		log.With("a", 1).WarnContext(r.Context(), "slow")
		w.Write([]byte("hello"))
	})))
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	s.Edge = &telemetry.Edge{Metrics: s.metrics, Access: telemetry.NewAccessLog(&s.access), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Next: mux}
	return s
}

func (s *site) get(path, peer string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = peer
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// A request has one id: a trusted proxy's, or a new one, in the response, the log and the access
// log.
func TestOneRequestID(t *testing.T) {
	for _, tt := range []struct {
		peer, id string
		kept     bool
	}{
		{"10.1.2.3:999", "from-the-proxy", true},
		{"10.1.2.3:999", "no spaces", false},
		{"10.1.2.3:999", strings.Repeat("x", 65), false},
		{"192.0.2.1:999", "from-anybody", false},
		{"[::ffff:10.0.0.1]:1", "mapped", true},
		{"not an address", "x", false},
	} {
		s := open(t)
		got := s.get("/tickets/7", tt.peer, "X-Request-Id: "+tt.id).Header().Get("X-Request-Id")
		if (got == tt.id) != tt.kept || !telemetry.IsRequestID(got) {
			t.Errorf("X-Request-Id %q from %s: the response has %q, want it kept: %v", tt.id, tt.peer, got, tt.kept)
		}
		for name, text := range map[string]string{"log": s.log.String(), "access log": s.access.String()} {
			var line struct {
				ID string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.ID != got {
				t.Errorf("%s %q: %v, want request_id %q", name, text, err, got)
			}
		}
	}
}

// The access log has the route and the client, never path or query.
func TestAccessLog(t *testing.T) {
	s := open(t)
	s.get("/tickets/7788?token=planted", "192.0.2.1:1")
	s.get("/elsewhere/planted", "192.0.2.1:1")
	if strings.Contains(s.access.String(), "planted") || strings.Contains(s.access.String(), "7788") {
		t.Errorf("a path or query is in the access log: %s", s.access.String())
	}
	var lines []map[string]any
	for text := range strings.Lines(s.access.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["duration_ms"].(float64) < 0 || line["time"] == "" {
			t.Errorf("line %s", text)
		}
		lines = append(lines, line)
	}
	want := []map[string]any{
		{"method": "GET", "surface": "web", "route": "/tickets/{id}", "status": 200.0, "bytes": 5.0, "organization_id": "org-1", "key_id": "key-1"},
		{"method": "GET", "surface": "other", "route": "other", "status": 404.0},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i, w := range want {
		for name, v := range w {
			if lines[i][name] != v {
				t.Errorf("line %d: %s is %v, want %v", i, name, lines[i][name], v)
			}
		}
	}
}

// Requests are counted by patterns and status classes, aborted ones too, and streams are not.
func TestRequestMetrics(t *testing.T) {
	s := open(t)
	for range 3 {
		s.get("/tickets/7", "192.0.2.1:1")
	}
	s.get("/stream", "192.0.2.1:1")
	for range 40 {
		s.get("/x"+telemetry.NewRequestID(), "192.0.2.1:1")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic ended")
			}
		}()
		s.get("/panic", "192.0.2.1:1")
	}()
	text := scrape(t, s.metrics)
	for _, want := range []string{
		`kickstand_http_request_duration_seconds_count{code="2xx",route="GET /tickets/{id}",surface="web"} 3`,
		`kickstand_http_request_duration_seconds_count{code="4xx",route="other",surface="other"} 40`,
		`kickstand_http_request_duration_seconds_count{code="aborted",route="other",surface="other"} 1`,
		`kickstand_http_requests_in_flight 0`,
		`kickstand_log_lines_total{level="warn"} 3`,
		`kickstand_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if n := strings.Count(text, "kickstand_http_request_duration_seconds_count{"); n != 3 {
		t.Errorf("%d series of requests, want 3", n)
	}
}

func scrape(t testing.TB, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// Names and texts follow the conventions of Prometheus.
func TestMetricNames(t *testing.T) {
	s := open(t)
	s.get("/tickets/7", "192.0.2.1:1")
	s.metrics.Job("inbound", "finished", 1)
	s.metrics.Reply("sms", "sent")
	s.metrics.Blob("put", 1, nil)
	s.metrics.Commit("helpdesk")(3, 1)
	s.metrics.DatabaseOperation("helpdesk")("read", 1)
	problems, err := testutil.GatherAndLint(s.metrics.Gather())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "kickstand_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func BenchmarkEdge(b *testing.B) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	m := telemetry.NewMetrics("v1")
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"without", nothing}, {"with", &telemetry.Edge{Metrics: m, Next: nothing}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/", nil)
			for b.Loop() {
				c.h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
