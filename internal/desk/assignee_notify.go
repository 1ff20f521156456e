package desk

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// noticeFailure notifies the author of a message that failed and the assignee of its ticket, since
// no reply will come. The assignee's mail leaves at once, the author's with their other notices.
func (s *Service) noticeFailure(ctx context.Context, tx *db.Tx, organizationID string, k messageRef, authorID string, r *channel.Receipt) error {
	t, err := s.Ticket(ctx, tx, organizationID, k.ticketID)
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	n := newNotice{t.ID, NoticeFailed, k.messageID, t.AssigneeID, nil}
	if err := s.notice(ctx, tx, organizationID, n, authorID); err != nil || t.AssigneeID == "" {
		return err
	}
	preferences, err := s.directory.Preferences(ctx, tx, organizationID, []string{t.AssigneeID})
	if err != nil {
		return fmt.Errorf("load preferences: %w", err)
	}
	p, ok := preferences[t.AssigneeID]
	if !ok {
		return nil
	}
	to := s.deliveryOf(p, NoticeFailed)
	if to.page || to.push {
		if err := s.writeNotice(ctx, tx, organizationID, t.AssigneeID, n, delivery{page: to.page, push: to.push}); err != nil {
			return err
		}
	}
	if !to.mail {
		return nil
	}
	return s.mailAssignee(ctx, tx, &t, r)
}

// mailAssignee mails the assignee of a ticket that a message in it failed.
func (s *Service) mailAssignee(ctx context.Context, tx *db.Tx, t *Ticket, r *channel.Receipt) error {
	if s.mailer == nil {
		return nil
	}
	agent, ok, err := s.directory.Agent(ctx, tx, t.OrganizationID, t.AssigneeID)
	if err != nil {
		return fmt.Errorf("find assignee: %w", err)
	}
	if !ok || agent.Email == "" {
		return nil
	}
	hello := "Hello,"
	if agent.Name != "" {
		hello = "Hello " + agent.Name + ","
	}
	l := mail.Notification{
		Subject: fmt.Sprintf("A message in ticket #%d could not be delivered", t.Number),
		Before: []string{
			hello,
			fmt.Sprintf("In ticket #%d, %q: %s", t.Number, t.Subject, noteText(&channel.Receipt{State: r.State, Recipient: r.Recipient, Error: r.Error})),
		},
		After: []string{"You get this mail because the ticket is assigned to you."},
	}
	if s.baseURL != "" {
		l.Action = mail.Action{Label: "Open the ticket", URL: s.baseURL + "/tickets/" + strconv.FormatInt(t.Number, 10)}
	}
	m, err := l.Message(mail.Address{}, mail.Address{Name: agent.Name, Address: agent.Email})
	if err != nil {
		return err
	}
	if err := s.mailer.EnqueueMailTx(ctx, tx, m); err != nil {
		return fmt.Errorf("notify assignee: %w", err)
	}
	return nil
}
