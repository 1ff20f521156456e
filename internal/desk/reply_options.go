package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ReplyOption is a conversation a reply can be sent in, or the reason it cannot
// (Refusal).
type ReplyOption struct {
	ConversationID string
	Channel        string
	ConnectionID   string          // the connection that would send; empty: none
	From           string          // the organization's address there, if known
	To             channel.Party   // the recipient, if known
	Cc             []channel.Party // recipients of copies, of mail
	Subject        string          // of mail
	Signature      string          // of the connection, in Markdown; of mail
	Limits         channel.Limits
	Forwarded      bool // with somebody to whom messages were forwarded, not with the customer
	// Offers are recipients that mails request without proof, newest first; an agent
	// may select one with [Reply.To]. Withheld are participants without copies: for the
	// same reason, or because an agent has dropped them; see [Reply.Cc].
	Offers   []RecipientChange
	Withheld []Address
	Refusal  string // why no message can be sent now, in plain words; empty: it can
	Warning  string // why it may not arrive; empty: no reason known
	// OpenUntil is the end of the channel's reply window, which each message of the
	// customer extends. It may have passed. Zero: no window, or not open yet.
	OpenUntil time.Time
}

// ReplyOptions returns the conversations of a ticket, or of its survivor, in the
// order in which [Service.ReplyTx] tries them, followed by those about forwarded messages, which
// a reply must select. Error: NotFound.
func (s *Service) ReplyOptions(ctx context.Context, q db.Querier, organizationID, ticketID string) ([]ReplyOption, error) {
	t, err := s.Ticket(ctx, q, organizationID, ticketID)
	for err == nil && t.MergedIntoID != "" {
		t, err = s.Ticket(ctx, q, organizationID, t.MergedIntoID)
	}
	if err != nil {
		return nil, err
	}
	conversations, err := replyCandidates(ctx, q, &t, "")
	if err != nil {
		return nil, fmt.Errorf("find conversations: %w", err)
	}
	forwarded, err := forwardedConversations(ctx, q, &t)
	if err != nil {
		return nil, fmt.Errorf("find conversations: %w", err)
	}
	conversations = append(conversations, forwarded...)
	ways := make([]ReplyOption, 0, len(conversations))
	for i := range conversations {
		c := &conversations[i]
		w := ReplyOption{ConversationID: c.ID, Channel: c.Channel, ConnectionID: c.ConnectionID, Forwarded: c.Forwarded}
		if c.Channel == ChannelAPI {
			w.To = channel.Party{Name: t.Customer.Name, Email: t.Customer.Email, Phone: t.Customer.Phone}
			ways = append(ways, w)
			continue
		}
		out := &channel.Outgoing{ID: newID(), TicketID: t.ID, TicketNumber: t.Number}
		r, err := s.route(ctx, q, &t, c, out, Details{}, chosenRecipients{})
		if p, ok := errors.AsType[*problem.Error](err); ok {
			w.Refusal = p.Message
		} else if err != nil {
			return nil, err
		}
		if r.connectionID != "" {
			w.ConnectionID = r.connectionID
		}
		w.From, w.To, w.Cc, w.Subject, w.Signature, w.Warning, w.OpenUntil, w.Limits = out.From, out.To, out.Cc, out.Subject, out.Signature, r.warning, out.WindowEndsAt, out.Limits
		if c.Channel == channelEmail && !c.Forwarded {
			if err := s.addRecipientChoices(ctx, q, &t, c, &w); err != nil {
				return nil, err
			}
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// addRecipientChoices adds the recipients that an agent may select in a mail
// conversation.
func (s *Service) addRecipientChoices(ctx context.Context, q db.Querier, t *Ticket, c *Conversation, w *ReplyOption) error {
	past, err := loadMailThread(ctx, q, t, c)
	if err != nil {
		return err
	}
	w.Offers = past.offers
	held, err := unconfirmedParticipants(ctx, q, t.ID, c.home)
	if err != nil {
		return err
	}
	for _, a := range held {
		if !slices.ContainsFunc(past.offers, func(o RecipientChange) bool { return emailKey(o.To) == emailKey(a.Email) }) {
			w.Withheld = append(w.Withheld, a)
		}
	}
	return nil
}
