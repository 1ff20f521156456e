package inbox

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// Values of "show" in the query of a ticket's page; without one it shows messages and changes.
const (
	showMessages = "messages"
	showChanges  = "changes"
)

const (
	// maxChanges is the number of changes on a page of the thread, newest first.
	maxChanges = 100
	// Up to maxFolded changes of one actor within foldTime share a line.
	foldTime  = 5 * time.Minute
	maxFolded = 8
)

// filterLink is a link of the filter above the thread.
type filterLink struct {
	Label, Path string
	Current     bool
}

// newFilter returns the filter of a ticket's thread.
func newFilter(r *web.Request, t *desk.Ticket) []filterLink {
	list := []filterLink{{Label: "All"}, {Label: "Messages"}, {Label: "Changes"}}
	for i, show := range []string{"", showMessages, showChanges} {
		q := url.Values{"show": {show}}
		if show == "" {
			q = url.Values{"show": nil}
		}
		list[i].Path, list[i].Current = threadPath(r, t, q), shows(r) == show
	}
	return list
}

// shows returns the selected part of the thread; empty: all of it.
func shows(r *web.Request) string {
	if s := r.URL.Query().Get("show"); s == showMessages || s == showChanges {
		return s
	}
	return ""
}

// changeLine is a line with one actor's changes of about the same time.
type changeLine struct {
	Who     string
	Words   string // "set status to Pending, added tag lock"
	At      web.Time
	Surface string // "MCP"; empty: the dashboard, or evident
	Undo    []pair // fields of the form that undoes it; empty: it cannot be undone

	first  desk.TicketChange
	folded int // further changes
}

// fold adds the changes of another line if it is of the same actor, surface and time.
func (l *changeLine) fold(o *changeLine) bool {
	if l.first.Actor != o.first.Actor || l.first.Surface != o.first.Surface || l.Who != o.Who ||
		o.first.At.Sub(l.first.At) > foldTime || l.folded+1 == maxFolded {
		return false
	}
	l.folded++
	l.Words += ", " + o.Words
	l.Undo = append(l.Undo, o.Undo...)
	return true
}

// changeWriter writes the lines of a ticket's changes.
type changeWriter struct {
	r       *web.Request
	ticket  *desk.Ticket
	members map[string]string // names by id
	keys    map[string]string // names by id
	numbers map[string]int64  // of related tickets, by id
	newest  map[string]int64  // number of the newest change of each field; nil: nothing is undone here
}

// readChanges returns the lines of changes that the query selects, oldest first, and the cursor of
// the previous page. latest reports that the newest changes of the ticket are among them.
func (p *pages) readChanges(r *web.Request, tx *db.Tx, t *desk.Ticket, query desk.ChangeQuery, members []account.User, related []desk.Ticket, latest bool) (lines []*changeLine, earlier string, err error) {
	query.Limit = maxChanges
	changes, next, err := p.Desk.FindChanges(r.Context(), tx, r.OrganizationID, t.ID, query)
	if err != nil {
		return nil, "", err
	}
	w := changeWriter{r: r, ticket: t, members: memberNames(members), numbers: make(map[string]int64)}
	for i := range related {
		w.numbers[related[i].ID] = related[i].Number
	}
	var keys []string
	for i := range changes {
		if a := changes[i].Actor; a.Type == audit.Key && !slices.Contains(keys, a.ID) {
			keys = append(keys, a.ID)
		}
	}
	if p.Keys != nil {
		if w.keys, err = p.Keys.Names(r.Context(), tx, r.OrganizationID, keys); err != nil {
			return nil, "", err
		}
	}
	if latest && t.MergedIntoID == "" {
		w.newest = make(map[string]int64)
		for i := range changes {
			for field := range changes[i].Changes {
				if _, ok := w.newest[field]; !ok {
					w.newest[field] = changes[i].Number
				}
			}
		}
	}
	for i := range slices.Backward(changes) {
		if l := w.line(&changes[i]); l.Words != "" {
			lines = append(lines, l)
		}
	}
	if next != nil {
		earlier = writePosition(next)
	}
	return lines, earlier, nil
}

// changesBetween returns the lines of changes between two times of the thread; zero: no bound.
func (p *pages) changesBetween(r *web.Request, tx *db.Tx, t *desk.Ticket, from, until time.Time, members []account.User, related []desk.Ticket) ([]*changeLine, error) {
	var q desk.ChangeQuery
	if !from.IsZero() {
		q.At.Low = &from
	}
	if !until.IsZero() {
		q.At.High, q.At.HighOpen = &until, true
	}
	lines, _, err := p.readChanges(r, tx, t, q, members, related, until.IsZero())
	// The first message says as much.
	return slices.DeleteFunc(lines, func(l *changeLine) bool {
		return l.first.Action == desk.ChangeCreated && (l.first.Actor.Type == desk.ActorCustomer || l.first.Actor.Type == audit.System)
	}), err
}

// readChangesOnly fills th with a page of the ticket's changes only.
func (p *pages) readChangesOnly(r *web.Request, tx *db.Tx, t *desk.Ticket, members []account.User, related []desk.Ticket, th *thread) error {
	before := readPosition(r.URL.Query().Get("before"))
	lines, earlier, err := p.readChanges(r, tx, t, desk.ChangeQuery{After: before}, members, related, before == nil)
	if err != nil {
		return err
	}
	if earlier != "" {
		th.Earlier = threadPath(r, t, url.Values{"before": {earlier}})
	}
	if before != nil {
		th.Newest = threadPath(r, t, url.Values{})
	}
	newest, _, err := p.Desk.FindMessages(r.Context(), tx, r.OrganizationID, t.ID, desk.MessageQuery{Limit: 1})
	if err != nil {
		return err
	}
	if th.Last, err = p.lastSeen(r, tx, t, newest); err != nil {
		return err
	}
	b := threadBuilder{r: r}
	b.addLines(lines)
	b.addOthers(time.Time{})
	th.Entries = b.entries
	if before == nil {
		return p.readPending(r, tx, t, memberNames(members), th)
	}
	return nil
}

// line returns a change in words.
func (w *changeWriter) line(c *desk.TicketChange) *changeLine {
	l := &changeLine{Who: w.who(c), At: w.r.Time(c.At), Surface: surfaceLabels[c.Surface], first: *c}
	var words []string
	switch c.Action {
	case desk.ChangeCreated:
		words = append(words, "created the ticket")
	case desk.ChangeSLABreached:
		words = append(words, "missed")
	default:
		for _, field := range changedFields {
			change, ok := c.Changes[field]
			if !ok || field == "status" && c.Action != desk.ChangeUpdated { // follows from a merge
				continue
			}
			words = append(words, w.words(c, field, change))
			if w.undoable(c, field, change) {
				l.Undo = append(l.Undo, pair{field, fieldText(change.From)}, pair{"was." + field, fieldText(change.To)})
			}
		}
	}
	l.Words = strings.Join(words, ", ")
	return l
}

// surfaceLabels has the surfaces that a line names. The others are evident from the actor.
var surfaceLabels = map[string]string{audit.RPC: "tRPC", audit.MCP: "MCP", audit.CLI: "the command line"}

// who returns the name of the actor of a change, or of the target that was missed.
func (w *changeWriter) who(c *desk.TicketChange) string {
	switch a := c.Actor; {
	case c.Action == desk.ChangeSLABreached:
		if _, ok := c.Changes[string(desk.FirstResponse)]; ok {
			return "First response target"
		}
		return "Resolution target"
	case a.Type == audit.User && a.ID == "":
		return "Your organization"
	case a.Type == audit.User:
		return cmp.Or(w.members[a.ID], "Former member")
	case a.Type == audit.Key:
		return strings.TrimSpace("API key " + w.keys[a.ID])
	case a.Type == desk.ActorCustomer:
		return cmp.Or(a.Name, "The customer")
	}
	return "Kickstand"
}

// changedFields are the fields of changes, in the order of a line.
var changedFields = []string{
	"merged_into_id", "merged_ticket_id", "split_ticket_id", "status", "snoozed_until", "priority", "assignee", "customer", "tags", "subject", "external_id", "metadata",
}

// words describes the change of a field.
func (w *changeWriter) words(c *desk.TicketChange, field string, change event.Change) string {
	from, to := fieldText(change.From), fieldText(change.To)
	switch field {
	case "merged_into_id":
		if to == "" {
			return "undid the merge into " + w.number(from)
		}
		return "merged the ticket into " + w.number(to)
	case "merged_ticket_id":
		if to == "" {
			return "undid the merge of " + w.number(from)
		}
		return "merged " + w.number(to) + " into this ticket"
	case "split_ticket_id":
		return "split messages off to " + w.number(to)
	case "status":
		if c.Actor.Type == desk.ActorCustomer {
			return "reopened the ticket"
		}
		return "set status to " + statusLabel(desk.Status(to))
	case "snoozed_until":
		return w.snoozeWords(to)
	case "priority":
		return "set priority to " + priorityLabel(desk.Priority(to))
	case "assignee":
		if to == "" {
			return "unassigned the ticket"
		}
		if to == c.Actor.ID {
			return "took the ticket"
		}
		return "assigned the ticket to " + cmp.Or(w.members[to], "a former member")
	case "customer":
		return "moved the ticket to another customer record"
	case "tags":
		return tagWords(fieldTags(change.From), fieldTags(change.To))
	case "subject":
		if to == "" {
			return "changed the subject"
		}
		return "changed the subject to “" + safehtml.Clip(to, 120) + "”"
	case "external_id":
		return "changed the external id"
	}
	return "changed the metadata"
}

// snoozeWords describes a snooze, in the form of events.
func (w *changeWriter) snoozeWords(until string) string {
	if until == "" {
		return "ended the snooze"
	}
	if at, err := time.Parse(time.RFC3339, until); err == nil {
		return "snoozed the ticket until " + w.r.Time(at).When()
	}
	return "snoozed the ticket until the customer replies"
}

// number returns the number of a related ticket.
func (w *changeWriter) number(id string) string {
	if n := w.numbers[id]; n != 0 {
		return "#" + strconv.FormatInt(n, 10)
	}
	return "another ticket"
}

// tagWords describes a change of tags.
func tagWords(from, to []string) string {
	var words []string
	add := func(verb string, tags, without []string) {
		tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return slices.Contains(without, tag) })
		switch len(tags) {
		case 0:
		case 1:
			words = append(words, verb+" tag "+tags[0])
		default:
			words = append(words, verb+" tags "+strings.Join(tags, ", "))
		}
	}
	add("added", to, from)
	add("removed", from, to)
	if len(words) == 0 {
		return "reordered the tags"
	}
	return strings.Join(words, " and ")
}

// undoable reports whether a form can undo the change of a field: it is the field's newest, the
// ticket still has the value, and the value before is known and can be set.
func (w *changeWriter) undoable(c *desk.TicketChange, field string, change event.Change) bool {
	if w.newest == nil || w.newest[field] != c.Number || c.Action != desk.ChangeUpdated {
		return false
	}
	from, to := fieldText(change.From), fieldText(change.To)
	switch field {
	case "status":
		return from != "" && to == string(w.ticket.Status)
	case "priority":
		return from != "" && to == string(w.ticket.Priority)
	case "assignee":
		return to == w.ticket.AssigneeID && (from == "" || w.members[from] != "")
	case "tags":
		return slices.Equal(fieldTags(change.To), w.ticket.Tags)
	case "subject":
		return from != "" && to == w.ticket.Subject
	}
	return false
}

// fieldText returns a stored value as in the forms of properties; empty for null.
func fieldText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	return strings.Join(fieldTags(v), ", ")
}

// fieldTags returns stored tags.
func fieldTags(v any) []string {
	list, _ := v.([]any)
	var tags []string
	for _, v := range list {
		if tag, ok := v.(string); ok {
			tags = append(tags, tag)
		}
	}
	return tags
}
