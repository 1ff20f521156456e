package sms

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
)

// maxParams bounds the parameters of a request; around thirty are usual.
const maxParams = 1000

var errParams = errors.New("the body is not a form")

// params are a request's parameters in order, decoded once. The strings hold raw bytes, not
// necessarily UTF-8.
type params []param

type param struct{ name, value string }

func (p params) get(name string) string {
	for i := range p {
		if p[i].name == name {
			return p[i].value
		}
	}
	return ""
}

func (p params) first(names ...string) string {
	for _, n := range names {
		if v := p.get(n); v != "" {
			return v
		}
	}
	return ""
}

func (p params) has(name string) bool {
	return slices.ContainsFunc(p, func(q param) bool { return q.name == name })
}

// parseParams decodes the body, a form or a JSON object. It runs up to three times before a
// request is answered, so it does the minimum.
func parseParams(r *channel.Request) (params, error) {
	switch r.MediaType() {
	case "application/json":
		return parseJSON(r.Body)
	case "application/x-www-form-urlencoded", "":
		return parseForm(string(r.Body))
	}
	return nil, channel.ErrContentType
}

func parseForm(body string) (params, error) {
	p := make(params, 0, min(strings.Count(body, "&")+1, maxParams))
	for pair := range strings.SplitSeq(body, "&") {
		if pair == "" {
			continue
		}
		if len(p) == maxParams {
			return nil, errParams
		}
		name, value, _ := strings.Cut(pair, "=")
		var err error
		if name, err = unescape(name); err != nil {
			return nil, errParams
		}
		if value, err = unescape(value); err != nil {
			return nil, errParams
		}
		p = append(p, param{name, value})
	}
	return p, nil
}

func unescape(s string) (string, error) {
	if !strings.ContainsAny(s, "%+") {
		return s, nil
	}
	return url.QueryUnescape(s)
}

// parseJSON returns the scalar members of an object, in order.
func parseJSON(body []byte) (params, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errParams
	}
	var p params
	for d.More() {
		name, err := d.Token()
		if err != nil || len(p) == maxParams {
			return nil, errParams
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, errParams
		}
		q := param{name: name.(string)} // the decoder admits no other keys
		switch v := value.(type) {
		case string:
			q.value = v
		case json.Number:
			q.value = v.String()
		default:
			continue
		}
		p = append(p, q)
	}
	if _, err := d.Token(); err != nil {
		return nil, errParams
	}
	return p, nil
}

// text returns p as storable text: from the declared charset, else UTF-8, else a charset that
// maps every byte.
func (p params) text(contentType string) params {
	fallback := encoding.Encoding(charmap.Windows1252)
	if _, attr, err := mime.ParseMediaType(contentType); err == nil && attr["charset"] != "" {
		if e, err := htmlindex.Get(attr["charset"]); err == nil {
			fallback = e
		}
	}
	q := make(params, len(p))
	for i, v := range p {
		q[i] = param{readable(v.name, fallback), readable(v.value, fallback)}
	}
	return q
}

func readable(s string, fallback encoding.Encoding) string {
	if !utf8.ValidString(s) {
		if decoded, err := fallback.NewDecoder().String(s); err == nil {
			s = decoded
		}
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "")
}

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
