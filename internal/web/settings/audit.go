package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"

	"github.com/google/uuid"
)

const auditPath = "/settings/audit"

// auditPage is the body of the audit log.
type auditPage struct {
	Verified auditVerified
	Filters  web.Filters
	Newest   string // path of the first page; empty on it
	Entries  []auditRow
	Pager    web.Pager
	Empty    web.Empty
	Commands []web.Code
}

// auditRow is an audit entry in words.
type auditRow struct {
	ID         string
	At         web.Time
	By         string
	ByPath     string // of the entries of the same actor; empty: the system
	IP         string
	UserAgent  string
	Label      string
	Sandbox    bool
	Refused    bool
	Target     string
	TargetPath string // of the entries of the same target
	Request    string
	Changes    []auditChange
	Open       bool // expanded: few changes
}

// auditChange is a field before and after.
type auditChange struct {
	Member   string
	From, To string
	New      bool // was not set before
}

// systemActor is the filter's value for entries without an actor.
const systemActor = "system"

// audit lists audit entries by the filters in the query.
func (p *pages) audit(w http.ResponseWriter, r *web.Request) error {
	asked := r.URL.Query()
	fs, err := p.auditFields(r, asked)
	if err != nil {
		return err
	}
	body := auditPage{Filters: web.Filters{Fields: fs}, Commands: p.exports()}
	q := audit.Query{Action: asked.Get("action"), Group: asked.Get("group"), TargetID: strings.TrimSpace(asked.Get("target")), Limit: 50}
	switch who := asked.Get("actor"); who {
	case systemActor:
		q.ActorType = audit.System
	default:
		q.ActorID = who
	}
	q.From, q.To = auditDays(r, fs)
	if body.Verified, err = p.verified(r); err != nil {
		return err
	}
	pg := page(r, auditPath, "Audit log", &body)
	pg.Fields, pg.Class, pg.Sheets = fs, "lists", []string{"records.css"}
	if len(fs.Wrong()) > 0 {
		pg.Status = http.StatusUnprocessableEntity
		body.Empty = web.Empty{Text: "Enter valid dates to see entries."}
		return p.Render(w, r, "audit", pg)
	}
	for _, f := range fs {
		if f.Value != "" {
			body.Filters.All = auditPath
		}
	}
	if before := asked.Get("before"); before != "" {
		if id, err := uuid.Parse(before); err != nil || id.String() != before {
			return problem.New(problem.NotFound, "there is no such page")
		}
		q.Before, body.Newest = before, auditURL(asked, "before", "")
	}
	found, err := audit.List(r.Context(), p.Logs, r.OrganizationID, q)
	if err != nil {
		return err
	}
	names := make(map[string]string) // of present members
	for _, o := range fs.Field("actor").Options {
		names[o.Value] = o.Label
	}
	for i := range found.Entries {
		body.Entries = append(body.Entries, newAuditRow(r, asked, names, &found.Entries[i]))
	}
	if found.Next != "" {
		body.Pager.Older = auditURL(asked, "before", found.Next)
	}
	body.Empty = web.Empty{Text: "No entries yet. Sign-ins, members, keys, channels, webhooks, settings, exports and more are recorded here."}
	if body.Filters.All != "" || q.Before != "" {
		body.Empty = web.Empty{Text: "No entries match these filters.", Path: auditPath, Label: "Show all"}
	}
	return p.Render(w, r, "audit", pg)
}

// auditDays parses the days of the filter. The time to is the end of its day.
func auditDays(r *web.Request, fs web.Fields) (from, to time.Time) {
	for name, at := range map[string]*time.Time{"from": &from, "to": &to} {
		f := fs.Field(name)
		if f.Value == "" {
			continue
		}
		day, err := time.ParseInLocation(time.DateOnly, f.Value, r.Now.Location())
		if err != nil {
			f.Error = f.Label + " must be a date such as 2026-12-25."
			continue
		}
		if *at = day; name == "to" {
			*at = day.AddDate(0, 0, 1)
		}
	}
	return from, to
}

// auditURL returns the log's address with one filter changed, or removed if value is
// empty.
func auditURL(asked url.Values, name, value string) string {
	out := url.Values{}
	for _, known := range []string{"actor", "group", "action", "target", "from", "to", "before"} {
		if v := asked.Get(known); v != "" && (known != "before" || name == "before") {
			out.Set(known, v)
		}
	}
	if out.Set(name, value); value == "" {
		out.Del(name)
	}
	return web.Address(auditPath, out)
}

// auditFields returns the filters. A value that is in no list is added to it.
func (p *pages) auditFields(r *web.Request, asked url.Values) (web.Fields, error) {
	members, err := p.Accounts.Members(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	who := []web.Option{{Label: "Everyone"}}
	for _, u := range members {
		who = append(who, web.Option{Value: u.ID, Label: cmp.Or(u.Name, u.Email)})
	}
	who = append(who, web.Option{Value: systemActor, Label: "System"})
	areas, what := []web.Option{{Label: "All groups"}}, []web.Option{{Label: "All actions"}}
	for _, g := range groupTexts {
		areas = append(areas, web.Option{Value: g[0], Label: g[1]})
	}
	for _, a := range actions {
		what = append(what, web.Option{Value: a[0], Label: a[1]})
	}
	fs := web.Fields{
		{Name: "actor", Label: "Actor", Type: "select", Options: who},
		{Name: "group", Label: "Group", Type: "select", Options: areas},
		{Name: "action", Label: "Action", Type: "select", Options: what},
		{Name: "target", Label: "Target ID", Type: "text", Optional: true},
		{Name: "from", Label: "From", Type: "date", Optional: true},
		{Name: "to", Label: "Until", Type: "date", Optional: true},
	}
	fs.Fill(asked)
	for i := range fs[:3] {
		f := &fs[i]
		if !slices.ContainsFunc(f.Options, func(o web.Option) bool { return o.Value == f.Value }) {
			f.Options = append(f.Options, web.Option{Value: f.Value, Label: f.Value})
		}
	}
	return fs, nil
}

// exports returns the commands that export the whole log with an API key.
func (p *pages) exports() []web.Code {
	var out []web.Code
	for _, address := range p.Exports {
		out = append(out, web.Code{Label: "Command", Text: "curl -H 'Authorization: Bearer KEY' -H 'Accept: text/csv' " + address})
	}
	return out
}

func newAuditRow(r *web.Request, asked url.Values, names map[string]string, e *audit.Entry) auditRow {
	row := auditRow{
		ID: e.ID, At: r.Time(e.At), IP: e.Source.IP(), UserAgent: e.Source.UserAgent, Label: actionText(e.Action), Sandbox: e.Environment == string(apikey.Test), Refused: e.Outcome == audit.Refused,
		Target: cmp.Or(e.Target.Name, e.Target.ID), Request: e.Source.RequestID,
	}
	switch e.Source.Actor.Type {
	case audit.System:
		row.By, row.ByPath = "System", auditURL(asked, "actor", systemActor)
	case audit.Operator:
		row.By = "Operator " + e.Source.Actor.ID
	case audit.Anonymous:
		row.By = "Not signed in"
	case audit.Key:
		row.By = "API key " + cmp.Or(e.Source.Actor.Email, e.Source.Actor.ID)
	default:
		row.By = cmp.Or(names[e.Source.Actor.ID], e.Source.Actor.Email, e.Source.Actor.ID, "Unknown")
	}
	if e.Source.Actor.ID != "" {
		row.ByPath = auditURL(asked, "actor", e.Source.Actor.ID)
	}
	if e.Target.PartialKey != "" {
		row.Target += " …" + e.Target.PartialKey
	}
	if e.Target.ID != "" {
		row.TargetPath = auditURL(asked, "target", e.Target.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Changes)) {
		c := e.Changes[name]
		row.Changes = append(row.Changes, auditChange{
			Member: strings.ReplaceAll(name, "_", " "), From: valueText(c.From), To: valueText(c.To), New: c.From == nil,
		})
	}
	row.Open = len(row.Changes) <= 3
	return row
}

// Summary returns the number of changes.
func (a auditRow) Summary() string {
	if len(a.Changes) == 1 {
		return "1 change"
	}
	return fmt.Sprint(len(a.Changes), " changes")
}

// maxValue is the length to which a value is shown, in bytes.
const maxValue = 2000

// valueText formats a value: texts and numbers as they are, lists with commas, deeper
// values as JSON.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		return cmp.Or(v, "empty")
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			if _, deep := one.(map[string]any); deep {
				return jsonText(v)
			}
			parts[i] = valueText(one)
		}
		return cmp.Or(strings.Join(parts, ", "), "none")
	}
	return jsonText(v)
}

func jsonText(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return "?"
	}
	text := strings.TrimSpace(b.String())
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + " …"
	}
	return text
}
