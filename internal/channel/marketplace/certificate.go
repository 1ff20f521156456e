package marketplace

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

// The forms of the service's URLs, matched literally instead of parsed, so that no parser
// difference can turn them into another host. Looser forms would admit other hosts:
// sns.s3-us-west-2.amazonaws.com is anyone's storage.
const serviceHost = `(sns\.([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?)`

var (
	certificateForm = regexp.MustCompile(`^https://` + serviceHost + `(?::443)?/SimpleNotificationService(?:-[A-Za-z0-9]+)?\.pem$`)
	serviceForm     = regexp.MustCompile(`^https://` + serviceHost + `(?::443)?/?\?[!-~]*$`)
)

// certificateRegion returns the region in a certificate's URL, or "" if it is not the
// service's.
func certificateRegion(address string) string {
	if len(address) > maxAddress {
		return ""
	}
	if m := certificateForm.FindStringSubmatch(address); m != nil {
		return m[2]
	}
	return ""
}

const (
	maxAddress     = 300 // bytes
	maxCertificate = 64 << 10
	fetchTimeout   = 5 * time.Second
	// maxFetches bounds concurrent downloads, because unauthenticated clients can name URLs
	// without a certificate.
	maxFetches = 8
	// maxKnown bounds each cache, and missingFor is how long a missing certificate is cached.
	maxKnown   = 256
	missingFor = time.Minute
)

// Certificates fetches and caches the service's certificates, which are few and immutable. It
// is safe for concurrent use.
type Certificates struct {
	http    http.RoundTripper
	test    *TestKey // may be nil
	fetches singleflight.Group
	places  *semaphore.Weighted
	known   *cache.Cache[string, *x509.Certificate]
	missing *cache.Cache[string, struct{}] // apart, so that they evict no certificate
}

// OpenCertificates returns a store that fetches by rt, which must refuse private addresses.
// test, if not nil, is trusted in addition.
func OpenCertificates(rt http.RoundTripper, test *TestKey) *Certificates {
	return &Certificates{
		http: rt, test: test, places: semaphore.NewWeighted(maxFetches),
		known: cache.New[string, *x509.Certificate](maxKnown, 0), missing: cache.New[string, struct{}](maxKnown, missingFor),
	}
}

// At implements [CertificateStore].
func (c *Certificates) At(address string) *x509.Certificate {
	certificate, _ := c.find(address)
	return certificate
}

// find returns the certificate of a URL, nil if it has none; false if that is unknown.
func (c *Certificates) find(address string) (*x509.Certificate, bool) {
	region := certificateRegion(address)
	if region == "" {
		return nil, true
	}
	if c.test != nil && address == testAddress(region) {
		return c.test.certificate, true
	}
	if certificate, ok := c.known.Get(address); ok {
		return certificate, true
	}
	_, ok := c.missing.Get(address)
	return nil, ok
}

// Fetch implements [CertificateStore].
func (c *Certificates) Fetch(ctx context.Context, address string) error {
	if _, ok := c.find(address); ok {
		return nil
	}
	_, err, _ := c.fetches.Do(address, func() (any, error) {
		if !c.places.TryAcquire(1) {
			return nil, errors.New("too many certificates are being fetched")
		}
		defer c.places.Release(1)
		// Other callers wait for the result, too, so it must not end with the first caller.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		certificate, err := c.fetch(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("fetch the certificate of the notification service: %w", err)
		}
		if certificate == nil {
			c.missing.GetOrPut(address, struct{}{})
		} else {
			c.known.GetOrPut(address, certificate)
		}
		return nil, nil
	})
	return err
}

// fetch returns nil if the URL has no certificate.
func (c *Certificates) fetch(ctx context.Context, address string) (*x509.Certificate, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.RoundTrip(req) // not an http.Client, which would follow redirects
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return nil, fmt.Errorf("it answered %s", resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCertificate+1))
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	block, _ := pem.Decode(text)
	if len(text) > maxCertificate || block == nil || block.Type != "CERTIFICATE" {
		return nil, nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil // unparsable counts as none
	}
	return certificate, nil
}
