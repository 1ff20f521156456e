package settings

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const macrosPath = "/settings/macros"

// macrosPage is the body of the list of macros.
type macrosPage struct {
	Shared, Private []macroRow
	Admin           bool
}

type macroRow struct {
	ID, Name string
	Text     string // start of the reply
	Effects  string
	Uses     int64
	Used     web.Time
	Editable bool
}

func (p *pages) macros(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Desk.Macros(r.Context(), p.DB, r.OrganizationID, r.UserID)
	if err != nil {
		return err
	}
	_, names, err := p.assignees(r)
	if err != nil {
		return err
	}
	body := macrosPage{Admin: r.Admin()}
	member := func(id string) string { return cmp.Or(names[id], "a former member") }
	for i := range list {
		m := &list[i]
		text := strings.Join(strings.Fields(m.Text), " ")
		if runes := []rune(text); len(runes) > 120 {
			text = string(runes[:120]) + "…"
		}
		row := macroRow{
			ID: m.ID, Name: m.Name, Text: text, Effects: web.MacroEffects(m, member, "whoever applies it"), Uses: m.Uses, Used: r.Time(m.UsedAt), Editable: mayEdit(r, m),
		}
		if m.OwnerID == "" {
			body.Shared = append(body.Shared, row)
		} else {
			body.Private = append(body.Private, row)
		}
	}
	return p.Render(w, r, "macros", page(r, macrosPath, "Macros", body))
}

// mayEdit reports whether the user may change a macro: admins may change shared ones,
// and members their own.
func mayEdit(r *web.Request, m *desk.Macro) bool { return m.OwnerID != "" || r.Admin() }

// assignees returns the options of a macro's assignee, and the names of members by id.
func (p *pages) assignees(r *web.Request) ([]web.Option, map[string]string, error) {
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, nil, err
	}
	options := []web.Option{{Label: "Unchanged"}, {Value: desk.AssigneeMe, Label: "Whoever applies the macro"}, {Value: desk.AssigneeNone, Label: "Unassigned"}}
	names := make(map[string]string, len(members))
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.Email)
		options = append(options, web.Option{Value: m.ID, Label: names[m.ID]})
	}
	return options, names, nil
}

// macroForm is the form of a macro.
type macroForm struct {
	ID        string // empty: a new one
	Owner     web.Fields
	Texts     web.Fields
	Changes   web.Fields
	Files     []desk.MacroFile
	Upload    web.Field
	Ticket    web.Field // of the preview
	Variables []desk.MacroVariable
	Preview   *macroPreview
	Names     map[string]string // of members by id
}

// macroPreview is the macro in the form as of a ticket.
type macroPreview struct {
	Ticket           int64
	Text, Note       string
	Effects, Missing string
}

const sharedOwner = "shared"

// newMacroForm returns the form with the values of a macro.
func (p *pages) newMacroForm(r *web.Request, m *desk.Macro) (*macroForm, error) {
	options, names, err := p.assignees(r)
	if err != nil {
		return nil, err
	}
	if id := m.Actions.Assignee; id != "" && id != desk.AssigneeMe && id != desk.AssigneeNone && names[id] == "" {
		options = append(options, web.Option{Value: id, Label: "Former member"})
	}
	f := &macroForm{ID: m.ID, Variables: desk.MacroVariables[:], Names: names, Files: m.Files, Ticket: web.Field{
		Name: "ticket", Label: "Ticket number", Type: "text", Mode: "numeric", Optional: true, Help: "The preview shows the macro for this ticket.",
	}, Upload: web.Field{
		Name: "files", Label: "New files", Type: "file", Optional: true,
		Help: web.Sprintf("Sent with the reply. At most %d, with %d MB together. Select them again after a preview.", desk.MaxMacroFiles, desk.MaxMacroBytes>>20),
	}}
	if m.ID == "" && r.Admin() {
		f.Owner = web.Fields{{Name: "owner", Label: "Visible to", Type: "select", Value: sharedOwner, Options: []web.Option{{Value: sharedOwner, Label: "All members"}, {Label: "Only me"}}}}
	}
	f.Texts = web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 100, Value: m.Name, Focus: true},
		{Name: "text", Label: "Reply", Type: "textarea", Rows: 8, Most: 5000, Optional: true, Value: m.Text},
		{Name: "note", Label: "Note", Type: "textarea", Rows: 3, Most: 2000, Optional: true, Value: m.Note, Help: "Added when the reply is sent. Only your team can see it."},
	}
	statuses, priorities := []web.Option{{Label: "Unchanged"}}, []web.Option{{Label: "Unchanged"}}
	for _, s := range desk.Statuses {
		label := strings.ReplaceAll(string(s), "_", " ")
		statuses = append(statuses, web.Option{Value: string(s), Label: strings.ToUpper(label[:1]) + label[1:]})
	}
	for _, priority := range desk.Priorities {
		priorities = append(priorities, web.Option{Value: string(priority), Label: priorityNames[priority]})
	}
	f.Changes = web.Fields{
		{Name: "status", Label: "Status", Type: "select", Options: statuses, Value: string(m.Actions.Status)},
		{Name: "priority", Label: "Priority", Type: "select", Options: priorities, Value: string(m.Actions.Priority)},
		{Name: "assignee", Label: "Assignee", Type: "select", Options: options, Value: m.Actions.Assignee},
		{Name: "add_tags", Label: "Add tags", Type: "text", Optional: true, Placeholder: "Separated by commas", Value: strings.Join(m.Actions.AddTags, ", ")},
		{Name: "remove_tags", Label: "Remove tags", Type: "text", Optional: true, Placeholder: "Separated by commas", Value: strings.Join(m.Actions.RemoveTags, ", ")},
	}
	return f, nil
}

// fields returns all fields, for their errors.
func (f *macroForm) fields() web.Fields {
	return slices.Concat(f.Owner, f.Texts, f.Changes, web.Fields{f.Upload, f.Ticket})
}

// fill sets the posted values.
func (f *macroForm) fill(form url.Values) {
	f.Owner.Fill(form)
	f.Texts.Fill(form)
	f.Changes.Fill(form)
	f.Ticket.Value = form.Get("ticket")
}

// readMacro copies a posted form into a macro.
func readMacro(form url.Values, m *desk.Macro) {
	tags := func(name string) (tags []string) {
		for tag := range strings.SplitSeq(form.Get(name), ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	m.Name, m.Text, m.Note = form.Get("name"), form.Get("text"), form.Get("note")
	m.Actions = desk.MacroActions{
		Status: desk.Status(form.Get("status")), Priority: desk.Priority(form.Get("priority")), Assignee: form.Get("assignee"),
		AddTags: tags("add_tags"), RemoveTags: tags("remove_tags"),
	}
}

// answer marks the fields with the issues of err and reports whether err was about the
// input.
func (f *macroForm) answer(err error) bool {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case problem.Invalid, problem.Conflict, problem.Precondition:
	default:
		return false
	}
	if len(e.Issues) == 0 {
		return f.Texts.Refused(err)
	}
	f.Texts[0].Focus = false
	for _, issue := range e.Issues {
		name, _, _ := strings.Cut(issue.Path, ".")
		field := f.Texts.Field(name)
		if name == "attachments" {
			field = &f.Upload
		}
		if field == nil {
			field = f.Changes.Field(name)
		}
		if field == nil {
			field = &f.Texts[0]
		}
		if field.Error == "" {
			field.Error = field.Label + " " + issue.Message + "."
		}
	}
	return true
}

// macro returns the macro in the request's path, which the user may edit. The path of a
// new one has no id.
func (p *pages) macro(r *web.Request) (desk.Macro, error) {
	id := r.PathValue("id")
	if id == "" {
		return desk.Macro{OrganizationID: r.OrganizationID}, nil
	}
	m, err := p.Desk.Macro(r.Context(), p.DB, r.OrganizationID, r.UserID, id)
	if err == nil && !mayEdit(r, &m) {
		err = problem.New(problem.Forbidden, "Only admins can change shared macros.")
	}
	return m, err
}

func (p *pages) editMacro(w http.ResponseWriter, r *web.Request) error {
	m, err := p.macro(r)
	if err != nil {
		return err
	}
	f, err := p.newMacroForm(r, &m)
	if err != nil {
		return err
	}
	return p.showMacroForm(w, r, f, 0)
}

func (p *pages) showMacroForm(w http.ResponseWriter, r *web.Request, f *macroForm, status int) error {
	title := "Create macro"
	if f.ID != "" {
		title = "Change macro"
	}
	pg := page(r, macrosPath, title, f)
	pg.Fields, pg.Status = f.fields(), status
	return p.Render(w, r, "macro", pg)
}

// saveMacro saves the macro in the form, or previews it.
func (p *pages) saveMacro(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, desk.MaxMacroBytes)
	if !ok {
		return nil
	}
	m, err := p.macro(r)
	if err != nil {
		return err
	}
	f, err := p.newMacroForm(r, &m)
	if err != nil {
		return err
	}
	f.fill(form.Values)
	if m.ID == "" && !(r.Admin() && form.Get("owner") == sharedOwner) {
		m.OwnerID = r.UserID
	}
	readMacro(form.Values, &m)
	if form.Get("do") == "preview" {
		return p.previewMacro(w, r, f, &m)
	}
	if form.TooLarge {
		f.Upload.Error = web.Sprintf("New files lead to more than %d MB of files of the macro.", desk.MaxMacroBytes>>20)
		return p.showMacroForm(w, r, f, http.StatusUnprocessableEntity)
	}
	err = p.writeMacro(r, m, form)
	if f.answer(err) {
		return p.showMacroForm(w, r, f, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, macrosPath, web.Notice{Text: "Macro saved."})
}

// writeMacro creates or changes a macro, deletes the chosen files and adds the new ones.
func (p *pages) writeMacro(r *web.Request, m desk.Macro, form web.Upload) error {
	var d desk.Draft
	for _, f := range form.Files {
		d.Attachments = append(d.Attachments, channel.Attachment{Name: f.Name, ContentType: f.ContentType, Data: f.Data})
	}
	d.Note = true // files of a note count as storage, and as no message
	content, err := p.Desk.Compose(r.Context(), r.OrganizationID, d)
	if err != nil {
		return err
	}
	save := p.Desk.CreateMacroTx
	if m.ID != "" {
		save = p.Desk.UpdateMacroTx
	}
	return p.DB.Write(r.Context(), func(tx *db.Tx) error {
		saved, err := save(r.Context(), tx, m)
		if err != nil {
			return err
		}
		for _, id := range form.Values["remove"] {
			if _, err := p.Desk.DeleteMacroFileTx(r.Context(), tx, r.OrganizationID, m.OwnerID, saved.ID, id); err != nil {
				return err
			}
		}
		_, err = p.Desk.AddMacroFilesTx(r.Context(), tx, r.OrganizationID, m.OwnerID, saved.ID, content)
		return err
	})
}

// macroFile serves a file of a macro.
func (p *pages) macroFile(w http.ResponseWriter, r *web.Request) error {
	f, content, err := p.Desk.OpenMacroFile(r.Context(), r.OrganizationID, r.UserID, r.PathValue("file"))
	p.File(w, r, &f, content, err)
	return nil
}

// previewMacro shows the form with a preview for the ticket in it.
func (p *pages) previewMacro(w http.ResponseWriter, r *web.Request, f *macroForm, m *desk.Macro) error {
	if err := problem.Check(*m); f.answer(err) {
		return p.showMacroForm(w, r, f, http.StatusUnprocessableEntity)
	}
	number, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(f.Ticket.Value), "#"), 10, 64)
	var t desk.Ticket
	if err == nil {
		t, err = p.Desk.TicketByNumber(r.Context(), p.DB, r.OrganizationID, number)
	} else {
		err = problem.New(problem.NotFound, "not a number")
	}
	var got desk.RenderedMacro
	if err == nil {
		got, err = p.Desk.RenderMacro(r.Context(), p.DB, m, &t, desk.MacroApplication{AgentID: r.UserID, OrganizationName: r.Organization.Name})
	}
	switch problem.Of(err) {
	case problem.NotFound:
		f.Ticket.Error = "Ticket number must be the number of a ticket."
	case problem.Conflict:
		f.Ticket.Error = "This ticket is merged into another one."
	default:
		if err != nil {
			return err
		}
	}
	if f.Ticket.Error != "" {
		f.Ticket.Focus, f.Texts[0].Focus = true, false
		return p.showMacroForm(w, r, f, http.StatusUnprocessableEntity)
	}
	member := func(id string) string { return cmp.Or(f.Names[id], "a former member") }
	shown := *m
	shown.Note = "" // it has a place of its own
	f.Preview = &macroPreview{
		Ticket: number, Text: got.Text, Note: got.Note, Missing: strings.Join(got.Missing, ", "), Effects: web.MacroEffects(&shown, member, "you"),
	}
	return p.showMacroForm(w, r, f, 0)
}

func macroDeletion(m *desk.Macro) web.Confirm {
	text := "Only you can see “" + m.Name + "”. Sent messages stay."
	if m.OwnerID == "" {
		text = "“" + m.Name + "” is deleted for all members. Sent messages stay."
	}
	return web.Confirm{Text: text, Label: "Delete macro", Cancel: macrosPath}
}

func (p *pages) confirmDeleteMacro(w http.ResponseWriter, r *web.Request) error {
	m, err := p.macro(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete macro", page(r, macrosPath, "", nil), macroDeletion(&m))
}

func (p *pages) deleteMacro(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	m, err := p.macro(r)
	if err != nil {
		return err
	}
	err = p.DB.Write(r.Context(), func(tx *db.Tx) error {
		return p.Desk.DeleteMacroTx(r.Context(), tx, r.OrganizationID, r.UserID, m.ID)
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, macrosPath, web.Notice{Text: "Macro “" + m.Name + "” deleted."})
}
