package email

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.CredentialTester = Writer{}
	_ channel.Sampler          = (*Form)(nil)
	_ channel.Sampler          = (*JSON)(nil)
	_ channel.Sampler          = (*Raw)(nil)
	_ channel.Sampler          = (*Delivery)(nil)
	_ channel.TestKeySampler   = (*Parsed)(nil)
)

// TestCall implements [channel.CredentialTester] for the delivery provider's API: it lists the
// domains. A mail server is tested by connecting to it.
func (Writer) TestCall(_ string, credentials channel.Credentials, answers []channel.Response, _ time.Time) (*channel.APIRequest, error) {
	key := credentials.Get(CredentialAPIKey)
	if key == "" {
		return nil, errors.New("the connection has no " + CredentialAPIKey)
	}
	if len(answers) == 0 {
		call := credentials.NewRequest(http.MethodGet, "/domains", http.Header{"Authorization": {"Bearer " + key}, "Accept": {"application/json"}}, nil)
		return &call, nil
	}
	a := answers[0]
	switch {
	case a.Status == http.StatusOK:
		return nil, nil
	case a.Status == http.StatusUnauthorized && strings.Contains(string(a.Body), "restricted"):
		return nil, nil // the key may only send
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden, a.Status == http.StatusBadRequest:
		return nil, fmt.Errorf("the delivery provider rejected the %s (%d)", CredentialAPIKey, a.Status)
	}
	return nil, fmt.Errorf("the delivery provider answered %d", a.Status)
}

// The sender of samples.
const sampleSender = "test@example.com"

// sampleMail returns a message to the connection.
func sampleMail(s *channel.Sample) []byte {
	return []byte("From: " + sampleSender + "\r\nTo: " + s.Address + "\r\nSubject: Test\r\nDate: " + s.At.Format(time.RFC1123Z) +
		"\r\nMessage-ID: <" + uuid.NewString() + "@example.com>\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nTest\r\n")
}

// Sample implements [channel.Sampler].
func (*Form) Sample(s channel.Sample) *channel.Request {
	token := strings.ReplaceAll(uuid.NewString(), "-", "")
	timestamp, signature := SignForm(token, s.At, s.Secret)
	form := url.Values{
		"timestamp": {timestamp}, "token": {token}, "signature": {signature}, "recipient": {s.Address}, "sender": {sampleSender},
		"from": {sampleSender}, "subject": {"Test"}, "body-mime": {string(sampleMail(&s))},
	}
	return s.NewRequest("application/x-www-form-urlencoded", []byte(form.Encode()))
}

// Sample implements [channel.Sampler].
func (*JSON) Sample(s channel.Sample) *channel.Request {
	body, _ := json.Marshal(map[string]any{ // strings do not fail
		"From": sampleSender, "To": s.Address, "OriginalRecipient": s.Address, "Subject": "Test", "MessageID": uuid.NewString(), "TextBody": "Test",
		"Date": s.At.Format(time.RFC1123Z), "Headers": []any{}, "Attachments": []any{}, "RawEmail": string(sampleMail(&s)),
	})
	r := s.NewRequest("application/json", body)
	r.Header.Set(TokenHeader, SignJSON(s.Secret))
	return r
}

// Sample implements [channel.Sampler].
func (*Raw) Sample(s channel.Sample) *channel.Request {
	raw := sampleMail(&s)
	r := s.NewRequest("message/rfc822", raw)
	signature, timestamp := SignRaw(raw, s.At, s.Secret)
	r.Header.Set("X-Envelope-From", sampleSender)
	r.Header.Set("X-Envelope-To", s.Address)
	r.Header.Set("X-Webhook-Timestamp", timestamp)
	r.Header.Set("X-Webhook-Signature", signature)
	return r
}

// Sample implements [channel.Sampler].
func (*Delivery) Sample(s channel.Sample) *channel.Request {
	at := s.At.UTC().Format(time.RFC3339Nano)
	body, _ := json.Marshal(map[string]any{"type": "email.received", "created_at": at, "data": map[string]any{ // they do not fail
		"email_id": uuid.NewString(), "created_at": at, "from": sampleSender, "to": []string{s.Address}, "subject": "Test", "message_id": "<" + uuid.NewString() + "@example.com>",
	}})
	id := uuid.NewString()
	r := s.NewRequest("application/json", body)
	signature, timestamp := SignDelivery(body, id, s.At, s.Secret)
	r.Header.Set(DeliveryIDHeader, id)
	r.Header.Set(DeliveryTimestampHeader, timestamp)
	r.Header.Set(DeliverySignatureHeader, signature)
	return r
}

// trialParsed is the channel with a key in place of those of connections.
type trialParsed struct {
	*Parsed
	key string // see [NewParseKey]
}

// SigningSecrets implements [channel.SecretResolver].
func (t *trialParsed) SigningSecrets(string, []string, channel.Credentials) []string {
	return []string{t.key}
}

// SampleByTestKey implements [channel.TestKeySampler].
func (a *Parsed) SampleByTestKey(s channel.Sample) (*channel.Request, channel.Adapter, error) {
	if err := a.CheckSecret(s.Secret); err != nil {
		return nil, nil, fmt.Errorf("the public key of the channel %w", err)
	}
	private, err := NewParseKey()
	if err != nil {
		return nil, nil, err
	}
	key, err := PrivateParseKey(private)
	if err != nil {
		return nil, nil, err
	}
	envelope, _ := json.Marshal(map[string]any{"from": sampleSender, "to": []string{s.Address}}) // strings do not fail
	var body bytes.Buffer
	form := multipart.NewWriter(&body) // a buffer does not fail
	for _, field := range [][2]string{
		{"envelope", string(envelope)}, {"to", s.Address}, {"from", sampleSender}, {"subject", "Test"}, {"sender_ip", "192.0.2.1"},
		{"SPF", "none"}, {"dkim", "none"}, {"charsets", `{"to":"UTF-8","subject":"UTF-8","from":"UTF-8"}`}, {"email", string(sampleMail(&s))},
	} {
		form.WriteField(field[0], field[1])
	}
	form.Close()
	r := s.NewRequest(form.FormDataContentType(), body.Bytes())
	signature, timestamp, err := SignParse(r.Body, s.At, key)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set(ParseSignatureHeader, signature)
	r.Header.Set(ParseTimestampHeader, timestamp)
	return r, &trialParsed{a, private}, nil
}
