package inbound

import (
	"slices"
	"testing"
)

// TestMentions checks in which texts an identifier is found.
func TestMentions(t *testing.T) {
	for _, tt := range []struct {
		known, text string
		want        bool
	}{
		{"Ana@Client.example", `{"from":"ana@client.example"}`, true},
		{"ana@client.example", "From=ana%40client.example&Body=x", true},
		{"ana@client.example", "to: joana@client.example", false},
		{"ana@client.example", "joana@client.example, ana@client.example", true},
		{"ana@client.example", "ana@client.examples", false},
		{"+4915112345678", "from=%2b4915112345678", true},
		{"+4915112345678", `{"wa_id":"4915112345678"}`, true},
		{"+4915112345678", "14915112345678", false},
		{"115310627314723954", `"id":115310627314723954,`, true},
		{"115310627314723954", `"id":1153106273147239540,`, false},
		{"abc", "abc", false}, // too short to be specific
		{" ", "anything", false},
	} {
		got := slices.ContainsFunc(searchTerms([]string{tt.known}), func(n string) bool { return mentions(tt.text, n) })
		if got != tt.want {
			t.Errorf("%q in %q: got %t, want %t", tt.known, tt.text, got, tt.want)
		}
	}
}
