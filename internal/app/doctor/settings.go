package doctor

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
)

// Settings are the configured values that checks use. They have no secrets.
type Settings struct {
	Loopback  bool     // the base URL is this machine: development
	Listen    string   // host:port; empty if unknown
	BaseURL   string   // of the dashboard
	Addresses []string // all base URLs, with distinct origins

	SignUp         account.SignUpPolicy
	MailFrom       string // bare address
	CanMail        bool
	Forwarded      Forwarded // zero: none
	TrustedProxies []netip.Prefix

	AllowPrivateReceivers bool
	RetryTimeScale        float64
	MarketplaceTestKey    bool
	DeploymentSecrets     []string // channels with a deployment-wide secret

	OpenLinks []string // connections to other machines without TLS, or without verification

	PaymentsKey, PaymentsSecret, PaymentsPrice bool // whether each is set
}

// BaseURL checks the form of the configured base URLs.
func BaseURL(s Settings) Finding {
	if s.Loopback {
		host, _, _ := strings.Cut(s.Listen, ":")
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if s.Listen != "" && !(err == nil && addr.IsLoopback()) && !strings.HasPrefix(s.Listen, "localhost:") && !strings.HasPrefix(s.Listen, "[::1]:") {
			return warn(fmt.Sprintf("%s is this machine, so development policies apply, but the server listens on %s, where others can reach it", s.BaseURL, s.Listen),
				"Set KICKSTAND_BASE_URL to the public address, or KICKSTAND_LISTEN to an address such as 127.0.0.1:8080.")
		}
		return ok("%s is this machine: development policies apply", s.BaseURL)
	}
	for _, address := range s.Addresses {
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" {
			return fail(fmt.Sprintf("%q is not an address", address), "Set KICKSTAND_BASE_URL to an address such as https://help.example.com.")
		}
		if u.Scheme == "https" {
			continue
		}
		remedy := "Put a server with TLS in front and begin KICKSTAND_BASE_URL with https://."
		found := address + " is not https: passwords, sign-in links and sessions can be read on the way"
		if privateName(u.Hostname()) {
			return warn(found, remedy)
		}
		return fail(found, remedy)
	}
	return ok("%s", strings.Join(s.Addresses, ", "))
}

// privateName reports whether a host is in a private network, judging by its name.
func privateName(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsPrivate() || addr.IsLinkLocalUnicast()
	}
	if !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".local", ".internal", ".lan", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(host, suffix) })
}

// MailSender checks the sender of account mails.
func MailSender(s Settings) Finding {
	_, domain, _ := strings.Cut(s.MailFrom, "@")
	if !s.Loopback && s.CanMail && (domain == "localhost" || strings.HasSuffix(domain, ".localhost")) {
		return fail("account mails are from "+s.MailFrom+", which other mail servers refuse", "Set KICKSTAND_MAIL_FROM to an address that your mail server sends for.")
	}
	return ok("account mails are from %s", s.MailFrom)
}

// SignUp checks the sign-up policy.
func SignUp(s Settings) Finding {
	if s.SignUp.Open() && !s.Loopback {
		return warn("open: everybody who can reach the server can found an organization", "Set KICKSTAND_SIGN_UP to invited or domain:example.com, unless that is intended.")
	}
	return ok("%s", s.SignUp)
}

// Forwarded counts requests with X-Forwarded-For from peers that are not trusted proxies.
type Forwarded struct {
	Count int64      `json:"count"`
	Peer  netip.Addr `json:"peer"` // of the latest recorded one
	At    time.Time  `json:"at"`
}

// Proxies checks the trusted proxies.
func Proxies(s Settings) Finding {
	const remedy = "Set KICKSTAND_TRUSTED_PROXIES to the addresses from which the proxy connects, such as 127.0.0.1."
	for _, p := range s.TrustedProxies {
		if p.Bits() == 0 {
			return fail(fmt.Sprintf("%s trusts everybody: clients choose the address that limits and logs see", p), remedy)
		}
	}
	if n := s.Forwarded.Count; n > 0 {
		return warn(fmt.Sprintf("%d requests or more with X-Forwarded-For came from %s, which is not trusted: if that is a proxy, all clients share its limits", n, s.Forwarded.Peer), remedy+" If it is none, that client makes the header up, and nothing needs to be done.")
	}
	if len(s.TrustedProxies) == 0 {
		if strings.HasPrefix(s.BaseURL, "https:") && !s.Loopback {
			return warn("none is trusted, although TLS ends at a proxy: all clients share the limits of its address", remedy)
		}
		return ok("none")
	}
	list := make([]string, len(s.TrustedProxies))
	for i, p := range s.TrustedProxies {
		list[i] = p.String()
	}
	return ok("%s", strings.Join(list, ", "))
}

// Links checks the connections to database and Redis.
func Links(s Settings) Finding {
	if len(s.OpenLinks) > 0 {
		return warn(strings.Join(s.OpenLinks, "; "),
			"Use sslmode=verify-full in KICKSTAND_DATABASE_URL and rediss:// in KICKSTAND_REDIS_URL, unless nobody else is on that network.")
	}
	return ok("database and Redis are on this machine, or reached by TLS that verifies them")
}

// Receivers checks the allowed addresses of webhooks.
func Receivers(s Settings) Finding {
	switch {
	case s.AllowPrivateReceivers && s.Loopback:
		return ok("webhooks may go to private addresses and without TLS, for development")
	case s.AllowPrivateReceivers:
		return fail("webhooks may go to private addresses and without TLS: organizations can reach your network", "Remove KICKSTAND_ALLOW_PRIVATE_RECEIVERS.")
	case s.RetryTimeScale != 1 && !s.Loopback:
		return warn(fmt.Sprintf("retries wait %g times as long as documented", s.RetryTimeScale), "Remove KICKSTAND_RETRY_TIME_SCALE.")
	}
	return ok("webhooks go to public addresses by https only")
}

// TestKeys checks for keys and settings that are for tests only.
func TestKeys(s Settings) Finding {
	switch {
	case !s.MarketplaceTestKey:
		return ok("none is set")
	case s.Loopback:
		return ok("a test key of the marketplace is accepted, for development")
	}
	return fail("a test key can sign marketplace notifications", "Remove KICKSTAND_MARKETPLACE_TEST_KEY.")
}

// ChannelSecrets lists the channels with a deployment-wide secret.
func ChannelSecrets(s Settings) Finding {
	if len(s.DeploymentSecrets) == 0 {
		return ok("no channel has a secret of the deployment; each accepts what a connection's own secret proves, and nothing else")
	}
	return ok("of the deployment: %s; other channels accept what a connection's own secret proves, and nothing else", strings.Join(s.DeploymentSecrets, ", "))
}

// Payments checks whether plans can be paid for and payments are reported.
func Payments(s Settings) Finding {
	switch {
	case !s.PaymentsKey && s.Loopback:
		return ok("the built-in checkout, which takes no money")
	case !s.PaymentsKey:
		return ok("off: no plan can be paid for (KICKSTAND_PAYMENTS_API_KEY)")
	case !s.PaymentsSecret:
		return fail("checkouts can be paid, but the payment provider's reports are refused", "Set KICKSTAND_PAYMENTS_SECRET to the signing secret of its webhook.")
	case !s.PaymentsPrice:
		return fail("the payment provider has no price of a plan, so that none can be paid for", "Set KICKSTAND_PAYMENTS_PRICE_PRO or KICKSTAND_PAYMENTS_PRICE_BUSINESS.")
	}
	return ok("by the payment provider")
}

// Configuration reports settings that prevent a server's start.
func Configuration(err error) Finding {
	if err != nil {
		found, remedy, _ := strings.Cut(err.Error(), "\n")
		return fail(found, strings.ReplaceAll(remedy, "\n", " "))
	}
	return ok("the settings are complete")
}
