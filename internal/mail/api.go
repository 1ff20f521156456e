package mail

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// DefaultAPIURL is where the delivery provider's API is.
const DefaultAPIURL = "https://api.resend.com"

// MessageTag is the tag under which a message's ID goes to the provider, which
// repeats it in what it reports.
const MessageTag = "message"

const (
	apiTimeout   = 2 * time.Minute // of one call: 25 MB over a slow line
	maxAPIAnswer = 64 << 10        // bytes
	// apiMemory is for how long the provider recognises what it was given before.
	apiMemory     = 24 * time.Hour
	maxRetryAfter = 24 * time.Hour
)

// API sends by the API of a delivery provider, one call per message. HTTP may be set
// before the first use and not after.
//
// The provider chooses the envelope's sender, and may give the message another
// Message-ID than ours. It recognises a message that it was given before by its ID,
// or Message-ID where it has none.
type API struct {
	// HTTP makes the calls; nil means [http.DefaultTransport]. Redirects are not
	// followed.
	HTTP http.RoundTripper

	host, endpoint string
	key            func() string // so that no way of printing the struct shows it
}

// OpenAPI makes a sender for the API at a base address, such as [DefaultAPIURL],
// and a key, without connecting. Errors quote neither.
func OpenAPI(base, key string) (*API, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("mail: the API's address must be one such as " + DefaultAPIURL)
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("mail: the API key is empty, or has characters that no key has")
	}
	return &API{host: u.Host, endpoint: u.String() + "/emails", key: func() string { return key }}, nil
}

// Send implements [Sender].
func (a *API) Send(ctx context.Context, m Message) error {
	_, err := a.SendTracked(ctx, m, func() error { return nil })
	return err
}

// IdempotencyWindow implements [IdempotentSender].
func (a *API) IdempotencyWindow() time.Duration { return apiMemory }

// IdempotencyScope implements [IdempotentSender]: of one account, as far as the key tells.
func (a *API) IdempotencyScope() string {
	sum := sha256.Sum256([]byte(a.endpoint + "\n" + a.key()))
	return hex.EncodeToString(sum[:16])
}

// apiMessage is a message as the provider wants it. Its form is the same whenever
// the message is.
type apiMessage struct {
	From        string            `json:"from"`
	To          []string          `json:"to"`
	Cc          []string          `json:"cc,omitempty"`
	ReplyTo     string            `json:"reply_to,omitempty"`
	Subject     string            `json:"subject"`
	Text        string            `json:"text,omitempty"`
	HTML        string            `json:"html,omitempty"`
	Headers     map[string]string `json:"headers"`
	Attachments []apiAttachment   `json:"attachments,omitempty"`
	Tags        []apiTag          `json:"tags,omitempty"`
}

type apiAttachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Content     []byte `json:"content"` // base64
}

type apiTag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SendTracked implements [TrackedSender]. Before it has called handing, nothing was said to the
// provider at all.
func (a *API) SendTracked(ctx context.Context, m Message, handing func() error) (id string, err error) {
	// For its refusals, and for what it makes of addresses.
	if _, _, err := compose(m); err != nil {
		return "", err
	}
	if m.MessageID == "" {
		if m.MessageID, err = messageID("", m.From.Address); err != nil {
			return "", &Error{Op: OpCompose, Err: err}
		}
	}
	body, err := apiBody(m)
	if err != nil {
		return "", &Error{Op: OpCompose, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return "", a.failed(Error{Op: OpConnect, Temporary: true, Err: context.Cause(ctx)})
	}
	if err := handing(); err != nil {
		return "", a.failed(Error{Op: OpContent, Temporary: true, Err: err})
	}
	return a.post(ctx, body, cmp.Or(m.ID, strings.Trim(m.MessageID, "<>")))
}

// apiBody writes m, which can be composed.
func apiBody(m Message) ([]byte, error) {
	out := apiMessage{
		From: apiAddress(m.From), Subject: m.Subject,
		Text: strings.ToValidUTF8(m.Text, "\uFFFD"), HTML: strings.ToValidUTF8(m.HTML, "\uFFFD"),
		Headers: map[string]string{"Message-ID": "<" + strings.Trim(m.MessageID, "<>") + ">"},
	}
	for _, to := range m.To {
		out.To = append(out.To, apiAddress(to))
	}
	for _, cc := range m.Cc {
		out.Cc = append(out.Cc, apiAddress(cc))
	}
	if out.To == nil { // the provider wants one
		out.To, out.Cc = out.Cc[:1], out.Cc[1:]
	}
	if m.ReplyTo != (Address{}) {
		out.ReplyTo = apiAddress(m.ReplyTo)
	}
	if out.Text == "" && out.HTML == "" {
		out.Text = "\n" // it wants something to send, too
	}
	for _, h := range m.Headers {
		if old, ok := out.Headers[h.Name]; ok {
			h.Value = old + " " + h.Value
		}
		out.Headers[h.Name] = h.Value
	}
	for _, f := range m.Attachments {
		out.Attachments = append(out.Attachments, apiAttachment{fileName(f.Name), contentType(f.ContentType), f.Content})
	}
	if m.ID != "" {
		out.Tags = []apiTag{{MessageTag, m.ID}}
	}
	return json.Marshal(out)
}

// apiAddress writes an address that can be composed, in plain characters.
func apiAddress(a Address) string {
	checked, err := checkAddress(a)
	if err != nil {
		return a.Address
	}
	if checked.Name == "" {
		return checked.Address
	}
	name := checked.Name
	if strings.ContainsAny(name, `()<>[]:;@\,."`) {
		name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
	}
	return name + " <" + checked.Address + ">"
}

// post makes the call and reads its answer.
func (a *API) post(ctx context.Context, body []byte, key string) (id string, err error) {
	var began atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { began.Store(true) }})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, a.endpoint, bytes.NewReader(body))
	if err != nil {
		return "", a.failed(Error{Op: OpConnect, Temporary: true, Err: errors.New("its address is malformed")})
	}
	req.Header.Set("Authorization", "Bearer "+a.key())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("User-Agent", "Kickstand")
	transport := a.HTTP
	if transport == nil {
		transport = http.DefaultTransport
	}
	resp, err := transport.RoundTrip(req) // not an http.Client: it would follow redirects
	if err != nil {
		e := Error{Op: OpConnect, Temporary: true, Unclear: began.Load(), Err: err}
		if e.Unclear {
			e.Op = OpContent
		}
		if ctx.Err() != nil {
			e.Err = context.Cause(ctx)
		}
		return "", a.failed(e)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxAPIAnswer))
	if err != nil && resp.StatusCode < 300 {
		return "", a.failed(Error{Op: OpContent, Temporary: true, Unclear: true, Err: fmt.Errorf("read the response: %w", err)})
	}
	var answer struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Message string `json:"message"`
	}
	json.Unmarshal(said, &answer) // what can be read of it
	if resp.StatusCode/100 == 2 && answer.ID == "" {
		// A page of somebody else's, as a rule: a mail must not get lost there.
		return "", a.failed(Error{
			Op: OpContent, Code: resp.StatusCode, Temporary: true, Unclear: true, Text: "the answer names no message: is that the API's address?",
		})
	}
	if resp.StatusCode/100 == 2 {
		return answer.ID, nil
	}
	e := refusal(resp.StatusCode, answer.Name)
	e.Text = a.readable(cmp.Or(answer.Message, http.StatusText(resp.StatusCode)))
	if seconds, err := strconv.ParseUint(strings.TrimSpace(resp.Header.Get("Retry-After")), 10, 32); err == nil {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return "", a.failed(e)
}

// refusal is what a status and the provider's name for the trouble mean.
//
// What is wrong with the key or the address of the API is no fault of the mail's,
// and somebody will mend it.
func refusal(status int, name string) Error {
	e := Error{Op: OpContent, Code: status}
	switch {
	case status == http.StatusUnauthorized, strings.Contains(name, "api_key"):
		e.Op = OpLogin
	case status == http.StatusForbidden, name == "invalid_from_address":
		e.Op = OpSender // its domain is not verified, as a rule
	case status == http.StatusConflict && name == "invalid_idempotent_request":
		// It has a message with this key that says something else: an earlier form
		// of this one.
		e.Unclear = true
	case status == http.StatusConflict:
		// It is at it this moment.
		e.Unclear, e.Temporary = true, true
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e.Temporary = true
	case status >= 500, status == http.StatusRequestTimeout:
		e.Unclear, e.Temporary = true, true
	case status < 400, status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		e.Op, e.Temporary = OpConnect, true // whoever answers, it is not the API
	}
	return e
}

// failed completes an error.
func (a *API) failed(e Error) *Error {
	e.Server, e.API = a.host, true
	if e.Err != nil && strings.Contains(e.Err.Error(), a.key()) {
		e.Err = errors.New(a.readable(e.Err.Error()))
	}
	return &e
}

// readable is what the provider said as one printable line, without the key.
func (a *API) readable(said string) string {
	said = strings.ReplaceAll(said, a.key(), "[redacted]")
	said = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(said, "\uFFFD"))
	return truncate(said, 500)
}
