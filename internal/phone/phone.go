// Package phone normalizes phone numbers to E.164, so that a caller, a sender of texts and a
// manually entered contact match the same customer.
//
// Many senders are not numbers: short codes, alphanumeric sender names, withheld callers and
// user ids. [Parse] reports that and leaves them unchanged; callers store them verbatim as
// another kind of key. No input is an error.
package phone

import (
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
)

// shortCode is the length up to which digits without a country code count as a short code. A
// few small countries have subscriber numbers as short; they only miss the merging of two
// spellings.
const shortCode = 6

// maxE164 is the maximum length of an E.164 number, including its "+". The library lets a few
// countries exceed it.
const maxE164 = 16

// maxText bounds the work for hostile input, in bytes. The longest realistic spelling, with
// full-width digits and an extension, is shorter.
const maxText = 120

// Number is a phone number with its original spelling.
type Number struct {
	E164 string // "+" and at most 15 digits, no extension; "" if it is not a number
	Raw  string // as given
}

// Parse parses raw in any usual spelling. A number without a country code belongs to
// defaultRegion (ISO 3166, "DE"); without a region it is not a number. Extensions are dropped.
// The result is false, with an empty E164, unless a numbering plan has the number.
//
// Mobile numbers of Mexico and Brazil in the forms abolished in 2019 and 2016, which survive in
// messaging ids, are converted to their present form; see [Variants].
func Parse(raw, defaultRegion string) (Number, bool) {
	if e164, ok := plain(raw); ok {
		return Number{E164: e164, Raw: raw}, true
	}
	text := strings.TrimFunc(raw, invisible)
	if len(text) > maxText || !looksLikeNumber(text) {
		return Number{Raw: raw}, false
	}
	n, err := phonenumbers.Parse(text, strings.ToUpper(defaultRegion))
	if err != nil {
		return Number{Raw: raw}, false
	}
	e164 := phonenumbers.Format(n, phonenumbers.E164)
	if !valid(n) {
		// Possibly a form that its country has abolished.
		var ok bool
		if e164, ok = plain(modern(e164)); !ok {
			return Number{Raw: raw}, false
		}
	}
	if len(e164) > maxE164 {
		return Number{Raw: raw}, false
	}
	return Number{E164: e164, Raw: raw}, true
}

// plain is the fast path for numbers in E.164 form. It returns false for any other form, such
// as one with a national prefix, which may still be a number.
func plain(s string) (string, bool) {
	if len(s) < 8 || len(s) > maxE164 || s[0] != '+' || s[1] == '0' {
		return "", false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	// No calling code is a prefix of another.
	for size := 1; size <= 3; size++ {
		code := atoi(s[1 : 1+size])
		if phonenumbers.GetRegionCodeForCountryCode(code) == unknownRegion {
			continue
		}
		national := s[1+size:]
		n := &phonenumbers.PhoneNumber{
			CountryCode:    new(int32(code)),
			NationalNumber: new(uint64(atoi(national))),
		}
		if zeros := len(national) - len(strings.TrimLeft(national, "0")); zeros > 0 {
			n.ItalianLeadingZero = new(true)
			n.NumberOfLeadingZeros = new(int32(zeros))
		}
		return s, valid(n)
	}
	return "", false
}

const unknownRegion = "ZZ"

// atoi parses at most 15 ASCII digits.
func atoi(digits string) int {
	n := 0
	for _, c := range []byte(digits) {
		n = 10*n + int(c-'0')
	}
	return n
}

// valid reports whether a numbering plan has n. Most numbers belong to the main country of
// their calling code; trying that first avoids a search by the library.
func valid(n *phonenumbers.PhoneNumber) bool {
	main := phonenumbers.GetRegionCodeForCountryCode(int(n.GetCountryCode()))
	return phonenumbers.IsValidNumberForRegion(n, main) || phonenumbers.IsValidNumber(n)
}

// looksLikeNumber reports whether trimmed text has the form of a number. The library is more
// lenient: it finds numbers inside prose, reads letters as keypad digits, and takes a short
// code for a local number.
func looksLikeNumber(text string) bool {
	if len(text) > 4 && strings.EqualFold(text[:4], "tel:") { // RFC 3966
		text, _, _ = strings.Cut(text[4:], ";")
	} else {
		text, _ = phonenumbers.MaybeSeparateExtensionFromPhone(text)
	}
	digits, international := 0, false
	for _, r := range text {
		switch {
		case unicode.IsDigit(r):
			digits++
		case r == '+' || r == '＋':
			international = true
		case strings.ContainsRune("()./（）．～~", r) || unicode.Is(unicode.Pd, r) || invisible(r):
		default:
			return false
		}
	}
	return digits > shortCode || international
}

// invisible matches spaces and the formatting characters that address books add.
func invisible(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

// Variants returns the forms of an E.164 number that other systems may use, e164 itself first.
// There is at most one other:
//
//   - Mexico: until 2019 mobile numbers had a 1 after the country code in
//     international form (+52 1 and ten digits).
//   - Brazil: until 2016 mobile numbers had eight digits after the area code, then
//     a 9 was put before them.
//
// Messaging providers still use either form as an id.
func Variants(e164 string) []string {
	switch m := modern(e164); {
	case m != e164:
		return []string{e164, m}
	case strings.HasPrefix(e164, "+52") && len(e164) == len("+525512345678"):
		return []string{e164, "+521" + e164[3:]}
	case strings.HasPrefix(e164, "+55") && len(e164) == len("+5511987654321") && e164[5] == '9' && e164[6] >= '6':
		return []string{e164, e164[:5] + e164[6:]}
	default:
		return []string{e164}
	}
}

// modern returns the present form of an abolished Mexican or Brazilian mobile number, and any
// other text unchanged. Eight digits that begin with 2 to 5 are a Brazilian landline in either
// form.
func modern(e164 string) string {
	switch {
	case strings.HasPrefix(e164, "+521") && len(e164) == len("+5215512345678"):
		return "+52" + e164[4:]
	case strings.HasPrefix(e164, "+55") && len(e164) == len("+551187654321") && e164[5] >= '6':
		return e164[:5] + "9" + e164[5:]
	default:
		return e164
	}
}
