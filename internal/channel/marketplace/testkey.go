package marketplace

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"
	"time"
)

// TestKey replaces the notification service's key in trials. Its signatures are valid only
// where it is trusted.
type TestKey struct {
	key         *rsa.PrivateKey
	certificate *x509.Certificate
}

// NewTestKey generates a key in the form of [ParseTestKey].
func NewTestKey() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, minKey)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(der), nil
}

var errTestKey = errors.New("must be an RSA private key of at least 2048 bits, as PKCS #8 in base64 without line breaks")

// ParseTestKey parses a private key. The error is the rest of a sentence and does not repeat
// it.
func ParseTestKey(text string) (*TestKey, error) {
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errTestKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errTestKey
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || key.N.BitLen() < minKey {
		return nil, errTestKey
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kickstand test"},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &TestKey{key, certificate}, err
}

// Sign signs body like [Sign]. The certificate URL is one that the service does not have, in
// the region of the topic.
func (k *TestKey) Sign(body []byte) []byte {
	e, err := parse(body)
	if err != nil {
		return body
	}
	return Sign(body, k.key, testAddress(e.region()))
}

func testAddress(region string) string {
	return "https://sns." + region + ".amazonaws.com/SimpleNotificationService-kickstandtest.pem"
}
