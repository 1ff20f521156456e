package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// inboundMail is a received mail with the results of its analysis.
type inboundMail struct {
	*channel.Message
	ids     messageRefs     // the messages that its ids name
	sender  channel.Party   // the From header; Message.From is the same, or an accepted Reply-To
	agent   event.Person    // the sender, if isAgent
	isAgent bool            // the sender has a member's address
	own     bool            // the sender has one of our channel addresses
	others  []channel.Party // visible recipients except the organization's addresses and the sender
	visible bool            // the organization's address is a visible recipient
	copyOf  string          // the id of the outbound message that a valid X-Helpdesk-Message names
	replyTo channel.Party   // the requested address for replies, if it is a different one outside the organization
	hidden  bool            // the sender got a mail of the ticket without taking part: see [roleHidden]
	beside  bool            // it answers forwarded messages, and goes into the customer's conversation
}

// placementHeaders must be covered by a proof before a mail counts as the
// organization's own: a recipient of such a mail could add them and send it again.
var placementHeaders = []string{"to", "cc", "in-reply-to", "references", "message-id"}

// isAuthentic reports whether the sender is provably an agent or one of the
// organization's addresses.
func (m *inboundMail) isAuthentic() bool {
	return m.Mail.Proof.Covers(placementHeaders...) && (m.isAgent || m.own)
}

// intakeMail classifies a mail (helpdesk.md part 2), finds its ticket, and applies it.
func (s *Service) intakeMail(ctx context.Context, tx *db.Tx, in *InboundEvent, msg *channel.Message) (Result, error) {
	id := msg.Mail.MessageID
	if id != "" {
		// A mail to two of the organization's addresses causes two events, perhaps at
		// once.
		if err := tx.Lock(ctx, "desk/mail/"+in.OrganizationID+"/"+foldID(id)); err != nil {
			return Result{}, err
		}
	}
	m, err := s.analyzeMail(ctx, tx, in, msg)
	if err != nil {
		return Result{}, err
	}
	class, rule, original := m.classify()
	e := newMailMessage(in, m, class, rule)
	if original.messageID != "" {
		// The copy of an outbound message. A relay may have changed its Message-ID;
		// replies name the new one.
		return e.duplicateOf(original), insertID(ctx, tx, in.OrganizationID, id, &Message{
			ID: original.messageID, TicketID: original.ticketID, ConversationID: original.conversationID, Direction: DirectionOutbound,
		})
	}
	refusal := ""
	if class == channel.ClassInbound || class == channel.ClassOutboundCopy && m.visible && m.isAgent {
		var done bool
		var r Result
		if r, done, refusal, err = s.intakeAnswer(ctx, tx, in, m, e); err != nil || done {
			return r, err
		}
	}
	if k, ok := m.ids.find(id); ok {
		if same, err := sameMail(ctx, tx, k, in, e); err != nil {
			return Result{}, err
		} else if same {
			return e.duplicateOf(k), nil
		}
		e.ExternalID = "" // the id names the mail that had it first
	}
	if class == channel.ClassInbound || class == channel.ClassAutoReply {
		if e.Details.Flood, err = countMail(ctx, tx, in, m); err != nil {
			return Result{}, err
		}
		e.Details.NoAutoAnswer = e.Details.NoAutoAnswer || e.Details.Flood
	}
	switch class {
	case channel.ClassBounce:
		return s.intakeBounce(ctx, tx, in, m, e)
	case channel.ClassVoicemail:
		return s.intakeVoicemailMail(ctx, tx, in, m, e)
	}
	p, link, err := s.matchMailThread(ctx, tx, in, m, e)
	if err != nil {
		return Result{}, err
	}
	r, err := s.applyMail(ctx, tx, in, m, e, p, link)
	r.Reason = cmp.Or(r.Reason, refusal)
	return r, err
}

// duplicateOf returns the result of a mail that repeats the message k.
func (e *unsavedMessage) duplicateOf(k messageRef) Result {
	r := e.recorded("")
	r.Outcome, r.TicketID, r.ConversationID, r.MessageID = Duplicate, k.ticketID, k.conversationID, k.messageID
	return r
}

// recorded returns the result of a mail that is not stored as a message.
func (e *unsavedMessage) recorded(reason string) Result {
	return Result{Outcome: Recorded, Class: e.Details.Class, ClassRule: e.Details.ClassRule, Reason: reason}
}

// applyMail stores a mail by its class: in the ticket of p, or in a new ticket with link.
func (s *Service) applyMail(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p threadRef, link *ticketLink) (Result, error) {
	threaded := p.ticket.ID != ""
	if e.Details.Class == channel.ClassAutoReply && m.Mail.Doubtful && !threaded {
		// It answers no known message, so its subject is no evidence.
		e.Details.Class, e.Details.ClassRule = channel.ClassInbound, "no other rule"
	}
	copied, automatic := e.Details.Class == channel.ClassOutboundCopy, e.Details.Class == channel.ClassAutoReply
	if threaded && !automatic && p.newConversation == nil && (copied || !m.isAgent || !m.isAuthentic()) {
		if forwarded, err := isForwarded(ctx, tx, &p); err != nil {
			return Result{}, err
		} else if forwarded {
			if m.beside, err = isCustomerAddress(ctx, tx, in, &p.ticket, m.sender.Email); err != nil {
				return Result{}, err
			}
			if copied || !m.beside {
				return s.intakeForwarded(ctx, tx, in, m, e, &p)
			}
			// The customer answers somebody to whom messages were forwarded.
			if p, err = mailDestination(ctx, tx, in, m, p.ticket); err != nil {
				return Result{}, err
			}
		}
	}
	switch {
	case copied && (threaded || len(m.others) > 0):
		return s.intakeOutboundCopy(ctx, tx, in, m, e, p, link)
	case automatic && threaded:
		return s.intakeAutoReply(ctx, tx, in, m, e, p)
	case automatic && !m.Mail.Generated:
		return e.recorded("an automatic reply to an unknown message"), nil
	case automatic && in.RefuseGenerated:
		return e.recorded("generated mail starts no ticket on this connection"), nil
	case threaded && m.isAgent && m.isAuthentic() && emailKey(p.ticket.Customer.Email) != emailKey(m.agent.Email):
		// Sent to the organization only: the customer has not seen it.
		e.Author = event.Author{Type: AuthorAgent, ID: m.agent.ID, Name: m.agent.Name}
		return s.appendNote(ctx, tx, in, &p, e)
	}
	return s.intakeCustomerMail(ctx, tx, in, m, e, p, link)
}

// intakeCustomerMail stores a mail as a message of its sender: in the ticket of p, in the
// ticket that continues it if it is closed, or in a new one.
func (s *Service) intakeCustomerMail(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p threadRef, link *ticketLink) (Result, error) {
	var err error
	if p.ticket.Status == StatusClosed {
		if p, link, err = s.findContinuation(ctx, tx, in, m, p.ticket); err != nil {
			return Result{}, err
		}
	}
	threaded := p.ticket.ID != ""
	if m.replyTo.Email != "" && m.trustsReplyTo(threaded) {
		m.From = m.replyTo
	}
	k, err := s.findOrCreateCustomer(ctx, tx, in, m.From)
	if err != nil {
		return Result{}, err
	}
	e.byCustomer(k)
	if !threaded {
		m.setFirstRecipient(e)
		return s.startMail(ctx, tx, in, m, e, link)
	}
	if m.hidden, err = isHidden(ctx, tx, &p.ticket, m.sender.Email); err != nil {
		return Result{}, err
	}
	if err := s.setNextRecipient(ctx, tx, in, m, e, &p); err != nil {
		return Result{}, err
	}
	if err := s.addMailParticipants(ctx, tx, m, e, &p); err != nil {
		return Result{}, err
	}
	return s.appendMessage(ctx, tx, in, &p, e)
}

// analyzeMail looks up the ids, the sender and the recipients of a mail.
func (s *Service) analyzeMail(ctx context.Context, tx *db.Tx, in *InboundEvent, msg *channel.Message) (*inboundMail, error) {
	copied := *msg
	m := &inboundMail{Message: &copied, sender: msg.Mail.Sender}
	if m.sender.Email == "" {
		m.sender = msg.From
	}
	var reported []string
	if msg.Mail.Receipt != nil {
		reported = msg.Mail.Receipt.ExternalIDs
	}
	if s.copyMAC != nil && msg.Mail.CopyHeader != "" {
		if id, ok := s.copyMAC(in.OrganizationID, msg.Mail.CopyHeader); ok {
			m.copyOf = id
		}
	}
	var err error
	if m.ids, err = findMessageIDs(ctx, tx, []string{in.OrganizationID},
		[]string{msg.Mail.MessageID}, msg.Mail.InReplyTo, msg.Mail.References, msg.Mail.EmbeddedIDs, reported, []string{m.copyOf}); err != nil {
		return nil, err
	}
	if m.sender.Email != "" {
		if m.agent, m.isAgent, m.own, err = s.resolveAddress(ctx, tx, in.OrganizationID, m.sender.Email); err != nil {
			return nil, err
		}
	}
	if key := emailKey(msg.From.Email); key != emailKey(m.sender.Email) && key != "" {
		// Replies should go elsewhere; accepted only outside the organization.
		_, isAgent, own, err := s.resolveAddress(ctx, tx, in.OrganizationID, msg.From.Email)
		if err != nil {
			return nil, err
		}
		if !isAgent && !own {
			m.replyTo = msg.From
		}
		m.From = m.sender
	}
	return m, s.resolveRecipients(ctx, tx, in, m)
}

// resolveAddress returns the agent with a mail address, and whether it is a channel
// address of the organization.
func (s *Service) resolveAddress(ctx context.Context, q db.Querier, organizationID, address string) (agent event.Person, isAgent, own bool, err error) {
	if agent, isAgent, err = s.directory.AgentByEmail(ctx, q, organizationID, address); err != nil {
		return agent, false, false, fmt.Errorf("look up agent: %w", err)
	}
	own, err = s.isOwnAddress(ctx, q, organizationID, address)
	return agent, isAgent, own, err
}

// resolveRecipients sets the visible recipients of l.
func (s *Service) resolveRecipients(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail) error {
	for i, p := range slices.Concat(m.To, m.Cc) {
		key := emailKey(p.Email)
		if key == "" || key == emailKey(m.sender.Email) || i >= maxIDs {
			continue
		}
		own := key == emailKey(m.Mail.Recipient)
		if !own {
			var err error
			if own, err = s.isOwnAddress(ctx, tx, in.OrganizationID, p.Email); err != nil {
				return err
			}
		}
		if own {
			m.visible = true
		} else {
			m.others = append(m.others, p)
		}
	}
	return nil
}

// isOwnAddress reports whether a mail address, with or without its plus tag, is a
// channel address of the organization.
func (s *Service) isOwnAddress(ctx context.Context, q db.Querier, organizationID, address string) (bool, error) {
	key := emailKey(address)
	local, domain, _ := strings.Cut(key, "@")
	plain, _, tagged := strings.Cut(local, "+")
	own, err := s.addresses.Owns(ctx, q, organizationID, "email", key)
	if err == nil && !own && tagged {
		own, err = s.addresses.Owns(ctx, q, organizationID, "email", plain+"@"+domain)
	}
	if err != nil {
		return false, fmt.Errorf("look up channel address: %w", err)
	}
	return own, nil
}

// classify returns the class of a mail. It recognizes copies of outbound messages
// by stored ids; for all other mail the adapter has decided, from the headers.
// original is the copied message, if it exists.
func (m *inboundMail) classify() (class channel.Class, rule string, original messageRef) {
	mail := m.Mail
	if m.copyOf != "" {
		// Every recipient can present the header, and some programs copy it into replies.
		// So the mail must claim to be from the organization, and prove it if the message
		// is gone.
		original, there := m.ids.find(m.copyOf)
		if there && (m.own || m.isAgent) || m.isAuthentic() {
			return channel.ClassOutboundCopy, "x-helpdesk-message: valid", original
		}
	}
	if k, ok := m.ids.find(mail.MessageID); ok && k.outbound {
		return channel.ClassOutboundCopy, "message-id: one that we sent", k
	}
	if m.isAuthentic() && (len(m.others) > 0 || !m.visible) {
		if m.isAgent {
			return channel.ClassOutboundCopy, "from: an agent, to somebody else", messageRef{}
		}
		return channel.ClassOutboundCopy, "from: our own address, to somebody else", messageRef{}
	}
	return mail.Class, mail.Rule, messageRef{}
}

func newMailMessage(in *InboundEvent, m *inboundMail, class channel.Class, rule string) *unsavedMessage {
	mail := m.Mail
	e := newInboundMessage(in, m.Message)
	e.ExternalID = boundedKey(mail.MessageID)
	e.PlacedBy = RuleNone
	if mail.MessageID != "" {
		e.ids = []string{mail.MessageID}
	}
	references := mail.References
	if len(references) == 0 {
		references = mail.InReplyTo
	}
	e.Details = Details{
		ReplyTo: emailKey(m.replyTo.Email), References: boundReferences(references),
		Class: class, ClassRule: line(rule, maxKey), Subject: line(m.Subject, maxSubject), Sender: emailKey(m.sender.Email),
		To: addresses(m.To), Cc: addresses(m.Cc), Unverified: mail.Proof.Failed(), Authentication: newAuthentication(mail.Proof),
		NoAutoAnswer: class != channel.ClassInbound || mail.NoAutoAnswer || mail.CopyHeader != "" || m.own ||
			mail.HasEnvelope && mail.EnvelopeFrom == "" || channel.IsUnattended(m.sender.Email) || m.replyTo.Email != "" && channel.IsUnattended(m.replyTo.Email),
	}
	return e
}

// maxReferences is the number of ids in the References of outbound mail, without
// its own.
const maxReferences = 19

// boundReferences returns the first and the last references of a mail, which a
// reply repeats.
func boundReferences(ids []string) []string {
	var few []string
	for i, id := range ids {
		if (i == 0 || i > len(ids)-maxReferences) && id != "" && len(id) <= maxKey {
			few = append(few, clean(id))
		}
	}
	return few
}

func addresses(parties []channel.Party) []Address {
	var list []Address
	for _, p := range parties[:min(len(parties), maxIDs)] {
		if p.Email != "" {
			list = append(list, Address{Name: line(p.Name, maxName), Email: line(p.Email, maxKey)})
		}
	}
	return list
}

// sameMail reports whether e repeats the mail stored under its Message-ID, rather
// than being another mail of a sender that reuses ids: it compares text and files.
// Bounces are compared by sender only.
func sameMail(ctx context.Context, tx *db.Tx, k messageRef, in *InboundEvent, e *unsavedMessage) (bool, error) {
	m, err := db.One(ctx, tx, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 AND id = $2", k.ticketID, k.messageID)
	if err != nil {
		return false, fmt.Errorf("load message: %w", err)
	}
	if m.Details.Sender != e.Details.Sender {
		return false, nil
	}
	if e.Details.Class == channel.ClassBounce {
		return true, nil
	}
	if m.Text != e.Text || m.HTML == "" != (e.HTML == "") {
		return false, nil
	}
	files, err := db.All(ctx, tx, func(row db.Row) (key string, err error) {
		err = row.Scan(db.IntoText(&key))
		return key, err
	}, "SELECT blob_key FROM attachments WHERE ticket_id = $1 AND message_id = $2", k.ticketID, k.messageID)
	if err != nil {
		return false, fmt.Errorf("load attachments: %w", err)
	}
	var brought []string
	for _, f := range in.Files {
		brought = append(brought, f.Key)
	}
	return sameFiles(files, brought), nil
}

// sameFiles reports whether two mails can have the same files, by their keys. An
// empty key stands for a file that is not fetched, and matches any.
func sameFiles(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	others, pairs, known := slices.Clone(b), 0, 0
	for _, key := range a {
		if i := slices.Index(others, key); key != "" && i >= 0 {
			others = slices.Delete(others, i, i+1)
			continue
		}
		pairs++
		if key != "" {
			known++
		}
	}
	for _, key := range others {
		if key != "" {
			known++
		}
	}
	return known <= pairs
}

// ticketLink is a link from a new ticket to an existing one.
type ticketLink struct{ ticketID, reason string }

// matchMailThread finds and locks the ticket of a mail, by the four rules in order. If
// none applies, the destination is empty, and link may name a ticket to link to.
func (s *Service) matchMailThread(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage) (threadRef, *ticketLink, error) {
	mail := m.Mail
	var link *ticketLink
	backwards := slices.Clone(mail.References)
	slices.Reverse(backwards)

	for _, step := range []struct {
		rule ThreadingRule
		ids  []string
	}{
		{RuleInReplyTo, mail.InReplyTo},
		{RuleReference, backwards},
		{RuleTicketTag, nil},
		{RuleMessageID, append([]string{mail.MessageID}, mail.EmbeddedIDs...)},
	} {
		if step.rule == RuleTicketTag {
			p, tagged, err := s.matchThreadByTag(ctx, tx, in, m)
			if err != nil {
				return threadRef{}, nil, err
			}
			if p.ticket.ID != "" {
				e.PlacedBy = RuleTicketTag
				return p, nil, nil
			}
			link = tagged
		}
		for _, id := range step.ids {
			k, ok := m.ids.find(id)
			if !ok {
				continue
			}
			p, err := matchThreadByID(ctx, tx, in, id, k)
			if errors.Is(err, db.ErrNoRows) {
				continue // deleted meanwhile
			}
			if err != nil {
				return threadRef{}, nil, err
			}
			e.PlacedBy = step.rule
			return p, nil, nil
		}
	}
	return threadRef{}, link, nil
}

// matchThreadByID locks the ticket of the message that id names, found as ref before;
// [db.ErrNoRows] if it is gone.
func matchThreadByID(ctx context.Context, tx *db.Tx, in *InboundEvent, id string, k messageRef) (threadRef, error) {
	for {
		t, err := lockTicket(ctx, tx, in.OrganizationID, k.ticketID)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return threadRef{}, fmt.Errorf("load ticket: %w", err)
		}
		p := threadRef{ticket: t, conversationID: k.conversationID}
		if err == nil {
			if ok, err := p.isCurrent(ctx, tx); err != nil || ok {
				return p, err
			}
		}
		// Moved or deleted meanwhile.
		ids, err := findMessageIDs(ctx, tx, []string{in.OrganizationID}, []string{id})
		if err != nil {
			return threadRef{}, err
		}
		found, ok := ids.find(id)
		if !ok || found == k {
			return threadRef{}, db.ErrNoRows
		}
		k = found
	}
}

// findContinuation finds the open ticket that continues a closed one, following
// LinkClosed. If there is none, the destination is empty, and the new ticket links
// to the last closed one.
func (s *Service) findContinuation(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, closed Ticket) (threadRef, *ticketLink, error) {
	seen := []string{closed.ID}
	for {
		var id string
		err := tx.QueryRow(ctx, `SELECT id FROM tickets WHERE linked_ticket_id = $1 AND organization_id = $2 AND link_reason = $3
			ORDER BY number DESC LIMIT 1`, closed.ID, in.OrganizationID, LinkClosed).Scan(&id)
		if errors.Is(err, db.ErrNoRows) {
			return threadRef{}, &ticketLink{closed.ID, LinkClosed}, nil
		}
		if err != nil {
			return threadRef{}, nil, fmt.Errorf("find continuation: %w", err)
		}
		t, err := lockSurvivor(ctx, tx, in.OrganizationID, id)
		if errors.Is(err, db.ErrNoRows) {
			continue // deleted meanwhile
		}
		if err != nil {
			return threadRef{}, nil, fmt.Errorf("load ticket: %w", err)
		}
		if t.Status != StatusClosed {
			p, err := mailDestination(ctx, tx, in, m, t)
			return p, nil, err
		}
		if slices.Contains(seen, t.ID) { // merged into a ticket that it continued
			return threadRef{}, &ticketLink{t.ID, LinkClosed}, nil
		}
		seen, closed = append(seen, t.ID), t
	}
}

// matchThreadByTag follows "[Ticket #n]" in the subject, which anybody can write: it is
// accepted from a participant, unless the domain disowns the mail, and from the
// organization's own addresses with a proof. Otherwise the ticket is only linked
// to.
func (s *Service) matchThreadByTag(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail) (threadRef, *ticketLink, error) {
	if m.Mail.TicketTag <= 0 {
		return threadRef{}, nil, nil
	}
	t, err := s.TicketByNumber(ctx, tx, in.OrganizationID, m.Mail.TicketTag)
	if problem.Of(err) == problem.NotFound {
		return threadRef{}, nil, nil
	}
	if err != nil {
		return threadRef{}, nil, fmt.Errorf("load ticket: %w", err)
	}
	takesPart := false
	if !m.Mail.Proof.Failed() {
		if takesPart, err = s.isParticipant(ctx, tx, in, m, &t); err != nil {
			return threadRef{}, nil, err
		}
	}
	if !takesPart && t.MergedIntoID == "" {
		return threadRef{}, &ticketLink{t.ID, LinkTicketTag}, nil
	}
	if t, err = lockSurvivor(ctx, tx, in.OrganizationID, t.ID); errors.Is(err, db.ErrNoRows) {
		return threadRef{}, nil, nil
	} else if err != nil {
		return threadRef{}, nil, fmt.Errorf("load ticket: %w", err)
	}
	if !takesPart && !m.Mail.Proof.Failed() { // of the merged ticket
		if takesPart, err = s.isParticipant(ctx, tx, in, m, &t); err != nil {
			return threadRef{}, nil, err
		}
	}
	if !takesPart {
		return threadRef{}, &ticketLink{t.ID, LinkTicketTag}, nil
	}
	p, err := mailDestination(ctx, tx, in, m, t)
	return p, nil, err
}

// mailDestination returns the destination of a mail that names a ticket but no
// message: the conversation of its channel, or a new one.
func mailDestination(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, t Ticket) (threadRef, error) {
	p := threadRef{ticket: t}
	err := tx.QueryRow(ctx, `SELECT id FROM conversations WHERE ticket_id = $1 AND channel = $2 AND NOT forwarded
		ORDER BY CASE WHEN connection_id = $3 THEN 0 ELSE 1 END, id LIMIT 1`, t.ID, in.Channel, in.ConnectionID).Scan(&p.conversationID)
	if errors.Is(err, db.ErrNoRows) {
		// The ticket started on another channel.
		p.newConversation = &Conversation{
			ID: newID(), TicketID: t.ID, ConnectionID: in.ConnectionID, Channel: in.Channel,
			ThreadKey: boundedKey(m.Mail.MessageID), CustomerID: t.Customer.ID, CreatedAt: tx.Now,
		}
		p.conversationID = p.newConversation.ID
	} else if err != nil {
		return threadRef{}, fmt.Errorf("find conversation: %w", err)
	}
	return p, nil
}

// isParticipant reports whether the sender is provably the organization, or the
// ticket's customer or a participant.
func (s *Service) isParticipant(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, t *Ticket) (bool, error) {
	if m.isAuthentic() {
		return true, nil
	}
	key := emailKey(m.sender.Email)
	if key == "" {
		return false, nil
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT
			(SELECT count(*) FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id = $3) +
			(SELECT count(*) FROM participants WHERE ticket_id = $4 AND email = $1 AND role <> $5)`,
		key, in.OrganizationID, t.Customer.ID, t.ID, roleHidden).Scan(&n); err != nil {
		return false, fmt.Errorf("look up participants: %w", err)
	}
	return n > 0, nil
}

// isCustomerAddress reports whether an e-mail address is one of the ticket's customer.
func isCustomerAddress(ctx context.Context, q db.Querier, in *InboundEvent, t *Ticket, address string) (known bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM contact_points WHERE value = $1 AND scope = $2 AND customer_id = $3)",
		emailKey(address), in.OrganizationID, t.Customer.ID).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("look up customer's address: %w", err)
	}
	return known, nil
}

// isHidden reports whether an e-mail address has [roleHidden] in a ticket.
func isHidden(ctx context.Context, q db.Querier, t *Ticket, address string) (hidden bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM participants WHERE ticket_id = $1 AND email = $2 AND role = $3)",
		t.ID, emailKey(address), roleHidden).Scan(&hidden)
	if err != nil {
		return false, fmt.Errorf("look up participants: %w", err)
	}
	return hidden, nil
}

// participant takes part in a ticket beside its customer.
type participant struct {
	email, name, role string
	unconfirmed       bool // named by an unproven mail; gets no copies
}

// roleCustomer is the role of a merged ticket's customer. roleHidden is that of addresses which got a
// mail of the ticket without taking part in it, by a blind copy or a forward, and of those who answered
// a forward: erasure finds them by it. They are unconfirmed, and not on offer for copies, until an
// agent or a proven mail names them. The other roles are sender and recipient.
const (
	roleCustomer = "customer"
	roleHidden   = "hidden"
)

// hiddenParticipants returns participants for addresses.
func hiddenParticipants(list ...Address) []participant {
	var hidden []participant
	for _, a := range list {
		if key := emailKey(a.Email); key != "" {
			hidden = append(hidden, participant{email: key, role: roleHidden, unconfirmed: true})
		}
	}
	return hidden
}

// recipients returns the participants that a mail adds.
func (m *inboundMail) recipients(customer event.Customer) []participant {
	var list []participant
	for _, p := range m.others {
		if key := emailKey(p.Email); key != emailKey(customer.Email) {
			list = append(list, participant{email: key, name: line(p.Name, maxName), role: "recipient"})
		}
	}
	return list
}

func insertParticipants(ctx context.Context, tx *db.Tx, p *threadRef, list []participant) error {
	for _, who := range list {
		if _, err := insertParticipant(ctx, tx, p, who); err != nil {
			return err
		}
	}
	return nil
}

// insertParticipant adds a participant and reports whether they are new. In a
// merged conversation they also join its home ticket; a participant of the ticket
// itself stays one after an unmerge.
func insertParticipant(ctx context.Context, tx *db.Tx, p *threadRef, who participant) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO participants (ticket_id, email, name, role, created_at, home_id, unconfirmed)
		VALUES ($1, $2, $3, $4, $5, (SELECT home_id FROM conversations WHERE ticket_id = $1 AND id = $6), $7)
		ON CONFLICT (ticket_id, email) DO UPDATE SET home_id = NULL WHERE participants.home_id IS NOT NULL AND excluded.home_id IS NULL`,
		p.ticket.ID, who.email, who.name, who.role, tx.Now.UnixMicro(), p.conversationID, who.unconfirmed)
	if err == nil && !p.ticket.movedAt.IsZero() {
		_, err = tx.Exec(ctx, `INSERT INTO participants (ticket_id, email, name, role, created_at, unconfirmed)
			SELECT home_id, $3, $4, $5, CAST($6 AS BIGINT), CAST($7 AS BOOLEAN) FROM conversations WHERE ticket_id = $1 AND id = $2 AND home_id IS NOT NULL
			ON CONFLICT DO NOTHING`,
			p.ticket.ID, p.conversationID, who.email, who.name, who.role, tx.Now.UnixMicro(), who.unconfirmed)
	}
	if err == nil && !who.unconfirmed {
		_, err = tx.Exec(ctx, `UPDATE participants SET unconfirmed = FALSE, role = CASE WHEN role = $4 THEN $5 ELSE role END WHERE email = $3 AND unconfirmed
			AND (ticket_id = $1 OR ticket_id = (SELECT home_id FROM conversations WHERE ticket_id = $1 AND id = $2))`,
			p.ticket.ID, p.conversationID, who.email, roleHidden, who.role)
	}
	if err != nil {
		return false, fmt.Errorf("write participant: %w", err)
	}
	return n == 1, nil
}

// addMailParticipants adds a mail's sender and recipients to the ticket it is
// appended to, and marks a new sender. A Reply-To with the customer's address does
// not make its sender the customer. Unproven participants get no copies until an
// agent selects them.
func (s *Service) addMailParticipants(ctx context.Context, tx *db.Tx, m *inboundMail, e *unsavedMessage, p *threadRef) error {
	tagged := e.PlacedBy == RuleTicketTag
	e.participants = m.recipients(p.ticket.Customer)
	for i := range e.participants {
		e.participants[i].unconfirmed = tagged || m.hidden || m.beside || !m.Mail.Proof.Covers("to", "cc")
	}
	if m.own || m.isAuthentic() {
		return nil
	}
	from, customer := emailKey(m.From.Email), emailKey(p.ticket.Customer.Email)
	for i, who := range []channel.Party{m.From, m.sender} {
		key := emailKey(who.Email)
		switch {
		case key == "", key == customer:
			continue
		case i == 0 && e.customer.ID == p.ticket.Customer.ID: // by another address
			continue
		case i == 1 && key == from:
			continue
		}
		fresh, err := insertParticipant(ctx, tx, p, participant{
			email: key, name: line(who.Name, maxName), role: "sender", unconfirmed: tagged || m.hidden || m.isAgent || !m.Mail.Proof.Proven(),
		})
		if err != nil {
			return err
		}
		e.Details.NewParticipant = e.Details.NewParticipant || fresh
	}
	return nil
}

// startMail starts a ticket with a mail.
func (s *Service) startMail(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, link *ticketLink) (Result, error) {
	e.PlacedBy = RuleNone
	e.participants = m.recipients(e.customer.Customer)
	var p threadRef
	if link != nil {
		p.ticket.LinkedTicketID, p.ticket.LinkReason = link.ticketID, link.reason
	}
	title := line(m.Subject, maxSubject)
	if title == "" {
		title = "(no subject)"
	}
	return s.startTicket(ctx, tx, in, &p, Conversation{ThreadKey: boundedKey(m.Mail.MessageID)}, title, e)
}

// intakeOutboundCopy stores a mail that an agent sent with another program: in its
// ticket, or in a new one for its first recipient. Nothing is sent.
func (s *Service) intakeOutboundCopy(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p threadRef, link *ticketLink) (Result, error) {
	agent := m.agent
	if !m.isAgent {
		agent = event.Person{Name: line(m.sender.Name, maxName)}
	}
	e.byAgent(agent)
	if p.ticket.ID != "" {
		e.customer = customerRef{Customer: p.ticket.Customer}
		e.participants = m.recipients(p.ticket.Customer)
		return s.appendMessage(ctx, tx, in, &p, e)
	}
	k, err := s.findOrCreateCustomer(ctx, tx, in, m.others[0])
	if err != nil {
		return Result{}, err
	}
	e.customer = k
	return s.startMail(ctx, tx, in, m, e, link)
}

// intakeAutoReply stores an automatic reply, collapsed, in the ticket that it answers. It
// creates no customer.
func (s *Service) intakeAutoReply(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, p threadRef) (Result, error) {
	e.Details.Collapsed = true
	e.Author = event.Author{Type: AuthorCustomer, Name: line(m.From.Name, maxName)}
	if e.Author.Name == "" {
		e.Author.Name = line(m.From.Email, maxName)
	}
	k, err := findCustomer(ctx, tx, emailKey(m.From.Email), in.OrganizationID)
	switch {
	case err == nil:
		e.customer, e.Author.ID = k, k.ID
	case !errors.Is(err, db.ErrNoRows):
		return Result{}, fmt.Errorf("look up sender: %w", err)
	}
	return s.appendNote(ctx, tx, in, &p, e)
}

// intakeBounce applies a bounce to the outbound message that it returns.
func (s *Service) intakeBounce(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage) (Result, error) {
	r := m.Mail.Receipt
	if r == nil {
		return e.recorded("a bounce without a delivery report"), nil
	}
	backwards := slices.Clone(m.Mail.References)
	slices.Reverse(backwards)
	for _, id := range slices.Concat(r.ExternalIDs, m.Mail.EmbeddedIDs, m.Mail.InReplyTo, backwards) {
		k, ok := m.ids.find(id)
		if !ok || !k.outbound {
			continue
		}
		applied, err := s.applyReceipt(ctx, tx, in, k, r, e)
		applied.Class, applied.ClassRule = e.Details.Class, e.Details.ClassRule
		return applied, err
	}
	return e.recorded("the returned message is unknown"), nil
}
