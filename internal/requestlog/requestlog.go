// Package requestlog records the last requests of each API key: method, path, status,
// duration, client address and, of refused ones, the rule that refused. It never records
// bodies.
//
// Recording only appends to a buffer in memory. [Log.Run] writes the buffer every few
// seconds, so requests neither wait for it nor fail with it. The log is for developers,
// not for evidence: a process that is killed loses its buffer, and a batch that cannot be
// written is dropped. The audit log is the evidence.
//
// Two bounds limit the log: per key the last [PerKey] requests that succeeded and the last
// [PerKey] that failed, so that a busy key does not displace its errors, and the age given
// to [Log.Purge]. The buffer has the first bound as well, so a key that sends more costs no
// more.
package requestlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"

	"github.com/google/uuid"
)

// PerKey is the number of requests stored per key and outcome. Up to [slack] more, per
// process, exist for a short time.
const PerKey = 500

const (
	maxBuffered   = 20_000          // requests of all keys
	flushInterval = 2 * time.Second // an answered request is in the log after that time
	chunk         = 100             // rows per transaction, so that other writers need not wait
	slack         = 100             // rows beyond PerKey until they are deleted
	maxText       = 1000            // bytes of a text of the client
)

// Rule is the kind of rule that refuses a request.
type Rule string

// The rules.
const (
	Level       Rule = "level"       // permission level of the key
	Resource    Rule = "resource"    // permissions by resource
	Scope       Rule = "scope"       // subaccounts of the key or the request
	Address     Rule = "address"     // allowed addresses
	Limit       Rule = "limit"       // requests per minute
	Environment Rule = "environment" // the key belongs to another API
	Revoked     Rule = "revoked"
	Expired     Rule = "expired"
)

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{Level, Resource, Scope, Address, Limit, Environment, Revoked, Expired}
}

// Refusal is the rule that refused a request and a value that it would have accepted. Both
// are empty if no rule of the key refused it.
type Refusal struct {
	Rule   Rule
	Needed string // "read_write", "tickets.create", a subaccount's id, an address; empty: unknown
}

// Key identifies the API key of a request.
type Key struct {
	ID             string
	OrganizationID string
	Service        string
	Environment    string
	Name           string // empty in [Log.Record]
	PartialKey     string // empty in [Log.Record]
}

// Request is a request with a known key.
type Request struct {
	ID        string // unique and ascending; set by the log
	RequestID string // X-Request-Id; clients may repeat it
	Key       Key
	At        time.Time // its start
	Duration  time.Duration
	Method    string
	Path      string
	Status    int
	Code      string     // of the problem; empty: none
	Address   netip.Addr // of the client; zero: unknown
	Refusal   Refusal
}

// Failed reports whether the status is an error.
func (r *Request) Failed() bool { return r.Status >= 400 }

// Config configures a [Log].
type Config struct {
	DB *db.DB // of the API keys
	// Recorded is called with the keys of the written requests. nil: not called.
	Recorded func(organizationID, keyID string)
	Logger   *slog.Logger // nil discards
}

// Log is the request log. It is safe for concurrent use; a nil one records nothing.
type Log struct {
	db       *db.DB
	recorded func(organizationID, keyID string)
	log      *slog.Logger

	mu       sync.Mutex
	buffers  map[outcome]*buffer
	buffered int
	dropped  int

	flushing sync.Mutex
	written  map[outcome]int // rows since the last deletion of old ones
}

// outcome selects the requests of a key that succeeded or failed.
type outcome struct {
	keyID  string
	failed bool
}

// buffer holds the last PerKey requests of an outcome.
type buffer struct {
	requests []Request
	oldest   int // once it is full
}

// Open returns the log. [Log.Run] writes it.
func Open(c Config) *Log {
	l := &Log{db: c.DB, recorded: c.Recorded, log: c.Logger, buffers: make(map[outcome]*buffer), written: make(map[outcome]int)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.recorded == nil {
		l.recorded = func(string, string) {}
	}
	return l
}

// Record adds a request to the buffer. It neither blocks nor fails: a request beyond the
// buffer's bound is dropped and counted in the server's log.
func (l *Log) Record(r Request) {
	if l == nil {
		return
	}
	r.Method, r.Path, r.Refusal.Needed = storable(r.Method), storable(r.Path), storable(r.Refusal.Needed)
	of := outcome{r.Key.ID, r.Failed()}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buffers[of]
	if b != nil && len(b.requests) == PerKey {
		b.requests[b.oldest] = r
		b.oldest = (b.oldest + 1) % PerKey
		return
	}
	if l.buffered == maxBuffered {
		l.dropped++
		return
	}
	if b == nil {
		b = new(buffer)
		l.buffers[of] = b
	}
	b.requests = append(b.requests, r)
	l.buffered++
}

// storable returns a client's text in a bounded form that every database accepts: one refused
// row would drop the requests of other keys as well.
func storable(s string) string {
	if len(s) > maxText {
		s = strings.Clone(s[:maxText])
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// Run writes the buffer every few seconds until ctx ends, and then the rest. A failure is
// logged, and its requests are dropped.
func (l *Log) Run(ctx context.Context) {
	loop.Every(ctx, flushInterval, l.log, "write the request log", l.Flush)
	loop.Finish(ctx, l.log, "write the request log", l.Flush)
}

// Flush writes the buffer now.
func (l *Log) Flush(ctx context.Context) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	buffers, dropped := l.buffers, l.dropped
	if l.buffered > 0 {
		l.buffers = make(map[outcome]*buffer, len(buffers))
	}
	l.buffered, l.dropped = 0, 0
	l.mu.Unlock()
	if dropped > 0 {
		l.log.WarnContext(ctx, "requests are missing in the request log: its buffer was full", "requests", dropped)
	}
	var all []Request
	for _, b := range buffers {
		all = append(all, b.requests...)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b Request) int { return a.At.Add(a.Duration).Compare(b.At.Add(b.Duration)) })
	for few := range slices.Chunk(all, chunk) {
		if err := l.db.Write(ctx, func(tx *db.Tx) error { return insert(ctx, tx, few) }); err != nil {
			return fmt.Errorf("write %d requests: %w", len(all), err)
		}
	}
	for of, b := range buffers {
		l.written[of] += len(b.requests)
		l.recorded(b.requests[0].Key.OrganizationID, of.keyID)
	}
	return l.deleteExcess(ctx)
}

// insert writes requests and sets their ids.
func insert(ctx context.Context, tx *db.Tx, requests []Request) error {
	const columns = 16
	var values strings.Builder
	args := make([]any, 0, columns*len(requests))
	for i := range requests {
		r := &requests[i]
		r.ID = uuid.Must(uuid.NewV7()).String()
		address := ""
		if r.Address.IsValid() {
			address = r.Address.Unmap().WithZone("").String()
		}
		args = append(args, r.ID, r.Key.OrganizationID, r.Key.Service, r.Key.Environment, r.Key.ID, r.Failed(), r.RequestID,
			r.At.UnixMicro(), r.Duration.Microseconds(), r.Method, r.Path, r.Status, r.Code, address, string(r.Refusal.Rule), r.Refusal.Needed)
		if i > 0 {
			values.WriteString(", ")
		}
		for n := range columns {
			values.WriteString([]string{"($", ", $"}[min(n, 1)] + strconv.Itoa(i*columns+n+1))
		}
		values.WriteByte(')')
	}
	_, err := tx.Exec(ctx, `INSERT INTO api_requests (id, organization_id, service, environment, key_id, failed, request_id,
		at, duration, method, path, status, code, address, rule, needed) VALUES `+values.String(), args...)
	return err
}

// deleteExcess deletes the requests beyond PerKey of the keys with many new ones.
func (l *Log) deleteExcess(ctx context.Context) error {
	var failures []error
	for of, n := range l.written {
		if n < slack {
			continue
		}
		delete(l.written, of)
		failures = append(failures, l.db.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM api_requests WHERE key_id = $1 AND failed = $2 AND id <
				(SELECT id FROM api_requests WHERE key_id = $1 AND failed = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`, of.keyID, of.failed, PerKey-1)
			return err
		}))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("delete old requests: %w", err)
	}
	return nil
}

// Purge deletes the requests that were recorded before a time.
func (l *Log) Purge(ctx context.Context, before time.Time) error {
	const step = 500
	end := idAt(before)
	for more := true; more; {
		err := l.db.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx, "DELETE FROM api_requests WHERE id IN (SELECT id FROM api_requests WHERE id < $1 ORDER BY id LIMIT $2)", end, step)
			more = n == step
			return err
		})
		if err != nil {
			return fmt.Errorf("purge requests: %w", err)
		}
	}
	return nil
}

// idAt returns the least id of a time: ids begin with milliseconds since 1970.
func idAt(t time.Time) string {
	var id uuid.UUID
	for i, ms := 5, t.UnixMilli(); i >= 0; i-- {
		id[i] = byte(ms)
		ms >>= 8
	}
	return id.String()
}
