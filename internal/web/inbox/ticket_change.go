package inbox

import (
	"context"
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

// changeProperties updates the fields in a form and offers an undo that posts the old
// values. For each field, "was.status" and so on has the value that the user saw, so that
// a colleague's change is not overwritten unseen.
func (p *pages) changeProperties(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	var before, after desk.Ticket
	err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) (err error) {
		before = t
		if err := changedSince(&t, form); err != nil {
			return err
		}
		u := desk.Update{}
		if form.Has("status") {
			u.Status = new(desk.Status(form.Get("status")))
		}
		if form.Has("priority") {
			u.Priority = new(desk.Priority(form.Get("priority")))
		}
		if form.Has("assignee") {
			u.AssigneeID = new(form.Get("assignee"))
		}
		if form.Has("subject") {
			u.Subject = new(strings.TrimSpace(form.Get("subject")))
		}
		if form.Has("tags") {
			u.Tags = new(readTags(form.Get("tags")))
			if form.Has("was.tags") {
				u.Tags = new(retag(t.Tags, readTags(form.Get("was.tags")), *u.Tags))
			}
		}
		if u.Snooze, err = readSnooze(r, form); err != nil {
			return err
		}
		after, err = p.Desk.UpdateTx(ctx, tx, r.OrganizationID, t.ID, u)
		return err
	})
	if e, ok := submitError(err); ok && before.ID != "" {
		if form.Has("undo") {
			return p.Redirect(w, ticketPath(before.Number)+listQuery(r), web.Notice{Text: "Undo failed. " + asSentence(e.Message), Bad: true})
		}
		if form.Has("at") {
			text := "Not snoozed. " + asSentence(e.Message)
			if len(e.Issues) > 0 {
				text = "Not snoozed. " + asSentence("the time "+e.Issues[0].Message)
			}
			return p.Redirect(w, ticketPath(before.Number)+listQuery(r), web.Notice{Text: text, Bad: true})
		}
		return p.showTicket(w, r, before, draftForm{}, wrongProperties(form, e))
	}
	if err != nil {
		return err
	}
	n := changeNotice(&before, &after)
	if n.Undo != "" {
		n.Undo += listQuery(r)
	}
	return p.Redirect(w, ticketPath(before.Number)+listQuery(r), n)
}

// readSnooze returns the snooze of a form; nil: unchanged.
func readSnooze(r *web.Request, form url.Values) (*desk.Snooze, error) {
	if form.Get("at") == untilReply {
		return &desk.Snooze{UntilReply: true}, nil
	}
	at, err := readMoment(r, form)
	if err != nil || at.IsZero() {
		return nil, err
	}
	return &desk.Snooze{Until: at}, nil
}

// changedSince returns a conflict if a field has changed since the form was rendered,
// unless it already has the wanted value. Tags are merged instead; see [retag].
func changedSince(t *desk.Ticket, form url.Values) error {
	for name, now := range map[string]string{"status": string(t.Status), "priority": string(t.Priority), "assignee": t.AssigneeID, "subject": t.Subject} {
		if was := "was." + name; form.Has(name) && form.Has(was) && form.Get(was) != now && strings.TrimSpace(form.Get(name)) != now {
			return problem.New(problem.Conflict, "It has been changed since by another member and was not updated.")
		}
	}
	return nil
}

// retag applies the difference between was and wanted to now.
func retag(now, was, wanted []string) []string {
	tags := slices.DeleteFunc(slices.Clone(now), func(tag string) bool { return slices.Contains(was, tag) && !slices.Contains(wanted, tag) })
	for _, tag := range wanted {
		if !slices.Contains(was, tag) && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// readTags parses comma-separated tags.
func readTags(text string) []string {
	tags := []string{}
	for tag := range strings.SplitSeq(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// changeNotice returns the notice of an update, with its undo.
func changeNotice(before, after *desk.Ticket) web.Notice {
	n := web.Notice{Undo: ticketPath(before.Number) + "/properties", Fields: map[string]string{"undo": "1"}}
	back := func(name, from, to string) { n.Fields[name], n.Fields["was."+name] = from, to }
	var words []string
	if before.Status != after.Status {
		back("status", string(before.Status), string(after.Status))
		words = append(words, "Status set to "+strings.ToLower(statusLabel(after.Status))+".")
		addSnooze(n.Fields, before)
	} else if before.Snoozed() != after.Snoozed() {
		words = append(words, "Snooze changed.")
		addSnooze(n.Fields, before)
	}
	if before.Priority != after.Priority {
		back("priority", string(before.Priority), string(after.Priority))
		words = append(words, "Priority set to "+strings.ToLower(priorityLabel(after.Priority))+".")
	}
	if before.AssigneeID != after.AssigneeID {
		back("assignee", before.AssigneeID, after.AssigneeID)
		if words = append(words, "Ticket assigned."); after.AssigneeID == "" {
			words[len(words)-1] = "Ticket unassigned."
		}
	}
	if before.Subject != after.Subject {
		back("subject", before.Subject, after.Subject)
		words = append(words, "Subject updated.")
	}
	if !slices.Equal(before.Tags, after.Tags) {
		back("tags", strings.Join(before.Tags, ", "), strings.Join(after.Tags, ", "))
		words = append(words, "Tags updated.")
	}
	if len(words) == 0 {
		return web.Notice{Text: "No changes."}
	}
	n.Text = strings.Join(words, " ")
	// The notice is stored in a cookie, which is limited to about 4 KB.
	size := 0
	for _, v := range n.Fields {
		size += len(v)
	}
	if size > 1500 {
		n.Undo, n.Fields = "", nil
	}
	return n
}

// wrongProperties returns the fields of a refused form with their errors.
func wrongProperties(form url.Values, e *problem.Error) web.Fields {
	fs := web.Fields{}
	for _, f := range []web.Field{
		{Name: "status", Label: "Status"}, {Name: "priority", Label: "Priority"}, {Name: "assignee", Label: "Assignee"},
		{Name: "subject", Label: "Subject"}, {Name: "tags", Label: "Tags"},
	} {
		if form.Has(f.Name) {
			fs = append(fs, f)
		}
	}
	fs.Fill(form)
	for i, issue := range e.Issues {
		name, _, _ := strings.Cut(issue.Path, ".")
		e.Issues[i].Path = strings.TrimSuffix(name, "_id")
	}
	fs.Refused(e)
	return fs
}

// candidate is a ticket to merge into.
type candidate struct {
	ID, Path string
	Number   int64
	Subject  string
	Customer string
	Status   web.Badge
	Updated  web.Time
	Merge    string // path of the form that merges into it
}

func newCandidate(r *web.Request, t *desk.Ticket, merge string) candidate {
	return candidate{t.ID, ticketPath(t.Number), t.Number, t.Subject, requesterName(t), statusBadge(t.Status), r.Time(t.UpdatedAt), merge}
}

// mergePage is the body of the merge page.
type mergePage struct {
	desk.Ticket
	Path, In string
	Search   string
	Own      []candidate // of the same customer
	Found    []candidate // matches of the search
	Nothing  bool        // the search has no match
}

const maxCandidates = 15

// showMergeForm lists the customer's other tickets, and the matches of a search by number
// or words.
func (p *pages) showMergeForm(w http.ResponseWriter, r *web.Request) error {
	b := mergePage{Search: strings.TrimSpace(r.URL.Query().Get("find")), In: listQuery(r)}
	err := p.DB.Read(r.Context(), func(tx *db.Tx) error {
		t, err := p.found(r, tx)
		if err != nil {
			return err
		}
		if t.MergedIntoID != "" {
			return problem.New(problem.Conflict, "This ticket is already merged.")
		}
		b.Ticket, b.Path = t, ticketPath(t.Number)
		list := func(q desk.TicketQuery) ([]candidate, error) {
			q.Limit = maxCandidates
			tickets, _, err := p.Desk.FindTickets(r.Context(), tx, r.OrganizationID, q)
			var out []candidate
			for _, o := range tickets {
				if o.ID != t.ID && o.MergedIntoID == "" {
					out = append(out, newCandidate(r, &o, b.Path+"/merge"+b.In))
				}
			}
			return out, err
		}
		if b.Own, err = list(desk.TicketQuery{CustomerID: []string{t.Customer.ID}}); err != nil {
			return err
		}
		if b.Search == "" {
			return nil
		}
		q := desk.TicketQuery{Text: b.Search, Reader: desk.Reader{UserID: r.UserID, Zone: r.Now.Location()}}
		if n, err := strconv.ParseInt(strings.TrimPrefix(b.Search, "#"), 10, 64); err == nil && n > 0 {
			q = desk.TicketQuery{Number: []int64{n}}
		}
		if b.Found, err = list(q); refusedSearch(err) != "" || problem.Of(err) == problem.Invalid {
			b.Found, err = nil, nil
		}
		b.Nothing = len(b.Found) == 0
		return err
	})
	if err != nil {
		return err
	}
	return p.Render(w, r, "merge", web.Page{Title: "Merge ticket #" + strconv.FormatInt(b.Number, 10), At: "/inbox", Body: b})
}

func (p *pages) merge(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	var merged, survivor desk.Ticket
	err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, t desk.Ticket) (err error) {
		merged = t
		survivor, err = p.Desk.MergeTx(ctx, tx, r.OrganizationID, t.ID, form.Get("into"))
		return err
	})
	if problem.Of(err) == problem.Invalid {
		return problem.New(problem.Conflict, "The selected ticket no longer exists.")
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, ticketPath(survivor.Number)+listQuery(r), web.Notice{
		Text: "Ticket #" + strconv.FormatInt(merged.Number, 10) + " merged into this ticket.",
		Undo: ticketPath(merged.Number) + "/unmerge" + listQuery(r),
	})
}

func (p *pages) unmerge(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	var t desk.Ticket
	err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, found desk.Ticket) (err error) {
		t, err = p.Desk.UnmergeTx(ctx, tx, r.OrganizationID, found.ID)
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, ticketPath(t.Number)+listQuery(r), web.Notice{Text: "Merge undone. This ticket has its messages back."})
}

// splitPage is the body of the split page.
type splitPage struct {
	desk.Ticket
	Path, In string
	Messages []splitChoice
	More     bool // there are older messages
	Wrong    string
}

type splitChoice struct {
	ID, Sender, Text string
	Note, Chosen     bool
	Icon, Channel    string
	At               web.Time
}

// maxSplit is the number of messages, newest first, that can be split off.
const maxSplit = 200

func (p *pages) showSplitForm(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	return p.renderSplit(w, r, t, r.URL.Query()["message"], "")
}

func (p *pages) renderSplit(w http.ResponseWriter, r *web.Request, t desk.Ticket, chosen []string, wrong string) error {
	b := splitPage{Ticket: t, Path: ticketPath(t.Number), In: listQuery(r), Wrong: wrong}
	messages, next, err := p.Desk.FindMessages(r.Context(), p.DB, r.OrganizationID, t.ID, desk.MessageQuery{Limit: maxSplit})
	if err != nil {
		return err
	}
	b.More = next != nil
	for _, m := range slices.Backward(messages) {
		c := newSplitChoice(r, &t, &m)
		c.Chosen = slices.Contains(chosen, m.ID)
		b.Messages = append(b.Messages, c)
	}
	page := web.Page{Title: "Split ticket #" + strconv.FormatInt(t.Number, 10), At: "/inbox", Body: b}
	if wrong != "" {
		page.Status = http.StatusUnprocessableEntity
	}
	return p.Render(w, r, "split", page)
}

// newSplitChoice returns a message in a line.
func newSplitChoice(r *web.Request, t *desk.Ticket, m *desk.Message) splitChoice {
	text := m.Text
	if m.Stripped != "" {
		text = m.Stripped
	}
	text = strings.Join(strings.Fields(short(text)), " ")
	if runes := []rune(text); len(runes) > 200 {
		text = string(runes[:200]) + "…"
	}
	switch {
	case text == "" && len(m.Attachments) > 0:
		text = "File: " + m.Attachments[0].Name
	case text == "":
		text = "(says nothing)"
	}
	who := m.Author.Name
	if who == "" {
		if who = "Kickstand"; m.Author.Type == desk.AuthorCustomer {
			who = requesterName(t)
		}
	}
	return splitChoice{
		ID: m.ID, Sender: who, Text: text, Note: m.Kind == desk.KindNote,
		Icon: channelIcon(m.Channel), Channel: channelLabel(m.Channel), At: r.Time(m.CreatedAt),
	}
}

func (p *pages) split(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	var from, t desk.Ticket
	err := p.inTransaction(r, func(ctx context.Context, tx *db.Tx, found desk.Ticket) (err error) {
		from = found
		if len(form["message"]) == 0 {
			return problem.New(problem.Invalid, "choose the messages that go into a ticket of their own")
		}
		t, err = p.Desk.SplitTx(ctx, tx, r.OrganizationID, found.ID, form["message"])
		return err
	})
	if e, ok := submitError(err); ok && from.ID != "" {
		wrong := asSentence(e.Message)
		if len(e.Issues) > 0 {
			wrong = "A selected message is no longer in this ticket."
		}
		return p.renderSplit(w, r, from, form["message"], wrong+" Nothing was changed.")
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, ticketPath(t.Number)+listQuery(r), web.Notice{
		Text: "New ticket with the messages split from #" + strconv.FormatInt(from.Number, 10) + ".",
		Undo: ticketPath(t.Number) + "/merge" + listQuery(r), Fields: map[string]string{"into": from.ID},
	})
}

// confirmDeleteTicket and deleteTicket delete a ticket.
func (p *pages) confirmDeleteTicket(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete ticket #"+strconv.FormatInt(t.Number, 10), web.Page{At: "/inbox"}, deleteConfirmation(r, &t))
}

func deleteConfirmation(r *web.Request, t *desk.Ticket) web.Confirm {
	return web.Confirm{
		Text: "“" + t.Subject + "” is permanently deleted with all its messages, and with the tickets merged into it. " +
			"Unsent messages are not sent. This cannot be undone.",
		Type: strconv.FormatInt(t.Number, 10), Label: "Delete ticket", Cancel: ticketPath(t.Number) + listQuery(r),
	}
}

func (p *pages) deleteTicket(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	if c := deleteConfirmation(r, &t); !p.Confirmed(form, c) {
		return p.Confirm(w, r, "Delete ticket #"+strconv.FormatInt(t.Number, 10), web.Page{At: "/inbox"}, c)
	}
	if err := p.DB.Write(r.Context(), func(tx *db.Tx) error { return p.Desk.DeleteTx(r.Context(), tx, r.OrganizationID, t.ID) }); err != nil {
		return err
	}
	return p.Redirect(w, "/inbox", web.Notice{Text: "Ticket #" + strconv.FormatInt(t.Number, 10) + " deleted."})
}
