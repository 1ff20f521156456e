package problem

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Checker is implemented by inputs that validate themselves, independent of stored state.
type Checker interface {
	Check(v *Validation)
}

// Validation collects the issues of one input, so that a client sees all of them at once.
// The zero value is ready. It is not safe for concurrent use.
type Validation struct {
	issues []Issue
}

// Add records an issue of the field at path.
func (v *Validation) Add(path, format string, args ...any) {
	v.AddCode("invalid_value", path, format, args...)
}

// AddCode records an issue with a code; see [Issue].
func (v *Validation) AddCode(code, path, format string, args ...any) {
	v.issues = append(v.issues, Issue{Path: path, Message: fmt.Sprintf(format, args...), Code: code})
}

// Length records an issue unless value has from low to high characters
// (Unicode code points) and is valid UTF-8 without NUL bytes.
func (v *Validation) Length(path, value string, low, high int) {
	v.Text(path, value)
	switch n := utf8.RuneCountInString(value); {
	case n < low && low == 1:
		v.AddCode("too_short", path, "must not be empty")
	case n < low:
		v.AddCode("too_short", path, "must have at least %d characters", low)
	case n > high:
		v.AddCode("too_long", path, "must have at most %d characters", high)
	}
}

// Text records an issue unless value is valid UTF-8 without NUL bytes, which no engine
// stores faithfully.
func (v *Validation) Text(path, value string) {
	if !utf8.ValidString(value) {
		v.AddCode("invalid_format", path, "must be valid UTF-8")
		return
	}
	for i := range len(value) {
		if value[i] == 0 {
			v.AddCode("invalid_format", path, "must not contain NUL characters")
			return
		}
	}
}

// Line is [Validation.Length] for text that is shown in one line or put into a header:
// control characters, line ends and bidirectional overrides are issues too.
func (v *Validation) Line(path, value string, low, high int) {
	v.Length(path, value, low, high)
	for _, r := range value {
		if r != 0 && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			v.AddCode("invalid_format", path, "must not contain control characters")
			return
		}
	}
}

// Has reports whether the field at path already has an issue.
func (v *Validation) Has(path string) bool {
	for _, i := range v.issues {
		if i.Path == path {
			return true
		}
	}
	return false
}

// Err returns nil without issues, else an [Invalid] error with all of them and the first
// in its message.
func (v *Validation) Err() error {
	if len(v.issues) == 0 {
		return nil
	}
	first := v.issues[0]
	msg := first.Message
	if first.Path != "" {
		msg = first.Path + " " + first.Message
	}
	if n := len(v.issues); n > 1 {
		msg = fmt.Sprintf("%s (and %d more)", msg, n-1)
	}
	return &Error{Kind: Invalid, Message: msg, Issues: v.issues}
}

// Check returns the issues that c's Check records, as an error.
func Check(c Checker) error {
	var v Validation
	c.Check(&v)
	return v.Err()
}
