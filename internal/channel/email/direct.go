package email

import (
	"net/http"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Direct is the channel "email-smtp": mail that this server receives by SMTP, as the MX of a
// domain.
//
// It has no endpoint. The receiver, package smtpd, stores each mail as a request of type
// message/rfc822 with the headers below, which are outside of the mail.
//
// Authentication-Results in these mails never count, whichever server they name: senders reach
// this server without the operator's mail servers, which would have removed forged ones. SPF is
// the receiver's, and DKIM is verified as for every raw mail.
type Direct struct{ style }

// DirectName is the name of the channel [Direct].
const DirectName = "email-smtp"

// The headers of a received mail, besides X-Envelope-From and X-Envelope-To.
const (
	DirectClientHeader    = "X-Smtp-Client"     // IP address of the client
	DirectHeloHeader      = "X-Smtp-Helo"       // name that the client claims
	DirectTLSHeader       = "X-Smtp-Tls"        // TLS version and cipher; absent without TLS
	DirectSPFHeader       = "X-Smtp-Spf"        // result of SPF
	DirectSPFDomainHeader = "X-Smtp-Spf-Domain" // domain of the result
	DirectTraceHeader     = "X-Smtp-Trace"      // bytes of the trace fields that the receiver put before the mail
)

var (
	_ channel.Adapter           = (*Direct)(nil)
	_ channel.AddressNormalizer = (*Direct)(nil)
	_ channel.MailComposer      = (*Direct)(nil)
	_ channel.DNSVerifier       = (*Direct)(nil)
	_ channel.ConnectionChecker = (*Direct)(nil)
)

// NewDirect returns the channel.
func NewDirect(c Config) *Direct {
	c.TrustedAuthServers = nil
	return &Direct{style{Writer: newWriter(c), name: DirectName, parser: NewParser(c), open: openDirect}}
}

// Info implements [channel.Adapter]. All organizations share the receiver, so an address receives
// only once it is proven.
func (*Direct) Info() channel.Info {
	return channel.Info{Name: DirectName, TicketChannel: ticketChannel, MaxBody: maxBody, Collected: true, SharedKey: true}
}

// Verify implements [channel.Adapter]: nobody can post these mails.
func (*Direct) Verify(*channel.Request, string) bool { return false }

// Split implements [channel.Adapter]: one part per connection, whichever of its addresses received
// the mail. The key does not depend on them, so that a repeated delivery is a duplicate.
func (a *Direct) Split(r *channel.Request) ([]channel.Part, error) {
	parts, err := a.style.Split(r)
	if err != nil {
		return nil, err
	}
	s, err := a.open(r)
	if err != nil {
		return nil, unreadable(err)
	}
	parts[0].Key = key(s.identity())
	return parts[:1], nil
}

// ReadChallenge implements [channel.ChallengeReader]. A challenge that returns here proves nothing:
// every organization's mail arrives at this server. It is an ordinary mail to the reader of the
// address.
func (*Direct) ReadChallenge(*channel.Request, channel.Part) string { return "" }

// CheckConnection implements [channel.ConnectionChecker]: aliases are within the domain of the
// address, whose owner can prove them.
func (*Direct) CheckConnection(v *problem.Validation, address string, _, settings map[string]string) {
	var issues errMailbox
	var a Account
	a.parseAliases(&issues, settings[SettingAliases])
	for _, alias := range a.Aliases {
		if len(issues) == 0 && domainOf(alias) != domainOf(address) {
			issues.add("settings."+SettingAliases, "must be in the domain %s of the connection; connect addresses of other domains on their own", domainOf(address))
		}
	}
	issues.addTo(v)
}

// Aliases returns the further addresses of a connection's settings, and "@domain" if it receives
// the mail to all addresses of its domain.
func Aliases(settings map[string]string) []string {
	var issues errMailbox
	var a Account
	a.parseAliases(&issues, settings[SettingAliases])
	return a.Aliases
}

func openDirect(r *channel.Request) (*source, error) {
	// Without the trace fields: each delivery of a mail has others.
	n, err := strconv.Atoi(r.Header.Get(DirectTraceHeader))
	if err != nil || n < 0 || n > len(r.Body) {
		n = 0
	}
	s := &source{raw: r.Body[n:], env: Envelope{Received: r.Received}}
	if err := s.requireBody(); err != nil {
		return nil, err
	}
	s.outside(&channel.Request{Header: r.Header})
	s.env.SPF, s.env.SPFDomain = r.Header.Get(DirectSPFHeader), r.Header.Get(DirectSPFDomainHeader)
	s.env.SPFBy = "this server"
	return s, nil
}

// DirectHeader returns the header of a received mail. Values must be printable.
func DirectHeader(from string, to []string, fields map[string]string) http.Header {
	h := http.Header{"Content-Type": {"message/rfc822"}, "X-Envelope-From": {from}, "X-Envelope-To": to}
	for name, value := range fields {
		if value != "" {
			h.Set(name, value)
		}
	}
	return h
}
