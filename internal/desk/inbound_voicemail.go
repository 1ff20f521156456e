package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// channelVoice is the medium of telephone calls.
const channelVoice = "voice"

// voicemailWindow is how far apart a mail about a voicemail and the events of its call
// can come.
const voicemailWindow = 15 * time.Minute

// voicemailReport is a voicemail that one of two has told of: the provider's mail, or the events
// of its call.
type voicemailReport struct {
	messageID string
	ticketID  string
}

// matchVoicemail finds what the other of the two has told of a caller's voicemail, which
// nobody has told twice; [db.ErrNoRows] if there is none. Until the end of the
// transaction nobody else looks at that caller's.
func matchVoicemail(ctx context.Context, tx *db.Tx, in *Inbound, phone string, byMail bool) (voicemailReport, error) {
	key := phoneKey(phone)
	if err := tx.Lock(ctx, "desk/voicemail/"+in.OrganizationID+"/"+key); err != nil {
		return voicemailReport{}, err
	}
	// Numbers are not kept for longer than they are of use.
	if _, err := tx.Exec(ctx, "DELETE FROM voicemails WHERE organization_id = $1 AND at < $2",
		in.OrganizationID, tx.Now.Add(-24*time.Hour).UnixMicro()); err != nil {
		return voicemailReport{}, fmt.Errorf("forget voicemails: %w", err)
	}
	var t voicemailReport
	err := tx.QueryRow(ctx, `SELECT message_id, ticket_id FROM voicemails WHERE organization_id = $1 AND phone = $2 AND by_mail = $3
		AND at BETWEEN $4 AND $5 ORDER BY at DESC, message_id DESC LIMIT 1`,
		in.OrganizationID, key, !byMail, in.ReceivedAt.Add(-voicemailWindow).UnixMicro(), in.ReceivedAt.Add(voicemailWindow).UnixMicro()).
		Scan(&t.messageID, &t.ticketID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return voicemailReport{}, fmt.Errorf("look for the voicemail: %w", err)
	}
	return t, err
}

// recordVoicemail notes what one of the two has told, for the other to find; or, where other
// was found, that both have.
func recordVoicemail(ctx context.Context, tx *db.Tx, in *Inbound, phone string, byMail bool, r Result, other voicemailReport) error {
	if r.Outcome != TicketCreated && r.Outcome != Appended {
		return nil
	}
	var err error
	if other != (voicemailReport{}) {
		_, err = tx.Exec(ctx, "DELETE FROM voicemails WHERE organization_id = $1 AND phone = $2 AND message_id = $3",
			in.OrganizationID, phoneKey(phone), other.messageID)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO voicemails (organization_id, phone, message_id, ticket_id, by_mail, at)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			in.OrganizationID, phoneKey(phone), r.MessageID, r.TicketID, byMail, in.ReceivedAt.UnixMicro())
	}
	if err != nil {
		return fmt.Errorf("note voicemail: %w", err)
	}
	return nil
}

// intakeVoicemail places a voicemail that the events of its call have told of. If a
// mail was quicker, the call's thread is in the ticket that the mail began.
func (s *Service) intakeVoicemail(ctx context.Context, tx *db.Tx, in *Inbound, m *channel.Message) (Result, error) {
	phone := m.From.Phone
	other, err := matchVoicemail(ctx, tx, in, phone, false)
	switch {
	case err == nil:
		if err := s.attachCallThread(ctx, tx, in, m, other.ticketID); err != nil {
			return Result{}, err
		}
	case !errors.Is(err, db.ErrNoRows):
		return Result{}, err
	}
	r, err := s.intakeThreaded(ctx, tx, in, m)
	if err != nil {
		return Result{}, err
	}
	return r, recordVoicemail(ctx, tx, in, phone, false, r, other)
}

// attachCallThread has the thread of a call lead to the ticket that a mail about it began. A
// call that has a ticket already takes that one in.
func (s *Service) attachCallThread(ctx context.Context, tx *db.Tx, in *Inbound, m *channel.Message, ticketID string) error {
	t, err := lockSurvivor(ctx, tx, in.OrganizationID, ticketID)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted since
	}
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	keys := threadKeys(m.ThreadKey, m.OtherKeys)
	p, err := findThread(ctx, tx, keys, in.scope())
	if err == nil {
		if p.ticket.ID != t.ID {
			_, err = s.Merge(ctx, tx, in.OrganizationID, t.ID, p.ticket.ID)
		}
		return err
	}
	if !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("find thread: %w", err)
	}
	c := Conversation{
		ID: newID(), TicketID: t.ID, ConnectionID: in.ConnectionID, Channel: in.Channel,
		ThreadKey: keys[0], CustomerID: t.Customer.ID, CreatedAt: tx.Now,
	}
	if err := insertConversation(ctx, tx, &c); err != nil {
		return err
	}
	_, err = claimPoints(ctx, tx, in.threadPoints(channel.Party{Phone: m.From.Phone}, keys), t.Customer.ID, t.ID, c.ID)
	return err
}

// intakeVoicemailMail starts a ticket of the caller that a mail of the telephone provider names,
// or adds the mail to the ticket that the events of the call began.
func (s *Service) intakeVoicemailMail(ctx context.Context, tx *db.Tx, in *Inbound, l *inboundMail, e *unsavedMessage) (Result, error) {
	e.Channel = channelVoice
	// Answers do not go to where the mail came from.
	here := *in
	here.ConnectionID = ""
	phone := l.Mail.Caller
	other, err := voicemailReport{}, error(nil)
	if phone != "" {
		if other, err = matchVoicemail(ctx, tx, in, phone, true); err != nil && !errors.Is(err, db.ErrNoRows) {
			return Result{}, err
		}
	}
	k, err := s.findOrCreateCustomer(ctx, tx, in, channel.Party{Phone: phone})
	if err != nil {
		return Result{}, err
	}
	e.byCustomer(k)
	l.others = nil // the notifier's recipients are not the caller's
	if other != (voicemailReport{}) {
		p, err := callDestination(ctx, tx, in, other.ticketID)
		if err == nil {
			e.PlacedBy = RuleThreadKey
			r, err := s.append(ctx, tx, &here, &p, e)
			if err != nil {
				return Result{}, err
			}
			return r, recordVoicemail(ctx, tx, in, phone, true, r, other)
		}
		if !errors.Is(err, db.ErrNoRows) {
			return Result{}, err
		}
		other = voicemailReport{} // its ticket was deleted
	}
	r, err := s.startMail(ctx, tx, &here, l, e, nil)
	if err != nil || phone == "" {
		return r, err
	}
	return r, recordVoicemail(ctx, tx, in, phone, true, r, other)
}

// callDestination is the conversation of a call in the ticket that it began, locked;
// [db.ErrNoRows] when there is none any more.
func callDestination(ctx context.Context, tx *db.Tx, in *Inbound, ticketID string) (destination, error) {
	t, err := lockSurvivor(ctx, tx, in.OrganizationID, ticketID)
	if err != nil {
		return destination{}, err
	}
	p := destination{ticket: t}
	err = tx.QueryRow(ctx, "SELECT id, customer_id FROM conversations WHERE ticket_id = $1 AND channel = $2 ORDER BY id DESC LIMIT 1",
		t.ID, channelVoice).Scan(&p.conversationID, &p.customerID)
	return p, err
}

// callRecipient is who a conversation about a call is answered: whoever called, where the
// number is known.
func callRecipient(ctx context.Context, q db.Querier, c *Conversation, scope string) (channel.Party, error) {
	var shown, phone string
	err := q.QueryRow(ctx, `SELECT (SELECT display FROM contact_points WHERE value = $1 AND scope = $2 AND kind = $3), u.phone
		FROM customers u WHERE u.id = $4`, c.ThreadKey, scope, pointThread, c.CustomerID).Scan(db.IntoText(&shown), &phone)
	if err != nil {
		return channel.Party{}, fmt.Errorf("look up caller: %w", err)
	}
	if strings.HasPrefix(shown, "+") {
		phone = shown
	}
	return channel.Party{Phone: phone}, nil
}

// claimReplyThread has texts of a number come into the conversation in which it is written
// to, unless they come into another one already.
func (s *Service) claimReplyThread(ctx context.Context, tx *db.Tx, w *OutboxMessage) error {
	if w.Channel != channelVoice || w.To.Phone == "" {
		return nil
	}
	_, err := claimPoints(ctx, tx, []contactPoint{{value: phoneKey(w.To.Phone), scope: w.scope(), kind: pointThread, thread: true}}, "", w.TicketID, w.ConversationID)
	return err
}
