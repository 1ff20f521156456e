package settings

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/setting"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const serverPath = web.ServerPath

// Server is the deployment that operators see. Refused values are a [setting.Error].
type Server struct {
	// Settings returns all settings, in the order of their display.
	Settings func(ctx context.Context) ([]setting.Setting, error)
	// Save stores values by the names of settings, all or none; an empty one deletes the value of the
	// page.
	Save func(ctx context.Context, values map[string]string) error
	// TestMail sends a mail as the server would with values.
	TestMail func(ctx context.Context, values map[string]string, to string) error
	// Checks runs the checks of the deployment.
	Checks func(ctx context.Context) []ServerCheck
	// Facts describe the process that renders the page.
	Facts [][2]string
}

// ServerCheck is the result of a check of the deployment.
type ServerCheck struct {
	Name, Status  string // ok, warn or fail
	Found, Remedy string // sentences
}

// operatorOnly hides a page from everybody but operators.
func (p *pages) operatorOnly(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *web.Request) error {
		if p.Server.Settings == nil || !r.Operator() {
			return problem.New(problem.NotFound, "This page does not exist.")
		}
		return h(w, r)
	}
}

// registerServer adds the pages of the deployment's settings.
func (p *pages) registerServer() {
	p.Handle(serverPath, web.Route{Get: p.operatorOnly(p.server), WithoutOrganization: true})
	p.Handle(serverPath+"/checks", web.Route{Get: p.operatorOnly(p.serverChecks), WithoutOrganization: true})
	p.Handle(serverPath+"/{area}", web.Route{Get: p.operatorOnly(p.serverArea), Post: p.operatorOnly(p.saveServerArea), WithoutOrganization: true})
}

// serverAreas is the body of the page of areas.
type serverAreas struct {
	Areas []serverAreaRow
	Facts [][2]string
}

type serverAreaRow struct {
	Path, Name        string
	Count, Set, Pages int // settings, those with a value, those with a value of the page
}

func areaSlug(area string) string { return strings.ToLower(area) }

func (p *pages) server(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Server.Settings(r.Context())
	if err != nil {
		return err
	}
	body := serverAreas{Facts: p.Server.Facts}
	for _, s := range list {
		i := slices.IndexFunc(body.Areas, func(a serverAreaRow) bool { return a.Name == s.Area })
		if i < 0 {
			i = len(body.Areas)
			body.Areas = append(body.Areas, serverAreaRow{Path: serverPath + "/" + areaSlug(s.Area), Name: s.Area})
		}
		a := &body.Areas[i]
		a.Count++
		if s.Source != setting.Default {
			a.Set++
		}
		if s.Source == setting.Page {
			a.Pages++
		}
	}
	return p.Render(w, r, "server", page(r, serverPath, "Server", body))
}

var checkBadges = map[string]web.Badge{
	"ok":   {Text: "OK", Tone: web.Good, Icon: "check"},
	"warn": {Text: "Warning", Tone: web.Warning, Icon: "alert"},
	"fail": {Text: "Failure", Tone: web.Bad, Icon: "alert"},
}

type serverCheckRow struct {
	ServerCheck
	Badge web.Badge
}

func (p *pages) serverChecks(w http.ResponseWriter, r *web.Request) error {
	var rows []serverCheckRow
	for _, c := range p.Server.Checks(r.Context()) {
		rows = append(rows, serverCheckRow{c, web.BadgeFor(checkBadges, c.Status)})
	}
	return p.Render(w, r, "serverchecks", page(r, serverPath, "Checks", rows))
}

// serverArea is the body of an area's page.
type serverArea struct {
	Settings []serverSetting
	Mail     bool // the form is tested by a mail
	Address  string
}

type serverSetting struct {
	setting.Setting
	Since web.Time
}

func (s serverSetting) Deletable() bool { return s.Source == setting.Page }

// area returns the settings of the request's area.
func (p *pages) area(r *web.Request) ([]setting.Setting, error) {
	list, err := p.Server.Settings(r.Context())
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(s setting.Setting) bool { return areaSlug(s.Area) != r.PathValue("area") })
	if len(list) == 0 {
		return nil, problem.New(problem.NotFound, "This page does not exist.")
	}
	return list, nil
}

func (p *pages) serverArea(w http.ResponseWriter, r *web.Request) error {
	list, err := p.area(r)
	if err != nil {
		return err
	}
	return p.showServerArea(w, r, list, serverFields(list), 0)
}

// ofMail reports whether a setting is tested by a mail.
func ofMail(name string) bool {
	return name == setting.SMTPURL || name == setting.DeliveryKey || name == setting.MailFrom
}

func (p *pages) showServerArea(w http.ResponseWriter, r *web.Request, list []setting.Setting, fs web.Fields, status int) error {
	body := serverArea{Address: r.User.Email}
	for _, s := range list {
		body.Settings = append(body.Settings, serverSetting{s, r.Time(s.ChangedAt)})
		body.Mail = body.Mail || s.Changeable() && ofMail(s.Name)
	}
	pg := page(r, serverPath, list[0].Area, body)
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "serverarea", pg)
}

// Values of the field of the sign-up policy beside open and invited.
const domainChoice = "domain"

// retentionKinds are the fields of the form of retention.
var retentionKinds = []string{"events", "attempts", "inbound", "requests"}

// serverFields returns the form of the changeable settings among list.
func serverFields(list []setting.Setting) web.Fields {
	var fs web.Fields
	for _, s := range list {
		if !s.Changeable() {
			continue
		}
		switch s.Name {
		case setting.SMTPURL:
			fs = append(fs, web.Field{Name: s.Name, Label: "Mail server", Type: "password", Optional: true, Most: 2000, Help: "smtp://user:password@host:587 or smtps://… Empty: unchanged."})
		case setting.DeliveryKey:
			fs = append(fs, web.Field{Name: s.Name, Label: "Mail delivery provider", Type: "password", Optional: true, Most: 500, Help: "Its API key, to send mail if there is no mail server, and to fetch received mail. Empty: unchanged."})
		case setting.MailFrom:
			fs = append(fs, web.Field{Name: s.Name, Label: "Sender", Type: "text", Most: 300, Value: s.Value, Help: s.Help})
		case setting.SignUp:
			choice, domains, _ := strings.Cut(s.Value, ":")
			fs = append(fs,
				web.Field{Name: s.Name, Label: "Sign-up policy", Type: "select", Value: choice, Options: []web.Option{
					{Value: "open", Label: "Open: anybody creates an organization"}, {Value: "invited", Label: "Invited addresses only"},
					{Value: domainChoice, Label: "Addresses in these domains only"},
				}},
				web.Field{Name: "domains", Label: "Domains", Type: "text", Optional: true, Most: 1000, Value: domains, Placeholder: "example.com, example.org", Help: "Separated by commas."})
		case setting.SignInBrand:
			fs = append(fs, web.Field{Name: s.Name, Label: "Branding of pages for signing in", Type: "text", Optional: true, Most: 100, Value: s.Value, Help: "The short name of an organization, whose name, logo and color they have. Empty: those of Kickstand."})
		case setting.Retention:
			for _, kind := range retentionKinds {
				fs = append(fs, web.Field{Name: kind, Label: strings.ToUpper(kind[:1]) + kind[1:], Type: "text", Most: 20, Value: retentionOf(s.Value, kind), Help: "As 90d or 12h, from 1h to 3650d, or never."})
			}
		}
	}
	return fs
}

// retentionOf returns the time of a kind in "events=90d, attempts=30d".
func retentionOf(value, kind string) string {
	for item := range strings.SplitSeq(value, ",") {
		if name, text, _ := strings.Cut(strings.TrimSpace(item), "="); name == kind {
			return text
		}
	}
	return ""
}

// serverValues returns the values of the form that differ from the effective ones: the page stores no default.
func serverValues(list []setting.Setting, form url.Values) map[string]string {
	values := make(map[string]string)
	for _, s := range list {
		if !s.Changeable() {
			continue
		}
		value := strings.TrimSpace(form.Get(s.Name))
		switch s.Name {
		case setting.SMTPURL, setting.DeliveryKey:
			if value == "" {
				continue // unchanged
			}
		case setting.SignUp:
			if value == domainChoice {
				value += ":" + strings.ReplaceAll(form.Get("domains"), " ", "")
			}
		case setting.Retention:
			var items []string
			for _, kind := range retentionKinds {
				items = append(items, kind+"="+strings.TrimSpace(form.Get(kind)))
			}
			value = strings.Join(items, ",") + ",audit=never"
		}
		if value != strings.ReplaceAll(s.Value, ", ", ",") {
			values[s.Name] = value
		}
	}
	return values
}

// saveServerArea stores, tests or deletes values of the page. Settings of mail are stored only if the test
// mail leaves.
func (p *pages) saveServerArea(w http.ResponseWriter, r *web.Request) error {
	list, err := p.area(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	fs := serverFields(list)
	values, text := serverValues(list, form), "Settings saved."
	test := slices.ContainsFunc(fs, func(f web.Field) bool { return ofMail(f.Name) })
	save := form.Get("do") != "test"
	if name := form.Get("delete"); name != "" {
		if !slices.ContainsFunc(list, func(s setting.Setting) bool { return s.Name == name && s.Source == setting.Page }) {
			return problem.New(problem.NotFound, "This setting has no value of the page.")
		}
		values, test, save, text = map[string]string{name: ""}, false, true, "Value deleted."
	} else {
		fs.Fill(form)
	}
	if test {
		err = p.Server.TestMail(r.Context(), values, r.User.Email)
		if text = "Test mail sent to " + r.User.Email + "."; save {
			text += " Settings saved."
		}
	}
	if err == nil && save {
		err = p.Server.Save(r.Context(), values)
	}
	if refused, ok := errors.AsType[*setting.Error](err); ok && len(fs) > 0 {
		if issue := serverIssue(refused); fs.Field(issue.Path) != nil {
			fs.Mark([]problem.Issue{issue})
		} else { // the deployment fixes the setting
			fs[0].Error = "The value of " + issue.Path + " " + issue.Message + "."
		}
		fs.Focus()
		return p.showServerArea(w, r, list, fs, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, serverPath+"/"+r.PathValue("area"), web.Notice{Text: text})
}

// serverIssue returns the issue of the field that a refusal concerns.
func serverIssue(e *setting.Error) problem.Issue {
	message := strings.TrimPrefix(strings.TrimPrefix(e.Err.Error(), "mail: "), "SMTP URL ")
	name := e.Name
	if name == setting.SignUp && strings.Contains(message, "mail domain") {
		return problem.Issue{Path: "domains", Message: message}
	}
	if kind, rest, found := strings.Cut(message, ": "); found && slices.Contains(retentionKinds, kind) {
		name, message = kind, rest
	}
	return problem.Issue{Path: name, Message: message}
}
