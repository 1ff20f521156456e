package smtpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Certificate is a certificate with its key in files. It is read again when a file has changed, so
// that a renewal needs no restart. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu    sync.Mutex
	stamp [2]stamp
	last  *tls.Certificate
}

// stamp identifies the content of a file.
type stamp struct {
	at   time.Time
	size int64
}

// OpenCertificate reads a certificate and its key, in PEM.
func OpenCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	now, err := c.stamps()
	if err != nil {
		return nil, err
	}
	if c.last, err = c.load(); err != nil {
		return nil, err
	}
	c.stamp = now
	return c, nil
}

func (c *Certificate) stamps() (now [2]stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return now, err
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	return now, nil
}

func (c *Certificate) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	return &pair, nil
}

// current returns the certificate, read again if a file has changed. A pair that does not fit,
// such as one that is being replaced, is ignored until it does.
func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.stamps()
	if err != nil || now == c.stamp {
		return c.last
	}
	pair, err := c.load()
	if err != nil {
		c.log.Warn("the certificate for SMTP has changed and cannot be used; the previous one stays", "error", err)
		return c.last
	}
	c.last, c.stamp = pair, now
	return pair
}

func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil }

// Leaf returns the present certificate of the server.
func (c *Certificate) Leaf() (*x509.Certificate, error) {
	pair := c.current()
	if pair.Leaf == nil {
		return nil, errors.New("the certificate cannot be parsed")
	}
	return pair.Leaf, nil
}
