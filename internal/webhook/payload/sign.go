package payload

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a delivery. Signed deliveries also carry the headers of Standard Webhooks
// (standardwebhooks.com, symmetric scheme v1).
const (
	headerSignature = "X-Service-Signature"
	headerEvent     = "X-Service-Event"
	headerDelivery  = "X-Service-Delivery"
	headerTest      = "X-Service-Test" // "true" on test deliveries

	headerStandardID        = "Webhook-Id"
	headerStandardTimestamp = "Webhook-Timestamp"
	headerStandardSignature = "Webhook-Signature"
)

// tolerance is the accepted difference between a delivery's timestamp and the receiver's clock.
const tolerance = 5 * time.Minute

// Signer signs with one secret.
type Signer struct {
	key      []byte // for the form's own signature
	standard []byte // for Standard Webhooks
}

// NewSigner returns the signer of a secret, in any format.
func NewSigner(secret string) *Signer {
	s := &Signer{key: []byte(secret)}
	s.standard = s.key
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err := standardKey(encoded); err == nil {
			s.standard = key
		}
	}
	return s
}

// NewSecret returns a secret in the format of Standard Webhooks: whsec_ and 32 random bytes in
// base64.
func NewSecret() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// macSize is the size of each MAC.
const macSize = sha256.Size

// formMAC appends the MAC of [headerSignature].
func (s *Signer) formMAC(to, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(body)
	return mac.Sum(to)
}

// ValidSecret reports whether a secret with the prefix of Standard Webhooks has a key. Other
// secrets are valid.
func ValidSecret(secret string) bool {
	encoded, standard := strings.CutPrefix(secret, "whsec_")
	key, err := standardKey(encoded)
	return !standard || err == nil && len(key) > 0
}

// standardKey decodes the part after whsec_, with or without padding.
func standardKey(encoded string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
}

// form returns the value of [headerSignature].
func (s *Signer) form(f Form, body []byte) string { return formText(f, s.formMAC(nil, body)) }

func formText(f Form, mac []byte) string {
	if f == Nested {
		return "sha256=" + hex.EncodeToString(mac)
	}
	return hex.EncodeToString(mac)
}

// version1MAC appends the MAC of one signature of [headerStandardSignature].
func (s *Signer) version1MAC(to []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.standard)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(to)
}

// version1 returns one signature of [headerStandardSignature].
func (s *Signer) version1(id, timestamp string, body []byte) string {
	return version1Text(s.version1MAC(nil, id, timestamp, body))
}

func version1Text(mac []byte) string { return "v1," + base64.StdEncoding.EncodeToString(mac) }

// Sign adds the signatures of a delivery to the headers of [Header], over the event's id among
// them. old may be nil. It returns the MACs with which [AddSignatures] adds the same signatures
// again.
func Sign(h http.Header, current, old *Signer, f Form, at time.Time, body []byte) (macs []byte) {
	eventID, timestamp := h[headerStandardID][0], unixText(at)
	macs = current.formMAC(make([]byte, 0, 3*macSize), body)
	macs = current.version1MAC(macs, eventID, timestamp, body)
	if old != nil {
		macs = old.version1MAC(macs, eventID, timestamp, body)
	}
	AddSignatures(h, f, at, macs)
	return macs
}

func unixText(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// AddSignatures adds signatures from MACs: the form's, and one or two of the standard.
func AddSignatures(h http.Header, f Form, at time.Time, macs []byte) {
	standard := version1Text(macs[macSize : 2*macSize])
	if len(macs) > 2*macSize {
		standard += " " + version1Text(macs[2*macSize:])
	}
	h[headerSignature] = []string{formText(f, macs[:macSize])}
	h[headerStandardTimestamp] = []string{unixText(at)}
	h[headerStandardSignature] = []string{standard}
}

// Errors of [Verify].
var (
	ErrUnsigned  = errors.New("the delivery is not signed")
	ErrSignature = errors.New("the signature does not match the body and the secret")
	ErrTimestamp = errors.New("the signature's timestamp is more than 5 minutes off")
)

// Verify verifies a delivery for a receiver: it checks the signatures of [Standard Webhooks]
// and of the payload form over the raw body, and returns the form. A replaced secret verifies
// during the overlap of secrets, although the form's own header is signed with the new secret only.
//
// [Standard Webhooks]: https://www.standardwebhooks.com
func Verify(h http.Header, body []byte, secret string, now time.Time) (Form, error) {
	formSignature := h.Get(headerSignature)
	id, timestamp := h.Get(headerStandardID), h.Get(headerStandardTimestamp)
	if formSignature == "" || id == "" || timestamp == "" || h.Get(headerStandardSignature) == "" {
		return "", ErrUnsigned
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return "", ErrSignature
	}
	s := NewSigner(secret)
	want := s.version1(id, timestamp, body)
	matched := -1
	for i, got := range strings.Fields(h.Get(headerStandardSignature)) {
		if hmac.Equal([]byte(got), []byte(want)) {
			matched = i
			break
		}
	}
	if matched < 0 {
		return "", ErrSignature
	}
	// Comparing a difference of seconds cannot overflow.
	if off := now.Unix() - seconds; seconds < 0 || off > int64(tolerance/time.Second) || off < -int64(tolerance/time.Second) {
		return "", ErrTimestamp
	}
	form := Flat
	if strings.HasPrefix(formSignature, "sha256=") {
		form = Nested
	}
	// The new secret's signature comes first.
	if matched == 0 && !hmac.Equal([]byte(formSignature), []byte(s.form(form, body))) {
		return "", ErrSignature
	}
	return form, nil
}

// StandardID is the header with the id of a delivery by Standard Webhooks.
const StandardID = headerStandardID

// SignStandard adds the headers of Standard Webhooks alone, with a signature of each secret.
func SignStandard(h http.Header, id string, at time.Time, body []byte, secrets []string) {
	timestamp := unixText(at)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = NewSigner(secret).version1(id, timestamp, body)
	}
	h.Set(headerStandardID, id)
	h.Set(headerStandardTimestamp, timestamp)
	h.Set(headerStandardSignature, strings.Join(signatures, " "))
}

// HasStandard reports whether the headers of Standard Webhooks are complete and fresh.
func HasStandard(h http.Header, now time.Time) bool {
	return h.Get(headerStandardID) != "" && h.Get(headerStandardSignature) != "" && checkTimestamp(h.Get(headerStandardTimestamp), now) == nil
}

// VerifyStandard verifies the headers of Standard Webhooks alone. Errors: [ErrUnsigned],
// [ErrSignature], [ErrTimestamp].
func VerifyStandard(h http.Header, body []byte, secret string, now time.Time) error {
	id, timestamp, signatures := h.Get(headerStandardID), h.Get(headerStandardTimestamp), h.Get(headerStandardSignature)
	if id == "" || timestamp == "" || signatures == "" {
		return ErrUnsigned
	}
	want := []byte(NewSigner(secret).version1(id, timestamp, body))
	for got := range strings.FieldsSeq(signatures) {
		if hmac.Equal([]byte(got), want) {
			return checkTimestamp(timestamp, now)
		}
	}
	return ErrSignature
}

// checkTimestamp checks the time of a signature. Its text has one form only.
func checkTimestamp(text string, now time.Time) error {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != text {
		return ErrSignature
	}
	// Comparing a difference of seconds cannot overflow.
	if off := now.Unix() - seconds; seconds < 0 || off > int64(tolerance/time.Second) || off < -int64(tolerance/time.Second) {
		return ErrTimestamp
	}
	return nil
}
