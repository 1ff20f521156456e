// Package telemetry measures the program for its operator: metrics for Prometheus, traces for
// OpenTelemetry, the id of a request in every log line, and the access log.
//
// The instruments are constructed once and passed in; there is no global state. Labels are names
// from the code: never paths, addresses, or ids of organizations. What belongs to a request or a
// job travels in its context, see [RequestFrom] and [Start].
//
// Metrics are counted always, which costs some atomic additions. Without traces [Start] costs the
// lookup of a context value.
package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeLimit is the number of scrapes at once; more get 503.
const scrapeLimit = 3

// Buckets of durations in seconds, of fast and of slow things.
var (
	fast = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	slow = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// Metrics has the instruments. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	jobs      *prometheus.CounterVec
	jobTime   *prometheus.HistogramVec
	attempts  *prometheus.HistogramVec
	providers *prometheus.HistogramVec
	replies   *prometheus.CounterVec
	mails     *prometheus.CounterVec
	smtpMails *prometheus.HistogramVec
	smtpNo    *prometheus.CounterVec
	smtpConns prometheus.Gauge
	groups    *prometheus.HistogramVec
	commits   *prometheus.HistogramVec
	database  *prometheus.HistogramVec
	blobs     *prometheus.HistogramVec
	logLines  *prometheus.CounterVec
	quotas    *prometheus.CounterVec
}

// NewMetrics returns the instruments of a program of a version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kickstand_" + name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kickstand_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	m.requests = histogram("http_request_duration_seconds", "Time from the first byte of a request to the last of its response, without event streams.", slow, "surface", "route", "code")
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: "kickstand_http_requests_in_flight", Help: "Requests being served, including event streams."})
	m.jobs = counter("jobs_total", "Runs of jobs by their outcome: finished, failed, discarded, unavailable (database or files; not an attempt), interrupted (not an attempt).", "kind", "outcome")
	m.jobTime = histogram("job_duration_seconds", "Time of the runs of jobs.", slow, "kind")
	m.attempts = histogram("webhook_attempt_duration_seconds", "Time until a receiver's response began, by its status class; error: no response.", slow, "code")
	m.providers = histogram("provider_request_duration_seconds", "Time until the response of a provider's API or the identity provider began, by its status class; error: no response.", slow, "code")
	m.replies = counter("replies_total", "Attempts to send replies by their outcome: sent, retry, unclear (retried; it may have arrived), failed.", "channel", "outcome")
	m.mails = counter("mailbox_mails_total", "Mails read in mailboxes by outcome: collected, known (collected before, under another UID).", "outcome")
	m.Mails(0, 0)
	m.smtpMails = histogram("smtp_mail_duration_seconds", "Time from the DATA command of a received mail to its reply, by result: accepted, duplicate, or the reason of a refusal.", slow, "result")
	m.smtpNo = counter("smtp_refusals_total", "Refused connections, recipients and mails of the SMTP receiver by reason.", "reason")
	for _, result := range []string{"accepted", "duplicate", "unavailable"} {
		m.smtpMails.WithLabelValues(result)
	}
	for _, reason := range []string{"unknown_recipient", "mails_of_client", "unavailable"} {
		m.smtpNo.WithLabelValues(reason)
	}
	m.smtpConns = prometheus.NewGauge(prometheus.GaugeOpts{Name: "kickstand_smtp_connections", Help: "Open connections of the SMTP receiver."})
	m.groups = histogram("db_commit_changes", "Changes that shared a commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}, "database")
	m.commits = histogram("db_commit_duration_seconds", "Time of commits, from the begin of the transaction.", fast, "database")
	m.database = histogram("db_operation_duration_seconds", "Time of operations of the database, including waits for a connection: query (one statement), read, write.", fast, "database", "operation")
	m.blobs = histogram("blob_operation_duration_seconds", "Time of operations of the store of attachments; a get until its content begins.", slow, "operation", "outcome")
	for _, operation := range []string{"put", "get", "delete"} {
		m.blobs.WithLabelValues(operation, "error")
	}
	m.logLines = counter("log_lines_total", "Logged warnings and errors.", "level")
	m.quotas = counter("quotas_total", "Quotas of organizations by outcome: reached (an organization has used it up), refused (what a member or an API key creates).", "quota", "outcome")
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kickstand_build_info", Help: "1, with the version of the program."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.inFlight, m.smtpConns, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Register adds collectors, which read values when the metrics are scraped.
func (m *Metrics) Register(c ...prometheus.Collector) { m.registry.MustRegister(c...) }

// Gather returns all metrics.
func (m *Metrics) Gather() prometheus.Gatherer { return m.registry }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapeLimit, ErrorHandling: promhttp.ContinueOnError})
}

// statusClass returns "2xx" and the like.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "other"
	}
	return strconv.Itoa(status/100) + "xx"
}

// AddJobs makes the series of jobs of a kind begin at 0, so that the first of each is an increase.
func (m *Metrics) AddJobs(kind string) {
	for _, outcome := range []string{"finished", "failed", "discarded", "unavailable", "interrupted"} {
		m.jobs.WithLabelValues(kind, outcome)
	}
}

// Job counts the run of a job.
func (m *Metrics) Job(kind, outcome string, took time.Duration) {
	m.jobs.WithLabelValues(kind, outcome).Inc()
	if took > 0 {
		m.jobTime.WithLabelValues(kind).Observe(took.Seconds())
	}
}

// Reply counts an attempt to send a reply.
func (m *Metrics) Reply(channel, outcome string) { m.replies.WithLabelValues(channel, outcome).Inc() }

// Mails counts mails read in mailboxes.
func (m *Metrics) Mails(collected, known int) {
	m.mails.WithLabelValues("collected").Add(float64(collected))
	m.mails.WithLabelValues("known").Add(float64(known))
}

// SMTPMail counts a mail received by SMTP.
func (m *Metrics) SMTPMail(result string, took time.Duration) {
	m.smtpMails.WithLabelValues(result).Observe(took.Seconds())
}

// SMTPRefused counts a refused connection, recipient or mail.
func (m *Metrics) SMTPRefused(reason string) { m.smtpNo.WithLabelValues(reason).Inc() }

// SMTPConnections changes the number of open connections.
func (m *Metrics) SMTPConnections(change int) { m.smtpConns.Add(float64(change)) }

// AddQuota makes the series of a quota begin at 0.
func (m *Metrics) AddQuota(quota string) {
	for _, outcome := range []string{"reached", "refused"} {
		m.quotas.WithLabelValues(quota, outcome)
	}
}

// Quota counts the outcome of a quota of an organization.
func (m *Metrics) Quota(quota, outcome string) { m.quotas.WithLabelValues(quota, outcome).Inc() }

// Commit returns a function that counts the commits of a database and the changes in each.
func (m *Metrics) Commit(database string) func(changes int, took time.Duration) {
	groups, commits := m.groups.WithLabelValues(database), m.commits.WithLabelValues(database)
	return func(changes int, took time.Duration) {
		groups.Observe(float64(changes))
		commits.Observe(took.Seconds())
	}
}

// DatabaseOperation returns a function that counts the operations of a database.
func (m *Metrics) DatabaseOperation(database string) func(operation string, took time.Duration) {
	known := make(map[string]prometheus.Observer)
	for _, operation := range []string{"query", "read", "write"} {
		known[operation] = m.database.WithLabelValues(database, operation)
	}
	return func(operation string, took time.Duration) { known[operation].Observe(took.Seconds()) }
}

// Blob counts an operation of the store of attachments.
func (m *Metrics) Blob(operation string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.blobs.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

// transport measures requests to others.
type transport struct {
	next http.RoundTripper
	took *prometheus.HistogramVec
	pass bool // traceparent
}

// WebhookTransport returns a transport that measures requests to receivers. While traces are on,
// requests carry the W3C header traceparent, so that a receiver's trace continues the delivery's.
func (m *Metrics) WebhookTransport(next http.RoundTripper) http.RoundTripper {
	return &transport{next, m.attempts, true}
}

// ProviderTransport returns a transport that measures requests to providers, which get no
// traceparent.
func (m *Metrics) ProviderTransport(next http.RoundTripper) http.RoundTripper {
	return &transport{next, m.providers, false}
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := startClient(r)
	defer span.End()
	if parent := Parent(ctx); t.pass && parent != "" {
		r = r.Clone(ctx)
		r.Header["Traceparent"] = []string{parent}
	} else if span.IsRecording() {
		r = r.WithContext(ctx)
	}
	start := time.Now()
	res, err := t.next.RoundTrip(r)
	code := "error"
	if err == nil {
		code = statusClass(res.StatusCode)
	}
	t.took.WithLabelValues(code).Observe(time.Since(start).Seconds())
	endClient(span, res, err)
	return res, err
}

// CloseIdleConnections supports [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
