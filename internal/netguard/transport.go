package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// NewTransport returns a transport with guarded connections, tuned for high-rate posts to few
// hosts. It uses HTTP/2 if offered, trusts the system's certificates (or those of
// SSL_CERT_FILE) and respects HTTPS_PROXY, HTTP_PROXY and NO_PROXY. The caller's client sets
// the time limit of a whole request and handles redirects; their targets are guarded as well.
//
// A proxy may be in a private network; the guard then resolves the destination's name and
// checks all its addresses before it asks the proxy to connect. Because the proxy resolves the
// name again, it should refuse private destinations itself.
func NewTransport(g Guard) *http.Transport {
	return newTransport(g, http.ProxyFromEnvironment, net.DefaultResolver.LookupNetIP)
}

func newTransport(
	g Guard,
	proxy func(*http.Request) (*url.URL, error),
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error),
) *http.Transport {
	r := &router{guard: g, proxy: proxy, lookup: lookup, proxies: make(map[string]bool)}
	for _, scheme := range []string{"http", "https"} {
		// A name in no list of exceptions. An invalid proxy setting fails every request.
		u, err := proxy(&http.Request{URL: &url.URL{Scheme: scheme, Host: "kickstand.invalid"}})
		if err == nil && u != nil {
			r.proxies[hostPort(u)] = true
		}
	}
	return &http.Transport{
		Proxy:                  r.route,
		GetProxyConnectHeader:  r.checkConnect,
		DialContext:            r.dial,
		ForceAttemptHTTP2:      true, // not the default with a DialContext
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  time.Minute, // for a client without its own limit
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// router decides for each request whether to use a proxy.
type router struct {
	guard  Guard
	proxy  func(*http.Request) (*url.URL, error)
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	// proxies are the addresses of the operator's proxies in the transport's form, which may be
	// dialed in any network.
	proxies map[string]bool
}

// route is the transport's Proxy function, called for every request.
func (r *router) route(req *http.Request) (*url.URL, error) {
	proxy, err := r.proxy(req)
	if err != nil {
		return nil, err
	}
	connects := false // through CONNECT, which checkConnect checks once per connection
	switch {
	case proxy != nil:
		connects = req.URL.Scheme == "https" && (proxy.Scheme == "http" || proxy.Scheme == "https")
	case !r.proxies[hostPort(req.URL)]:
		return nil, nil // dial checks it
	default:
		// An unproxied request to the proxy's own address is indistinguishable, for dial, from
		// one through the proxy.
	}
	if !connects {
		if _, err := r.checkConnect(req.Context(), proxy, hostPort(req.URL)); err != nil {
			return nil, err
		}
	}
	return proxy, nil
}

// checkConnect is the transport's GetProxyConnectHeader function, called before each CONNECT.
// target is in the form of hostPort.
func (r *router) checkConnect(ctx context.Context, _ *url.URL, target string) (http.Header, error) {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	return nil, r.checkName(ctx, host)
}

func (r *router) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if r.proxies[address] {
		return Guard{AllowPrivate: true}.DialContext(ctx, network, address)
	}
	return r.guard.DialContext(ctx, network, address)
}

// checkName refuses a host unless all its addresses are public, because the proxy may choose
// any of them.
func (r *router) checkName(ctx context.Context, host string) error {
	if r.guard.AllowPrivate {
		return nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return r.guard.Check(addr)
	}
	addrs, err := r.lookup(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("check the address of %s: %w", host, err)
	}
	for _, addr := range addrs {
		// Resolvers may return IPv4 addresses in their IPv6 form.
		if err := r.guard.Check(addr.Unmap()); err != nil {
			if refused, ok := errors.AsType[*AddressError](err); ok {
				refused.Host = host
			}
			return err
		}
	}
	return nil
}

// hostPort returns the address in the form that the transport dials for u.
func hostPort(u *url.URL) string {
	host := u.Hostname()
	if ascii, err := toASCII(host); err == nil {
		host = ascii
	}
	port := u.Port()
	if port == "" {
		switch u.Scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		case "socks5", "socks5h":
			port = "1080"
		}
	}
	return net.JoinHostPort(host, port)
}
