// Package phone turns what people and providers write as a telephone number into
// one canonical form, E.164, so that a caller, a texter and a typed-in contact
// are recognised as the same customer.
//
// Many senders are not numbers: short codes, alphanumeric sender names, withheld
// callers and user ids. [Parse] says so and changes nothing about them; whoever
// stores them keeps them verbatim, as another kind of key. No input is an error.
package phone

import (
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
)

// shortCode is the length up to which digits without a country code are taken
// for a short code. A few small countries have subscriber numbers as short, and
// lose nothing but the merging of two spellings.
const shortCode = 6

// maxE164 is the length of the longest E.164 number, with its "+". The library
// lets a few countries exceed it.
const maxE164 = 16

// maxText bounds the work spent on hostile input, in bytes. The longest honest
// spelling, with every digit full-width and an extension, is shorter.
const maxText = 120

// Number is a telephone number and the way it was written.
type Number struct {
	E164 string // "+" and at most 15 digits, no extension; "" if it is not a number
	Raw  string // as given
}

// Parse reads raw in any usual spelling. A number without a country code is of
// defaultRegion (ISO 3166, "DE"); without a region it is not a number. An
// extension is dropped. The result is false, and E164 empty, for whatever no
// numbering plan knows as a telephone number.
//
// Mobile numbers of Mexico and Brazil in the forms that were abolished in 2019
// and 2016, but live on in messaging ids, come out in their present form; see
// [Variants].
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
		// Perhaps in a form that its country has abolished.
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

// plain is the fast path for what providers send, E.164 already. It reports false
// for anything else, such as a national prefix left in, which may yet be a number.
func plain(s string) (string, bool) {
	if len(s) < 8 || len(s) > maxE164 || s[0] != '+' || s[1] == '0' {
		return "", false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	// No calling code begins another.
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

// atoi reads at most 15 ASCII digits.
func atoi(digits string) int {
	n := 0
	for _, c := range []byte(digits) {
		n = 10*n + int(c-'0')
	}
	return n
}

// valid reports whether some numbering plan has n. Most numbers are of the main
// country of their calling code; asking for that one first spares the library a
// search that does the same work twice.
func valid(n *phonenumbers.PhoneNumber) bool {
	main := phonenumbers.GetRegionCodeForCountryCode(int(n.GetCountryCode()))
	return phonenumbers.IsValidNumberForRegion(n, main) || phonenumbers.IsValidNumber(n)
}

// looksLikeNumber reports whether text, already trimmed, is written as a number.
// The library is more generous: it finds numbers inside prose, reads letters as
// the digits on their keys, and takes a short code for a local number.
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

// invisible matches spaces and the formatting characters that address books put
// around numbers.
func invisible(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

// Variants returns the forms under which the owner of an E.164 number may be known
// elsewhere, e164 itself first. Besides e164 there is at most one:
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

// modern returns the present form of an abolished Mexican or Brazilian mobile
// number, and any other text as it is. Eight digits that begin with 2 to 5 are a
// Brazilian landline, then as now.
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
