package settings

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const preferencesPath = "/settings/preferences"

// preferenceFields returns the fields of the form, named as the stored members.
func (p *pages) preferenceFields(r *web.Request) (web.Fields, error) {
	views, err := p.defaultViews(r)
	if err != nil {
		return nil, err
	}
	has := r.Preferences
	choice := func(name, label, help, value string, options ...web.Option) web.Field {
		return web.Field{Name: name, Label: label, Type: "select", Help: help, Value: value, Options: options}
	}
	var dates, undos []web.Option
	example := time.Date(r.Now.Year(), time.December, 31, 0, 0, 0, 0, time.UTC)
	for _, form := range account.DateForms {
		dates = append(dates, web.Option{Value: form, Label: example.Format(form)})
	}
	for _, seconds := range account.UndoTimes {
		label := web.Count(int64(seconds), "1 second", "%d seconds")
		if seconds == 0 {
			label = "Send at once"
		}
		undos = append(undos, web.Option{Value: strconv.Itoa(seconds), Label: label})
	}
	fields := web.Fields{
		{
			Name: "time_zone", Label: "Time zone", Type: "text", Optional: true, Most: 64, Value: has.TimeZone, Placeholder: "Europe/Berlin",
			Help: "The zone of all times that you see and enter. Empty: the zone of your browser.",
		},
		choice("date_form", "Date format", "How pages show dates.", has.DateForm, dates...),
		choice("clock", "Clock", "How pages show times of day.", has.Clock,
			web.Option{Value: account.Clock24, Label: "24 hours, 15:30"}, web.Option{Value: account.Clock12, Label: "12 hours, 3:30 PM"}),
		choice("theme", "Theme", "The colors of the dashboard.", has.Theme, titled(account.Themes)...),
		choice("density", "Density", "Compact shows more rows of lists and tables.", has.Density, titled(account.Densities)...),
	}
	if r.OrganizationID == "" {
		return fields, nil
	}
	return append(fields,
		choice("undo_send_seconds", "Undo send", "How long your replies wait before they leave, so that you can undo them.", strconv.Itoa(has.UndoSend), undos...),
		choice("default_view", "Default view", "The list that the inbox opens.", has.DefaultView, views...),
		choice("after_send", "After sending", "Where the button Send leads. Notes always stay on the ticket.", has.AfterSend,
			web.Option{Value: account.AfterSends[0], Label: "Stay on the ticket"}, web.Option{Value: account.AfterSendNext, Label: "Open the next ticket"}),
		web.Field{Name: "signature", Label: "Signature", Type: "textarea", Rows: 4, Optional: true, Most: account.MaxSignature, Value: has.Signature,
			Help: "Markdown, below your replies by mail and above the signature of the channel. {{agent.name}} and {{agent.first_name}} stand for your name."},
	), nil
}

// titled returns options whose labels are their values with a capital letter.
func titled(values []string) []web.Option {
	var list []web.Option
	for _, v := range values {
		list = append(list, web.Option{Value: v, Label: strings.ToUpper(v[:1]) + v[1:]})
	}
	return list
}

// defaultViews returns the lists that the inbox may open, with the member's saved views.
func (p *pages) defaultViews(r *web.Request) ([]web.Option, error) {
	list := []web.Option{
		{Label: "All open"}, {Value: "/inbox/mine", Label: "Mine"}, {Value: "/inbox/unassigned", Label: "Unassigned"},
		{Value: "/inbox/due", Label: "SLA due"}, {Value: "/inbox/all", Label: "All tickets"},
	}
	if r.OrganizationID == "" {
		return list, nil
	}
	saved, err := p.Desk.Views(r.Context(), p.DB, r.OrganizationID, r.UserID)
	if err != nil {
		return nil, err
	}
	for _, v := range saved {
		list = append(list, web.Option{Value: "/inbox/views/" + v.ID, Label: v.Name})
	}
	// A list that another client has set.
	if has := r.Preferences.DefaultView; !slices.ContainsFunc(list, func(o web.Option) bool { return o.Value == has }) {
		list = append(list, web.Option{Value: has, Label: has})
	}
	return list, nil
}

func (p *pages) preferences(w http.ResponseWriter, r *web.Request) error {
	fields, err := p.preferenceFields(r)
	if err != nil {
		return err
	}
	return p.renderPreferences(w, r, fields, 0)
}

// preferencesPage is the body of the template "preferences".
type preferencesPage struct {
	Fields web.Fields
	Push   *pushSection // nil: no Web Push
}

// renderPreferences renders the page; status is that of a refused form, or 0.
func (p *pages) renderPreferences(w http.ResponseWriter, r *web.Request, fields web.Fields, status int) error {
	section, err := p.pushSection(r)
	if err != nil {
		return err
	}
	pg := page(r, preferencesPath, "Preferences", preferencesPage{fields, section})
	if section != nil {
		pg.Scripts = []string{"push.js"}
	}
	if status != 0 {
		pg.Fields, pg.Status = fields, status
	}
	return p.Render(w, r, "preferences", pg)
}

// readPreferences returns the preferences with the fields that the form has.
func readPreferences(has account.Preferences, form url.Values) account.Preferences {
	for name, field := range map[string]*string{
		"time_zone": &has.TimeZone, "date_form": &has.DateForm, "clock": &has.Clock, "theme": &has.Theme, "density": &has.Density,
		"default_view": &has.DefaultView, "after_send": &has.AfterSend, "signature": &has.Signature,
	} {
		if form.Has(name) {
			*field = strings.TrimSpace(form.Get(name))
		}
	}
	if form.Has("undo_send_seconds") {
		var err error
		if has.UndoSend, err = strconv.Atoi(form.Get("undo_send_seconds")); err != nil {
			has.UndoSend = -1 // refused
		}
	}
	return has
}

func (p *pages) savePreferences(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	_, err := p.Accounts.SetPreferences(r.Context(), r.UserID, readPreferences(r.Preferences, form))
	if err == nil {
		return p.Redirect(w, preferencesPath, web.Notice{Text: "Preferences saved."})
	}
	fields, failed := p.preferenceFields(r)
	if failed != nil {
		return failed
	}
	for i := range fields {
		if f := &fields[i]; form.Has(f.Name) {
			f.Value = form.Get(f.Name)
		}
	}
	status := fields.Answer(w, err)
	if status == 0 {
		return err
	}
	return p.renderPreferences(w, r, fields, status)
}
