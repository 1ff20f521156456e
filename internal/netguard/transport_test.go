package netguard

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTransport(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())

	get := func(g Guard) (string, error) {
		tr := newTransport(g, func(*http.Request) (*url.URL, error) { return nil, nil }, nil)
		defer tr.CloseIdleConnections()
		tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		tr.TLSClientConfig.RootCAs = roots
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if got, err := get(Guard{AllowPrivate: true}); err != nil || got != "HTTP/2.0" {
		t.Errorf("with AllowPrivate: %q, %v, want HTTP/2.0", got, err)
	}
	if _, err := get(Guard{}); err == nil {
		t.Error("connected to loopback")
	} else if _, ok := errors.AsType[*AddressError](err); !ok {
		t.Errorf("error %v has no AddressError", err)
	}
}

// connectProxy is a proxy that answers CONNECT and plain requests to any destination with its
// own server, and records the destinations.
type connectProxy struct {
	*httptest.Server
	backend string // host:port

	mu   sync.Mutex
	asks []string
}

func newConnectProxy(t *testing.T, backend string) *connectProxy {
	p := &connectProxy{backend: backend}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asks = append(p.asks, r.Method+" "+r.Host)
	p.mu.Unlock()
	if r.Method != http.MethodConnect {
		io.WriteString(w, "plain answer")
		return
	}
	to, err := net.Dial("tcp", p.backend)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	fmt.Fprint(from, "HTTP/1.1 200 Connection established\r\n\r\n")
	var wg sync.WaitGroup
	wg.Go(func() {
		io.Copy(to, bufio.NewReader(buf))
		to.(*net.TCPConn).CloseWrite()
	})
	io.Copy(from, to)
	from.Close()
	wg.Wait()
}

func (p *connectProxy) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asks)
}

func TestTransportWithProxy(t *testing.T) {
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/inside" {
			http.Redirect(w, r, "https://inside.example/", http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(w, "answer")
	}))
	defer backend.Close()

	lookup := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		switch host {
		case "example.com": // the name in httptest's certificate
			// The IPv6 form of an IPv4 address, which some resolvers return.
			return []netip.Addr{netip.MustParseAddr("::ffff:93.184.215.14"), netip.MustParseAddr("2606:4700:4700::1111")}, nil
		case "inside.example":
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		case "mixed.example":
			return []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("169.254.169.254")}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}

	tests := []struct {
		name      string
		guard     Guard
		target    string
		noProxy   string // a host excluded from the proxy
		proxyHost string // the target that starts with PROXY, in this spelling
		want      string // body
		err       string
		asks      []string
	}{
		{name: "public name", target: "https://example.com/",
			want: "answer", asks: []string{"CONNECT example.com:443"}},
		{name: "private name", target: "https://inside.example/",
			err: "inside.example resolves to 10.0.0.1, which is not a public address (private)"},
		{name: "one private address of two", target: "https://mixed.example/",
			err: "mixed.example resolves to 169.254.169.254, which is not a public address (link-local)"},
		{name: "private address", target: "https://10.0.0.1/",
			err: "10.0.0.1 is not a public address (private)"},
		{name: "unknown name", target: "https://nowhere.example/",
			err: "check the address of nowhere.example: lookup nowhere.example: no such host"},
		{name: "redirect inside", target: "https://example.com/inside",
			err: "inside.example resolves to 10.0.0.1", asks: []string{"CONNECT example.com:443"}},
		{name: "plain http, public", target: "http://example.com/",
			want: "plain answer", asks: []string{"GET example.com"}},
		{name: "plain http, private", target: "http://inside.example/",
			err: "inside.example resolves to 10.0.0.1"},
		{name: "the proxy itself, unproxied", target: "http://PROXY/", noProxy: "127.0.0.1",
			err: "127.0.0.1 is not a public address (loopback)"},
		{name: "the proxy itself in other characters", target: "http://PROXY/", noProxy: "１２７.０.０.１", proxyHost: "１２７.０.０.１",
			err: "not a public address (loopback)"},
		{name: "private name, allowed", guard: Guard{AllowPrivate: true}, target: "http://inside.example/",
			want: "plain answer", asks: []string{"GET inside.example"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proxy := newConnectProxy(t, backend.Listener.Addr().String())
			proxyURL, err := url.Parse(proxy.URL)
			if err != nil {
				t.Fatal(err)
			}
			route := func(r *http.Request) (*url.URL, error) {
				if r.URL.Hostname() == tt.noProxy {
					return nil, nil
				}
				return proxyURL, nil
			}
			tr := newTransport(tt.guard, route, lookup)
			defer tr.CloseIdleConnections()
			tr.TLSClientConfig = backend.Client().Transport.(*http.Transport).TLSClientConfig.Clone()

			address := proxyURL.Host
			if tt.proxyHost != "" {
				address = tt.proxyHost + ":" + proxyURL.Port()
			}
			resp, err := (&http.Client{Transport: tr}).Get(strings.Replace(tt.target, "PROXY", address, 1))
			var body []byte
			if err == nil {
				body, _ = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if string(body) != tt.want {
				t.Errorf("body %q, want %q", body, tt.want)
			}
			if got := proxy.asked(); !slices.Equal(got, tt.asks) {
				t.Errorf("the proxy was asked for %q, want %q", got, tt.asks)
			}
		})
	}
}

// TestNewTransportUsesTheEnvironmentsProxy: the library reads the environment once per process,
// so only this test may use it.
func TestNewTransportUsesTheEnvironmentsProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("NO_PROXY", "direct.example")
	t.Setenv("no_proxy", "direct.example")
	tr := NewTransport(Guard{})
	for target, want := range map[string]string{
		"https://receiver.example/": "http://proxy.example:3128",
		"https://direct.example/":   "<nil>",
	} {
		req := httptest.NewRequest(http.MethodPost, target, nil)
		if got, err := tr.Proxy(req); err != nil || fmt.Sprint(got) != want {
			t.Errorf("proxy for %s is %v, %v, want %s", target, got, err, want)
		}
	}
}
