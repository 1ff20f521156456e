package account

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// sendMail mails a letter if and when tx commits.
func (s *Service) sendMail(ctx context.Context, tx *db.Tx, to string, l mail.Notification) error {
	m, err := l.Message(s.from, mail.Address{Address: to})
	if err != nil {
		return err
	}
	m.MessageID = newID() + "@" + s.redirects.host
	return s.mailer.EnqueueMailTx(ctx, tx, m)
}

// tokenURL returns the URL of a path with a token.
func (s *Service) tokenURL(path string, t token) string {
	return s.redirects.base + path + "?token=" + t.encode()
}
