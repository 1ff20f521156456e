// Package mailauthtest signs mails and serves DNS records for tests of mail proofs.
package mailauthtest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// Zone holds TXT records by lower-case name without a final dot.
type Zone map[string][]string

// Lookup implements mailproof.Lookup.
func (z Zone) Lookup(_ context.Context, name string) ([]string, error) {
	if records, ok := z[name]; ok {
		return records, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// Answers returns the zone's records of names, like a resolver.
func (z Zone) Answers(names []string) map[string][]string {
	found := make(map[string][]string)
	for _, n := range names {
		found[n] = z[n]
	}
	return found
}

// Signature describes a DKIM signature.
type Signature struct {
	Domain     string
	Selector   string        // default: "s1"
	Identifier string        // i=; may be empty
	Headers    []string      // default: DefaultHeaders
	Signer     crypto.Signer // default: [Key]
	Expires    time.Time
}

// DefaultHeaders are the fields that a careful sender signs; the fields that must not be added
// later are listed twice.
var DefaultHeaders = []string{
	"From", "From", "To", "To", "Cc", "Cc", "Subject", "Subject", "Date", "Message-ID", "Message-ID",
	"Reply-To", "Reply-To", "In-Reply-To", "In-Reply-To", "References", "References", "Content-Type", "MIME-Version",
}

// Key is the default signing key.
var Key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// KeyRecord is the record of [Key].
func KeyRecord() string {
	return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(Key.Public().(ed25519.PublicKey))
}

// Publish adds the record of [Key] for a domain, under the selector "s1".
func (z Zone) Publish(domain string) { z["s1._domainkey."+domain] = []string{KeyRecord()} }

// CRLF returns a mail with the line breaks of the wire.
func CRLF(raw string) string {
	return strings.ReplaceAll(strings.ReplaceAll(raw, "\r\n", "\n"), "\n", "\r\n")
}

// Sign returns a mail with a signature on top, with CRLF line breaks.
func Sign(t testing.TB, raw string, s Signature) string {
	t.Helper()
	if s.Selector == "" {
		s.Selector = "s1"
	}
	if s.Headers == nil {
		s.Headers = DefaultHeaders
	}
	if s.Signer == nil {
		s.Signer = Key
	}
	var signed bytes.Buffer
	if err := dkim.Sign(&signed, strings.NewReader(CRLF(raw)), &dkim.SignOptions{
		Domain: s.Domain, Selector: s.Selector, Identifier: s.Identifier, HeaderKeys: s.Headers, Signer: s.Signer, Expiration: s.Expires,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	return signed.String()
}

// SignPart returns a mail with a valid signature by [Key] that covers only the first length
// bytes of the body (l=), and the fields From and Subject.
func SignPart(t testing.TB, raw, domain string, length string) string {
	t.Helper()
	raw = CRLF(raw)
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	n := 0
	for _, c := range length {
		n = 10*n + int(c-'0')
	}
	sum := sha256.Sum256([]byte(body[:n]))
	field := "DKIM-Signature: v=1; a=ed25519-sha256; c=simple/simple; d=" + domain + "; s=s1; h=From:Subject; l=" + length +
		"; bh=" + base64.StdEncoding.EncodeToString(sum[:]) + "; b="
	var signed strings.Builder
	for _, name := range []string{"From: ", "Subject: "} {
		for line := range strings.SplitSeq(head, "\r\n") {
			if strings.HasPrefix(line, name) {
				signed.WriteString(line + "\r\n")
			}
		}
	}
	signed.WriteString(field)
	digest := sha256.Sum256([]byte(signed.String()))
	return field + base64.StdEncoding.EncodeToString(ed25519.Sign(Key, digest[:])) + "\r\n" + raw
}
