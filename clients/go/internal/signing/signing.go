// Package signing computes the signatures of deliveries of webhooks.
package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Standard returns a signature of Standard Webhooks: "v1," and a MAC in base64.
func Standard(secret, id, timestamp string, body []byte) string {
	key := []byte(secret)
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "=")); err == nil {
			key = decoded
		}
	}
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, []byte(id+"."+timestamp+"."), body))
}

// Body returns the value of X-Service-Signature: the MAC in hexadecimal digits, in form B with a
// prefix.
func Body(secret string, formB bool, body []byte) string {
	text := hex.EncodeToString(mac([]byte(secret), body))
	if formB {
		return "sha256=" + text
	}
	return text
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
