package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// A receiver with an invalid certificate gets nothing, and the record explains the error.
func TestBrokenCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a delivery came through")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	for name, tt := range map[string]struct {
		url   string
		roots *x509.CertPool
		want  string
	}{
		"of nobody we trust": {server.URL, x509.NewCertPool(), "x509: certificate signed by unknown authority"},
		"of another name":    {strings.Replace(server.URL, "127.0.0.1", "localhost", 1), known, "x509: certificate is valid for example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, dbtest.New(t), newNetwork(t), func(c *webhook.Config) {
				tr := netguard.NewTransport(netguard.Guard{AllowPrivate: true})
				tr.TLSClientConfig = &tls.Config{RootCAs: tt.roots}
				c.Transport, c.AllowPrivate = tr, true
			})
			w := r.create(webhook.New{URL: tt.url})
			got, err := r.hooks.Test(t.Context(), org, w.ID)
			if err != nil || got.StatusCode != 0 || !strings.Contains(got.Error, tt.want) {
				t.Errorf("got %+v, %v, want an error with %q", got, err, tt.want)
			}
			if hook := r.find(w.ID); !strings.Contains(hook.LastError, tt.want) {
				t.Errorf("the record says %q, want %q", hook.LastError, tt.want)
			}
		})
	}
}
