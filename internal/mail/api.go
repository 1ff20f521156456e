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

// DefaultAPIURL is the delivery provider's API.
const DefaultAPIURL = "https://api.resend.com"

// MessageTag is the tag that holds a message's ID in the provider's events.
const MessageTag = "message"

const (
	apiTimeout   = 2 * time.Minute // per call: 25 MB over a slow line
	maxAPIAnswer = 64 << 10        // bytes
	// apiMemory is how long the provider recognizes a repeated message.
	apiMemory     = 24 * time.Hour
	maxRetryAfter = 24 * time.Hour
)

// HTTPSender sends by the API of a delivery provider, one call per message. HTTP may be set before
// first use.
//
// The provider chooses the envelope sender and may replace the Message-ID. It recognizes a
// repeated message by its ID, or else by its Message-ID.
type HTTPSender struct {
	// HTTP makes the calls; nil means [http.DefaultTransport]. Redirects are not
	// followed.
	HTTP http.RoundTripper

	host, endpoint string
	key            func() string // a func, so that printing the struct does not show it
}

// OpenAPI returns a sender for an API at a base URL, such as [DefaultAPIURL], with a key. It
// does not connect. Errors contain neither.
func OpenAPI(base, key string) (*HTTPSender, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("mail: the API's address must be one such as " + DefaultAPIURL)
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("mail: the API key is empty or malformed")
	}
	return &HTTPSender{host: u.Host, endpoint: u.String() + "/emails", key: func() string { return key }}, nil
}

// Send implements [Sender].
func (a *HTTPSender) Send(ctx context.Context, m Message) error {
	_, err := a.SendTracked(ctx, m, func() error { return nil })
	return err
}

// IdempotencyWindow implements [IdempotentSender].
func (a *HTTPSender) IdempotencyWindow() time.Duration { return apiMemory }

// IdempotencyScope implements [IdempotentSender]: one account, identified by its key.
func (a *HTTPSender) IdempotencyScope() string {
	sum := sha256.Sum256([]byte(a.endpoint + "\n" + a.key()))
	return hex.EncodeToString(sum[:16])
}

// apiMessage is a message in the provider's form, which is deterministic.
type apiMessage struct {
	From        string            `json:"from"`
	To          []string          `json:"to"`
	Cc          []string          `json:"cc,omitempty"`
	Bcc         []string          `json:"bcc,omitempty"`
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
	Content     []byte `json:"content"`              // base64
	ContentID   string `json:"content_id,omitempty"` // of a picture that the HTML shows
}

type apiTag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SendTracked implements [TrackedSender]. It contacts the provider only after submitting.
func (a *HTTPSender) SendTracked(ctx context.Context, m Message, submitting func() error) (id string, err error) {
	// Only for the errors and the encoded addresses.
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
	if err := submitting(); err != nil {
		return "", a.failed(Error{Op: OpContent, Temporary: true, Err: err})
	}
	return a.post(ctx, body, cmp.Or(m.ID, strings.Trim(m.MessageID, "<>")), submitting)
}

// apiBody encodes m, which composes without error.
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
	for _, bcc := range m.Bcc {
		out.Bcc = append(out.Bcc, apiAddress(bcc))
	}
	if out.To == nil && out.Cc == nil { // every recipient gets the mail alone
		return nil, errors.New("no recipient but blind copies")
	}
	if out.To == nil { // required
		out.To, out.Cc = out.Cc[:1], out.Cc[1:]
	}
	if m.ReplyTo != (Address{}) {
		out.ReplyTo = apiAddress(m.ReplyTo)
	}
	if out.Text == "" && out.HTML == "" {
		out.Text = "\n" // must not be empty
	}
	for _, h := range m.Headers {
		if old, ok := out.Headers[h.Name]; ok {
			h.Value = old + " " + h.Value
		}
		out.Headers[h.Name] = h.Value
	}
	for _, f := range m.Attachments {
		out.Attachments = append(out.Attachments, apiAttachment{fileName(f.Name), contentType(f.ContentType), f.Content, f.ContentID})
	}
	if m.ID != "" {
		out.Tags = []apiTag{{MessageTag, m.ID}}
	}
	return json.Marshal(out)
}

// apiAddress encodes a valid address in ASCII.
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

// post makes the call and reads the response. It calls check before it sends parts of the body.
func (a *HTTPSender) post(ctx context.Context, body []byte, key string, check func() error) (id string, err error) {
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
	refused := GuardBody(req, body, check)
	transport := a.HTTP
	if transport == nil {
		transport = http.DefaultTransport
	}
	resp, err := transport.RoundTrip(req) // not an http.Client, which would follow redirects
	if cause := refused(); err != nil && cause != nil {
		return "", a.failed(Error{Op: OpContent, Temporary: true, Err: cause})
	}
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
	json.Unmarshal(said, &answer) // best effort
	if resp.StatusCode/100 == 2 && answer.ID == "" {
		// Usually another server's page: the mail must not get lost.
		return "", a.failed(Error{
			Op: OpContent, Code: resp.StatusCode, Temporary: true, Unclear: true, Text: "the response has no message id; check the API's address",
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

// refusal classifies a status and the provider's error name.
//
// Errors of the key or the API URL are not the mail's and will be fixed by the operator.
func refusal(status int, name string) Error {
	e := Error{Op: OpContent, Code: status}
	switch {
	case status == http.StatusUnauthorized, strings.Contains(name, "api_key"):
		e.Op = OpLogin
	case status == http.StatusForbidden, name == "invalid_from_address":
		e.Op = OpSender // usually an unverified domain
	case status == http.StatusConflict && name == "invalid_idempotent_request":
		// The key was used with another content: an earlier form of this message.
		e.Unclear = true
	case status == http.StatusConflict:
		// The same message is being processed.
		e.Unclear, e.Temporary = true, true
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e.Temporary = true
	case status >= 500, status == http.StatusRequestTimeout:
		e.Unclear, e.Temporary = true, true
	case status < 400, status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		e.Op, e.Temporary = OpConnect, true // not an answer of the API
	}
	return e
}

// failed completes an error.
func (a *HTTPSender) failed(e Error) *Error {
	e.Server, e.API = a.host, true
	if e.Err != nil && strings.Contains(e.Err.Error(), a.key()) {
		e.Err = errors.New(a.readable(e.Err.Error()))
	}
	return &e
}

// readable returns the provider's text as one printable line, without the key.
func (a *HTTPSender) readable(said string) string {
	said = strings.ReplaceAll(said, a.key(), "[redacted]")
	said = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(said, "\uFFFD"))
	return truncate(said, 500)
}
