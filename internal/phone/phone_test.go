package phone

import (
	"slices"
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers"
)

func TestParse(t *testing.T) {
	tests := []struct {
		raw, region string
		want        string // "" = not a number
	}{
		// As providers send them.
		{"+14155550123", "", "+14155550123"},
		{"+14155550123", "DE", "+14155550123"},
		{"+4915123456789", "US", "+4915123456789"},
		{"+390612345678", "", "+390612345678"}, // Italy keeps the zero
		{"+12642351234", "", "+12642351234"},   // Anguilla shares +1
		{"+80012345678", "", "+80012345678"},   // of no country

		// As people write them.
		{"(415) 555-0123", "US", "+14155550123"},
		{"415.555.0123", "us", "+14155550123"},
		{"1 415 555 0123", "US", "+14155550123"},
		{"011 49 151 23456789", "US", "+4915123456789"},
		{"+1 (415) 555‑0123", "", "+14155550123"}, // U+2011
		{"\u202a+1\u00a0415\u00a0555\u00a00123\u202c", "", "+14155550123"},
		{"＋１４１５５５５０１２３", "", "+14155550123"},
		{" \t+14155550123\r\n", "", "+14155550123"},
		{"0151 23456789", "DE", "+4915123456789"},
		{"030/1234567", "DE", "+49301234567"},
		{"+49 (0)151 23456789", "", "+4915123456789"},
		{"+4901512345678\u200b9", "", "+4915123456789"}, // zero-width space
		{"+4901512345 6789", "US", "+4915123456789"},
		{"tel:+1-415-555-0123", "", "+14155550123"},
		{"TEL:+1-415-555-0123", "", "+14155550123"},

		// Extensions are dropped.
		{"+1 415 555 0123 ext. 5", "", "+14155550123"},
		{"+14155550123x5", "", "+14155550123"},
		{"415 555 0123 extension 4711", "US", "+14155550123"},
		{"tel:+1-415-555-0123;ext=7", "", "+14155550123"},

		// Abolished forms.
		{"+5215512345678", "", "+525512345678"},
		{"+525512345678", "", "+525512345678"},
		{"+551187654321", "", "+5511987654321"},
		{"+5511987654321", "", "+5511987654321"},
		{"+55 (11) 8765-4321", "", "+5511987654321"},
		{"+551123456789", "", "+551123456789"}, // a landline

		// Not numbers.
		{"", "US", ""},
		{"   ", "US", ""},
		{"+", "US", ""},
		{"anonymous", "US", ""},
		{"blocked", "US", ""},
		{"Anonymous <sip:anonymous@anonymous.invalid>", "US", ""},
		{"+266696687", "US", ""},  // "anonymous" on the keypad
		{"+2562533", "US", ""},    // "blocked"
		{"+8656696", "US", ""},    // "unknown"
		{"+86282452253", "", ""},  // "unavailable"
		{"+7378742833", "US", ""}, // "restricted"
		{"12345", "US", ""},       // short codes
		{"22000", "FI", ""},
		{"456789", "DE", ""},
		{"456 789", "DE", ""},
		{"KICKSTAND", "US", ""}, // sender names
		{"ACME4U", "US", ""},
		{"1800FLOWERS", "US", ""},
		{"Taxi 4155550123", "US", ""},
		{"CC.4155550123", "US", ""}, // user ids
		{"24012345678901234", "US", ""},
		{"@4155550123", "US", ""},
		{"user_4155550123", "US", ""},
		{"+4155550123 or +14155550123", "", ""},
		{"ana@client.example", "US", ""},
		{"whatsapp:+14155550123", "", ""},
		{"*67 415 555 0123", "US", ""},
		{"+15550100000", "US", ""},      // no such area code
		{"4155550123", "", ""},          // unknown country
		{"4155550123", "nowhere", ""},   // unknown region
		{"+9991234567890", "US", ""},    // no such calling code
		{"+1415555012", "US", ""},       // too short
		{"+141555501234567", "US", ""},  // too long
		{"+1415555012345678", "US", ""}, // longer than any number
		{"+4930123456789012", "", ""},
		{"+00000000000", "US", ""},
		{"\xff\xfe+14155550123", "US", ""},
		{strings.Repeat("1", 10_000), "US", ""},
	}
	for _, tt := range tests {
		got, ok := Parse(tt.raw, tt.region)
		if want := (Number{E164: tt.want, Raw: tt.raw}); got != want || ok != (tt.want != "") {
			t.Errorf("Parse(%q, %q) = %+q, %t, want %+q", tt.raw, tt.region, got, ok, want)
		}
	}
}

// TestParseExampleNumbers: the fast path and the library agree on every kind of number of every
// country.
func TestParseExampleNumbers(t *testing.T) {
	seen := 0
	for region := range phonenumbers.GetSupportedRegions() {
		for kind := phonenumbers.FIXED_LINE; kind <= phonenumbers.UAN; kind++ {
			n := phonenumbers.GetExampleNumberForType(region, kind)
			if n == nil {
				continue
			}
			seen++
			want := phonenumbers.Format(n, phonenumbers.E164)
			for _, raw := range []string{want, phonenumbers.Format(n, phonenumbers.INTERNATIONAL), phonenumbers.Format(n, phonenumbers.RFC3966)} {
				if got, ok := Parse(raw, ""); !ok || got.E164 != want {
					t.Errorf("Parse(%q) = %q, %t, want %q", raw, got.E164, ok, want)
				}
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d examples", seen)
	}
}

func TestVariants(t *testing.T) {
	tests := []struct {
		e164 string
		want []string
	}{
		{"+525512345678", []string{"+525512345678", "+5215512345678"}},
		{"+5215512345678", []string{"+5215512345678", "+525512345678"}},
		{"+5511987654321", []string{"+5511987654321", "+551187654321"}},
		{"+551187654321", []string{"+551187654321", "+5511987654321"}},
		{"+551123456789", []string{"+551123456789"}},   // a landline
		{"+5511951234567", []string{"+5511951234567"}}, // never had eight digits
		{"+14155550123", []string{"+14155550123"}},
		{"+52551234567", []string{"+52551234567"}},
		{"+5", []string{"+5"}},
		{"", []string{""}},
	}
	for _, tt := range tests {
		if got := Variants(tt.e164); !slices.Equal(got, tt.want) {
			t.Errorf("Variants(%q) = %q, want %q", tt.e164, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"+14155550123", "(415) 555-0123 x5", "tel:5550123;phone-context=+1415", "anonymous", "+551187654321"} {
		f.Add(s, "US")
	}
	f.Fuzz(func(t *testing.T, raw, region string) {
		n, ok := Parse(raw, region)
		if n.Raw != raw || ok != (n.E164 != "") {
			t.Fatalf("Parse(%q, %q) = %+q, %t", raw, region, n, ok)
		}
		if !ok {
			return
		}
		if len(n.E164) < 5 || len(n.E164) > maxE164 || n.E164[0] != '+' || strings.Trim(n.E164[1:], "0123456789") != "" {
			t.Fatalf("Parse(%q, %q) = %q, not E.164", raw, region, n.E164)
		}
		if again, ok := Parse(n.E164, ""); !ok || again.E164 != n.E164 {
			t.Fatalf("Parse(%q) = %q, %t: the canonical form of %q is not stable", n.E164, again.E164, ok, raw)
		}
		for _, v := range Variants(n.E164) {
			if !slices.Contains(Variants(v), n.E164) {
				t.Fatalf("%q is a variant of %q, but not the reverse", v, n.E164)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, raw := range []string{"+14155550123", "+4915123456789", "+12642351234", "(415) 555-0123", "anonymous"} {
		b.Run(raw, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(raw, "US")
			}
		})
	}
}
