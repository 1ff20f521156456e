package mailtest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	netmail "net/mail"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/mail"
)

// Provider is a delivery provider. Its API accepts each Idempotency-Key once: for a repetition
// it repeats its response, or refuses other content.
type Provider struct {
	URL string // of the API, without a trailing slash
	Key string // required API key

	mu      sync.Mutex
	trouble func(n int, r *http.Request) *Trouble
	calls   int
	taken   []Posted
	byKey   map[string]int // index in accepted mails
}

// Trouble is a failure of a [Provider].
type Trouble struct {
	Status int // 0 breaks the connection
	Header http.Header
	Name   string // of the error
	Text   string
	Taken  bool // the mail is accepted nevertheless
}

// Posted is a mail that a [Provider] accepted.
type Posted struct {
	ID             string // assigned by the provider
	IdempotencyKey string
	From           string
	To, Cc         []string
	ReplyTo        string
	Subject        string
	Text, HTML     string
	Headers        map[string]string
	Attachments    map[string]string // content by name
	Tags           map[string]string
	body           string
}

// Plain returns the mail without data that its recipient does not see.
func (d Posted) Plain() Posted {
	d.body = ""
	return d
}

// NewProvider starts a provider that ends with the test. trouble may be nil; calls count from
// 1.
func NewProvider(t testing.TB, trouble func(n int, r *http.Request) *Trouble) *Provider {
	p := &Provider{Key: "re_" + rand.Text(), trouble: trouble, byKey: make(map[string]int)}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Deliveries returns the accepted mails in order.
func (p *Provider) Deliveries() []Posted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

// Calls returns the number of calls.
func (p *Provider) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// ServeHTTP implements [http.Handler].
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.calls++
	n := p.calls
	p.mu.Unlock()
	var trouble *Trouble
	if p.trouble != nil {
		trouble = p.trouble(n, r)
	}
	if trouble != nil && !trouble.Taken {
		p.fail(w, trouble)
		return
	}
	id, refused := p.accept(r, body)
	switch {
	case refused != nil:
		p.fail(w, refused)
	case trouble != nil:
		p.fail(w, trouble)
	default:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{"id": id})
	}
}

// RoundTrip implements [http.RoundTripper]: a call without a network.
func (p *Provider) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if v != nil {
			panic(v)
		}
	}()
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), r.Context().Err()
}

func (p *Provider) fail(w http.ResponseWriter, t *Trouble) {
	if t.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), t.Header)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(t.Status)
	json.NewEncoder(w).Encode(map[string]any{"statusCode": t.Status, "name": t.Name, "message": t.Text})
}

func (p *Provider) accept(r *http.Request, body []byte) (id string, refused *Trouble) {
	invalid := func(format string, args ...any) *Trouble {
		return &Trouble{Status: http.StatusUnprocessableEntity, Name: "validation_error", Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/emails":
		return "", &Trouble{Status: http.StatusNotFound, Name: "not_found", Text: "The requested endpoint does not exist"}
	case r.Header.Get("Authorization") == "":
		return "", &Trouble{Status: http.StatusUnauthorized, Name: "missing_api_key", Text: "Missing API Key"}
	case r.Header.Get("Authorization") != "Bearer "+p.Key:
		return "", &Trouble{Status: http.StatusForbidden, Name: "invalid_api_key", Text: "API key is invalid"}
	case r.Header.Get("Content-Type") != "application/json" || r.UserAgent() == "":
		return "", invalid("Content-Type and User-Agent are required")
	}
	var in struct {
		From        string            `json:"from"`
		To          []string          `json:"to"`
		Cc          []string          `json:"cc"`
		ReplyTo     string            `json:"reply_to"`
		Subject     string            `json:"subject"`
		Text        string            `json:"text"`
		HTML        string            `json:"html"`
		Headers     map[string]string `json:"headers"`
		Attachments []struct {
			Filename    string `json:"filename"`
			Content     string `json:"content"`
			ContentType string `json:"content_type"`
		} `json:"attachments"`
		Tags []struct{ Name, Value string } `json:"tags"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return "", invalid("%v", err)
	}
	if len(in.To) == 0 || in.Text == "" && in.HTML == "" {
		return "", invalid("Missing `to`, or `text` and `html`")
	}
	d := Posted{
		IdempotencyKey: r.Header.Get("Idempotency-Key"), From: in.From, To: in.To, Cc: in.Cc, ReplyTo: in.ReplyTo,
		Subject: in.Subject, Text: in.Text, HTML: in.HTML, Headers: in.Headers,
		Attachments: make(map[string]string), Tags: make(map[string]string), body: string(body),
	}
	for _, f := range in.Attachments {
		data, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			return "", invalid("attachment: %v", err)
		}
		d.Attachments[f.Filename] = string(data)
	}
	for _, tag := range in.Tags {
		if strings.Trim(tag.Name+tag.Value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			return "", invalid("Tags should only contain ASCII letters, numbers, underscores, or dashes")
		}
		d.Tags[tag.Name] = tag.Value
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.byKey[d.IdempotencyKey]; ok && d.IdempotencyKey != "" {
		if p.taken[i].body != d.body {
			return "", &Trouble{Status: http.StatusConflict, Name: "invalid_idempotent_request", Text: "Same idempotency key used with a different request payload"}
		}
		return p.taken[i].ID, nil
	}
	d.ID = fmt.Sprintf("56761188-7520-42d8-8898-%012d", len(p.taken)+1)
	p.byKey[d.IdempotencyKey] = len(p.taken)
	p.taken = append(p.taken, d)
	return d.ID, nil
}

// Received returns the accepted mails as their recipients see them.
func (p *Provider) Received(t testing.TB) []Received {
	t.Helper()
	var list []Received
	for _, d := range p.Deliveries() {
		r := Received{From: bare(t, d.From), Subject: d.Subject, Text: d.Text, HTML: d.HTML}
		for _, to := range slices.Concat(d.To, d.Cc) {
			r.To = append(r.To, bare(t, to))
		}
		for _, name := range []string{"References", "Auto-Submitted", "X-Note"} {
			if v, ok := d.Headers[name]; ok {
				r.Headers = append(r.Headers, mail.Header{Name: name, Value: v})
			}
		}
		for name := range d.Attachments {
			r.Attachments = append(r.Attachments, name)
		}
		list = append(list, r)
	}
	return list
}

func bare(t testing.TB, address string) string {
	t.Helper()
	a, err := netmail.ParseAddress(address)
	if err != nil {
		t.Errorf("the address %q cannot be read: %v", address, err)
		return address
	}
	return a.Address
}
