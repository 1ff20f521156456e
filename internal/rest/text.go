package rest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quote returns a JSON string.
func quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // strings do marshal
	}
	return text
}

// orList joins words as "a, b or c".
func orList(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// stopped returns s with a full stop, unless it ends with punctuation.
func stopped(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}

// clip shortens client input for messages.
func clip(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// count returns "1 record" and "2 records".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}
