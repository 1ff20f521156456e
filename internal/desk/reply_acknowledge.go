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
)

// What keeps two programs from answering each other for ever (channels.md 11).
// Nothing in a mail needs to show that it is from a program, so these are the only
// sure defence.
const (
	// maxAcknowledgements is how many acknowledgements one address gets within
	// acknowledgedFor.
	maxAcknowledgements   = 5
	acknowledgementPeriod = 24 * time.Hour
	// maxMails is how many mails one address may send within floodTime; what
	// comes beyond is kept, marked, and never answered automatically.
	maxMails    = 10
	floodPeriod = 10 * time.Minute
)

// Acknowledge answers the message that r is of automatically, in the caller's
// transaction, if that is proper: it is a person's, the first of its ticket, and
// the address did not get too many such answers lately. It reports whether it
// did. Like an agent's message, it leaves by its conversation's channel and is
// told of by events, but it is no response.
func (s *Service) Acknowledge(ctx context.Context, tx *db.Tx, organizationID string, r Result, text string) (bool, error) {
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
	// What is no longer counted is of no use.
	if _, err := tx.Exec(ctx, "DELETE FROM acknowledgements WHERE organization_id = $1 AND address = $2 AND sent_at <= $3",
		organizationID, address, tx.Now.Add(-acknowledgementPeriod).UnixMicro()); err != nil {
		return false, fmt.Errorf("forget acknowledgements: %w", err)
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
			return false, nil // it cannot be sent, and nobody asked for it
		}
		return false, err
	}
	_, err = s.append(ctx, tx, c.inbound(&t), &destination{ticket: t, conversationID: c.ID}, e)
	return err == nil, err
}

// mailboxKey is an address without its plus-tag, as mails are counted: a program that
// has a tag for each of its tickets is one program.
func mailboxKey(address string) string {
	local, domain, _ := strings.Cut(emailKey(address), "@")
	plain, _, _ := strings.Cut(local, "+")
	if plain == "" || domain == "" {
		return emailKey(address)
	}
	return plain + "@" + domain
}

// countMail counts a mail of its sender's, and reports whether there were too many
// lately.
func countMail(ctx context.Context, tx *db.Tx, in *Inbound, l *inboundMail) (bool, error) {
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
	// By when they came: what waited long and is processed at once is no flood.
	recent := []int64{in.ReceivedAt.UnixMicro()}
	for _, at := range times {
		if d := in.ReceivedAt.Sub(time.UnixMicro(at)); d.Abs() < floodPeriod && len(recent) <= maxMails {
			recent = append(recent, at)
		}
	}
	if _, err := tx.Exec(ctx, `INSERT INTO mail_senders (organization_id, address, times) VALUES ($1, $2, $3)
		ON CONFLICT (organization_id, address) DO UPDATE SET times = excluded.times`, in.OrganizationID, address, db.JSON(recent)); err != nil {
		return false, fmt.Errorf("count mail of sender: %w", err)
	}
	return len(recent) > maxMails, nil
}
