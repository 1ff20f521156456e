package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// noticeKind is the queue's kind of jobs that notify admins.
const noticeKind = "quota.notice"

// storageInterval is the minimum time between two mails about the same share of storage, which
// falls and rises as files are deleted and added.
const storageInterval = 24 * time.Hour

// notice is the payload of a job: a share of a quota was reached.
type notice struct {
	OrganizationID string `json:"organization_id"`
	Quota          Quota  `json:"quota"`
	Share          int64  `json:"share"` // percent
	Limit          int64  `json:"limit"`
	Day            int64  `json:"day,omitempty"` // of messages
}

// sendNotice records that a quota is used up, and enqueues the mails to the admins.
func (s *Service) sendNotice(ctx context.Context, j *queue.Job) error {
	var n notice
	if err := json.Unmarshal(j.Payload, &n); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		due, err := n.isDueTx(ctx, tx)
		if err != nil {
			return err
		}
		if due {
			if err := s.notify(ctx, tx, n); err != nil {
				return err
			}
		}
		return j.FinishTx(ctx, tx)
	})
}

// isDueTx reports whether a notice is to be sent, and records that it was.
func (n *notice) isDueTx(ctx context.Context, tx *db.Tx) (bool, error) {
	if n.Quota != Storage {
		return true, nil // a share of a day is reached once
	}
	var last time.Time
	var percent int64
	err := tx.QueryRow(ctx, "SELECT notified_at, coalesce(notified_share, 0) FROM quotas WHERE organization_id = $1", n.OrganizationID).
		Scan(db.IntoTime(&last), &percent)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("find the last notice: %w", err)
	}
	if percent >= n.Share && tx.Now.Sub(last) < storageInterval {
		return false, nil
	}
	tx.BeforeCommit(lockOrder(n.OrganizationID), func() error {
		// There is no row yet if all files are in other databases.
		_, err := tx.Exec(ctx, `INSERT INTO quotas (organization_id, storage, day, messages, notified_at, notified_share) VALUES ($1, 0, 0, 0, $2, $3)
			ON CONFLICT (organization_id) DO UPDATE SET notified_at = excluded.notified_at, notified_share = excluded.notified_share`,
			n.OrganizationID, tx.Now.UnixMicro(), n.Share)
		return err
	})
	return true, nil
}

func (s *Service) notify(ctx context.Context, tx *db.Tx, n notice) error {
	if n.Share == 100 {
		if err := s.c.Audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: n.OrganizationID, Action: AuditReached, Target: audit.Target{Type: "quota", ID: string(n.Quota), Name: string(n.Quota)},
			Details: map[string]any{"limit": n.Limit},
		}); err != nil {
			return err
		}
	}
	admins, err := s.c.Admins.AdminAddresses(ctx, tx, n.OrganizationID)
	if err != nil {
		return fmt.Errorf("find admins: %w", err)
	}
	for _, to := range admins {
		m, err := n.mail(to, s.c.BaseURL)
		if err != nil {
			return err
		}
		if err := s.c.Mailer.EnqueueMailTx(ctx, tx, m); err != nil {
			return fmt.Errorf("enqueue mail: %w", err)
		}
	}
	return nil
}

// mail returns the mail to an admin.
func (n *notice) mail(to mail.Address, baseURL string) (mail.Message, error) {
	l := mail.Notification{
		Before: []string{"Hello,"},
		Action: mail.Action{Label: "View usage", URL: baseURL + "/settings/plan"},
		After:  []string{"Messages from customers are received in any case, with their files."},
	}
	date := time.Unix(n.Day*secondsPerDay, 0).UTC().Format("2 January 2006")
	limit := n.Quota.Amount(n.Limit)
	switch {
	case n.Quota == Storage && n.Share == 100:
		l.Subject = "Storage is full"
		l.Before = append(l.Before, "Your organization uses all of its storage of "+limit+".",
			"Replies and notes with files, and photos of tasks, are refused until tickets with files or photos are deleted or the limit is raised. Replies without files are sent.")
	case n.Quota == Storage:
		l.Subject = fmt.Sprintf("%d%% of your storage is used", n.Share)
		l.Before = append(l.Before, fmt.Sprintf("Your organization uses %d%% of its storage of %s.", n.Share, limit),
			"When all of it is used, replies and notes with files, and photos of tasks, are refused.")
	case n.Share == 100:
		l.Subject = "All messages of " + date + " are used"
		l.Before = append(l.Before, "Your organization has received and sent all of its "+limit+" a day.",
			"Replies are refused until 00:00 UTC.")
	default:
		l.Subject = fmt.Sprintf("%d%% of the messages of %s are used", n.Share, date)
		l.Before = append(l.Before, fmt.Sprintf("Your organization has received and sent %d%% of its %s a day.", n.Share, limit),
			"When all of them are used, replies are refused until 00:00 UTC.")
	}
	return l.Message(mail.Address{}, to)
}
