// Package browser is the HTTP side of sessions: the cookies in which a browser
// keeps them, and where a request comes from.
//
// Every surface that people's browsers talk to shares one [SessionAuth], so that a
// session looks the same whoever opened, refreshed or ended it.
package browser

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
)

// Names of the cookies (helpdesk.md 5; helpdesk-decisions.md 2).
const (
	AccessCookie  = "svc-access-token"
	RefreshCookie = "svc-refresh-token"
	IntentCookie  = "svc-login-intent"
	PendingCookie = "svc-second-factor" // of a sign-in that waits for its second step
	BrowserCookie = "svc-browser"       // by which a browser is known at later sign-ins
)

// SessionAuth lets browsers in. It is immutable and safe for concurrent use.
type SessionAuth struct {
	Accounts *account.Service

	// Secure keeps cookies off plain connections: whether the base URL is https.
	Secure bool

	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
}

// Authenticate finds out who sent r and returns a context that says so to
// [account.FromContext]. When the session was refreshed on the way it adds the
// new cookies to w. Its errors are those of [account.Service.Authenticate] and of
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
// [account.Identity.Restricted], which is the caller's: for adding a second factor
// and for signing out.
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
	return account.NewContext(r.Context(), id), nil
}

// Source has what next does audited as of the client that asks, on a surface: with
// its address, its user agent and an id of the request, which the answer's header
// X-Request-Id carries. The actor is anonymous until [SessionAuth.Authenticate] finds out.
func (g *SessionAuth) Source(surface string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := audit.Source{
			Actor: audit.Actor{Type: audit.Anonymous}, Address: ClientIP(r, g.TrustedProxies),
			UserAgent: r.UserAgent(), RequestID: RequestID(r.Header), Surface: surface,
		}
		w.Header()["X-Request-Id"] = []string{s.RequestID}
		next.ServeHTTP(w, r.WithContext(audit.WithSource(r.Context(), s)))
	})
}

// HasSession reports whether r carries cookies of a session, valid or not.
func HasSession(r *http.Request) bool {
	return value(r, AccessCookie) != "" || value(r, RefreshCookie) != ""
}

// SetSession returns the cookies of a session, and after a sign-in the one by which
// the browser is known at the next.
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

// ClearSession returns cookies that take the place of a session's and vanish. The
// browser stays known.
func (g *SessionAuth) ClearSession() []*http.Cookie {
	return []*http.Cookie{g.cookie(AccessCookie, "", 0), g.cookie(RefreshCookie, "", 0)}
}

// Intent returns what r says in proof of having asked for a sign-in link.
func Intent(r *http.Request) string { return value(r, IntentCookie) }

// SetIntent returns the cookie of that proof. An empty one makes it vanish.
func (g *SessionAuth) SetIntent(intent string) *http.Cookie {
	if intent == "" {
		return g.cookie(IntentCookie, "", 0)
	}
	return g.cookie(IntentCookie, intent, account.LinkLife)
}

// Pending returns the token of the sign-in that waits for its second step.
func Pending(r *http.Request) string { return value(r, PendingCookie) }

// SetPending returns the cookie of that token. An empty one makes it vanish.
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

// Client returns where r comes from and what it says of itself.
func (g *SessionAuth) Client(r *http.Request) account.Client {
	c := account.Client{UserAgent: r.UserAgent(), Browser: value(r, BrowserCookie)}
	if ip := ClientIP(r, g.TrustedProxies); ip.IsValid() {
		c.IP = ip.String()
	}
	return c
}

// ClientIP returns the address that r comes from: the far side of the
// connection, or, as long as that is a trusted proxy, whom it names as its own
// far side in X-Forwarded-For. What a client wrote there itself is never
// reached. The zero Addr means that the connection has no IP address.
func ClientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	ip, _ := Trace(r, trusted)
	return ip
}

// Trace is [ClientIP] for those who let only some addresses in: whole is false
// when the way back ended at a trusted proxy that names something which is no
// address. Then ip is the proxy, and the client is not known.
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
				return ip, false // the proxy does not know either
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

// parseAddr reads an address with or without a port.
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

// RequestID returns the id of a request: what its header X-Request-Id says, if that
// is 1 to 64 letters, digits, dots, underscores and hyphens, else a new one.
func RequestID(h http.Header) string {
	if v := h["X-Request-Id"]; len(v) == 1 && 0 < len(v[0]) && len(v[0]) <= 64 && !strings.ContainsFunc(v[0], func(c rune) bool {
		return !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	}) {
		return v[0]
	}
	return strings.ToLower(rand.Text())
}
