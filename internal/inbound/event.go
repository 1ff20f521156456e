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
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// State is where an event stands.
type State string

// The states. Only accepted events have a job. The last three wait for somebody
// to look; see [Service.Replay].
const (
	Accepted  State = "accepted"
	Processed State = "processed"
	Unrouted  State = "unrouted" // verified, but for an address that nobody has
	Rejected  State = "rejected" // verified, but unreadable
	Dead      State = "dead"     // processing failed for the last time
)

// Event is something that came in, as it came in.
type Event struct {
	ID             string          `json:"id"`
	OrganizationID string          `json:"organization_id"` // empty while unrouted, and for what is the deployment's own
	ConnectionID   string          `json:"connection_id"`   // empty: nobody connected the address
	Channel        string          `json:"channel"`
	Key            string          `json:"key"`
	Kind           string          `json:"kind"`
	Sender         string          `json:"sender"`
	Address        string          `json:"address"`
	VerifiedBy     string          `json:"verified_by"` // whose secret, and which, from 1 for the newest
	State          State           `json:"state"`
	Result         json.RawMessage `json:"result"` // what processing did
	Error          string          `json:"error"`  // why it is rejected or dead
	ReceivedAt     time.Time       `json:"received_at"`
	ProcessedAt    time.Time       `json:"processed_at,omitzero"`
	Size           int64           `json:"size"` // of the body, in bytes

	// What [Service.List] leaves out. Credentials are not in it.
	URL    string      `json:"url,omitempty"`
	Header http.Header `json:"headers,omitempty"`
	Body   []byte      `json:"-"`

	bodyKey string // where the body is, if not in the row
	prepared  prepared // of an event about to be stored
}

// prepared is what is worked out before the transaction, since there is only one
// at a time.
type prepared struct {
	fingerprint []byte
	header      string
}

// kindUnreadable is the kind of a request that could not even be split.
const kindUnreadable = "unreadable"

// kindChallenge is the kind of what brought the challenge of a proof back. It is no
// message, whoever it reached.
const kindChallenge = "challenge"

const (
	maxKey   = 255  // bytes of a text that is in an index
	maxError = 2000 // bytes of an error that is kept
	maxURL   = 8 << 10
)

// clean makes text fit for both engines: UTF-8 without NUL, at most max bytes.
func clean(s string, max int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) > max {
		for max > 0 && !utf8.RuneStart(s[max]) {
			max--
		}
		s = s[:max]
	}
	return s
}

// fingerprint is what two deliveries of one event have in common.
func (e *Event) fingerprint() []byte {
	h := sha256.New()
	for _, part := range []string{e.Channel, e.ConnectionID, e.Key} {
		io.WriteString(h, part) // a hash does not fail
		h.Write([]byte{0})
	}
	return h.Sum(nil)[:16]
}

// lane is the order an event keeps: that of its sender at its connection. An
// event without a sender keeps none.
func (e *Event) lane() string {
	if e.Sender == "" {
		return e.ID
	}
	return e.ConnectionID + "/" + e.Sender
}

// request rebuilds what the adapter needs from what was stored.
func (e *Event) request() *channel.Request {
	return &channel.Request{Method: http.MethodPost, URL: e.URL, Header: e.Header, Body: e.Body, Received: e.ReceivedAt}
}

func (e *Event) part() channel.Part {
	return channel.Part{Key: e.Key, Sender: e.Sender, Address: e.Address, Kind: e.Kind, Body: e.Body}
}

// notStored stands for the value of a credential.
const notStored = "(not stored)"

// secretWords are in the names of headers and query parameters whose values may
// be credentials: everybody who may look at raw events would have them, and parsing
// does not need them. A signature is one: it may leave out what decides how a body is
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

// headerText is the stored form of a header: lines as on the wire, in the order
// of names.
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

// urlText is the stored form of the address that was called.
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

func (e *Event) summaryFields(result *string) []any {
	return []any{
		&e.ID, db.IntoText(&e.OrganizationID), &e.ConnectionID, &e.Channel, &e.Key, &e.Kind, &e.Sender, &e.Address, &e.VerifiedBy, &e.State,
		db.IntoText(result), db.IntoText(&e.Error), db.IntoTime(&e.ReceivedAt), db.IntoTime(&e.ProcessedAt), &e.Size, db.IntoText(&e.bodyKey),
	}
}

func scanSummary(row db.Row) (*Event, error) {
	var e Event
	var result string
	err := row.Scan(e.summaryFields(&result)...)
	e.setResult(result)
	return &e, err
}

func scanEvent(row db.Row) (*Event, error) {
	var e Event
	var result, header string
	err := row.Scan(append(e.summaryFields(&result), &e.URL, &header, &e.Body)...)
	e.setResult(result)
	e.Header = parseHeader(header)
	return &e, err
}

func (e *Event) setResult(stored string) {
	if stored != "" {
		e.Result = json.RawMessage(stored)
	}
}

// load returns an event with its body, unless that is kept outside of its row:
// then [Service.loadBody] brings it. [db.ErrNoRows] when there is none.
func (s *Service) load(ctx context.Context, id string) (*Event, error) {
	return db.One(ctx, s.db, scanEvent, "SELECT "+eventColumns+" FROM inbound_events WHERE id = $1", id)
}

// bodyInRow is the size up to which a body is kept in its row.
const bodyInRow = 32 << 10

// bodyBlob is how a body is kept outside of its row. The first line makes its
// content unlike any other, so that the blob is this request's alone and can be
// deleted with it.
func bodyBlob(id string, body []byte) io.Reader {
	return io.MultiReader(strings.NewReader("inbound "+id+"\n"), bytes.NewReader(body))
}

// storeBodies moves bodies that are too large for their rows into the blob store,
// where they are durable before the rows that name them. It returns the keys.
func (s *Service) storeBodies(ctx context.Context, list []routed, events []*Event) ([]string, error) {
	whole := 0 // how many are events of the whole request
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

// loadBody loads a body that is kept outside of its row.
func (s *Service) loadBody(ctx context.Context, e *Event) error {
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
