package smtpd

import (
	"errors"
	"strings"
)

// path is a mail address of an envelope. The zero path is the null sender.
type path struct {
	local  string // without quotes
	domain string
	text   string // as given, without brackets and source route
}

// ascii reports whether the address needs no SMTPUTF8.
func (p path) ascii() bool {
	return !strings.ContainsFunc(p.text, func(r rune) bool { return r > '~' })
}

// The limit of an address in bytes, larger than that of RFC 5321 for the local parts of lists.
const maxAddress = 320

var (
	errPath    = errors.New("the address is not in the form <local@domain>")
	errAddress = errors.New("the address is too long")
)

// parsePath parses the path after FROM: or TO: and returns the parameters behind it. Source routes
// are ignored, as RFC 5321 has it; brackets may be missing.
func parsePath(s string) (p path, params string, err error) {
	s = strings.TrimLeft(s, " ")
	inner, bracketed := strings.CutPrefix(s, "<")
	end, quoted := -1, false
	for i := 0; i < len(inner) && end < 0; i++ {
		switch b := inner[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case !quoted && (bracketed && b == '>' || !bracketed && b == ' '):
			end = i
		}
	}
	switch {
	case end < 0 && bracketed, quoted:
		return p, "", errPath
	case end < 0:
		end = len(inner)
	}
	address, params := inner[:end], inner[end:]
	if bracketed {
		params = params[1:]
	}
	if params != "" && params[0] != ' ' {
		return p, "", errPath
	}
	if bracketed && address == "" {
		return p, params, nil
	}
	p, err = parseAddress(address)
	return p, strings.TrimSpace(params), err
}

func parseAddress(s string) (path, error) {
	if strings.HasPrefix(s, "@") {
		_, rest, ok := strings.Cut(s, ":")
		if !ok {
			return path{}, errPath
		}
		s = rest
	}
	if len(s) > maxAddress {
		return path{}, errAddress
	}
	p := path{text: s}
	if strings.HasPrefix(s, `"`) {
		var local strings.Builder
		i := 1
		for ; i < len(s) && s[i] != '"'; i++ {
			if s[i] == '\\' && i+1 < len(s) {
				i++
			}
			local.WriteByte(s[i])
		}
		rest, ok := strings.CutPrefix(s[min(i, len(s)):], `"@`)
		if !ok {
			return path{}, errPath
		}
		p.local, p.domain = local.String(), rest
	} else {
		i := strings.LastIndexByte(s, '@')
		if i < 0 {
			return path{}, errPath
		}
		p.local, p.domain = s[:i], s[i+1:]
		if strings.ContainsAny(p.local, "\" \t") {
			return path{}, errPath
		}
	}
	p.domain = strings.TrimSuffix(p.domain, ".")
	if p.local == "" || p.domain == "" || strings.ContainsAny(p.domain, "\"@<> \t,;\\") {
		return path{}, errPath
	}
	return p, nil
}

// cutFold cuts a prefix of ASCII letters in any case.
func cutFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}
