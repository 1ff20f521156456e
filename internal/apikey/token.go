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
	testPrefix = "sk_test_" // same length as livePrefix
	alphabet   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

	randomSize   = 32
	checksumSize = 6
	tokenSize    = len(livePrefix) + randomSize + checksumSize
	partialSize  = 8
)

// Token is the secret of a key: "sk_live_" or "sk_test_", 32 random characters of
// [0-9A-Za-z], and a checksum of 6 characters (fleet-api.md 6.1). Formatting and logging
// show its last characters only; [Token.Reveal] returns the secret.
type Token struct{ text string }

// NewToken returns a random token. Its characters are uniformly distributed.
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
			// Two of the 64 values are skipped, so that the others stay uniformly
			// distributed.
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

// Parse parses a token. It refuses a wrong prefix, length, character or checksum without
// a query. The error does not quote it.
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
	// The checksum is no secret: the comparison need not be in constant time.
	if sum := checksum(body); string(sum[:]) != text[tokenSize-checksumSize:] {
		return Token{}, errToken
	}
	return Token{text}, nil
}

// Environment returns the environment of the token's prefix.
func (t Token) Environment() Environment {
	if t.text[:len(testPrefix)] == testPrefix {
		return Test
	}
	return Live
}

// Partial returns the last 8 characters, for lists.
func (t Token) Partial() string { return t.text[tokenSize-partialSize:] }

// Reveal returns the secret, to be shown once.
func (t Token) Reveal() string { return t.text }

// digest returns the stored form of a token.
func (t Token) digest() [sha256.Size]byte { return sha256.Sum256([]byte(t.text)) }

// Format implements [fmt.Formatter] for every verb.
func (t Token) Format(f fmt.State, _ rune) {
	if t.text == "" {
		io.WriteString(f, "no token")
		return
	}
	io.WriteString(f, t.text[:len(livePrefix)]+"…"+t.Partial())
}
