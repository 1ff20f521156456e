package settings

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const importPath = "/settings/import"

// importsPage is the body of the list of imports.
type importsPage struct {
	Rows    []importRow
	MaxMB   int
	Command string // for larger sources
}

type importRow struct {
	ID, Name string
	Source   string
	Badge    web.Badge
	Tickets  int64
	Problems int64
	Started  web.Time
}

var sourceNames = map[string]string{importer.Mbox: "Mailbox (mbox)", importer.CSV: "CSV", importer.Zendesk: "Zendesk (JSON)", "demo": "Sample data"}

var importBadges = map[importer.State]web.Badge{
	importer.Waiting: {Text: "Waiting"}, importer.Running: {Text: "Running", Tone: web.Accent}, importer.Done: {Text: "Done", Tone: web.Good, Icon: "check"},
	importer.Failed: {Text: "Failed", Tone: web.Bad, Icon: "alert"}, importer.Undoing: {Text: "Undoing", Tone: web.Accent}, importer.Undone: {Text: "Undone"},
}

func importBadge(r *web.Request, run *importer.Run) web.Badge {
	b := web.BadgeFor(importBadges, run.State)
	if run.Stalled(r.Now) {
		b = web.Badge{Text: "Interrupted", Tone: web.Warning}
	}
	if run.Dry {
		b.Text = "Dry run: " + strings.ToLower(b.Text)
	}
	return b
}

// importFields are the fields of the form beside the file.
func importFields() web.Fields {
	var sources []web.Option
	for _, source := range importer.Sources {
		sources = append(sources, web.Option{Value: source, Label: sourceNames[source]})
	}
	return web.Fields{
		{Name: "source", Label: "Source", Type: "select", Options: sources, Value: importer.CSV},
		{Name: "ours", Label: "Addresses of former agents", Type: "text", Optional: true, Most: 2000, Placeholder: "ada@example.com, @old.example.com",
			Help: "Mail from them was sent by agents. Members and channel addresses are known."},
		{Name: "from", Label: "Name of the helpdesk", Type: "text", Optional: true, Most: 40, Help: "For CSV: ticket 12 is found as NAME-12."},
		{Name: "dry", Label: "Dry run: report only, write nothing", Type: "checkbox", Value: "on"},
	}
}

func (p *pages) imports(w http.ResponseWriter, r *web.Request) error {
	return p.showImports(w, r, importFields(), 0)
}

func (p *pages) showImports(w http.ResponseWriter, r *web.Request, fields web.Fields, status int) error {
	list, err := p.Imports.List(r.Context(), p.DB, r.OrganizationID, 50)
	if err != nil {
		return err
	}
	body := importsPage{MaxMB: importer.MaxUpload >> 20, Command: "kickstand import mbox ./mail --org " + r.Organization.Slug + " --dry-run"}
	for i := range list {
		run := &list[i]
		body.Rows = append(body.Rows, importRow{
			ID: run.ID, Name: run.Name, Source: sourceNames[run.Source], Badge: importBadge(r, run), Tickets: run.Counts.Tickets, Problems: run.Counts.Problems,
			Started: r.Time(run.CreatedAt),
		})
	}
	pg := page(r, importPath, "Import", body)
	pg.Fields, pg.Status = fields, status
	return p.Render(w, r, "imports", pg)
}

// uploadImport starts the import of an uploaded file.
func (p *pages) uploadImport(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, importer.MaxUpload)
	if !ok {
		return nil
	}
	fields := importFields()
	fields.Fill(form.Values)
	n := importer.New{OrganizationID: r.OrganizationID, Source: form.Get("source"), Dry: form.Get("dry") != "", UserID: r.UserID}
	n.Options.From = strings.TrimSpace(form.Get("from"))
	n.Options.Ours = strings.FieldsFunc(form.Get("ours"), func(c rune) bool { return c == ',' || c == ' ' || c == '\n' })
	var data []byte
	if len(form.Files) > 0 {
		n.Name, data = form.Files[0].Name, form.Files[0].Data
	}
	var run importer.Run
	var err error
	switch {
	case form.TooLarge:
		err = problem.New(problem.Conflict, "The file is larger than %d MB. Import it by the command below.", importer.MaxUpload>>20)
	case len(form.Files) != 1 || len(data) == 0:
		err = problem.New(problem.Conflict, "Choose one file.")
	default:
		run, err = p.Imports.Upload(r.Context(), n, data)
	}
	if err != nil {
		status := fields.Answer(w, err)
		if status == 0 {
			return err
		}
		return p.showImports(w, r, fields, status)
	}
	return p.Redirect(w, importPath+"/"+run.ID, web.Notice{Text: "Import started."})
}

// importPage is the body of an import.
type importPage struct {
	ID      string
	Source  string
	Badge   web.Badge
	Run     importer.Run
	Started web.Time
	Ended   web.Time
	Percent int64
	Running bool
	Facts   []importFact
	More    int64  // problems that are not stored
	Start   string // label of the button that starts the import; empty: none
	Undo    bool
}

type importFact struct {
	Label string
	N     string
}

func (p *pages) showImport(w http.ResponseWriter, r *web.Request) error {
	run, err := p.Imports.Get(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	c := &run.Counts
	body := importPage{
		ID: run.ID, Source: sourceNames[run.Source], Badge: importBadge(r, &run), Run: run, Started: r.Time(run.CreatedAt), Ended: r.Time(run.FinishedAt),
		Running: run.State == importer.Waiting || run.State == importer.Running || run.State == importer.Undoing, More: c.Problems - int64(len(run.Problems)),
		Undo: !run.Dry && c.Tickets+c.Messages > 0 && (run.State == importer.Done || run.State == importer.Failed || run.Stalled(r.Now)),
	}
	if run.Total > 0 {
		body.Percent = run.Position * 100 / run.Total
	}
	switch {
	case run.Dry && run.State == importer.Done && run.Uploaded():
		body.Start = "Import"
	case !run.Dry && run.State == importer.Failed && run.Uploaded():
		body.Start = "Continue"
	}
	for _, f := range []struct {
		label  string
		n      int64
		always bool
	}{
		{"Tickets", c.Tickets, true}, {"Messages", c.Messages, true}, {"Notes", c.Notes, true}, {"Files", c.Files, true}, {"New customers", c.Customers, !run.Dry},
		{"Already there", c.Known, false}, {"Skipped tickets", c.Skipped, false}, {"Files without content", c.MissingFiles, false}, {"Agents who are no members", c.UnknownAuthors, false},
		{"Deleted tickets", c.Removed.Tickets, false}, {"Tickets that stay", c.Removed.Left, false},
	} {
		if f.always || f.n > 0 {
			body.Facts = append(body.Facts, importFact{f.label, web.Number(f.n)})
		}
	}
	return p.Render(w, r, "import", page(r, importPath, run.Name, body))
}

// startImport starts the import after its dry run, or continues it.
func (p *pages) startImport(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	run, err := p.Imports.Start(r.Context(), r.OrganizationID, r.PathValue("id"), r.UserID)
	if problem.Of(err) == problem.Conflict {
		return p.Redirect(w, importPath+"/"+r.PathValue("id"), web.Notice{Text: "The file of this import is gone, or it runs already. Upload the file again.", Bad: true})
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, importPath+"/"+run.ID, web.Notice{Text: "Import started."})
}

func (p *pages) confirmUndoImport(w http.ResponseWriter, r *web.Request) error {
	run, err := p.Imports.Get(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Undo import", page(r, importPath, "", nil), web.Confirm{
		Text:  fmt.Sprintf("The %s tickets of this import are deleted, with their messages, files and customers. Tickets with later messages stay.", web.Number(run.Counts.Tickets)),
		Label: "Undo import", Cancel: importPath + "/" + run.ID,
	})
}

func (p *pages) undoImport(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	run, err := p.Imports.StartUndo(r.Context(), r.OrganizationID, r.PathValue("id"), r.UserID)
	if problem.Of(err) == problem.Conflict {
		return p.Redirect(w, importPath+"/"+r.PathValue("id"), web.Notice{Text: "This import cannot be undone now.", Bad: true})
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, importPath+"/"+run.ID, web.Notice{Text: "Undo started."})
}
