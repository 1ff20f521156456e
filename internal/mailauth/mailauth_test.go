package mailauth_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailauth/mailauthtest"
)

const plainMail = "From: Ana <ana@client.example>\nTo: help@acme.example\nSubject: Lamp\nDate: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <a1@client.example>\n\nIt is broken.\n"

// input splits a raw mail.
func input(raw string) mailauth.Mail {
	head, body, _ := strings.Cut(mailauthtest.CRLF(raw), "\r\n\r\n")
	return mailauth.Mail{
		Head: []byte(head + "\r\n"), Body: []byte(body), Intact: true, Author: "ana@client.example",
		Trusted: []string{"mx.acme.example"}, Received: time.Now(),
	}
}

// zone holds only client.example's key.
func zone() mailauthtest.Zone {
	z := mailauthtest.Zone{}
	z.Publish("client.example")
	return z
}

func decide(m mailauth.Mail, z mailauthtest.Zone) mailauth.Result {
	c := mailauth.New(m)
	return c.Verdict(z.Answers(c.Names()))
}

func sign(t *testing.T, raw string, s mailauthtest.Signature) string {
	t.Helper()
	if s.Domain == "" {
		s.Domain = "client.example"
	}
	return mailauthtest.Sign(t, raw, s)
}

func TestSignedMail(t *testing.T) {
	replace := func(old, new string) string { return strings.Replace(plainMail, old, new, 1) }
	signed := sign(t, plainMail, mailauthtest.Signature{})
	for _, tt := range []struct {
		name    string
		raw     string
		author  string // ana@client.example by default
		zone    func(z mailauthtest.Zone)
		verdict mailauth.Verdict
		reason  string
	}{
		{"signed", signed, "", nil, mailauth.Proven, "DKIM signature of client.example matches the From address"},
		{"not signed", plainMail, "", nil, mailauth.Unproven, "there is no DKIM signature of client.example, and no trusted server reports SPF"},
		{"another text", strings.Replace(signed, "broken", "fixed", 1), "", nil, mailauth.Unproven, "the DKIM signature of client.example does not match: the text was changed after it was signed"},
		{"another subject", strings.Replace(signed, "Subject: Lamp", "Subject: Refund", 1), "", nil, mailauth.Unproven, "the DKIM signature of client.example does not match: the header was changed after it was signed, or the key is another"},
		{"folded anew", strings.Replace(signed, "Subject: Lamp", "Subject:  \r\n Lamp", 1), "", nil, mailauth.Proven, ""},
		{"line breaks of Unix", strings.ReplaceAll(signed, "\r\n", "\n"), "", nil, mailauth.Proven, ""},
		{"by a stranger", sign(t, plainMail, mailauthtest.Signature{Domain: "evil.example"}), "", func(z mailauthtest.Zone) { z.Publish("evil.example") }, mailauth.Unproven, "there is no DKIM signature of client.example, and no trusted server reports SPF"},
		{"by a stranger and by the sender", sign(t, signed, mailauthtest.Signature{Domain: "evil.example"}), "", nil, mailauth.Proven, ""},
		{"by a subdomain", sign(t, plainMail, mailauthtest.Signature{Domain: "mail.client.example"}), "", func(z mailauthtest.Zone) { z.Publish("mail.client.example") }, mailauth.Proven, "DKIM signature of mail.client.example matches the From address"},
		{"by a subdomain, strict", sign(t, plainMail, mailauthtest.Signature{Domain: "mail.client.example"}), "", func(z mailauthtest.Zone) {
			z.Publish("mail.client.example")
			z["_dmarc.client.example"] = []string{"v=DMARC1; p=none; adkim=s"}
		}, mailauth.Unproven, "client.example accepts no proof by mail.client.example (strict DMARC alignment)"},
		{"for a subdomain, strict by the parent's policy", sign(t, replace("ana@client", "ana@mail.client"), mailauthtest.Signature{}), "ana@mail.client.example", func(z mailauthtest.Zone) {
			z["_dmarc.client.example"] = []string{"v=DMARC1; p=none; adkim=s"}
		}, mailauth.Unproven, "mail.client.example accepts no proof by client.example (strict DMARC alignment)"},
		{"for a subdomain, by its own policy", sign(t, replace("ana@client", "ana@mail.client"), mailauthtest.Signature{}), "ana@mail.client.example", func(z mailauthtest.Zone) {
			z["_dmarc.mail.client.example"] = []string{"v=DMARC1; p=none"}
			z["_dmarc.client.example"] = []string{"v=DMARC1; p=none; adkim=s"}
		}, mailauth.Proven, ""},
		{"two policies are none", sign(t, plainMail, mailauthtest.Signature{Domain: "mail.client.example"}), "", func(z mailauthtest.Zone) {
			z.Publish("mail.client.example")
			z["_dmarc.client.example"] = []string{"v=DMARC1; p=none; adkim=s", "v=DMARC1; p=none; adkim=s"}
		}, mailauth.Proven, ""},
		{"by a neighbour under a public suffix", sign(t, strings.ReplaceAll(plainMail, "client.example", "client.co.uk"), mailauthtest.Signature{Domain: "evil.co.uk"}), "ana@client.co.uk", func(z mailauthtest.Zone) { z.Publish("evil.co.uk") }, mailauth.Unproven, ""},
		{"by a public suffix", sign(t, strings.ReplaceAll(plainMail, "client.example", "client.co.uk"), mailauthtest.Signature{Domain: "co.uk"}), "ana@client.co.uk", func(z mailauthtest.Zone) { z.Publish("co.uk") }, mailauth.Unproven, "there is no DKIM signature of client.co.uk, and no trusted server reports SPF"},
		{"from a public suffix", sign(t, strings.ReplaceAll(plainMail, "client.example", "co.uk"), mailauthtest.Signature{Domain: "co.uk"}), "ana@co.uk", func(z mailauthtest.Zone) { z.Publish("co.uk") }, mailauth.Unproven, "the domain of the From address is a public suffix or invalid"},
		{"in capitals", sign(t, replace("ana@client.example", "Ana@Client.EXAMPLE"), mailauthtest.Signature{Domain: "CLIENT.example"}), "Ana@Client.EXAMPLE", nil, mailauth.Proven, ""},
		{"international name", sign(t, strings.ReplaceAll(plainMail, "client.example", "bücher.example"), mailauthtest.Signature{Domain: "xn--bcher-kva.example"}), "ana@bücher.example", func(z mailauthtest.Zone) { z.Publish("xn--bcher-kva.example") }, mailauth.Proven, "DKIM signature of xn--bcher-kva.example matches the From address"},
		{"name that looks the same", sign(t, strings.ReplaceAll(plainMail, "client.example", "clіent.example"), mailauthtest.Signature{}), "ana@clіent.example", nil, mailauth.Unproven, ""},
		{"expired", strings.Replace(signed, "DKIM-Signature:", "DKIM-Signature: x=1000000000;", 1), "", nil, mailauth.Unproven, "the DKIM signature of client.example has expired"},
		{"key revoked", signed, "", func(z mailauthtest.Zone) { z["s1._domainkey.client.example"] = []string{"v=DKIM1; k=ed25519; p="} }, mailauth.Unproven, "the DKIM signature of client.example uses a key that was revoked"},
		{"no key", signed, "", func(z mailauthtest.Zone) { delete(z, "s1._domainkey.client.example") }, mailauth.Unproven, "the DKIM signature of client.example names a key that is not published"},
		{"key in testing mode", signed, "", func(z mailauthtest.Zone) {
			z["s1._domainkey.client.example"] = []string{mailauthtest.KeyRecord() + "; t=s:y"}
		}, mailauth.Unproven, "the DKIM signature of client.example uses a key that is marked as a test (t=y)"},
		{"key for no subdomain", sign(t, plainMail, mailauthtest.Signature{Identifier: "ana@mail.client.example"}), "", func(z mailauthtest.Zone) {
			z["s1._domainkey.client.example"] = []string{mailauthtest.KeyRecord() + "; t=s"}
		}, mailauth.Unproven, "the DKIM signature of client.example is for a subdomain, which its key does not allow"},
		{"key of no end", signed, "", func(z mailauthtest.Zone) {
			z["s1._domainkey.client.example"] = []string{mailauthtest.KeyRecord() + "; n=" + strings.Repeat("x", 2048)}
		}, mailauth.Unproven, "the DKIM signature of client.example uses a key that is too long"},
		{"subject not covered", sign(t, plainMail, mailauthtest.Signature{Headers: []string{"From", "To"}}), "", nil, mailauth.Unproven, "the DKIM signature of client.example does not cover the subject"},
		{"malformed", "DKIM-Signature: v=1; d=client.example; d=client.example; s=s1; h=From\r\n" + plainMail, "", nil, mailauth.Unproven, "the DKIM signature of client.example is malformed"},
		{"no From", replace("From:", "Via:"), "", nil, mailauth.Unproven, "the mail has no From header"},
		{"very many signatures", strings.Repeat("DKIM-Signature: v=1; d=client.example; s=s1; h=From\r\n", 21) + plainMail, "", nil, mailauth.Unproven, "the mail has 21 DKIM signatures, which is too many to check, and no trusted server reports SPF"},
		{"endless header", strings.Repeat("X: y\r\n", 4001) + signed, "", nil, mailauth.Unproven, "the header is too large to be checked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, z := input(tt.raw), zone()
			if tt.author != "" {
				m.Author = tt.author
			}
			if tt.zone != nil {
				tt.zone(z)
			}
			r := decide(m, z)
			if r.Verdict != tt.verdict || tt.reason != "" && r.Reason != tt.reason || r.Reason == "" {
				t.Errorf("got %s: %q, want %s: %q", r.Verdict, r.Reason, tt.verdict, tt.reason)
			}
		})
	}
}

// TestWeakKey: a signature by a weak RSA key proves nothing.
func TestWeakKey(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	for bits, want := range map[int]mailauth.Verdict{768: mailauth.Unproven, 1024: mailauth.Proven} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		z := zone()
		z["s2._domainkey.client.example"] = []string{"v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(public)}
		r := decide(input(sign(t, plainMail, mailauthtest.Signature{Selector: "s2", Signer: key})), z)
		if r.Verdict != want || bits == 768 && r.Reason != "the DKIM signature of client.example uses a key of less than 1024 bits" {
			t.Errorf("%d bits: %+v, want %s", bits, r, want)
		}
	}
}

// TestDKIMLengthTag: a signature over the first part of the body allows anyone to append to it.
func TestDKIMLengthTag(t *testing.T) {
	raw := mailauthtest.SignPart(t, plainMail, "client.example", "15")
	for _, text := range []string{raw, raw + "Pay to this account instead.\r\n"} {
		m := input(text)
		r := decide(m, zone())
		if r.Verdict != mailauth.Unproven || r.Reason != "the DKIM signature of client.example covers only the beginning of the text (l=)" {
			t.Errorf("got %+v", r)
		}
		// DMARC would accept the signature, so the domain does not disown the mail.
		z := zone()
		z["_dmarc.client.example"] = []string{"v=DMARC1; p=reject"}
		m.SPF = "fail"
		if r := decide(m, z); r.Verdict != mailauth.Unproven {
			t.Errorf("with a policy: %+v", r)
		}
	}
}

// TestTwoFromHeaders: a signature covers the lower From, and mail programs show the upper.
func TestTwoFromHeaders(t *testing.T) {
	loose := sign(t, plainMail, mailauthtest.Signature{Headers: []string{"From", "Subject", "Date"}})
	for name, tt := range map[string]struct{ raw, author string }{
		"one above":               {"From: boss@acme.example\r\n" + loose, "boss@acme.example"},
		"one above, by its lower": {"From: boss@acme.example\r\n" + loose, "ana@client.example"},
		"one below":               {strings.Replace(loose, "Date:", "From: boss@acme.example\r\nDate:", 1), "ana@client.example"},
		"in other letters":        {"FROM : boss@acme.example\r\n" + loose, "boss@acme.example"},
		"two addresses":           {sign(t, strings.Replace(plainMail, "Ana <ana@client.example>", "ana@client.example, boss@acme.example", 1), mailauthtest.Signature{}), "ana@client.example"},
		"a group":                 {sign(t, strings.Replace(plainMail, "Ana <ana@client.example>", "x: ana@client.example;", 1), mailauthtest.Signature{}), "ana@client.example"},
		"two in brackets":         {sign(t, strings.Replace(plainMail, "Ana <ana@client.example>", "<boss@acme.example> <ana@client.example>", 1), mailauthtest.Signature{}), "ana@client.example"},
		"read in another way":     {loose, "boss@acme.example"},
		"quoted local part":       {sign(t, strings.Replace(plainMail, "Ana <ana@client.example>", `"boss@acme.example"@client.example`, 1), mailauthtest.Signature{}), `"boss@acme.example"@client.example`},
	} {
		m := input(tt.raw)
		m.Author = tt.author
		if r := decide(m, zone()); r.Verdict != mailauth.Unproven || !strings.Contains(r.Reason, "From") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestRepeatedHeader: a field added above a signed one is shown in its place, unless the
// signature prevents it.
func TestRepeatedHeader(t *testing.T) {
	loose := sign(t, plainMail, mailauthtest.Signature{Headers: []string{"From", "Subject", "Message-ID"}})
	r := decide(input("Subject: [Ticket #1]\r\n"+loose), zone())
	if r.Verdict != mailauth.Unproven || r.Reason != "the DKIM signature of client.example covers only one of several Subject headers" {
		t.Errorf("got %+v", r)
	}
	if r := decide(input("Message-Id: <other@x>\r\n"+loose), zone()); r.Verdict != mailauth.Unproven || !strings.Contains(r.Reason, "Message-ID") {
		t.Errorf("got %+v", r)
	}
	// Signed once more than present, no field can be added.
	tight := sign(t, plainMail, mailauthtest.Signature{})
	if r := decide(input("Subject: [Ticket #1]\r\n"+tight), zone()); r.Verdict != mailauth.Unproven {
		t.Errorf("oversigned: %+v", r)
	}
	// Two signed fields are both the sender's.
	two := sign(t, strings.Replace(plainMail, "To:", "To: x@acme.example\nTo:", 1), mailauthtest.Signature{})
	if r := decide(input(two), zone()); r.Verdict != mailauth.Proven || !r.Covers("to") {
		t.Errorf("two signed ones: %+v", r)
	}
	// A trusted server's result does not list the fields that the signature covers.
	m := input("Subject: [Ticket #1]\r\n" + "Authentication-Results: mx.acme.example; dkim=pass header.d=client.example\r\n" + loose)
	m.Intact = false
	if r := decide(m, nil); r.Verdict != mailauth.Unproven || r.Reason != "the mail has more than one Subject header, so that programs may show different ones" {
		t.Errorf("by a trusted server: %+v", r)
	}
}

// TestFoldedLetters: fields with names that fold to a signature's must not shift which result
// belongs to which.
func TestFoldedLetters(t *testing.T) {
	stranger := sign(t, plainMail, mailauthtest.Signature{Domain: "evil.example"})
	stranger = strings.Replace(stranger, "DKIM-Signature", "DKIM-\u017fignature", 1)
	claimed := "DKIM-Signature: v=1; a=ed25519-sha256; d=client.example; s=s1; h=From:Subject; bh=AAAA; b=AAAA\r\n"
	z := zone()
	z.Publish("evil.example")
	if r := decide(input(stranger[:strings.Index(stranger, "From:")]+claimed+mailauthtest.CRLF(plainMail)), z); r.Verdict == mailauth.Proven {
		t.Errorf("got %+v", r)
	}
}

// TestUncoveredHeaders: a replayed mail with additional fields stays proven, but the proof does
// not include them.
func TestUncoveredHeaders(t *testing.T) {
	loose := sign(t, plainMail, mailauthtest.Signature{Headers: []string{"From", "Subject", "To"}})
	r := decide(input("In-Reply-To: <secret@acme.example>\r\nReply-To: eve@evil.example\r\nCc: eve@evil.example\r\n"+loose), zone())
	if !r.Proven() || !r.Covers() || !r.Covers("to", "references") || r.Covers("reply-to") || r.Covers("to", "cc") || r.Covers("in-reply-to") || r.Covers("message-id") {
		t.Errorf("got %+v", r)
	}
	tight := sign(t, "Reply-To: ana@private.example\n"+plainMail, mailauthtest.Signature{})
	if r := decide(input(tight), zone()); !r.Covers("reply-to", "to", "cc", "in-reply-to", "references", "message-id") {
		t.Errorf("oversigned: %+v", r)
	}
	for name, result := range map[string]string{
		"a trusted server, DKIM":  "dkim=pass header.d=client.example",
		"a trusted server, DMARC": "dmarc=pass header.from=client.example",
	} {
		field := "Authentication-Results: mx.acme.example; " + result + "\r\n"
		if r := decide(input(field+"Reply-To: eve@evil.example\r\n"+loose), zone()); !r.Proven() || r.Covers("reply-to") {
			t.Errorf("%s: %+v", name, r)
		}
		if r := decide(input(field+tight), zone()); !r.Covers("reply-to") {
			t.Errorf("%s, oversigned: %+v", name, r)
		}
	}
	// SPF covers a mail as a whole.
	spf := "Authentication-Results: mx.acme.example; spf=pass smtp.mailfrom=client.example\r\n"
	if r := decide(input(spf+"Reply-To: eve@evil.example\r\n"+plainMail), zone()); !r.Covers("reply-to") {
		t.Errorf("SPF: %+v", r)
	}
	if (mailauth.Result{}).Covers() || (mailauth.Result{Verdict: mailauth.Unproven}).Covers() {
		t.Error("an unproven mail covers something")
	}
}

// TestUntrustedAuthenticationResults: anyone can write the header.
func TestUntrustedAuthenticationResults(t *testing.T) {
	for name, tt := range map[string]struct {
		fields string
		want   mailauth.Verdict
	}{
		"of a stranger":       {"Authentication-Results: mx.evil.example; dkim=pass header.d=client.example; dmarc=pass header.from=client.example", mailauth.Unproven},
		"of a similar name":   {"Authentication-Results: mx.acme.example.evil.example; dmarc=pass header.from=client.example", mailauth.Unproven},
		"in a comment":        {"Authentication-Results: mx.evil.example (mx.acme.example; dmarc=pass); dmarc=pass header.from=client.example", mailauth.Unproven},
		"in its own comment":  {`Authentication-Results: mx.acme.example; spf=fail (said: ; dmarc=pass header.from=client.example) smtp.mailfrom=evil.example`, mailauth.Unproven},
		"in its own quotes":   {`Authentication-Results: mx.acme.example; spf=fail smtp.mailfrom="a; dmarc=pass header.from=client.example"@evil.example`, mailauth.Unproven},
		"of nobody":           {"Authentication-Results: ; dmarc=pass header.from=client.example", mailauth.Unproven},
		"of the trusted one":  {"Authentication-Results: MX.acme.example; dmarc=pass header.from=client.example", mailauth.Proven},
		"below the trusted":   {"Authentication-Results: mx.acme.example; dmarc=none\r\nAuthentication-Results: mx.acme.example; dmarc=pass header.from=client.example", mailauth.Unproven},
		"a provider's header": {"X-Mailgun-Spf: Pass\r\nX-Mailgun-Dkim-Check-Result: Pass\r\nReceived-SPF: pass identity=mailfrom; envelope-from=ana@client.example", mailauth.Unproven},
		"dmarc of another":    {"Authentication-Results: mx.acme.example; dmarc=pass header.from=evil.example", mailauth.Unproven},
		"disowned":            {"Authentication-Results: mx.acme.example; dmarc=fail header.from=client.example; dkim=pass header.d=client.example", mailauth.Failed},
		"disowned by another": {"Authentication-Results: mx.evil.example; dmarc=fail header.from=client.example", mailauth.Unproven},
	} {
		if r := decide(input(tt.fields+"\r\n"+plainMail), zone()); r.Verdict != tt.want {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
	}
}

// TestARCOnlyFromTrusted: anyone can build an intact ARC chain. It counts by the seal of a
// trusted server, if a trusted server found it intact.
func TestARCOnlyFromTrusted(t *testing.T) {
	const (
		intact = "Authentication-Results: mx.acme.example; arc=pass; dkim=fail header.d=client.example\r\n"
		claim  = "ARC-Authentication-Results: i=1; mx.hub.example; dkim=pass header.d=client.example; spf=pass smtp.mailfrom=client.example\r\n"
		seal   = "ARC-Seal: i=1; a=rsa-sha256; cv=none; d=hub.example; s=arc; b=AAAA\r\n"
	)
	for name, tt := range map[string]struct {
		fields string
		want   mailauth.Verdict
	}{
		"by the trusted server":       {intact + seal + claim, mailauth.Proven},
		"of a server not trusted":     {intact + strings.ReplaceAll(seal+claim, "hub.example", "evil.example"), mailauth.Unproven},
		"in its name, sealed by Eve":  {intact + strings.ReplaceAll(seal, "hub.example", "evil.example") + claim, mailauth.Unproven},
		"without a seal":              {intact + claim, mailauth.Unproven},
		"sealed at another hop":       {intact + strings.Replace(seal, "i=1", "i=2", 1) + claim, mailauth.Unproven},
		"sealed twice":                {intact + seal + strings.ReplaceAll(seal, "hub.example", "evil.example") + claim, mailauth.Unproven},
		"sealed twice, last rightly":  {intact + strings.ReplaceAll(seal, "hub.example", "evil.example") + seal + claim, mailauth.Unproven},
		"claimed twice":               {intact + seal + claim + strings.Replace(claim, "dkim=pass", "dkim=fail", 1), mailauth.Unproven},
		"not found intact":            {seal + claim, mailauth.Unproven},
		"found intact by a stranger":  {strings.Replace(intact, "acme", "evil", 1) + seal + claim, mailauth.Unproven},
		"found broken":                {strings.Replace(intact, "arc=pass", "arc=fail", 1) + seal + claim, mailauth.Unproven},
		"only the newest trusted hop": {intact + seal + claim + strings.ReplaceAll(strings.ReplaceAll(seal+claim, "i=1", "i=2"), "=pass", "=fail"), mailauth.Unproven},
		"a hop of no number":          {intact + strings.ReplaceAll(seal+claim, "i=1", "i=999"), mailauth.Unproven},
	} {
		m := input(tt.fields + plainMail)
		m.Trusted = append(m.Trusted, "mx.hub.example")
		r := decide(m, nil)
		if r.Verdict != tt.want {
			t.Errorf("%s: %+v, want %s", name, r, tt.want)
		}
		if tt.want == mailauth.Proven && !strings.Contains(r.Reason, "mx.hub.example, an earlier hop of an intact ARC chain,") {
			t.Errorf("reason: %s", r.Reason)
		}
	}
}

// TestProviderResults: the provider's results prove a mail.
func TestProviderResults(t *testing.T) {
	for name, tt := range map[string]struct {
		edit    func(m *mailauth.Mail)
		policy  string
		verdict mailauth.Verdict
		reason  string
	}{
		"SPF":                      {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "Pass", "client.example" }, "", mailauth.Proven, "SPF passed for client.example, as the provider reports, which matches the From address"},
		"SPF of a subdomain":       {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "pass", "bounce.client.example" }, "", mailauth.Proven, ""},
		"the same, strict":         {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "pass", "bounce.client.example" }, "v=DMARC1; p=none; aspf=s", mailauth.Unproven, ""},
		"SPF of another":           {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "pass", "evil.example" }, "", mailauth.Unproven, "there is no DKIM signature of client.example, and SPF does not vouch for it (pass)"},
		"SPF of nobody":            {func(m *mailauth.Mail) { m.SPF = "pass" }, "", mailauth.Unproven, ""},
		"SPF fails":                {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "fail", "client.example" }, "", mailauth.Unproven, ""},
		"and the policy refuses":   {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "fail", "client.example" }, "v=DMARC1; p=reject", mailauth.Failed, "client.example asks receivers to reject mail like this: neither DKIM nor SPF vouches for it (DMARC)"},
		"and the policy is none":   {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "fail", "client.example" }, "v=DMARC1; p=none; sp=reject", mailauth.Unproven, ""},
		"SPF unknown, refused":     {func(*mailauth.Mail) {}, "v=DMARC1; p=reject", mailauth.Unproven, ""},
		"SPF has no answer either": {func(m *mailauth.Mail) { m.SPF, m.SPFDomain = "temperror", "client.example" }, "v=DMARC1; p=reject", mailauth.Unproven, ""},
		"DKIM unknown, refused":    {func(m *mailauth.Mail) { m.SPF, m.Intact = "fail", false }, "v=DMARC1; p=reject", mailauth.Unproven, "the provider did not send the raw mail, so DKIM cannot be checked, and SPF does not vouch for it (fail)"},
		"DKIM":                     {func(m *mailauth.Mail) { m.DKIM, m.Intact = []string{"evil.example", "Client.example"}, false }, "", mailauth.Proven, "the provider verified a DKIM signature of client.example, which matches the From address"},
		"DKIM of another, refused": {func(m *mailauth.Mail) { m.DKIM, m.Intact, m.SPF = []string{"evil.example"}, false, "none" }, "v=DMARC1; p=quarantine", mailauth.Failed, ""},
	} {
		m := input(plainMail)
		tt.edit(&m)
		z := mailauthtest.Zone{}
		if tt.policy != "" {
			z["_dmarc.client.example"] = []string{tt.policy}
		}
		if r := decide(m, z); r.Verdict != tt.verdict || tt.reason != "" && r.Reason != tt.reason {
			t.Errorf("%s: %+v, want %s: %q", name, r, tt.verdict, tt.reason)
		}
	}
}

// TestSilentDNS: a failed lookup proves nothing, disowns nothing, and may be retried.
func TestSilentDNS(t *testing.T) {
	signed := sign(t, plainMail, mailauthtest.Signature{})
	c := mailauth.New(input(signed))
	if names := c.Names(); !slices.Equal(names, []string{"s1._domainkey.client.example"}) {
		t.Errorf("names %v", names)
	}
	r := c.Verdict(map[string][]string{})
	if r.Verdict != mailauth.Unproven || !r.Temporary || r.Reason != "DNS did not answer in time for the key of the DKIM signature of client.example" {
		t.Errorf("got %+v", r)
	}
	if r := c.Verdict(nil); r.Verdict != mailauth.Unproven || r.Temporary || r.Reason != "DKIM signatures are not checked here" {
		t.Errorf("nobody asked: %+v", r)
	}
	if r := c.Verdict(zone()); !r.Proven() {
		t.Errorf("the same check with an answer: %+v", r)
	}
	m := input(plainMail)
	m.SPF, m.SPFDomain = "fail", "client.example"
	c = mailauth.New(m)
	if names := c.Names(); !slices.Equal(names, []string{"_dmarc.client.example"}) {
		t.Errorf("names %v", names)
	}
	if r := c.Verdict(map[string][]string{}); r.Verdict != mailauth.Unproven {
		t.Errorf("no policy: %+v", r)
	}
	// A proof that depends on the policy waits for it.
	m.SPF, m.SPFDomain = "pass", "bounce.client.example"
	if r := mailauth.New(m).Verdict(map[string][]string{}); r.Verdict != mailauth.Unproven || !r.Temporary {
		t.Errorf("got %+v", r)
	}
	if n := mailauth.New(input(plainMail)).Names(); len(n) != 0 {
		t.Errorf("a mail that claims nothing has DNS asked for %v", n)
	}
}

// TestManyNames: the number of lookups per mail is bounded.
func TestManyNames(t *testing.T) {
	var fields strings.Builder
	for selector := range strings.SplitSeq("a b c d e f g h i j", " ") {
		fields.WriteString("DKIM-Signature: v=1; a=rsa-sha256; d=mail.client.example; s=" + selector + "; h=From:Subject; bh=AAAA; b=AAAA\r\n")
	}
	fields.WriteString("DKIM-Signature: v=1; a=rsa-sha256; d=evil.example; s=x; h=From:Subject; bh=AAAA; b=AAAA\r\n")
	m := input(fields.String() + strings.ReplaceAll(plainMail, "ana@client", "ana@a.client"))
	m.Author = "ana@a.client.example"
	names := mailauth.New(m).Names()
	want := []string{"_dmarc.a.client.example", "_dmarc.client.example"}
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		want = append(want, s+"._domainkey.mail.client.example")
	}
	if !slices.Equal(names, want) {
		t.Errorf("names %v", names)
	}
}

func TestReceivedBeforeExpiry(t *testing.T) {
	until := time.Now().Add(time.Hour)
	m := input(sign(t, plainMail, mailauthtest.Signature{Expires: until}))
	for _, tt := range []struct {
		received time.Time
		want     mailauth.Verdict
	}{{until.Add(-time.Minute), mailauth.Proven}, {until.Add(time.Minute), mailauth.Unproven}} {
		if m.Received = tt.received; decide(m, zone()).Verdict != tt.want {
			t.Errorf("received %s: %+v", tt.received, decide(m, zone()))
		}
	}
}

func FuzzVerdict(f *testing.F) {
	signed := mailauthtest.Sign(f, plainMail, mailauthtest.Signature{Domain: "client.example"})
	for _, raw := range []string{
		plainMail, signed, mailauthtest.SignPart(f, plainMail, "client.example", "15"), "From: boss@acme.example\r\n" + signed,
		"Authentication-Results: mx.acme.example; arc=pass; dmarc=fail\r\nARC-Seal: i=1; d=acme.example\r\nARC-Authentication-Results: i=1; mx.acme.example; spf=pass smtp.mailfrom=client.example\r\n" + plainMail,
		"From: x:;\r\n\r\n", "DKIM-Signature: v=1; d=client.example; s=\u00fc; h=:::\r\nFrom: a@client.example\r\n\r\n",
	} {
		f.Add(raw, "pass", "client.example", mailauthtest.KeyRecord())
	}
	f.Fuzz(func(t *testing.T, raw, spf, domain, record string) {
		m := input(raw)
		m.SPF, m.SPFDomain, m.DKIM = spf, domain, []string{domain}
		c := mailauth.New(m)
		names := c.Names()
		if len(names) > 7 {
			t.Errorf("%d names", len(names))
		}
		answers := make(map[string][]string)
		for _, n := range names {
			if n != strings.ToLower(n) || len(n) > 300 || strings.ContainsAny(n, " \r\n\x00/") {
				t.Errorf("name %q", n)
			}
			answers[n] = []string{record}
		}
		r := c.Verdict(answers)
		if r.Reason == "" || r.Verdict != mailauth.Proven && r.Verdict != mailauth.Unproven && r.Verdict != mailauth.Failed {
			t.Errorf("result %+v", r)
		}
		if r.Proven() && (r.Domain == "" || mailauth.Organization(r.Domain) == "") {
			t.Errorf("proven for nobody: %+v", r)
		}
		if again := c.Verdict(answers); again.Verdict != r.Verdict || again.Reason != r.Reason {
			t.Errorf("decided again: %+v, before %+v", again, r)
		}
	})
}
