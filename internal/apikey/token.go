package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	livePrefix = "sk_live_"
	testPrefix = "sk_test_" // as long as the other
	alphabet   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

	randomSize   = 32
	checksumSize = 6
	tokenSize    = len(livePrefix) + randomSize + checksumSize
	partialSize  = 8
)

// Token is the secret by which a key is known: "sk_live_" or "sk_test_", 32
// random characters out of [0-9A-Za-z], and 6 characters of checksum over all
// before them (fleet-api.md 6.1). However it is formatted or logged, it shows
// no more than lists do; [Token.Reveal] alone gives it away.
type Token struct{ text string }

// NewToken makes a token. Each of its characters is equally likely.
func NewToken(e Environment) Token {
	text := make([]byte, 0, tokenSize)
	if e == Test {
		text = append(text, testPrefix...)
	} else {
		text = append(text, livePrefix...)
	}
	var random [64]byte
	for n := 0; n < randomSize; {
		rand.Read(random[:]) // never fails: crypto/rand ends the program instead
		for _, b := range random {
			// Of 64 values the last two are thrown away, so that none of the
			// others comes twice.
			if v := int(b & 63); v < len(alphabet) && n < randomSize {
				text = append(text, alphabet[v])
				n++
			}
		}
	}
	sum := checksum(text)
	return Token{string(append(text, sum[:]...))}
}

// checksum is the CRC-32 (IEEE) of text in base 62, padded with zeros.
func checksum(text []byte) [checksumSize]byte {
	var out [checksumSize]byte
	n := crc32.ChecksumIEEE(text)
	for i := checksumSize - 1; i >= 0; i-- {
		out[i] = alphabet[n%uint32(len(alphabet))]
		n /= uint32(len(alphabet))
	}
	return out
}

var errToken = errors.New("not an API key: its shape or checksum is wrong")

// Parse reads a token. It refuses what cannot be one without asking anybody:
// wrong prefix, length, characters or checksum. The error does not repeat it.
func Parse(text string) (Token, error) {
	if len(text) != tokenSize {
		return Token{}, errToken
	}
	if prefix := text[:len(livePrefix)]; prefix != livePrefix && prefix != testPrefix {
		return Token{}, errToken
	}
	for i := len(livePrefix); i < len(text); i++ {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return Token{}, errToken
		}
	}
	body := []byte(text[:tokenSize-checksumSize])
	// The checksum is no secret: it may be compared in any time.
	if sum := checksum(body); string(sum[:]) != text[tokenSize-checksumSize:] {
		return Token{}, errToken
	}
	return Token{text}, nil
}

// Environment is where the token belongs, by its prefix.
func (t Token) Environment() Environment {
	if t.text[:len(testPrefix)] == testPrefix {
		return Test
	}
	return Live
}

// Partial is what lists show of a token: its last 8 characters.
func (t Token) Partial() string { return t.text[tokenSize-partialSize:] }

// Reveal returns the token itself, to be shown once.
func (t Token) Reveal() string { return t.text }

// digest is what is stored of a token.
func (t Token) digest() [sha256.Size]byte { return sha256.Sum256([]byte(t.text)) }

// Format implements [fmt.Formatter] for every verb.
func (t Token) Format(f fmt.State, _ rune) {
	if t.text == "" {
		io.WriteString(f, "no token")
		return
	}
	io.WriteString(f, t.text[:len(livePrefix)]+"…"+t.Partial())
}
