package sms

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"

	"github.com/kickstand-dev/kickstand/internal/channel"
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
