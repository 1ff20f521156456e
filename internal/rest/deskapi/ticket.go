package deskapi

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var (
	statuses   = words(desk.Statuses[:])
	priorities = words(desk.Priorities[:])
)

func words[T ~string](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

var ticketRecord = &schema.Record{Name: "ticket", Doc: "A customer's request and everything that follows from it.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("ticket")},
	{Name: "organization_id", Type: schema.ID()},
	{Name: "number", Type: schema.Integer(), Doc: "Sequential within the organization, from 1, for people; paths use the id.", Example: 42},
	{Name: "subject", Type: schema.String(1, 500), Access: schema.Required, Example: "Where is my bicycle?"},
	{Name: "text", Type: schema.String(0, 100_000), Access: schema.CreateOnly, WriteOnly: true, Doc: "The first message: the customer's, or, on a channel, yours to the customer.", Example: "The lock of bike 4711 does not open."},
	{Name: "html", Type: schema.String(0, 500_000), Access: schema.CreateOnly, WriteOnly: true, Doc: "The same in HTML, sanitized. If text is absent, it is derived from the HTML."},
	{Name: "status", Type: schema.Enum(statuses...), Access: schema.UpdateOnly, Doc: "A new ticket is open."},
	{Name: "priority", Type: schema.Enum(priorities...), Access: schema.Writable, Doc: "Defaults to normal."},
	{Name: "channel", Type: schema.String(1, 50), Access: schema.CreateOnly, Doc: "The channel of the first message; defaults to api. With email or sms the first message is sent to the customer.", Example: "api"},
	{Name: "channel_id", Type: schema.ID(), Access: schema.CreateOnly, WriteOnly: true, Doc: "The connection that sends this message, if the organization has several."},
	{Name: "customer_id", Type: schema.ID(), Access: schema.CreateOnly, Doc: "Either this or customer is required."},
	{Name: "customer", Access: schema.CreateOnly, Doc: "Found by email or phone, or created.", Type: schema.Object(
		schema.Member{Name: "id", Type: schema.ID()},
		schema.Member{Name: "name", Type: schema.String(0, 200), Access: schema.Writable, Nullable: true, Example: "Alex Rider"},
		schema.Member{Name: "email", Type: schema.Formatted("", 254), Access: schema.Writable, Nullable: true, Example: "alex@example.com"},
		schema.Member{Name: "phone", Type: schema.String(0, 50), Access: schema.Writable, Nullable: true, Doc: "Returned as E.164.", Example: "+4915112345678"},
	)},
	{Name: "assignee_id", Type: schema.ID(), Access: schema.Writable, Nullable: true, Doc: "A member of the organization."},
	{Name: "assignee", Nullable: true, Type: schema.Object(
		schema.Member{Name: "id", Type: schema.ID()},
		schema.Member{Name: "name", Type: schema.Text(), Nullable: true, Doc: "null after they have left."},
		schema.Member{Name: "email", Type: schema.Text(), Nullable: true},
	)},
	{Name: "tags", Type: schema.Array(schema.String(1, 50), 50), Access: schema.Writable},
	{Name: "snoozed_until", Type: schema.String(1, 40), Access: schema.UpdateOnly, Nullable: true, Example: "2026-12-01T08:00:00.000Z", Doc: "When it opens again: a time, or reply for the next message of the customer, which opens it anyway. An open ticket goes on hold, for reply it becomes pending; null opens it."},
	{Name: "external_id", Type: schema.String(1, 128), Access: schema.Writable, Nullable: true, Doc: "Your own id, unique among the organization's tickets."},
	{Name: "metadata", Type: schema.Metadata(), Access: schema.Writable},
	{Name: "linked_ticket_id", Type: schema.ID(), Nullable: true, Doc: "The ticket that this one follows up; it may have been deleted since."},
	{Name: "link_reason", Type: schema.Text(), Nullable: true, Doc: "closed: it follows up a closed ticket. ticket_tag: its subject refers to the ticket. split: it was split off."},
	{Name: "merged_into_id", Type: schema.ID(), Nullable: true, Doc: "The surviving ticket, with its messages."},
	{Name: "url", Type: schema.Text(), Doc: "URL of the ticket in the inbox.", Example: "https://help.example.com/tickets/42"},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
	{Name: "first_responded_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "resolved_at", Type: schema.Timestamp(), Nullable: true},
	{Name: "sla", Doc: "SLA targets and their states.", Type: schema.Array(schema.Object(
		schema.Member{Name: "metric", Type: schema.Enum(string(desk.FirstResponse), string(desk.Resolution))},
		schema.Member{Name: "state", Type: schema.Text(), Doc: "running, paused, met or breached.", Example: "running"},
		schema.Member{Name: "due_at", Type: schema.Timestamp(), Nullable: true, Doc: "null while it is paused."},
		schema.Member{Name: "target_minutes", Type: schema.Integer()},
		schema.Member{Name: "warned_at", Type: schema.Timestamp(), Nullable: true},
		schema.Member{Name: "breached_at", Type: schema.Timestamp(), Nullable: true},
		schema.Member{Name: "met_at", Type: schema.Timestamp(), Nullable: true},
	), 2)},
}}

type ticket struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	OrganizationID   string            `json:"organization_id"`
	Number           int64             `json:"number"`
	Subject          string            `json:"subject"`
	Status           desk.Status       `json:"status"`
	Priority         desk.Priority     `json:"priority"`
	Channel          string            `json:"channel"`
	CustomerID       string            `json:"customer_id"`
	Customer         any               `json:"customer"` // a *contact or a *wholeCustomer
	AssigneeID       *string           `json:"assignee_id"`
	Assignee         *assignee         `json:"assignee"`
	Tags             []string          `json:"tags"`
	SnoozedUntil     *string           `json:"snoozed_until"`
	ExternalID       *string           `json:"external_id"`
	Metadata         map[string]string `json:"metadata"`
	LinkedTicketID   *string           `json:"linked_ticket_id"`
	LinkReason       *string           `json:"link_reason"`
	MergedIntoID     *string           `json:"merged_into_id"`
	URL              string            `json:"url"`
	CreatedAt        rfc3339.Time      `json:"created_at"`
	UpdatedAt        rfc3339.Time      `json:"updated_at"`
	FirstRespondedAt rfc3339.Time      `json:"first_responded_at"`
	ResolvedAt       rfc3339.Time      `json:"resolved_at"`
	SLA              []sla             `json:"sla"`
}

// contact is the part of a customer shown with every ticket.
type contact struct {
	ID    string  `json:"id"`
	Name  *string `json:"name"`
	Email *string `json:"email"`
	Phone *string `json:"phone"`
}

type assignee struct {
	ID    string  `json:"id"`
	Name  *string `json:"name"`
	Email *string `json:"email"`
}

type sla struct {
	Metric        desk.Metric   `json:"metric"`
	State         desk.SLAState `json:"state"`
	DueAt         rfc3339.Time  `json:"due_at"`
	TargetMinutes int64         `json:"target_minutes"`
	WarnedAt      rfc3339.Time  `json:"warned_at"`
	BreachedAt    rfc3339.Time  `json:"breached_at"`
	MetAt         rfc3339.Time  `json:"met_at"`
}

// ticketBody is the body of a ticket.
type ticketBody struct {
	Subject    optional.Value[string]            `json:"subject"`
	Text       optional.Value[string]            `json:"text"`
	HTML       optional.Value[string]            `json:"html"`
	Status     optional.Value[desk.Status]       `json:"status"`
	Priority   optional.Value[desk.Priority]     `json:"priority"`
	Channel    optional.Value[string]            `json:"channel"`
	ChannelID  optional.Value[string]            `json:"channel_id"`
	CustomerID optional.Value[string]            `json:"customer_id"`
	Customer   optional.Value[person]            `json:"customer"`
	AssigneeID optional.Value[string]            `json:"assignee_id"`
	Tags       optional.Value[[]string]          `json:"tags"`
	Snoozed    optional.Value[string]            `json:"snoozed_until"`
	ExternalID optional.Value[string]            `json:"external_id"`
	Metadata   optional.Value[map[string]string] `json:"metadata"`
}

// snoozedUntilReply is the value of snoozed_until for the customer's answer.
const snoozedUntilReply = "reply"

// snooze returns the snooze of a body; nil if it is unchanged. Error: Invalid.
func (b *ticketBody) snooze() (*desk.Snooze, error) {
	switch {
	case !b.Snoozed.Set:
		return nil, nil
	case b.Snoozed.Null:
		return new(desk.Snooze), nil
	case b.Snoozed.Value == snoozedUntilReply:
		return &desk.Snooze{UntilReply: true}, nil
	}
	at, err := rfc3339.Parse(b.Snoozed.Value)
	if err != nil {
		var v problem.Validation
		v.AddCode("invalid_format", "snoozed_until", "must be an RFC 3339 time or reply")
		return nil, v.Err()
	}
	return &desk.Snooze{Until: at}, nil
}

// wireSnooze returns a snooze in wire format; nil for none.
func wireSnooze(s desk.Snooze) *string {
	switch {
	case s.UntilReply:
		return new(snoozedUntilReply)
	case s.Until.IsZero():
		return nil
	}
	return new(s.Until.UTC().Format(rfc3339.Layout))
}

// person is the customer of a new ticket.
type person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
	Phone string `json:"phone"`
}

var mergeRecord = &schema.Record{Name: "ticket_merge", Members: []schema.Member{
	{Name: "into", Type: schema.ID(), Access: schema.Required, Doc: "The surviving ticket."},
}}

var splitRecord = &schema.Record{Name: "ticket_split", Members: []schema.Member{
	{Name: "message_ids", Type: schema.Array(schema.ID(), 1000), Access: schema.Required, Doc: "Messages of the ticket, but not all of them."},
}}

// nobody is the filter value for tickets without an assignee.
const nobody = "none"

func (a *API) ticketRoutes() []rest.Route {
	withCustomer := []rest.Expansion{{Name: "customer", Needs: needs("customers", apikey.Read), Record: wholeCustomerRecord}}
	return []rest.Route{{
		Method: "GET", Path: "/tickets", ID: "listTickets", Tag: "Tickets", Summary: "List and search tickets",
		Doc:   "Combined filters that few of very many tickets match may need a range of created_at; then range_too_large says so. Exports never do.",
		Needs: needs("tickets", apikey.Read), Codes: []string{"range_too_large"},
		Query: []rest.Param{
			{Name: "q", Kind: rest.StringParam, Doc: "Words, all of which must match in any order, in one message, or in the subject, tags, file names, external id and the customer's name, addresses and phone numbers together; `#6` for a number; and filters such as `status:open,pending`, `-channel:sms`, `assignee:none`, `tag:lock`, `customer:ana@example.com` or `created:>=2026-01-01`.", Example: "flat tyre"},
			{Name: "view", Kind: rest.StringParam, Doc: "Id of a shared view: its query and, without sort, its order apply. A view with assignee:me is refused, as a key is no member."},
			{Name: "status", Kind: rest.EnumsParam, Values: statuses},
			{Name: "priority", Kind: rest.EnumsParam, Values: priorities},
			{Name: "assignee_id", Kind: rest.StringsParam, Doc: "Ids of members; none for tickets without an assignee."},
			{Name: "customer_id", Kind: rest.StringsParam},
			{Name: "channel", Kind: rest.StringsParam, Doc: "Where tickets were created: " + strings.Join(channel.TicketChannels, ", ") + ".", Example: "email,sms"},
			{Name: "tags", Kind: rest.StringsParam, Doc: "Tickets that have one of these."},
			{Name: "number", Kind: rest.StringsParam, Example: "42"},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
		},
		Sort:   []string{desk.ByCreatedAt, desk.ByUpdatedAt, desk.ByPriority, desk.ByNumber},
		Expand: withCustomer, Export: true, Output: ticketRecord, List: true, Handle: a.listTickets,
	}, {
		Method: "POST", Path: "/tickets", ID: "createTicket", Tag: "Tickets", Summary: "Create a ticket",
		Doc: "For an existing customer by customer_id, or for one found by e-mail address or phone number, created if there is none. " +
			"The text becomes the customer's first message; without it the ticket starts empty. On the channels email and sms the text is your message to the customer.\n\n" +
			"It emits ticket.created, and the events of a new customer and of a first message.",
		Needs: needs("tickets", apikey.Create), Input: ticketRecord, Output: ticketRecord, Codes: []string{"already_exists", "invalid_transition", quota.CodeDailyExceeded}, Handle: a.createTicket,
	}, {
		Method: "GET", Path: "/tickets/{id}", ID: "getTicket", Tag: "Tickets", Summary: "Read a ticket",
		Needs: needs("tickets", apikey.Read), Expand: withCustomer, Output: ticketRecord, Handle: a.getTicket,
	}, {
		Method: "PUT", Path: "/tickets/{id}", ID: "updateTicket", Tag: "Tickets", Summary: "Change a ticket",
		Doc:   "Absent fields stay unchanged. Any status can follow any other. Each change emits its event.",
		Needs: needs("tickets", apikey.Update), Input: ticketRecord, Output: ticketRecord, Codes: []string{"already_exists", "invalid_transition"}, Handle: a.updateTicket,
	}, {
		Method: "DELETE", Path: "/tickets/{id}", ID: "deleteTicket", Tag: "Tickets", Summary: "Delete a ticket",
		Doc:   "Deletes the ticket with its messages permanently. Its number is not reused.",
		Needs: needs("tickets", apikey.Delete), Handle: a.deleteTicket,
	}, {
		Method: "POST", Path: "/tickets/{id}/merge", ID: "mergeTicket", Tag: "Tickets", Summary: "Merge a ticket into another",
		Doc: "Moves the ticket's messages, and all later ones, to the surviving ticket, which is returned. " +
			"The ticket stays, closed and empty, until the merge is undone.",
		Needs: needs("tickets", apikey.Update), Input: mergeRecord, Output: ticketRecord, Status: 200, Codes: []string{"invalid_transition"}, Handle: a.mergeTicket,
	}, {
		Method: "POST", Path: "/tickets/{id}/unmerge", ID: "unmergeTicket", Tag: "Tickets", Summary: "Undo a merge",
		Doc:   "Moves the ticket's messages back, including later messages of its threads.",
		Needs: needs("tickets", apikey.Update), Output: ticketRecord, Status: 200, Codes: []string{"invalid_transition"}, Handle: a.unmergeTicket,
	}, {
		Method: "POST", Path: "/tickets/{id}/split", ID: "splitTicket", Tag: "Tickets", Summary: "Split messages off",
		Doc:   "Moves messages to a new ticket, which is returned. At least one must remain.",
		Needs: needs("tickets", apikey.Update), Input: splitRecord, Output: ticketRecord, Codes: []string{"invalid_transition"}, Handle: a.splitTicket,
	}}
}

// wireTicket returns a ticket in wire format. member is its assignee; only the id is known after
// they left.
func (a *API) wireTicket(t *desk.Ticket, member event.Person) *ticket {
	w := &ticket{
		ID: t.ID, Object: "ticket", OrganizationID: t.OrganizationID, Number: t.Number, Subject: t.Subject,
		Status: t.Status, Priority: t.Priority, Channel: t.Channel, CustomerID: t.Customer.ID,
		Customer: &contact{t.Customer.ID, orNull(t.Customer.Name), orNull(t.Customer.Email), orNull(t.Customer.Phone)},
		Tags:     t.Tags, SnoozedUntil: wireSnooze(t.Snoozed()), ExternalID: orNull(t.ExternalID), Metadata: t.Metadata,
		LinkedTicketID: orNull(t.LinkedTicketID), LinkReason: orNull(t.LinkReason), MergedIntoID: orNull(t.MergedIntoID),
		URL:       a.BaseURL + "/tickets/" + strconv.FormatInt(t.Number, 10),
		CreatedAt: rfc3339.Time(t.CreatedAt), UpdatedAt: rfc3339.Time(t.UpdatedAt),
		FirstRespondedAt: rfc3339.Time(t.FirstRespondedAt), ResolvedAt: rfc3339.Time(t.ResolvedAt), SLA: []sla{},
	}
	if t.AssigneeID != "" {
		w.AssigneeID, w.Assignee = &t.AssigneeID, &assignee{t.AssigneeID, orNull(member.Name), orNull(member.Email)}
	}
	if w.Tags == nil {
		w.Tags = []string{}
	}
	if w.Metadata == nil {
		w.Metadata = map[string]string{}
	}
	for _, p := range t.SLA {
		w.SLA = append(w.SLA, sla{
			p.Metric, p.State, rfc3339.Time(p.DueAt), p.TargetMinutes, rfc3339.Time(p.WarnedAt), rfc3339.Time(p.BreachedAt), rfc3339.Time(p.MetAt),
		})
	}
	return w
}

// oneTicket is [API.wireTicket] with the assignee looked up.
func (a *API) oneTicket(ctx context.Context, q db.Querier, t *desk.Ticket) (*ticket, error) {
	var member event.Person
	if t.AssigneeID != "" {
		var err error
		if member, _, err = a.Accounts.Agent(ctx, q, t.OrganizationID, t.AssigneeID); err != nil {
			return nil, err
		}
	}
	return a.wireTicket(t, member), nil
}

// wireTickets is [API.oneTicket] for several tickets with shared lookups, and with complete
// customers if the request expands them.
func (a *API) wireTickets(ctx context.Context, r *rest.Request, tickets []desk.Ticket) ([]*ticket, error) {
	organization := r.Key.OrganizationID
	var assigned []string
	for i := range tickets {
		if id := tickets[i].AssigneeID; id != "" && !slices.Contains(assigned, id) {
			assigned = append(assigned, id)
		}
	}
	people := make(map[string]event.Person, len(assigned))
	switch len(assigned) {
	case 0:
	case 1:
		p, _, err := a.Accounts.Agent(ctx, a.DB, organization, assigned[0])
		if err != nil {
			return nil, err
		}
		people[assigned[0]] = p
	default:
		members, err := a.Accounts.Members(ctx, organization)
		if err != nil {
			return nil, err
		}
		for _, u := range members {
			people[u.ID] = event.Person{ID: u.ID, Name: u.Name, Email: u.Email}
		}
	}
	list := make([]*ticket, len(tickets))
	for i := range tickets {
		list[i] = a.wireTicket(&tickets[i], people[tickets[i].AssigneeID])
	}
	if !r.Expanded("customer") || len(list) == 0 {
		return list, nil
	}
	var ids []string
	for _, t := range list {
		ids = append(ids, t.CustomerID)
	}
	slices.Sort(ids)
	customers, err := a.Desk.CustomersByID(ctx, a.DB, organization, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if c, ok := customers[t.CustomerID]; ok {
			brief := t.Customer.(*contact)
			t.Customer = &wholeCustomer{*wireCustomer(&c), brief.Email, brief.Phone}
		}
	}
	return list, nil
}

func (a *API) listTickets(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := desk.TicketQuery{
		Status: rest.Typed[desk.Status](r.Strings("status")), Priority: rest.Typed[desk.Priority](r.Strings("priority")),
		AssigneeID: r.Strings("assignee_id"), CustomerID: r.Strings("customer_id"), Channel: r.Strings("channel"),
		Tags: r.Strings("tags"), ExternalID: r.Strings("external_id"), Text: r.String("q"),
		CreatedAt: r.Range("created_at"), UpdatedAt: r.Range("updated_at"), Sort: r.Sort(),
	}
	if id := r.String("view"); id != "" {
		v, err := a.Desk.View(ctx, a.DB, r.Key.OrganizationID, "", id)
		if problem.Of(err) == problem.NotFound {
			return rest.Response{}, rest.BadParameter("view", "There is no such shared view.")
		}
		if err != nil {
			return rest.Response{}, err
		}
		if q.Text = strings.TrimSpace(v.Query + " " + q.Text); !r.Sorted() {
			q.Sort = v.Sort
		}
	}
	for i, id := range q.AssigneeID {
		if id == nobody {
			q.AssigneeID[i] = ""
		}
	}
	for i, name := range q.Channel {
		if q.Channel[i] = channel.TicketChannelName(name); !slices.Contains(channel.TicketChannels, q.Channel[i]) {
			return rest.Response{}, rest.BadParameter("channel", "channel must be %s.", strings.Join(channel.TicketChannels, ", "))
		}
	}
	for _, s := range r.Strings("number") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return rest.Response{}, rest.BadParameter("number", "Each value of number must be an integer.")
		}
		q.Number = append(q.Number, n)
	}
	if r.Exporting() {
		return rest.Export(inChunks(func(fn func(*desk.Ticket) error) error {
			return asSearchError(a.Desk.EachTicket(ctx, r.Key.OrganizationID, q, fn))
		}, func(tickets []desk.Ticket) ([]*ticket, error) { return a.wireTickets(ctx, r, tickets) })), nil
	}
	q.Limit = r.Limit()
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	tickets, next, err := a.Desk.FindTickets(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(asSearchError(err))
	}
	list, err := a.wireTickets(ctx, r, tickets)
	if err != nil {
		return rest.Response{}, err
	}
	return paged(list, next), nil
}

// asSearchError converts an error about a filter in q.
func asSearchError(err error) error {
	if fault := desk.SearchFault(err); fault != "" {
		return rest.BadParameter("q", "%s.", fault)
	}
	return err
}

func (a *API) getTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	t, err := a.Desk.Ticket(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return rest.Response{}, err
	}
	if r.Expanded("customer") {
		list, err := a.wireTickets(ctx, r, []desk.Ticket{t})
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(list[0]), nil
	}
	w, err := a.oneTicket(ctx, a.DB, &t)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.OK(w), nil
}

// hintNumber adds a hint to the 404 for an unknown ticket whose path has a number in place of
// the id.
func hintNumber(handle func(context.Context, *rest.Request) (rest.Response, error)) func(context.Context, *rest.Request) (rest.Response, error) {
	return func(ctx context.Context, r *rest.Request) (rest.Response, error) {
		got, err := handle(ctx, r)
		if problem.Of(err) != problem.NotFound {
			return got, err
		}
		n, parseErr := strconv.ParseInt(r.Path("id"), 10, 64)
		if parseErr != nil || n < 1 {
			return got, err
		}
		return got, problem.New(problem.NotFound, "paths have a ticket's id; find the ticket number %d with GET %s/tickets?number=%d", n, Base, n).Because(err)
	}
}

func (a *API) createTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in ticketBody
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	n := desk.NewTicket{
		Subject: in.Subject.Value, Channel: channel.TicketChannelName(in.Channel.Value), ConnectionID: in.ChannelID.Value, CustomerID: in.CustomerID.Value, Priority: in.Priority.Value,
		AssigneeID: in.AssigneeID.Value, Tags: in.Tags.Value, ExternalID: in.ExternalID.Value, Metadata: changed(nil, in.Metadata),
		By: desk.Actor{ID: r.Key.ID, Name: r.Key.Name},
	}
	if in.Customer.Set {
		n.Customer = &desk.Person{Name: in.Customer.Value.Name, Email: in.Customer.Value.Email, Phone: in.Customer.Value.Phone}
	}
	if in.Text.Value != "" || in.HTML.Value != "" {
		var err error
		if n.Content, err = a.Desk.Compose(ctx, r.Key.OrganizationID, desk.Draft{Text: in.Text.Value, HTML: in.HTML.Value}); err != nil {
			return rest.Response{}, err
		}
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, err := a.Desk.CreateTicketTx(ctx, tx, r.Key.OrganizationID, n)
		if err != nil {
			return rest.Response{}, err
		}
		w, err := a.oneTicket(ctx, tx, &t)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.Created("/tickets/"+t.ID, w), nil
	})
}

func (a *API) updateTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, err := a.Desk.LockTicketTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		before, err := a.oneTicket(ctx, tx, &t)
		if err != nil {
			return rest.Response{}, err
		}
		var in ticketBody
		if err := r.Update(before, &in); err != nil {
			return rest.Response{}, err
		}
		snooze, err := in.snooze()
		if err != nil {
			return rest.Response{}, err
		}
		t, err = a.Desk.UpdateTx(ctx, tx, t.OrganizationID, t.ID, desk.Update{
			Snooze: snooze, Subject: in.Subject.Pointer(), Status: in.Status.Pointer(), Priority: in.Priority.Pointer(), AssigneeID: in.AssigneeID.Pointer(),
			Tags: in.Tags.Pointer(), ExternalID: in.ExternalID.Pointer(), Metadata: changed(t.Metadata, in.Metadata),
		})
		if err != nil {
			return rest.Response{}, err
		}
		after, err := a.oneTicket(ctx, tx, &t)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(after), nil
	})
}

func (a *API) deleteTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, err := a.Desk.LockTicketTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		w, err := a.oneTicket(ctx, tx, &t)
		if err != nil {
			return rest.Response{}, err
		}
		if err := r.Match(w); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), a.Desk.DeleteTx(ctx, tx, t.OrganizationID, t.ID)
	})
}

func (a *API) mergeTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in struct {
			Into string `json:"into"`
		}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		t, err := a.Desk.MergeTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), in.Into)
		if err != nil {
			return rest.Response{}, err
		}
		w, err := a.oneTicket(ctx, tx, &t)
		return rest.OK(w), err
	})
}

func (a *API) unmergeTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in struct{}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		t, err := a.Desk.UnmergeTx(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		w, err := a.oneTicket(ctx, tx, &t)
		return rest.OK(w), err
	})
}

func (a *API) splitTicket(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		if _, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id")); err != nil {
			return rest.Response{}, err
		}
		var in struct {
			MessageIDs []string `json:"message_ids"`
		}
		if err := r.Decode(&in); err != nil {
			return rest.Response{}, err
		}
		t, err := a.Desk.SplitTx(ctx, tx, r.Key.OrganizationID, r.Path("id"), in.MessageIDs)
		if err != nil {
			return rest.Response{}, err
		}
		w, err := a.oneTicket(ctx, tx, &t)
		return rest.Created("/tickets/"+t.ID, w), err
	})
}
