// Package mailauth decides whether a mail proves its sender.
//
// The decision follows DMARC (RFC 7489). A mail is proven if the domain of its single From
// address is aligned with a DKIM signature that verifies here, or with an SPF or DKIM result
// from a source other than the sender: a trusted mail server of the operator, or the provider
// in the verified request with the mail. A mail is failed if the domain disowns it, which takes
// a complete evaluation. Every other mail is unproven.
//
// The package is stricter than DKIM (RFC 6376): a signature counts only if it covers everything
// that a reader sees. Body length tags, keys in testing mode, public suffixes, and fields that
// occur twice without being signed twice do not count. A proven mail may still have fields that
// the signature does not cover ([Result.Covers]), because an attacker can add them and replay
// the mail.
//
// A [Check] is pure. [Check.Names] lists the DNS records that the decision depends on,
// [Check.Verdict] takes the answers. The caller decides when to wait and need not hold the mail
// in memory meanwhile. [Resolver] looks up the records within a fixed time.
package mailauth

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Verdict is the outcome of a check.
type Verdict string

// The verdicts. Their values are stored and part of the API.
const (
	Proven   Verdict = "proven"
	Unproven Verdict = "unproven"
	Failed   Verdict = "failed" // the domain of the From address disowns the mail
)

// Result is the outcome of a check with its reason. The zero value means that
// nothing was checked, and proves nothing.
type Result struct {
	Verdict Verdict
	Reason  string // in plain words, without a full stop
	Domain  string // of the From address, lower case and in ASCII; empty without a single From address

	// Uncovered holds the lower-case names of header fields that a proven mail has
	// and its proof does not cover.
	Uncovered []string
	// Temporary means that a DNS lookup failed and that a retry may change the verdict.
	Temporary bool
}

// Proven reports whether the mail is from the domain of its From address.
func (r Result) Proven() bool { return r.Verdict == Proven }

// Failed reports whether the domain of the From address disowns the mail.
func (r Result) Failed() bool { return r.Verdict == Failed }

// Covers reports whether the mail is proven and the proof includes all header
// fields of these names (lower case). Fields that the mail does not have count as
// included.
func (r Result) Covers(names ...string) bool {
	return r.Proven() && !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.Uncovered, n) })
}

// Mail is the input of a check.
type Mail struct {
	Head []byte // the header block, as received or composed again
	Body []byte // the body; used only if Intact
	// Intact means that Head and Body are the bytes that the receiving mail server saw.
	// Signatures verify only over these.
	Intact bool
	// Author is the address that the caller read from the From header. The check reads the
	// header itself and proves nothing if the two differ.
	Author   string
	Received time.Time // at which signatures must be valid

	// Trusted holds the authserv-ids of mail servers with trusted Authentication-Results and
	// ARC-Authentication-Results (RFC 8601, RFC 8617).
	Trusted []string

	// The provider's own results, from the verified request.
	SPF       string   // the SPF result ("pass"); empty if not reported
	SPFDomain string   // the domain of the envelope sender, for the SPF result
	SPFBy     string   // whose result it is, in reasons; empty: the provider's
	DKIM      []string // domains of verified signatures; nil if not reported
}

// Check is a parsed mail, ready for the verdict.
type Check struct {
	mail       Mail
	fields     []field
	domain     string // of the From address
	flaw       string // why From has no single address; empty if it has
	signatures []signature
	skipped    string // why no signatures are verified; empty if they are
	passes     []pass
	refused    string // why another source's result was refused; empty if none was
	spf        *spfResult
	disowned   string       // the trusted server with dmarc=fail
	coverages  [2]*coverage // see claimedCoverage
}

// maxPasses bounds the results of other sources.
const maxPasses = 20

// pass is a positive result that counts if its domain is aligned.
type pass struct {
	spf       bool // SPF's alignment mode applies, not DKIM's
	domain    string
	dmarc     bool // the source has already checked alignment
	words     string
	uncovered []string
}

type spfResult struct{ value, domain, by string }

// New parses m's header.
func New(m Mail) *Check {
	c := &Check{mail: m}
	var ok bool
	if c.fields, ok = readFields(m.Head); !ok {
		c.flaw = "the header is too large to be checked"
		return c
	}
	if c.domain, c.flaw = c.author(); c.flaw != "" {
		return c
	}
	c.readSignatures()
	c.readProvider()
	c.readResults()
	return c
}

// Names returns the DNS names of the TXT records that the decision depends on, lower case,
// without a final dot, at most seven.
func (c *Check) Names() []string {
	if c.flaw != "" || c.disowned != "" || c.settled() {
		return nil
	}
	var names []string
	related := false // the policy's alignment mode may make a result count
	for i := range c.signatures {
		if s := &c.signatures[i]; s.flaw == "" {
			names = append(names, s.record)
			related = related || s.domain != c.domain
		}
	}
	for _, p := range c.passes {
		related = related || p.domain != c.domain
	}
	if related || c.mayFail() {
		names = append(names, policyNames(c.domain)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// settled reports whether the mail is proven without DNS.
func (c *Check) settled() bool {
	return slices.ContainsFunc(c.passes, func(p pass) bool { return p.dmarc || p.domain == c.domain })
}

// mayFail reports whether the results suffice for a failed verdict if no signature verifies:
// SPF and all signatures were evaluated.
func (c *Check) mayFail() bool {
	return c.spf != nil && (c.mail.Intact && c.skipped == "" || c.mail.DKIM != nil)
}

// Verdict decides. answers are the TXT records of [Check.Names]: an empty entry means no
// record, a missing one a failed lookup. Nil means that no lookup was made.
func (c *Check) Verdict(answers map[string][]string) Result {
	r := c.decide(answers)
	r.Reason = strings.Map(func(char rune) rune { // it quotes text of strangers
		if unicode.IsControl(char) {
			return unicode.ReplacementChar
		}
		return char
	}, strings.ToValidUTF8(r.Reason, string(unicode.ReplacementChar)))
	return r
}

// decide is [Check.Verdict] with unescaped text.
func (c *Check) decide(answers map[string][]string) Result {
	r := Result{Verdict: Unproven, Domain: c.domain}
	switch {
	case c.flaw != "":
		r.Reason = c.flaw
		return r
	case c.disowned != "":
		r.Verdict, r.Reason = Failed, c.disowned+" says that DMARC failed for "+c.domain
		return r
	}
	v := c.verify(answers)
	policy, known := findPolicy(c.domain, answers)
	var best *pass
	passes := slices.Concat(c.passes, v.passes)
	for i := range passes {
		p := &passes[i]
		switch {
		case p.dmarc || p.domain == c.domain:
		case !known:
			v.waits = "the DMARC policy of " + c.domain
			continue
		case p.spf && policy.strictSPF || !p.spf && policy.strictDKIM:
			v.why = c.domain + " accepts no proof by " + p.domain + " (strict DMARC alignment)"
			continue
		}
		if best == nil || len(p.uncovered) < len(best.uncovered) {
			best = p
		}
	}
	switch {
	case best != nil:
		r.Verdict, r.Reason, r.Uncovered = Proven, best.words, best.uncovered
	case v.waits != "":
		r.Reason, r.Temporary = "DNS did not answer in time for "+v.waits, true
	case known && policy.refuses != "" && c.mayFail() && !v.strict:
		r.Verdict, r.Reason = Failed, c.domain+" asks receivers to "+policy.refuses+" mail like this: neither DKIM nor SPF vouches for it (DMARC)"
	case v.why != "":
		r.Reason = v.why
	default:
		r.Reason = c.absence()
	}
	return r
}

// absence explains the absence of a proof.
func (c *Check) absence() string {
	spf := "no trusted server reports SPF"
	if c.spf != nil {
		spf = "SPF does not vouch for it (" + c.spf.value + ")"
	}
	switch {
	case c.refused != "":
		return c.refused
	case c.skipped != "":
		return c.skipped + ", and " + spf
	case !c.mail.Intact && c.mail.DKIM == nil:
		return "the provider did not send the raw mail, so DKIM cannot be checked, and " + spf
	}
	return "there is no DKIM signature of " + c.domain + ", and " + spf
}

// readProvider reads the provider's results.
func (c *Check) readProvider() {
	if c.mail.SPF != "" {
		c.addSPF(strings.ToLower(strings.TrimSpace(c.mail.SPF)), ascii(c.mail.SPFDomain), cmp.Or(c.mail.SPFBy, "the provider"))
	}
	for _, d := range c.mail.DKIM {
		c.addPass(pass{domain: ascii(d), words: "the provider verified a DKIM signature of " + ascii(d)})
	}
}

func (c *Check) addSPF(value, domain, by string) {
	if value == "temperror" || value == "" {
		return
	}
	if c.spf == nil {
		c.spf = &spfResult{value, domain, by}
	}
	if value == "pass" {
		c.addPass(pass{spf: true, domain: domain, words: "SPF passed for " + domain + ", as " + by + " reports"})
	}
}

// addPass adds a result that may count. The signatures were verified elsewhere, so only the
// fields that they claim to cover are known.
func (c *Check) addPass(p pass) {
	if len(c.passes) == maxPasses || !p.dmarc && !aligned(p.domain, c.domain) {
		return
	}
	if !p.spf {
		claim := c.claimedCoverage(p.dmarc)
		if claim.repeated != "" {
			c.refused = "the mail has more than one " + shown(claim.repeated) + " header, so that programs may show different ones"
			return
		}
		p.uncovered = claim.uncovered
	}
	if !p.dmarc {
		p.words += ", which matches the From address"
	}
	c.passes = append(c.passes, p)
}
