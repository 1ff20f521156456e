package mailauth

import "strings"

// policy is the relevant part of a domain's DMARC record.
type policy struct {
	strictDKIM, strictSPF bool
	refuses               string // "reject" or "quarantine"; empty for none
}

// policyNames returns the names that may hold a domain's policy, its own first.
func policyNames(domain string) []string {
	names := []string{"_dmarc." + domain}
	if o := Organization(domain); o != domain {
		names = append(names, "_dmarc."+o)
	}
	return names
}

// findPolicy returns a domain's policy. known is false if the lookup failed. Without a record,
// or without any lookup, it is the zero policy.
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

// readPolicy parses a DMARC record (RFC 7489, 6.3). Several records count as none.
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
