package schema

import (
	"bytes"
	"iter"
)

// The functions of this file iterate over valid JSON text without parsing more than necessary.
// On other text their results are undefined, but they terminate.

// MembersOf returns the fields of an object: the raw name without its quotes, and the value.
func MembersOf(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		i := pastSpace(text, 0)
		if i == len(text) || text[i] != '{' {
			return
		}
		for i = pastSpace(text, i+1); i < len(text) && text[i] == '"'; i = pastSpace(text, i) {
			from := i
			i = pastString(text, i)
			name := text[from+1 : max(from+1, i-1)]
			i = pastSpace(text, i)
			if i == len(text) || text[i] != ':' {
				return
			}
			from = pastSpace(text, i+1)
			i = pastValue(text, from)
			if !yield(name, text[from:i]) {
				return
			}
			i = pastSpace(text, i)
			if i == len(text) || text[i] != ',' {
				return
			}
			i++
		}
	}
}

// ItemsOf returns the items of an array.
func ItemsOf(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := pastSpace(text, 0)
		if i == len(text) || text[i] != '[' {
			return
		}
		for i = pastSpace(text, i+1); i < len(text) && text[i] != ']'; i = pastSpace(text, i) {
			from := i
			i = pastValue(text, i)
			if i == from || !yield(text[from:i]) {
				return
			}
			i = pastSpace(text, i)
			if i == len(text) || text[i] != ',' {
				return
			}
			i++
		}
	}
}

func pastSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// pastString returns the end of the string that starts at i.
func pastString(text []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return len(text)
		}
		i += n
		escapes := 0
		for text[i-1-escapes] == '\\' { // ends at the opening quote
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// pastValue returns the end of the value that starts at i.
func pastValue(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = pastString(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// TextOf returns the decoded string of a quoted value. The result is a part of value or, with
// escapes, of scratch, which it may grow.
func TextOf(value, scratch []byte) []byte {
	if len(value) < 2 {
		return nil
	}
	inner := value[1 : len(value)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	p := parser{text: value, at: 1}
	text, err := p.unescape(scratch[:0])
	if err != nil {
		return inner // an unpaired surrogate, which no answer contains
	}
	return text
}
