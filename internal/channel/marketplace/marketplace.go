// Package marketplace implements the channel of a marketplace that sends notifications about
// cancellation requests, order states and returns by Amazon's notification service (SNS).
//
// A notification becomes a [channel.Record]: the order, and, if the buyer requests something, a
// message in the order's thread. The marketplace does not identify the buyer, so the order
// represents them.
//
// # Verification
//
// There is no shared secret. The service signs with a certificate that it publishes at a URL in
// the message. In place of a secret, a connection has the name (ARN) of its topic, or the
// deployment [AnyTopic]. Topic names are not secret, so everything depends on the certificate
// being the service's: its URL must have exactly the service's form, character by character, in
// the region of the topic.
package marketplace

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// AnyTopic, in place of a secret, accepts every topic with a valid signature.
const AnyTopic = "*"

// tolerance is the maximum difference between a message's time and ours, either way. Retries
// keep the first time.
const tolerance = time.Hour

// CertificateStore provides the service's certificates.
type CertificateStore interface {
	// Fetch loads the certificate at a URL, if there is one. An error means that it is
	// temporarily unavailable.
	Fetch(ctx context.Context, address string) error
	// At returns the loaded certificate of a URL, or nil.
	At(address string) *x509.Certificate
	// Check returns the reason why the server at a URL cannot be reached.
	Check(ctx context.Context, address string) error
}

// Adapter implements the channel.
type Adapter struct{ certificates CertificateStore }

var (
	_ channel.Adapter           = (*Adapter)(nil)
	_ channel.AddressNormalizer = (*Adapter)(nil)
	_ channel.SecretResolver    = (*Adapter)(nil)
	_ channel.Preparer          = (*Adapter)(nil)
)

// New returns the channel.
func New(certificates CertificateStore) *Adapter { return &Adapter{certificates} }

// Info implements [channel.Adapter].
func (*Adapter) Info() channel.Info {
	return channel.Info{Name: "marketplace", TicketChannel: "marketplace", Path: "/api/marketplace/webhook", MaxBody: 1 << 20, SharedKey: true}
}

// topicForm matches a topic ARN.
var topicForm = regexp.MustCompile(`^arn:aws[a-z-]{0,20}:sns:([a-z]{2}(?:-[a-z]+)+-\d+):\d{12}:[A-Za-z0-9_-]{1,256}(?:\.fifo)?$`)

// NormalizeAddress implements [channel.AddressNormalizer]. An address is a topic ARN.
func (*Adapter) NormalizeAddress(raw string) (string, error) {
	if raw = strings.TrimSpace(raw); !topicForm.MatchString(raw) {
		return "", errors.New("must be the name of a topic, such as arn:aws:sns:us-east-1:123456789012:orders")
	}
	return raw, nil
}

// SigningSecrets implements [channel.SecretResolver]. Verify compares the topic in place of a
// secret; a connection was found by its topic, so any matches.
func (*Adapter) SigningSecrets(string, []string, channel.Credentials) []string {
	return []string{AnyTopic}
}

// The message types.
const (
	typeNotification = "Notification"
	typeSubscribe    = "SubscriptionConfirmation"
	typeUnsubscribe  = "UnsubscribeConfirmation"
)

// envelope holds the text members of an SNS message.
type envelope map[string]string

// parse decodes a body. A null member counts as absent; a signed member of another type makes
// the message invalid.
func parse(body []byte) (envelope, error) {
	var members map[string]any
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, fmt.Errorf("%w: not a JSON object", channel.ErrUnreadable)
	}
	e := make(envelope)
	for name, value := range members {
		text, ok := value.(string)
		switch {
		case ok:
			e[name] = text
		case value != nil && (slices.Contains(signedMembers(typeNotification), name) || slices.Contains(signedMembers(typeSubscribe), name)):
			return nil, fmt.Errorf("%w: %s is not a text", channel.ErrUnreadable, name)
		}
	}
	return e, nil
}

// signedMembers returns the members that a signature covers, in order.
func signedMembers(kind string) []string {
	if kind == typeNotification {
		return []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	}
	return []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
}

// canonical returns the signed text.
func (e envelope) canonical() []byte {
	var b strings.Builder
	for _, name := range signedMembers(e["Type"]) {
		if value, ok := e[name]; ok {
			b.WriteString(name + "\n" + value + "\n")
		}
	}
	return []byte(b.String())
}

// region returns the topic's region, or "".
func (e envelope) region() string {
	if m := topicForm.FindStringSubmatch(e["TopicArn"]); m != nil {
		return m[1]
	}
	return ""
}

// sent returns the time of the first attempt.
func (e envelope) sent() time.Time {
	at, err := time.Parse(time.RFC3339, e["Timestamp"])
	if err != nil {
		return time.Time{}
	}
	return at
}

// certificateURL returns the URL of r's certificate, or "" if other properties of r make its
// signature irrelevant.
func (e envelope) certificateURL(r *channel.Request) string {
	switch e["Type"] {
	case typeNotification, typeSubscribe, typeUnsubscribe:
	default:
		return ""
	}
	age := r.Received.Sub(e.sent())
	address := e["SigningCertURL"]
	switch {
	case raw(r): // unsigned
	case age.Truncate(time.Second).Abs() > tolerance:
	case e["SignatureVersion"] != "1" && e["SignatureVersion"] != "2":
	case e["MessageId"] == "" || e["Signature"] == "":
	case e.region() == "" || certificateRegion(address) != e.region():
	default:
		return address
	}
	return ""
}

// Addresses implements [channel.Adapter].
func (*Adapter) Addresses(r *channel.Request) ([]string, error) {
	switch r.MediaType() {
	case "text/plain", "application/json", "":
	default:
		return nil, channel.ErrContentType
	}
	e, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	if e.region() == "" {
		return nil, nil
	}
	return []string{e["TopicArn"]}, nil
}

// Prepare implements [channel.Preparer].
func (a *Adapter) Prepare(ctx context.Context, r *channel.Request) error {
	e, err := parse(r.Body)
	if err != nil {
		return nil
	}
	if address := e.certificateURL(r); address != "" {
		return a.certificates.Fetch(ctx, address)
	}
	return nil
}

// HeaderProof implements [channel.HeaderProver]. Raw deliveries are unsigned.
func (*Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	return channel.BodyDecidesIf(!raw(r))
}

// raw reports whether a message is delivered without its envelope.
func raw(r *channel.Request) bool {
	return strings.EqualFold(r.Header.Get("X-Amz-Sns-Rawdelivery"), "true")
}

// minKey is the minimum size of an RSA key in bits.
const minKey = 2048

// Verify implements [channel.Adapter]. secret is a topic ARN, or [AnyTopic].
func (a *Adapter) Verify(r *channel.Request, secret string) bool {
	e, err := parse(r.Body)
	if err != nil || secret == "" || secret != AnyTopic && secret != e["TopicArn"] {
		return false
	}
	address := e.certificateURL(r)
	if address == "" {
		return false
	}
	signature, err := base64.StdEncoding.DecodeString(e["Signature"])
	if err != nil {
		return false
	}
	certificate := a.certificates.At(address)
	if certificate == nil || r.Received.Before(certificate.NotBefore) || r.Received.After(certificate.NotAfter) {
		return false
	}
	key, ok := certificate.PublicKey.(*rsa.PublicKey)
	if !ok || key.N.BitLen() < minKey {
		return false
	}
	hash, sum := digest(e)
	return rsa.VerifyPKCS1v15(key, hash, sum, signature) == nil
}

// digest returns the digest to verify, by signature version; new topics still start with
// version 1.
func digest(e envelope) (crypto.Hash, []byte) {
	if e["SignatureVersion"] == "1" {
		sum := sha1.Sum(e.canonical())
		return crypto.SHA1, sum[:]
	}
	sum := sha256.Sum256(e.canonical())
	return crypto.SHA256, sum[:]
}

// Sign returns body, an SNS message, signed with the key of the certificate at a URL. Any other
// body is returned unchanged.
func Sign(body []byte, key *rsa.PrivateKey, certificateURL string) []byte {
	var members map[string]any
	e, err := parse(body)
	if err != nil || json.Unmarshal(body, &members) != nil {
		return body
	}
	version := cmp.Or(e["SignatureVersion"], "2")
	e["SignatureVersion"] = version
	hash, sum := digest(e)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, hash, sum)
	if err != nil {
		return body // the key is too small
	}
	members["SignatureVersion"], members["SigningCertURL"] = version, certificateURL
	members["Signature"] = base64.StdEncoding.EncodeToString(signature)
	signed, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return signed
}

// Split implements [channel.Adapter]. A request holds one message. Its key is the
// notification's own id, because a message may be duplicated several times on its way.
func (*Adapter) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	if e["MessageId"] == "" || e.region() == "" {
		return nil, fmt.Errorf("%w: a message needs MessageId and TopicArn", channel.ErrUnreadable)
	}
	p := channel.Part{Key: key("message:" + e["MessageId"]), Address: e["TopicArn"], Kind: key(e["Type"])}
	switch e["Type"] {
	case typeSubscribe, typeUnsubscribe:
		p.Setup = e["Type"] == typeSubscribe
		return []channel.Part{p}, nil
	case typeNotification:
	default:
		return nil, fmt.Errorf("%w: messages of the type %q are not known", channel.ErrUnreadable, key(e["Type"]))
	}
	n, err := readNotification(e)
	if err != nil {
		// A test message, or another use of the topic.
		p.Skip = true
		return []channel.Part{p}, nil
	}
	p.Kind = key(n.kind)
	if n.effect() == nothing {
		p.Skip = true
		return []channel.Part{p}, nil
	}
	if n.orderID == "" {
		return nil, fmt.Errorf("%w: a notification of the type %s names no order", channel.ErrUnreadable, p.Kind)
	}
	if n.id != "" {
		p.Key = key("notification:" + n.id)
	}
	p.Sender = orderKey(n.orderID)
	return []channel.Part{p}, nil
}

// Parse implements [channel.Adapter].
func (*Adapter) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	e, err := parse(r.Body)
	if err != nil {
		return channel.Event{}, err
	}
	switch e["Type"] {
	case typeSubscribe:
		return e.confirm()
	case typeUnsubscribe:
		return channel.Event{ConnectionEvent: &channel.ConnectionEvent{
			Kind: channel.Noticed,
			Text: "the topic " + key(e["TopicArn"]) + " no longer sends to this server: its subscription was removed. Create it again there",
		}}, nil
	}
	n, err := readNotification(e)
	if err != nil {
		return channel.Event{}, err
	}
	if n.effect() == nothing || n.orderID == "" {
		return channel.Event{}, fmt.Errorf("%w: notifications of the type %q mean nothing here", channel.ErrUnreadable, key(n.kind))
	}
	return channel.Event{Record: n.record(p.Key)}, nil
}

// confirm returns the confirmation of a subscription. The URL is signed, but must also have
// exactly the form of a confirmation.
func (e envelope) confirm() (channel.Event, error) {
	address := e["SubscribeURL"]
	m := serviceForm.FindStringSubmatch(address)
	u, err := url.Parse(address)
	if m == nil || m[2] != e.region() || err != nil {
		return channel.Event{}, fmt.Errorf("%w: SubscribeURL is not an address of the notification service in the topic's region", channel.ErrUnreadable)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || !slices.Equal(query["Action"], []string{"ConfirmSubscription"}) || !slices.Equal(query["TopicArn"], []string{e["TopicArn"]}) {
		return channel.Event{}, fmt.Errorf("%w: SubscribeURL does not confirm the subscription of the topic", channel.ErrUnreadable)
	}
	return channel.Event{URLConfirmation: &channel.URLConfirmation{URL: address, Hosts: []string{m[1]}}}, nil
}
