package inbox

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleTickets registers the pages of a ticket.
func (p *pages) handleTickets() {
	p.Handle("/tickets/{number}", web.Route{Get: p.ticket})
	p.Handle("/tickets/{number}/write", web.Route{Post: p.submitReply})
	p.Handle("/tickets/{number}/pending/{id}", web.Route{Post: p.changePending})
	p.Handle("/tickets/{number}/macros", web.Route{Get: p.listMacros})
	p.Handle("/tickets/{number}/macros/{id}", web.Route{Get: p.showMacro})
	p.Handle("/tickets/{number}/properties", web.Route{Post: p.changeProperties})
	p.Handle("/tickets/{number}/merge", web.Route{Get: p.showMergeForm, Post: p.merge})
	p.Handle("/tickets/{number}/unmerge", web.Route{Post: p.unmerge})
	p.Handle("/tickets/{number}/forward", web.Route{Get: p.showForwardForm, Post: p.forward})
	p.Handle("/tickets/{number}/split", web.Route{Get: p.showSplitForm, Post: p.split})
	// Only admins may do what cannot be undone.
	p.Handle("/tickets/{number}/delete", web.Route{Get: p.confirmDeleteTicket, Post: p.deleteTicket, Admin: true, Proof: true})
	p.Handle("/tickets/{number}/here", web.Route{Post: p.reportPresence})
	p.Handle("/messages/{ticket}/{id}/html", web.Route{Get: p.htmlBody})
	p.Handle("/messages/{ticket}/{id}/pictures/{picture}", web.Route{Get: p.inlineImage})
	p.Handle("/messages/{ticket}/{id}/text", web.Route{Get: p.fullText})
}

// ticketPage is the body of the template "ticket".
type ticketPage struct {
	desk.Ticket
	Path       string // "/tickets/12"
	In         string // "?in=mine": the list from which it was opened; empty: the first
	List       *list
	Status     web.Badge
	Priority   *web.Badge // nil if normal
	Channel    string     // label
	Icon       string
	Done       bool   // resolved or closed
	Mine       bool   // assigned to the user
	Snoozed    string // "Until …"; empty: not snoozed
	Snoozes    []moment
	Survivor   string // path of the ticket it was merged into; empty: not merged
	Thread     thread
	Composer   composer
	Properties properties
	Panel      customerPanel
	Related    []relation
	Colleagues string // other members who view it; empty: none
	Followers  string // names
	Follows    bool   // the reader is one of them
	Admin      bool
}

// relation is a related ticket.
type relation struct {
	Label   string // "Continues", "Merged in"
	Path    string
	Number  int64
	Subject string
	Status  web.Badge
	Undo    string // path of the form that undoes the merge; empty: none
}

// propertyButton is a form with one button that sets a property.
type propertyButton struct {
	Page                         *ticketPage
	Name, Value, Was, Label, Key string
}

// Set is for the template.
func (b ticketPage) Set(name, value, label, key string) propertyButton {
	was := string(b.Ticket.Status)
	if name == "assignee" {
		was = b.AssigneeID
	}
	return propertyButton{&b, name, value, was, label, key}
}

// propertyField is the form of a property. Its id changes with the value, so that live
// updates replace it even if the user has changed the selection.
type propertyField struct {
	Page                    *ticketPage
	Name, Label, Value, Key string
	Was                     string // the ticket's value; Value may be a refused one
	Options                 []web.Option
	Wrong, Mark             string
}

// Choice is for the template.
func (b ticketPage) Choice(name, label, value string, options []web.Option, key string) propertyField {
	h := fnv.New32a()
	h.Write([]byte(value))
	was := value
	switch name {
	case "subject":
		was = b.Subject
	case "tags":
		was = strings.Join(b.Tags, ", ")
	}
	return propertyField{&b, name, label, value, key, was, options, b.Properties.Wrong[name], strconv.FormatUint(uint64(h.Sum32()), 36)}
}

// found returns the ticket in the request's path.
func (p *pages) found(r *web.Request, q db.Querier) (desk.Ticket, error) {
	text := r.PathValue("number")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(number, 10) != text {
		return desk.Ticket{}, problem.New(problem.NotFound, "there is no such ticket")
	}
	return p.Desk.TicketByNumber(r.Context(), q, r.OrganizationID, number)
}

// ticketPath returns the path of a ticket.
func ticketPath(number int64) string { return "/tickets/" + strconv.FormatInt(number, 10) }

// listQuery returns the query that names the list from which the ticket was opened, and the shown
// part of the thread.
func listQuery(r *web.Request) string {
	asked, q := r.URL.Query(), url.Values{}
	for _, name := range []string{"in", "q", "show"} {
		if v := asked.Get(name); v != "" && len(v) <= 300 {
			q.Set(name, v)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// ticket shows a ticket and marks it as read.
func (p *pages) ticket(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	if err := p.markRead(r, &t); err != nil {
		return err
	}
	return p.showTicket(w, r, t, draftForm{}, nil)
}

// markRead marks the ticket's messages as read by the user. It writes only if there are
// unread ones, so that viewing a ticket costs no write.
func (p *pages) markRead(r *web.Request, t *desk.Ticket) error {
	if !r.Viewed() {
		return nil
	}
	unread, err := p.Desk.Unread(r.Context(), p.DB, r.UserID, []desk.Ticket{*t})
	if err != nil {
		return err
	}
	noticed, err := p.Desk.HasUnseenNotices(r.Context(), p.DB, r.OrganizationID, r.UserID, t.ID)
	if err != nil || !unread[t.ID] && !noticed {
		return err
	}
	err = p.DB.Write(r.Context(), func(tx *db.Tx) error {
		if err := p.Desk.MarkNoticesSeenTx(r.Context(), tx, r.OrganizationID, r.UserID, t.ID); err != nil {
			return err
		}
		return p.Desk.MarkReadTx(r.Context(), tx, r.OrganizationID, r.UserID, t.ID)
	})
	if problem.Of(err) == problem.Unavailable { // the ticket is readable all the same
		return nil
	}
	return err
}

// showTicket renders a ticket. said is a refused draft, wrong are refused properties.
func (p *pages) showTicket(w http.ResponseWriter, r *web.Request, t desk.Ticket, said draftForm, wrong web.Fields) error {
	b := ticketPage{
		Ticket: t, Path: ticketPath(t.Number), In: listQuery(r), Admin: r.Admin(),
		Status: statusBadge(t.Status), Channel: channelLabel(t.Channel), Icon: channelIcon(t.Channel),
		Done: t.Status == desk.StatusResolved || t.Status == desk.StatusClosed, Mine: t.AssigneeID == r.UserID,
		Snoozed: snoozeText(r, t.Snoozed()), Snoozes: snoozeMoments(r),
		Colleagues: p.presence.others(t.ID, r.UserID, r.Now),
	}
	if t.Channel == desk.ChannelAPI && p.Live != nil && p.Live.Typing(r.OrganizationID, t.ID) {
		b.Colleagues = strings.TrimSpace(b.Colleagues + " The customer is typing.")
	}
	if t.Priority != desk.PriorityNormal {
		b.Priority = new(priorityBadge(t.Priority))
	}
	var err error
	if b.List, err = p.listBeside(r, t.Number); err != nil {
		return err
	}
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	if said.ride, err = p.macroRide(r, &t, said.macroOf(r)); err != nil {
		return err
	}
	if err := p.DB.Read(r.Context(), func(tx *db.Tx) error { return p.readTicket(r, tx, &b, members, said) }); err != nil {
		return err
	}
	if err := p.readFollowers(r, &b, members); err != nil {
		return err
	}
	b.Properties = newProperties(r, &t, members, wrong)
	if err := p.readFleet(r, &b); err != nil {
		return err
	}
	page := web.Page{
		Title: "#" + strconv.FormatInt(t.Number, 10) + " " + t.Subject, At: "/inbox", Views: b.List.Views, Class: "panes",
		Scripts: []string{"inbox.js", "ticket.js"}, Body: b, Fields: wrong,
	}
	if said.wrong != "" || len(wrong) > 0 {
		page.Status = http.StatusUnprocessableEntity
	}
	if said.crossed != nil {
		page.Status = http.StatusConflict
	}
	return p.Render(w, r, "ticket", page)
}

// readTicket fills b from one snapshot.
func (p *pages) readTicket(r *web.Request, tx *db.Tx, b *ticketPage, members []account.User, said draftForm) error {
	ctx := r.Context()
	related, err := p.Desk.Related(ctx, tx, r.OrganizationID, &b.Ticket)
	if err != nil {
		return err
	}
	if b.Thread, err = p.readThread(r, tx, &b.Ticket, members, related); err != nil {
		return err
	}
	b.Related = nil
	for i := range related {
		b.Related = append(b.Related, newRelation(&b.Ticket, &related[i]))
		if related[i].ID == b.MergedIntoID {
			b.Survivor = ticketPath(related[i].Number)
		}
	}
	if b.MergedIntoID == "" {
		if b.Composer, err = p.newComposer(r, tx, &b.Ticket, said); err != nil {
			return err
		}
		b.Composer.Seen = b.Thread.Last
	}
	b.Panel, err = p.readCustomerPanel(r, tx, &b.Ticket)
	return err
}

func newRelation(t, other *desk.Ticket) relation {
	r := relation{Path: ticketPath(other.Number), Number: other.Number, Subject: other.Subject, Status: statusBadge(other.Status)}
	switch {
	case t.MergedIntoID == other.ID:
		r.Label = "Merged into"
	case other.MergedIntoID == t.ID:
		r.Label, r.Undo = "Merged in", r.Path+"/unmerge"
	case t.LinkedTicketID == other.ID:
		r.Label = map[string]string{
			desk.LinkClosed: "Continues closed ticket", desk.LinkSplit: "Split from", desk.LinkTicketTag: "Referenced in subject",
		}[t.LinkReason]
	default:
		r.Label = map[string]string{
			desk.LinkClosed: "Continued in", desk.LinkSplit: "Split to", desk.LinkTicketTag: "Referenced by",
		}[other.LinkReason]
	}
	r.Label = cmp.Or(r.Label, "See also")
	return r
}

// properties are a ticket's editable fields.
type properties struct {
	Statuses, Priorities, Assignees []web.Option
	Status, Priority, Assignee      string
	Subject, Tags                   string
	Wrong                           map[string]string // errors of refused fields
	SLA                             []targetRow
	Created, Updated, Resolved      web.Time
	Answered                        web.Time
	Metadata                        []pair
}

type pair struct{ Name, Value string }

// targetRow is an SLA target of the ticket.
type targetRow struct {
	Label  string
	Badge  web.Badge
	Filled int // percent
	Says   string
	At     web.Time
}

func newProperties(r *web.Request, t *desk.Ticket, members []account.User, wrong web.Fields) properties {
	b := properties{
		Status: string(t.Status), Priority: string(t.Priority), Assignee: t.AssigneeID, Subject: t.Subject, Tags: strings.Join(t.Tags, ", "),
		Created: r.Time(t.CreatedAt), Updated: r.Time(t.UpdatedAt), Resolved: r.Time(t.ResolvedAt), Answered: r.Time(t.FirstRespondedAt),
		Wrong: make(map[string]string),
	}
	for _, s := range desk.Statuses {
		b.Statuses = append(b.Statuses, web.Option{Value: string(s), Label: statusLabel(s)})
	}
	for _, s := range desk.Priorities {
		b.Priorities = append(b.Priorities, web.Option{Value: string(s), Label: priorityLabel(s)})
	}
	b.Assignees = []web.Option{{Label: "Unassigned"}}
	there := t.AssigneeID == ""
	for _, m := range members {
		label := cmp.Or(m.Name, m.Email)
		if m.ID == r.UserID {
			label += " (you)"
		}
		b.Assignees = append(b.Assignees, web.Option{Value: m.ID, Label: label})
		there = there || m.ID == t.AssigneeID
	}
	if !there {
		b.Assignees = append(b.Assignees, web.Option{Value: t.AssigneeID, Label: "Former member"})
	}
	for _, f := range wrong {
		b.Wrong[f.Name] = f.Error
		switch f.Name {
		case "subject":
			b.Subject = f.Value
		case "tags":
			b.Tags = f.Value
		}
	}
	for _, s := range t.SLA {
		b.SLA = append(b.SLA, newTargetRow(r, &s))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metadata)) {
		b.Metadata = append(b.Metadata, pair{name, t.Metadata[name]})
	}
	return b
}

func newTargetRow(r *web.Request, s *desk.SLA) targetRow {
	l := targetRow{Label: "First response"}
	if s.Metric == desk.Resolution {
		l.Label = "Resolution"
	}
	left := s.DueAt.Sub(r.Now)
	switch s.State {
	case desk.SLAMet:
		l.Badge, l.Says, l.At = web.Badge{Text: "Met", Tone: web.Good, Icon: "check"}, "Met", r.Time(s.MetAt)
	case desk.SLAPaused:
		l.Badge, l.Says = web.Badge{Text: "Paused", Icon: "pause"}, "Paused while the ticket is pending or on hold"
	case desk.SLABreached:
		l.Badge, l.Says, l.At, l.Filled = web.Badge{Text: "Overdue", Tone: web.Bad, Icon: "alert"}, "Was due", r.Time(s.DueAt), 100
		if !s.MetAt.IsZero() {
			l.Badge = web.Badge{Text: "Met late", Tone: web.Bad, Icon: "alert"}
		}
	default:
		l.Badge, l.Says, l.At = web.Badge{Text: "Due in " + approximate(left), Icon: "clock"}, "Due", r.Time(s.DueAt)
		target := float64(s.TargetMinutes) * 60
		if target > 0 {
			l.Filled = min(100, max(2, int(100*(1-left.Seconds()/target))))
		}
		switch {
		case left <= 0:
			l.Badge = web.Badge{Text: "Overdue", Tone: web.Bad, Icon: "alert"}
		case !s.WarnedAt.IsZero():
			l.Badge.Tone = web.Warning
		}
	}
	return l
}

// submitError returns err as a problem if it is about the input or a quota: the input is then
// rendered again.
func submitError(err error) (*problem.Error, bool) {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return nil, false
	}
	switch e.Kind {
	case problem.Invalid, problem.Conflict, problem.Precondition, problem.TooLarge, problem.RateLimited:
		return e, true
	}
	return nil, false
}

// inTransaction runs fn in a transaction with the ticket in the request's path.
func (p *pages) inTransaction(r *web.Request, fn func(ctx context.Context, tx *db.Tx, t desk.Ticket) error) error {
	return p.DB.Write(r.Context(), func(tx *db.Tx) error {
		t, err := p.found(r, tx)
		if err != nil {
			return err
		}
		return fn(r.Context(), tx, t)
	})
}
