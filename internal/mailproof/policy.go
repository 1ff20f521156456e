package mailproof

import "strings"

// policy is what a domain publishes for DMARC, as far as it matters here.
type policy struct {
	strictDKIM, strictSPF bool
	refuses               string // "reject" or "quarantine"; empty: nothing is asked for
}

// policyNames are the records that may hold the policy of a domain: its own first.
func policyNames(domain string) []string {
	names := []string{"_dmarc." + domain}
	if o := Organization(domain); o != domain {
		names = append(names, "_dmarc."+o)
	}
	return names
}

// findPolicy returns the policy of a domain. known is false if DNS did not answer.
// A domain without one has the zero policy, and so has every domain where nobody
// asked.
func findPolicy(domain string, answers map[string][]string) (p policy, known bool) {
	if answers == nil {
		return policy{}, true
	}
	for i, name := range policyNames(domain) {
		records, answered := answers[name]
		if !answered {
			return policy{}, false
		}
		if p, ok := readPolicy(records, i > 0); ok {
			return p, true
		}
	}
	return policy{}, true
}

// readPolicy reads a DMARC record (RFC 7489, 6.3). Several records count as none.
func readPolicy(records []string, ofParent bool) (p policy, ok bool) {
	found := ""
	for _, r := range records {
		if version, _, _ := strings.Cut(r, ";"); squeezed(version) != "v=DMARC1" {
			continue
		}
		if found != "" {
			return policy{}, false
		}
		found = r
	}
	t, _ := tags(found)
	asked := t["p"]
	if sp, has := t["sp"]; has && ofParent {
		asked = sp
	}
	switch strings.ToLower(asked) {
	case "reject", "quarantine":
		p.refuses = strings.ToLower(asked)
	}
	p.strictDKIM, p.strictSPF = strings.EqualFold(t["adkim"], "s"), strings.EqualFold(t["aspf"], "s")
	return p, found != ""
}
