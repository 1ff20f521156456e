package inbox

import (
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// step is a step of an organization's first day.
type step struct {
	Done  bool
	Text  string
	Path  string // where it is taken; empty: nowhere
	Label string // of the link
}

// checklist returns the steps from an empty inbox to the first reply; nil for an organization that
// has replied or has several tickets, and for members that cannot take the steps. The list that
// shows them is replaced when a ticket arrives.
func (p *pages) checklist(r *web.Request, tx *db.Tx, v *view, rows, members int) ([]step, error) {
	if !r.Admin() || p.Connections == nil || rows > desk.FirstTickets || v.name != viewOpen && v.name != viewAll {
		return nil, nil
	}
	tickets, replied, err := p.Desk.Started(r.Context(), tx, r.OrganizationID)
	if err != nil || replied || tickets > desk.FirstTickets {
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
	return []step{
		{len(connections) > 0, "Connect a channel", "/settings/channels", "Channels"},
		first,
		{members > 1, "Invite a colleague", "/settings/members", "Members"},
		{Text: "Reply to a customer"},
	}, nil
}
