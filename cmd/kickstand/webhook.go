package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

type webhookCmd struct {
	List       webhookListCmd       `cmd:"" help:"List an organization's webhooks and their queued events."`
	Deliveries webhookDeliveriesCmd `cmd:"" help:"Search deliveries, newest first."`
	Show       webhookShowCmd       `cmd:"" help:"Show a delivery: each request and response."`
	Replay     webhookReplayCmd     `cmd:"" help:"Replay events."`
	Enable     webhookEnableCmd     `cmd:"" help:"Enable a webhook and deliver its queued events, oldest first."`
	Disable    webhookDisableCmd    `cmd:"" help:"Disable a webhook: events queue until it is enabled."`
}

func (*webhookCmd) Help() string {
	return `Find today's failed deliveries, the reason, and replay them:
  kickstand webhook deliveries --org acme --state failed --since 24h
  kickstand webhook show --org acme DELIVERY
  kickstand webhook replay --org acme DELIVERY

After the repair of a receiver:
  kickstand webhook list --org acme
  kickstand webhook enable --org acme WEBHOOK --rate 20`
}

// withOrganization is with, for commands on one organization.
func (e *env) withOrganization(ctx context.Context, slug string, fn func(a *app.App, organizationID string) error) error {
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.OrganizationBySlug(ctx, slug)
		if problem.Of(err) == problem.NotFound {
			return fmt.Errorf("%w\nrun `kickstand org list` to list them", err)
		}
		if err != nil {
			return err
		}
		return fn(a, o.ID)
	})
}

// withListHint adds to a not-found error the command that lists the records.
func withListHint(err error, command string) error {
	if problem.Of(err) == problem.NotFound {
		return fmt.Errorf("%w\nrun `kickstand %s` to list them", err, command)
	}
	return err
}

// requireWebhook returns an error if a flag names an unknown webhook; a later not-found
// error is then about another record.
func requireWebhook(ctx context.Context, a *app.App, organizationID, slug, id string) error {
	if id == "" {
		return nil
	}
	_, err := a.Webhooks.Find(ctx, organizationID, id)
	return withListHint(err, "webhook list --org "+slug)
}

// moment is a time, or a duration before now.
type moment struct {
	time.Time
	ago bool // by this machine's clock
}

// on returns the time by the clock of a database.
func (m moment) on(d *db.DB) time.Time {
	if skew, known := d.ClockSkew(); known && m.ago {
		return m.Add(-skew)
	}
	return m.Time
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *moment) UnmarshalText(text []byte) error {
	if ago, err := time.ParseDuration(string(text)); err == nil && ago >= 0 {
		m.Time, m.ago = time.Now().Add(-ago), true
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, string(text), time.Local); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("must be a duration ago, such as 24h, or a time, such as 2026-11-21 or 2026-11-21T09:30:00Z, not %q", text)
}

// shownWebhook is the printed form of a webhook.
type shownWebhook struct {
	ID             string           `json:"id"`
	URL            string           `json:"url"`
	Source         event.Source     `json:"source"`
	Events         []string         `json:"events"`
	State          webhook.State    `json:"state"`
	HasSecret      bool             `json:"has_secret"`
	PayloadForm    payload.Form     `json:"payload_form"`
	RetrySchedule  webhook.Schedule `json:"retry_schedule"`
	Ordered        bool             `json:"ordered"`
	DrainRate      int              `json:"drain_rate,omitempty"`
	QueuedEvents   int64            `json:"queued_events"`
	DroppedEvents  int64            `json:"dropped_events"`
	LastDeliveryAt *time.Time       `json:"last_delivery_at"`
	LastError      string           `json:"last_error,omitempty"`
}

func showWebhook(w webhook.Webhook) shownWebhook {
	return shownWebhook{
		w.ID, w.URL, w.Source, w.Events, w.State, w.HasSecret, w.PayloadForm, w.RetrySchedule, w.Ordered, w.DrainRate,
		w.QueuedEvents, w.DroppedEvents, momentOf(w.LastDeliveryAt), w.LastError,
	}
}

func momentOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type webhookListCmd struct {
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *webhookListCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		list, err := a.Webhooks.List(ctx, organizationID)
		if err != nil {
			return err
		}
		shown := make([]shownWebhook, len(list))
		for i, w := range list {
			shown[i] = showWebhook(w)
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintf(w, "%s has no webhooks. Admins create them with webhooks.create; see docs/webhooks.md.\n", c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tSOURCE\tSTATE\tQUEUED\tDROPPED\tLAST ATTEMPT\tLAST ERROR\tURL")
			for _, s := range shown {
				state := string(s.State)
				if s.DrainRate > 0 {
					state += fmt.Sprintf(", draining %d/s", s.DrainRate)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", s.ID, s.Source, state, s.QueuedEvents, s.DroppedEvents, formatTime(s.LastDeliveryAt), firstNonEmpty(oneLine(printable(s.LastError)), "-"), s.URL)
			}
			t.Flush()
		})
	})
}

// formatTime formats a time for a table.
func formatTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// printable removes control characters from external text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// shownDelivery is the printed form of a delivery.
type shownDelivery struct {
	ID            string     `json:"id"`
	WebhookID     string     `json:"webhook_id"`
	EventID       string     `json:"event_id"`
	Event         event.Name `json:"event"`
	State         string     `json:"state"`
	Test          bool       `json:"test"`
	CreatedAt     time.Time  `json:"created_at"`
	Attempts      int        `json:"attempts"`
	LastAttemptAt *time.Time `json:"last_attempt_at"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	StatusCode    int        `json:"status_code,omitempty"`
	Error         string     `json:"error,omitempty"`
}

func showDelivery(d webhook.Delivery) shownDelivery {
	return shownDelivery{
		d.ID, d.WebhookID, d.EventID, d.Event, d.State.String(), d.Test, d.CreatedAt, d.Attempts, momentOf(d.Last.At), momentOf(d.NextAt),
		d.Last.Status, d.Last.Error,
	}
}

type webhookDeliveriesCmd struct {
	Org     string   `required:"" placeholder:"SLUG" help:"Organization."`
	Webhook string   `placeholder:"ID" help:"Only to this webhook."`
	State   []string `enum:"untried,retrying,delivered,failed,dropped" placeholder:"STATE" help:"Only in these states: untried, retrying, delivered, failed, dropped."`
	Event   string   `placeholder:"NAME" help:"Only of this event, such as ticket.created."`
	EventID string   `placeholder:"ID" help:"Only of the event with this id."`
	Ticket  int64    `placeholder:"NUMBER" help:"Only about this ticket."`
	Since   moment   `placeholder:"WHEN" help:"Only created since: a duration ago (24h) or a time (2026-11-21T09:30:00Z)."`
	Until   moment   `placeholder:"WHEN" help:"Only created before."`
	Before  string   `placeholder:"ID" help:"Id of the last row of the previous page."`
	Limit   int      `default:"50" help:"How many to show, at most 500."`
}

func (*webhookDeliveriesCmd) Help() string {
	return `For example:
  kickstand webhook deliveries --org acme --state failed,dropped --since 24h
  kickstand webhook deliveries --org acme --ticket 42
  kickstand webhook deliveries --org acme --event message.created --json`
}

func (c *webhookDeliveriesCmd) Run(ctx context.Context, e *env) error {
	q := webhook.Query{
		WebhookID: c.Webhook, EventID: c.EventID, TicketNumber: c.Ticket,
		Before: c.Before, Limit: c.Limit,
	}
	if c.Event != "" {
		q.Events = []event.Name{event.Name(c.Event)}
	}
	for _, name := range c.State {
		state, _ := webhook.ParseDeliveryState(name) // valid: an enum
		q.States = append(q.States, state)
	}
	if c.Limit < 1 {
		return usageError{errors.New("--limit must be from 1 to 500")}
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		q.From, q.To = c.Since.on(a.DB), c.Until.on(a.DB)
		if err := requireWebhook(ctx, a, organizationID, c.Org, c.Webhook); err != nil {
			return err
		}
		// Continue over empty pages until there are deliveries.
		var page webhook.Page
		for {
			some, err := a.Webhooks.Search(ctx, organizationID, q)
			if err != nil {
				return err
			}
			page.Deliveries, page.Next = append(page.Deliveries, some.Deliveries...), some.Next
			if q.Before, q.Limit = some.Next, c.Limit-len(page.Deliveries); some.Next == "" || q.Limit == 0 {
				break
			}
		}
		shown := struct {
			Deliveries []shownDelivery `json:"deliveries"`
			Next       string          `json:"next,omitempty"` // value for --before
		}{make([]shownDelivery, len(page.Deliveries)), page.Next}
		for i, d := range page.Deliveries {
			shown.Deliveries[i] = showDelivery(d)
		}
		return e.print(shown, func(w io.Writer) {
			printDeliveries(w, shown.Deliveries)
			if shown.Next != "" {
				fmt.Fprintf(w, "More: the same with --before %s\n", shown.Next)
			}
		})
	})
}

func printDeliveries(w io.Writer, list []shownDelivery) {
	if len(list) == 0 {
		fmt.Fprintln(w, "No deliveries match.")
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "ID\tCREATED\tEVENT\tSTATE\tATTEMPTS\tSTATUS")
	for _, s := range list {
		state := s.State
		if s.Test {
			state += ", test"
		}
		if s.NextAttemptAt != nil {
			state += " at " + formatTime(s.NextAttemptAt)
		}
		answer := "-"
		switch {
		case s.Error != "":
			answer = oneLine(printable(s.Error))
		case s.StatusCode != 0:
			answer = fmt.Sprint(s.StatusCode)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", s.ID, formatTime(&s.CreatedAt), s.Event, state, s.Attempts, answer)
	}
}

type webhookShowCmd struct {
	Delivery string `arg:"" placeholder:"DELIVERY" help:"Id of the delivery, as in X-Service-Delivery."`
	Org      string `required:"" placeholder:"SLUG" help:"Organization."`
}

// shownAttempt is the printed form of an attempt.
type shownAttempt struct {
	Number     int           `json:"number"`
	At         time.Time     `json:"at"`
	DurationMs int64         `json:"duration_ms"`
	StatusCode int           `json:"status_code,omitempty"`
	Error      string        `json:"error,omitempty"`
	Response   string        `json:"response,omitempty"`
	Request    *shownRequest `json:"request"`
}

type shownRequest struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body,omitempty"`
	wire    string
}

func showAttempt(a webhook.Attempt) (shownAttempt, error) {
	s := shownAttempt{a.Number, a.At, a.Latency.Milliseconds(), a.Status, a.Error, a.Response, nil}
	if a.Request == nil {
		return s, nil
	}
	wire, err := a.Request.Bytes()
	if err != nil {
		return s, err
	}
	s.Request = &shownRequest{a.Request.Method, a.Request.URL, make(map[string]string), string(a.Request.Body), string(wire)}
	for name, values := range a.Request.Header {
		s.Request.Headers[name] = values[0]
	}
	return s, nil
}

func (c *webhookShowCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		d, attempts, err := a.Webhooks.Delivery(ctx, organizationID, c.Delivery)
		if err != nil {
			return withListHint(err, "webhook deliveries --org "+c.Org)
		}
		shown := struct {
			shownDelivery
			Attempts []shownAttempt `json:"attempts"`
		}{showDelivery(d), make([]shownAttempt, len(attempts))}
		for i, a := range attempts {
			if shown.Attempts[i], err = showAttempt(a); err != nil {
				return err
			}
		}
		return e.print(shown, func(w io.Writer) {
			fmt.Fprintf(w, "%s of event %s to webhook %s: %s\n", d.Event, d.EventID, d.WebhookID, d.State)
			for _, a := range shown.Attempts {
				outcome := firstNonEmpty(a.Error, fmt.Sprint(a.StatusCode))
				fmt.Fprintf(w, "\nAttempt %d, %s, %d ms: %s\n", a.Number, formatTime(&a.At), a.DurationMs, oneLine(printable(outcome)))
				if a.Request != nil {
					fmt.Fprintf(w, "> %s\n%s", a.Request.URL, indented("> ", a.Request.wire))
				}
				if a.Response != "" {
					fmt.Fprint(w, indented("< ", a.Response))
				}
			}
			if !d.NextAt.IsZero() {
				fmt.Fprintf(w, "\nThe next attempt is due at %s.\n", formatTime(&d.NextAt))
			}
			if d.State == webhook.DeliveryFailed || d.State == webhook.Dropped {
				fmt.Fprintf(w, "\nNext: kickstand webhook replay --org %s %s\n", c.Org, d.ID)
			}
		})
	})
}

// indented prefixes each line with a mark.
func indented(mark, text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(printable(text), "\n"), "\n") {
		b.WriteString(strings.TrimRight(mark+line, " ") + "\n")
	}
	return b.String()
}

type webhookReplayCmd struct {
	Deliveries []string `arg:"" optional:"" name:"delivery" help:"Ids of deliveries, at most 1000: all are replayed, or none."`
	Org        string   `required:"" placeholder:"SLUG" help:"Organization."`
	EventID    string   `placeholder:"ID" help:"Replay this event to all webhooks that subscribe to it, or to --webhook."`
	Webhook    string   `placeholder:"ID" help:"Only deliveries to this webhook (default: all webhooks of the organization)."`
	State      []string `enum:"delivered,failed,dropped" placeholder:"STATE" help:"Deliveries in these states: delivered, failed, dropped."`
	Since      moment   `placeholder:"WHEN" help:"Deliveries created since: a duration ago (24h) or a time (2026-11-21T09:30:00Z). Default: all."`
	Until      moment   `placeholder:"WHEN" help:"Deliveries created before (default: now)."`
	Failed     bool     `help:"The same as --state failed,dropped."`
	Event      string   `placeholder:"NAME" help:"Only of this event, such as ticket.created."`
	DryRun     bool     `help:"Only print the number of deliveries."`
}

func (*webhookReplayCmd) Help() string {
	return `Replays are new deliveries of the same events: the event id stays the same, the delivery id is new.

For example:
  kickstand webhook replay --org acme DELIVERY DELIVERY
  kickstand webhook replay --org acme --event-id EVENT
  kickstand webhook replay --org acme --state failed,dropped --since 24h --dry-run
  kickstand webhook replay --org acme --webhook WEBHOOK --since 2026-11-21T09:30:00Z --until 2h`
}

func (c *webhookReplayCmd) check() error {
	chosen := !c.Since.IsZero() || len(c.State) > 0 || c.Failed
	ofTime := chosen || !c.Until.IsZero() || c.Event != "" || c.DryRun
	switch {
	case len(c.Deliveries) > 0 && (c.EventID != "" || c.Webhook != "" || ofTime):
		return errors.New("ids of deliveries exclude all flags but --org")
	case c.EventID != "" && ofTime:
		return errors.New("--event-id can be combined with --webhook only")
	case !c.Since.IsZero() && !c.Until.IsZero() && !c.Since.Before(c.Until.Time):
		return errors.New("--until must be after --since")
	case len(c.State) > 0 && c.Failed:
		return errors.New("--failed and --state exclude each other")
	case len(c.Deliveries) == 0 && c.EventID == "" && !chosen:
		return errors.New("name the deliveries to replay: ids, or --event-id, or --state or --since\n" +
			"run `kickstand webhook deliveries --org " + c.Org + " --state failed` to list failed ones")
	}
	return nil
}

// ofRange replays the deliveries of a range, webhook by webhook. It returns their number,
// also for a dry run.
func (c *webhookReplayCmd) ofRange(ctx context.Context, a *app.App, organizationID string) (int, error) {
	now := a.DB.Now()
	rg := webhook.Range{From: c.Since.on(a.DB), To: c.Until.on(a.DB), States: webhook.FailedOnly(c.Failed), Event: event.Name(c.Event), DryRun: c.DryRun}
	if rg.From.IsZero() {
		rg.From = time.Unix(0, 0)
	}
	if rg.To.IsZero() {
		rg.To = now
	}
	for _, name := range c.State {
		state, _ := webhook.ParseDeliveryState(name) // valid: an enum
		rg.States = append(rg.States, state)
	}
	ids := []string{c.Webhook}
	if c.Webhook == "" {
		list, err := a.Webhooks.List(ctx, organizationID)
		if err != nil {
			return 0, err
		}
		ids = nil
		for i := range list {
			ids = append(ids, list[i].ID)
		}
	}
	total := 0
	for _, rg.WebhookID = range ids {
		n, err := a.Webhooks.ReplayRange(ctx, organizationID, rg)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (c *webhookReplayCmd) Run(ctx context.Context, e *env) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		shown := struct {
			Replayed   int      `json:"replayed"`
			Deliveries []string `json:"deliveries,omitempty"` // ids of the new deliveries; empty for a range
			DryRun     bool     `json:"dry_run,omitempty"`    // nothing was enqueued
		}{}
		err := requireWebhook(ctx, a, organizationID, c.Org, c.Webhook)
		if err != nil {
			return err
		}
		switch {
		case len(c.Deliveries) > 0:
			shown.Deliveries, err = a.Webhooks.Replay(ctx, organizationID, c.Deliveries)
			shown.Replayed = len(shown.Deliveries)
		case c.EventID != "":
			shown.Deliveries, err = a.Webhooks.ReplayEvent(ctx, organizationID, c.EventID, c.Webhook)
			shown.Replayed = len(shown.Deliveries)
		default:
			shown.DryRun = c.DryRun
			shown.Replayed, err = c.ofRange(ctx, a, organizationID)
		}
		if err != nil {
			return withListHint(err, "webhook deliveries --org "+c.Org)
		}
		return e.print(shown, func(w io.Writer) {
			if c.DryRun {
				fmt.Fprintf(w, "Would be replayed: %d. Nothing was changed.\n", shown.Replayed)
				return
			}
			fmt.Fprintf(w, "Replayed: %d. A running server delivers them; see `kickstand webhook deliveries --org %s`.\n", shown.Replayed, c.Org)
			for _, id := range shown.Deliveries {
				fmt.Fprintln(w, id)
			}
		})
	})
}

type webhookEnableCmd struct {
	Webhook string `arg:"" placeholder:"WEBHOOK" help:"Id of the webhook."`
	Org     string `required:"" placeholder:"SLUG" help:"Organization."`
	Rate    int    `placeholder:"N" help:"Rate for queued events in deliveries per second, from 1 to 1000 (default: as fast as the receiver responds)."`
}

func (c *webhookEnableCmd) Run(ctx context.Context, e *env) error {
	change := webhook.Change{Enabled: new(true), MayAudit: true}
	switch {
	case c.Rate < 0 || c.Rate > webhook.MaxDrainRate:
		return usageError{fmt.Errorf("--rate must be from 1 to %d", webhook.MaxDrainRate)}
	case c.Rate > 0:
		change.DrainRate = &c.Rate
	}
	return e.changeWebhook(ctx, c.Org, c.Webhook, change)
}

type webhookDisableCmd struct {
	Webhook string `arg:"" placeholder:"WEBHOOK" help:"Id of the webhook."`
	Org     string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *webhookDisableCmd) Run(ctx context.Context, e *env) error {
	return e.changeWebhook(ctx, c.Org, c.Webhook, webhook.Change{Enabled: new(false), MayAudit: true})
}

func (e *env) changeWebhook(ctx context.Context, slug, id string, change webhook.Change) error {
	return e.withOrganization(ctx, slug, func(a *app.App, organizationID string) error {
		// Queued events are counted before: a running server is quick.
		before, err := a.Webhooks.Find(ctx, organizationID, id)
		if err != nil {
			return withListHint(err, "webhook list --org "+slug)
		}
		w, err := a.Webhooks.Update(ctx, organizationID, id, change)
		if err != nil {
			return withListHint(err, "webhook list --org "+slug)
		}
		return e.print(showWebhook(w), func(out io.Writer) {
			switch {
			case w.State != webhook.Enabled:
				fmt.Fprintf(out, "%s is %s. Events queue, at most %d; %d are queued now.\n", w.ID, w.State, webhook.MaxQueued, w.QueuedEvents)
			case change.DrainRate != nil && *change.DrainRate > 0:
				fmt.Fprintf(out, "%s is enabled. A running server delivers the %d queued events, %d a second.\n", w.ID, before.QueuedEvents, *change.DrainRate)
			default:
				fmt.Fprintf(out, "%s is enabled. A running server delivers the %d queued events.\n", w.ID, before.QueuedEvents)
			}
		})
	})
}
