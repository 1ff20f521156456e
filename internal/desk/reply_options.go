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

// ReplyOption is a conversation in which a ticket can be answered, or why it cannot.
type ReplyOption struct {
	ConversationID string
	Channel        string
	ConnectionID   string          // by which an answer leaves; empty where there is none
	From           string          // our address there, as far as it is known
	To             channel.Party   // whom it reaches, as far as that is known
	Cc             []channel.Party // who gets a copy, of mail
	Subject        string          // of mail
	// Offers are recipients that mails ask for and do not prove, newest first; an
	// agent may choose one with [Reply.To]. Withheld are participants who get no
	// copies for the same reason; see [Reply.Cc].
	Offers   []RecipientChange
	Withheld []Address
	Refusal  string // why nothing can leave now, in plain words; empty: it can
	Warning  string // why it may not arrive all the same; empty: nothing is known
	// OpenUntil is until when the channel takes an answer, where that ends: the
	// customer writes again, and it is later. It may have passed. Zero: it does
	// not end, or has not begun.
	OpenUntil time.Time
}

// ReplyOptions returns the conversations in which a ticket can be answered, or what it
// was merged into: the first in which something can leave is where [Service.Reply]
// goes that names none. Error: NotFound.
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
	ways := make([]ReplyOption, 0, len(conversations))
	for i := range conversations {
		c := &conversations[i]
		w := ReplyOption{ConversationID: c.ID, Channel: c.Channel, ConnectionID: c.ConnectionID}
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
		w.From, w.To, w.Cc, w.Subject, w.Warning, w.OpenUntil = out.From, out.To, out.Cc, out.Subject, r.warning, out.WindowEndsAt
		if c.Channel == channelEmail {
			if err := s.addRecipientChoices(ctx, q, &t, c, &w); err != nil {
				return nil, err
			}
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// addRecipientChoices adds to a conversation by mail whom an agent may choose.
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
