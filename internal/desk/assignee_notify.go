package desk

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// notifyAssignee mails the assignee of a ticket that a message in it failed, since
// no reply will come. An unassigned ticket has no notification.
func (s *Service) notifyAssignee(ctx context.Context, tx *db.Tx, organizationID, ticketID string, r *channel.Receipt) error {
	if s.mailer == nil {
		return nil
	}
	t, err := s.Ticket(ctx, tx, organizationID, ticketID)
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	if t.AssigneeID == "" {
		return nil
	}
	agent, ok, err := s.directory.Agent(ctx, tx, organizationID, t.AssigneeID)
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
