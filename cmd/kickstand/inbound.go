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
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

type inboundCmd struct {
	List   inboundListCmd   `cmd:"" help:"List inbound events, newest first."`
	Show   inboundShowCmd   `cmd:"" help:"Show an inbound event: whose it is, what became of it, and the request as it came."`
	Route  inboundRouteCmd  `cmd:"" help:"Give an event that is for nobody to a connection or an organization, and process it."`
	Replay inboundReplayCmd `cmd:"" help:"Process events again."`
}

func (*inboundCmd) Help() string {
	return `What was verified is stored for 30 days (KICKSTAND_RETENTION). It is accepted until it is processed, and then processed. Three states wait for
somebody to look:
  unrouted   nobody connected the address that it is for
  rejected   it cannot be read
  dead       processing failed eight times

What waits, why, and what to do:
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
	Before     string   `placeholder:"ID" help:"Go on where the page before has ended."`
	Limit      int      `default:"50" help:"How many to show, at most 500."`
}

func (*inboundListCmd) Help() string {
	return `For example:
  kickstand inbound list --state unrouted,rejected,dead
  kickstand inbound list --org acme --channel sms --json`
}

// shownEvent is an inbound event as it is printed.
type shownEvent struct {
	*inbound.Event
	Organization string `json:"organization,omitempty"` // its slug
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
			Next   string       `json:"next,omitempty"` // for --before
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
				fmt.Fprintln(w, "Nothing that fits came in and is still stored.")
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tRECEIVED\tCHANNEL\tSTATE\tKIND\tFROM\tTO\tORGANIZATION\tWHY")
			for _, s := range shown.Events {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, at(&s.ReceivedAt), s.Channel, s.State,
					cell(s.Kind), cell(s.Sender), cell(s.Address), firstNonEmpty(s.Organization, "-"), cell(s.Error))
			}
			t.Flush()
			if shown.Next != "" {
				fmt.Fprintf(w, "More: the same with --before %s\n", shown.Next)
			}
			if slices.ContainsFunc(shown.Events, func(e shownEvent) bool { return e.State == inbound.Unrouted }) {
				// Without the address, which a stranger can have chosen.
				fmt.Fprint(w, "\nUnrouted events have no organization. Connect the address, and replay what came:\n"+
					"  kickstand channel connect CHANNEL --org SLUG --address ADDRESS\n  kickstand inbound replay ID\n"+
					"or route an event by hand:\n  kickstand inbound route ID --org SLUG\n"+
					"or name the organization that gets such events from now on:\n  kickstand org default SLUG\n")
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

// cell is text of a stranger's in a table, which has no empty cells.
func cell(s string) string {
	s = oneLine(printable(s))
	if utf8.RuneCountInString(s) > 60 {
		s = string([]rune(s)[:59]) + "…"
	}
	return firstNonEmpty(s, "-")
}

type inboundShowCmd struct {
	Event string `arg:"" placeholder:"EVENT" help:"Its id."`
	Raw   bool   `help:"Write the bytes of the body, and nothing else."`
}

func (*inboundShowCmd) Help() string {
	return `The values of credentials were not kept, in the address and in the headers. A request that held several events shows the
part that is this one.

For example, a mail as it came:
  kickstand inbound show EVENT --raw > mail.eml`
}

// shownRaw is an inbound event with its request as it is printed.
type shownRaw struct {
	shownEvent
	URL     string      `json:"url"`
	Headers http.Header `json:"headers"`
	Text    *string     `json:"body,omitempty"`        // where it is text
	Bytes   []byte      `json:"body_base64,omitempty"` // where it is not
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

// maxShown bounds the text of a body on a terminal.
const maxShown = 32 << 10

func (s *shownRaw) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s of %s, received %s: %s\n", s.ID, firstNonEmpty(s.Kind, "event"), s.Channel, at(&s.ReceivedAt), s.State)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, line := range [][2]string{
		{"From", s.Sender}, {"To", s.Address}, {"Organization", s.Organization}, {"Connection", s.ConnectionID}, {"Verified by", s.VerifiedBy},
		{"Key", s.Key}, {"Processed", at(momentOf(s.ProcessedAt))}, {"Result", string(s.Result)}, {"Why", s.Error},
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
		fmt.Fprintf(w, "> %d bytes that are no text: see --raw\n", s.Size)
	case len(*s.Text) > maxShown:
		fmt.Fprint(w, indented("> ", strings.ToValidUTF8((*s.Text)[:maxShown], "")))
		fmt.Fprintf(w, "%d bytes in all: see --raw\n", s.Size)
	case *s.Text != "":
		fmt.Fprint(w, indented("> ", *s.Text))
	}
	switch s.State {
	case inbound.Unrouted:
		fmt.Fprintf(w, "\nNext: connect the address and `kickstand inbound replay %s`,\nor `kickstand inbound route %s --connection CONNECTION`\n", s.ID, s.ID)
	case inbound.Rejected, inbound.Dead:
		fmt.Fprintf(w, "\nNext, when what is wrong is mended: kickstand inbound replay %s\n", s.ID)
	}
}

type inboundRouteCmd struct {
	Event      string `arg:"" placeholder:"EVENT" help:"Its id."`
	Connection string `placeholder:"ID" help:"The connection that it is for, of its channel."`
	Org        string `placeholder:"SLUG" help:"The organization that it is for; answers have no connection to leave by."`
}

func (*inboundRouteCmd) Help() string {
	return `For one event that is unrouted. Where the address should have been connected, connect it, and replay what has come:
  kickstand channel connect sms --org acme --address +14155550100
  kickstand inbound replay EVENT EVENT`
}

func (c *inboundRouteCmd) Run(ctx context.Context, e *env) error {
	if (c.Connection == "") == (c.Org == "") {
		return usageError{errors.New("say whose it is: --connection ID or --org SLUG\nrun `kickstand channel list --org SLUG` for the connections there are")}
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

func (e *env) printRouted(ctx context.Context, a *app.App, routed *inbound.Event) error {
	bySlug, err := slugs(ctx, a)
	if err != nil {
		return err
	}
	routed.URL, routed.Header = "", nil
	return e.print(shownEvent{routed, bySlug[routed.OrganizationID]}, func(w io.Writer) {
		fmt.Fprintln(w, processingState(routed))
	})
}

// processingState says what becomes of an event that was to be processed.
func processingState(e *inbound.Event) string {
	if e.State == inbound.Accepted {
		return e.ID + " will be processed by the server.\nNext: kickstand inbound show " + e.ID
	}
	return e.ID + " is " + string(e.State) + ": " + oneLine(printable(firstNonEmpty(e.Error, string(e.Result))))
}

type inboundReplayCmd struct {
	Events  []string `arg:"" optional:"" name:"event" help:"Ids of events."`
	State   []string `enum:"processed,unrouted,rejected,dead" placeholder:"STATE" help:"All in these states: processed, unrouted, rejected, dead."`
	Since   moment   `placeholder:"WHEN" help:"All received since: how long ago (24h), or a time (2026-11-21T09:30:00Z)."`
	Until   moment   `placeholder:"WHEN" help:"Only those received before (default: now)."`
	Org     string   `placeholder:"SLUG" help:"Only those of this organization."`
	Channel string   `placeholder:"CHANNEL" help:"Only those of this channel, such as sms."`
	DryRun  bool     `help:"Only say how many would be processed again."`
}

func (*inboundReplayCmd) Help() string {
	return `An unrouted event goes to whoever has its address by now, or to the default organization. One that was rejected is read again,
and becomes the events that it holds. One that is dead or was processed is processed again: what took effect already does
not take effect twice. Events are chosen by their ids, or by state and time; --since alone chooses dead, rejected and
unrouted ones.

For example:
  kickstand inbound replay EVENT EVENT
  kickstand inbound replay --state dead --since 2h --dry-run
  kickstand inbound replay --state dead,rejected --since 2026-11-21T09:30:00Z --until 30m`
}

func (c *inboundReplayCmd) check() error {
	chosen := len(c.State) > 0 || !c.Since.IsZero()
	switch {
	case len(c.Events) > 0 && (chosen || !c.Until.IsZero() || c.Org != "" || c.Channel != "" || c.DryRun):
		return errors.New("ids of events go with no other flag")
	case len(c.Events) == 0 && !chosen:
		return errors.New("say what to process again: ids of events, or --state or --since\n" +
			"run `kickstand inbound list --state unrouted,rejected,dead` for what waits")
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

// byID replays the events that were named.
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
			fmt.Fprintln(w, processingState(s.Event))
		}
	})
	return errors.Join(append(failed, err)...)
}

// notReplayed is an event that was not processed again, and why.
type notReplayed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// maxRefused bounds the events that are listed as not processed again.
const maxRefused = 20

// byState replays the events of some states and times.
func (c *inboundReplayCmd) byState(ctx context.Context, e *env, a *app.App, organizationID string) error {
	f := inbound.Filter{OrganizationID: organizationID, Channel: c.Channel, From: c.Since.Time, To: c.Until.Time}
	if f.To.IsZero() {
		f.To = time.Now() // what comes meanwhile is not meant
	}
	for _, state := range c.State {
		f.States = append(f.States, inbound.State(state))
	}
	if len(f.States) == 0 {
		f.States = []inbound.State{inbound.Unrouted, inbound.Rejected, inbound.Dead}
	}
	shown := struct {
		Replayed int           `json:"replayed"`
		Failed   int           `json:"failed"`           // those that cannot be processed again
		Refused  []notReplayed `json:"errors,omitempty"` // of the first of them
		DryRun   bool          `json:"dry_run,omitempty"`
	}{DryRun: c.DryRun}
	err := a.Inbound.ReplayAll(ctx, f, c.DryRun, func(ev *inbound.Event, err error) error {
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
			fmt.Fprintf(w, "Would be processed again: %d. Nothing was changed.\n", shown.Replayed)
			return
		}
		fmt.Fprintf(w, "To be processed again by the server: %d.\n", shown.Replayed)
		if shown.Failed > 0 {
			fmt.Fprintf(w, "Not processed again: %d.\n", shown.Failed)
		}
		for _, r := range shown.Refused {
			fmt.Fprintln(w, r.ID+": "+r.Error)
		}
	})
}
