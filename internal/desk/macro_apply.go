package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// MacroApplication describes the use of a macro on a ticket.
type MacroApplication struct {
	MacroID  string
	TicketID string
	ViewerID string // the member whose own macros are in reach; empty: shared ones only
	// AgentID is the member of the variables agent.… and of [AssigneeMe]; empty: none.
	AgentID          string
	OrganizationName string
	// Ride has the values of the variables ride.…, by their whole names; nil: none. The fleet is
	// not known here.
	Ride           map[string]string
	By             Actor
	ConversationID string // of the reply; see [Reply]
	// WithoutReply and WithoutNote leave out what the caller has written itself.
	WithoutReply, WithoutNote bool
	Status                    Status // instead of the macro's; empty: the macro's
}

// RenderedMacro is a macro as of a ticket.
type RenderedMacro struct {
	Macro Macro
	// Text and Note have the values of variables. Those in Missing have none, and stand
	// there as written.
	Text, Note string
	Missing    []string
	// Changes are the fields of the ticket that change: status, priority, assignee_id and
	// tags.
	Changes map[string]event.Change

	update Update
}

// AppliedMacro is the result of a macro.
type AppliedMacro struct {
	RenderedMacro
	Before, After Ticket // without the effects of the messages
	ReplyID       string // of the message; empty: none
	NoteID        string // likewise
}

// PreviewMacro returns what [Service.ApplyMacroTx] would do, and changes nothing.
// Errors: NotFound for an unknown macro or ticket; Invalid at agent_id; Conflict
// invalid_transition for a merged ticket.
func (s *Service) PreviewMacro(ctx context.Context, q db.Querier, organizationID string, a MacroApplication) (RenderedMacro, error) {
	m, err := s.Macro(ctx, q, organizationID, a.ViewerID, a.MacroID)
	if err != nil {
		return RenderedMacro{}, err
	}
	t, err := s.Ticket(ctx, q, organizationID, a.TicketID)
	if err != nil {
		return RenderedMacro{}, err
	}
	return s.RenderMacro(ctx, q, &m, &t, a)
}

// RenderMacro is [Service.PreviewMacro] for a macro and a ticket at hand; the macro
// need not be stored.
func (s *Service) RenderMacro(ctx context.Context, q db.Querier, m *Macro, t *Ticket, a MacroApplication) (RenderedMacro, error) {
	r := RenderedMacro{Macro: *m, Missing: []string{}}
	if t.MergedIntoID != "" {
		return r, mergedError(t)
	}
	var agent event.Person
	if a.AgentID != "" {
		p, ok, err := s.directory.Agent(ctx, q, t.OrganizationID, a.AgentID)
		if err != nil {
			return r, fmt.Errorf("look up agent: %w", err)
		}
		if !ok {
			var v problem.Validation
			v.AddCode("not_found", "agent_id", "must be a member of the organization")
			return r, v.Err()
		}
		agent = p
	}
	values := macroValues(t, agent, &a)
	if !a.WithoutReply {
		r.Text, r.Missing = renderMacro(m.Text, values, r.Missing)
	}
	if !a.WithoutNote {
		r.Note, r.Missing = renderMacro(m.Note, values, r.Missing)
	}
	return r, r.plan(t, a)
}

// plan sets the changes of t.
func (r *RenderedMacro) plan(t *Ticket, a MacroApplication) error {
	r.Changes = make(map[string]event.Change)
	actions := r.Macro.Actions
	if a.Status != "" {
		actions.Status = a.Status
	}
	if actions.Status != "" && actions.Status != t.Status {
		r.update.Status = &actions.Status
		r.Changes["status"] = event.Change{From: string(t.Status), To: string(actions.Status)}
	}
	if actions.Priority != "" && actions.Priority != t.Priority {
		r.update.Priority = &actions.Priority
		r.Changes["priority"] = event.Change{From: string(t.Priority), To: string(actions.Priority)}
	}
	assignee := actions.Assignee
	switch assignee {
	case "":
		assignee = t.AssigneeID
	case AssigneeNone:
		assignee = ""
	case AssigneeMe:
		if assignee = a.AgentID; assignee == "" {
			var v problem.Validation
			v.AddCode("required", "agent_id", "must be given: the macro assigns the ticket to the member who applies it")
			return v.Err()
		}
	}
	if assignee != t.AssigneeID {
		r.update.AssigneeID = &assignee
		r.Changes["assignee_id"] = event.Change{From: orNil(t.AssigneeID), To: orNil(assignee)}
	}
	tags := slices.DeleteFunc(slices.Clone(t.Tags), func(tag string) bool { return slices.Contains(actions.RemoveTags, tag) })
	if tags = tagSet(append(tags, actions.AddTags...)); !slices.Equal(tags, t.Tags) {
		r.update.Tags = &tags
		r.Changes["tags"] = event.Change{From: append([]string{}, t.Tags...), To: tags}
	}
	return nil
}

// ApplyMacroTx sends the reply of a macro, adds its note, changes the ticket and counts
// the use, in the caller's transaction. A draft of a note stays. Errors: those of
// [Service.PreviewMacro], [Service.ReplyTx] and [Service.AddNoteTx]; Precondition for
// variables without a value and a fallback, and for a change that the ticket does not
// permit.
func (s *Service) ApplyMacroTx(ctx context.Context, tx *db.Tx, organizationID string, a MacroApplication) (AppliedMacro, error) {
	t, err := lockTicket(ctx, tx, organizationID, a.TicketID)
	if err != nil {
		return AppliedMacro{}, notFound(err, "ticket")
	}
	m, err := s.Macro(ctx, tx, organizationID, a.ViewerID, a.MacroID)
	if err != nil {
		return AppliedMacro{}, err
	}
	r, err := s.RenderMacro(ctx, tx, &m, &t, a)
	if err != nil {
		return AppliedMacro{}, err
	}
	if len(r.Missing) > 0 {
		return AppliedMacro{}, problem.New(problem.Precondition, "the macro needs %s, which has no value here: add a fallback, such as {{%s|…}}",
			strings.Join(r.Missing, ", "), r.Missing[0])
	}
	out := AppliedMacro{RenderedMacro: r, Before: t}
	content := Content{text: draftText(r.Text), composed: true}
	if !a.WithoutReply {
		if err := s.AttachMacroFilesTx(ctx, tx, organizationID, a.ViewerID, m.ID, m.fileIDs(), &content); err != nil {
			return AppliedMacro{}, err
		}
	}
	if !content.Empty() {
		message, err := s.ReplyTx(ctx, tx, organizationID, t.ID, Reply{By: a.By, Content: content, ConversationID: a.ConversationID})
		if err != nil {
			return AppliedMacro{}, err
		}
		out.ReplyID = message.ID
	}
	if r.Note != "" {
		note, err := s.writeNote(ctx, tx, organizationID, t.ID, a.By, Content{text: safehtml.Clean(r.Note)})
		if err != nil {
			return AppliedMacro{}, err
		}
		out.NoteID = note.ID
	}
	if out.After, err = s.UpdateTx(ctx, tx, organizationID, t.ID, r.update); err != nil {
		return AppliedMacro{}, macroRefused(err)
	}
	if err := tx.Queue(ctx, "UPDATE macros SET uses = uses + 1, used_at = $2 WHERE id = $1", m.ID, tx.Now.UnixMicro()); err != nil {
		return AppliedMacro{}, fmt.Errorf("count use of macro: %w", err)
	}
	return out, nil
}

// macroRefused converts the refusal of a macro's changes: the input that is wrong is
// the macro's, such as an assignee who has left, and not the caller's.
func macroRefused(err error) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Invalid {
		return err
	}
	return problem.New(problem.Precondition, "the macro cannot change this ticket: %s", p.Message).Because(err)
}
