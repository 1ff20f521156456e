package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/api"
)

const (
	tokenSecret = "a secret of the tests' app"
	audience    = "0198c0de-0000-7000-8000-000000000007"
)

var tokenNow = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// signed signs a token independently of the package.
func signed(header, claims, secret string, new func() hash.Hash) string {
	text := encode(header) + "." + encode(claims)
	mac := hmac.New(new, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestParseToken: only HS256, the connection's secret and id, and a time of at most a day pass.
func TestParseToken(t *testing.T) {
	const hs256 = `{"alg":"HS256","typ":"JWT"}`
	seconds := func(d time.Duration) string { return strconv.FormatInt(tokenNow.Add(d).Unix(), 10) }
	claims := func(more string) string {
		return `{"sub":"u-7","aud":"` + audience + `"` + more + `}`
	}
	good := claims(`,"exp":` + seconds(time.Hour))
	sign := func(claims string) string { return signed(hs256, claims, tokenSecret, sha256.New) }
	for _, tt := range []struct {
		name, token string
		want        error
	}{
		{"good", sign(good), nil},
		{"with a name", sign(claims(`,"exp":` + seconds(time.Hour) + `,"name":"Ana","email":"ana@client.example","iat":` + seconds(0))), nil},
		{"a replaced secret", signed(hs256, good, "an older secret of the app", sha256.New), nil},
		{"the longest life", sign(claims(`,"exp":` + seconds(24*time.Hour+time.Minute))), nil},
		{"expired within the skew", sign(claims(`,"exp":` + seconds(-59*time.Second))), nil},
		{"not before, within the skew", sign(claims(`,"exp":` + seconds(time.Hour) + `,"nbf":` + seconds(time.Minute))), nil},
		{"a fraction of a second", sign(claims(`,"exp":` + seconds(time.Hour) + `.5`)), nil},

		{"expired", sign(claims(`,"exp":` + seconds(-time.Minute))), api.ErrTokenExpired},
		{"expired long ago", sign(claims(`,"exp":1`)), api.ErrTokenExpired},
		{"too long a life", sign(claims(`,"exp":` + seconds(24*time.Hour+61*time.Second))), api.ErrToken},
		{"not valid yet", sign(claims(`,"exp":` + seconds(time.Hour) + `,"nbf":` + seconds(2*time.Minute))), api.ErrToken},
		{"issued in the future", sign(claims(`,"exp":` + seconds(time.Hour) + `,"iat":` + seconds(2*time.Minute))), api.ErrToken},
		{"no exp", sign(claims("")), api.ErrToken},
		{"exp is null", sign(claims(`,"exp":null`)), api.ErrToken},
		{"exp is a text", sign(claims(`,"exp":"` + seconds(time.Hour) + `"`)), api.ErrToken},
		{"exp is huge", sign(claims(`,"exp":1e300`)), api.ErrToken},
		{"no sub", sign(`{"aud":"` + audience + `","exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"sub with a slash", sign(`{"sub":"u/7","aud":"` + audience + `","exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"sub is a number", sign(`{"sub":7,"aud":"` + audience + `","exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"no aud", sign(`{"sub":"u-7","exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"another connection's aud", sign(`{"sub":"u-7","aud":"0198c0de-0000-7000-8000-000000000008","exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"several aud", sign(`{"sub":"u-7","aud":["` + audience + `"],"exp":` + seconds(time.Hour) + `}`), api.ErrToken},
		{"another secret", signed(hs256, good, "a secret of another app", sha256.New), api.ErrToken},
		{"no secret", signed(hs256, good, "", sha256.New), api.ErrToken},
		{"alg none", encode(`{"alg":"none"}`) + "." + encode(good) + ".", api.ErrToken},
		{"alg none, signed", signed(`{"alg":"none"}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"alg None", signed(`{"alg":"None"}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"alg hs256", signed(`{"alg":"hs256"}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"alg HS512", signed(`{"alg":"HS512"}`, good, tokenSecret, sha512.New), api.ErrToken},
		{"HS512 named HS256", signed(hs256, good, tokenSecret, sha512.New), api.ErrToken},
		{"alg RS256 with the secret as key", signed(`{"alg":"RS256"}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"no alg", signed(`{}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"critical extensions", signed(`{"alg":"HS256","crit":["exp"]}`, good, tokenSecret, sha256.New), api.ErrToken},
		{"no header", signed(``, good, tokenSecret, sha256.New), api.ErrToken},
		{"no signature", encode(hs256) + "." + encode(good) + ".", api.ErrToken},
		{"two parts", encode(hs256) + "." + encode(good), api.ErrToken},
		{"four parts", sign(good) + ".e30", api.ErrToken},
		{"padding", sign(good) + "=", api.ErrToken},
		{"too large", sign(claims(`,"exp":` + seconds(time.Hour) + `,"x":"` + strings.Repeat("x", 4096) + `"`)), api.ErrToken},
		{"a long name", sign(claims(`,"exp":` + seconds(time.Hour) + `,"name":"` + strings.Repeat("x", 256) + `"`)), api.ErrToken},
		{"nothing", "", api.ErrToken},
		{"dots", "..", api.ErrToken},
		{"no base64", "%.%.%", api.ErrToken},
	} {
		got, err := api.ParseToken(tt.token, audience, []string{tokenSecret, "an older secret of the app"}, tokenNow)
		if !errors.Is(err, tt.want) || err == nil && got.User.ID != "u-7" {
			t.Errorf("%s: ParseToken() = %+v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := api.ParseToken(sign(good), audience, nil, tokenNow); !errors.Is(err, api.ErrToken) {
		t.Errorf("without a secret: %v", err)
	}
	if _, err := api.ParseToken(sign(`{"sub":"u-7","aud":"","exp":`+seconds(time.Hour)+`}`), "", []string{tokenSecret}, tokenNow); !errors.Is(err, api.ErrToken) {
		t.Errorf("without an audience: %v", err)
	}
}

// TestEveryByteOfATokenCounts changes each character of a token.
func TestEveryByteOfATokenCounts(t *testing.T) {
	token := api.SignToken(api.User{ID: "u-7", Name: "Ana"}, audience, tokenSecret, tokenNow.Add(time.Hour))
	if got, err := api.ParseToken(token, audience, []string{tokenSecret}, tokenNow); err != nil || got.User.Name != "Ana" {
		t.Fatalf("ParseToken() = %+v, %v", got, err)
	}
	for i := range token {
		other := byte('A')
		if token[i] == 'A' {
			other = 'B'
		}
		changed := token[:i] + string(other) + token[i+1:]
		if _, err := api.ParseToken(changed, audience, []string{tokenSecret}, tokenNow); err == nil {
			t.Errorf("the token is valid with another character at %d", i)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(api.SignToken(api.User{ID: "u-7"}, audience, tokenSecret, tokenNow.Add(time.Hour)))
	f.Add("e30.e30.e30")
	f.Fuzz(func(t *testing.T, token string) {
		if got, err := api.ParseToken(token, audience, []string{"a secret that nobody has"}, tokenNow); err == nil {
			t.Errorf("ParseToken(%q) = %+v", token, got)
		}
	})
}
