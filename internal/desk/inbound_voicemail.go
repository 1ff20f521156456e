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

// channelVoice is the ticket channel of telephone calls.
const channelVoice = "voice"

// voicemailWindow is the greatest distance between a mail about a voicemail and the
// events of its call.
const voicemailWindow = 15 * time.Minute

// voicemailReport is a voicemail reported by one of two sources: the provider's
// mail or the events of its call.
type voicemailReport struct {
	messageID string
	ticketID  string
}

// matchVoicemail finds an unmatched report of a caller's voicemail by the other
// source; [db.ErrNoRows] if there is none. It locks the caller's reports until the
// transaction ends.
func matchVoicemail(ctx context.Context, tx *db.Tx, in *InboundEvent, phone string, byMail bool) (voicemailReport, error) {
	key := phoneKey(phone)
	if err := tx.Lock(ctx, "desk/voicemail/"+in.OrganizationID+"/"+key); err != nil {
		return voicemailReport{}, err
	}
	// Numbers are stored only as long as they are useful.
	if err := tx.Queue(ctx, "DELETE FROM voicemails WHERE organization_id = $1 AND at < $2",
		in.OrganizationID, tx.Now.Add(-24*time.Hour).UnixMicro()); err != nil {
		return voicemailReport{}, fmt.Errorf("delete old voicemails: %w", err)
	}
	var t voicemailReport
	err := tx.QueryRow(ctx, `SELECT message_id, ticket_id FROM voicemails WHERE organization_id = $1 AND phone = $2 AND by_mail = $3
		AND at BETWEEN $4 AND $5 ORDER BY at DESC, message_id DESC LIMIT 1`,
		in.OrganizationID, key, !byMail, in.ReceivedAt.Add(-voicemailWindow).UnixMicro(), in.ReceivedAt.Add(voicemailWindow).UnixMicro()).
		Scan(&t.messageID, &t.ticketID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return voicemailReport{}, fmt.Errorf("find voicemail: %w", err)
	}
	return t, err
}

// recordVoicemail stores a report for the other source to match or, if other was
// matched, deletes that.
func recordVoicemail(ctx context.Context, tx *db.Tx, in *InboundEvent, phone string, byMail bool, r Result, other voicemailReport) error {
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
		return fmt.Errorf("record voicemail: %w", err)
	}
	return nil
}

// intakeVoicemail places a voicemail reported by the events of its call. If a mail
// was first, the call's thread joins the mail's ticket.
func (s *Service) intakeVoicemail(ctx context.Context, tx *db.Tx, in *InboundEvent, m *channel.Message) (Result, error) {
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

// attachCallThread makes the thread of a call lead to the ticket that a mail
// started. If the call has a ticket already, the mail's ticket is merged into it.
func (s *Service) attachCallThread(ctx context.Context, tx *db.Tx, in *InboundEvent, m *channel.Message, ticketID string) error {
	t, err := lockSurvivor(ctx, tx, in.OrganizationID, ticketID)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("load ticket: %w", err)
	}
	keys := threadKeys(m.ThreadKey, m.OtherKeys)
	p, err := findThread(ctx, tx, keys, in.scope())
	if err == nil {
		if p.ticket.ID != t.ID {
			_, err = s.MergeTx(ctx, tx, in.OrganizationID, t.ID, p.ticket.ID)
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

// intakeVoicemailMail starts a ticket for the caller named in a mail of the
// telephone provider, or appends the mail to the ticket of the call.
func (s *Service) intakeVoicemailMail(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage) (Result, error) {
	e.Channel = channelVoice
	// Replies do not go to the mail's connection.
	here := *in
	here.ConnectionID = ""
	phone := m.Mail.Caller
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
	m.others = nil // the notification's recipients are not the caller's
	if other != (voicemailReport{}) {
		p, err := callDestination(ctx, tx, in, other.ticketID)
		if err == nil {
			e.PlacedBy = RuleThreadKey
			r, err := s.appendMessage(ctx, tx, &here, &p, e)
			if err != nil {
				return Result{}, err
			}
			return r, recordVoicemail(ctx, tx, in, phone, true, r, other)
		}
		if !errors.Is(err, db.ErrNoRows) {
			return Result{}, err
		}
		other = voicemailReport{} // the ticket was deleted
	}
	r, err := s.startMail(ctx, tx, &here, m, e, nil)
	if err != nil || phone == "" {
		return r, err
	}
	return r, recordVoicemail(ctx, tx, in, phone, true, r, other)
}

// callDestination returns the conversation of a call in its ticket, locked;
// [db.ErrNoRows] if there is none any more.
func callDestination(ctx context.Context, tx *db.Tx, in *InboundEvent, ticketID string) (threadRef, error) {
	t, err := lockSurvivor(ctx, tx, in.OrganizationID, ticketID)
	if err != nil {
		return threadRef{}, err
	}
	p := threadRef{ticket: t}
	err = tx.QueryRow(ctx, "SELECT id, customer_id FROM conversations WHERE ticket_id = $1 AND channel = $2 ORDER BY created_at DESC, id DESC LIMIT 1",
		t.ID, channelVoice).Scan(&p.conversationID, &p.customerID)
	return p, err
}

// callRecipient returns the recipient of replies to a call: the caller, if the
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

// claimReplyThread routes texts from the recipient's number to the conversation of
// w, unless the number has a thread already.
func (s *Service) claimReplyThread(ctx context.Context, tx *db.Tx, w *OutboxMessage) error {
	if w.Channel != channelVoice || w.To.Phone == "" {
		return nil
	}
	_, err := claimPoints(ctx, tx, []contactPoint{{value: phoneKey(w.To.Phone), scope: w.scope(), kind: pointThread, thread: true}}, "", w.TicketID, w.ConversationID)
	return err
}
