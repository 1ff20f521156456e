package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Status is the state of a ticket. Agents may set any; the package comment
// describes the effect of customers' messages.
type Status string

// The statuses.
const (
	StatusOpen     Status = "open"
	StatusPending  Status = "pending" // waits for the customer
	StatusOnHold   Status = "on_hold" // waits for a third party
	StatusResolved Status = "resolved"
	StatusClosed   Status = "closed" // follows resolved after Config.CloseAfter
)

// Statuses lists all statuses, in order.
var Statuses = [...]Status{StatusOpen, StatusPending, StatusOnHold, StatusResolved, StatusClosed}

// Priority is how urgent a ticket is.
type Priority string

// The priorities.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
	PriorityUrgent Priority = "urgent"
)

// Priorities lists all priorities, in order.
var Priorities = [...]Priority{PriorityLow, PriorityNormal, PriorityHigh, PriorityUrgent}

// The reasons of a link between tickets.
const (
	LinkClosed    = "closed"     // it continues a ticket that was closed
	LinkSplit     = "split"      // its messages were split off that ticket
	LinkTicketTag = "ticket_tag" // its subject names a ticket of which the sender is no participant
)

// Ticket is a request of a customer and all that follows from it.
type Ticket struct {
	ID               string         `json:"id"`
	OrganizationID   string         `json:"organization_id"`
	Number           int64          `json:"number"` // per organization, from 1
	Subject          string         `json:"subject"`
	Status           Status         `json:"status"`
	Priority         Priority       `json:"priority"`
	Channel          string         `json:"channel"` // of the first message
	Customer         event.Customer `json:"customer"`
	AssigneeID       string         `json:"assignee_id"` // empty: unassigned
	Tags             []string       `json:"tags"`
	LinkedTicketID   string         `json:"linked_ticket_id"` // may have been deleted since
	LinkReason       string         `json:"link_reason"`
	CreatedAt        time.Time      `json:"created_at"`
	UpdatedAt        time.Time      `json:"updated_at"`
	FirstRespondedAt time.Time      `json:"first_responded_at,omitzero"`
	ResolvedAt       time.Time      `json:"resolved_at,omitzero"`
	SLA              []SLA          `json:"sla"`
	// DueAt is the earliest due time of the unmet SLA targets, breached ones included;
	// zero: none, or paused.
	DueAt        time.Time         `json:"-"`
	ExternalID   string            `json:"external_id"` // set by the API client
	Metadata     map[string]string `json:"metadata"`
	MergedIntoID string            `json:"merged_into_id"` // the survivor
	MergedAt     time.Time         `json:"merged_at,omitzero"`

	closedAt time.Time // zero also if closed before this was stored
	snoozed  Snooze    // read it by Snoozed
	movedAt  time.Time // when messages last moved from or to another ticket
	heardAt  time.Time // mark for readers; see setHeardAt
	clocks   []clock   // the stored form of SLA
}

// Bounds of input.
const (
	maxSubject = 500
	maxTags    = 50
	maxTag     = 50
	maxPage    = 200
)

const (
	ticketColumns = `t.id, t.organization_id, t.number, t.subject, t.status, t.priority, t.channel,
		t.assignee_id, t.tags, t.linked_ticket_id, t.link_reason,
		t.created_at, t.updated_at, t.first_responded_at, t.resolved_at, t.sla,
		t.external_id, t.metadata, t.merged_into_id, t.merged_at, t.moved_at, t.closed_at, coalesce(t.heard_at, t.created_at), t.due_at, t.snoozed_until, u.id, u.name, u.email, u.phone`
	selectTicket = "SELECT " + ticketColumns + " FROM tickets t JOIN customers u ON u.id = t.customer_id "
)

// ticketFields returns the destinations of ticketColumns, followed by more.
func ticketFields(t *Ticket, more ...any) []any {
	return append([]any{
		&t.ID, &t.OrganizationID, &t.Number, &t.Subject, &t.Status, &t.Priority, &t.Channel,
		db.IntoText(&t.AssigneeID), db.IntoJSON(&t.Tags), db.IntoText(&t.LinkedTicketID), db.IntoText(&t.LinkReason),
		db.IntoTime(&t.CreatedAt), db.IntoTime(&t.UpdatedAt), db.IntoTime(&t.FirstRespondedAt), db.IntoTime(&t.ResolvedAt), db.IntoJSON(&t.clocks),
		db.IntoText(&t.ExternalID), db.IntoJSON(&t.Metadata), db.IntoText(&t.MergedIntoID), db.IntoTime(&t.MergedAt), db.IntoTime(&t.movedAt), db.IntoTime(&t.closedAt),
		db.IntoTime(&t.heardAt), db.IntoTime(&t.DueAt), &t.snoozed,
		&t.Customer.ID, &t.Customer.Name, &t.Customer.Email, &t.Customer.Phone,
	}, more...)
}

func scanTicket(row db.Row) (Ticket, error) {
	var t Ticket
	err := row.Scan(ticketFields(&t)...)
	t.showClocks()
	return t, err
}

// Ticket returns a ticket by id, or a NotFound problem.
func (s *Service) Ticket(ctx context.Context, q db.Querier, organizationID, id string) (Ticket, error) {
	t, err := db.One(ctx, q, scanTicket, selectTicket+"WHERE t.id = $1 AND t.organization_id = $2", id, organizationID)
	return t, notFound(err, "ticket")
}

// TicketByNumber returns a ticket by its number, or a NotFound problem.
func (s *Service) TicketByNumber(ctx context.Context, q db.Querier, organizationID string, number int64) (Ticket, error) {
	t, err := db.One(ctx, q, scanTicket, selectTicket+"WHERE t.organization_id = $1 AND t.number = $2", organizationID, number)
	return t, notFound(err, "ticket")
}

// lockTicket returns a ticket, locked until the transaction ends.
func lockTicket(ctx context.Context, tx *db.Tx, organizationID, id string) (Ticket, error) {
	return db.One(ctx, tx, scanTicket, selectTicket+"WHERE t.id = $1 AND t.organization_id = $2 FOR UPDATE OF t", id, organizationID)
}

func notFound(err error, kind string) error {
	if errors.Is(err, db.ErrNoRows) {
		return problem.New(problem.NotFound, "there is no such %s", kind)
	}
	return err
}

func isNotFound(err error) bool { return err != nil && problem.Of(err) == problem.NotFound }

// insertTicket numbers t, starts its clocks and writes it. The number is taken
// last, since on PostgreSQL the organization's other new tickets wait from here on;
// the creation time is taken with it, so that numbers and times have the same order
// (lists rely on it). spoken reports that an agent started the ticket.
func (s *Service) insertTicket(ctx context.Context, tx *db.Tx, t *Ticket, spoken bool) error {
	var policyID string
	if err := tx.QueryRowInOrder(ctx, t.OrganizationID, `INSERT INTO ticket_numbers (organization_id, last, last_at) VALUES ($1, 1, $3)
		ON CONFLICT (organization_id) DO UPDATE SET last = ticket_numbers.last + 1,
			last_at = CASE WHEN ticket_numbers.last_at < excluded.last_at THEN excluded.last_at ELSE ticket_numbers.last_at END
		RETURNING last, last_at, (SELECT p.id FROM sla_policies p WHERE p.organization_id = $1 AND p.priority = $2 AND p.replaced_at IS NULL)`,
		t.OrganizationID, string(t.Priority), tx.Now.UnixMicro()).Scan(&t.Number, db.IntoTime(&t.CreatedAt), db.IntoText(&policyID)); err != nil {
		return fmt.Errorf("number ticket: %w", err)
	}
	t.UpdatedAt, t.heardAt = t.CreatedAt, t.CreatedAt
	if policyID != "" {
		if err := s.startClocks(ctx, tx, t, policyID, spoken); err != nil {
			return err
		}
	}
	const insert = `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel,
			customer_id, linked_ticket_id, link_reason, created_at, updated_at, sla,
			assignee_id, tags, first_responded_at, external_id, metadata, moved_at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, $14, $15, $16, $17, $18, $19)`
	args := []any{
		t.ID, t.OrganizationID, t.Number, t.Subject, string(t.Status), string(t.Priority), t.Channel,
		t.Customer.ID, db.Text(t.LinkedTicketID), db.Text(t.LinkReason), t.CreatedAt.UnixMicro(), t.clocksJSON(),
		db.Text(t.AssigneeID), t.tagsJSON(), db.Time(t.FirstRespondedAt), db.Text(t.ExternalID), metadataJSON(t.Metadata), db.Time(t.movedAt), db.Time(t.DueAt),
	}
	if t.ExternalID == "" {
		if err := tx.Queue(ctx, insert, args...); err != nil {
			return fmt.Errorf("write ticket: %w", err)
		}
	} else { // which may exist already
		n, err := tx.Exec(ctx, insert+" ON CONFLICT DO NOTHING", args...)
		if err != nil {
			return fmt.Errorf("write ticket: %w", err)
		}
		if n == 0 {
			return externalIDTaken("ticket")
		}
	}
	if err := insertTags(ctx, tx, t, t.Tags); err != nil {
		return err
	}
	return nil
}

// tagsJSON is the stored form of t's tags.
func (t *Ticket) tagsJSON() any {
	if len(t.Tags) == 0 {
		return nil
	}
	return db.JSON(t.Tags)
}

// Update describes a change of a ticket; nil fields stay.
type Update struct {
	Subject    *string
	Status     *Status
	Priority   *Priority
	AssigneeID *string // a member of the organization; empty: unassign
	Tags       *[]string
	ExternalID *string // unique among the organization's tickets; empty: none
	Metadata   MetadataUpdate
	// Snooze changes when the ticket opens again by itself. An open ticket goes on hold for a
	// time, and becomes pending for an answer, unless Status is one of the two. The zero value
	// opens a snoozed ticket.
	Snooze *Snooze
}

// Check implements [problem.Checker].
func (u Update) Check(v *problem.Validation) {
	if u.Subject != nil {
		v.Length("subject", *u.Subject, 1, maxSubject)
	}
	if u.Status != nil {
		checkStatus(v, *u.Status)
	}
	if u.Priority != nil {
		checkPriority(v, *u.Priority)
	}
	if u.Tags != nil {
		checkTags(v, *u.Tags)
	}
	if u.ExternalID != nil {
		checkExternalID(v, *u.ExternalID)
	}
	u.Metadata.check(v)
}

func checkTags(v *problem.Validation, tags []string) {
	if len(tags) > maxTags {
		v.AddCode("too_long", "tags", "must have at most %d values", maxTags)
	}
	for i, tag := range tags {
		v.Length("tags."+strconv.Itoa(i), strings.TrimSpace(tag), 1, maxTag)
	}
}

func checkPriority(v *problem.Validation, p Priority) {
	if !slices.Contains(Priorities[:], p) {
		v.Add("priority", "must be one of low, normal, high, urgent")
	}
}

func checkStatus(v *problem.Validation, s Status) {
	if !slices.Contains(Statuses[:], s) {
		v.Add("status", "must be one of open, pending, on_hold, resolved, closed")
	}
}

// UpdateTx changes a ticket, in the caller's transaction, and emits ticket.updated
// and the specific events; see the package comment. Equal values are no change, and
// without a change there is no event. Errors: NotFound; Invalid, also for an
// assignee outside the organization; Conflict already_exists for an external id in
// use, and invalid_transition for a merged ticket.
func (s *Service) UpdateTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string, u Update) (Ticket, error) {
	if err := problem.Check(u); err != nil {
		return Ticket{}, err
	}
	t, err := lockTicket(ctx, tx, organizationID, ticketID)
	if err != nil {
		return Ticket{}, notFound(err, "ticket")
	}
	if t.MergedIntoID != "" {
		return Ticket{}, mergedError(&t)
	}
	return t, s.applyUpdate(ctx, tx, &t, u)
}

// DeleteDraftsTx deletes the drafts, notices and private macros of a user, in any organization.
func (s *Service) DeleteDraftsTx(ctx context.Context, tx *db.Tx, userID string) error {
	if err := tx.Queue(ctx, "DELETE FROM ticket_drafts WHERE user_id = $1", userID); err != nil {
		return fmt.Errorf("delete drafts: %w", err)
	}
	if err := deleteNotices(ctx, tx, "", userID); err != nil {
		return err
	}
	return s.deletePrivateMacros(ctx, tx, "", userID)
}

// UnassignTx unassigns the tickets, except closed ones, of a member leaving the
// organization, and deletes their drafts, private macros, own views and notices, in the caller's
// transaction. It emits the events of [Service.UpdateTx]. Call it while they are still
// a member.
func (s *Service) UnassignTx(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	if err := tx.Queue(ctx, "DELETE FROM ticket_drafts WHERE user_id = $1 AND organization_id = $2", userID, organizationID); err != nil {
		return fmt.Errorf("delete drafts: %w", err)
	}
	if err := s.deletePrivateMacros(ctx, tx, organizationID, userID); err != nil {
		return err
	}
	if err := deleteViews(ctx, tx, organizationID, userID); err != nil {
		return err
	}
	// In order, so that concurrent calls cannot deadlock.
	tickets, err := db.All(ctx, tx, scanTicket, selectTicket+`WHERE t.assignee_id = $1 AND t.organization_id = $2 AND t.status <> $3
		ORDER BY t.id FOR UPDATE OF t`, userID, organizationID, string(StatusClosed))
	if err != nil {
		return fmt.Errorf("find assigned tickets: %w", err)
	}
	for i := range tickets {
		if err := s.applyUpdate(ctx, tx, &tickets[i], Update{AssigneeID: new(string)}); err != nil {
			return fmt.Errorf("unassign ticket: %w", err)
		}
	}
	return deleteNotices(ctx, tx, organizationID, userID) // after the tickets, in the order of other changes
}

// applyUpdate changes a locked ticket.
func (s *Service) applyUpdate(ctx context.Context, tx *db.Tx, t *Ticket, u Update) error {
	if u.Snooze != nil {
		if err := s.resolveSnooze(ctx, tx, t, &u); err != nil {
			return err
		}
	}
	newPriority := u.Priority != nil && *u.Priority != t.Priority
	newTarget := newPriority || u.Status != nil && *u.Status != t.Status // SLA targets change
	if newTarget {
		if err := s.recordBreaches(ctx, tx, t, tx.Now); err != nil {
			return err
		}
	}
	changes, err := s.applyFields(ctx, tx, t, u)
	if err != nil || len(changes) == 0 {
		return err
	}
	t.UpdatedAt = tx.Now
	if _, err := tx.Exec(ctx, `UPDATE tickets SET subject = $2, status = $3, priority = $4, assignee_id = $5, tags = $6,
			resolved_at = $7, updated_at = $8, external_id = $9, metadata = $10, closed_at = $11, snoozed_until = $12 WHERE id = $1`,
		t.ID, t.Subject, string(t.Status), string(t.Priority), db.Text(t.AssigneeID), t.tagsJSON(),
		db.Time(t.ResolvedAt), t.UpdatedAt.UnixMicro(), db.Text(t.ExternalID), metadataJSON(t.Metadata), db.Time(t.closedAt), t.snoozed.column()); db.IsUnique(err) {
		return externalIDTaken("ticket").Because(err)
	} else if err != nil {
		return fmt.Errorf("change ticket: %w", err)
	}
	if newTarget {
		if err := s.syncClocks(ctx, tx, t, tx.Now, newPriority); err != nil {
			return err
		}
	}
	if err := recordChange(ctx, tx, t, originOf(ctx), ChangeUpdated, changes); err != nil {
		return err
	}
	if _, assigned := changes["assignee"]; assigned {
		if err := s.noticeAssigned(ctx, tx, t); err != nil {
			return err
		}
	}
	snapshot, err := s.ticketSnapshot(ctx, tx, t)
	if err != nil {
		return err
	}
	return s.events.EmitTx(ctx, tx, updateEvents(snapshot, t.OrganizationID, changes)...)
}

// applyFields sets the fields of t that differ, and returns their changes. The caller writes
// the row.
func (s *Service) applyFields(ctx context.Context, tx *db.Tx, t *Ticket, u Update) (map[string]event.Change, error) {
	changes := make(map[string]event.Change)
	t.snoozed = t.Snoozed() // a previous version leaves it
	if u.Subject != nil && *u.Subject != t.Subject {
		changes["subject"] = event.Change{From: t.Subject, To: *u.Subject}
		if err := s.enqueueTicketIndexing(ctx, tx, t); err != nil {
			return nil, err
		}
		t.Subject = *u.Subject
	}
	if u.Priority != nil && *u.Priority != t.Priority {
		changes["priority"] = event.Change{From: string(t.Priority), To: string(*u.Priority)}
		t.Priority = *u.Priority
	}
	if u.Tags != nil {
		if tags := tagSet(*u.Tags); !slices.Equal(tags, t.Tags) {
			changes["tags"] = event.Change{From: append([]string{}, t.Tags...), To: tags}
			if err := setTags(ctx, tx, t, tags); err != nil {
				return nil, err
			}
		}
	}
	if u.AssigneeID != nil && *u.AssigneeID != t.AssigneeID {
		change, err := s.assign(ctx, tx, t, *u.AssigneeID)
		if err != nil {
			return nil, err
		}
		changes["assignee"] = change
	}
	snoozed := t.Snoozed()
	if u.Status != nil && *u.Status != t.Status {
		changes["status"] = event.Change{From: string(t.Status), To: string(*u.Status)}
		if err := s.setStatus(ctx, tx, t, *u.Status); err != nil {
			return nil, err
		}
	}
	if u.Snooze != nil {
		t.snoozed = *u.Snooze
	}
	if t.snoozed.column() != snoozed.column() {
		changes["snoozed_until"] = event.Change{From: snoozed.change(), To: t.snoozed.change()}
	}
	if u.ExternalID != nil && *u.ExternalID != t.ExternalID {
		changes["external_id"] = event.Change{From: orNil(t.ExternalID), To: orNil(*u.ExternalID)}
		t.ExternalID = *u.ExternalID
	}
	change, err := u.Metadata.apply(&t.Metadata)
	if change != nil {
		changes["metadata"] = *change
	}
	return changes, err
}

// assign sets the assignee; empty: none. The caller writes the row.
func (s *Service) assign(ctx context.Context, tx *db.Tx, t *Ticket, assigneeID string) (event.Change, error) {
	from, err := s.agentSnapshot(ctx, tx, t.OrganizationID, t.AssigneeID)
	if err != nil {
		return event.Change{}, err
	}
	to, err := s.checkAssignee(ctx, tx, t.OrganizationID, assigneeID)
	t.AssigneeID = assigneeID
	return event.Change{From: from, To: to}, err
}

// setStatus sets the status and its dependent fields. The caller writes the row.
func (s *Service) setStatus(ctx context.Context, tx *db.Tx, t *Ticket, status Status) error {
	t.Status, t.closedAt, t.snoozed = status, time.Time{}, Snooze{}
	switch status {
	case StatusResolved:
		t.ResolvedAt = tx.Now
		return s.enqueueClose(ctx, tx, t)
	case StatusClosed:
		t.closedAt = tx.Now
		if t.ResolvedAt.IsZero() {
			t.ResolvedAt = tx.Now
		}
	default:
		t.ResolvedAt = time.Time{}
	}
	return nil
}

// tagSet trims tags and removes duplicates.
func tagSet(tags []string) []string {
	set := make([]string, 0, len(tags))
	for _, tag := range tags {
		if tag = strings.TrimSpace(tag); !slices.Contains(set, tag) {
			set = append(set, tag)
		}
	}
	return set
}

// setTags replaces the tags of t in the filter index. The caller writes the row.
func setTags(ctx context.Context, tx *db.Tx, t *Ticket, tags []string) error {
	if len(t.Tags) > 0 {
		if err := tx.Queue(ctx, "DELETE FROM ticket_tags WHERE organization_id = $1 AND tag = ANY($2) AND number = $3",
			t.OrganizationID, t.Tags, t.Number); err != nil {
			return fmt.Errorf("remove tags: %w", err)
		}
	}
	if err := insertTags(ctx, tx, t, tags); err != nil {
		return err
	}
	t.Tags = tags
	return nil
}

// insertTags adds new tags of t to the filter index.
func insertTags(ctx context.Context, tx *db.Tx, t *Ticket, tags []string) error {
	for _, tag := range tags {
		if err := tx.Queue(ctx, "INSERT INTO ticket_tags (organization_id, tag, number, ticket_id) VALUES ($1, $2, $3, $4)",
			t.OrganizationID, tag, t.Number, t.ID); err != nil {
			return fmt.Errorf("add tags: %w", err)
		}
	}
	return nil
}

// updateEvents returns ticket.updated and the specific events of changes.
func updateEvents(t *event.Ticket, organizationID string, changes map[string]event.Change) []event.Event {
	events := []event.Event{{OrganizationID: organizationID, Name: event.TicketUpdated, Data: event.Data{Ticket: t, Changes: changes}}}
	for _, specific := range []struct {
		field string
		name  event.Name
	}{
		{"status", event.TicketStatusChanged},
		{"assignee", event.TicketAssigned},
		{"priority", event.TicketPriorityChanged},
	} {
		if c, ok := changes[specific.field]; ok {
			events = append(events, event.Event{
				OrganizationID: organizationID, Name: specific.name,
				Data: event.Data{Ticket: t, Changes: map[string]event.Change{specific.field: c}},
			})
		}
	}
	return events
}

// ticketSnapshot returns t in the form of events.
func (s *Service) ticketSnapshot(ctx context.Context, q db.Querier, t *Ticket) (*event.Ticket, error) {
	assignee, err := s.agentSnapshot(ctx, q, t.OrganizationID, t.AssigneeID)
	if err != nil {
		return nil, err
	}
	customer := t.Customer
	return &event.Ticket{
		ID: t.ID, Number: t.Number, Subject: t.Subject, Status: string(t.Status), Priority: string(t.Priority),
		Channel: t.Channel, Assignee: assignee, Customer: &customer,
		URL: s.baseURL + "/tickets/" + strconv.FormatInt(t.Number, 10),
	}, nil
}

// agentSnapshot returns a member, by id only if they have left; nil for an empty
// id.
func (s *Service) agentSnapshot(ctx context.Context, q db.Querier, organizationID, id string) (*event.Person, error) {
	if id == "" {
		return nil, nil
	}
	p, ok, err := s.directory.Agent(ctx, q, organizationID, id)
	if err != nil {
		return nil, fmt.Errorf("look up agent: %w", err)
	}
	if !ok {
		p = event.Person{ID: id}
	}
	return &p, nil
}

// DeleteTx removes a ticket with its messages, in the caller's transaction, and emits
// ticket.deleted. The next message of its threads starts a new ticket; its number
// is not reused. Blobs stay, since other messages may share them. Tickets merged
// into it are deleted with it, each with its event; deleting a merged ticket leaves
// its messages in the survivor for good. Error: NotFound.
func (s *Service) DeleteTx(ctx context.Context, tx *db.Tx, organizationID, ticketID string) error {
	t, err := lockTicket(ctx, tx, organizationID, ticketID)
	if err != nil {
		return notFound(err, "ticket")
	}
	going := []*Ticket{&t}
	if !t.movedAt.IsZero() {
		f, err := lockMergeTree(ctx, tx, organizationID, ticketID)
		if err != nil {
			return notFound(err, "ticket")
		}
		going[0] = f.tickets[ticketID]
		if going[0].MergedIntoID != "" {
			if err := f.removeMerged(ctx, tx, going[0]); err != nil {
				return err
			}
		} else {
			for _, id := range f.down {
				if id != ticketID {
					going = append(going, f.tickets[id])
				}
			}
		}
	}
	var events []event.Event
	for _, t := range going {
		snapshot, err := s.ticketSnapshot(ctx, tx, t)
		if err != nil {
			return err
		}
		events = append(events, event.Event{
			OrganizationID: organizationID, Name: event.TicketDeleted, Data: event.Data{Ticket: snapshot},
		})
		if err := s.deleteRows(ctx, tx, t); err != nil {
			return err
		}
		if err := s.recordTicketTx(ctx, tx, AuditTicketDeleted, t, nil); err != nil {
			return err
		}
	}
	return s.events.EmitTx(ctx, tx, events...)
}

// deleteRows deletes the rows of a locked ticket.
func (s *Service) deleteRows(ctx context.Context, tx *db.Tx, t *Ticket) error {
	if err := s.stopClocks(ctx, tx, t); err != nil {
		return fmt.Errorf("delete SLA timers: %w", err)
	}
	if err := setTags(ctx, tx, new(*t), nil); err != nil {
		return err
	}
	if err := s.enqueueTicketIndexing(ctx, tx, t); err != nil {
		return err
	}
	if err := s.deleteQueuedMessages(ctx, tx, t.ID); err != nil {
		return err
	}
	if err := s.deleteTicketPending(ctx, tx, t, ""); err != nil {
		return err
	}
	if err := s.deleteTicketFiles(ctx, tx, t); err != nil {
		return err
	}
	for _, statement := range []string{
		// Delete keys of threads; keep identities of customers.
		`DELETE FROM contact_points WHERE customer_id IS NULL
			AND conversation_id IN (SELECT id FROM conversations WHERE ticket_id = $1)`,
		`UPDATE contact_points SET ticket_id = NULL, conversation_id = NULL
			WHERE conversation_id IN (SELECT id FROM conversations WHERE ticket_id = $1)`,
		"DELETE FROM message_ids WHERE ticket_id = $1",
		"DELETE FROM ticket_reads WHERE ticket_id = $1",
		"DELETE FROM ticket_drafts WHERE ticket_id = $1",
		"DELETE FROM ticket_followers WHERE ticket_id = $1",
		"DELETE FROM notices WHERE ticket_id = $1",
		"DELETE FROM ticket_changes WHERE ticket_id = $1",
		"DELETE FROM participants WHERE ticket_id = $1",
		"DELETE FROM messages WHERE ticket_id = $1",
		"DELETE FROM conversations WHERE ticket_id = $1",
		"DELETE FROM sla_breaches WHERE ticket_id = $1",
		"DELETE FROM tickets WHERE id = $1",
	} {
		if err := tx.Queue(ctx, statement, t.ID); err != nil {
			return fmt.Errorf("delete ticket: %w", err)
		}
	}
	return nil
}
