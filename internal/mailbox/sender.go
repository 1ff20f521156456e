package mailbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// Sender returns the mail server of a mailbox, which sends its replies; TLS is required. The error
// describes the invalid field in plain words.
func (s *Service) Sender(c *connection.Connection) (mail.TrackedSender, error) {
	a, err := email.ParseAccount(c.Address, c.Settings, c.CredentialValues())
	if err != nil {
		return nil, err
	}
	server, err := s.sender(c.ID, &a, c.CredentialValues()[email.CredentialServer])
	if err != nil || a.Sent == "" || a.IMAP.Host == "" {
		return server, err
	}
	return &filingSender{server, s, c.OrganizationID, c.ID, &a}, nil
}

// sender returns the mail server of an account, which a connection with a provider of tokens has.
func (s *Service) sender(connectionID string, a *email.Account, rawURL string) (*mail.SMTP, error) {
	server, err := mail.OpenSMTP(a.ServerURL(rawURL))
	if err != nil {
		return nil, fmt.Errorf("its %s is not usable: %s", email.CredentialServer, strings.TrimPrefix(err.Error(), "mail: "))
	}
	server.Dial, server.TLS = s.guard.DialContext, s.tls
	if a.Provider != "" {
		server.UseToken(a.User, func(ctx context.Context) (string, error) { return s.token(ctx, connectionID, a, "") })
	}
	return server, nil
}
