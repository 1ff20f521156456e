package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// FollowTx makes a member a follower of a ticket, in the caller's transaction. A follower has
// notices of the customer's messages. Assignees, authors of replies and notes, and members whom a
// note mentions become followers by themselves. Error: NotFound.
func (s *Service) FollowTx(ctx context.Context, tx *db.Tx, organizationID, ticketID, userID string) error {
	if err := hasTicket(ctx, tx, organizationID, ticketID); err != nil {
		return err
	}
	return follow(ctx, tx, organizationID, ticketID, userID)
}

// UnfollowTx undoes [Service.FollowTx]. A later reply or note of the member, a mention or an
// assignment makes them a follower again. Error: NotFound.
func (s *Service) UnfollowTx(ctx context.Context, tx *db.Tx, organizationID, ticketID, userID string) error {
	if err := hasTicket(ctx, tx, organizationID, ticketID); err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM ticket_followers WHERE ticket_id = $1 AND user_id = $2", ticketID, userID); err != nil {
		return fmt.Errorf("unfollow ticket: %w", err)
	}
	return nil
}

// Follower is a member who follows a ticket.
type Follower struct {
	UserID string
	Since  time.Time
}

// Followers returns the members who follow a ticket, the first follower first. A ticket that the
// organization does not have has none.
func (s *Service) Followers(ctx context.Context, q db.Querier, organizationID, ticketID string) ([]Follower, error) {
	list, err := db.All(ctx, q, func(row db.Row) (f Follower, err error) {
		err = row.Scan(&f.UserID, db.IntoTime(&f.Since))
		return f, err
	}, "SELECT user_id, followed_at FROM ticket_followers WHERE ticket_id = $1 AND organization_id = $2 ORDER BY followed_at, user_id", ticketID, organizationID)
	if err != nil {
		return nil, fmt.Errorf("find followers: %w", err)
	}
	return list, nil
}

func follow(ctx context.Context, tx *db.Tx, organizationID, ticketID, userID string) error {
	if err := tx.Queue(ctx, `INSERT INTO ticket_followers (ticket_id, user_id, organization_id, followed_at)
		VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, ticketID, userID, organizationID, tx.Now.UnixMicro()); err != nil {
		return fmt.Errorf("follow ticket: %w", err)
	}
	return nil
}

// followAsAuthor makes the author of a message a follower, if they are a member: it may be an API
// key.
func (s *Service) followAsAuthor(ctx context.Context, tx *db.Tx, organizationID, ticketID, authorID string) error {
	if authorID == "" {
		return nil
	}
	_, ok, err := s.directory.Agent(ctx, tx, organizationID, authorID)
	if err != nil {
		return fmt.Errorf("look up author: %w", err)
	}
	if !ok {
		return nil
	}
	return follow(ctx, tx, organizationID, ticketID, authorID)
}

// noticeCustomerMessage notifies the followers of a ticket that its customer has written.
func (s *Service) noticeCustomerMessage(ctx context.Context, tx *db.Tx, t *Ticket, messageID string) error {
	followers, err := s.Followers(ctx, tx, t.OrganizationID, t.ID)
	if err != nil {
		return err
	}
	ids := []string{t.AssigneeID}
	for _, f := range followers {
		if f.UserID != t.AssigneeID {
			ids = append(ids, f.UserID)
		}
	}
	return s.notice(ctx, tx, t.OrganizationID, newNotice{t.ID, NoticeAnswered, messageID, "", nil}, ids...)
}

// noticeAssigned makes the assignee of a ticket a follower, and notifies them if somebody else
// assigned it.
func (s *Service) noticeAssigned(ctx context.Context, tx *db.Tx, t *Ticket) error {
	if t.AssigneeID == "" {
		return nil
	}
	if err := follow(ctx, tx, t.OrganizationID, t.ID, t.AssigneeID); err != nil {
		return err
	}
	return s.notice(ctx, tx, t.OrganizationID, newNotice{t.ID, NoticeAssigned, "", originOf(ctx).actorID, nil}, t.AssigneeID)
}

// noticeNote makes the author of a note and the members whom it mentions followers, and notifies
// the latter.
func (s *Service) noticeNote(ctx context.Context, tx *db.Tx, organizationID string, m *Message) error {
	if err := s.followAsAuthor(ctx, tx, organizationID, m.TicketID, m.Author.ID); err != nil {
		return err
	}
	for _, id := range m.Details.Mentions {
		if err := follow(ctx, tx, organizationID, m.TicketID, id); err != nil {
			return err
		}
	}
	return s.notice(ctx, tx, organizationID, newNotice{m.TicketID, NoticeMentioned, m.ID, m.Author.ID, nil}, m.Details.Mentions...)
}

// noticePublicMessage notifies the followers of a ticket of a customer's further message, or makes
// the member who wrote to the customer a follower.
func (s *Service) noticePublicMessage(ctx context.Context, tx *db.Tx, t *Ticket, m *Message) error {
	if m.Author.Type == AuthorAgent {
		return s.followAsAuthor(ctx, tx, t.OrganizationID, t.ID, m.Author.ID)
	}
	if m.Author.Type != AuthorCustomer {
		return nil
	}
	return s.noticeCustomerMessage(ctx, tx, t, m.ID)
}
