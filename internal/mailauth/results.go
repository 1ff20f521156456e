package mailauth

import (
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-msgauth/authres"
)

const (
	maxResults = 4 << 10 // bytes of one Authentication-Results field
	maxHops    = 50      // RFC 8617, 5.2.1
)

// readResults reads the results that trusted servers added to the header. Of each method only
// the topmost field of a trusted server counts: RFC 8601, section 5, obliges these servers to
// remove forged fields with their name.
func (c *Check) readResults() {
	seen := map[string]bool{}
	chain := false // a trusted server found the ARC chain intact
	for _, v := range c.values("authentication-results") {
		server, results := readResults(v)
		if !c.trusts(server) {
			continue
		}
		here := map[string]bool{}
		for _, r := range results {
			method := methodOf(r)
			if method == "" || seen[method] {
				continue
			}
			here[method] = true
			if arc, ok := r.(*authres.ARCResult); ok {
				chain = chain || arc.Value == authres.ResultPass
				continue
			}
			c.readResult(r, server, "")
		}
		for method := range here {
			seen[method] = true
		}
	}
	if chain {
		c.readChain()
	}
}

// readResults parses one field, up to the first error.
func readResults(v string) (server string, results []authres.Result) {
	if len(v) > maxResults {
		return "", nil
	}
	server, results, _ = authres.Parse(withoutComments(v))
	return server, results
}

func (c *Check) trusts(server string) bool {
	return server != "" && slices.ContainsFunc(c.mail.Trusted, func(t string) bool { return strings.EqualFold(t, server) })
}

func methodOf(r authres.Result) string {
	switch r.(type) {
	case *authres.DMARCResult:
		return "dmarc"
	case *authres.SPFResult:
		return "spf"
	case *authres.DKIMResult:
		return "dkim"
	case *authres.ARCResult:
		return "arc"
	}
	return ""
}

// readResult adds one result of a trusted server. via describes an indirect source, which
// cannot disown the mail.
func (c *Check) readResult(r authres.Result, server, via string) {
	by := server + via
	switch r := r.(type) {
	case *authres.DMARCResult:
		if from := domainOfResult(r.From); from != "" && from != c.domain {
			return
		}
		switch {
		case r.Value == authres.ResultPass:
			c.addPass(pass{dmarc: true, domain: c.domain, words: "DMARC passed for " + c.domain + ", as " + by + " reports"})
		case r.Value == authres.ResultFail && via == "":
			c.disowned = server
		}
	case *authres.SPFResult:
		if domain := domainOfResult(r.From); via == "" {
			c.addSPF(string(r.Value), domain, by)
		} else if r.Value == authres.ResultPass {
			c.addPass(pass{spf: true, domain: domain, words: "SPF passed for " + domain + ", as " + by + " reports"})
		}
	case *authres.DKIMResult:
		domain := domainOfResult(r.Domain)
		if domain == "" {
			domain = domainOfResult(r.Identifier)
		}
		if r.Value == authres.ResultPass {
			c.addPass(pass{domain: domain, words: by + " verified a DKIM signature of " + domain})
		}
	}
}

// readChain reads the results of the newest trusted server in the ARC chain (RFC 8617). Anyone
// can make an intact chain, so results count only if the seal of the same hop belongs to the
// organization of the trusted server that they name.
func (c *Check) readChain() {
	seals := map[int]string{}
	for _, v := range c.values("arc-seal") {
		t, ok := tags(v)
		hop := instance(t["i"])
		if _, twice := seals[hop]; twice || !ok {
			seals[hop] = ""
			continue
		}
		seals[hop] = ascii(squeezed(t["d"]))
	}
	found := map[int]string{} // by hop; empty if there are several
	for _, v := range c.values("arc-authentication-results") {
		first, rest, _ := strings.Cut(v, ";")
		name, n, _ := strings.Cut(first, "=")
		hop := instance(n)
		if !strings.EqualFold(strings.TrimSpace(name), "i") || hop == 0 {
			continue
		}
		if _, twice := found[hop]; twice {
			rest = ""
		}
		found[hop] = rest
	}
	for hop := maxHops; hop > 0; hop-- {
		server, results := readResults(found[hop])
		if !c.trusts(server) || !aligned(seals[hop], ascii(server)) {
			continue
		}
		for _, r := range results {
			c.readResult(r, server, ", an earlier hop of an intact ARC chain,")
		}
		return
	}
}

// instance parses a hop number, or returns 0.
func instance(v string) int {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 1 || n > maxHops {
		return 0
	}
	return n
}

// coverage is the set of fields that a mail's aligned signatures claim to cover, before
// verification.
type coverage struct {
	repeated  string   // a field that occurs more often than covered; may be empty
	uncovered []string // coverable fields that not all of them cover
}

// claimedCoverage returns the coverage for results without a reference to a signature. alsoSPF
// means that the result may rest on SPF, which covers a mail as a whole, if there is no
// signature.
func (c *Check) claimedCoverage(alsoSPF bool) *coverage {
	at := 0
	if alsoSPF {
		at = 1
	}
	if c.coverages[at] != nil {
		return c.coverages[at]
	}
	list := new(coverage)
	c.coverages[at] = list
	n := 0
	for _, v := range c.values(dkimField) {
		t, _ := tags(v)
		if !aligned(ascii(squeezed(t["d"])), c.domain) {
			continue
		}
		if n++; n > maxSeen {
			break
		}
		keys := signedKeys(t)
		if list.repeated == "" {
			list.repeated = c.repeated(keys)
		}
		for _, name := range c.uncovered(keys) {
			if !slices.Contains(list.uncovered, name) {
				list.uncovered = append(list.uncovered, name)
			}
		}
	}
	if n == 0 {
		list.repeated = c.repeated(nil)
	}
	if (n == 0 && !alsoSPF) || n > maxSeen {
		list.uncovered = c.uncovered(nil)
	}
	return list
}

// domainOfResult parses a domain, or the domain of an address.
func domainOfResult(s string) string {
	s = strings.Trim(s, "<>. ")
	return ascii(domainPart(s))
}

// withoutComments removes comments and quoting, which may contain the sender's text, so that it
// cannot pass for results. It returns "" if they are unbalanced.
func withoutComments(v string) string {
	var b strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '\\' && (quoted || depth > 0):
			i++ // skip the escaped character
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
