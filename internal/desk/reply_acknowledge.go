package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Limits that keep two mail programs from answering each other for ever
// (channels.md 11). No header of a mail has to show that a program sent it, so only
// these limits are a sure defence.
const (
	// maxAcknowledgements is the number of acknowledgements per address and
	// acknowledgementPeriod.
	maxAcknowledgements   = 5
	acknowledgementPeriod = 24 * time.Hour
	// maxMails is the number of mails per sender and floodPeriod. Further ones are
	// stored and marked, and never get an automatic reply.
	maxMails    = 10
	floodPeriod = 10 * time.Minute
)

// AcknowledgeTx sends an automatic reply to the message of r, in the caller's
// transaction, and reports whether it did. It sends none unless r.MayAnswer holds,
// the address is below maxAcknowledgements, and the address is neither the
// organization's own nor unattended. The reply leaves by its conversation's channel
// and emits message events, but does not count as a first response.
func (s *Service) AcknowledgeTx(ctx context.Context, tx *db.Tx, organizationID string, r Result, text string) (bool, error) {
	if !r.MayAnswer || text == "" {
		return false, nil
	}
	t, err := lockTicket(ctx, tx, organizationID, r.TicketID)
	if err != nil {
		return false, fmt.Errorf("load ticket: %w", err)
	}
	c, err := db.One(ctx, tx, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", t.ID, r.ConversationID)
	if err != nil {
		return false, fmt.Errorf("load conversation: %w", err)
	}
	e := s.newOutboundMessage(newID(), tx.Now, &t, &c, &Content{text: clean(text)})
	e.Author = event.Author{Type: AuthorSystem}
	e.Details.Automatic = true
	e.quota = quota.Counted // its transaction receives the customer's message
	to, err := s.addressMail(ctx, tx, &t, &c, e.Details, chosenRecipients{})
	if err != nil {
		return false, err
	}
	if len(to.To) == 0 {
		return false, nil
	}
	address := emailKey(to.To[0].Email)
	if own, err := s.isOwnOrEmpty(ctx, tx, &t, address); err != nil || own || channel.IsUnattended(address) {
		return false, err
	}
	address = mailboxKey(address)
	if err := tx.Lock(ctx, "desk/acknowledge/"+organizationID+"/"+address); err != nil {
		return false, err
	}
	if err := tx.Queue(ctx, "DELETE FROM acknowledgements WHERE organization_id = $1 AND address = $2 AND sent_at <= $3",
		organizationID, address, tx.Now.Add(-acknowledgementPeriod).UnixMicro()); err != nil {
		return false, fmt.Errorf("delete old acknowledgements: %w", err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO acknowledgements (ticket_id, organization_id, address, sent_at)
		SELECT $1, $2, $3, CAST($4 AS BIGINT) WHERE (SELECT count(*) FROM acknowledgements WHERE organization_id = $2 AND address = $3) < $5
		ON CONFLICT DO NOTHING`, t.ID, organizationID, address, tx.Now.UnixMicro(), maxAcknowledgements)
	if err != nil {
		return false, fmt.Errorf("count acknowledgement: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	if err := s.enqueueSend(ctx, tx, &t, &c, e); err != nil {
		if _, ok := errors.AsType[*problem.Error](err); ok && problem.Of(err) != problem.Unavailable {
			return false, nil // it cannot be sent, which is no error here
		}
		return false, err
	}
	_, err = s.appendMessage(ctx, tx, c.inbound(&t), &threadRef{ticket: t, conversationID: c.ID}, e)
	return err == nil, err
}

// mailboxKey returns the address without its plus tag: a program with one tag per
// ticket is one sender.
func mailboxKey(address string) string {
	local, domain, _ := strings.Cut(emailKey(address), "@")
	plain, _, _ := strings.Cut(local, "+")
	if plain == "" || domain == "" {
		return emailKey(address)
	}
	return plain + "@" + domain
}

// countMail counts a mail of its sender, and reports whether the sender exceeds
// maxMails within floodPeriod.
func countMail(ctx context.Context, tx *db.Tx, in *InboundEvent, l *inboundMail) (bool, error) {
	address := mailboxKey(l.sender.Email)
	if address == "" {
		return false, nil
	}
	if err := tx.Lock(ctx, "desk/flood/"+in.OrganizationID+"/"+address); err != nil {
		return false, err
	}
	var times []int64
	err := tx.QueryRow(ctx, "SELECT times FROM mail_senders WHERE organization_id = $1 AND address = $2", in.OrganizationID, address).
		Scan(db.IntoJSON(&times))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("count mails of sender: %w", err)
	}
	// Count by arrival: mails that waited and are processed together are no flood.
	recent := []int64{in.ReceivedAt.UnixMicro()}
	for _, at := range times {
		if d := in.ReceivedAt.Sub(time.UnixMicro(at)); d.Abs() < floodPeriod && len(recent) <= maxMails {
			recent = append(recent, at)
		}
	}
	if err := tx.Queue(ctx, `INSERT INTO mail_senders (organization_id, address, times) VALUES ($1, $2, $3)
		ON CONFLICT (organization_id, address) DO UPDATE SET times = excluded.times`, in.OrganizationID, address, db.JSON(recent)); err != nil {
		return false, fmt.Errorf("count mail of sender: %w", err)
	}
	return len(recent) > maxMails, nil
}
