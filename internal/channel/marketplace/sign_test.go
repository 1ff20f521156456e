package marketplace_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"testing"
)

// signText is the signature from the service's documentation, implemented independently.
func signText(t testing.TB, key *rsa.PrivateKey, version, text string) string {
	t.Helper()
	hash, sum := crypto.SHA256, sha256.Sum256([]byte(text))
	digest := sum[:]
	if version == "1" {
		old := sha1.Sum([]byte(text))
		hash, digest = crypto.SHA1, old[:]
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, hash, digest)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}
