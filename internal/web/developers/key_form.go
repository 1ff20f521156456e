package developers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// keyForm is the body of the key form.
type keyForm struct {
	Kinds       []kind // to choose from; nil when editing
	Kind        *kind
	ID          string // of the key
	Actions     []apikey.Action
	Grid        []gridRow
	Subaccounts []check
	Summary     string
	Mine        string // the client's IP address; empty: unknown
	Back        string // path of the link that cancels
}

// gridRow is a resource with a checkbox per action; actions that it lacks have none.
type gridRow struct {
	Label string
	Boxes []check
}

// check is a checkbox; none if Value is empty.
type check struct {
	Value, Label string
	Checked      bool
}

// Values of the form's choices.
const (
	every = "every" // all resources, or subaccounts
	some  = "some"  // the checked ones
)

// keyChoice is the parsed key form.
type keyChoice struct {
	permissions apikey.Permissions
	subaccounts []string
	addresses   []string
	limit       *int64
	expires     time.Time
	wrong       []problem.Issue
}

// readKeyForm parses the form. It reports only unreadable values; the service validates
// the rest.
func (p *pages) readKeyForm(r *web.Request, form url.Values, k *kind, plan int64) keyChoice {
	c := keyChoice{permissions: apikey.Permissions{Level: apikey.Level(form.Get("level"))}}
	if form.Get("resources") == some {
		c.permissions.Resources.Named = make(map[string][]apikey.Action)
		for _, v := range form["may"] {
			resource, action, _ := strings.Cut(v, ":")
			c.permissions.Resources.Named[resource] = append(c.permissions.Resources.Named[resource], apikey.Action(action))
		}
		if len(c.permissions.Resources.Named) == 0 {
			c.wrong = append(c.wrong, problem.Issue{Path: "resources", Message: "must be chosen: tick at least one box"})
		}
	} else if c.permissions.Level == "" {
		c.permissions.Resources.All = true
	}
	if k.Catalogue.Subaccounts && form.Get("subaccount_scope") == some {
		if c.subaccounts = form["subaccount"]; len(c.subaccounts) == 0 {
			c.wrong = append(c.wrong, problem.Issue{Path: "subaccount_scope", Message: "must be chosen: tick at least one"})
		}
	}
	c.addresses = strings.FieldsFunc(form.Get("allowed_ips"), func(c rune) bool { return strings.ContainsRune(" ,;\t\r\n", c) })
	if _, err := apikey.ParseAllowedIPs(c.addresses); err != nil {
		if p, ok := errors.AsType[*problem.Error](err); ok {
			c.wrong = append(c.wrong, p.Issues...)
		}
	}
	if text := strings.TrimSpace(form.Get("rate_limit_per_minute")); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			c.wrong = append(c.wrong, problem.Issue{Path: "rate_limit_per_minute", Message: fmt.Sprintf("must be a number from 1 to %d", plan)})
		} else {
			c.limit = &n
		}
	}
	day := form.Get("expires_at")
	if n, err := strconv.Atoi(day); err == nil {
		day = r.Now.AddDate(0, 0, min(max(n, 0), 3660)).Format(time.DateOnly)
	} else if day == "day" {
		if day = form.Get("day"); day == "" {
			c.wrong = append(c.wrong, problem.Issue{Path: "day", Message: "must be chosen"})
		}
	}
	var err error
	if c.expires, err = apikey.ParseExpiry(day, r.Now.Location()); err != nil {
		c.wrong = append(c.wrong, problem.Issue{Path: "day", Message: err.Error()})
	}
	return c
}

// keyValues returns the form values of an existing key.
func keyValues(k *apikey.Key) url.Values {
	form := url.Values{
		"name": {k.Name}, "level": {string(k.Level)}, "resources": {every}, "subaccount_scope": {every},
		"allowed_ips": {strings.Join(k.AllowedIPs.Strings(), "\n")},
	}
	if k.Resources.Named != nil {
		form.Set("resources", some)
	}
	for resource, list := range k.Resources.Named {
		for _, a := range list {
			form.Add("may", resource+":"+string(a))
		}
	}
	if k.RateLimit != 0 {
		form.Set("rate_limit_per_minute", strconv.FormatInt(k.RateLimit, 10))
	}
	return form
}

// keyFields returns the fields of the form with their values.
func (p *pages) keyFields(r *web.Request, k *kind, plan int64, made bool, form url.Values) web.Fields {
	fields := web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 100, Help: "Describe its use."},
		{Name: "level", Label: "Level", Type: "select", Options: []web.Option{
			{Value: string(apikey.ReadOnly), Label: "Read only"},
			{Value: string(apikey.ReadWrite), Label: "Read and write"},
			{Value: string(apikey.Admin), Label: "Admin: including settings"},
			{Value: "", Label: "No level: permissions only"},
		}},
		{Name: "resources", Label: "Resources", Type: "select", Options: []web.Option{
			{Value: every, Label: "All resources"}, {Value: some, Label: "Selected"},
		}},
	}
	if !made && k.Catalogue.Subaccounts {
		fields = append(fields, web.Field{Name: "subaccount_scope", Label: "Subaccounts", Type: "select", Options: []web.Option{
			{Value: every, Label: "All, including future ones"}, {Value: some, Label: "Selected"},
		}})
	}
	fields = append(fields,
		web.Field{Name: "allowed_ips", Label: "Allowed addresses", Type: "textarea", Rows: 2, Optional: true, Placeholder: "192.0.2.7\n2001:db8::/32",
			Help: "One per line: an address or a block such as 192.0.2.0/24. Empty: any address."},
		web.Field{Name: "rate_limit_per_minute", Label: "Requests per minute", Type: "text", Mode: "numeric", Optional: true, Most: 12,
			Placeholder: strconv.FormatInt(plan, 10), Help: "At most your plan’s limit, which also applies if empty."},
	)
	if !made {
		preset := func(days int, label string) web.Option {
			return web.Option{Value: strconv.Itoa(days), Label: label + ", " + r.Date(r.Now.AddDate(0, 0, days))}
		}
		fields = append(fields,
			web.Field{Name: "expires_at", Label: "Expires", Type: "select", Options: []web.Option{
				{Value: "", Label: "Never"}, preset(7, "In a week"), preset(30, "In 30 days"), preset(90, "In 90 days"), preset(365, "In a year"), {Value: "day", Label: "On a day"},
			}, Help: "Valid until the end of that day in your time zone."},
			web.Field{Name: "day", Label: "Last day", Type: "date", Optional: true},
		)
	}
	fields.Fill(form)
	return fields
}

// grid returns a checkbox per action of each resource that keys of a catalogue can have.
func grid(c apikey.Catalogue, form url.Values) []gridRow {
	var rows []gridRow
	for _, res := range c.Resources {
		if res.Unnamed || res.Settings {
			continue
		}
		row := gridRow{Label: capitalize(res.Name)}
		for _, a := range actions {
			box := check{Label: string(a) + " " + res.Name}
			if slices.Contains(res.Actions, a) {
				box.Value = res.Name + ":" + string(a)
				box.Checked = slices.Contains(form["may"], box.Value)
			}
			row.Boxes = append(row.Boxes, box)
		}
		rows = append(rows, row)
	}
	return rows
}

// keyFormPage returns the page of the key form. made is nil for a new key.
func (p *pages) keyFormPage(r *web.Request, k *kind, made *apikey.Key, form url.Values) (web.Page, keyChoice, error) {
	plan, err := p.Keys.PlanLimit(r.Context(), r.OrganizationID)
	if err != nil {
		return web.Page{}, keyChoice{}, err
	}
	subaccounts, err := p.subaccounts(r, k)
	if err != nil {
		return web.Page{}, keyChoice{}, err
	}
	c := p.readKeyForm(r, form, k, plan)
	if len(named(subaccounts, c.subaccounts)) < len(c.subaccounts) {
		c.wrong = append(c.wrong, problem.Issue{Path: "subaccount_scope", Message: "has one that is not there any more"})
	}
	body := keyForm{Kind: k, Actions: actions, Grid: grid(k.Catalogue, form), Mine: r.Client.IP}
	title, scope, expires := "Create API key", c.subaccounts, c.expires
	if made == nil {
		body.Kinds, body.ID, body.Back = p.kinds(), formID(form.Get("id")), keysPath+"?of="+k.Name
		for _, s := range subaccounts {
			body.Subaccounts = append(body.Subaccounts, check{s.ID, s.Name, slices.Contains(c.subaccounts, s.ID)})
		}
	} else {
		title, body.ID, body.Back = "Change "+made.Name, made.ID, keysPath+"/"+made.ID
		scope, expires = made.Scope.SubaccountIDs, made.ExpiresAt
	}
	limit := plan
	if c.limit != nil {
		limit = apikey.Limit(*c.limit, plan)
	}
	body.Summary = keySummary(k, c.permissions, named(subaccounts, scope), c.addresses, limit, r.Time(expires))
	pg := page(r, keysPath, title, body)
	pg.Fields, pg.Scripts = p.keyFields(r, k, plan, made != nil, form), []string{"developers.js"}
	return pg, c, nil
}

func named(subaccounts []fleet.Subaccount, ids []string) []string {
	var out []string
	for _, s := range subaccounts {
		if slices.Contains(ids, s.ID) {
			out = append(out, s.Name)
		}
	}
	return out
}

// newKey renders the form for a new key.
func (p *pages) newKey(w http.ResponseWriter, r *web.Request) error {
	form := url.Values{"level": {string(apikey.ReadOnly)}, "resources": {every}, "subaccount_scope": {every}}
	pg, _, err := p.keyFormPage(r, p.kindNamed(r.URL.Query().Get("of")), nil, form)
	if err != nil {
		return err
	}
	pg.Fields.Focus()
	return p.Render(w, r, "keyform", pg)
}

// keySummaryPart renders the sentence about the key in the form, for a script.
func (p *pages) keySummaryPart(w http.ResponseWriter, r *web.Request) error {
	form := r.URL.Query()
	k := p.kindNamed(form.Get("of"))
	var there *apikey.Key
	if id := form.Get("key"); id != "" {
		found, err := p.Keys.Find(r.Context(), r.OrganizationID, id)
		if err != nil {
			return err
		}
		there, k = &found, p.keyKind(&found)
	}
	pg, _, err := p.keyFormPage(r, k, there, form)
	if err != nil {
		return err
	}
	return p.Fragment(w, "keyform", "summary", pg.Body)
}

// createKey creates a key and shows it.
func (p *pages) createKey(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	kd := p.kindNamed(r.URL.Query().Get("of"))
	pg, c, err := p.keyFormPage(r, kd, nil, form)
	if err != nil {
		return err
	}
	body := pg.Body.(keyForm)
	if answered, err := p.isCreated(w, r, body.ID); answered || err != nil {
		return err
	}
	if c.wrong != nil {
		pg.Fields.Mark(c.wrong)
		pg.Fields.Focus()
		return p.Render(w, r, "keyform", refused(pg))
	}
	k, t, err := p.Keys.Create(r.Context(), apikey.New{
		ID: body.ID, OrganizationID: r.OrganizationID, Service: kd.Service, Environment: kd.Environment, Name: form.Get("name"),
		Permissions: c.permissions, Scope: apikey.ScopeOf(c.subaccounts), AllowedIPs: c.addresses, RateLimit: c.limit, ExpiresAt: c.expires,
	})
	if err != nil {
		// The form was posted twice concurrently; the other request won.
		if answered, err := p.isCreated(w, r, body.ID); answered || err != nil {
			return err
		}
		if !pg.Fields.Refused(err) {
			return err
		}
		return p.Render(w, r, "keyform", refused(pg))
	}
	return p.renderSecret(w, r, "Key created", k, t)
}

// isCreated answers a repeated form and reports whether it did.
func (p *pages) isCreated(w http.ResponseWriter, r *web.Request, id string) (answered bool, err error) {
	switch _, err := p.Keys.Find(r.Context(), r.OrganizationID, id); {
	case problem.Of(err) == problem.NotFound:
		return false, nil
	case err != nil:
		return false, err
	}
	return true, p.Redirect(w, keysPath+"/"+id, web.Notice{Text: "This key already exists and was shown when it was created. If you didn't save it, rotate it."})
}

// editKey renders the form of an existing key.
func (p *pages) editKey(w http.ResponseWriter, r *web.Request) error {
	k, err := p.find(r)
	if err != nil {
		return err
	}
	if status := k.Status(r.Now); status != apikey.Active {
		return problem.New(problem.Conflict, "The key is %s and can no longer be changed. Create another one.", status)
	}
	pg, _, err := p.keyFormPage(r, p.keyKind(&k), &k, keyValues(&k))
	if err != nil {
		return err
	}
	return p.Render(w, r, "keyform", pg)
}

// updateKey updates a key, with effect from its next request.
func (p *pages) updateKey(w http.ResponseWriter, r *web.Request) error {
	k, err := p.find(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	pg, c, err := p.keyFormPage(r, p.keyKind(&k), &k, form)
	if err != nil {
		return err
	}
	if c.wrong != nil {
		pg.Fields.Mark(c.wrong)
		pg.Fields.Focus()
		return p.Render(w, r, "keyform", refused(pg))
	}
	// With a level, All and a nil list of names are equivalent; the stored form stays.
	if c.permissions.Resources.Named == nil && k.Resources.All {
		c.permissions.Resources.All = true
	}
	if c.limit == nil {
		c.limit = new(int64)
	}
	_, err = p.Keys.Edit(r.Context(), r.OrganizationID, k.ID, apikey.Edit{
		Name: new(form.Get("name")), Level: &c.permissions.Level, Resources: &c.permissions.Resources, AllowedIPs: &c.addresses, RateLimit: c.limit,
	})
	if err != nil {
		if !pg.Fields.Refused(err) {
			return err
		}
		return p.Render(w, r, "keyform", refused(pg))
	}
	return p.Redirect(w, keysPath+"/"+k.ID, web.Notice{Text: "Key updated, with effect from its next request."})
}
