// Package browser is the HTTP side of sessions: their cookies, and the client's address.
//
// All surfaces for browsers share one [SessionAuth], so that they agree on the cookies of
// a session.
package browser

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// Names of the cookies (helpdesk.md 5; helpdesk-decisions.md 2).
const (
	AccessCookie  = "svc-access-token"
	RefreshCookie = "svc-refresh-token"
	IntentCookie  = "svc-login-intent"
	PendingCookie = "svc-second-factor" // pending sign-in
	BrowserCookie = "svc-browser"       // identifies the browser at later sign-ins
)

// SessionAuth authenticates requests by session cookies. It is immutable and safe for
// concurrent use.
type SessionAuth struct {
	Accounts *account.Service

	// Secure marks cookies Secure: set if the base URL is https.
	Secure bool

	// TrustedProxies are the networks of proxies with a trusted X-Forwarded-For.
	TrustedProxies []netip.Prefix
}

// Authenticate returns a context with the identity of r's session, for
// [account.FromContext]. If the session was refreshed, it adds the new cookies to w. Its
// errors are those of [account.Service.Authenticate] and of
// [account.Identity.Restricted].
func (g *SessionAuth) Authenticate(w http.ResponseWriter, r *http.Request) (context.Context, error) {
	ctx, err := g.AuthenticateRestricted(w, r)
	if err != nil {
		return nil, err
	}
	id, _ := account.FromContext(ctx)
	if err := id.Restricted(); err != nil {
		return nil, err
	}
	return ctx, nil
}

// AuthenticateRestricted is [SessionAuth.Authenticate] without the check of
// [account.Identity.Restricted]: for adding a second factor and signing out.
func (g *SessionAuth) AuthenticateRestricted(w http.ResponseWriter, r *http.Request) (context.Context, error) {
	id, fresh, err := g.Accounts.Authenticate(r.Context(), value(r, AccessCookie), value(r, RefreshCookie), g.Client(r))
	if err != nil {
		return nil, err
	}
	if fresh != nil {
		for _, c := range g.SetSession(*fresh) {
			http.SetCookie(w, c)
		}
	}
	telemetry.RequestFrom(r.Context()).SetClient(id.OrganizationID, "")
	return account.NewContext(r.Context(), id), nil
}

// Source sets the audit source of requests to next: surface, client address, user agent
// and a request id, which it also sends as X-Request-Id. The actor is anonymous until
// [SessionAuth.Authenticate] succeeds.
func (g *SessionAuth) Source(surface string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := audit.Source{
			Actor: audit.Actor{Type: audit.Anonymous}, Address: ClientIP(r, g.TrustedProxies),
			UserAgent: r.UserAgent(), RequestID: RequestID(r), Surface: surface,
		}
		w.Header()["X-Request-Id"] = []string{s.RequestID}
		next.ServeHTTP(w, r.WithContext(audit.WithSource(r.Context(), s)))
	})
}

// HasSession reports whether r has session cookies, valid or not.
func HasSession(r *http.Request) bool {
	return value(r, AccessCookie) != "" || value(r, RefreshCookie) != ""
}

// SetSession returns the cookies of a session and, after a sign-in, the browser cookie.
func (g *SessionAuth) SetSession(t account.Tokens) []*http.Cookie {
	list := []*http.Cookie{
		g.cookie(AccessCookie, t.Access, t.AccessLife),
		g.cookie(RefreshCookie, t.Refresh, t.RefreshLife),
	}
	if t.Browser != "" {
		list = append(list, g.cookie(BrowserCookie, t.Browser, account.BrowserLife))
	}
	return list
}

// ClearSession returns cookies that expire a session's. The browser cookie stays.
func (g *SessionAuth) ClearSession() []*http.Cookie {
	return []*http.Cookie{g.cookie(AccessCookie, "", 0), g.cookie(RefreshCookie, "", 0)}
}

// Intent returns r's intent, the proof of having requested a sign-in link.
func Intent(r *http.Request) string { return value(r, IntentCookie) }

// SetIntent returns the cookie of an intent; an empty intent expires it.
func (g *SessionAuth) SetIntent(intent string) *http.Cookie {
	if intent == "" {
		return g.cookie(IntentCookie, "", 0)
	}
	return g.cookie(IntentCookie, intent, account.LinkLife)
}

// Pending returns the token of r's pending sign-in.
func Pending(r *http.Request) string { return value(r, PendingCookie) }

// SetPending returns the cookie of a pending sign-in; an empty token expires it.
func (g *SessionAuth) SetPending(token string) *http.Cookie {
	if token == "" {
		return g.cookie(PendingCookie, "", 0)
	}
	return g.cookie(PendingCookie, token, account.PendingLife)
}

func (g *SessionAuth) cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: g.Secure,
	}
	if c.MaxAge <= 0 {
		c.MaxAge = -1
	}
	return c
}

func value(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Client returns the client of r.
func (g *SessionAuth) Client(r *http.Request) account.Client {
	c := account.Client{UserAgent: r.UserAgent(), Browser: value(r, BrowserCookie)}
	if ip := ClientIP(r, g.TrustedProxies); ip.IsValid() {
		c.IP = ip.String()
	}
	return c
}

// ClientIP returns r's client address: the peer of the connection or, while that is a
// trusted proxy, the peer that the proxy added to X-Forwarded-For. It ignores entries
// that a client wrote. The zero Addr means that the connection has no IP address.
func ClientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	ip, _ := Trace(r, trusted)
	return ip
}

// Trace is [ClientIP] for address allowlists: whole is false if the chain ends at a
// trusted proxy and an entry that is not an address. Then ip is the proxy, and the client
// is unknown.
func Trace(r *http.Request, trusted []netip.Prefix) (ip netip.Addr, whole bool) {
	ip, ok := parseAddr(r.RemoteAddr)
	if !ok || len(trusted) == 0 {
		return ip, ok
	}
	lines := r.Header.Values("X-Forwarded-For")
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			if !contains(trusted, ip) {
				return ip, true
			}
			last := rest
			if cut := strings.LastIndexByte(rest, ','); cut >= 0 {
				rest, last = rest[:cut], rest[cut+1:]
			} else {
				more = false
			}
			next, ok := parseAddr(strings.TrimSpace(last))
			if !ok {
				return ip, false // the proxy's entry is not an address
			}
			ip = next
		}
	}
	return ip, true
}

func contains(networks []netip.Prefix, ip netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// parseAddr parses an address with or without a port.
func parseAddr(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		ip = ap.Addr()
	}
	return ip.Unmap().WithZone(""), true
}

// RequestID returns the id that [telemetry.Edge] has given the request, or a new one.
func RequestID(r *http.Request) string {
	if id := telemetry.RequestFrom(r.Context()).ID(); id != "" {
		return id
	}
	return telemetry.NewRequestID()
}
