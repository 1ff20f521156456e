package deskapi

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

var auditRecord = &rest.Record{Name: "audit_entry", Doc: "Something that was done to the settings or to an API key. No secret is in it.", Members: []rest.Member{
	{Name: "id", Type: rest.ID()},
	{Name: "object", Type: rest.Enum("audit_entry")},
	{Name: "at", Type: rest.Timestamp()},
	{Name: "actor", Type: rest.Object(
		rest.Member{Name: "type", Type: rest.Enum(string(apikey.User), string(apikey.System), string(apikey.ByKey))},
		rest.Member{Name: "id", Type: rest.Text(), Nullable: true},
		rest.Member{Name: "email", Type: rest.Text(), Nullable: true},
	)},
	{Name: "action", Type: rest.Text(), Example: "api_key.created"},
	{Name: "target", Type: rest.Object(
		rest.Member{Name: "type", Type: rest.Text(), Example: "api_key"},
		rest.Member{Name: "id", Type: rest.Text(), Nullable: true},
		rest.Member{Name: "name", Type: rest.Text(), Nullable: true},
		rest.Member{Name: "partial_key", Type: rest.Text(), Nullable: true, Doc: "Of API keys: the last 8 characters."},
	)},
	{Name: "ip", Type: rest.Text(), Nullable: true, Doc: "null when there was no request."},
	{Name: "user_agent", Type: rest.Text(), Nullable: true},
	{Name: "request_id", Type: rest.Text(), Nullable: true},
	{Name: "changes", Type: rest.Map(rest.Object(
		rest.Member{Name: "from", Type: rest.JSON()},
		rest.Member{Name: "to", Type: rest.JSON()},
	)), Doc: "By member."},
}}

type wireAudit struct {
	ID        string                   `json:"id"`
	Object    string                   `json:"object"`
	At        rest.Time                `json:"at"`
	Actor     wireActor                `json:"actor"`
	Action    apikey.AuditAction       `json:"action"`
	Target    wireTarget               `json:"target"`
	IP        *string                  `json:"ip"`
	UserAgent *string                  `json:"user_agent"`
	RequestID *string                  `json:"request_id"`
	Changes   map[string]apikey.Change `json:"changes"`
}

type wireActor struct {
	Type  apikey.ActorType `json:"type"`
	ID    *string          `json:"id"`
	Email *string          `json:"email"`
}

type wireTarget struct {
	Type       string  `json:"type"`
	ID         *string `json:"id"`
	Name       *string `json:"name"`
	PartialKey *string `json:"partial_key"`
}

func wireOfAudit(e *apikey.Entry) wireAudit {
	w := wireAudit{
		ID: e.ID, Object: "audit_entry", At: rest.Time(e.At), Action: e.Action,
		Actor:  wireActor{e.Actor.Type, orNull(e.Actor.ID), orNull(e.Actor.Email)},
		Target: wireTarget{e.Target.Type, orNull(e.Target.ID), orNull(e.Target.Name), orNull(e.Target.PartialKey)},
		IP:     orNull(e.IP), UserAgent: orNull(e.UserAgent), RequestID: orNull(e.RequestID), Changes: e.Changes,
	}
	if w.Changes == nil {
		w.Changes = map[string]apikey.Change{}
	}
	return w
}

func (a *API) auditRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/settings/audit-log", ID: "listAuditLog", Tag: "Settings", Summary: "List the audit log",
		Doc: "What was done to the helpdesk's settings and API keys, the newest first. Entries stay when what they tell of is deleted.",
		Query: []rest.Param{
			{Name: "action", Kind: rest.StringParam, Example: "api_key.created"},
			{Name: "target_id", Kind: rest.StringParam},
		},
		Needs: needs("settings", apikey.Read), Export: true, Output: auditRecord, List: true, Handle: a.listAudit,
	}}
}

func (a *API) listAudit(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := apikey.AuditQuery{Service: apikey.Helpdesk, Action: apikey.AuditAction(r.String("action")), TargetID: r.String("target_id")}
	if r.Exporting() {
		return rest.Export(exported(func(fn func(*apikey.Entry) error) error {
			return a.Keys.EachAudit(ctx, r.Key.OrganizationID, q, fn)
		}, plain(wireOfAudit))), nil
	}
	var err error
	if q.Before, err = after(r); err != nil {
		return rest.Response{}, err
	}
	q.Limit = r.Limit()
	page, err := a.Keys.Audit(ctx, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, err
	}
	return rest.List(wired(page.Entries, wireOfAudit), position(page.Next)), nil
}
