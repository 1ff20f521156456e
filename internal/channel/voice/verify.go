package voice

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

const signatureHeader = "X-Voice-Signature"

// tokenSkew is the maximum difference between the provider's clock and ours.
const tokenSkew = 5 * time.Minute

// Verify implements [channel.Adapter].
//
// A signature in the header must match the body. Without one, the body must be a token signed
// with HS256; tokens with another algorithm are refused.
func (*Adapter) Verify(r *channel.Request, secret string) bool {
	if secret == "" {
		return false
	}
	if presented := r.First(signatureHeader); presented != "" {
		return hmac.Equal(decodeSignature(presented), digest(r.Body, secret))
	}
	t, ok := parseToken(r.Body)
	return ok && t.algorithm == "HS256" && hmac.Equal(t.signature, digest(t.signed, secret)) && t.fresh(r.Received)
}

// HeaderProof implements [channel.HeaderProver]. Without the header, the body may be a token.
func (*Adapter) HeaderProof(r *channel.Request) channel.HeaderProof {
	presented := r.First(signatureHeader)
	return channel.BodyDecidesIf(presented == "" || decodeSignature(presented) != nil)
}

func digest(body []byte, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}

// decodeSignature returns the 32 bytes of the header in one of its encodings, or nil.
func decodeSignature(s string) []byte {
	s = strings.TrimPrefix(s, "sha256=")
	if b, err := hex.DecodeString(s); err == nil && len(b) == sha256.Size {
		return b
	}
	s = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(s), "=")
	if b, err := base64.RawStdEncoding.Strict().DecodeString(s); err == nil && len(b) == sha256.Size {
		return b
	}
	return nil
}

// token is a compact JSON Web Token (RFC 7519).
type token struct {
	signed    []byte // the signed bytes
	signature []byte
	algorithm string
	payload   []byte
}

// parseToken parses a body that is a token, possibly as a JSON string.
func parseToken(body []byte) (t token, ok bool) {
	body = bytes.TrimSpace(body)
	if len(body) > 1 && body[0] == '"' && body[len(body)-1] == '"' {
		body = body[1 : len(body)-1]
	}
	header, rest, _ := bytes.Cut(body, []byte("."))
	payload, signature, ok := bytes.Cut(rest, []byte("."))
	if !ok || len(header) == 0 || len(payload) == 0 {
		return token{}, false
	}
	var parts [3][]byte
	for i, text := range [][]byte{header, payload, signature} {
		// The decoder would skip line ends, which the signature covers.
		if bytes.ContainsAny(text, "\r\n") {
			return token{}, false
		}
		part := make([]byte, base64.RawURLEncoding.DecodedLen(len(text)))
		n, err := base64.RawURLEncoding.Strict().Decode(part, text)
		if err != nil {
			return token{}, false
		}
		parts[i] = part[:n]
	}
	var h struct {
		Algorithm string `json:"alg"`
	}
	if json.Unmarshal(parts[0], &h) != nil {
		return token{}, false
	}
	return token{signed: body[:len(header)+1+len(payload)], signature: parts[2], algorithm: h.Algorithm, payload: parts[1]}, true
}

// fresh checks a token's times, if it has any: neither expired nor issued in the future.
func (t *token) fresh(now time.Time) bool {
	var claims map[string]json.RawMessage
	if json.Unmarshal(t.payload, &claims) != nil {
		return true // no claims; a missing event is found later
	}
	for name, ok := range map[string]func(at time.Time) bool{
		"exp": func(at time.Time) bool { return now.Before(at.Add(tokenSkew)) },
		"iat": func(at time.Time) bool { return !now.Before(at.Add(-tokenSkew)) },
		"nbf": func(at time.Time) bool { return !now.Before(at.Add(-tokenSkew)) },
	} {
		raw, there := claims[name]
		if !there || string(raw) == "null" {
			continue
		}
		var seconds float64
		if json.Unmarshal(raw, &seconds) != nil || seconds < 0 || seconds > 1e11 {
			return false
		}
		if !ok(time.UnixMilli(int64(seconds * 1000))) {
			return false
		}
	}
	return true
}

// Sign returns the header X-Voice-Signature for a plain body.
func Sign(body []byte, secret string) string { return hex.EncodeToString(digest(body, secret)) }

// SignJWT returns the body for an event if the webhook has a secret: the event as a signed
// token.
func SignJWT(event []byte, secret string) []byte {
	encode := base64.RawURLEncoding
	signed := encode.AppendEncode(nil, []byte(`{"alg":"HS256","typ":"JWT"}`))
	signed = append(signed, '.')
	signed = encode.AppendEncode(signed, event)
	sum := digest(signed, secret)
	return encode.AppendEncode(append(signed, '.'), sum)
}
