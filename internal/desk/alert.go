package desk

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Alert is an alert of another part of the program, of which members get notices and for which a
// ticket may be created. Its text says what happened.
type Alert struct {
	ID           string
	Title, Text  string
	Path         string   // of its page, below the base URL
	UserIDs      []string // who get a notice; others than members have none
	CreateTicket bool
	FormerTicket int64          // of the same matter before, which is used again until it is resolved; 0: none
	Metadata     MetadataUpdate // of the ticket
}

// AlertTx writes the notices of an alert and creates its ticket, unless its former one is still open,
// in the caller's transaction. It returns the number of the ticket; 0: none. It may be repeated after a crash, and from several
// processes at once: what is written stays as it is.
func (s *Service) AlertTx(ctx context.Context, tx *db.Tx, organizationID string, a Alert) (ticketNumber int64, err error) {
	if err := tx.Lock(ctx, "alerts "+organizationID); err != nil {
		return 0, err
	}
	if len(a.UserIDs) > 0 {
		if err := s.noticeAlert(ctx, tx, organizationID, a); err != nil {
			return 0, err
		}
	}
	if !a.CreateTicket {
		return 0, nil
	}
	err = tx.QueryRow(ctx, "SELECT number FROM tickets WHERE organization_id = $1 AND external_id = $2", organizationID, a.ID).Scan(&ticketNumber)
	if err == nil || !errors.Is(err, db.ErrNoRows) {
		return ticketNumber, err
	}
	err = tx.QueryRow(ctx, `SELECT number FROM tickets WHERE organization_id = $1 AND number = $2 AND status NOT IN ('resolved', 'closed')
		AND merged_into_id IS NULL`, organizationID, a.FormerTicket).Scan(&ticketNumber)
	if err == nil || !errors.Is(err, db.ErrNoRows) {
		return ticketNumber, err
	}
	customerID, err := s.alertCustomer(ctx, tx, organizationID)
	if err != nil {
		return 0, err
	}
	content, err := s.Compose(ctx, organizationID, Draft{Text: a.Text})
	if err != nil {
		return 0, err
	}
	t, err := s.CreateTicketTx(ctx, tx, organizationID, NewTicket{
		Subject: a.Title, CustomerID: customerID, ExternalID: a.ID, Metadata: a.Metadata, Tags: []string{"alert"}, Content: content,
	})
	return t.Number, err
}

func (s *Service) noticeAlert(ctx context.Context, tx *db.Tx, organizationID string, a Alert) error {
	var written int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM notices WHERE organization_id = $1 AND alert_id = $2", organizationID, a.ID).Scan(&written); err != nil {
		return fmt.Errorf("find the notices of an alert: %w", err)
	}
	if written > 0 {
		return nil
	}
	return s.notice(ctx, tx, organizationID, newNotice{kind: NoticeAlert, alert: &a}, a.UserIDs...)
}

const (
	alertCustomerID   = "kickstand-alerts" // the external id
	alertCustomerName = "Fleet alerts"
)

// alertCustomer returns the customer of tickets about alerts, and creates it at first.
func (s *Service) alertCustomer(ctx context.Context, tx *db.Tx, organizationID string) (string, error) {
	var id string
	// A merged one stands for its survivor; a deleted one has no external id.
	err := tx.QueryRow(ctx, "SELECT id FROM customers WHERE organization_id = $1 AND external_id = $2", organizationID, alertCustomerID).Scan(&id)
	if err == nil || !errors.Is(err, db.ErrNoRows) {
		return id, err
	}
	c, err := s.CreateCustomerTx(ctx, tx, organizationID, NewCustomer{Name: alertCustomerName, ExternalID: alertCustomerID})
	return c.ID, err
}

// MarkAlertNoticesSeenTx marks a member's notices of an alert as read, in the caller's transaction.
func (s *Service) MarkAlertNoticesSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, alertID string) error {
	n, err := tx.Exec(ctx, "UPDATE notices SET seen_at = $4 WHERE organization_id = $1 AND alert_id = $2 AND user_id = $3 AND seen_at IS NULL",
		organizationID, alertID, userID, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("mark notices as read: %w", err)
	}
	if n > 0 {
		s.announceNotices(tx, organizationID, userID)
	}
	return nil
}

// HasUnseenAlerts reports whether a member has unread notices of alerts whose page has a path.
func (s *Service) HasUnseenAlerts(ctx context.Context, q db.Querier, organizationID, userID, path string) (found bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM notices WHERE user_id = $1 AND organization_id = $2 AND path = $3 AND seen_at IS NULL)",
		userID, organizationID, path).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for notices of alerts: %w", err)
	}
	return found, nil
}

// MarkAlertsSeenTx marks a member's notices of the alerts whose page has a path as read, in the
// caller's transaction.
func (s *Service) MarkAlertsSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, path string) error {
	n, err := tx.Exec(ctx, "UPDATE notices SET seen_at = $4 WHERE user_id = $1 AND organization_id = $2 AND path = $3 AND seen_at IS NULL",
		userID, organizationID, path, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("mark notices as read: %w", err)
	}
	if n > 0 {
		s.announceNotices(tx, organizationID, userID)
	}
	return nil
}
