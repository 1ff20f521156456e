package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/mailquote"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// answeredNotice returns the notice that a mail names in In-Reply-To or References, if this
// deployment signed it.
func (s *Service) answeredNotice(in *InboundEvent, m *inboundMail) (noticeRef, bool) {
	backwards := slices.Clone(m.Mail.References)
	slices.Reverse(backwards)
	for _, id := range slices.Concat(m.Mail.InReplyTo, backwards) {
		if r, ok := s.noticeOf(in.OrganizationID, id); ok {
			return r, true
		}
	}
	return noticeRef{}, false
}

// answerRefusal returns why a mail that names a notice is no answer of its member; empty: it is
// one. Who has seen the notice knows its id, so the sender must be proven, and the proof must
// include the headers that name the notice and the mail.
func (m *inboundMail) answerRefusal(r noticeRef) string {
	switch {
	case !m.isAgent || m.agent.ID != r.userID:
		return "it names a notice of somebody else than its sender"
	case !m.Mail.Proof.Covers(placementHeaders...):
		return "it answers a notice, but nothing proves its sender"
	case m.Mail.MessageID == "":
		return "it answers a notice, but has no Message-ID"
	}
	return ""
}

// intakeAnswer sends a member's answer to a notice to the customer, as the member's reply in the
// ticket. It reports whether it has processed the mail; refusal says why a mail that names a notice
// is no answer. An answer that cannot be sent becomes a note. The Message-ID of the answer is
// stored with the reply, so a repeated answer is a duplicate.
func (s *Service) intakeAnswer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage) (res Result, done bool, refusal string, err error) {
	r, ok := s.answeredNotice(in, m)
	if !ok {
		return Result{}, false, "", nil
	}
	if refusal = m.answerRefusal(r); refusal != "" {
		return Result{}, false, refusal, nil
	}
	if k, known := m.ids.find(m.Mail.MessageID); known {
		return e.duplicateOf(k), true, "", nil
	}
	t, err := lockSurvivor(ctx, tx, in.OrganizationID, r.ticketID)
	if isNotFound(notFound(err, "ticket")) {
		return Result{}, false, "it answers a notice of a ticket that was deleted", nil
	}
	if err != nil {
		return Result{}, false, "", fmt.Errorf("load ticket: %w", err)
	}
	e.Details.ClassRule = "in-reply-to: a notice to its sender"
	sent, err := s.sendAnswer(ctx, tx, in, m, &t, r)
	if reason, refused := refusedBecause(err); refused {
		res, err := s.noteAnswer(ctx, tx, in, m, e, &t, reason)
		return res, true, "", err
	}
	if err != nil {
		return Result{}, false, "", err
	}
	if err := insertID(ctx, tx, in.OrganizationID, m.Mail.MessageID, &sent); err != nil {
		return Result{}, false, "", err
	}
	return Result{
		Outcome: Appended, Class: e.Details.Class, ClassRule: e.Details.ClassRule, PlacedBy: RuleInReplyTo,
		TicketID: t.ID, TicketNumber: t.Number, ConversationID: sent.ConversationID, MessageID: sent.ID,
	}, true, "", nil
}

// answerPlace returns the conversation of the message that a notice is about, or the only one of the
// ticket, and the message; empty: none. Problem: the message has left the ticket, or there are
// several conversations.
func answerPlace(ctx context.Context, tx *db.Tx, t *Ticket, r noticeRef) (conversationID, messageID string, err error) {
	err = tx.QueryRow(ctx, "SELECT message_id FROM notices WHERE id = $1 AND user_id = $2 AND organization_id = $3",
		r.noticeID, r.userID, t.OrganizationID).Scan(db.IntoText(&messageID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", "", fmt.Errorf("find notice: %w", err)
	}
	if messageID != "" {
		err := tx.QueryRow(ctx, "SELECT conversation_id FROM messages WHERE ticket_id = $1 AND id = $2", t.ID, messageID).Scan(&conversationID)
		if errors.Is(err, db.ErrNoRows) {
			return "", "", problem.New(problem.Precondition, "the message of the notice is in another ticket")
		}
		if err != nil {
			return "", "", fmt.Errorf("find the message of a notice: %w", err)
		}
	}
	if conversationID != "" {
		return conversationID, messageID, nil
	}
	conversations, err := replyCandidates(ctx, tx, t, "")
	if err != nil {
		return "", "", fmt.Errorf("find conversations: %w", err)
	}
	if len(conversations) != 1 {
		return "", "", problem.New(problem.Precondition, "the ticket has %d conversations", len(conversations))
	}
	return conversations[0].ID, messageID, nil
}

// sendAnswer writes an answer as a reply to what its notice is about, and queues it. A problem has
// changed nothing.
func (s *Service) sendAnswer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, t *Ticket, r noticeRef) (Message, error) {
	by := Actor{ID: m.agent.ID, Name: m.agent.Name}
	conversationID, seen, err := answerPlace(ctx, tx, t, r)
	if err != nil {
		return Message{}, err
	}
	if seen != "" {
		if err := checkCrossing(ctx, tx, t, by, seen); err != nil {
			return Message{}, err
		}
	}
	text, ok := answerText(m.Message)
	if !ok {
		return Message{}, problem.New(problem.Precondition, "its text stands within or below the quoted notice")
	}
	w := Content{text: text}
	var size int64
	for i, a := range m.Attachments {
		if a.Inline {
			continue // pictures of a signature
		}
		if i >= len(in.Files) || in.Files[i].Key == "" {
			return Message{}, problem.New(problem.Precondition, "the file %q is not there yet", line(a.Name, 255))
		}
		w.attachments, w.files = append(w.attachments, a), append(w.files, in.Files[i])
		size += in.Files[i].Size
	}
	if w.Empty() {
		return Message{}, problem.New(problem.Precondition, "it has no text")
	}
	// A refusal at the end of the transaction would repeat the event for ever.
	if err := s.quotas.Check(ctx, in.OrganizationID, size, false); err != nil {
		return Message{}, err
	}
	return s.sendReply(ctx, tx, t, conversationID, func(c *Conversation) *unsavedMessage {
		reply := s.newOutboundMessage(newID(), tx.Now, t, c, &w)
		reply.Author, reply.quota = by.author(), quota.Counted
		return reply
	})
}

// noteAnswer stores an answer that cannot be sent as a note of the member.
func (s *Service) noteAnswer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, t *Ticket, reason string) (Result, error) {
	e.Author = event.Author{Type: AuthorAgent, ID: m.agent.ID, Name: m.agent.Name}
	e.Text = fmt.Sprintf("This answer was not sent to the customer: %s.\n\n%s", strings.TrimSuffix(reason, "."), clean(m.Text))
	e.Stripped, e.HTML, e.PlacedBy = "", "", RuleInReplyTo
	return s.appendNote(ctx, tx, in, &threadRef{ticket: *t}, e)
}

// answerText returns what a member wrote above a notice; false if it cannot be told from the quoted
// notice, which may have internal notes.
func answerText(m *channel.Message) (string, bool) {
	text := clean(m.Text)
	above, below, found := strings.Cut(text, answerLine)
	switch {
	case m.Stripped != "" && m.Stripped != m.Text:
		above, _, _ = strings.Cut(clean(m.Stripped), answerLine)
	case !found:
		above = text
		if mailquote.HasQuote(text) {
			return "", false
		}
	default:
		lines := strings.Split(above, "\n")
		if quoted := strings.HasPrefix(strings.TrimSpace(lines[len(lines)-1]), ">"); quoted {
			for line := range strings.SplitSeq(below, "\n") {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ">") {
					return "", false // an answer below or between
				}
			}
		}
		// The line that introduces the quote is no answer.
		lines = lines[:len(lines)-1]
		stripped := mailquote.Strip(strings.Join(lines, "\n")+"\n> "+answerLine, m.Subject)
		if strings.Contains(stripped, answerLine) {
			return "", false
		}
		above = stripped
	}
	above = strings.TrimSpace(strings.TrimRight(above, "> \t\r\n"))
	return above, above != "" || len(m.Attachments) > 0
}

// refusedBecause returns the reason for which a reply was refused, and false for errors that a
// repetition may remove.
func refusedBecause(err error) (string, bool) {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || !slices.Contains([]problem.Kind{problem.Invalid, problem.Conflict, problem.Precondition, problem.TooLarge, problem.RateLimited}, p.Kind) {
		return "", false
	}
	return p.Message, true
}
