package developers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// hookForm is the body of the webhook form.
type hookForm struct {
	ID     string // of the webhook
	Exists bool   // false: to be created
	Source event.Source
	Tabs   []sourceTab // forms for webhooks of each source; empty in a change
	All    bool        // all events
	Groups []eventGroup
	Error  string // of the events
	Back   string
}

// sourceTab is the form for a webhook of one source.
type sourceTab struct {
	Path, Label string
	Current     bool
}

// eventGroup is a group of events in the form.
type eventGroup struct {
	Label  string
	Events []check
}

// sourceLabels are the labels of sources.
var sourceLabels = map[event.Source]string{event.Helpdesk: "Helpdesk", event.Fleet: "Fleet", event.Sandbox: "Fleet sandbox"}

// groups returns all events of a source, with the wanted ones checked.
func groups(source event.Source, wanted []string) []eventGroup {
	if source.OfFleet() {
		return fleetGroups(wanted)
	}
	out := []eventGroup{{Label: "Tickets"}, {Label: "Messages"}, {Label: "Customers"}, {Label: "Service levels"}, {Label: "Security: not included in “all events”"}}
	of := map[string]int{"ticket": 0, "conversation": 1, "message": 1, "customer": 2, "sla": 3, "audit": 4}
	for _, name := range append(slices.Clone(event.Names[:]), event.AuditRecorded) {
		about, _, _ := strings.Cut(string(name), ".")
		g := &out[of[about]]
		g.Events = append(g.Events, check{string(name), string(name), slices.Contains(wanted, string(name))})
	}
	return out
}

// fleetGroups is groups for the fleet.
func fleetGroups(wanted []string) []eventGroup {
	out := []eventGroup{{Label: "Rides"}, {Label: "Vehicles"}, {Label: "Zones"}, {Label: "Customers"}, {Label: "Tasks"}, {Label: "Alerts"}}
	of := map[string]int{"ride": 0, "vehicle": 1, "zone": 2, "customer": 3, "task": 4, "alert": 5}
	for _, name := range event.FleetNames {
		about, _, _ := strings.Cut(string(name), ".")
		g := &out[of[about]]
		g.Events = append(g.Events, check{string(name), string(name), slices.Contains(wanted, string(name))})
	}
	return out
}

// sourceOf returns the source of a form; the helpdesk if it names none.
func sourceOf(form url.Values) event.Source {
	if s := event.Source(form.Get("source")); s.Valid() {
		return s
	}
	return event.Helpdesk
}

// Values of the field "signing".
const (
	ownSecret = "own"
	noSecret  = "none"
)

func secretFields(noneLabel string) web.Fields {
	return web.Fields{
		{Name: "signing", Label: "Signing", Type: "select", Options: []web.Option{
			{Value: "", Label: "With a generated secret"}, {Value: ownSecret, Label: "With my own secret"}, {Value: noSecret, Label: noneLabel},
		}, Help: "A signature proves that a delivery comes from Kickstand. Recommended."},
		{Name: "secret", Label: "My secret", Type: "password", Autocomplete: "off", Optional: true, Most: 500, Help: "At least 16 random characters, or a Standard Webhooks secret: whsec_ and base64."},
	}
}

// parseSecret returns the secret of the form, or nil for none, and whether it was
// generated here.
func parseSecret(form url.Values) (secret *string, generated bool) {
	switch form.Get("signing") {
	case ownSecret:
		return new(form.Get("secret")), false
	case noSecret:
		return nil, false
	}
	return new(payload.NewSecret()), true
}

func (p *pages) hookForm(r *web.Request, h *webhook.Webhook, form url.Values) web.Page {
	source := sourceOf(form)
	if h != nil {
		source = h.Source
	}
	body := hookForm{ID: formID(form.Get("id")), Source: source, All: slices.Contains(form["events"], "*"), Groups: groups(source, form["events"]), Back: webhooksPath}
	title := "Add webhook"
	fields := web.Fields{{Name: "url", Label: "Address", Type: "url", Autocomplete: "url", Most: 2048, Placeholder: "https://example.com/hooks/kickstand", Help: "Receives the events by POST: https, publicly reachable."}}
	if h != nil {
		title, body.ID, body.Exists, body.Back = "Change "+address(h.URL), h.ID, true, webhooksPath+"/"+h.ID
	} else {
		fields = append(fields, secretFields("No signature")...)
		for _, s := range event.Sources {
			body.Tabs = append(body.Tabs, sourceTab{webhooksPath + "/new?source=" + string(s), sourceLabels[s], s == source})
		}
	}
	retries := web.Field{Name: "retrySchedule", Label: "Retries", Type: "select", Options: []web.Option{{Value: "two", Label: schedules[webhook.ShortSchedule]}, {Value: "one", Label: schedules[webhook.LongSchedule]}}}
	if source.OfFleet() {
		fields = append(fields, retries)
		return p.hookFormPage(r, title, body, fields, form)
	}
	fields = append(fields,
		web.Field{Name: "payloadForm", Label: "Payload", Type: "select", Options: []web.Option{{Value: "b", Label: forms[payload.Nested]}, {Value: "a", Label: forms[payload.Flat]}}},
		retries,
		web.Field{Name: "ordered", Label: "In order, one at a time", Type: "checkbox", Help: "A delivery that is being retried then blocks all later ones."},
	)
	return p.hookFormPage(r, title, body, fields, form)
}

// hookFormPage returns the page of a form with its fields filled in.
func (p *pages) hookFormPage(r *web.Request, title string, body hookForm, fields web.Fields, form url.Values) web.Page {
	fields.Fill(form)
	pg := page(r, webhooksPath, title, body)
	pg.Fields, pg.Scripts = fields, []string{"developers.js"}
	return pg
}

// renderRefused renders the form again if err is about it. Errors of the events appear
// beside them.
func (p *pages) renderRefused(w http.ResponseWriter, r *web.Request, pg web.Page, err error) error {
	pg.Fields = append(pg.Fields, web.Field{Name: "events", Label: "Events"})
	if refusal, ok := errors.AsType[*problem.Error](err); ok {
		for i := range refusal.Issues {
			if strings.HasPrefix(refusal.Issues[i].Path, "events") {
				refusal.Issues[i].Path = "events"
			}
		}
	}
	if !pg.Fields.Refused(err) {
		return err
	}
	body := pg.Body.(hookForm)
	body.Error = pg.Fields.Field("events").Error
	pg.Body = body
	return p.Render(w, r, "webhookform", refused(pg))
}

func (p *pages) newWebhook(w http.ResponseWriter, r *web.Request) error {
	pg := p.hookForm(r, nil, url.Values{"events": {"*"}, "source": {r.URL.Query().Get("source")}})
	pg.Fields.Focus()
	return p.Render(w, r, "webhookform", pg)
}

// createWebhook creates a webhook and shows its secret if it was generated.
func (p *pages) createWebhook(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	pg := p.hookForm(r, nil, form)
	n := webhook.New{
		ID: pg.Body.(hookForm).ID, Source: sourceOf(form), URL: strings.TrimSpace(form.Get("url")), Events: form["events"],
		PayloadForm: payload.Form(form.Get("payloadForm")), RetrySchedule: webhook.Schedule(form.Get("retrySchedule")), Ordered: form.Get("ordered") != "",
		MayAudit: true, // the page is for admins only
	}
	var fresh bool
	n.Secret, fresh = parseSecret(form)
	var made webhook.Webhook
	err := p.write(r, func(ctx context.Context, tx *db.Tx) (err error) {
		made, err = p.Webhooks.CreateTx(ctx, tx, r.OrganizationID, n)
		return err
	})
	if problem.Of(err) == problem.Conflict {
		if _, err := p.Webhooks.Find(r.Context(), r.OrganizationID, n.ID); err == nil {
			return p.Redirect(w, webhooksPath+"/"+n.ID, web.Notice{Text: "This webhook already exists. If you didn't save its secret, replace it."})
		}
	}
	if err != nil {
		return p.renderRefused(w, r, pg, err)
	}
	if !fresh {
		return p.Redirect(w, webhooksPath+"/"+made.ID, web.Notice{Text: "Webhook created. Send a test."})
	}
	return p.renderHookSecret(w, r, "Webhook created", &made, *n.Secret)
}

// renderHookSecret renders the page that shows a generated secret once.
func (p *pages) renderHookSecret(w http.ResponseWriter, r *web.Request, title string, h *webhook.Webhook, secret string, lines ...string) error {
	pg := page(r, webhooksPath, title, createdPage{
		Secret: web.Secret{Label: "Secret", Value: secret, Note: "The receiver verifies deliveries with it. Libraries for Standard Webhooks accept it as it is."},
		Code:   web.Code{Label: "Try it", Text: "kickstand listen --secret '" + secret + "'"},
		Path:   webhooksPath + "/" + h.ID, Label: "Open webhook", Lines: lines,
	})
	pg.Status, pg.Scripts = http.StatusCreated, []string{"developers.js"}
	pg.Secret = true
	return p.Render(w, r, "created", pg)
}

// hookValues returns the form values of an existing webhook.
func hookValues(h *webhook.Webhook) url.Values {
	form := url.Values{"url": {h.URL}, "events": h.Events, "payloadForm": {string(h.PayloadForm)}, "retrySchedule": {string(h.RetrySchedule)}}
	if h.Ordered {
		form.Set("ordered", "on")
	}
	return form
}

func (p *pages) editWebhook(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	return p.Render(w, r, "webhookform", p.hookForm(r, &h, hookValues(&h)))
}

func (p *pages) updateWebhook(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	change := webhook.Change{
		URL: new(strings.TrimSpace(form.Get("url"))), Events: new(form["events"]), RetrySchedule: new(webhook.Schedule(form.Get("retrySchedule"))), MayAudit: true,
	}
	if !h.Source.OfFleet() { // whose form has no such fields
		change.PayloadForm, change.Ordered = new(payload.Form(form.Get("payloadForm"))), new(form.Get("ordered") != "")
	}
	_, err = p.Webhooks.Update(r.Context(), r.OrganizationID, h.ID, change)
	if err != nil {
		return p.renderRefused(w, r, p.hookForm(r, &h, form), err)
	}
	return p.Redirect(w, webhooksPath+"/"+h.ID, web.Notice{Text: "Webhook updated. Queued events use the new settings."})
}

// secretForm is the body of the form that replaces a secret.
type secretForm struct {
	Webhook webhook.Webhook
	Version string // of the webhook
}

func (p *pages) secretForm(r *web.Request, h *webhook.Webhook) web.Page {
	pg := page(r, webhooksPath, "Secret of "+address(h.URL), secretForm{*h, strconv.FormatInt(h.UpdatedAt.UnixMicro(), 10)})
	pg.Fields, pg.Scripts = secretFields("No signature"), []string{"developers.js"}
	return pg
}

func (p *pages) showSecretForm(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	return p.Render(w, r, "websecret", p.secretForm(r, &h))
}

// replaceSecret replaces the signing secret. The form carries the webhook's version, so
// that a repeated form does not replace it again.
func (p *pages) replaceSecret(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	secret, fresh := parseSecret(form)
	stale := false
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		now, err := p.Webhooks.FindTx(ctx, tx, r.OrganizationID, h.ID)
		if err != nil {
			return err
		}
		if stale = strconv.FormatInt(now.UpdatedAt.UnixMicro(), 10) != form.Get("version"); stale {
			return nil
		}
		h, err = p.Webhooks.UpdateTx(ctx, tx, r.OrganizationID, h.ID, webhook.Change{Secret: secret, Unsigned: secret == nil, MayAudit: true})
		return err
	})
	if err != nil {
		pg := p.secretForm(r, &h)
		pg.Fields.Fill(form)
		if !pg.Fields.Refused(err) {
			return err
		}
		return p.Render(w, r, "websecret", refused(pg))
	}
	back := webhooksPath + "/" + h.ID
	if stale {
		return p.Redirect(w, back, web.Notice{Text: "Nothing was changed: the webhook has changed since the form was opened, or the form was sent twice. A secret is shown only once; replace it again if you did not save it.", Bad: true})
	}
	switch {
	case fresh:
		return p.renderHookSecret(w, r, "Secret replaced", &h, *secret, "For 24 hours the header Webhook-Signature carries signatures by the old secret and the new one, so that the receiver can switch at any time within 24 hours.")
	case secret == nil:
		return p.Redirect(w, back, web.Notice{Text: "Deliveries are no longer signed."})
	}
	return p.Redirect(w, back, web.Notice{Text: "Secret replaced. The old one also signs for 24 hours."})
}
