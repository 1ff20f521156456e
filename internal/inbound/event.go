package inbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// State is the processing state of an event.
type State string

// The states. Only accepted events have a job. The last three wait for review; see
// [Service.Replay].
const (
	Accepted  State = "accepted"
	Processed State = "processed"
	Unrouted  State = "unrouted" // verified, but no connection has the address
	Rejected  State = "rejected" // verified, but unreadable
	Dead      State = "dead"     // the last attempt failed
)

// StoredEvent is one part of a verified request, as received.
type StoredEvent struct {
	ID             string          `json:"id"`
	OrganizationID string          `json:"organization_id"` // empty while unrouted, and for deployment channels
	ConnectionID   string          `json:"connection_id"`   // empty if no connection has the address
	Channel        string          `json:"channel"`
	Key            string          `json:"key"`
	Kind           string          `json:"kind"`
	Sender         string          `json:"sender"`
	Address        string          `json:"address"`
	VerifiedBy     string          `json:"verified_by"` // owner and number of the secret, from 1 for the newest
	State          State           `json:"state"`
	Result         json.RawMessage `json:"result"` // outcome of processing
	Error          string          `json:"error"`  // reason why it is rejected or dead
	ReceivedAt     time.Time       `json:"received_at"`
	ProcessedAt    time.Time       `json:"processed_at,omitzero"`
	Size           int64           `json:"size"` // of the body, in bytes

	// Not set by [Service.List]. Credentials are redacted.
	URL    string      `json:"url,omitempty"`
	Header http.Header `json:"headers,omitempty"`
	Body   []byte      `json:"-"`

	bodyKey  string   // key of the body in the blob store; empty if in the row
	prepared prepared // set before the event is inserted
}

// prepared holds values computed before the transaction, to keep it short.
type prepared struct {
	fingerprint []byte
	header      string
}

// kindUnreadable is the kind of a request that Split could not read.
const kindUnreadable = "unreadable"

// kindChallenge is the kind of a returned challenge of a proof. It is never a message.
const kindChallenge = "challenge"

const (
	maxKey   = 255  // bytes of an indexed text
	maxError = 2000 // bytes of a stored error
	maxURL   = 8 << 10
)

// clean makes text storable in both databases: valid UTF-8 without NUL, at most max bytes.
func clean(s string, max int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") // without a part of a character
	}
	return s
}

// fingerprint identifies repeated deliveries of an event.
func (e *StoredEvent) fingerprint() []byte {
	h := sha256.New()
	for _, part := range []string{e.Channel, e.ConnectionID, e.Key} {
		io.WriteString(h, part) // a hash does not fail
		h.Write([]byte{0})
	}
	return h.Sum(nil)[:16]
}

// lane returns the queue lane of an event: its sender at its connection, or the event's own if
// it has no sender.
func (e *StoredEvent) lane() string {
	if e.Sender == "" {
		return e.ID
	}
	return e.ConnectionID + "/" + e.Sender
}

// request rebuilds the adapter's request from the stored event.
func (e *StoredEvent) request() *channel.Request {
	return &channel.Request{Method: http.MethodPost, URL: e.URL, Header: e.Header, Body: e.Body, Received: e.ReceivedAt}
}

func (e *StoredEvent) part() channel.Part {
	return channel.Part{Key: e.Key, Sender: e.Sender, Address: e.Address, Kind: e.Kind, Body: e.Body}
}

// notStored replaces the values of credentials.
const notStored = "(not stored)"

// secretWords mark names of headers and query parameters that may hold credentials. They are
// redacted because anyone with access to raw events would see them, and parsing does not need
// them. Signatures are included: one may not cover everything that determines how a body is
// read.
var secretWords = [...][]byte{
	[]byte("authorization"), []byte("cookie"), []byte("token"), []byte("secret"), []byte("passw"), []byte("credential"),
	[]byte("api-key"), []byte("api_key"), []byte("apikey"), []byte("signature"), []byte("hmac"),
}

func isSecretName(name string) bool {
	var buf [64]byte
	lower := buf[:0]
	for _, c := range []byte(name) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower = append(lower, c)
	}
	for _, word := range secretWords {
		if bytes.Contains(lower, word) {
			return !bytes.Contains(lower, []byte("idempotency"))
		}
	}
	return string(lower) == "key" || string(lower) == "auth"
}

// headerText returns the stored form of headers: wire format, sorted by name.
func headerText(h http.Header) string {
	names := make([]string, 0, 32)
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.Grow(1 << 10)
	for _, name := range names {
		hidden := isSecretName(name)
		for _, value := range h[name] {
			if hidden {
				value = notStored
			}
			b.WriteString(name)
			b.WriteString(": ")
			b.WriteString(value)
			b.WriteByte('\n')
		}
	}
	return clean(b.String(), http.DefaultMaxHeaderBytes)
}

func parseHeader(text string) http.Header {
	h := make(http.Header)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			h[name] = append(h[name], value)
		}
	}
	return h
}

// urlText returns the stored form of a URL.
func urlText(raw string) string {
	path, query, ok := strings.Cut(raw, "?")
	if !ok {
		return clean(raw, maxURL)
	}
	var b strings.Builder
	b.WriteString(path)
	for between := "?"; ; {
		end := strings.IndexAny(query, "&;")
		pair := query
		if end >= 0 {
			pair = query[:end]
		}
		name, _, hasValue := strings.Cut(pair, "=")
		b.WriteString(between)
		if plain, err := url.QueryUnescape(name); hasValue && (err != nil || isSecretName(plain)) {
			pair = name + "=" + url.QueryEscape(notStored)
		}
		b.WriteString(pair)
		if end < 0 {
			return clean(b.String(), maxURL)
		}
		between, query = query[end:end+1], query[end+1:]
	}
}

const (
	summaryColumns = `id, organization_id, connection_id, channel, external_key, kind, sender, address, verified_by, state,
		result, error, received_at, processed_at, body_size, body_key`
	eventColumns = summaryColumns + ", url, headers, body"
)

func (e *StoredEvent) summaryFields(result *string) []any {
	return []any{
		&e.ID, db.IntoText(&e.OrganizationID), &e.ConnectionID, &e.Channel, &e.Key, &e.Kind, &e.Sender, &e.Address, &e.VerifiedBy, &e.State,
		db.IntoText(result), db.IntoText(&e.Error), db.IntoTime(&e.ReceivedAt), db.IntoTime(&e.ProcessedAt), &e.Size, db.IntoText(&e.bodyKey),
	}
}

func scanSummary(row db.Row) (*StoredEvent, error) {
	var e StoredEvent
	var result string
	err := row.Scan(e.summaryFields(&result)...)
	e.setResult(result)
	return &e, err
}

func scanEvent(row db.Row) (*StoredEvent, error) {
	var e StoredEvent
	var result, header string
	err := row.Scan(append(e.summaryFields(&result), &e.URL, &header, &e.Body)...)
	e.setResult(result)
	e.Header = parseHeader(header)
	return &e, err
}

func (e *StoredEvent) setResult(stored string) {
	if stored != "" {
		e.Result = json.RawMessage(stored)
	}
}

// load returns an event with its body, except for a body in the blob store, which
// [Service.loadBody] loads. The error is [db.ErrNoRows] if there is none.
func (s *Service) load(ctx context.Context, id string) (*StoredEvent, error) {
	return db.One(ctx, s.db, scanEvent, "SELECT "+eventColumns+" FROM inbound_events WHERE id = $1", id)
}

// loadAll loads the events of several jobs, without bodies in the blob store.
func (s *Service) loadAll(ctx context.Context, jobs []*queue.Job) {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	events, err := db.All(ctx, s.db, scanEvent, "SELECT "+eventColumns+" FROM inbound_events WHERE id = ANY($1)", ids)
	if err != nil {
		return // each job loads its own
	}
	byID := make(map[string]*StoredEvent, len(events))
	for _, e := range events {
		byID[e.ID] = e
	}
	for _, j := range jobs {
		if e := byID[j.ID]; e != nil {
			j.Prepared = e
		}
	}
}

// bodyInRow is the largest body in bytes stored in its row.
const bodyInRow = 32 << 10

// bodyHeader is the length in bytes of the first line of a body's blob.
const bodyHeader = len("inbound ") + 36 + len("\n")

// bodyBlob returns the content of a body's blob. The first line makes it unique to the request,
// so that it can be deleted with it.
func bodyBlob(id string, body []byte) io.Reader {
	return io.MultiReader(strings.NewReader("inbound "+id+"\n"), bytes.NewReader(body))
}

// storeBodies moves bodies too large for their rows into the blob store before the rows are
// inserted. It returns the keys.
func (s *Service) storeBodies(ctx context.Context, list []routed, events []*StoredEvent) ([]string, error) {
	whole := 0 // number of events that hold the whole request
	for _, p := range list {
		if p.Body == nil {
			whole++
		}
	}
	var keys []string
	shared := ""
	for i, e := range events {
		isWhole := list[i].Body == nil
		switch {
		case len(e.Body) <= bodyInRow && (!isWhole || len(e.Body)*whole <= bodyInRow):
			continue
		case isWhole && shared != "":
			e.bodyKey, e.Body = shared, nil
			continue
		}
		ref, err := s.blob.Put(ctx, bodyBlob(e.ID, e.Body))
		if err != nil {
			return keys, fmt.Errorf("store body: %w", err)
		}
		keys = append(keys, ref.Key)
		e.bodyKey, e.Body = ref.Key, nil
		if isWhole {
			shared = ref.Key
		}
	}
	return keys, nil
}

// loadBody loads a body from the blob store.
func (s *Service) loadBody(ctx context.Context, e *StoredEvent) error {
	if e.bodyKey == "" {
		return nil
	}
	r, err := s.blob.Open(ctx, e.bodyKey)
	if err != nil {
		return fmt.Errorf("open body: %w", err)
	}
	defer r.Close()
	stored := bytes.NewBuffer(make([]byte, 0, e.Size+bytes.MinRead+100))
	if _, err := stored.ReadFrom(r); err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if _, err := stored.ReadBytes('\n'); err != nil {
		return fmt.Errorf("read body: %w", errors.Join(io.ErrUnexpectedEOF, err))
	}
	e.Body = stored.Bytes()
	return nil
}
