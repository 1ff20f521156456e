package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

type inboundCmd struct {
	List   inboundListCmd   `cmd:"" help:"List inbound events, newest first."`
	Show   inboundShowCmd   `cmd:"" help:"Show an inbound event: its organization, its result, and the request."`
	Route  inboundRouteCmd  `cmd:"" help:"Route an unrouted event to a connection or an organization, and process it."`
	Replay inboundReplayCmd `cmd:"" help:"Process events again."`
}

func (*inboundCmd) Help() string {
	return `Verified events are stored for 30 days (KICKSTAND_RETENTION). An event is accepted, then processed. Three states need
attention:
  unrouted   no connection has the event's address
  rejected   the event cannot be parsed
  dead       processing failed eight times

Find, inspect and process them:
  kickstand inbound list --state unrouted,rejected,dead
  kickstand inbound show EVENT
  kickstand inbound route EVENT --connection CONNECTION
  kickstand inbound replay EVENT
  kickstand inbound replay --state dead --since 2h`
}

type inboundListCmd struct {
	State      []string `enum:"accepted,processed,unrouted,rejected,dead" placeholder:"STATE" help:"Only in these states: accepted, processed, unrouted, rejected, dead."`
	Org        string   `placeholder:"SLUG" help:"Only of this organization."`
	Channel    string   `placeholder:"CHANNEL" help:"Only of this channel, such as sms."`
	Connection string   `placeholder:"ID" help:"Only of this connection."`
	Before     string   `placeholder:"ID" help:"Id of the last row of the previous page."`
	Limit      int      `default:"50" help:"How many to show, at most 500."`
}

func (*inboundListCmd) Help() string {
	return `For example:
  kickstand inbound list --state unrouted,rejected,dead
  kickstand inbound list --org acme --channel sms --json`
}

// shownEvent is the printed form of an inbound event.
type shownEvent struct {
	*inbound.StoredEvent
	Organization string `json:"organization,omitempty"` // slug
}

// slugs returns the organizations' slugs by id.
func slugs(ctx context.Context, a *app.App) (map[string]string, error) {
	list, err := a.Accounts.Organizations(ctx)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]string, len(list))
	for _, o := range list {
		byID[o.ID] = o.Slug
	}
	return byID, nil
}

func (c *inboundListCmd) Run(ctx context.Context, e *env) error {
	if c.Limit < 1 || c.Limit > 500 {
		return usageError{errors.New("--limit must be from 1 to 500")}
	}
	f := inbound.Filter{Channel: c.Channel, ConnectionID: c.Connection, Before: c.Before, Limit: c.Limit + 1}
	for _, state := range c.State {
		f.States = append(f.States, inbound.State(state))
	}
	list := func(a *app.App) error {
		events, err := a.Inbound.List(ctx, f)
		if err != nil {
			return err
		}
		bySlug, err := slugs(ctx, a)
		if err != nil {
			return err
		}
		shown := struct {
			Events []shownEvent `json:"events"`
			Next   string       `json:"next,omitempty"` // value for --before
		}{Events: []shownEvent{}}
		for _, e := range events {
			if len(shown.Events) == c.Limit {
				shown.Next = shown.Events[c.Limit-1].ID
				break
			}
			shown.Events = append(shown.Events, shownEvent{e, bySlug[e.OrganizationID]})
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown.Events) == 0 {
				fmt.Fprintln(w, "No stored events match.")
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tRECEIVED\tCHANNEL\tSTATE\tKIND\tFROM\tTO\tORGANIZATION\tWHY")
			for _, s := range shown.Events {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, formatTime(&s.ReceivedAt), s.Channel, s.State,
					tableCell(s.Kind), tableCell(s.Sender), tableCell(s.Address), firstNonEmpty(s.Organization, "-"), tableCell(s.Error))
			}
			t.Flush()
			if shown.Next != "" {
				fmt.Fprintf(w, "More: the same with --before %s\n", shown.Next)
			}
			if slices.ContainsFunc(shown.Events, func(e shownEvent) bool { return e.State == inbound.Unrouted }) {
				// Without the address, which a stranger may have chosen.
				fmt.Fprint(w, "\nUnrouted events have no organization. Connect the address, and replay the events:\n"+
					"  kickstand channel connect CHANNEL --org SLUG --address ADDRESS\n  kickstand inbound replay ID\n"+
					"or route an event by hand:\n  kickstand inbound route ID --org SLUG\n"+
					"or set the default organization for such events:\n  kickstand org default SLUG\n")
			}
		})
	}
	if c.Org == "" {
		return e.with(ctx, list)
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		f.OrganizationID = organizationID
		return list(a)
	})
}

// tableCell returns external text for a table cell; "-" if empty.
func tableCell(s string) string {
	s = oneLine(printable(s))
	if utf8.RuneCountInString(s) > 60 {
		s = string([]rune(s)[:59]) + "…"
	}
	return firstNonEmpty(s, "-")
}

type inboundShowCmd struct {
	Event string `arg:"" placeholder:"EVENT" help:"Id of the event."`
	Raw   bool   `help:"Write the raw body only."`
}

func (*inboundShowCmd) Help() string {
	return `Credentials in the URL and in headers are not stored. Of a request with several events, the output has the part of this
event.

For example, a raw mail:
  kickstand inbound show EVENT --raw > mail.eml`
}

// shownRaw is the printed form of an inbound event with its request.
type shownRaw struct {
	shownEvent
	URL     string      `json:"url"`
	Headers http.Header `json:"headers"`
	Text    *string     `json:"body,omitempty"`        // a text body
	Bytes   []byte      `json:"body_base64,omitempty"` // any other body
}

func (c *inboundShowCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		found, err := a.Inbound.Find(ctx, c.Event)
		if err != nil {
			return withListHint(err, "inbound list")
		}
		if err := a.Inbound.RecordView(ctx, found); err != nil {
			return err
		}
		if c.Raw {
			_, err := e.out.Write(found.Body)
			return err
		}
		bySlug, err := slugs(ctx, a)
		if err != nil {
			return err
		}
		shown := shownRaw{shownEvent: shownEvent{found, bySlug[found.OrganizationID]}, URL: found.URL, Headers: found.Header}
		if utf8.Valid(found.Body) {
			shown.Text = new(string(found.Body))
		} else {
			shown.Bytes = found.Body
		}
		return e.print(shown, func(w io.Writer) { shown.write(w) })
	})
}

// maxShown is the maximum size of a body printed to a terminal.
const maxShown = 32 << 10

func (s *shownRaw) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s of %s, received %s: %s\n", s.ID, firstNonEmpty(s.Kind, "event"), s.Channel, formatTime(&s.ReceivedAt), s.State)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, line := range [][2]string{
		{"From", s.Sender}, {"To", s.Address}, {"Organization", s.Organization}, {"Connection", s.ConnectionID}, {"Verified by", s.VerifiedBy},
		{"Key", s.Key}, {"Processed", formatTime(momentOf(s.ProcessedAt))}, {"Result", string(s.Result)}, {"Why", s.Error},
	} {
		if line[1] != "" && line[1] != "-" {
			fmt.Fprintf(t, "%s\t%s\n", line[0], oneLine(printable(line[1])))
		}
	}
	t.Flush()
	fmt.Fprintf(w, "\n> POST %s\n", printable(s.URL))
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		for _, value := range s.Headers[name] {
			fmt.Fprint(w, indented("> ", name+": "+value))
		}
	}
	fmt.Fprintln(w, ">")
	switch {
	case s.Text == nil:
		fmt.Fprintf(w, "> %d bytes of binary data: see --raw\n", s.Size)
	case len(*s.Text) > maxShown:
		fmt.Fprint(w, indented("> ", strings.ToValidUTF8((*s.Text)[:maxShown], "")))
		fmt.Fprintf(w, "%d bytes in total: see --raw\n", s.Size)
	case *s.Text != "":
		fmt.Fprint(w, indented("> ", *s.Text))
	}
	switch s.State {
	case inbound.Unrouted:
		fmt.Fprintf(w, "\nNext: connect the address and `kickstand inbound replay %s`,\nor `kickstand inbound route %s --connection CONNECTION`\n", s.ID, s.ID)
	case inbound.Rejected, inbound.Dead:
		fmt.Fprintf(w, "\nNext, after the repair: kickstand inbound replay %s\n", s.ID)
	}
}

type inboundRouteCmd struct {
	Event      string `arg:"" placeholder:"EVENT" help:"Id of the event."`
	Connection string `placeholder:"ID" help:"Connection to route it to, of the same channel."`
	Org        string `placeholder:"SLUG" help:"Organization to route it to; its ticket has no connection for replies."`
}

func (*inboundRouteCmd) Help() string {
	return `Routes one unrouted event. If the address should be connected, connect it and replay its events instead:
  kickstand channel connect sms --org acme --address +14155550100
  kickstand inbound replay EVENT EVENT`
}

func (c *inboundRouteCmd) Run(ctx context.Context, e *env) error {
	if (c.Connection == "") == (c.Org == "") {
		return usageError{errors.New("name its target: --connection ID or --org SLUG\nrun `kickstand channel list --org SLUG` for the ids of connections")}
	}
	if c.Connection != "" {
		return e.with(ctx, func(a *app.App) error {
			if _, err := a.Inbound.Find(ctx, c.Event); err != nil {
				return withListHint(err, "inbound list --state unrouted")
			}
			routed, err := a.Inbound.Route(ctx, c.Event, c.Connection)
			if err != nil {
				return withListHint(err, "channel list --org SLUG")
			}
			return e.printRouted(ctx, a, routed)
		})
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		routed, err := a.Inbound.RouteTo(ctx, c.Event, organizationID)
		if err != nil {
			return withListHint(err, "inbound list --state unrouted")
		}
		return e.printRouted(ctx, a, routed)
	})
}

func (e *env) printRouted(ctx context.Context, a *app.App, routed *inbound.StoredEvent) error {
	bySlug, err := slugs(ctx, a)
	if err != nil {
		return err
	}
	routed.URL, routed.Header = "", nil
	return e.print(shownEvent{routed, bySlug[routed.OrganizationID]}, func(w io.Writer) {
		fmt.Fprintln(w, processingState(routed))
	})
}

// processingState describes the state of a routed or replayed event.
func processingState(e *inbound.StoredEvent) string {
	if e.State == inbound.Accepted {
		return e.ID + " will be processed by the server.\nNext: kickstand inbound show " + e.ID
	}
	return e.ID + " is " + string(e.State) + ": " + oneLine(printable(firstNonEmpty(e.Error, string(e.Result))))
}

type inboundReplayCmd struct {
	Events  []string `arg:"" optional:"" name:"event" help:"Ids of events."`
	State   []string `enum:"processed,unrouted,rejected,dead" placeholder:"STATE" help:"Events in these states: processed, unrouted, rejected, dead."`
	Since   moment   `placeholder:"WHEN" help:"Events received since: a duration ago (24h) or a time (2026-11-21T09:30:00Z)."`
	Until   moment   `placeholder:"WHEN" help:"Events received before (default: now)."`
	Org     string   `placeholder:"SLUG" help:"Only of this organization."`
	Channel string   `placeholder:"CHANNEL" help:"Only of this channel, such as sms."`
	DryRun  bool     `help:"Only print the number of events."`
}

func (*inboundReplayCmd) Help() string {
	return `An unrouted event goes to the connection that has its address now, or to the default organization. A rejected one is parsed
again. A dead or processed one is processed again, without repeating earlier effects. Select events by id, or by state
and time; --since alone selects dead, rejected and unrouted ones.

For example:
  kickstand inbound replay EVENT EVENT
  kickstand inbound replay --state dead --since 2h --dry-run
  kickstand inbound replay --state dead,rejected --since 2026-11-21T09:30:00Z --until 30m`
}

func (c *inboundReplayCmd) check() error {
	chosen := len(c.State) > 0 || !c.Since.IsZero()
	switch {
	case len(c.Events) > 0 && (chosen || !c.Until.IsZero() || c.Org != "" || c.Channel != "" || c.DryRun):
		return errors.New("ids of events exclude other flags")
	case len(c.Events) == 0 && !chosen:
		return errors.New("name the events to replay: ids, or --state or --since\n" +
			"run `kickstand inbound list --state unrouted,rejected,dead` to list events")
	case !c.Since.IsZero() && !c.Until.IsZero() && !c.Since.Before(c.Until.Time):
		return errors.New("--until must be after --since")
	}
	return nil
}

func (c *inboundReplayCmd) Run(ctx context.Context, e *env) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	switch {
	case len(c.Events) > 0:
		return e.with(ctx, func(a *app.App) error { return c.byID(ctx, e, a) })
	case c.Org == "":
		return e.with(ctx, func(a *app.App) error { return c.byState(ctx, e, a, "") })
	}
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error { return c.byState(ctx, e, a, organizationID) })
}

// byID replays the named events.
func (c *inboundReplayCmd) byID(ctx context.Context, e *env, a *app.App) error {
	bySlug, err := slugs(ctx, a)
	if err != nil {
		return err
	}
	shown := []shownEvent{}
	var failed []error
	for _, id := range c.Events {
		replayed, err := a.Inbound.Replay(ctx, id)
		switch {
		case problem.Of(err) == problem.NotFound:
			failed = append(failed, withListHint(err, "inbound list"))
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		default:
			replayed.URL, replayed.Header = "", nil
			shown = append(shown, shownEvent{replayed, bySlug[replayed.OrganizationID]})
		}
	}
	err = e.print(shown, func(w io.Writer) {
		for _, s := range shown {
			fmt.Fprintln(w, processingState(s.StoredEvent))
		}
	})
	return errors.Join(append(failed, err)...)
}

// notReplayed is an event that could not be replayed, and the reason.
type notReplayed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// maxRefused bounds the list of events that could not be replayed.
const maxRefused = 20

// byState replays events by state and time.
func (c *inboundReplayCmd) byState(ctx context.Context, e *env, a *app.App, organizationID string) error {
	f := inbound.Filter{OrganizationID: organizationID, Channel: c.Channel, From: c.Since.on(a.DB), To: c.Until.on(a.DB)}
	if f.To.IsZero() {
		f.To = a.DB.Now() // events that arrive meanwhile are not included
	}
	for _, state := range c.State {
		f.States = append(f.States, inbound.State(state))
	}
	if len(f.States) == 0 {
		f.States = []inbound.State{inbound.Unrouted, inbound.Rejected, inbound.Dead}
	}
	shown := struct {
		Replayed int           `json:"replayed"`
		Failed   int           `json:"failed"`           // events that cannot be replayed
		Refused  []notReplayed `json:"errors,omitempty"` // for the first of them
		DryRun   bool          `json:"dry_run,omitempty"`
	}{DryRun: c.DryRun}
	err := a.Inbound.ReplayAll(ctx, f, c.DryRun, func(ev *inbound.StoredEvent, err error) error {
		if err == nil {
			shown.Replayed++
			return nil
		}
		if shown.Failed++; len(shown.Refused) < maxRefused {
			shown.Refused = append(shown.Refused, notReplayed{ev.ID, oneLine(printable(err.Error()))})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.print(shown, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "Would be replayed: %d. Nothing was changed.\n", shown.Replayed)
			return
		}
		fmt.Fprintf(w, "Queued for the server: %d.\n", shown.Replayed)
		if shown.Failed > 0 {
			fmt.Fprintf(w, "Not processed again: %d.\n", shown.Failed)
		}
		for _, r := range shown.Refused {
			fmt.Fprintln(w, r.ID+": "+r.Error)
		}
	})
}
