package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command line as a user does; each script covers one task.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mail-server": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("MAIL_SERVER", mailtest.NewServer(t, mailtest.ServerConfig{User: "robin", Password: "hunter2"}).URL)
			},
			"public-address": func(ts *testscript.TestScript, _ bool, _ []string) { publicAddress(t, ts) },
			"wait-for":       func(ts *testscript.TestScript, _ bool, args []string) { waitFor(t, ts, args) },
		},
	})
}

// publicAddress sets PUBLIC to an https URL that does not look like this machine, BACKEND
// to the server's listening address behind it, and SSL_CERT_FILE to its certificate.
func publicAddress(t *testing.T, ts *testscript.TestScript) {
	backend := apptest.Address(t)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(front.Addr().String())
	ts.Check(err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4zero},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	file := ts.MkAbs("roots.pem")
	ts.Check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: backend})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	srv := &http.Server{Handler: proxy, ErrorLog: proxy.ErrorLog}
	go srv.Serve(tls.NewListener(front, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
	ts.Defer(func() { srv.Close() })
	// The unspecified address reaches this machine without looking like it.
	ts.Setenv("PUBLIC", "https://0.0.0.0:"+port)
	ts.Setenv("BACKEND", backend)
	ts.Setenv("SSL_CERT_FILE", file)
}

// waitFor waits until a server is ready: wait-for HOST:PORT.
func waitFor(t *testing.T, ts *testscript.TestScript, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: wait-for HOST:PORT")
	}
	for range poll(t, 30*time.Second) {
		resp, err := http.Get("http://" + args[0] + "/readyz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	ts.Fatalf("%s is not ready", args[0])
}
