package rest

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/audit"

	"github.com/google/uuid"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

var auditRecord = &schema.Record{Name: "audit_entry", Doc: "A change of settings or API keys, or another action recorded by a service. It holds no secrets.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("audit_entry")},
	{Name: "at", Type: schema.Timestamp(), Doc: "By the real clock, in a sandbox too."},
	{Name: "actor", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Enum(string(audit.User), string(audit.System), string(audit.Key))},
		schema.Member{Name: "id", Type: schema.Text(), Nullable: true},
		schema.Member{Name: "email", Type: schema.Text(), Nullable: true},
	)},
	{Name: "action", Type: schema.Text(), Example: "api_key.created"},
	{Name: "target", Type: schema.Object(
		schema.Member{Name: "type", Type: schema.Text(), Example: "api_key"},
		schema.Member{Name: "id", Type: schema.Text(), Nullable: true},
		schema.Member{Name: "name", Type: schema.Text(), Nullable: true},
		schema.Member{Name: "partial_key", Type: schema.Text(), Nullable: true, Doc: "Of API keys: the last 8 characters."},
	)},
	{Name: "ip", Type: schema.Text(), Nullable: true, Doc: "null when there was no request."},
	{Name: "user_agent", Type: schema.Text(), Nullable: true},
	{Name: "request_id", Type: schema.Text(), Nullable: true},
	{Name: "changes", Type: schema.Map(schema.Object(
		schema.Member{Name: "from", Type: schema.JSON()},
		schema.Member{Name: "to", Type: schema.JSON()},
	)), Doc: "By member."},
}}

type wireAudit struct {
	ID        string                  `json:"id"`
	Object    string                  `json:"object"`
	At        rfc3339.Time            `json:"at"`
	Actor     wireActor               `json:"actor"`
	Action    audit.Action            `json:"action"`
	Target    wireTarget              `json:"target"`
	IP        *string                 `json:"ip"`
	UserAgent *string                 `json:"user_agent"`
	RequestID *string                 `json:"request_id"`
	Changes   map[string]audit.Change `json:"changes"`
}

type wireActor struct {
	Type  audit.ActorType `json:"type"`
	ID    *string         `json:"id"`
	Email *string         `json:"email"`
}

type wireTarget struct {
	Type       string  `json:"type"`
	ID         *string `json:"id"`
	Name       *string `json:"name"`
	PartialKey *string `json:"partial_key"`
}

func wireOfAudit(e *audit.Entry) wireAudit {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	w := wireAudit{
		ID: e.ID, Object: "audit_entry", At: rfc3339.Time(e.At), Action: e.Action,
		Actor:  wireActorOf(e.Source.Actor, orNull),
		Target: wireTarget{e.Target.Type, orNull(e.Target.ID), orNull(e.Target.Name), orNull(e.Target.PartialKey)},
		IP:     orNull(e.Source.IP()), UserAgent: orNull(e.Source.UserAgent), RequestID: orNull(e.Source.RequestID), Changes: e.Changes,
	}
	if w.Changes == nil {
		w.Changes = map[string]audit.Change{}
	}
	return w
}

// wireActorOf returns an actor as shown by the API: without a user or key, the system.
func wireActorOf(a audit.Actor, orNull func(string) *string) wireActor {
	if a.Type != audit.User && a.Type != audit.Key {
		return wireActor{Type: audit.System}
	}
	return wireActor{a.Type, orNull(a.ID), orNull(a.Email)}
}

// AuditRoute returns the route of the audit log of the API's service and environment, read from
// logs.
func AuditRoute(needs Permission, doc string, logs ...*audit.Log) Route {
	return Route{
		Method: "GET", Path: "/settings/audit-log", ID: "listAuditLog", Tag: "Settings", Summary: "List the audit log",
		Doc: doc + " Newest first. Entries remain after their records are deleted.",
		Query: []Param{
			{Name: "action", Kind: StringParam, Example: "api_key.created"},
			{Name: "target_id", Kind: StringParam},
		},
		Needs: needs, Export: true, Output: auditRecord, List: true,
		Handle: func(ctx context.Context, r *Request) (Response, error) { return listAudit(ctx, r, logs) },
	}
}

func listAudit(ctx context.Context, r *Request, logs []*audit.Log) (Response, error) {
	c := &r.api.c
	q := audit.Query{Service: string(c.Service), Environment: string(c.Environment), Action: r.String("action"), TargetID: r.String("target_id")}
	if r.Exporting() {
		return Export(Each(func(give func(wireAudit) error) error {
			return audit.Each(ctx, logs, r.Key.OrganizationID, q, func(e *audit.Entry) error { return give(wireOfAudit(e)) })
		})), nil
	}
	var after uuid.UUID
	if more, err := r.Cursor(&after); err != nil {
		return Response{}, err
	} else if more {
		q.Before = after.String()
	}
	q.Limit = r.Limit()
	page, err := audit.List(ctx, logs, r.Key.OrganizationID, q)
	if err != nil {
		return Response{}, err
	}
	list := make([]wireAudit, len(page.Entries))
	for i := range page.Entries {
		list[i] = wireOfAudit(&page.Entries[i])
	}
	if page.Next == "" {
		return List(list, nil), nil
	}
	return List(list, page.Next), nil
}
