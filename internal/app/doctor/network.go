package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Resolves checks that the hosts of the configured base URLs resolve.
func Resolves(ctx context.Context, s Settings) Finding {
	if s.Loopback {
		return ok("not needed for this machine")
	}
	var found []string
	for _, address := range s.Addresses {
		u, err := url.Parse(address)
		if err != nil {
			return fail(fmt.Sprintf("%q is not an address", address), "Set KICKSTAND_BASE_URL.")
		}
		if _, err := netip.ParseAddr(u.Hostname()); err == nil {
			found = append(found, u.Hostname()+" is an address")
			continue
		}
		addrs, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
		if err != nil {
			return fail(fmt.Sprintf("%s does not resolve: %v", u.Hostname(), withoutServer(err)), "Create the DNS record (A or AAAA), or correct KICKSTAND_BASE_URL.")
		}
		found = append(found, u.Hostname()+" is "+strings.Join(addrs, ", "))
	}
	return ok("%s", strings.Join(found, "; "))
}

// withoutServer shortens a resolver's error to its reason.
func withoutServer(err error) string {
	if e, isDNS := errors.AsType[*net.DNSError](err); isDNS {
		return e.Err
	}
	return err.Error()
}

// Client returns the client for requests to the configured base URLs. It follows no
// redirects.
func Client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// expiresSoon is the remaining life of a certificate that needs attention: automatic
// renewal happens earlier.
const expiresSoon = 14 * 24 * time.Hour

// Answers requests each configured base URL as a browser does: it must lead to this
// server, with a TLS certificate that browsers accept and the Host header preserved.
func Answers(ctx context.Context, s Settings, client *http.Client) Finding {
	if s.Loopback {
		return ok("not needed for this machine")
	}
	for _, address := range s.Addresses {
		if f, wrong := checkURL(ctx, address, client); wrong {
			return f
		}
	}
	return ok("%s leads to this server", strings.Join(s.Addresses, ", "))
}

func checkURL(ctx context.Context, address string, client *http.Client) (f Finding, wrong bool) {
	status, body, state, err := get(ctx, client, address+"/healthz")
	switch {
	case badCertificate(err):
		return fail(fmt.Sprintf("%s: %v", address, plainError(err)), "Install a certificate for this name, with its whole chain, that browsers accept."), true
	case err != nil:
		return warn(fmt.Sprintf("%s does not answer this machine: %v", address, plainError(err)),
			"Start the server and what stands in front of it. Some networks do not lead a machine to its own public address: then try from outside."), true
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		return warn(fmt.Sprintf("%s answers with status %d: the server behind it does not run", address, status), "Start the server, at the address that the proxy leads to."), true
	case status != http.StatusOK || body != "ok\n":
		return fail(fmt.Sprintf("%s/healthz answers with status %d, and not as Kickstand does", address, status), "Correct the proxy or KICKSTAND_BASE_URL: the address leads elsewhere."), true
	}
	if status, _, _, err = get(ctx, client, address+"/sign-in"); err == nil && status == http.StatusMisdirectedRequest {
		return fail(fmt.Sprintf("%s leads here, but the proxy replaces the Host header", address), "Pass it on: in nginx, proxy_set_header Host $host."), true
	}
	if state != nil && len(state.PeerCertificates) > 0 {
		if end := state.PeerCertificates[0].NotAfter; time.Until(end) < expiresSoon {
			return warn(fmt.Sprintf("the certificate of %s expires on %s", address, end.UTC().Format(time.DateOnly)), "Renew it."), true
		}
	}
	return Finding{}, false
}

// maxResponse is the maximum size of a response in bytes.
const maxResponse = 64 << 10

func get(ctx context.Context, client *http.Client, address string) (status int, body string, state *tls.ConnectionState, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, "", nil, err
	}
	req.Header.Set("User-Agent", "Kickstand doctor")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	return resp.StatusCode, string(text), resp.TLS, err
}

func badCertificate(err error) bool {
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return true
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return unknown || name || plain
}

// plainError drops method and URL from an error of [http.Client].
func plainError(err error) error {
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err
	}
	return err
}

// publicSkewWarn is the difference to the Date header of the public address, in whole seconds,
// from which Clock warns.
const publicSkewWarn = 2 * time.Second

// Clock compares this machine's clock with the database server's, if there is one, and
// with the Date header of the public base URL, to the second.
func Clock(ctx context.Context, s Settings, client *http.Client, servers []Database) Finding {
	var compared []string
	status := OK
	note := func(source string, skew, warnFrom time.Duration) {
		compared = append(compared, fmt.Sprintf("%s differs by %s", source, skew.Round(time.Millisecond)))
		switch {
		case skew > db.SkewRefuse:
			status = Fail
		case skew >= warnFrom && status == OK:
			status = Warn
		}
	}
	if len(servers) > 0 {
		d := servers[0]
		if handle, done, err := d.Open(ctx); err == nil && handle != nil {
			err := handle.MeasureClock(ctx)
			skew, known := handle.ClockSkew()
			if done(); err == nil && known {
				note("the database server", skew.Abs(), db.SkewWarn)
			}
		}
	}
	if !s.Loopback {
		before := time.Now()
		if date, err := dateOf(ctx, client, s.BaseURL); err == nil {
			// No skew within the round trip and the header's second.
			note("the public address", max(before.Add(-time.Second).Sub(date), time.Until(date), 0), publicSkewWarn)
		}
	}
	found := strings.Join(compared, "; ")
	const remedy = "Synchronize the clocks of all machines (NTP: chrony, systemd-timesyncd)."
	switch {
	case found == "":
		return ok("nothing to compare with")
	case status == Fail:
		return fail(found, remedy)
	case status == Warn:
		return warn(found, remedy)
	}
	return ok("%s", found)
}

func dateOf(ctx context.Context, client *http.Client, baseURL string) (time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, baseURL+"/healthz", nil)
	if err != nil {
		return time.Time{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	resp.Body.Close()
	return http.ParseTime(resp.Header.Get("Date"))
}
