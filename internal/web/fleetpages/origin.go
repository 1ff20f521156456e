package fleetpages

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleOrigins registers the actions on production's rides and vehicles below the pages of
// a ticket and of a helpdesk customer, to which they return.
func (p *pages) handleOrigins() {
	for _, origin := range []string{"/tickets/{number}", "/customers/{customer}"} {
		for path, h := range map[string]web.Handler{
			"/rides/{id}/end": p.endRide, "/rides/{id}/cancel": p.cancelRide, "/rides/{id}/adjust": p.adjustRide, "/vehicles/{id}/state": p.setVehicleState, "/vehicles/{id}/task": p.newTask,
		} {
			p.Handle(origin+path, web.Route{Get: p.open(h), Post: p.open(h)})
		}
	}
}

// origin is the page from which an action was opened.
type origin struct {
	path   string
	at     string       // of the navigation; empty: the fleet
	ticket *desk.Ticket // nil: not a ticket
}

// origin returns the origin of a request; page is the record's own page. Error: NotFound.
func (p *pages) origin(r *web.Request, page string) (origin, error) {
	if number := r.PathValue("number"); number != "" {
		n := ticketNumber(r)
		if n == 0 {
			return origin{}, problem.New(problem.NotFound, "there is no such ticket")
		}
		t, err := p.Desk.TicketByNumber(r.Context(), p.DeskDB, r.OrganizationID, n)
		return origin{"/tickets/" + number + listQuery(r), "/inbox", &t}, err
	}
	if id := r.PathValue("customer"); id != "" {
		c, err := p.Desk.Customer(r.Context(), p.DeskDB, r.OrganizationID, id)
		return origin{"/customers/" + c.ID, "/customers", nil}, err
	}
	return origin{path: page}, nil
}

// ticketNumber returns the number of the ticket in the request's path; 0 if there is none.
func ticketNumber(r *web.Request) int64 {
	text := r.PathValue("number")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0
	}
	return n
}

// listQuery returns the query of the ticket's page: the list from which it was opened and the
// shown part of the thread.
func listQuery(r *web.Request) string {
	q := url.Values{}
	for _, name := range []string{"in", "q", "show"} {
		if v := r.URL.Query().Get(name); v != "" && len(v) <= 300 {
			q.Set(name, v)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// frame returns the frame of an action's page.
func (p *pages) frame(r *web.Request, o origin, path, title string) web.Page {
	page := p.page(r, path, title, nil)
	if o.at != "" {
		page.At, page.Views = o.at, nil
	}
	return page
}

// finish returns to the origin of a committed action. note is for the ticket: the databases
// differ, so it is written after the action, and the notice mentions if that failed.
func (p *pages) finish(w http.ResponseWriter, r *web.Request, o origin, text, note string) error {
	n := web.Notice{Text: text}
	if o.ticket != nil {
		if err := p.addNote(r, o.ticket, note); err != nil {
			p.Logger().ErrorContext(r.Context(), "note on an action not written", "ticket", o.ticket.ID, "error", err)
			n = web.Notice{Text: text + " The note on the ticket could not be written.", Bad: true}
		}
	}
	return p.Redirect(w, o.path, n)
}

func (p *pages) addNote(r *web.Request, t *desk.Ticket, text string) error {
	content, err := p.Desk.Compose(r.Context(), r.OrganizationID, desk.Draft{Text: text})
	if err != nil {
		return err
	}
	return p.DeskDB.Write(r.Context(), func(tx *db.Tx) error {
		_, err := p.Desk.AddActionNoteTx(r.Context(), tx, r.OrganizationID, t.ID, desk.Actor{ID: r.UserID, Name: cmp.Or(r.User.Name, r.User.Email)}, content)
		return err
	})
}
