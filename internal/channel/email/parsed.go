package email

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
)

// Parsed is the channel "email-parse" (style B): a provider that posts each mail as a form,
// with its fields, or raw if so configured.
//
// The secret is the provider's public key: base64 of its DER form, with or without PEM armour.
// For trials it may be a private key of ours; see [NewParseKey].
type Parsed struct{ style }

var (
	_ channel.Adapter           = (*Parsed)(nil)
	_ channel.AddressNormalizer = (*Parsed)(nil)
	_ channel.Recognizer        = (*Parsed)(nil)
	_ channel.MailComposer      = (*Parsed)(nil)
	_ channel.DNSVerifier       = (*Parsed)(nil)
	_ channel.SecretChecker     = (*Parsed)(nil)
	_ channel.ReplayTokenReader = (*Parsed)(nil)
)

// parsedMaxAge is the maximum difference between the signature's time and ours.
const parsedMaxAge = 5 * time.Minute

// The headers of style B's signature.
const (
	ParseSignatureHeader = "X-Provider-Email-Event-Webhook-Signature"
	ParseTimestampHeader = "X-Provider-Email-Event-Webhook-Timestamp"
)

// NewParsed returns the channel.
func NewParsed(c Config) *Parsed {
	return &Parsed{style{Writer: newWriter(c), name: "email-parse", parser: NewParser(c), open: openParsed}}
}

// Recognizes implements [channel.Recognizer].
func (*Parsed) Recognizes(r *channel.Request) bool {
	f, ok := readForm(r)
	return ok && f.has("envelope") && !f.has(signedFields...) && !f.has("message") && !f.has("body-mime")
}

// Verify implements [channel.Adapter]. The signature covers the raw body.
func (*Parsed) Verify(r *channel.Request, secret string) bool {
	signature, timestamp, ok := parsedSignature(r)
	if !ok {
		return false
	}
	key := publicKey(secret)
	return key != nil && ecdsa.VerifyASN1(key, parsedSum(timestamp, r.Body), signature)
}

// HeaderProof implements [channel.HeaderProver].
func (*Parsed) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, _, ok := parsedSignature(r)
	return channel.BodyDecidesIf(ok)
}

// parsedSignature returns the signature in the headers and its fresh time, or nil.
func parsedSignature(r *channel.Request) (signature []byte, timestamp string, ok bool) {
	timestamp = r.First(ParseTimestampHeader, "X-Twilio-Email-Event-Webhook-Timestamp")
	signature, err := base64.StdEncoding.DecodeString(r.First(ParseSignatureHeader, "X-Twilio-Email-Event-Webhook-Signature"))
	return signature, timestamp, err == nil && len(signature) > 0 && fresh(r, timestamp, parsedMaxAge)
}

// ReplayToken implements [channel.ReplayTokenReader]: the signature covers neither the content
// type with the boundary nor the URL.
func (*Parsed) ReplayToken(r *channel.Request) channel.ReplayToken {
	_, timestamp, ok := parsedSignature(r)
	if !ok {
		return channel.ReplayToken{}
	}
	at, _ := unixTime(timestamp)
	return channel.ReplayToken{Value: hex.EncodeToString(parsedSum(timestamp, r.Body)), Until: at.Add(parsedMaxAge), Signed: true}
}

// CheckSecret implements [channel.SecretChecker].
func (*Parsed) CheckSecret(secret string) error {
	if publicKey(secret) == nil {
		return errors.New("must be the provider's public key, of the curve P-256: base64 of its DER form, or PEM")
	}
	return nil
}

func parsedSum(timestamp string, body []byte) []byte {
	sum := sha256.New()
	sum.Write([]byte(timestamp))
	sum.Write(body)
	return sum.Sum(nil)
}

// publicKey parses the provider's key, or returns nil.
func publicKey(secret string) *ecdsa.PublicKey {
	if _, armoured, ok := strings.Cut(secret, "-----BEGIN PUBLIC KEY-----"); ok {
		secret, _, _ = strings.Cut(armoured, "-----END")
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(secret), ""))
	if err != nil {
		return nil
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		if own, err := PrivateParseKey(secret); err == nil {
			return &own.PublicKey
		}
		return nil
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil
	}
	return key
}

// NewParseKey generates a private key that replaces the provider's in trials: [PrivateParseKey]
// reads it, and as a secret its public half counts.
func NewParseKey() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(der), nil
}

// PrivateParseKey parses a private key. The error is the rest of a sentence and does not repeat
// it.
func PrivateParseKey(secret string) (*ecdsa.PrivateKey, error) {
	der, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
	parsed, err := x509.ParsePKCS8PrivateKey(der) // of no bytes, an error
	if err == nil {
		if key, ok := parsed.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
			return key, nil
		}
	}
	return nil, errors.New("must be a private key of the curve P-256, as PKCS #8 in base64 without line breaks, to sign with")
}

// SignParse returns the values of [ParseSignatureHeader] and [ParseTimestampHeader] for body.
func SignParse(body []byte, at time.Time, key *ecdsa.PrivateKey) (signature, timestamp string, err error) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	der, err := ecdsa.SignASN1(rand.Reader, key, parsedSum(timestamp, body))
	return base64.StdEncoding.EncodeToString(der), timestamp, err
}

// openParsed reads the fields of a mail.
func openParsed(r *channel.Request) (*source, error) {
	f, ok := readForm(r)
	switch {
	case !ok:
		return nil, channel.ErrContentType
	case !f.whole:
		return nil, errBrokenOff
	}
	s := &source{env: Envelope{Received: r.Received}}
	var e jsonEnvelope
	if json.Unmarshal(f.get("envelope"), &e) == nil {
		s.envelope(e)
	}
	// The provider's own result, unlike anything in the header.
	s.env.SPF, s.env.SPFDomain = string(f.get("SPF")), domainOf(s.env.From)
	if f.has("dkim") {
		s.env.DKIM = dkimPassed(string(f.get("dkim")))
	}
	if s.raw = f.get("email"); len(s.raw) > 0 {
		return s, s.requireBody()
	}
	var charsets dict[text]
	anyJSON(f.get("charsets"), &charsets)
	t := &receivedMessage{
		plain: body{f.get("text"), string(charsets["text"])},
		html:  body{f.get("html"), string(charsets["html"])},
	}
	t.fields = fieldsOf(f.get("headers"))
	for _, x := range [][2]string{{"From", "from"}, {"To", "to"}, {"Cc", "cc"}, {"Subject", "subject"}} {
		t.supply(x[0], mailparse.DecodeCharset(f.get(x[1]), string(charsets[x[1]]), "text/plain"))
	}
	ids := contentIDs(f.get("content-ids"))
	t.files = f.files("attachment", ids)
	var info dict[struct {
		FileName  text `json:"filename"`
		Name      text `json:"name"`
		Type      text `json:"type"`
		ContentID text `json:"content-id"`
	}]
	anyJSON(f.get("attachment-info"), &info)
	for i := range t.files {
		of := info[t.files[i].field]
		for _, v := range []struct {
			to   *string
			from text
		}{{&t.files[i].name, of.FileName}, {&t.files[i].name, of.Name}, {&t.files[i].contentType, of.Type}, {&t.files[i].contentID, of.ContentID}} {
			if *v.to == "" {
				*v.to = string(v.from)
			}
		}
	}
	s.taken = t
	return s, s.requireBody()
}

// dkimPassed parses the provider's DKIM results, like "{@client.example : pass, @relay.example
// : fail}", and returns the domains with a valid signature; never nil.
func dkimPassed(v string) []string {
	list := []string{}
	for item := range strings.SplitSeq(strings.Trim(strings.TrimSpace(v), "{}"), ",") {
		domain, result, _ := strings.Cut(item, ":")
		if domain = domainOf(strings.TrimSpace(domain)); domain != "" && strings.EqualFold(strings.TrimSpace(result), "pass") {
			list = append(list, domain)
		}
	}
	return list
}

// fieldsOf parses a raw header block, each field on one line.
func fieldsOf(block []byte) []headerField {
	var list []headerField
	var name string
	var value strings.Builder
	end := func() {
		if name != "" {
			list = append(list, headerField{name, strings.TrimSpace(value.String())})
		}
		name = ""
		value.Reset()
	}
	for line := range bytes.Lines(block[:min(len(block), mailparse.MaxHeader)]) {
		text := strings.TrimRight(string(line), "\r\n")
		if text != "" && (text[0] == ' ' || text[0] == '\t') {
			value.WriteString(text)
			continue
		}
		end()
		if before, after, ok := strings.Cut(text, ":"); ok {
			name = strings.TrimSpace(before)
			value.WriteString(after)
		}
	}
	end()
	return list
}
