// Package textwords splits texts into words for searches: without case and accents, so that a word is
// found in any spelling. It also reads the parts of names, addresses and phone numbers that
// somebody looks for.
package textwords

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

const (
	// MaxWords bounds the words of a text.
	MaxWords = 16_000
	// maxWord bounds the bytes of a word.
	maxWord = 60
	// MinPart is the least length, in letters, of a part of a word that is found anywhere in it. A
	// shorter one is found at its beginning.
	MinPart = 3
	// MinSuffix is the least number of last digits by which a phone number is found.
	MinSuffix = 4
)

// Split returns the words of a text: runs of letters and digits, case-folded and without accents.
// Han, Hiragana and Katakana give one word per character.
func Split(text string) []string {
	text = norm.NFKD.String(cases.Fold().String(text))
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range text {
		switch {
		case len(words) == MaxWords:
			return words
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) && unicode.IsLetter(r):
			end()
			words = append(words, string(r))
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			if word.Len()+utf8.RuneLen(r) <= maxWord {
				word.WriteRune(r)
			}
		case unicode.Is(unicode.M, r): // an accent
		default:
			end()
		}
	}
	end()
	return words
}

// Digits returns the digits of a text.
func Digits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
}

// IsPhonePart reports whether a phone number can have a field.
func IsPhonePart(field string) bool {
	return strings.Trim(field, "0123456789+()-./") == "" && Digits(field) != ""
}

// PhoneDigits returns the digits of a phone number in any form, without the zeros that precede the
// country or the area within it; empty if they are too few.
func PhoneDigits(fields []string) string {
	text := strings.Join(fields, "")
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "00") {
		text = strings.Replace(text, "(0)", "", 1)
	}
	all := Digits(text)
	if len(all) < MinSuffix {
		return ""
	}
	if digits := strings.TrimLeft(all, "0"); len(digits) >= MinSuffix {
		return digits
	}
	return all // such as 0001, the last ones of a number
}

// Sought returns the parts of words that must all be in a person's: words, and the digits of phone
// numbers in any form.
func Sought(text string) []string {
	var list []string
	for fields := strings.Fields(text); len(fields) > 0; {
		n := 0
		for n < len(fields) && IsPhonePart(fields[n]) {
			n++
		}
		if digits := PhoneDigits(fields[:n]); digits != "" {
			list = append(list, digits)
		} else {
			list = append(list, Split(strings.Join(fields[:max(n, 1)], " "))...)
		}
		fields = fields[max(n, 1):]
	}
	return list
}

// Match reports whether each part is in one of the words; one of less than [MinPart] letters at
// its beginning.
func Match(words, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool {
		return !slices.ContainsFunc(words, func(word string) bool {
			if utf8.RuneCountInString(part) < MinPart {
				return strings.HasPrefix(word, part)
			}
			return strings.Contains(word, part)
		})
	})
}

// strokes replaces case-folded letters that Unicode does not split into a letter and an accent by
// their usual spelling on other keyboards.
var strokes = strings.NewReplacer("ł", "l", "ø", "o", "đ", "d", "ð", "d", "ħ", "h", "ŧ", "t", "ı", "i", "æ", "ae", "œ", "oe", "þ", "th")

// Plain returns words without strokes and ligatures: lukasz for łukasz.
func Plain(words []string) []string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = strokes.Replace(word)
	}
	return list
}

// MatchText is [Match] with the words of a text, which it makes [Plain]. The parts must be plain, too. It
// does not split a text in Latin letters.
func MatchText(text string, parts []string) bool {
	folded, ok := foldLatin(text)
	if !ok {
		return Match(Plain(Split(text)), parts)
	}
	return !slices.ContainsFunc(parts, func(part string) bool {
		if utf8.RuneCountInString(part) < MinPart {
			return !beginsWord(folded, part)
		}
		return !strings.Contains(folded, part)
	})
}

// latin are the folded and plain forms of letters by which [foldLatin] replaces them.
var latin = sync.OnceValue(func() *[0x250]string {
	table := new([0x250]string)
	for r := range rune(len(table)) {
		folded := norm.NFKD.String(cases.Fold().String(string(r)))
		table[r] = strokes.Replace(strings.Map(func(c rune) rune {
			if unicode.Is(unicode.M, c) {
				return -1
			}
			return c
		}, folded))
	}
	return table
})

// foldLatin returns a text without case, accents and strokes; false if it has other than Latin letters.
func foldLatin(text string) (string, bool) {
	table := latin()
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case 'A' <= r && r <= 'Z':
			b.WriteByte(byte(r) + 'a' - 'A')
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case int(r) < len(table):
			b.WriteString(table[r])
		case !unicode.Is(unicode.M, r):
			return "", false
		}
	}
	return b.String(), true
}

// beginsWord reports whether a word of a folded text begins with part.
func beginsWord(text, part string) bool {
	for at := 0; ; at++ {
		i := strings.Index(text[at:], part)
		if i < 0 {
			return false
		}
		if at += i; at == 0 || !isWordByte(text[at-1]) {
			return true
		}
	}
}

func isWordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c >= utf8.RuneSelf
}
