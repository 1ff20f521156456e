package deskapi

import (
	"context"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var followerRecord = &schema.Record{Name: "follower", Doc: "A member who follows a ticket, and so has notices of its customer's messages.", Members: []schema.Member{
	{Name: "object", Type: schema.Enum("follower")},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "member_id", Type: schema.ID()},
	{Name: "name", Type: schema.Text(), Nullable: true, Example: "Robin Demo"},
	{Name: "email", Type: schema.Text(), Nullable: true, Example: "robin@example.com"},
	{Name: "followed_at", Type: schema.Timestamp()},
}}

type follower struct {
	Object     string       `json:"object"`
	TicketID   string       `json:"ticket_id"`
	MemberID   string       `json:"member_id"`
	Name       *string      `json:"name"`
	Email      *string      `json:"email"`
	FollowedAt rfc3339.Time `json:"followed_at"`
}

func (a *API) followerRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/tickets/{id}/followers", ID: "listFollowers", Tag: "Followers", Summary: "List the followers of a ticket",
		Doc:   "Assignees, authors of replies and notes, and members whom a note mentions become followers by themselves.",
		Needs: needs("tickets", apikey.Read), Sort: []string{"followed_at"}, Order: "followed_at", Export: true,
		Output: followerRecord, List: true, Handle: a.listFollowers,
	}, {
		Method: "PUT", Path: "/tickets/{id}/followers/{member_id}", ID: "addFollower", Tag: "Followers", Summary: "Make a member follow a ticket",
		Doc:   "A member who follows it already stays a follower.",
		Needs: needs("tickets", apikey.Update), Output: followerRecord, Handle: a.addFollower,
	}, {
		Method: "DELETE", Path: "/tickets/{id}/followers/{member_id}", ID: "removeFollower", Tag: "Followers", Summary: "Make a member unfollow a ticket",
		Doc:   "A later assignment, mention, reply or note makes them follow it again.",
		Needs: needs("tickets", apikey.Update), Handle: a.removeFollower,
	}}
}

func (a *API) listFollowers(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var list []follower
	err := a.DB.Read(ctx, func(tx *db.Tx) error {
		t, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return err
		}
		followers, err := a.Desk.Followers(ctx, tx, r.Key.OrganizationID, t.ID)
		if err != nil {
			return err
		}
		members, err := a.Accounts.Agents(ctx, tx, r.Key.OrganizationID)
		if err != nil {
			return err
		}
		people := make(map[string]event.Person, len(members))
		for _, p := range members {
			people[p.ID] = p
		}
		list = make([]follower, len(followers))
		for i, f := range followers {
			list[i] = wireFollower(t.ID, f, people[f.UserID])
		}
		return nil
	})
	if err != nil {
		return rest.Response{}, err
	}
	return whole(r, list, func(f follower) string { return f.FollowedAt.Std().UTC().Format(rfc3339.Layout) + " " + f.MemberID })
}

func wireFollower(ticketID string, f desk.Follower, p event.Person) follower {
	return follower{"follower", ticketID, f.UserID, orNull(p.Name), orNull(p.Email), rfc3339.Time(f.Since)}
}

// follows returns a member as a follower of a ticket; false if they do not follow it.
func (a *API) follows(ctx context.Context, tx *db.Tx, organizationID, ticketID, memberID string) (desk.Follower, bool, error) {
	list, err := a.Desk.Followers(ctx, tx, organizationID, ticketID)
	if err != nil {
		return desk.Follower{}, false, err
	}
	i := slices.IndexFunc(list, func(f desk.Follower) bool { return f.UserID == memberID })
	if i < 0 {
		return desk.Follower{}, false, nil
	}
	return list[i], true, nil
}

func (a *API) addFollower(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		p, err := a.memberTx(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		if err := a.Desk.FollowTx(ctx, tx, r.Key.OrganizationID, t.ID, p.ID); err != nil {
			return rest.Response{}, err
		}
		f, _, err := a.follows(ctx, tx, r.Key.OrganizationID, t.ID, p.ID)
		if err != nil {
			return rest.Response{}, err
		}
		return rest.OK(wireFollower(t.ID, f, p)), nil
	})
}

func (a *API) removeFollower(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, err := a.Desk.Ticket(ctx, tx, r.Key.OrganizationID, r.Path("id"))
		if err != nil {
			return rest.Response{}, err
		}
		f, ok, err := a.follows(ctx, tx, r.Key.OrganizationID, t.ID, r.Path("member_id"))
		if err != nil {
			return rest.Response{}, err
		}
		if !ok {
			return rest.Response{}, problem.New(problem.NotFound, "the ticket has no such follower")
		}
		if err := a.Desk.UnfollowTx(ctx, tx, r.Key.OrganizationID, t.ID, f.UserID); err != nil {
			return rest.Response{}, err
		}
		return rest.NoContent(), nil
	})
}

// memberTx returns the member of the organization that member_id in the path names. Error: NotFound.
func (a *API) memberTx(ctx context.Context, q db.Querier, r *rest.Request) (event.Person, error) {
	p, ok, err := a.Accounts.Agent(ctx, q, r.Key.OrganizationID, r.Path("member_id"))
	if err == nil && !ok {
		err = problem.New(problem.NotFound, "the organization has no such member")
	}
	return p, err
}
