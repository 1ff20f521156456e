package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Quote returns a JSON string.
func Quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // strings do marshal
	}
	return text
}

// OrList joins words as "a, b or c".
func OrList(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// EndSentence returns s with a full stop, unless it ends with punctuation.
func EndSentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}

// Clip shortens client input for messages.
func Clip(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Count returns "1 record" and "2 records".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}
