package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

const (
	// scrapeLimit bounds the time that a scrape waits for figures from the database. Without
	// them the other metrics are served.
	scrapeLimit = 2 * time.Second
	// figuresLife is the time for which figures from the database are reused.
	figuresLife = 5 * time.Second
)

// openTelemetry opens the instruments and the log that counts its lines.
func (a *App) openTelemetry(ctx context.Context, log *slog.Logger) (err error) {
	version := buildVersion()
	a.metrics = telemetry.NewMetrics(version)
	a.log = a.metrics.Logger(log)
	if a.config.Traces {
		if a.tracer, err = telemetry.OpenTracer(ctx, version, a.log); err != nil {
			return err
		}
		a.closers = append(a.closers, a.tracer.Close)
	}
	return nil
}

// buildVersion returns the version of the program; "devel" for an unreleased one.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// observer returns the observer of a database.
func (a *App) observer(name string) *db.Observer {
	return &db.Observer{Operation: a.metrics.DatabaseOperation(name), Commit: a.metrics.Commit(name)}
}

func (a *App) accessLog() *telemetry.AccessLog {
	if a.config.AccessLog != nil && a.access == nil {
		a.access = telemetry.NewAccessLog(a.config.AccessLog)
	}
	return a.access
}

// measuredBlobs returns a store that is measured, and whose outages are logged.
func (a *App) measuredBlobs(s blob.Store) blob.Store {
	return &measuredStore{s, a.metrics, loop.NewTrouble(a.log, "the store of attachments is unavailable")}
}

type measuredStore struct {
	next    blob.Store
	metrics *telemetry.Metrics
	trouble *loop.Trouble
}

// done measures an operation. Only failures of the store count as errors.
func (s *measuredStore) done(ctx context.Context, operation string, start time.Time, err error) {
	if problem.Of(err) != problem.Unavailable {
		err = nil
	}
	s.metrics.Blob(operation, time.Since(start), err)
	if err == nil || ctx.Err() == nil {
		s.trouble.Observe(ctx, err)
	}
}

// Put implements [blob.Store].
func (s *measuredStore) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	start := time.Now()
	ctx, span := telemetry.Start(ctx, "blob put")
	ref, err := s.next.Put(ctx, r)
	telemetry.End(span, err)
	s.done(ctx, "put", start, err)
	return ref, err
}

// Open implements [blob.Store].
func (s *measuredStore) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	start := time.Now()
	content, err := s.next.Open(ctx, key)
	s.done(ctx, "get", start, err)
	return content, err
}

// Delete implements [blob.Store].
func (s *measuredStore) Delete(ctx context.Context, key string) error {
	start := time.Now()
	err := s.next.Delete(ctx, key)
	s.done(ctx, "delete", start, err)
	return err
}

// figures collects what is read when the metrics are scraped.
type figures struct {
	app  *App
	mu   sync.Mutex
	at   time.Time // of stored
	last []prometheus.Metric

	jobs, due, lanes, inbound, boxes, conns, maxConns, waits, waited, skew, streams, ready, warned, failed *prometheus.Desc
}

func newFigures(a *App) *figures {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kickstand_"+name, help, labels, nil)
	}
	return &figures{
		app:      a,
		jobs:     desc("queue_jobs", "Jobs of all processes by kind and state (ready, scheduled, running), counted up to 10,000.", "kind", "state"),
		due:      desc("queue_oldest_due_seconds", "Time since which the first job of a kind that could run has been due; 0: none is.", "kind"),
		lanes:    desc("queue_lanes_waiting", "Lanes of all processes with ready jobs, counted up to 10,000.", "kind"),
		inbound:  desc("inbound_events_attention", "Stored inbound events that wait for a person by state (unrouted, rejected, dead), counted up to 10,000.", "state"),
		boxes:    desc("mailboxes", "Mailboxes that are read by IMAP, by state (waiting, reading, failing, consent).", "state"),
		conns:    desc("db_connections", "Connections of the pool by state (in_use, idle); on SQLite of those that read.", "database", "state"),
		maxConns: desc("db_connections_max", "Limit of the pool.", "database"),
		waits:    desc("db_connection_waits_total", "Operations that waited for a connection of the pool.", "database"),
		waited:   desc("db_connection_wait_seconds_total", "Time that operations waited for a connection of the pool.", "database"),
		skew:     desc("clock_skew_seconds", "How far this process's clock is ahead of the database's; absent on SQLite.", "database"),
		streams:  desc("event_streams", "Open event streams of pages."),
		ready:    desc("ready", "0 if the part of /readyz fails, else 1.", "part"),
		warned:   desc("ready_warned", "1 if the part of /readyz works and needs attention, else 0.", "part"),
		failed:   desc("scrape_failed", "1 if figures of the database could not be read in time, else 0."),
	}
}

// Describe implements [prometheus.Collector].
func (f *figures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.jobs, f.due, f.lanes, f.inbound, f.boxes, f.conns, f.maxConns, f.waits, f.waited, f.skew, f.streams, f.ready, f.warned, f.failed} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (f *figures) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for i, d := range []*db.DB{f.app.DB, f.app.Fleet.DB, f.app.Sandbox.DB} {
		name, s := databases[i].name, d.Stats()
		gauge(f.conns, float64(s.InUse), name, "in_use")
		gauge(f.conns, float64(s.Open-s.InUse), name, "idle")
		gauge(f.maxConns, float64(s.Limit), name)
		counter(f.waits, float64(s.Waits), name)
		counter(f.waited, s.Wait.Seconds(), name)
		if skew, ok := d.ClockSkew(); ok {
			gauge(f.skew, skew.Seconds(), name)
		}
	}
	if f.app.site != nil {
		gauge(f.streams, float64(f.app.site.EventStreams()))
	}
	if f.app.ready != nil {
		for name, o := range f.app.ready.report().Parts {
			gauge(f.ready, truth(o.Status != partFailed), name)
			gauge(f.warned, truth(o.Status == partWarned), name)
		}
	}
	stored, err := f.stored()
	gauge(f.failed, truth(err != nil))
	for _, m := range stored {
		out <- m
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// stored returns the figures from the database, read a moment ago at most.
func (f *figures) stored() ([]prometheus.Metric, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.at.IsZero() && time.Since(f.at) < figuresLife {
		return f.last, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	kinds, err := f.app.queue.Stats(ctx)
	if err != nil {
		return nil, err
	}
	states, err := f.app.Inbound.CountAttention(ctx)
	if err != nil {
		return nil, err
	}
	boxes, err := mailbox.CountStates(ctx, f.app.DB)
	if err != nil {
		return nil, err
	}
	var list []prometheus.Metric
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		list = append(list, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	for _, k := range kinds {
		gauge(f.jobs, float64(k.Ready), k.Kind, "ready")
		gauge(f.jobs, float64(k.Scheduled), k.Kind, "scheduled")
		gauge(f.jobs, float64(k.Running), k.Kind, "running")
		gauge(f.lanes, float64(k.Lanes), k.Kind)
		gauge(f.due, k.OldestDue.Seconds(), k.Kind)
	}
	for state, n := range states {
		gauge(f.inbound, float64(n), string(state))
	}
	for state, n := range boxes {
		gauge(f.boxes, float64(n), string(state))
	}
	f.at, f.last = time.Now(), list
	return list, nil
}

// privateHandler serves what is meant for the operator only: metrics and profiles.
func (a *App) privateHandler() http.Handler {
	a.metrics.Register(newFigures(a))
	for _, kind := range a.queue.Kinds() {
		a.metrics.AddJobs(kind)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.Handler())
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.Handle("GET /readyz", a.ready)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // without cmdline, which may have secrets
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// servePrivate serves the private address until the returned function is called. Without one it
// does nothing.
func (a *App) servePrivate(ctx context.Context) (stop func(), err error) {
	if a.config.MetricsListen == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", a.config.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("metrics-listen: %w", err)
	}
	srv := newServer(a.privateHandler(), a.log)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.log.ErrorContext(ctx, "serve metrics", "error", err)
		}
	}()
	a.log.InfoContext(ctx, "serving metrics", "address", ln.Addr().String())
	return func() {
		srv.Close()
		<-done
	}, nil
}
