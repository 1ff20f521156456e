package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
)

// maxAnnotations bounds the annotations of a message. Beyond it, the oldest one
// that is neither an edit nor a deletion is dropped.
const maxAnnotations = 200

// annotate stores an annotation with its message. It creates no message, reopens
// nothing and emits no event, except that a ticket named after a deleted message
// gets another subject. An edited message has the text of its latest edit, in
// whichever order edits arrive. A deleted message loses its content for good.
func (s *Service) annotate(ctx context.Context, tx *db.Tx, in *InboundEvent, a *channel.Annotation) (Result, error) {
	t, m, err := s.lockMessageByProviderID(ctx, tx, in, a.ExternalID)
	if errors.Is(err, db.ErrNoRows) {
		return Result{Outcome: Recorded, Reason: "the annotated message is unknown"}, nil
	}
	if err != nil {
		return Result{}, err
	}
	res := Result{Outcome: Annotated, TicketID: t.ID, TicketNumber: t.Number, ConversationID: m.ConversationID, MessageID: m.ID}
	note := Annotation{Kind: a.Kind, Text: clean(a.Text), At: a.At.UTC().Truncate(time.Microsecond)}
	if a.At.IsZero() {
		note.At = in.ReceivedAt
	}
	note.ByID = line(cmp.Or(a.By.ID, a.By.Phone, a.By.Email), maxKey)
	if note.By, err = s.partyName(ctx, tx, in, a.By); err != nil {
		return Result{}, err
	}
	d := &m.Details
	if slices.ContainsFunc(d.Annotations, func(b Annotation) bool {
		return b.Kind == note.Kind && b.ByID == note.ByID && b.At.Equal(note.At) && (b.Text == note.Text || d.Deleted)
	}) {
		res.Outcome = Duplicate
		return res, nil
	}
	if a.Kind == channel.Edited && !d.Deleted && !slices.ContainsFunc(d.Annotations, func(b Annotation) bool { return b.Kind == channel.Edited }) {
		d.OriginalText = m.Text
	}
	i, _ := slices.BinarySearchFunc(d.Annotations, note, func(b, a Annotation) int {
		return cmp.Or(b.At.Compare(a.At), -1) // after equal times
	})
	d.Annotations = slices.Insert(d.Annotations, i, note)
	if len(d.Annotations) > maxAnnotations {
		if i := slices.IndexFunc(d.Annotations, func(b Annotation) bool { return b.Kind != channel.Edited && b.Kind != channel.Deleted }); i >= 0 {
			d.Annotations = slices.Delete(d.Annotations, i, i+1)
		}
	}
	said, original := m.Text, d.OriginalText
	switch a.Kind {
	case channel.Edited:
		if !d.Deleted {
			m.applyLastEdit()
		}
	case channel.Deleted:
		d.Deleted = true
	}
	if d.Deleted {
		m.clearContent()
		if err := s.deleteFiles(ctx, tx, &t, []string{m.ID}); err != nil {
			return Result{}, err
		}
	}
	if err := tx.Queue(ctx, "UPDATE messages SET body = $3, stripped = $4, html = $5, details = $6 WHERE ticket_id = $1 AND id = $2",
		t.ID, m.ID, m.Text, db.Text(m.Stripped), db.Text(m.HTML), db.JSON(m.Details)); err != nil {
		return Result{}, fmt.Errorf("annotate message: %w", err)
	}
	if m.Text != said || d.Deleted { // its files had names
		if err := s.enqueueTicketIndexing(ctx, tx, &t); err != nil {
			return Result{}, err
		}
	}
	if d.Deleted && t.Subject != "" && (t.Subject == title(said) || t.Subject == title(original)) {
		if err := s.applyUpdate(ctx, tx, &t, Update{Subject: new("(deleted message)")}); err != nil {
			return Result{}, err
		}
		return res, clearChanges(ctx, tx, t.ID, "subject")
	}
	if err := tx.Queue(ctx, "UPDATE tickets SET updated_at = $2 WHERE id = $1", t.ID, tx.Now.UnixMicro()); err != nil {
		return Result{}, fmt.Errorf("touch ticket: %w", err)
	}
	return res, nil
}

// applyLastEdit sets the text of the latest edit.
func (m *Message) applyLastEdit() {
	for _, a := range slices.Backward(m.Details.Annotations) {
		if a.Kind == channel.Edited {
			m.Text, m.Stripped, m.HTML = a.Text, "", ""
			return
		}
	}
}

// clearContent removes the text in all its forms, the subject and the metadata.
func (m *Message) clearContent() {
	m.Text, m.Stripped, m.HTML = "", "", ""
	d := &m.Details
	d.OriginalText, d.Subject, d.Metadata = "", "", nil
	for i := range d.Annotations {
		if d.Annotations[i].Kind == channel.Edited {
			d.Annotations[i].Text = ""
		}
	}
}

// partyName returns a display name for the author of an annotation: the given name,
// the customer's, or the address.
func (s *Service) partyName(ctx context.Context, q db.Querier, in *InboundEvent, p channel.Party) (string, error) {
	if p.Name != "" {
		return line(p.Name, maxName), nil
	}
	for _, pt := range in.contactPoints(p) {
		k, err := findCustomer(ctx, q, pt.value, pt.scope)
		if err == nil && k.Name != "" {
			return k.Name, nil
		}
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return "", fmt.Errorf("look up customer: %w", err)
		}
	}
	return line(cmp.Or(p.Phone, p.Email, p.ID), maxName), nil
}

// lockMessageByProviderID returns the message with a provider's id on the
// connection, and its ticket, locked; [db.ErrNoRows] if there is none.
func (s *Service) lockMessageByProviderID(ctx context.Context, tx *db.Tx, in *InboundEvent, id string) (Ticket, Message, error) {
	var last messageRef
	for {
		ids, err := findMessageIDs(ctx, tx, []string{in.scope()}, []string{id})
		if err != nil {
			return Ticket{}, Message{}, err
		}
		k, ok := ids.find(id)
		if !ok || k == last {
			return Ticket{}, Message{}, db.ErrNoRows
		}
		t, err := lockTicket(ctx, tx, in.OrganizationID, k.ticketID)
		if err == nil {
			var m Message
			m, err = db.One(ctx, tx, scanMessage, "SELECT "+messageColumns+" FROM messages WHERE ticket_id = $1 AND id = $2", t.ID, k.messageID)
			if err == nil {
				return t, m, nil
			}
		}
		if !errors.Is(err, db.ErrNoRows) {
			return Ticket{}, Message{}, fmt.Errorf("load message: %w", err)
		}
		last = k // moved or deleted meanwhile
	}
}
