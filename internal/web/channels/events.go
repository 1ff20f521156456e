package channels

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/web"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// eventRow is an inbound event in the list.
type eventRow struct {
	*inbound.StoredEvent
	Channel  string // its label
	Icon     string
	State    web.Badge
	Received web.Time
	Done     web.Time
}

func newEventRow(r *web.Request, e *inbound.StoredEvent) eventRow {
	row := eventRow{StoredEvent: e, Channel: e.Channel, Icon: "plug", State: eventState(e.State), Received: r.Time(e.ReceivedAt), Done: r.Time(e.ProcessedAt)}
	if g := findGuide(e.Channel); g != nil {
		row.Channel, row.Icon = g.Title, g.Icon
	}
	return row
}

func eventState(s inbound.State) web.Badge {
	switch s {
	case inbound.Processed:
		return web.Badge{Text: "Processed", Tone: web.Good, Icon: "check"}
	case inbound.Unrouted:
		return web.Badge{Text: "Unrouted", Tone: web.Warning, Icon: "alert"}
	case inbound.Rejected:
		return web.Badge{Text: "Unreadable", Tone: web.Bad, Icon: "x"}
	case inbound.Dead:
		return web.Badge{Text: "Failed", Tone: web.Bad, Icon: "x"}
	}
	return web.Badge{Text: "Waiting", Icon: "clock"}
}

// eventStates are the states of the filter.
var eventStates = []web.Option{
	{Value: "", Label: "Any state"}, {Value: string(inbound.Accepted), Label: "Waiting"}, {Value: string(inbound.Processed), Label: "Processed"},
	{Value: string(inbound.Rejected), Label: "Unreadable"}, {Value: string(inbound.Dead), Label: "Failed"},
}

const eventsPage = 50

// events lists the organization's inbound events, newest first.
func (p *pages) events(w http.ResponseWriter, r *web.Request) error {
	q := r.URL.Query()
	f := inbound.Filter{OrganizationID: r.OrganizationID, Channel: q.Get("channel"), ConnectionID: q.Get("connection"), Before: q.Get("before"), Limit: eventsPage + 1}
	if s := q.Get("state"); s != "" {
		f.States = []inbound.State{inbound.State(s)}
	}
	list, err := p.Inbound.List(r.Context(), f)
	if err != nil {
		return err
	}
	body := struct {
		States, Channels []web.Option
		State, Channel   string
		Filtered         bool
		Dead             string // number of dead events, if the list does not show them; empty: none
		Events           []eventRow
		Pager            web.Pager
	}{
		States: eventStates, Channels: []web.Option{{Value: "", Label: "Any channel"}},
		State: q.Get("state"), Channel: q.Get("channel"), Filtered: q.Get("state") != "" || q.Get("channel") != "" || q.Get("connection") != "" || f.Before != "",
	}
	if body.State != string(inbound.Dead) {
		if body.Dead, err = p.deadEvents(r); err != nil {
			return err
		}
	}
	for i := range guides {
		body.Channels = append(body.Channels, web.Option{Value: guides[i].Name, Label: guides[i].Title})
	}
	if len(list) > eventsPage {
		list = list[:eventsPage]
		body.Pager.Older = withParam(q, "before", list[eventsPage-1].ID)
	}
	if f.Before != "" {
		body.Pager.Newer = withParam(q, "before", "")
	}
	for _, e := range list {
		body.Events = append(body.Events, newEventRow(r, e))
	}
	pg := page(r, "/settings/inbound", "Inbound events", body)
	pg.Class = "lists"
	return p.Render(w, r, "events", pg)
}

// deadEvents returns the number of dead events as a sentence; empty for none.
func (p *pages) deadEvents(r *web.Request) (string, error) {
	n, err := p.Inbound.DeadCount(r.Context(), r.OrganizationID)
	if err != nil || n == 0 {
		return "", err
	}
	return web.Count(n, "An inbound event could not be processed.", "%d inbound events could not be processed."), nil
}

// withParam returns the list's address with one parameter changed.
func withParam(q url.Values, name, value string) string {
	q = maps.Clone(q)
	q.Del(name)
	if value != "" {
		q.Set(name, value)
	}
	return web.Address("/settings/inbound", q)
}

// maxShown is the length to which a body is shown, in bytes.
const maxShown = 32 << 10

// view returns an event for display, and records that in the audit log.
func (p *pages) view(r *web.Request) (*inbound.StoredEvent, error) {
	e, err := p.Inbound.FindOf(r.Context(), r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return e, p.Inbound.RecordView(r.Context(), e)
}

// event shows an event with its exact request.
func (p *pages) event(w http.ResponseWriter, r *web.Request) error {
	e, err := p.view(r)
	if err != nil {
		return err
	}
	body := struct {
		Row      eventRow
		Headers  []string
		Readable *web.Code // indented JSON; nil: not JSON
		Raw      web.Code
		Cut      bool
		Text     bool
		Result   string
		Ticket   int64 // its number; 0: none
		Why      string
		Replay   bool
	}{Row: newEventRow(r, e), Raw: web.Code{Label: "Body"}, Text: utf8.Valid(e.Body), Cut: len(e.Body) > maxShown}
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		for _, value := range e.Header[name] {
			body.Headers = append(body.Headers, name+": "+value)
		}
	}
	shown := e.Body[:min(len(e.Body), maxShown)]
	if body.Text {
		body.Raw.Text = string(bytes.ToValidUTF8(shown, nil))
		var pretty bytes.Buffer
		if !body.Cut && json.Indent(&pretty, e.Body, "", "  ") == nil {
			body.Readable = &web.Code{Label: "Formatted body", Text: pretty.String()}
		}
	} else {
		body.Raw.Text = hex.Dump(shown[:min(len(shown), maxShown/4)])
	}
	if len(e.Result) > 0 && string(e.Result) != "null" {
		var pretty bytes.Buffer
		if json.Indent(&pretty, e.Result, "", "  ") == nil {
			body.Result = pretty.String()
		}
		var result struct {
			Ticket int64 `json:"ticket_number"`
		}
		_ = json.Unmarshal(e.Result, &result) // missing fields are not shown
		body.Ticket = result.Ticket
	}
	body.Replay = e.State != inbound.Accepted
	return p.Render(w, r, "event", page(r, "/settings/inbound", "Inbound event", body))
}

// body serves the request's body as a download.
func (p *pages) body(w http.ResponseWriter, r *web.Request) error {
	e, err := p.view(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+e.ID+`.bin"`)
	h.Set("Content-Length", strconv.Itoa(len(e.Body)))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(e.Body) // fails only if the client has disconnected
	return nil
}

// replay processes an event again.
func (p *pages) replay(w http.ResponseWriter, r *web.Request) error {
	id := r.PathValue("id")
	if _, err := p.Inbound.FindOf(r.Context(), r.OrganizationID, id); err != nil {
		return err
	}
	e, err := p.Inbound.Replay(r.Context(), id)
	if problem.Of(err) == problem.Conflict {
		return p.Redirect(w, "/settings/inbound/"+id, web.Notice{Text: "The event is still queued, or unreadable. Nothing was changed.", Bad: true})
	}
	if err != nil {
		return err
	}
	return p.Redirect(w, "/settings/inbound/"+e.ID, web.Notice{Text: "Processing again. Effects are not applied twice."})
}

// privacy lists the GDPR requests of shops.
func (p *pages) privacy(w http.ResponseWriter, r *web.Request) error {
	type request struct {
		*shop.Request
		Received, Due, Completed web.Time
		State                    web.Badge
	}
	body := struct {
		Requests []request
		Pager    web.Pager
	}{}
	const most = 50
	list, err := p.Shop.Requests(r.Context(), shop.Filter{OrganizationID: r.OrganizationID, Before: r.URL.Query().Get("before"), Limit: most + 1})
	if err != nil {
		return err
	}
	if len(list) > most {
		list = list[:most]
		body.Pager.Older = "/settings/privacy?before=" + url.QueryEscape(list[most-1].ID)
	}
	if r.URL.Query().Get("before") != "" {
		body.Pager.Newer = "/settings/privacy"
	}
	for _, q := range list {
		state := web.Badge{Text: "Waiting", Tone: web.Warning, Icon: "clock"}
		switch {
		case !q.CompletedAt.IsZero():
			state = web.Badge{Text: "Done", Tone: web.Good, Icon: "check"}
		case q.DueAt.Before(r.Now):
			state = web.Badge{Text: "Overdue", Tone: web.Bad, Icon: "alert"}
		}
		body.Requests = append(body.Requests, request{q, r.Time(q.ReceivedAt), r.Time(q.DueAt), r.Time(q.CompletedAt), state})
	}
	return p.Render(w, r, "privacy", page(r, "/settings/channels", "Privacy requests", body))
}
