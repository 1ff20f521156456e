package deskapi

import (
	"context"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var noticeRecord = &schema.Record{Name: "notice", Doc: "A notice to a member about a ticket, as the dashboard shows it.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("notice")},
	{Name: "member_id", Type: schema.ID()},
	{Name: "ticket_id", Type: schema.ID()},
	{Name: "ticket_number", Type: schema.Integer(), Example: 42},
	{Name: "kind", Type: schema.Enum(words(ticketNotices)...), Doc: "assigned: somebody else assigned the ticket to them. mentioned: a note mentions them. " +
		"answered: the customer of a ticket that they follow has written. sla_warning: an SLA target of their ticket is due soon. " +
		"delivery_failed: a message of theirs, or in their ticket, was not delivered."},
	{Name: "message_id", Type: schema.ID(), Nullable: true, Doc: "The message that caused it; null: none, or it is gone."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "read_at", Type: schema.Timestamp(), Nullable: true, Doc: "null: unread."},
}}

// ticketNotices are the kinds of notices about tickets.
var ticketNotices = slices.DeleteFunc(slices.Clone(desk.NoticeKinds[:]), func(k desk.NoticeKind) bool { return k == desk.NoticeAlert })

type memberNotice struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	MemberID     string          `json:"member_id"`
	TicketID     string          `json:"ticket_id"`
	TicketNumber int64           `json:"ticket_number"`
	Kind         desk.NoticeKind `json:"kind"`
	MessageID    *string         `json:"message_id"`
	CreatedAt    rfc3339.Time    `json:"created_at"`
	ReadAt       rfc3339.Time    `json:"read_at"`
}

func wireNotice(memberID string, n *desk.Notice) memberNotice {
	return memberNotice{n.ID, "notice", memberID, n.TicketID, n.TicketNumber, n.Kind, orNull(n.MessageID), rfc3339.Time(n.At), rfc3339.Time(n.SeenAt)}
}

func (a *API) noticeRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/members/{member_id}/notices", ID: "listNotices", Tag: "Notices", Summary: "List a member's notices",
		Doc: "The newest 200 of those that the dashboard shows to the member. They say what the member has read, so the key needs level admin.\n\n" +
			"Read tickets and messages for what they are about.",
		Needs: needs("settings", apikey.Read),
		Query: []rest.Param{{Name: "unread", Kind: rest.BoolParam, Doc: "true: unread ones only; false: read ones only."}},
		Sort:  []string{"created_at"}, Export: true, Output: noticeRecord, List: true, Handle: a.listNotices,
	}, {
		Method: "POST", Path: "/members/{member_id}/notices/{notice_id}/read", ID: "readNotice", Tag: "Notices", Summary: "Mark a notice as read",
		Doc:   "As if the member had opened the ticket. A mail with the notice that is due leaves it out. One that is read already keeps its time.",
		Needs: needs("settings", apikey.Update), Output: noticeRecord, Status: 200, Handle: a.readNotice,
	}}
}

func (a *API) listNotices(ctx context.Context, r *rest.Request) (rest.Response, error) {
	member, err := a.memberTx(ctx, a.DB, r)
	if err != nil {
		return rest.Response{}, err
	}
	all, err := a.Desk.Notices(ctx, a.DB, r.Key.OrganizationID, member.ID)
	if err != nil {
		return rest.Response{}, err
	}
	unread, filtered := r.Bool("unread")
	list := []memberNotice{}
	for i := range all {
		if all[i].Path != "" {
			continue // about no ticket
		}
		if !filtered || unread == all[i].SeenAt.IsZero() {
			list = append(list, wireNotice(member.ID, &all[i]))
		}
	}
	return whole(r, list, func(n memberNotice) string { return n.ID })
}

func (a *API) readNotice(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		member, err := a.memberTx(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		if err := a.Desk.MarkNoticeSeenTx(ctx, tx, r.Key.OrganizationID, member.ID, r.Path("notice_id")); err != nil {
			return rest.Response{}, err
		}
		n, err := a.Desk.Notice(ctx, tx, r.Key.OrganizationID, member.ID, r.Path("notice_id"))
		if err != nil {
			return rest.Response{}, err
		}
		if n.Path != "" {
			return rest.Response{}, problem.New(problem.NotFound, "there is no such notice")
		}
		return rest.OK(wireNotice(member.ID, &n)), nil
	})
}
