package inbox

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// unassigned is the option that unassigns tickets.
const unassigned = "nobody"

// bulkChange updates the selected tickets, or marks them as read or unread.
func (p *pages) bulkChange(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	back := returnPath(form)
	if form.Get("do") == "undo" {
		return p.undo(w, r, form, back)
	}
	selected, err := p.selectedTickets(r, form)
	if wrong := refusedSearch(err); wrong != "" {
		return p.Redirect(w, back, web.Notice{Text: "Nothing was changed. " + wrong, Bad: true})
	}
	if err != nil {
		return err
	}
	if selected.all == 0 {
		return p.Redirect(w, back, web.Notice{Text: "Select at least one ticket.", Bad: true})
	}
	if do := form.Get("do"); do == "read" || do == "unread" {
		return p.markAll(w, r, selected.ids, do == "read", back)
	}
	u, what := parseBulkUpdate(form)
	if what == nil {
		return p.Redirect(w, back, web.Notice{Text: "Choose a change to apply.", Bad: true})
	}
	done, err := p.updateTickets(r, selected.ids, u)
	if pr, ok := err.(*problem.Error); ok && pr.Kind == problem.Invalid && len(done) == 0 {
		return p.Redirect(w, back, web.Notice{Text: "Nothing was changed: " + problemText(pr) + ".", Bad: true})
	}
	if err != nil && len(done) == 0 {
		return err
	}
	n := bulkNotice(done, selected.all, what, u, back)
	if err != nil {
		n.Bad, n.Text = true, n.Text+" Then an error occurred; try again for the others."
	}
	return p.Redirect(w, back, n)
}

// selection is the tickets of a bulk change.
type selection struct {
	ids []string
	all int // with those that do not exist any more
}

// maxChanged is the maximum of tickets that a bulk change of a whole list changes.
const maxChanged = 1000

// selectedTickets returns the tickets that a form selects: single ones, or the first maxChanged of
// a list.
func (p *pages) selectedTickets(r *web.Request, form url.Values) (s selection, err error) {
	if form.Get("all") == "" {
		numbers := parseNumbers(form["ticket"])
		if s.all = len(numbers); s.all > 0 {
			s.ids, err = p.ticketIDs(r, p.DB, numbers)
		}
		return s, err
	}
	err = p.DB.Read(r.Context(), func(tx *db.Tx) error {
		s = selection{}
		saved, err := p.Desk.Views(r.Context(), tx, r.OrganizationID, r.UserID)
		if err != nil {
			return err
		}
		v, ok := findView(form.Get("in"), saved)
		if !ok {
			return problem.New(problem.NotFound, "there is no such view")
		}
		at := readPlace(&v, form)
		tickets, _, err := p.findRows(r, tx, at.query(r, &v), maxChanged)
		for i := range tickets {
			s.ids = append(s.ids, tickets[i].ID)
		}
		s.all = len(s.ids)
		return err
	})
	return s, err
}

// updateTickets changes tickets, as many in one transaction as package desk permits. An error
// leaves the changes of the earlier transactions, which it returns.
func (p *pages) updateTickets(r *web.Request, ids []string, u desk.BulkUpdate) (done []desk.UpdateResult, err error) {
	for chunk := range slices.Chunk(ids, maxFound) {
		var part []desk.UpdateResult
		err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
			part, err = p.Desk.UpdateTicketsTx(r.Context(), tx, r.OrganizationID, chunk, u)
			return err
		})
		if err != nil {
			return done, err
		}
		done = append(done, part...)
	}
	return done, nil
}

// parseBulkUpdate returns the update in a form and its description; nil for none.
func parseBulkUpdate(form url.Values) (u desk.BulkUpdate, what []string) {
	if s := desk.Status(form.Get("status")); s != "" {
		u.Status = &s
		what = append(what, strings.ToLower(statusLabel(s)))
	}
	if s := desk.Priority(form.Get("priority")); s != "" {
		u.Priority = &s
		what = append(what, strings.ToLower(priorityLabel(s))+" priority")
	}
	if id := form.Get("assignee"); id == unassigned {
		u.AssigneeID = new(string)
		what = append(what, "nobody’s")
	} else if id != "" {
		u.AssigneeID = &id
		what = append(what, "assigned")
	}
	if u.AddTags = parseTags(form.Get("add")); len(u.AddTags) > 0 {
		what = append(what, "tagged")
	}
	if u.RemoveTags = parseTags(form.Get("remove")); len(u.RemoveTags) > 0 {
		what = append(what, "without "+strings.Join(u.RemoveTags, ", "))
	}
	return u, what
}

// parseTags parses comma-separated tags.
func parseTags(text string) (tags []string) {
	for tag := range strings.SplitSeq(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// parseNumbers returns the distinct ticket numbers in a form, at most maxSelected.
func parseNumbers(values []string) []int64 {
	var numbers []int64
	for _, v := range values[:min(len(values), maxSelected)] {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// maxSelected is the maximum of tickets in a filter of package desk.
const maxSelected = 100

// ticketIDs returns the ids of the existing tickets with numbers.
func (p *pages) ticketIDs(r *web.Request, q db.Querier, numbers []int64) ([]string, error) {
	tickets, _, err := p.Desk.FindTickets(r.Context(), q, r.OrganizationID, desk.TicketQuery{Number: numbers, Limit: len(numbers)})
	ids := make([]string, len(tickets))
	for i := range tickets {
		ids[i] = tickets[i].ID
	}
	return ids, err
}

// bulkNotice returns the notice of a bulk update, with its undo.
func bulkNotice(done []desk.UpdateResult, all int, what []string, u desk.BulkUpdate, back string) web.Notice {
	changed := 0
	var refused *desk.UpdateResult
	for i := range done {
		if done[i].Err != nil {
			refused = &done[i]
		} else {
			changed++
		}
	}
	n := web.Notice{Text: web.Count(changed, "%d ticket changed: ", "%d tickets changed: ") + strings.Join(what, ", ") + "."}
	if refused != nil {
		pr, _ := refused.Err.(*problem.Error)
		n.Text += " " + web.Count(len(done)-changed, "%d stays as it was: ", "%d stay as they were: ") + problemText(pr) + "."
	}
	if gone := all - len(done); gone > 0 {
		n.Text += " " + web.Count(gone, "%d is not there any more.", "%d are not there any more.")
	}
	n.Bad = changed == 0
	undo := map[string]string{"do": "undo", "back": back}
	if u.Status != nil {
		undo["status"] = previousValues(done, func(t *desk.Ticket) string { return string(t.Status) })
		undo["from-status"] = string(*u.Status)
	}
	if u.AssigneeID != nil {
		undo["assignee"] = previousValues(done, func(t *desk.Ticket) string { return cmp.Or(t.AssigneeID, unassigned) })
		undo["from-assignee"] = cmp.Or(*u.AssigneeID, unassigned)
	}
	size := 0
	for _, v := range undo {
		size += len(v)
	}
	// Only status and assignee can be undone, and only what fits in a cookie.
	if size > 0 && size < 2000 && undo["status"]+undo["assignee"] != "" && u.Priority == nil && len(u.AddTags)+len(u.RemoveTags) == 0 {
		n.Undo, n.Fields = "/inbox", undo
	}
	return n
}

// previousValues encodes the tickets' values before the update: "open 12 13,pending 15".
func previousValues(done []desk.UpdateResult, value func(*desk.Ticket) string) string {
	numbers := make(map[string][]string)
	var order []string
	for i := range done {
		was := value(&done[i].Before)
		if done[i].Err != nil || was == value(&done[i].After) {
			continue
		}
		if numbers[was] == nil {
			order = append(order, was)
		}
		numbers[was] = append(numbers[was], strconv.FormatInt(done[i].Before.Number, 10))
	}
	for i, was := range order {
		order[i] = was + " " + strings.Join(numbers[was], " ")
	}
	return strings.Join(order, ",")
}

// undo restores the tickets that have not changed since.
func (p *pages) undo(w http.ResponseWriter, r *web.Request, form url.Values, back string) error {
	changed, since := 0, 0
	err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
		changed, since = 0, 0
		for _, what := range []string{"status", "assignee"} {
			// A ticket has one value, so there are at most maxSelected parts.
			for _, part := range strings.SplitN(form.Get(what), ",", maxSelected) {
				words := strings.Fields(part)
				if len(words) == 0 {
					continue
				}
				for numbers := range slices.Chunk(words[1:], maxSelected) {
					n, all, err := p.undoPart(r, tx, what, form.Get("from-"+what), words[0], parseNumbers(numbers))
					if err != nil {
						return err
					}
					changed, since = changed+n, since+all-n
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	n := web.Notice{Text: web.Count(changed, "%d ticket is as before.", "%d tickets are as before.")}
	if since > 0 {
		n.Text += " " + web.Count(since, "%d ticket had been changed since.", "%d tickets had been changed since.")
	}
	return p.Redirect(w, back, n)
}

// undoPart restores the value was of tickets whose value is still from. It returns the number of
// restored and of all tickets.
func (p *pages) undoPart(r *web.Request, tx *db.Tx, what, from, was string, numbers []int64) (changed, all int, err error) {
	if len(numbers) == 0 { // a filter without numbers would match all tickets
		return 0, 0, nil
	}
	u := desk.BulkUpdate{}
	value := func(t *desk.Ticket) string { return string(t.Status) }
	if what == "status" {
		u.Status = new(desk.Status(was))
	} else {
		u.AssigneeID = new(strings.TrimPrefix(was, unassigned))
		value = func(t *desk.Ticket) string { return cmp.Or(t.AssigneeID, unassigned) }
	}
	tickets, _, err := p.Desk.FindTickets(r.Context(), tx, r.OrganizationID, desk.TicketQuery{Number: numbers, Limit: len(numbers)})
	if err != nil {
		return 0, 0, err
	}
	var ids []string
	for i := range tickets {
		if value(&tickets[i]) == from {
			ids = append(ids, tickets[i].ID)
		}
	}
	if len(ids) == 0 {
		return 0, len(numbers), nil
	}
	done, err := p.Desk.UpdateTicketsTx(r.Context(), tx, r.OrganizationID, ids, u)
	for _, d := range done {
		if d.Err == nil {
			changed++
		}
	}
	return changed, len(numbers), err
}

// markAll marks tickets as read or unread.
func (p *pages) markAll(w http.ResponseWriter, r *web.Request, ids []string, read bool, back string) error {
	mark, word := p.Desk.MarkUnreadTx, "unread"
	if read {
		mark, word = p.Desk.MarkReadTx, "read"
	}
	for chunk := range slices.Chunk(slices.Sorted(slices.Values(ids)), maxFound) {
		if err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
			for _, id := range chunk {
				if err := mark(r.Context(), tx, r.OrganizationID, r.UserID, id); err != nil && problem.Of(err) != problem.NotFound {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return p.Redirect(w, back, web.Notice{Text: web.Count(len(ids), "%d ticket marked as ", "%d tickets marked as ") + word + "."})
}

// returnPath returns the path of the list or ticket that a form came from.
func returnPath(form url.Values) string {
	u, err := url.Parse(form.Get("back"))
	if err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && !strings.ContainsAny(form.Get("back"), "\\\r\n\t") &&
		(u.Path == "/inbox" || strings.HasPrefix(u.Path, "/inbox/") || strings.HasPrefix(u.Path, "/tickets/")) {
		return u.RequestURI()
	}
	return "/inbox"
}

// problemText returns a problem as one sentence without its full stop.
func problemText(p *problem.Error) string {
	if p == nil {
		return "something went wrong"
	}
	for _, i := range p.Issues {
		return strings.ReplaceAll(i.Path, "_id", "") + " " + i.Message
	}
	return p.Message
}
