package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// RecipientChange is an unproven request of a mail to send replies to another
// address. Replies go to From until an agent selects To.
type RecipientChange struct {
	From   string `json:"from,omitempty"` // empty: no address is known
	To     string `json:"to"`
	Name   string `json:"name,omitempty"` // of To, as given
	Reason string `json:"reason"`         // in plain words, without a full stop
}

// trustsReplyTo reports whether a mail's Reply-To is followed without a question:
// the proof covers the header, and the address is in the sender's organizational
// domain.
//
// The first mail of a ticket is trusted further: there the Reply-To becomes the
// customer, visibly. That is for contact forms, which send from the address that
// they write to, or from one that is not read.
func (m *inboundMail) trustsReplyTo(threaded bool) bool {
	from, to := mailDomain(m.sender.Email), mailDomain(m.replyTo.Email)
	if m.Mail.Proof.Covers("reply-to") && from != "" && from == to {
		return true
	}
	return !threaded && (from != "" && from == mailDomain(m.Mail.Recipient) || channel.IsUnattended(m.sender.Email))
}

// mailDomain returns the organizational domain of an e-mail address.
func mailDomain(address string) string {
	return mailauth.Organization(address[strings.LastIndexByte(address, '@')+1:])
}

// setFirstRecipient sets the address for replies to the first mail of a ticket.
func (m *inboundMail) setFirstRecipient(e *unsavedMessage) {
	e.Details.Recipient = &Address{Name: line(m.From.Name, maxName), Email: line(m.From.Email, maxKey)}
	if asked := emailKey(m.replyTo.Email); asked != "" && asked != emailKey(m.From.Email) {
		e.Details.RecipientChanged = m.recipientChange(m.From.Email, m.replyTo, m.replyToReason())
	}
}

// setNextRecipient sets the address for replies after a mail in a ticket, which is
// locked. A known sender may direct replies to any known address; an unknown sender
// must prove the address. If only a ticket number placed the mail, the recipient
// stays.
func (s *Service) setNextRecipient(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p *threadRef) error {
	c := Conversation{ID: p.conversationID, TicketID: p.ticket.ID, CustomerID: p.ticket.Customer.ID}
	if p.newConversation == nil {
		var err error
		if c, err = db.One(ctx, tx, scanConversation, selectConversation+"WHERE c.ticket_id = $1 AND c.id = $2", p.ticket.ID, p.conversationID); err != nil {
			return fmt.Errorf("load conversation: %w", err)
		}
	}
	known, err := loadMailThread(ctx, tx, &p.ticket, &c)
	if err != nil {
		return err
	}
	current := known.recipient
	to, asked, reason := current, m.sender, cmp.Or(m.Mail.Proof.Reason, "the sender is not proven")
	senderKnown, err := s.isKnownAddress(ctx, tx, in, &c, current, m.sender.Email)
	if err != nil {
		return err
	}
	if senderKnown || m.Mail.Proof.Proven() && !m.isAgent && !m.own {
		to = Address{Name: line(m.sender.Name, maxName), Email: line(m.sender.Email, maxKey)}
	}
	if m.replyTo.Email != "" {
		there, err := s.isKnownAddress(ctx, tx, in, &c, current, m.replyTo.Email)
		if err != nil {
			return err
		}
		asked, reason = m.replyTo, m.replyToReason()
		if there || m.trustsReplyTo(true) {
			to = Address{Name: line(m.replyTo.Name, maxName), Email: line(m.replyTo.Email, maxKey)}
		}
	}
	if e.PlacedBy == RuleTicketTag && current.Email != "" {
		to, reason = current, "only the ticket number in the subject matches, which anybody can write"
	}
	if m.hidden && !senderKnown && current.Email != "" {
		to, reason = current, "they got a blind copy or forwarded messages, and take no part in this conversation"
	}
	e.Details.Recipient = &to
	ours := m.replyTo.Email == "" && (m.isAgent || m.own)
	if key := emailKey(asked.Email); key != "" && key != emailKey(to.Email) && !ours {
		e.Details.RecipientChanged = m.recipientChange(to.Email, asked, reason)
	}
	return nil
}

func (m *inboundMail) recipientChange(from string, to channel.Party, reason string) *RecipientChange {
	return &RecipientChange{From: line(from, maxKey), To: line(to.Email, maxKey), Name: line(to.Name, maxName), Reason: line(reason, 500)}
}

// replyToReason returns the reason why a Reply-To is not followed.
func (m *inboundMail) replyToReason() string {
	switch {
	case !m.Mail.Proof.Proven():
		return "the mail requests replies there (Reply-To) and does not prove its sender: " + cmp.Or(m.Mail.Proof.Reason, "nothing was checked")
	case !m.Mail.Proof.Covers("reply-to"):
		return "the mail requests replies there (Reply-To), which its signature does not cover"
	}
	return "the mail requests replies there (Reply-To), in another domain than its sender's"
}

// isKnownAddress reports whether an e-mail address is part of a conversation: the
// recipient of replies, an address of the customer, or a participant with copies.
func (s *Service) isKnownAddress(ctx context.Context, q db.Querier, in *InboundEvent, c *Conversation, current Address, address string) (bool, error) {
	key := emailKey(address)
	if key == "" {
		return false, nil
	}
	if key == emailKey(current.Email) {
		return true, nil
	}
	var n int
	if err := q.QueryRow(ctx, `SELECT
			(SELECT count(*) FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id = $3) +
			(SELECT count(*) FROM participants WHERE ticket_id = $4 AND email = $1 AND NOT unconfirmed)`,
		key, in.OrganizationID, c.CustomerID, c.TicketID).Scan(&n); err != nil {
		return false, fmt.Errorf("look up participants: %w", err)
	}
	return n > 0, nil
}

// mailThread is the input for a reply by mail.
type mailThread struct {
	recipient Address // empty: no address is known
	offers    []RecipientChange
	mails     []pastMail // newest first; outbound ones only without inbound ones
}

// pastMail is a message of a mail conversation.
type pastMail struct {
	direction, author, externalID string
	details                       Details
}

const (
	maxPastMails = 20 // messages examined for a reply
	maxOffers    = 5
)

// loadMailThread loads a mail conversation with the address for replies: as set by
// the newest inbound message or by an agent's newest selection.
func loadMailThread(ctx context.Context, q db.Querier, t *Ticket, c *Conversation) (k mailThread, err error) {
	k.mails, err = db.All(ctx, q, func(row db.Row) (m pastMail, err error) {
		err = row.Scan(&m.direction, &m.author, db.IntoText(&m.externalID), db.IntoJSON(&m.details))
		return m, err
	}, `SELECT direction, author_name, external_id, details FROM messages
		WHERE ticket_id = $1 AND conversation_id = $2 AND kind = $4
		ORDER BY CASE WHEN direction = 'inbound' OR details LIKE '%"chosen":true%' THEN 0 ELSE 1 END, seq DESC, id DESC LIMIT $3`, t.ID, c.ID, maxPastMails, c.messageKind())
	if err != nil {
		return k, fmt.Errorf("find the mail to answer: %w", err)
	}
	if len(k.mails) > 0 {
		k.recipient = k.mails[0].recipient()
	}
	if k.recipient.Email == "" && !c.Forwarded {
		of := customerRef{Customer: t.Customer}
		if c.CustomerID != of.ID {
			if of, err = loadCustomer(ctx, q, c.CustomerID); err != nil {
				return k, err
			}
		}
		k.recipient = Address{Name: of.Name, Email: of.Email}
	}
	seen := []string{emailKey(k.recipient.Email)}
	for _, m := range k.mails {
		change := m.details.RecipientChanged
		if change == nil || len(k.offers) == maxOffers || slices.Contains(seen, emailKey(change.To)) {
			continue
		}
		seen = append(seen, emailKey(change.To))
		offer := *change
		offer.From = k.recipient.Email
		k.offers = append(k.offers, offer)
	}
	return k, nil
}

// recipient returns the address for replies after a message.
func (m *pastMail) recipient() Address {
	switch d := &m.details; {
	case m.direction == DirectionOutbound:
		if len(d.To) > 0 {
			return d.To[0]
		}
	case d.Recipient != nil:
		return *d.Recipient
	case d.ReplyTo != "": // from before this was decided on arrival
		return Address{Name: m.author, Email: d.ReplyTo}
	default:
		return Address{Name: m.author, Email: d.Sender}
	}
	return Address{}
}

// mailToAnswer returns the mail that a reply to an address refers to: the newest
// one that asked for this address, or for no other.
func (k *mailThread) mailToAnswer(to string) *pastMail {
	for i := range k.mails {
		change := k.mails[i].details.RecipientChanged
		if k.mails[i].direction == DirectionInbound && (change == nil || emailKey(change.To) == emailKey(to) || emailKey(k.mails[i].details.Sender) == emailKey(to)) {
			return &k.mails[i]
		}
	}
	if len(k.mails) > 0 {
		return &k.mails[0]
	}
	return nil
}

// chosenRecipients are the recipients that an agent selected for a reply by mail; see [Reply].
type chosenRecipients struct {
	to            string
	cc, drop, bcc []string
}

func (r *Reply) chosen() chosenRecipients { return chosenRecipients{r.To, r.Cc, r.Drop, r.Bcc} }

// check validates recipients for a conversation. Error: Invalid at to, cc or bcc.
func (r *chosenRecipients) check(c *Conversation) error {
	var v problem.Validation
	if c.Channel != channelEmail && (r.to != "" || len(r.cc)+len(r.bcc) > 0) {
		v.AddCode("conflict", "to", "is for replies by mail")
		return v.Err()
	}
	checkAddresses(&v, "cc", r.cc)
	checkAddresses(&v, "bcc", r.bcc)
	return v.Err()
}

// checkAddresses validates the addresses of copies.
func checkAddresses(v *problem.Validation, path string, list []string) {
	if len(list) > maxCc {
		v.AddCode("too_long", path, "must have at most %d addresses", maxCc)
		return
	}
	for i, address := range list {
		checkEmail(v, fmt.Sprintf("%s.%d", path, i), address)
	}
}

// refuseOwn returns Invalid for an address of the organization's channels among copies: a mail to
// it would become a message of the ticket.
func (s *Service) refuseOwn(ctx context.Context, q db.Querier, t *Ticket, path string, list []string) error {
	for i, address := range list {
		if own, err := s.isOwnAddress(ctx, q, t.OrganizationID, emailKey(address)); err != nil {
			return err
		} else if own {
			var v problem.Validation
			v.AddCode("invalid_value", fmt.Sprintf("%s.%d", path, i), "must not be an address of the organization")
			return v.Err()
		}
	}
	return nil
}

func hasAddress(list []string, address string) bool {
	return slices.ContainsFunc(list, func(a string) bool { return emailKey(a) == emailKey(address) })
}

// addAddresses appends further addresses to a list, each once, without the recipient's. They have
// the names of known ones.
func addAddresses(list []Address, to Address, more []string, known ...Address) []Address {
	for _, address := range more {
		key := emailKey(address)
		isKey := func(a Address) bool { return emailKey(a.Email) == key }
		if key == emailKey(to.Email) || slices.ContainsFunc(list, isKey) {
			continue
		}
		if i := slices.IndexFunc(known, isKey); i >= 0 {
			list = append(list, known[i])
		} else {
			list = append(list, Address{Email: strings.TrimSpace(address)})
		}
	}
	return list
}

// chosenRecipient returns the recipient that an agent selected; ok is false if
// none. Error: Invalid at to for an address that is not on offer.
func (k *mailThread) chosenRecipient(c chosenRecipients) (to Address, ok bool, err error) {
	key := emailKey(c.to)
	if key == "" || key == emailKey(k.recipient.Email) {
		return k.recipient, false, nil
	}
	for _, o := range k.offers {
		if emailKey(o.To) == key {
			return Address{Name: o.Name, Email: o.To}, true, nil
		}
	}
	var v problem.Validation
	v.AddCode("invalid_value", "to", "must be the recipient of the conversation, or the address in recipient_changed of one of its messages")
	return Address{}, false, v.Err()
}

// unconfirmedParticipants returns the participants without copies, because only
// unproven mail named them.
func unconfirmedParticipants(ctx context.Context, q db.Querier, ticketID, home string) ([]Address, error) {
	list, err := db.All(ctx, q, func(row db.Row) (a Address, err error) {
		err = row.Scan(&a.Email, &a.Name)
		return a, err
	}, `SELECT email, name FROM participants WHERE ticket_id = $1 AND unconfirmed AND role NOT IN ($2, $4) AND coalesce(home_id, '') = $3
		ORDER BY created_at, email LIMIT 100`, ticketID, roleCustomer, home, roleHidden)
	if err != nil {
		return nil, fmt.Errorf("find participants: %w", err)
	}
	return list, nil
}

// confirmParticipants makes the selected participants get copies from now on, and the dropped ones
// none.
func confirmParticipants(ctx context.Context, tx *db.Tx, p *threadRef, c chosenRecipients, name string) error {
	for i, address := range append([]string{c.to}, c.cc...) {
		key := emailKey(address)
		if key == "" {
			continue
		}
		who := participant{email: key, role: "recipient"}
		if i == 0 {
			who.name = name
		}
		if _, err := insertParticipant(ctx, tx, p, who); err != nil {
			return err
		}
	}
	for _, address := range c.drop {
		if err := tx.Queue(ctx, `UPDATE participants SET unconfirmed = TRUE WHERE email = $3
			AND (ticket_id = $1 OR ticket_id = (SELECT home_id FROM conversations WHERE ticket_id = $1 AND id = $2))`,
			p.ticket.ID, p.conversationID, emailKey(address)); err != nil {
			return fmt.Errorf("drop participant: %w", err)
		}
	}
	return nil
}
