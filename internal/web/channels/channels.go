// Package channels serves the dashboard's pages where admins connect channels and inspect
// inbound events.
//
// A generated secret is shown once, to the admin that created it. A secret that an admin
// enters is never shown.
package channels

import (
	"context"
	"embed"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mailbox"
	"github.com/kickstand-dev/kickstand/internal/outbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

//go:embed all:templates
var templates embed.FS

// Config configures [Register].
type Config struct {
	DB          *db.DB
	Connections *connection.Service
	Inbound     *inbound.Service
	Shop        *shop.Service
	Mailboxes   *mailbox.Service
	Outbound    *outbound.Service // nil: credentials are not tested
	BaseURL     string            // public address, without a trailing slash
	// SendTrouble returns what an admin has to do so that a connection can send replies; empty:
	// nothing. nil: this server sends none.
	SendTrouble func(c *connection.Connection) string
	MailHost    string // that receives mail by SMTP; empty: none
	// TestMail has a mail to a connection's address received by SMTP, without storing it.
	TestMail func(ctx context.Context, c *connection.Connection) error
	// AllowTest counts a test of an organization's connections, and reports how long to wait if too many
	// were made. nil: no limit.
	AllowTest func(ctx context.Context, organizationID string) (ok bool, retryAfter time.Duration)
	// MailRecords reports whether the MX records of a connection's domain name MailHost, and what they are.
	MailRecords func(ctx context.Context, c *connection.Connection) (found string, ok bool)
}

type pages struct {
	*web.Section
	Config
}

// Register adds the pages below /settings/channels, /settings/inbound and
// /settings/privacy to a site.
func Register(s *web.Site, c Config) {
	p := &pages{s.Section(templates), c}
	p.Handle("/settings/channels", web.Route{Get: p.list, Admin: true})
	p.Handle("/settings/connect/{channel}", web.Route{Get: p.showConnectForm, Post: p.connect, Admin: true})
	p.Handle("/settings/channels/{id}", web.Route{Get: p.show, Post: p.change, Admin: true})
	p.Handle("/settings/channels/{id}/proof", web.Route{Post: p.prove, Admin: true})
	p.Handle("/settings/channels/{id}/test", web.Route{Post: p.test, Admin: true, Routine: true})
	p.Handle("/settings/channels/{id}/switch", web.Route{Post: p.setEnabled, Admin: true, Routine: true})
	p.Handle("/settings/channels/{id}/secret", web.Route{Get: p.showRotateForm, Post: p.rotate, Admin: true})
	p.Handle("/settings/channels/{id}/delete", web.Route{Get: p.confirmDisconnect, Post: p.disconnect, Admin: true})
	p.Handle("/settings/channels/{id}/consent", web.Route{Get: p.requestConsent, Admin: true})
	p.Handle(mailbox.CallbackPath, web.Route{Get: p.acceptConsent, Admin: true})
	p.Handle("/settings/inbound", web.Route{Get: p.events, Admin: true})
	p.Handle("/settings/inbound/{id}", web.Route{Get: p.event, Admin: true})
	p.Handle("/settings/inbound/{id}/replay", web.Route{Post: p.replay, Admin: true, Routine: true})
	p.Handle("/settings/inbound/{id}/body", web.Route{Get: p.body, Admin: true})
	p.Handle("/settings/privacy", web.Route{Get: p.privacy, Admin: true})
}

func page(r *web.Request, path, title string, body any) web.Page {
	return web.Page{Title: title, At: "/settings", Views: web.SettingsViews(r, path), Body: body}
}

// row is a connection in the list.
type row struct {
	connection.Connection
	Guide *guide
	State web.Badge
	Last  web.Time // the last inbound event; zero: none within a month
	Since web.Time
}

func (p *pages) stateBadge(c *connection.Connection) web.Badge {
	switch {
	case !c.Enabled && c.Notice != nil:
		return web.Badge{Text: "Ended", Tone: web.Bad, Icon: "alert"}
	case !c.Enabled:
		return web.Badge{Text: "Disabled", Icon: "pause"}
	case len(p.Connections.Needs(c)) > 0:
		return pendingBadge()
	case c.Notice != nil:
		return web.Badge{Text: "Has a problem", Tone: web.Warning, Icon: "alert"}
	}
	return web.Badge{Text: "Connected", Tone: web.Good, Icon: "check"}
}

// newRow returns the row of a connection. A connection of an unknown channel has the
// channel's name only.
func (p *pages) newRow(r *web.Request, c connection.Connection) (row, error) {
	g := p.guide(c.Channel)
	if g == nil {
		g = &guide{Name: c.Channel, Title: c.Channel, Icon: "plug"}
	}
	one := row{Connection: c, Guide: g, State: p.stateBadge(&c), Since: r.Time(c.CreatedAt)}
	last, err := p.Inbound.List(r.Context(), inbound.Filter{OrganizationID: r.OrganizationID, ConnectionID: c.ID, Limit: 1})
	if err == nil && len(last) > 0 {
		one.Last = r.Time(last[0].ReceivedAt)
	}
	return one, err
}

// list shows the connections and the channels that can be connected.
func (p *pages) list(w http.ResponseWriter, r *web.Request) error {
	all, err := p.Connections.List(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	body := struct {
		Connected []row
		Guides    []guide
		Dead      string // number of dead inbound events, as a sentence; empty: none
	}{Guides: p.offered()}
	if body.Dead, err = p.deadEvents(r); err != nil {
		return err
	}
	for _, c := range all {
		one, err := p.newRow(r, c)
		if err != nil {
			return err
		}
		body.Connected = append(body.Connected, one)
	}
	return p.Render(w, r, "list", page(r, "/settings/channels", "Channels", body))
}

// form is the body of the pages of [pages.connect] and [pages.change].
type form struct {
	Guide    *guide
	Steps    [][]stepPart
	Endpoint web.Code
	Privacy  *web.Code  // of shops
	Records  []web.Code // of the domain of a mail address
	Secret   *web.Secret
	Proof    *proofView
	Row      row // zero before it is connected
	Notice   *connection.Notice
	NoticeAt web.Time
	Mailbox  *mailboxView
	Orders   *shop.Subscriptions
	Checked  web.Time
	Trouble  string // why it cannot send, and what to do; empty: it can
	Events   []eventRow
	Health   healthView
	Results  []result // of a test
}

func (p *pages) newForm(g *guide, c *connection.Connection) form {
	f := form{Guide: g, Steps: g.steps(p.values(g, c, "")), Endpoint: web.Code{Label: "Endpoint URL", Text: p.endpoint(g, c)}}
	if g.Name == email.DirectName {
		f.Records = p.mailRecords(c)
	}
	if g.Name == "storefront" {
		f.Privacy = &web.Code{Label: "Compliance webhook URL", Text: p.BaseURL + privacyPath}
	}
	return f
}

// fields returns the fields of a channel. set are the connection's credentials, which are
// not shown; nil before it is connected.
func fields(g *guide, set map[string]string, connected bool) web.Fields {
	var fs web.Fields
	add := func(prefix string, in input, optional bool) *web.Field {
		f := web.Field{Name: prefix + in.Name, Label: in.Label, Type: "text", Optional: optional, Help: in.Help, Placeholder: in.Placeholder, Most: 4096}
		switch {
		case in.Choices != nil:
			f.Type, f.Options = "select", in.Choices
		case in.Long:
			f.Type, f.Rows = "textarea", 3
		case in.Password:
			f.Type, f.Autocomplete = "password", "off"
		}
		fs = append(fs, f)
		return &fs[len(fs)-1]
	}
	addSettings := func() {
		for _, in := range g.Settings {
			add("settings.", in, true)
		}
	}
	if !connected {
		address := g.Address
		address.Name = "address"
		add("", address, false)
		if g.Secret.Label != "" {
			secret := g.Secret
			secret.Name = "secrets.0"
			add("", secret, !g.Secret.Required)
		}
	}
	add("", input{Name: "name", Label: "Name", Help: "Shown to colleagues, and to customers as the sender of mails. Empty: the address."}, true)
	if !g.Read {
		addSettings()
	}
	for _, in := range g.Credentials {
		_, has := set[in.Name]
		f := add("credentials.", in, true)
		if has && in.Choices == nil {
			f.Placeholder = "set, and not shown"
			f.Help = strings.TrimSpace(f.Help + " Empty: it stays as it is.")
		}
		if has {
			fs = append(fs, web.Field{Name: "forget." + in.Name, Label: "Remove “" + in.Label + "”", Type: "checkbox", Optional: true})
		}
	}
	if g.Read { // the login is first
		addSettings()
	}
	return fs
}

// typedValues returns the non-empty fields of a form with a prefix.
func typedValues(values url.Values, prefix string, inputs []input) map[string]string {
	m := make(map[string]string)
	for _, in := range inputs {
		if v := strings.TrimSpace(values.Get(prefix + in.Name)); v != "" {
			m[in.Name] = v
		}
	}
	return m
}

func (p *pages) showConnectForm(w http.ResponseWriter, r *web.Request) error {
	g := p.guide(r.PathValue("channel"))
	if g == nil {
		return problem.New(problem.NotFound, "there is no such channel")
	}
	fs := fields(g, nil, false)
	fs.Focus()
	return p.renderConnect(w, r, g, fs, http.StatusOK)
}

func (p *pages) renderConnect(w http.ResponseWriter, r *web.Request, g *guide, fs web.Fields, status int) error {
	pg := page(r, "/settings/channels", "Connect: "+g.Title, p.newForm(g, nil))
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "connect", pg)
}

// connect creates a connection and shows its generated secret once. A repeated form
// fails: the address is taken.
func (p *pages) connect(w http.ResponseWriter, r *web.Request) error {
	g := p.guide(r.PathValue("channel"))
	if g == nil {
		return problem.New(problem.NotFound, "there is no such channel")
	}
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	n := connection.New{
		OrganizationID: r.OrganizationID, Channel: g.Name, Address: values.Get("address"), Name: strings.TrimSpace(values.Get("name")),
		Credentials: typedValues(values, "credentials.", g.Credentials), Settings: typedValues(values, "settings.", g.Settings),
	}
	fs := fields(g, nil, false)
	fs.Fill(values)
	given := strings.TrimSpace(values.Get("secrets.0"))
	if given != "" {
		n.Secrets = []string{given}
	} else if g.Secret.Required {
		fs.Field("secrets.0").Error = g.Secret.Label + " is needed: nothing could be verified without it."
		fs.Focus()
		return p.renderConnect(w, r, g, fs, http.StatusUnprocessableEntity)
	}
	if g.Read {
		if _, err := p.Mailboxes.Probe(r.Context(), &n); err != nil {
			for _, name := range []string{"imap_url", "smtp_url"} { // perhaps found by the address
				fs.Field("credentials." + name).Value = n.Credentials[name]
			}
			if status := fs.Answer(w, err); status != 0 {
				return p.renderConnect(w, r, g, fs, status)
			}
			return err
		}
	}
	var c connection.Connection
	var secrets []string
	err := p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		c, secrets, err = p.Connections.ConnectTx(r.Context(), tx, n)
		return err
	})
	if fs.Refused(err) {
		return p.renderConnect(w, r, g, fs, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	if given == "" && g.Made {
		note := "Enter it at the provider now."
		if g.Name == api.Name {
			note = "Store it on your server now."
		}
		return p.renderSecret(w, r, c, secrets[0], note)
	}
	return p.Redirect(w, "/settings/channels/"+c.ID, web.Notice{Text: p.connected(g, &c)})
}

// connected returns the notice after connecting.
func (p *pages) connected(g *guide, c *connection.Connection) string {
	if g.Read && c.CredentialValues()[signIn.Name] != "" {
		return "The mailbox is connected. Now sign in at its provider."
	}
	if g.Read {
		return "The mailbox is connected. Its new mails become tickets."
	}
	if g.Name == api.Name {
		return g.Title + " is connected. Now have your server use it."
	}
	if g.Name == email.DirectName {
		return g.Title + " is connected. Now prove that the address is yours, and create the MX record."
	}
	if len(p.Connections.Needs(c)) > 0 {
		return g.Title + " is connected. Now prove that the address is yours, and have the provider post here."
	}
	return g.Title + " is connected. Now have the provider post here."
}

// renderSecret renders a connection's page with its new secret.
func (p *pages) renderSecret(w http.ResponseWriter, r *web.Request, c connection.Connection, secret, note string) error {
	return p.renderConnection(w, r, c, nil, http.StatusOK, shownOnce{secret: &web.Secret{Label: "Secret", Value: secret, Note: note}})
}

func (p *pages) find(r *web.Request) (connection.Connection, *guide, error) {
	c, err := p.Connections.FindOf(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	g := p.guide(c.Channel)
	if g == nil {
		g = &guide{Name: c.Channel, Title: c.Channel, Icon: "plug"}
	}
	return c, g, err
}

// filledFields returns the fields with the connection's values.
func filledFields(g *guide, c *connection.Connection) web.Fields {
	fs := fields(g, c.CredentialValues(), true)
	fs.Field("name").Value = c.Name
	for name, value := range c.Settings {
		if f := fs.Field("settings." + name); f != nil {
			f.Value = value
		}
	}
	for _, in := range g.Credentials {
		if in.Choices != nil {
			fs.Field("credentials." + in.Name).Value = c.CredentialValues()[in.Name]
		}
	}
	return fs
}

func (p *pages) show(w http.ResponseWriter, r *web.Request) error {
	c, _, err := p.find(r)
	if err != nil {
		return err
	}
	return p.renderConnection(w, r, c, nil, http.StatusOK, shownOnce{})
}

// shownOnce holds values that only one response shows.
type shownOnce struct {
	secret *web.Secret
	wrong  string // the error of a proof

	results []result // of a test
}

// renderConnection renders a connection, with the form fs if it is not nil.
func (p *pages) renderConnection(w http.ResponseWriter, r *web.Request, c connection.Connection, fs web.Fields, status int, once shownOnce) error {
	g := p.guide(c.Channel)
	if g == nil {
		g = &guide{Name: c.Channel, Title: c.Channel, Icon: "plug"}
	}
	body := p.newForm(g, &c)
	body.Secret, body.Notice, body.Results = once.secret, c.Notice, once.results
	if p.SendTrouble != nil {
		body.Trouble = p.SendTrouble(&c)
	}
	if once.secret != nil {
		body.Steps = g.steps(p.values(g, &c, once.secret.Value))
	}
	if c.Notice != nil {
		body.NoticeAt = r.Time(c.Notice.At)
	}
	var err error
	if body.Row, err = p.newRow(r, c); err != nil {
		return err
	}
	if body.Health, err = p.newHealth(r, &c); err != nil {
		return err
	}
	if body.Proof, err = p.newProof(r, &c, once.wrong); err != nil {
		return err
	}
	if g.Read {
		if body.Mailbox, err = p.newMailboxView(r, &c); err != nil {
			return err
		}
	}
	if g.Name == "storefront" && p.Shop != nil {
		s, err := p.Shop.Subscriptions(r.Context(), p.DB, c.ID)
		if err != nil {
			return err
		}
		body.Orders, body.Checked = &s, r.Time(s.CheckedAt)
	}
	list, err := p.Inbound.List(r.Context(), inbound.Filter{OrganizationID: r.OrganizationID, ConnectionID: c.ID, Limit: 10})
	if err != nil {
		return err
	}
	for _, e := range list {
		body.Events = append(body.Events, newEventRow(r, e))
	}
	if fs == nil {
		fs = filledFields(g, &c)
	}
	pg := page(r, "/settings/channels", c.Name, body)
	pg.Fields, pg.Status = fs, status
	pg.Secret = once.secret != nil
	return p.Render(w, r, "connection", pg)
}

// change updates name, settings and credentials. An empty credential stays unchanged.
func (p *pages) change(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	c, g, err := p.find(r)
	if err != nil {
		return err
	}
	name := strings.TrimSpace(values.Get("name"))
	err = p.DB.Write(r.Context(), func(tx *db.Tx) error {
		now, err := p.Connections.FindTx(r.Context(), tx, r.OrganizationID, c.ID)
		if err != nil {
			return err
		}
		settings := inputSettings(now.Settings, g.Settings)
		maps.Copy(settings, typedValues(values, "settings.", g.Settings))
		credentials := maps.Clone(now.CredentialValues())
		if credentials == nil {
			credentials = make(map[string]string)
		}
		for _, in := range g.Credentials {
			if values.Get("forget."+in.Name) != "" || in.Choices != nil {
				delete(credentials, in.Name)
			}
		}
		maps.Copy(credentials, typedValues(values, "credentials.", g.Credentials))
		if c.Channel == email.MailboxName && email.MovesPassword(now.CredentialValues(), credentials) && values.Get("credentials."+email.CredentialPassword) == "" {
			var v problem.Validation
			v.Add("credentials."+email.CredentialPassword, "is required: it would be sent to another server than before")
			return v.Err()
		}
		_, err = p.Connections.UpdateTx(r.Context(), tx, r.OrganizationID, c.ID, connection.Change{Name: &name, Settings: settings, Credentials: credentials})
		return err
	})
	if err != nil {
		fs := filledFields(g, &c)
		fs.Fill(values)
		if fs.Refused(err) {
			return p.renderConnection(w, r, c, fs, http.StatusUnprocessableEntity, shownOnce{})
		}
		return err
	}
	return p.Redirect(w, "/settings/channels/"+c.ID, web.Notice{Text: "Saved."})
}

// inputSettings returns the settings without those in the form, so that settings unknown
// to the form stay.
func inputSettings(settings map[string]string, asked []input) map[string]string {
	rest := make(map[string]string)
	for name, value := range settings {
		if !slices.ContainsFunc(asked, func(in input) bool { return in.Name == name }) {
			rest[name] = value
		}
	}
	return rest
}

// setEnabled enables or disables a connection.
func (p *pages) setEnabled(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	on := values.Get("on") != ""
	id := r.PathValue("id")
	err := p.DB.Write(r.Context(), func(tx *db.Tx) error {
		_, err := p.Connections.UpdateTx(r.Context(), tx, r.OrganizationID, id, connection.Change{Enabled: &on})
		return err
	})
	if err != nil {
		return err
	}
	n := web.Notice{Text: "Channel disabled: it accepts no events and sends no replies.", Undo: "/settings/channels/" + id + "/switch", Fields: map[string]string{"on": "on"}}
	if on {
		n = web.Notice{Text: "Channel enabled."}
	}
	return p.Redirect(w, "/settings/channels/"+id, n)
}

// overlaps are the periods for which a replaced secret may stay valid.
var overlaps = []struct {
	web.Option
	seconds int
}{
	{web.Option{Value: "86400", Label: "24 hours"}, 86400},
	{web.Option{Value: "604800", Label: "7 days"}, 604800},
	{web.Option{Value: "3600", Label: "1 hour"}, 3600},
	{web.Option{Value: "0", Label: "expires immediately"}, 0},
}

func (p *pages) rotateFields(g *guide) web.Fields {
	help := "Empty: generated and shown once."
	if !g.Made {
		help = "The provider’s new signing secret."
	}
	fs := web.Fields{
		{Name: "secret", Label: "New secret", Type: "text", Optional: g.Made, Help: help},
		{Name: "overlap", Label: "Earlier secrets stay valid for", Type: "select", Value: "86400"},
	}
	for _, o := range overlaps {
		fs[1].Options = append(fs[1].Options, o.Option)
	}
	return fs
}

func (p *pages) showRotateForm(w http.ResponseWriter, r *web.Request) error {
	c, g, err := p.find(r)
	if err != nil {
		return err
	}
	fs := p.rotateFields(g)
	fs.Focus()
	return p.renderRotate(w, r, c, fs, http.StatusOK)
}

func (p *pages) renderRotate(w http.ResponseWriter, r *web.Request, c connection.Connection, fs web.Fields, status int) error {
	pg := page(r, "/settings/channels", "Replace secret", c)
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "rotate", pg)
}

// rotate replaces a connection's secret.
func (p *pages) rotate(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	c, g, err := p.find(r)
	if err != nil {
		return err
	}
	fs := p.rotateFields(g)
	fs[1].Value = values.Get("overlap")
	overlap := connection.Overlap
	for _, o := range overlaps {
		if o.Value == values.Get("overlap") {
			overlap = seconds(o.seconds)
		}
	}
	given := strings.TrimSpace(values.Get("secret"))
	if given == "" && !g.Made {
		fs[0].Error = "Enter the new secret of the provider."
		return p.renderRotate(w, r, c, fs, http.StatusUnprocessableEntity)
	}
	var secret string
	err = p.DB.Write(r.Context(), func(tx *db.Tx) (err error) {
		secret, err = p.Connections.RotateTx(r.Context(), tx, r.OrganizationID, c.ID, given, overlap)
		return err
	})
	if fs.Refused(err) {
		return p.renderRotate(w, r, c, fs, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	if given == "" {
		return p.renderSecret(w, r, c, secret, "Enter it at the provider before the old one expires.")
	}
	return p.Redirect(w, "/settings/channels/"+c.ID, web.Notice{Text: "Secret replaced."})
}

func (p *pages) disconnection(c connection.Connection) web.Confirm {
	return web.Confirm{
		Text: "Its address can be connected again, and its secrets become invalid. Its tickets stay, but can no longer be answered through it.",
		Type: c.Address, Label: "Disconnect", Cancel: "/settings/channels/" + c.ID,
	}
}

func (p *pages) confirmDisconnect(w http.ResponseWriter, r *web.Request) error {
	c, _, err := p.find(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Disconnect "+c.Name, page(r, "/settings/channels", "", nil), p.disconnection(c))
}

func (p *pages) disconnect(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	c, _, err := p.find(r)
	if err != nil {
		return err
	}
	if confirm := p.disconnection(c); !p.Confirmed(values, confirm) {
		return p.Confirm(w, r, "Disconnect "+c.Name, page(r, "/settings/channels", "", nil), confirm)
	}
	err = p.DB.Write(r.Context(), func(tx *db.Tx) error {
		return p.Connections.DeleteTx(r.Context(), tx, r.OrganizationID, c.ID)
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, "/settings/channels", web.Notice{Text: c.Address + " is disconnected."})
}
