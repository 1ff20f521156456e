package fleetapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/google/uuid"
)

// What the audit log tells of the fleet (fleet-api.md 6.8). It is in the fleet's
// own database, written by the transaction that does it; what is done with API
// keys is where they are.
const (
	settingsUpdated      apikey.AuditAction = "settings.updated"
	subaccountUpdated    apikey.AuditAction = "subaccount.updated"
	pricingUpdated       apikey.AuditAction = "pricing.updated"
	customerBlocked      apikey.AuditAction = "customer.blocked"
	rideEndedByOperator  apikey.AuditAction = "ride.ended_by_operator"
	sandboxReset         apikey.AuditAction = "sandbox.reset"
	sandboxClockAdvanced apikey.AuditAction = "sandbox.clock_advanced"
)

// environment is that of the API's keys.
func (a *API) environment() apikey.Environment {
	if a.Fleet.Live() {
		return apikey.Live
	}
	return apikey.Test
}

// record writes to the audit log what the request does.
func (a *API) record(ctx context.Context, tx *db.Tx, r *rest.Request, action apikey.AuditAction, target apikey.Target, changes map[string]apikey.Change) error {
	return a.Keys.Record(ctx, tx, r.By(), apikey.Entry{
		OrganizationID: r.Key.OrganizationID, Service: apikey.Fleet, Environment: a.environment(), Action: action, Target: target, Changes: changes,
	})
}

// recordChange writes the members that differ between two versions of a record,
// but for those that every version changes; nothing when none does.
func (a *API) recordChange(ctx context.Context, tx *db.Tx, r *rest.Request, action apikey.AuditAction, target apikey.Target, before, after any) error {
	old, err := members(before)
	if err != nil {
		return err
	}
	now, err := members(after)
	if err != nil {
		return err
	}
	changes := map[string]apikey.Change{}
	for name, value := range now {
		if name != "updated_at" && name != "version" && !bytes.Equal(value, old[name]) {
			changes[name] = apikey.Change{From: old[name], To: value}
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return a.record(ctx, tx, r, action, target, changes)
}

// members returns the members of a record as it is answered.
func members(record any) (m map[string]json.RawMessage, err error) {
	text, err := json.Marshal(record)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("compare versions of a record: %w", err)
	}
	return m, nil
}

var auditRecord = &rest.Record{Name: "audit_entry", Doc: "Something that was done to settings, prices, the sandbox or an API key, or by an operator against a rule. No secret and nothing personal is in it.", Members: []rest.Member{
	{Name: "id", Type: rest.ID()},
	{Name: "object", Type: rest.Enum("audit_entry")},
	{Name: "at", Type: rest.Timestamp(), Doc: "By the real clock, in the sandbox too."},
	{Name: "actor", Type: rest.Object(
		rest.Member{Name: "type", Type: rest.Enum(string(apikey.User), string(apikey.System), string(apikey.ByKey))},
		rest.Member{Name: "id", Type: rest.Text(), Nullable: true},
		rest.Member{Name: "email", Type: rest.Text(), Nullable: true},
	)},
	{Name: "action", Type: rest.Text(), Example: "pricing.updated"},
	{Name: "target", Type: rest.Object(
		rest.Member{Name: "type", Type: rest.Text(), Example: "pricing_plan"},
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

// orNull is null for what has no value.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (a *API) auditRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/settings/audit-log", ID: "listAuditLog", Tag: "Settings", Summary: "List the audit log",
		Doc: "The newest first. Entries stay when what they tell of is deleted.",
		Query: []rest.Param{
			{Name: "action", Kind: rest.StringParam, Example: "api_key.created"},
			{Name: "target_id", Kind: rest.StringParam},
		},
		Needs: needs("settings", apikey.Read), WholeScope: true, Export: true, Output: auditRecord, List: true, Handle: a.listAudit,
	}}
}

func (a *API) listAudit(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := apikey.AuditQuery{
		Service: apikey.Fleet, Environment: a.environment(), Action: apikey.AuditAction(r.String("action")), TargetID: r.String("target_id"),
	}
	if r.Exporting() {
		return rest.Export(a.eachAudit(ctx, r.Key.OrganizationID, q)), nil
	}
	var after uuid.UUID
	if more, err := r.Cursor(&after); err != nil {
		return rest.Response{}, err
	} else if more {
		q.Before = after.String()
	}
	q.Limit = r.Limit()
	page, err := a.Keys.Audit(ctx, r.Key.OrganizationID, q, a.DB)
	if err != nil {
		return rest.Response{}, err
	}
	list := make([]wireAudit, len(page.Entries))
	for i := range page.Entries {
		list[i] = wireOfAudit(&page.Entries[i])
	}
	if page.Next == "" {
		return rest.List(list, nil), nil
	}
	return rest.List(list, page.Next), nil
}

func (a *API) eachAudit(ctx context.Context, organizationID string, q apikey.AuditQuery) iter.Seq2[wireAudit, error] {
	return func(yield func(wireAudit, error) bool) {
		err := a.Keys.EachAudit(ctx, organizationID, q, func(e *apikey.Entry) error {
			if !yield(wireOfAudit(e), nil) {
				return errStopped
			}
			return nil
		}, a.DB)
		if err != nil && !errors.Is(err, errStopped) {
			yield(wireAudit{}, err)
		}
	}
}
