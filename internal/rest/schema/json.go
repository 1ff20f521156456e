package schema

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of objects and arrays.
const maxDepth = 64

// MaxNodes bounds the values of a text. Each takes about 100 bytes of memory, so a large body
// of "[0,0,0" would exhaust it. The largest legitimate body, a zone with 10,000 positions, has
// a third.
const MaxNodes = 100_000

// ErrTooMany is the error of [Parse] for a text with more than [MaxNodes] values.
var ErrTooMany = fmt.Errorf("the text has more than %d values", MaxNodes)

// Node is a parsed JSON value.
type Node struct {
	Kind    byte   // one of { [ " 0 t f n
	Text    string // of a string, decoded; of a number, as written
	raw     []byte // the value as written
	Members []NodeMember
	items   []Node
}

// NodeMember is a field of an object, in the order of the text.
type NodeMember struct {
	Name  string
	Value Node
}

// Find returns the field with a name, or nil.
func (n *Node) Find(name string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Name == name {
			return &n.Members[i].Value
		}
	}
	return nil
}

// HoldsNUL reports whether a string in the value contains NUL, which PostgreSQL refuses.
func (n *Node) HoldsNUL() bool {
	return n.Kind == '"' && strings.IndexByte(n.Text, 0) >= 0 ||
		slices.ContainsFunc(n.items, func(item Node) bool { return item.HoldsNUL() }) ||
		slices.ContainsFunc(n.Members, func(m NodeMember) bool { return m.Value.HoldsNUL() })
}

// trimFraction changes the number 50.0 to 50, which is equal (RFC 8259 section 6) but refused
// for integers by encoding/json. It overwrites the fraction in the source text with spaces.
func (n *Node) trimFraction() {
	i := strings.IndexByte(n.Text, '.')
	if i < 0 || strings.Trim(n.Text[i+1:], "0") != "" {
		return
	}
	n.Text = n.Text[:i]
	for j := i; j < len(n.raw); j++ {
		n.raw[j] = ' '
	}
}

// equal reports whether two values are semantically equal.
func (n *Node) equal(m *Node) bool {
	if n == nil || m == nil {
		return n == m
	}
	if n.Kind != m.Kind || len(n.Members) != len(m.Members) || len(n.items) != len(m.items) {
		return false
	}
	switch n.Kind {
	case '"':
		return n.Text == m.Text
	case '0':
		if n.Text == m.Text {
			return true
		}
		a, errA := strconv.ParseFloat(n.Text, 64)
		b, errB := strconv.ParseFloat(m.Text, 64)
		return errA == nil && errB == nil && a == b && math.Abs(a) < 1<<53
	case '{':
		for i := range n.Members {
			other := m.Find(n.Members[i].Name)
			if other == nil || !n.Members[i].Value.equal(other) {
				return false
			}
		}
	case '[':
		for i := range n.items {
			if !n.items[i].equal(&m.items[i]) {
				return false
			}
		}
	}
	return true
}

// within reports whether every field of an object is in the other one and equal; null equals an
// absent field.
func (n *Node) within(m *Node) bool {
	for i := range n.Members {
		v, other := &n.Members[i].Value, m.Find(n.Members[i].Name)
		if v.Kind == 'n' && other == nil {
			continue
		}
		if !v.equal(other) {
			return false
		}
	}
	return n.Kind == '{' || m == nil || len(m.Members) == 0
}

// Parse parses exactly one value. Its errors give position and reason and may be shown to
// clients.
func Parse(text []byte) (Node, error) {
	if !utf8.Valid(text) {
		return Node{}, errors.New("the text is not UTF-8")
	}
	p := parser{text: text}
	p.space()
	if p.at == len(text) {
		return Node{}, errors.New("the body is empty; an object is expected")
	}
	n, err := p.value(0)
	if err != nil {
		return Node{}, err
	}
	p.space()
	if p.at != len(text) {
		return Node{}, p.fail("there is something after the value")
	}
	return n, nil
}

type parser struct {
	text  []byte
	at    int
	nodes int
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", p.at, fmt.Sprintf(format, args...))
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) value(depth int) (n Node, err error) {
	if p.nodes++; p.nodes > MaxNodes {
		return n, ErrTooMany
	}
	start := p.at
	switch c := p.peek(); {
	case c == '{':
		n, err = p.object(depth + 1)
	case c == '[':
		n, err = p.array(depth + 1)
	case c == '"':
		n.Kind = '"'
		n.Text, err = p.str()
	case c == '-' || '0' <= c && c <= '9':
		n.Kind = '0'
		n.Text, err = p.number()
	case c == 't':
		n.Kind, err = 't', p.word("true")
	case c == 'f':
		n.Kind, err = 'f', p.word("false")
	case c == 'n':
		n.Kind, err = 'n', p.word("null")
	case p.at == len(p.text):
		err = p.fail("the text ends too early")
	default:
		err = p.fail("a value is expected")
	}
	n.raw = p.text[start:p.at]
	return n, err
}

func (p *parser) word(w string) error {
	if len(p.text)-p.at < len(w) || string(p.text[p.at:p.at+len(w)]) != w {
		return p.fail("a value is expected")
	}
	p.at += len(w)
	return nil
}

func (p *parser) object(depth int) (Node, error) {
	n := Node{Kind: '{'}
	if depth > maxDepth {
		return n, p.fail("values are nested more than %d deep", maxDepth)
	}
	p.at++
	p.space()
	if p.peek() == '}' {
		p.at++
		return n, nil
	}
	var few [8]NodeMember // as most objects have, so that only the list of the right length is allocated
	members := few[:0]
	var seen map[string]bool // set once there are too many names for a linear search
	for {
		if p.peek() != '"' {
			return n, p.fail("a member's name is expected")
		}
		name, err := p.str()
		if err != nil {
			return n, err
		}
		if seen == nil && len(members) == 16 {
			seen = make(map[string]bool, 64)
			for i := range members {
				seen[members[i].Name] = true
			}
		}
		if seen[name] || seen == nil && hasMember(members, name) {
			return n, p.fail("the field %.60q is duplicate", name)
		}
		if seen != nil {
			seen[name] = true
		}
		p.space()
		if p.peek() != ':' {
			return n, p.fail("a colon is expected")
		}
		p.at++
		p.space()
		v, err := p.value(depth)
		if err != nil {
			return n, err
		}
		members = append(members, NodeMember{name, v})
		p.space()
		switch p.peek() {
		case ',':
			p.at++
			p.space()
		case '}':
			p.at++
			n.Members = slices.Clone(members)
			return n, nil
		default:
			return n, p.fail("a comma or the end of the object is expected")
		}
	}
}

// hasMember looks for a name among few members.
func hasMember(members []NodeMember, name string) bool {
	for i := range members {
		if members[i].Name == name {
			return true
		}
	}
	return false
}

func (p *parser) array(depth int) (Node, error) {
	n := Node{Kind: '['}
	if depth > maxDepth {
		return n, p.fail("values are nested more than %d deep", maxDepth)
	}
	p.at++
	p.space()
	if p.peek() == ']' {
		p.at++
		return n, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
			p.space()
		case ']':
			p.at++
			return n, nil
		default:
			return n, p.fail("a comma or the end of the array is expected")
		}
	}
}

func (p *parser) number() (string, error) {
	start := p.at
	digits := func() bool {
		from := p.at
		for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
			p.at++
		}
		return p.at > from
	}
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if !digits() {
		return "", p.fail("a digit is expected")
	}
	if p.peek() == '.' {
		p.at++
		if !digits() {
			return "", p.fail("a digit is expected")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if !digits() {
			return "", p.fail("a digit is expected")
		}
	}
	return string(p.text[start:p.at]), nil
}

// str parses a string. It refuses unpaired surrogates, which have no UTF-8.
func (p *parser) str() (string, error) {
	p.at++
	start := p.at
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			s := string(p.text[start:p.at])
			p.at++
			return s, nil
		case c == '\\':
			b, err := p.unescape(append([]byte(nil), p.text[start:p.at]...))
			return string(b), err
		case c < ' ':
			return "", p.fail("a control character in a string must be escaped")
		}
		p.at++
	}
	return "", p.fail("a string does not end")
}

// unescape parses the rest of a string after its first escape; b is the part before.
func (p *parser) unescape(b []byte) ([]byte, error) {
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == '"':
			p.at++
			return b, nil
		case c < ' ':
			return nil, p.fail("a control character in a string must be escaped")
		case c != '\\':
			b = append(b, c)
			p.at++
			continue
		}
		p.at++
		switch c := p.peek(); c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, err := p.hex()
			if err != nil {
				return nil, err
			}
			if utf16.IsSurrogate(r) {
				if p.at+2 >= len(p.text) || p.text[p.at+1] != '\\' || p.text[p.at+2] != 'u' {
					return nil, p.fail("half of a surrogate pair")
				}
				p.at += 2
				low, err := p.hex()
				if err != nil {
					return nil, err
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return nil, p.fail("half of a surrogate pair")
				}
			}
			b = utf8.AppendRune(b, r)
		default:
			return nil, p.fail("an unknown escape")
		}
		p.at++
	}
	return nil, p.fail("a string does not end")
}

// hex parses the four digits after the u at p.at, and stops at the last.
func (p *parser) hex() (rune, error) {
	if len(p.text)-p.at < 5 {
		return 0, p.fail("four hexadecimal digits are expected")
	}
	v, err := strconv.ParseUint(string(p.text[p.at+1:p.at+5]), 16, 32)
	if err != nil {
		return 0, p.fail("four hexadecimal digits are expected")
	}
	p.at += 4
	return rune(v), nil
}
