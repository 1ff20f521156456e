package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"
)

// MailReceiver judges the greeting of the SMTP receiver.
func MailReceiver(listen string, err error) Finding {
	if err != nil {
		return warn(fmt.Sprintf("nothing receives mail on %s: %v", listen, err),
			"Start the server. If it runs, check KICKSTAND_SMTP_LISTEN: ports below 1024 need a socket of systemd or a redirection.")
	}
	return ok("it answers on %s. Check from outside that port 25 leads there: many providers block it", listen)
}

// MailCertificate checks the certificate of the SMTP receiver.
func MailCertificate(certFile, keyFile, hostname string) Finding {
	if certFile == "" {
		return warn("there is none, so mail arrives without encryption", "Set KICKSTAND_SMTP_TLS_CERTIFICATE and KICKSTAND_SMTP_TLS_KEY.")
	}
	const renew = "Renew the certificate. The server reads it again by itself."
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fail(err.Error(), "Correct KICKSTAND_SMTP_TLS_CERTIFICATE and KICKSTAND_SMTP_TLS_KEY: PEM files that the server can read.")
	}
	end := pair.Leaf.NotAfter
	left := time.Until(end)
	switch {
	case left <= 0:
		return fail("it has expired on "+end.Format(time.DateOnly), renew)
	case left < expiresSoon:
		return warn("it expires on "+end.Format(time.DateOnly), renew)
	}
	if err := pair.Leaf.VerifyHostname(hostname); err != nil {
		return warn("it is not for "+hostname, "Use a certificate for the name of the MX records, or correct KICKSTAND_SMTP_HOSTNAME.")
	}
	return ok("valid for %s until %s", hostname, end.Format(time.DateOnly))
}

// MailResolver looks up the records of mail.
type MailResolver interface {
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// MailRecords checks that the MX records of the domains name the host, and that it resolves. err is
// the error of listing the domains.
func MailRecords(ctx context.Context, hostname string, domains []string, dns MailResolver, err error) Finding {
	if errors.Is(err, fs.ErrNotExist) {
		return ok("no database of this version yet")
	}
	if err != nil {
		return fail(err.Error(), "Check the database.")
	}
	if len(domains) == 0 {
		return ok("no address of the channel email-smtp is proven yet")
	}
	if _, err := dns.LookupHost(ctx, hostname); err != nil {
		return fail(fmt.Sprintf("%s does not resolve: %s", hostname, withoutServer(err)), "Create the DNS record (A or AAAA), or correct KICKSTAND_SMTP_HOSTNAME.")
	}
	var elsewhere []string
	for _, domain := range domains {
		records, err := dns.LookupMX(ctx, domain)
		if err != nil || !slices.ContainsFunc(records, func(mx *net.MX) bool {
			return strings.EqualFold(strings.TrimSuffix(mx.Host, "."), hostname)
		}) {
			elsewhere = append(elsewhere, domain)
		}
	}
	if len(elsewhere) > 0 {
		return warn("no MX record of "+strings.Join(elsewhere, ", ")+" names "+hostname, fmt.Sprintf("Create it: %s. MX 10 %s.", elsewhere[0], hostname))
	}
	return ok("%s of %d domains", hostname, len(domains))
}
