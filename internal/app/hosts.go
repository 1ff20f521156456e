package app

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/audit"

	"golang.org/x/net/idna"
)

// hosts are the accepted Host names of requests. Otherwise a page under a name that
// resolves to this server (DNS rebinding) could read it as its own origin, and links
// would be built with any name that a request sends.
type hosts struct {
	names    []string // in the form of [hostName]
	loopback bool     // accepts every name of this machine
}

// hosts returns the hosts of the configured base URLs and the operator's extra ones. If
// the base URL is this machine, every name of this machine is accepted.
func (c *Config) hosts() (hosts, error) {
	h := hosts{loopback: c.Loopback()}
	for _, address := range []string{c.BaseURL, c.FleetBaseURL, c.SandboxBaseURL} {
		if address == "" {
			continue
		}
		u, err := url.Parse(address)
		if err != nil {
			return h, fmt.Errorf("%q is not an address", address)
		}
		name, ok := hostName(u.Host)
		if !ok {
			return h, fmt.Errorf("%q has no host", address)
		}
		h.names = append(h.names, name)
	}
	for _, extra := range c.ExtraHosts {
		name, ok := hostName(extra)
		if _, port, _ := net.SplitHostPort(extra); !ok || port != "" {
			return h, fmt.Errorf("extra-hosts: %q is not a host name such as help.internal", extra)
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

// CheckHosts returns an error for an invalid extra host.
func (c *Config) CheckHosts() error {
	_, err := c.hosts()
	return err
}

// hostName returns the host of a Host header in canonical form: without port and final
// dot, in lower-case ASCII, IP addresses in canonical form. The port is ignored: a proxy
// may listen on another one.
func hostName(header string) (name string, ok bool) {
	name = header
	if host, port, err := net.SplitHostPort(header); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return "", false
		}
		name = host
	} else if inner, found := strings.CutPrefix(header, "["); found { // an address without a port
		if name, found = strings.CutSuffix(inner, "]"); !found {
			return "", false
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().WithZone("").String(), true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", false
		}
		name = ascii
	}
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return "", false
	}
	return name, true
}

// allow reports whether a Host header is accepted.
func (h hosts) allow(header string) bool {
	name, ok := hostName(header)
	if !ok {
		return false
	}
	if h.loopback {
		if addr, err := netip.ParseAddr(name); isLocalhost(name) || err == nil && addr.IsLoopback() {
			return true
		}
	}
	return slices.Contains(h.names, name)
}

// healthPaths accept any host: health checks use the IP address.
var healthPaths = []string{"/healthz", "/readyz"}

// auditForeignHost is the action of a request for an unknown host.
const auditForeignHost audit.Action = "request.foreign_host"

// guard refuses requests for unknown hosts with 421 (RFC 9110, section 15.5.20).
func (h hosts) guard(next http.Handler, gate *browser.SessionAuth, log *audit.Log) http.Handler {
	refused := gate.Source(audit.Web, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name, _ := hostName(r.Host)
		log.Refuse(r.Context(), audit.Entry{Action: auditForeignHost, Target: audit.Target{Type: "host", ID: name}})
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r.Host) && !slices.Contains(healthPaths, r.URL.Path) {
			refused.ServeHTTP(w, r)
			plain(w, http.StatusMisdirectedRequest,
				"this server has another name. A proxy in front of it must pass the Host header on; further names are a setting, extra-hosts\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}
