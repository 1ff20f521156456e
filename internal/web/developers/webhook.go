package developers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

const webhooksPath = "/settings/webhooks"

// hookRow is a webhook in the list.
type hookRow struct {
	webhook.Webhook
	Badge      web.Badge
	EventsText string // summary of the subscribed events
	History    deliveryHistory
	Queued     string
	Last       web.Time

	SourceLabel string
}

func hookBadge(w *webhook.Webhook) web.Badge {
	switch {
	case w.State == webhook.Failed:
		return web.Badge{Text: "Failed", Tone: web.Bad, Icon: "alert"}
	case w.State == webhook.Disabled:
		return web.Badge{Text: "Paused", Tone: web.Warning, Icon: "pause"}
	case w.DrainRate > 0:
		return web.Badge{Text: "Draining queue", Tone: web.Accent}
	}
	return web.Badge{Text: "Active", Tone: web.Good, Icon: "check"}
}

func (p *pages) hookRow(r *web.Request, w webhook.Webhook, counts []webhook.Count, listed bool) hookRow {
	row := hookRow{Webhook: w, Badge: hookBadge(&w), History: newDeliveryHistory(r, counts, listed), Queued: web.Number(w.QueuedEvents), Last: r.Time(w.LastDeliveryAt)}
	row.SourceLabel = sourceLabels[w.Source]
	switch {
	case slices.Contains(w.Events, "*") && w.Source.OfFleet():
		row.EventsText = "All events: " + row.SourceLabel
	case slices.Contains(w.Events, "*"):
		row.EventsText = "All events"
	case len(w.Events) > 2:
		row.EventsText = strings.Join(w.Events[:2], ", ") + web.Sprintf(" and %d more", len(w.Events)-2)
	default:
		row.EventsText = strings.Join(w.Events, ", ")
	}
	return row
}

// counts returns the attempts of the charted hours by webhook.
func (p *pages) counts(r *web.Request) (map[string][]webhook.Count, error) {
	return p.Webhooks.Counts(r.Context(), r.OrganizationID, r.Now.Add(-historyHours*time.Hour))
}

// hookList is the body of the list of webhooks.
type hookList struct {
	Rows  []hookRow
	Empty web.Empty
}

func (p *pages) webhooks(w http.ResponseWriter, r *web.Request) error {
	list, err := p.Webhooks.List(r.Context(), r.OrganizationID)
	if err != nil {
		return err
	}
	counts, err := p.counts(r)
	if err != nil {
		return err
	}
	body := hookList{Empty: web.Empty{
		Text: "No webhooks yet. A webhook notifies your system of events as they happen.",
		Path: webhooksPath + "/new", Label: "Add webhook", Command: "go run ./cmd/kickstand listen",
	}}
	for _, h := range list {
		body.Rows = append(body.Rows, p.hookRow(r, h, counts[h.ID], true))
	}
	return p.Render(w, r, "webhooks", page(r, webhooksPath, "Webhooks", body))
}

// hookPage is the body of a webhook's page.
type hookPage struct {
	hookRow
	Form, Schedule string
	Waits          []queuedRow
	MoreWait       bool
	Dropped        string
	Filter         web.Fields
	Filtered       bool
	Rows           []deliveryRow
	None           web.Empty
	Older          string // the next page; empty on the last
	Newest         string // the first page; empty on it
	Since          web.Time
}

// queuedRow is a delivery in the queue.
type queuedRow struct {
	webhook.UpcomingDelivery
	Number  int // of the next attempt
	For     string
	DueAt   web.Time
	Further []web.Time
}

// deliveryRow is a delivery in the list.
type deliveryRow struct {
	webhook.Delivery
	Badge         web.Badge
	Created, Next web.Time
	Answer        string
}

// hook returns the webhook in the request's path.
func (p *pages) hook(r *web.Request) (webhook.Webhook, error) {
	return p.Webhooks.Find(r.Context(), r.OrganizationID, r.PathValue("id"))
}

const maxQueuedRows = 10

// webhook shows a webhook with its history, queue and deliveries.
func (p *pages) webhook(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	body, q, err := p.hookPage(r, h)
	if err != nil {
		return err
	}
	pg := page(r, webhooksPath, address(h.URL), body)
	pg.Scripts = []string{"developers.js"}
	found, err := p.Webhooks.Search(r.Context(), r.OrganizationID, q)
	if body.Filter.Refused(err) || len(body.Filter.Wrong()) > 0 {
		pg.Body = body
		return p.Render(w, r, "webhook", refused(pg))
	}
	if err != nil {
		return err
	}
	for _, d := range found.Deliveries {
		body.Rows = append(body.Rows, newDeliveryRow(r, d))
	}
	query := r.URL.Query()
	path := webhooksPath + "/" + h.ID + "?"
	if query.Has("before") {
		query.Del("before")
		body.Newest = path + query.Encode()
	}
	if found.Next != "" {
		query.Set("before", found.Next)
		body.Older = path + query.Encode()
	}
	switch {
	case body.Older != "":
		body.None.Text = "No matches on this page; more pages follow."
	case body.Filtered:
		body.None = web.Empty{Text: "No deliveries match these filters.", Path: webhooksPath + "/" + h.ID, Label: "Show all"}
	default:
		body.None.Text = "No deliveries yet. Send a test to see one."
	}
	pg.Body = body
	return p.Render(w, r, "webhook", pg)
}

// hookPage returns the body without its deliveries, and the query for them.
func (p *pages) hookPage(r *web.Request, h webhook.Webhook) (hookPage, webhook.Query, error) {
	counts, err := p.counts(r)
	if err != nil {
		return hookPage{}, webhook.Query{}, err
	}
	body := hookPage{hookRow: p.hookRow(r, h, counts[h.ID], false), Form: forms[h.PayloadForm], Schedule: schedules[h.RetrySchedule], Dropped: web.Number(h.DroppedEvents), Since: r.Time(h.CreatedAt)}
	waits, err := p.Webhooks.Upcoming(r.Context(), r.OrganizationID, h.ID, maxQueuedRows+1)
	if err != nil {
		return hookPage{}, webhook.Query{}, err
	}
	body.MoreWait = len(waits) > maxQueuedRows
	for _, c := range waits[:min(len(waits), maxQueuedRows)] {
		row := queuedRow{UpcomingDelivery: c, Number: c.Attempts + 1, For: waitsFor[c.Wait], DueAt: r.Time(c.Due)}
		for _, t := range c.Further {
			row.Further = append(row.Further, r.Time(t))
		}
		body.Waits = append(body.Waits, row)
	}
	q := webhook.Query{WebhookID: h.ID, Before: r.URL.Query().Get("before"), Limit: 30}
	body.Filter = filterFields(h.Source)
	body.Filter.Fill(r.URL.Query())
	if state, ok := webhook.ParseDeliveryState(body.Filter.Field("state").Value); ok {
		q.States = []webhook.DeliveryState{state}
	}
	if name := body.Filter.Field("event").Value; name != "" {
		q.Events = []event.Name{event.Name(name)}
	}
	for name, to := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
		f := body.Filter.Field(name)
		if *to, err = parseTime(r, f.Value); err != nil {
			f.Error = f.Label + " " + err.Error() + "."
		}
	}
	for _, f := range body.Filter {
		body.Filtered = body.Filtered || f.Value != ""
	}
	return body, q, nil
}

var (
	forms     = map[payload.Form]string{payload.Flat: "A: flat, camelCase", payload.Nested: "B: nested records, snake_case"}
	schedules = map[webhook.Schedule]string{
		webhook.ShortSchedule: "After 1 min, 5 min, 30 min, 2 h and 8 h", webhook.LongSchedule: "After 1 min, 5 min, 30 min, 2 h and 24 h",
	}
	waitsFor = map[webhook.Wait]string{
		webhook.WaitNothing: "In progress", webhook.WaitTime: "Due time", webhook.WaitTurn: "Earlier deliveries", webhook.WaitEnabled: "Resume",
	}
)

func filterFields(source event.Source) web.Fields {
	states := []web.Option{{Value: "", Label: "Any state"}}
	for s := webhook.Pending; s <= webhook.Dropped; s++ {
		states = append(states, web.Option{Value: s.String(), Label: deliveryBadge(s).Text})
	}
	return web.Fields{
		{Name: "state", Label: "State", Type: "select", Options: states},
		{Name: "event", Label: "Event", Type: "select", Options: eventOptions(source)},
		{Name: "from", Label: "From", Type: "datetime-local", Optional: true},
		{Name: "to", Label: "Before", Type: "datetime-local", Optional: true},
	}
}

func eventOptions(source event.Source) []web.Option {
	names := slices.Clone(source.Names())
	if source == event.Helpdesk {
		names = append(names, event.AuditRecorded)
	}
	out := []web.Option{{Value: "", Label: "Any event"}}
	for _, name := range names {
		out = append(out, web.Option{Value: string(name), Label: string(name)})
	}
	return out
}

var errTime = errors.New("must be a date and a time, such as 2027-03-31T18:00")

// parseTime parses a datetime-local value in the user's zone.
func parseTime(r *web.Request, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano} {
		if t, err := time.ParseInLocation(layout, text, r.Now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errTime
}

func deliveryBadge(s webhook.DeliveryState) web.Badge {
	switch s {
	case webhook.Retrying:
		return web.Badge{Text: "Will retry", Tone: web.Warning}
	case webhook.Delivered:
		return web.Badge{Text: "Delivered", Tone: web.Good}
	case webhook.DeliveryFailed:
		return web.Badge{Text: "Failed", Tone: web.Bad}
	case webhook.Dropped:
		return web.Badge{Text: "Dropped", Tone: web.Bad}
	}
	return web.Badge{Text: "Queued"}
}

func newDeliveryRow(r *web.Request, d webhook.Delivery) deliveryRow {
	row := deliveryRow{Delivery: d, Badge: deliveryBadge(d.State), Created: r.Time(d.CreatedAt), Next: r.Time(d.NextAt)}
	if d.Attempts > 0 {
		row.Answer = answerText(d.Last)
	}
	return row
}

// answerText summarizes the response of an attempt: "200 in 31 ms".
func answerText(a webhook.Attempt) string {
	took := durationText(a.Latency)
	if a.Status == 0 {
		return "No response, " + took
	}
	return strconv.Itoa(a.Status) + " in " + took
}

// durationText formats a duration.
func durationText(d time.Duration) string {
	if d < time.Millisecond {
		return "less than 1 ms"
	}
	if d < 10*time.Second {
		return web.Number(d.Milliseconds()) + " ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
}

// address returns a URL without its scheme, for titles.
func address(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		return u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	}
	return raw
}

// write runs fn in a transaction.
func (p *pages) write(r *web.Request, fn func(ctx context.Context, tx *db.Tx) error) error {
	return p.DB.Write(r.Context(), func(tx *db.Tx) error { return fn(r.Context(), tx) })
}

// replaySelected replays the selected deliveries.
func (p *pages) replaySelected(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	back := webhooksPath + "/" + r.PathValue("id")
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	if len(form["delivery"]) == 0 {
		return p.Redirect(w, back, web.Notice{Text: "Select the deliveries to resend.", Bad: true})
	}
	var made []string
	if err := p.write(r, func(ctx context.Context, tx *db.Tx) (err error) {
		made, err = p.Webhooks.ReplayOfTx(ctx, tx, r.OrganizationID, h.ID, form["delivery"])
		return err
	}); err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: replayedText(len(made))})
}

func replayedText(n int) string {
	if n == 0 {
		return "No events to resend."
	}
	return web.Count(n, "One event resent.", "%d events are sent again.")
}

// changeState pauses or resumes a webhook, or sets the rate at which its queue drains.
func (p *pages) changeState(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	back := webhooksPath + "/" + h.ID
	change := webhook.Change{Enabled: new(form.Get("do") != "pause"), MayAudit: true}
	text := "Webhook paused. New events are queued."
	if *change.Enabled {
		text = "Webhook active."
		if h.QueuedEvents > 0 || h.State == webhook.Failed {
			text = "Webhook active. Queued events are sent now, oldest first."
		}
		rate, err := strconv.Atoi(strings.TrimSpace(form.Get("rate")))
		if err != nil && strings.TrimSpace(form.Get("rate")) != "" {
			return p.Redirect(w, back, web.Notice{Text: web.Sprintf("The rate must be a number from 1 to %d, or empty.", webhook.MaxDrainRate), Bad: true})
		}
		change.DrainRate = &rate
	}
	_, err = p.Webhooks.Update(r.Context(), r.OrganizationID, h.ID, change)
	if problem.Of(err) == problem.Invalid {
		return p.Redirect(w, back, web.Notice{Text: web.Sprintf("The rate must be a number from 1 to %d, or empty.", webhook.MaxDrainRate), Bad: true})
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, back, web.Notice{Text: text})
}

// testWebhook sends a test event and shows the delivery.
func (p *pages) testWebhook(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	if p.AllowTest != nil {
		if ok, wait := p.AllowTest(r.Context(), r.OrganizationID); !ok {
			e := problem.New(problem.RateLimited, "too many tests were made; try again in a minute")
			e.RetryAfter = wait
			return e
		}
	}
	res, err := p.Webhooks.Test(r.Context(), r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	n := web.Notice{Text: web.Sprintf("The receiver accepted the test: %d in %s.", res.StatusCode, durationText(res.Duration))}
	if res.Error != "" {
		n = web.Notice{Text: "The test was not accepted: " + res.Error + ".", Bad: true}
	}
	return p.Redirect(w, deliveriesPath+"/"+res.DeliveryID, n)
}

func (p *pages) hookDeletion(h *webhook.Webhook) web.Confirm {
	c := web.Confirm{Text: "Events are no longer sent to " + h.URL + ".", Type: address(h.URL), Label: "Delete webhook", Cancel: webhooksPath + "/" + h.ID}
	if h.QueuedEvents > 0 {
		c.Text += web.Count(h.QueuedEvents, " Its queued delivery is not sent.", " Its %d queued deliveries are not sent.")
	}
	return c
}

func (p *pages) confirmDeleteWebhook(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	return p.Confirm(w, r, "Delete webhook", page(r, webhooksPath, "", nil), p.hookDeletion(&h))
}

func (p *pages) deleteWebhook(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if c := p.hookDeletion(&h); !p.Confirmed(form, c) {
		return p.Confirm(w, r, "Delete webhook", page(r, webhooksPath, "", nil), c)
	}
	if err := p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Webhooks.DeleteTx(ctx, tx, r.OrganizationID, h.ID)
	}); err != nil {
		return err
	}
	return p.Redirect(w, webhooksPath, web.Notice{Text: "Webhook deleted."})
}
