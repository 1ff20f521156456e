package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Limits of tokens.
const (
	MaxToken     = 4096 // bytes
	MaxTokenLife = 24 * time.Hour
	tokenSkew    = time.Minute // accepted difference of clocks
)

// ErrToken is the error of every token that is not valid. It does not reveal which check failed:
// an app's server that debugs a token can decode it itself.
var ErrToken = errors.New("the token is not valid")

// ErrTokenExpired is the error of a token that was valid.
var ErrTokenExpired = errors.New("the token has expired")

// Token is a verified visitor token.
type Token struct {
	User    User
	Expires time.Time
}

type tokenHeader struct {
	Algorithm string          `json:"alg"`
	Critical  json.RawMessage `json:"crit"`
}

// claims are the claims of a token. A nil time is absent.
type claims struct {
	Subject   string   `json:"sub"`
	Audience  string   `json:"aud"`
	Expires   *float64 `json:"exp"`
	Issued    *float64 `json:"iat"`
	NotBefore *float64 `json:"nbf"`
	Name      string   `json:"name"`
	Email     string   `json:"email"`
	Phone     string   `json:"phone_number"`
}

// ParseToken verifies a visitor token: a JSON Web Token (RFC 7519) in compact form, signed by HS256
// with the bytes of one of secrets. The algorithm is fixed; a header with another one, or with
// critical extensions, is refused. sub is the user's id, aud the connection's id, and exp at most
// [MaxTokenLife] ahead. name, email and phone_number describe the user. Error: [ErrToken], or
// [ErrTokenExpired] for a token that is valid but for its time.
func ParseToken(token, audience string, secrets []string, now time.Time) (Token, error) {
	signed, encodedMAC, _ := cutLast(token, '.')
	encodedHeader, encodedClaims, ok := strings.Cut(signed, ".")
	mac, err := decode(encodedMAC)
	if len(token) > MaxToken || !ok || strings.Contains(encodedClaims, ".") || err != nil || !signedBy(signed, mac, secrets) {
		return Token{}, ErrToken
	}
	var h tokenHeader
	var c claims
	if unmarshal(encodedHeader, &h) != nil || h.Algorithm != "HS256" || h.Critical != nil || unmarshal(encodedClaims, &c) != nil {
		return Token{}, ErrToken
	}
	u := User{ID: c.Subject, Name: c.Name, Email: c.Email, Phone: c.Phone}
	var v problem.Validation
	u.check(&v, "")
	if v.Err() != nil || audience == "" || c.Audience != audience || c.Expires == nil {
		return Token{}, ErrToken
	}
	at := float64(now.Unix())
	skew := tokenSkew.Seconds()
	switch {
	case *c.Expires > at+MaxTokenLife.Seconds()+skew,
		c.NotBefore != nil && *c.NotBefore > at+skew,
		c.Issued != nil && *c.Issued > at+skew:
		return Token{}, ErrToken
	case *c.Expires <= at-skew:
		return Token{}, ErrTokenExpired
	}
	return Token{u, time.Unix(int64(*c.Expires), 0).Add(tokenSkew)}, nil
}

// SignToken returns a token for a user, like an app's server.
func SignToken(u User, audience, secret string, expires time.Time) string {
	exp := float64(expires.Unix())
	head, _ := json.Marshal(map[string]string{"alg": "HS256", "typ": "JWT"})
	body, _ := json.Marshal(claims{Subject: u.ID, Audience: audience, Expires: &exp, Name: u.Name, Email: u.Email, Phone: u.Phone})
	signed := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(tokenMAC(signed, secret))
}

func tokenMAC(signed, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	return mac.Sum(nil)
}

func signedBy(signed string, mac []byte, secrets []string) bool {
	for _, secret := range secrets {
		if secret != "" && hmac.Equal(mac, tokenMAC(signed, secret)) {
			return true
		}
	}
	return false
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func decode(part string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(part) }

func unmarshal(part string, into any) error {
	text, err := decode(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
