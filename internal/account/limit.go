package account

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
)

// Limits of sign-in attempts. Each way to sign in has its own, so that exhausting a
// user's attempts at one way leaves the other ways open.
//
// Unknown clients are counted by account or mailbox (helpdesk.md 8) and by network. A
// browser in which the user has signed in before has a limit of its own: attempts of
// unknown clients cannot lock it out.
const (
	signInLimit  = 5 // per e-mail address, mailbox or known browser; for the provider: per network
	changeLimit  = 10
	signInWindow = time.Minute

	// networkLimit is per network, which may be an office: for failed sign-ins by
	// password and requested mails.
	networkLimit = 100
	// suspectLimit is the number of failed sign-ins per window that makes a party a
	// suspect, see [hashers].
	suspectLimit = 2
)

// Limiter counts attempts: [ratelimit.Limiter] in one process, [ratelimit.RedisLimiter]
// across processes.
type Limiter interface {
	// Allow counts an attempt of key. If the limit is reached, ok is false and retryAfter
	// is the wait.
	Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration)
	// Wait returns the time until the next allowed attempt of key, without counting one.
	Wait(ctx context.Context, key string) time.Duration
}

// limit is the limit of one way to sign in.
type limit struct {
	strangers Limiter // by the key that the contract names
	known     Limiter // by known browser
	networks  Limiter // by network; nil: no limit
}

func newLimit(make func(name string, limit int, window time.Duration) Limiter, name string, perNetwork bool) limit {
	l := limit{
		strangers: make(name, signInLimit, signInWindow),
		known:     make(name+"-known", signInLimit, signInWindow),
	}
	if perNetwork {
		l.networks = make(name+"-network", networkLimit, signInWindow)
	}
	return l
}

// allow counts an attempt for subject; a refusal is [problem.RateLimited].
func (l limit) allow(ctx context.Context, subject string, by browserRecognition, c Client) error {
	if by.digest != nil {
		if err := allow(ctx, l.known, string(by.digest)); err != nil {
			return err
		}
		// The attempt counts for strangers, too, but a browser known for at least the
		// window does not depend on their count. A newer one shares the strangers'
		// attempts of the window.
		ok, wait := l.strangers.Allow(ctx, subject)
		if ok || by.age >= signInWindow {
			return nil
		}
		return tooMany("too many sign-in attempts", wait)
	}
	if network := Network(c.IP); l.networks != nil && network != "" {
		if err := allow(ctx, l.networks, network); err != nil {
			return err
		}
	}
	return allow(ctx, l.strangers, subject)
}

// allow returns the refusal of a sign-in attempt over the limit.
func allow(ctx context.Context, l Limiter, key string) error {
	return allowFew(ctx, l, key, "too many sign-in attempts")
}

// allowFew is allow with the message what.
func allowFew(ctx context.Context, l Limiter, key, what string) error {
	ok, wait := l.Allow(ctx, key)
	if ok {
		return nil
	}
	return tooMany(what, wait)
}

func tooMany(what string, wait time.Duration) error {
	return &problem.Error{
		Kind:       problem.RateLimited,
		Message:    fmt.Sprintf("%s, try again in %d seconds", what, ratelimit.Seconds(wait)),
		RetryAfter: wait,
	}
}

// Network returns the part of an IP address that one customer of a provider has: an IPv4
// address, or a /64 of IPv6. Empty if ip is.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // /64 is valid for every IPv6 address
	return p.String()
}

// mailbox returns the limit key of an e-mail address, equal for all addresses of one
// mailbox: without a tag after "+", and at Google's domains without dots.
func mailbox(email string) string {
	key := emailKey(email)
	at := strings.LastIndexByte(key, '@')
	if at < 0 || strings.HasPrefix(key, `"`) {
		return key
	}
	local, domain := key[:at], key[at+1:]
	if plus := strings.IndexByte(local, '+'); plus > 0 {
		local = local[:plus]
	}
	if domain == "gmail.com" || domain == "googlemail.com" {
		local, domain = strings.ReplaceAll(local, ".", ""), "gmail.com"
	}
	return local + "@" + domain
}
