package sms

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// HeaderProof implements [channel.HeaderProver].
func (*Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, ok := signature(r)
	return channel.BodyDecidesIf(ok)
}

// signature returns the signature in the header.
func signature(r *channel.Request) ([]byte, bool) {
	presented, err := base64.StdEncoding.DecodeString(r.First("X-Sms-Signature", "X-Twilio-Signature"))
	return presented, err == nil && len(presented) == sha1.Size
}

// Verify implements [channel.Adapter].
//
// The provider signs the URL that it called, followed by the sorted names and values of all
// parameters. Its libraries disagree on repeated names (each value once, or the first value
// only) and its servers on including the default port, so each form is tried. A JSON body is
// signed by its digest in the URL instead.
func (*Adapter) Verify(r *channel.Request, secret string) bool {
	presented, ok := signature(r)
	if !ok || secret == "" {
		return false
	}
	var forms []string
	if r.MediaType() == "application/json" {
		digest, err := hex.DecodeString(r.Query().Get("bodySHA256"))
		sum := sha256.Sum256(r.Body)
		if err != nil || !hmac.Equal(digest, sum[:]) {
			return false
		}
		forms = []string{""}
	} else {
		p, err := parseParams(r)
		if err != nil {
			return false
		}
		forms = signedForms(p)
	}
	for _, u := range urlForms(r.URL) {
		for _, form := range forms {
			if hmac.Equal(presented, digest(u, form, secret)) {
				return true
			}
		}
	}
	return false
}

func digest(u, form, secret string) []byte {
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(u))
	mac.Write([]byte(form))
	return mac.Sum(nil)
}

// signedForms returns the parameters in the one or two forms that may be signed.
func signedForms(p params) []string {
	sorted := slices.Clone(p)
	slices.SortStableFunc(sorted, func(a, b param) int { return strings.Compare(a.name, b.name) })
	var first strings.Builder
	repeated := false
	for i, q := range sorted {
		if i > 0 && q.name == sorted[i-1].name {
			repeated = true
			continue
		}
		first.WriteString(q.name)
		first.WriteString(q.value)
	}
	if !repeated {
		return []string{first.String()}
	}
	slices.SortFunc(sorted, func(a, b param) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	var all strings.Builder
	for _, q := range slices.Compact(sorted) {
		all.WriteString(q.name)
		all.WriteString(q.value)
	}
	return []string{all.String(), first.String()}
}

// urlForms returns u unchanged, and with the default port removed or added. No other character
// may change: the provider signs its configured URL.
func urlForms(u string) []string {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return []string{u}
	}
	port := ""
	switch strings.ToLower(scheme) {
	case "https":
		port = ":443"
	case "http":
		port = ":80"
	default:
		return []string{u}
	}
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	if bare, ok := strings.CutSuffix(host, port); ok {
		return []string{u, scheme + "://" + bare + path}
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return []string{u}
	}
	return []string{u, scheme + "://" + host + port + path}
}

// Sign returns the header X-Sms-Signature for form posted to u.
func Sign(u string, form url.Values, secret string) string {
	var p params
	for name, values := range form {
		for _, v := range values {
			p = append(p, param{name, v})
		}
	}
	return base64.StdEncoding.EncodeToString(digest(u, signedForms(p)[0], secret))
}
