package inbox

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// step is a step of an organization's first day.
type step struct {
	Done  bool
	Next  bool // the first that is not done
	Text  string
	Path  string // where it is taken; empty: nowhere
	Label string // of the link
}

// checklist returns the steps from an empty inbox to the first reply; nil for an organization that
// has done them or has several tickets, and for members that cannot take the steps. The list that
// shows them is replaced when a ticket arrives.
func (p *pages) checklist(r *web.Request, tx *db.Tx, v *view, rows, members int) ([]step, error) {
	if !r.Admin() || p.Connections == nil || rows > desk.FirstTickets || v.name != viewOpen && v.name != viewAll {
		return nil, nil
	}
	tickets, replied, err := p.Desk.Started(r.Context(), tx, r.OrganizationID)
	if err != nil || replied && members > 1 || tickets > desk.FirstTickets {
		return nil, err
	}
	connections, err := p.Connections.List(r.Context(), r.OrganizationID)
	if err != nil {
		return nil, err
	}
	first := step{Done: tickets > 0, Text: "First message received"}
	if !first.Done {
		first.Text = "Waiting for your first message"
		if len(connections) > 0 {
			first.Path, first.Label = "/settings/channels/"+connections[0].ID, "Test channel"
		}
	}
	steps := []step{
		{Done: len(connections) > 0, Text: "Connect a channel", Path: "/settings/channels", Label: "Channels"},
		first,
		{Done: members > 1, Text: "Invite a colleague", Path: "/settings/members", Label: "Members"},
		{Done: replied, Text: "Reply to a customer"},
	}
	if i := slices.IndexFunc(steps, func(s step) bool { return !s.Done }); i >= 0 {
		steps[i].Next = true
	}
	return steps, nil
}
