package desk

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// Alert is an alert of another part of the program, of which members get notices and for which a
// ticket may be created. Its text describes the event.
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
// processes at once: written notices and tickets stay as they are.
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
	// A merged ticket stands for its survivor.
	err = tx.QueryRow(ctx, `WITH RECURSIVE up(number, status, merged_into_id) AS (
			SELECT number, status, merged_into_id FROM tickets WHERE organization_id = $1 AND number = $2
			UNION SELECT t.number, t.status, t.merged_into_id FROM tickets t JOIN up ON t.id = up.merged_into_id
		) SELECT number FROM up WHERE merged_into_id IS NULL AND status NOT IN ('resolved', 'closed')`, organizationID, a.FormerTicket).Scan(&ticketNumber)
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
	return s.markNoticesSeenTx(ctx, tx, organizationID, userID, "alert_id = $4", alertID)
}

// HasUnseenAlerts reports whether a member has unread notices of alerts whose page has a path.
func (s *Service) HasUnseenAlerts(ctx context.Context, q db.Querier, organizationID, userID, path string) (bool, error) {
	return hasUnseenNotices(ctx, q, organizationID, userID, "path", path)
}

// MarkAlertsSeenTx marks a member's notices of the alerts whose page has a path as read, in the
// caller's transaction.
func (s *Service) MarkAlertsSeenTx(ctx context.Context, tx *db.Tx, organizationID, userID, path string) error {
	return s.markNoticesSeenTx(ctx, tx, organizationID, userID, "path = $4", path)
}
