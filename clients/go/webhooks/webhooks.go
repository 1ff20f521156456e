// Package webhooks verifies deliveries of webhooks.
//
// A receiver reads the whole body, verifies it with [Verify], answers 2xx, and does its work
// afterwards. The same event may arrive more than once: its ID is the same each time.
package webhooks

import (
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
	"github.com/kickstand-dev/kickstand/clients/go/internal/signing"
)

// Errors of a delivery that is refused.
var (
	ErrUnsigned  = errors.New("kickstand: the delivery has no signature")
	ErrSignature = errors.New("kickstand: the signature does not match the body and the secret")
	ErrTimestamp = errors.New("kickstand: the timestamp of the signature is too old or too new")
)

// Name is the name of an event.
type Name string

// Form is the form of a delivery's body.
type Form string

// The forms of a body. The server sends FormB unless the webhook says otherwise.
const (
	FormA Form = "a"
	FormB Form = "b"
)

// Event is the event of a delivery.
type Event struct {
	ID   string // in form A of the header Webhook-Id, "" without it
	Name Name
	At   time.Time // when it happened
	// Data is a pointer to the type of the event's data, such as
	// *kickstand.EventTicketCreatedData or, of a webhook of the fleet,
	// *kickstand.FleetEventRideCompletedData. In form A, and of data that this version does not
	// know, it is a [json.RawMessage].
	Data any

	raw json.RawMessage
}

// Raw returns the body.
func (e *Event) Raw() json.RawMessage { return e.raw }

// Verifier verifies deliveries. Goroutines may share it.
type Verifier struct {
	// Secrets are the secrets of the webhook. A delivery matches one of them.
	Secrets []string
	// Source is the source of the webhook. It decides which types [Event.Data] has: the helpdesk
	// and the fleet both have an event customer.created. "": the helpdesk.
	Source kickstand.WebhookSource
	// Tolerance is the longest difference between a delivery's timestamp and the clock.
	// 0: five minutes.
	Tolerance time.Duration
	// Now returns the time. nil: [time.Now].
	Now func() time.Time
}

// Verify verifies a delivery with the webhook's secret, and returns its event. It is the
// method [Verifier.Verify] with the default tolerance.
func Verify(body []byte, header http.Header, secret string) (*Event, error) {
	return (&Verifier{Secrets: []string{secret}}).Verify(body, header)
}

// Verify checks the signature of Standard Webhooks and its timestamp, and returns the event. body
// has the bytes as received.
func (v *Verifier) Verify(body []byte, header http.Header) (*Event, error) {
	id, timestamp, signatures := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), header.Get("Webhook-Signature")
	if id == "" || timestamp == "" || signatures == "" {
		return nil, ErrUnsigned
	}
	matches := func(secret string) bool {
		want := []byte(signing.Standard(secret, id, timestamp, body))
		matched := false
		for got := range strings.FieldsSeq(signatures) {
			matched = hmac.Equal([]byte(got), want) || matched
		}
		return matched
	}
	if err := v.check(matches); err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseUint(timestamp, 10, 53)
	if err != nil {
		return nil, ErrSignature
	}
	now, tolerance := time.Now, v.Tolerance
	if v.Now != nil {
		now = v.Now
	}
	if tolerance == 0 {
		tolerance = 5 * time.Minute
	}
	if off := now().Sub(time.Unix(int64(seconds), 0)).Abs().Truncate(time.Second); off > tolerance {
		return nil, ErrTimestamp
	}
	return v.event(body, id)
}

// VerifyBody checks the header X-Service-Signature, which signs the body alone: a recorded
// delivery can be sent again at any time. Prefer [Verifier.Verify].
func (v *Verifier) VerifyBody(body []byte, header http.Header, form Form) (*Event, error) {
	got := header.Get("X-Service-Signature")
	if got == "" {
		return nil, ErrUnsigned
	}
	matches := func(secret string) bool {
		return hmac.Equal([]byte(got), []byte(signing.Body(secret, form == FormB, body)))
	}
	if err := v.check(matches); err != nil {
		return nil, err
	}
	return v.event(body, header.Get("Webhook-Id"))
}

// check reports whether the source is known and one of the secrets matches.
func (v *Verifier) check(matches func(secret string) bool) error {
	switch v.Source {
	case "", kickstand.WebhookSourceHelpdesk, kickstand.WebhookSourceFleet, kickstand.WebhookSourceSandbox:
	default:
		return fmt.Errorf("kickstand: the source %q is unknown", v.Source)
	}
	matched := false
	for _, secret := range v.Secrets {
		if secret == "" || strings.HasPrefix(secret, "whsec_") && strings.TrimRight(secret, "=") == "whsec_" {
			return errors.New("kickstand: the secret of the webhook is empty")
		}
		matched = matches(secret) || matched
	}
	if !matched {
		return ErrSignature
	}
	return nil
}

// event decodes a body in either form.
func (v *Verifier) event(body []byte, id string) (*Event, error) {
	var in struct {
		ID        string          `json:"id"`
		Event     Name            `json:"event"`
		CreatedAt time.Time       `json:"created_at"`
		Timestamp *time.Time      `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("kickstand: decode the event: %w", err)
	}
	if in.Event == "" {
		return nil, errors.New("kickstand: the delivery is signed, but is not an event")
	}
	e := &Event{ID: in.ID, Name: in.Event, At: in.CreatedAt, Data: in.Data, raw: append(json.RawMessage(nil), body...)}
	if in.Timestamp != nil { // form A
		e.At = *in.Timestamp
	} else if data := v.dataOf(in.Event); data != nil && json.Unmarshal(in.Data, data) == nil {
		e.Data = data
	}
	if e.ID == "" {
		e.ID = id
	}
	return e, nil
}

// dataOf returns a pointer to the type of an event's data, or nil if it is not known.
func (v *Verifier) dataOf(n Name) any {
	if v.Source == kickstand.WebhookSourceFleet || v.Source == kickstand.WebhookSourceSandbox {
		return fleetData(n)
	}
	return helpdeskData(n)
}
