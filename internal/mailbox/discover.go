package mailbox

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// providers has the servers of well-known domains.
var providers = map[string][2]string{
	"gmail.com": gmail, "googlemail.com": gmail,
	"outlook.com": microsoft, "hotmail.com": microsoft, "live.com": microsoft, "office365.com": microsoft, "onmicrosoft.com": microsoft,
	"yahoo.com":    {"imaps://imap.mail.yahoo.com", "smtps://smtp.mail.yahoo.com"},
	"icloud.com":   {"imaps://imap.mail.me.com", "smtp://smtp.mail.me.com"},
	"me.com":       {"imaps://imap.mail.me.com", "smtp://smtp.mail.me.com"},
	"fastmail.com": {"imaps://imap.fastmail.com", "smtps://smtp.fastmail.com"},
	"zoho.com":     {"imaps://imap.zoho.com", "smtps://smtp.zoho.com"},
	"gmx.net":      {"imaps://imap.gmx.net", "smtps://mail.gmx.net"},
	"gmx.de":       {"imaps://imap.gmx.net", "smtps://mail.gmx.net"},
	"web.de":       {"imaps://imap.web.de", "smtps://smtp.web.de"},
}

var (
	gmail     = [2]string{"imaps://imap.gmail.com", "smtps://smtp.gmail.com"}
	microsoft = [2]string{"imaps://outlook.office365.com", "smtp://smtp.office365.com"}
)

// discoverTime bounds the lookups of a domain.
const discoverTime = 5 * time.Second

// discover completes a connection without servers by those of its provider or its domain
// (RFC 6186). DNS is not authenticated: it is believed only for servers within the domain, so that
// nobody can have the password sent elsewhere; another name is proposed in the error.
func (s *Service) discover(ctx context.Context, n *connection.New, address string) error {
	if n.Credentials[email.CredentialIMAP] != "" || n.Credentials[email.CredentialServer] != "" {
		return nil
	}
	_, domain, _ := strings.Cut(address, "@")
	found, known := providers[domain]
	switch provider := n.Credentials[email.CredentialProvider]; {
	case provider == email.ProviderGoogle:
		found, known = gmail, true
	case provider == email.ProviderMicrosoft:
		found, known = microsoft, true
	}
	if !known {
		ctx, cancel := context.WithTimeout(ctx, discoverTime)
		defer cancel()
		for i, services := range [][]service{{{"imaps", "imaps"}, {"imap", "imap"}}, {{"submissions", "smtps"}, {"submission", "smtp"}}} {
			found[i] = s.lookup(ctx, domain, services)
		}
	}
	if found[0] == "" {
		return invalid("credentials."+email.CredentialIMAP, "is required: the servers of %s are not known", domain)
	}
	for i, name := range []string{email.CredentialIMAP, email.CredentialServer} {
		if _, host, _ := strings.Cut(found[i], "://"); !known && found[i] != "" && !within(host, domain) {
			return invalid("credentials."+name, "is required: enter %s if that is your provider, which the DNS of %s names", found[i], domain)
		}
	}
	if n.Credentials == nil {
		n.Credentials = make(map[string]string)
	}
	for i, name := range []string{email.CredentialIMAP, email.CredentialServer} {
		if found[i] != "" {
			n.Credentials[name] = found[i]
		}
	}
	return nil
}

// service is a service of a domain and the scheme of its URLs.
type service struct{ name, scheme string }

// lookup returns the URL of the first service that a domain has, or "".
func (s *Service) lookup(ctx context.Context, domain string, services []service) string {
	resolver := s.guard.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	for _, of := range services {
		_, records, err := resolver.LookupSRV(ctx, of.name, "tcp", domain)
		if err != nil || len(records) == 0 {
			continue
		}
		if host := strings.ToLower(strings.TrimSuffix(records[0].Target, ".")); host != "" { // a dot: the domain has no such service
			return fmt.Sprintf("%s://%s", of.scheme, net.JoinHostPort(host, strconv.Itoa(int(records[0].Port))))
		}
	}
	return ""
}

// within reports whether a host, with or without its port, is in a domain.
func within(host, domain string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == domain || strings.HasSuffix(host, "."+domain)
}
