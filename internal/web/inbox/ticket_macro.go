package inbox

import (
	"cmp"
	"context"
	"maps"
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

// macroChip is the macro that is applied when the message is sent.
type macroChip struct {
	ID, Name string
	Effects  string // besides the text; empty: none
	Text     string // to insert
	Missing  string // variables without a value, as they stand in the text; empty: none
	Insert   bool   // the script inserts the text
	Files    []macroFile
}

// macroFile is a file of a macro, to send with the reply.
type macroFile struct {
	ID, Name string
	Chosen   bool
}

// macrosPage is the body of the list of macros of a ticket.
type macrosPage struct {
	desk.Ticket
	Path, In string
	Options  []macroOption
}

type macroOption struct {
	ID, Name string
	Path     string // of the ticket with the macro
	Text     string // start of the text, or the effects
	Private  bool
}

// listMacros shows the macros for a ticket, the most used ones first: as a page, or as
// the options of the composer's list.
func (p *pages) listMacros(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	macros, err := p.Desk.Macros(r.Context(), p.DB, r.OrganizationID, r.UserID)
	if err != nil {
		return err
	}
	member, err := p.memberNames(r)
	if err != nil {
		return err
	}
	slices.SortStableFunc(macros, func(a, b desk.Macro) int { return cmp.Compare(b.Uses, a.Uses) })
	b := macrosPage{Ticket: t, Path: ticketPath(t.Number), In: listQuery(r)}
	query := "?"
	if b.In != "" {
		query = b.In + "&"
	}
	for i := range macros {
		m := &macros[i]
		b.Options = append(b.Options, macroOption{
			ID: m.ID, Name: m.Name, Path: b.Path + query + "macro=" + m.ID, Private: m.OwnerID != "",
			Text: excerpt(cmp.Or(m.Text, web.MacroEffects(m, member, "you"))),
		})
	}
	if r.URL.Query().Get("part") == "options" {
		return p.Fragment(w, "macros", "macro-options", b)
	}
	return p.Render(w, r, "macros", web.Page{Title: "Macros for ticket #" + strconv.FormatInt(t.Number, 10), At: "/inbox", Body: b})
}

// excerpt returns the start of a text in one line.
func excerpt(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 100 {
		return string(runes[:100]) + "…"
	}
	return text
}

// memberNames returns a function for the names of members.
func (p *pages) memberNames(r *web.Request) (func(id string) string, error) {
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
	}
	return func(id string) string { return cmp.Or(names[id], "a former member") }, nil
}

// showMacro returns a macro for the composer's script.
func (p *pages) showMacro(w http.ResponseWriter, r *web.Request) error {
	t, err := p.found(r, p.DB)
	if err != nil {
		return err
	}
	ride, err := p.macroRide(r, &t, r.PathValue("id"))
	if err != nil {
		return err
	}
	chip, err := p.readMacro(r, p.DB, &t, r.PathValue("id"), r.URL.Query().Get("kind"), ride)
	if err != nil {
		return err
	}
	chip.Insert = true
	return p.Fragment(w, "ticket", "macro", chip)
}

// readMacro renders a macro for a message of that kind. A note gets the macro's note, if
// it has one. ride is that of [pages.macroRide].
func (p *pages) readMacro(r *web.Request, q db.Querier, t *desk.Ticket, id, kind string, ride map[string]string) (*macroChip, error) {
	use := p.macroApplication(r, t, id)
	use.Ride = ride
	got, err := p.Desk.PreviewMacro(r.Context(), q, r.OrganizationID, use)
	if err != nil {
		return nil, err
	}
	member, err := p.memberNames(r)
	if err != nil {
		return nil, err
	}
	chip := &macroChip{ID: got.Macro.ID, Name: got.Macro.Name, Text: got.Text}
	for _, f := range got.Macro.Files {
		chip.Files = append(chip.Files, macroFile{f.ID, f.Name, true})
	}
	got.Macro.Files = nil // they have a place of their own
	if kind == desk.KindNote {
		chip.Text = cmp.Or(got.Note, got.Text)
		got.Macro.Note = ""
	}
	chip.Effects = web.MacroEffects(&got.Macro, member, "you")
	chip.Missing = strings.Join(desk.UnfilledVariables(chip.Text), ", ")
	return chip, nil
}

func (p *pages) macroApplication(r *web.Request, t *desk.Ticket, id string) desk.MacroApplication {
	return desk.MacroApplication{
		MacroID: id, TicketID: t.ID, ViewerID: r.UserID, AgentID: r.UserID, OrganizationName: r.Organization.Name,
		By: desk.Actor{ID: r.UserID, Name: cmp.Or(r.User.Name, r.User.Email)},
	}
}

// macroOf returns the id of the macro in the composer: that of the refused form, or of the query;
// empty: none.
func (s *draftForm) macroOf(r *web.Request) string {
	if s.refused() {
		return s.macro
	}
	return r.URL.Query().Get("macro")
}

// addMacro adds the macro of the refused form to the composer, or the one of the query
// with its text.
func (p *pages) addMacro(r *web.Request, q db.Querier, t *desk.Ticket, said draftForm, c *composer) error {
	id := said.macroOf(r)
	if id == "" {
		return nil
	}
	chip, err := p.readMacro(r, q, t, id, c.Kind, said.ride)
	if problem.Of(err) == problem.NotFound {
		c.Wrong = strings.TrimSpace(c.Wrong + " The macro no longer exists.")
		return nil
	}
	if err != nil {
		return err
	}
	c.Macro = chip
	if said.refused() {
		for i := range chip.Files {
			chip.Files[i].Chosen = slices.Contains(said.macroFiles, chip.Files[i].ID)
		}
		return nil
	}
	field := &c.Reply
	if c.Kind == desk.KindNote {
		field = &c.Note
	}
	*field = strings.TrimSpace(*field + "\n\n" + chip.Text)
	if chip.Missing != "" {
		c.Wrong = "No value for " + chip.Missing + ". Complete the text before you send it."
	}
	return nil
}

// checkFilled refuses a message with variables of its macro.
func checkFilled(text string) error {
	if left := desk.UnfilledVariables(text); len(left) > 0 {
		return problem.New(problem.Invalid, "The text still has %s. Write the value in its place.", left[0])
	}
	return nil
}

// attachMacroFiles adds the chosen files of the macro to a reply.
func (p *pages) attachMacroFiles(ctx context.Context, tx *db.Tx, r *web.Request, s draftForm, content *desk.Content) error {
	if s.macro == "" || s.kind == desk.KindNote || len(s.macroFiles) == 0 {
		return nil
	}
	err := p.Desk.AttachMacroFilesTx(ctx, tx, r.OrganizationID, r.UserID, s.macro, s.macroFiles, content)
	if problem.Of(err) == problem.NotFound {
		return errMacroGone()
	}
	return err
}

func errMacroGone() error { return problem.New(problem.Conflict, "The macro no longer exists.") }

// applyMacro applies the macro of a sent message. A status that the user selected
// replaces the macro's.
func (p *pages) applyMacro(ctx context.Context, tx *db.Tx, r *web.Request, t *desk.Ticket, s draftForm, status desk.Status, notice *web.Notice) error {
	use := p.macroApplication(r, t, s.macro)
	use.Ride = s.ride
	use.WithoutReply, use.WithoutNote = true, s.kind == desk.KindNote
	if status == desk.StatusResolved || status == desk.StatusPending {
		use.Status = status
	}
	done, err := p.Desk.ApplyMacroTx(ctx, tx, r.OrganizationID, use)
	if problem.Of(err) == problem.NotFound {
		return errMacroGone()
	}
	if err != nil || len(done.Changes) == 0 {
		return err
	}
	changed := changeNotice(&done.Before, &done.After)
	notice.Text += " " + changed.Text
	switch {
	case changed.Undo == "":
	case notice.Undo == "":
		notice.Undo, notice.Fields = changed.Undo+listQuery(r), changed.Fields
	default: // the undo of the reply
		maps.Copy(notice.Fields, changed.Fields)
	}
	return nil
}

// revert returns the update that undoes the changes in a notice's fields, except those
// that have been changed since, and whether there are any.
func revert(t *desk.Ticket, form url.Values) (u desk.Update, changes bool) {
	undoes := func(name, now string) bool {
		undo := form.Has(name) && form.Get("was."+name) == now
		changes = changes || undo
		return undo
	}
	if undoes("status", string(t.Status)) {
		u.Status = new(desk.Status(form.Get("status")))
	}
	if undoes("priority", string(t.Priority)) {
		u.Priority = new(desk.Priority(form.Get("priority")))
	}
	if undoes("assignee", t.AssigneeID) {
		u.AssigneeID = new(form.Get("assignee"))
	}
	if form.Has("tags") {
		u.Tags = new(retag(t.Tags, readTags(form.Get("was.tags")), readTags(form.Get("tags"))))
		changes = true
	}
	return u, changes
}
