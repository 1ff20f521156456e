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
	text := answerText(m.Message)
	sent, err := s.sendAnswer(ctx, tx, in, m, &t, text)
	if reason, refused := refusedBecause(err); refused {
		res, err := s.noteAnswer(ctx, tx, in, m, e, &t, text, reason)
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

// sendAnswer writes an answer as a reply and queues it. A problem has changed nothing.
func (s *Service) sendAnswer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, t *Ticket, text string) (Message, error) {
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
	by := Actor{ID: m.agent.ID, Name: m.agent.Name}
	return s.sendReply(ctx, tx, t, "", func(c *Conversation) *unsavedMessage {
		reply := s.newOutboundMessage(newID(), tx.Now, t, c, &w)
		reply.Author, reply.quota = by.author(), quota.Counted
		return reply
	})
}

// noteAnswer stores an answer that cannot be sent as a note of the member.
func (s *Service) noteAnswer(ctx context.Context, tx *db.Tx, in *InboundEvent, m *inboundMail, e *unsavedMessage, t *Ticket, text, reason string) (Result, error) {
	e.Author = event.Author{Type: AuthorAgent, ID: m.agent.ID, Name: m.agent.Name}
	e.Text = fmt.Sprintf("This answer was not sent to the customer: %s.\n\n%s", strings.TrimSuffix(reason, "."), text)
	e.Stripped, e.HTML, e.PlacedBy = "", "", RuleInReplyTo
	return s.appendNote(ctx, tx, in, &threadRef{ticket: *t}, e)
}

// answerText returns what a member wrote above a notice.
func answerText(m *channel.Message) string {
	text, _, cut := strings.Cut(clean(cmp.Or(m.Stripped, m.Text)), answerLine)
	if cut { // a quote without marks that the adapter knows
		text = strings.TrimRight(text, "> \t")
	}
	return strings.TrimSpace(text)
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
