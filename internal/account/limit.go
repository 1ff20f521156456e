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

// Limits of the ways to sign in, each counted on its own, so that using up
// somebody's attempts at one way leaves them the others.
//
// A stranger is counted by account or mailbox (helpdesk.md 8) and by network. A
// browser in which the user has signed in before is counted by itself: attempts of
// strangers cannot keep it out.
const (
	signInLimit  = 5 // per e-mail address, mailbox, known browser; by provider: per network
	changeLimit  = 10
	signInWindow = time.Minute

	// networkLimit is for a whole network, which may be an office: failed sign-ins
	// by password, and requested mails.
	networkLimit = 100
	// suspectLimit is the number of failed sign-ins within the window from which on a
	// party waits for its hashes among the suspects.
	suspectLimit = 2
)

// Limiter counts attempts: [ratelimit.Limiter] for one process, or
// [ratelimit.RedisLimiter] for several.
type Limiter interface {
	// Allow counts an attempt of key, or refuses it and returns how long it must
	// wait.
	Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration)
	// Wait returns how long an attempt of key would have to wait, and counts nothing.
	Wait(ctx context.Context, key string) time.Duration
}

// limit is that of one way to sign in.
type limit struct {
	strangers Limiter // by what the contract says
	known     Limiter // by known browser
	networks  Limiter // by network; nil for none
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

// allow counts an attempt for a subject, or returns its refusal.
func (l limit) allow(ctx context.Context, subject string, by browserRecognition, c Client) error {
	if by.digest != nil {
		if err := allow(ctx, l.known, string(by.digest)); err != nil {
			return err
		}
		// It counts for strangers, too, but a browser that has been known for as long
		// as the window does not depend on them. A newer one has had the strangers'
		// attempts within the window.
		ok, wait := l.strangers.Allow(ctx, subject)
		if ok || time.Since(by.since) >= signInWindow {
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

// allow returns the refusal of an attempt to sign in that comes too soon.
func allow(ctx context.Context, l Limiter, key string) error {
	return allowFew(ctx, l, key, "too many sign-in attempts")
}

// allowFew is allow for other things, which what names.
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

// Network returns what of an IP address one customer of a provider has to
// themselves: an IPv4 address, or a /64 of IPv6. It is empty when ip is.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // fits every IPv6 address
	return p.String()
}

// mailbox returns the key of an e-mail address under which all addresses of one
// mailbox are counted: without a tag after "+" in the local part, and at Google's
// domains without the dots, which do not count there.
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
