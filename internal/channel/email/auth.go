package email

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/emersion/go-msgauth/authres"
)

// authenticate reports what the receiving server says of the sender's domain:
// that DKIM or SPF passed for it, and that DMARC failed for it.
//
// Only the servers that the configuration names are believed, and of each check
// only the topmost result: RFC 8601 section 5 obliges them to remove results
// that a sender wrote in their name.
func (p *Parser) authenticate(h textproto.MIMEHeader, env Envelope, domain string) (passed, failed bool) {
	if strings.EqualFold(env.SPF, "pass") && aligned(env.SPFDomain, domain) {
		passed = true
	}
	for _, signer := range env.DKIM {
		passed = passed || aligned(signer, domain)
	}
	seen := map[string]bool{}
	for _, v := range h.Values("Authentication-Results") {
		if len(v) > maxField {
			continue
		}
		server, results, _ := authres.Parse(withoutComments(v)) // what stands before an error counts
		if !slices.ContainsFunc(p.trusted, func(t string) bool { return strings.EqualFold(t, server) }) {
			continue
		}
		here := map[string]bool{}
		for _, r := range results {
			method, pass, fail := "", false, false
			switch r := r.(type) {
			case *authres.DMARCResult:
				method = "dmarc"
				if from := domainOfResult(r.From); from == "" || from == domain {
					pass, fail = r.Value == authres.ResultPass, r.Value == authres.ResultFail
				}
			case *authres.SPFResult:
				method = "spf"
				pass = r.Value == authres.ResultPass && aligned(domainOfResult(r.From), domain)
			case *authres.DKIMResult:
				method = "dkim"
				signer := domainOfResult(r.Domain)
				if signer == "" {
					signer = domainOfResult(r.Identifier)
				}
				pass = r.Value == authres.ResultPass && aligned(signer, domain)
			default:
				continue
			}
			if seen[method] {
				continue
			}
			here[method] = true
			passed = passed || pass
			failed = failed || fail
		}
		for method := range here {
			seen[method] = true
		}
	}
	return passed && !failed, failed
}

// domainOfResult reads a domain, or the domain of an address.
func domainOfResult(s string) string {
	s = strings.ToLower(strings.Trim(s, "<>. "))
	if _, domain, ok := cutAddress(s); ok {
		return domain
	}
	return s
}

// withoutComments removes comments and quoting, in which a sender's own words may
// stand, so that they cannot pass for results. It returns "" when they do not
// balance.
func withoutComments(v string) string {
	var b strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '\\' && (quoted || depth > 0):
			i++ // whatever it escapes is not wanted either
		case quoted:
			if c == '"' {
				quoted = false
			} else if depth == 0 && strings.IndexByte(" \t;()=", c) < 0 {
				b.WriteByte(c)
			}
		case c == '"' && depth == 0:
			quoted = true
		case c == '(':
			depth++
		case c == ')':
			if depth == 0 {
				return ""
			}
			depth--
		case depth == 0:
			b.WriteByte(c)
		}
	}
	if depth > 0 || quoted {
		return ""
	}
	return b.String()
}
