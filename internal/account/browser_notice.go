package account

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// maxBrowserNotices bounds the mails per user and hour about new browsers: a program that
// signs in without cookies is a new browser each time.
const maxBrowserNotices = 5

// notifyNewBrowserTx mails a user about a sign-in in a new browser. The user's first
// sign-in sends no mail, and each browser sends one at most.
func (s *Service) notifyNewBrowserTx(ctx context.Context, tx *db.Tx, userID string, visit browserVisit, c Client) error {
	var email string
	var before time.Time
	if err := tx.QueryRow(ctx, "SELECT email, signed_in_at FROM users WHERE id = $1", userID).Scan(&email, db.IntoTime(&before)); err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	if before.IsZero() {
		if err := tx.Queue(ctx, "UPDATE users SET signed_in_at = $2 WHERE id = $1", userID, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("record first sign-in: %w", err)
		}
		return nil
	}
	if !visit.isNew || !s.browserNotices {
		return nil
	}
	var recent int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM known_browsers WHERE user_id = $1 AND first_seen_at > $2",
		userID, tx.Now.Add(-time.Hour).UnixMicro()).Scan(&recent); err != nil {
		return fmt.Errorf("count new browsers: %w", err)
	}
	if recent > maxBrowserNotices {
		return nil
	}
	return s.sendMail(ctx, tx, email, s.newBrowserMail(tx.Now, c))
}

// newBrowserMail contains no text of the client but the browser and operating system
// parsed from its user agent.
func (s *Service) newBrowserMail(at time.Time, c Client) mail.Notification {
	where := device(c.UserAgent)
	if where == "" {
		where = "an unknown browser or program"
	}
	address := c.IP
	if address == "" {
		address = "an unknown address"
	}
	return mail.Notification{
		Subject: "New sign-in to your Kickstand account",
		Before: []string{
			"Somebody signed in to your Kickstand account in a browser that has not been used for it before.",
			fmt.Sprintf("%s, from %s, on %s.", where, address, at.UTC().Format("2 January 2006 at 15:04 UTC")),
			"If this was you, there is nothing to do.",
		},
		Action: mail.Action{Label: "See your sessions", URL: s.redirects.base + SessionsPath},
		After:  []string{"If this was not you, end that session there and change your password."},
	}
}
