package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var memberRecord = &schema.Record{Name: "member", Doc: "A user of the organization, to whom tickets can be assigned.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("member")},
	{Name: "name", Type: schema.Text(), Example: "Robin Demo"},
	{Name: "email", Type: schema.Text(), Example: "robin@example.com"},
	{Name: "role", Type: schema.Enum("admin", "agent")},
	{Name: "created_at", Type: schema.Timestamp()},
}}

type member struct {
	ID        string       `json:"id"`
	Object    string       `json:"object"`
	Name      string       `json:"name"`
	Email     string       `json:"email"`
	Role      account.Role `json:"role"`
	CreatedAt rfc3339.Time `json:"created_at"`
}

func (a *API) memberRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/members", ID: "listMembers", Tag: "Members", Summary: "List members",
		Doc:   "The organization's members, oldest membership first. They are invited and removed in the dashboard.",
		Needs: needs("tickets", apikey.Read), Sort: []string{"created_at"}, Order: "created_at", Export: true,
		Output: memberRecord, List: true, Handle: a.listMembers,
	}}
}

func (a *API) listMembers(ctx context.Context, r *rest.Request) (rest.Response, error) {
	users, err := a.Accounts.Members(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	members := make([]member, len(users))
	for i, u := range users {
		members[i] = member{u.ID, "member", u.Name, u.Email, u.Role, rfc3339.Time(u.CreatedAt)}
	}
	return whole(r, members, func(m member) string { return m.ID })
}
