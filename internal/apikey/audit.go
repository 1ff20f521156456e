package apikey

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// ActorType says what an [Actor] is.
type ActorType string

// The types of actor.
const (
	User   ActorType = "user"
	System ActorType = "system"
	ByKey  ActorType = "key"
)

// Actor is who did something.
type Actor struct {
	Type  ActorType `json:"type"`
	ID    string    `json:"id,omitempty"`
	Email string    `json:"email,omitempty"`
}

// By is who does something, and how the request reached us.
type By struct {
	Actor     Actor
	IP        netip.Addr // zero when there was no request
	UserAgent string
	RequestID string
}

// AuditAction is what was done.
type AuditAction string

// What is done with keys.
const (
	KeyCreated AuditAction = "api_key.created"
	KeyUpdated AuditAction = "api_key.updated"
	KeyRevoked AuditAction = "api_key.revoked"
	KeyExpired AuditAction = "api_key.expired"
	KeyDeleted AuditAction = "api_key.deleted"
	KeyRotated AuditAction = "api_key.rotated"
)

// What is done with a fleet (fleet-api.md 6.8). It is told in the fleet's own
// database, by the transaction that does it.
const (
	SettingsUpdated      AuditAction = "settings.updated"
	SubaccountUpdated    AuditAction = "subaccount.updated"
	PricingUpdated       AuditAction = "pricing.updated"
	CustomerBlocked      AuditAction = "customer.blocked"
	RideEndedByOperator  AuditAction = "ride.ended_by_operator"
	SandboxReset         AuditAction = "sandbox.reset"
	SandboxClockAdvanced AuditAction = "sandbox.clock_advanced"
)

// Target is what something was done with.
type Target struct {
	Type       string `json:"type"` // "api_key"
	ID         string `json:"id"`
	Name       string `json:"name"`
	PartialKey string `json:"partial_key,omitempty"` // of keys
}

// Change is a member before and after. Neither is ever a secret.
type Change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// differences are the members that differ between two versions of a record, each
// with its JSON, but for those that every version changes.
func differences(before, after any) (map[string]Change, error) {
	old, err := members(before)
	if err != nil {
		return nil, err
	}
	now, err := members(after)
	if err != nil {
		return nil, err
	}
	changes := map[string]Change{}
	for name, value := range now {
		if name != "updated_at" && name != "version" && !bytes.Equal(value, old[name]) {
			changes[name] = Change{From: old[name], To: value}
		}
	}
	return changes, nil
}

// members returns the members of a record, as JSON has it.
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

// Entry is one line of the audit log. It stays when its target is deleted.
type Entry struct {
	ID             string
	OrganizationID string
	Service        ServiceName
	Environment    Environment
	At             time.Time
	Action         AuditAction
	Actor          Actor
	Target         Target
	IP             string // empty when there was no request
	UserAgent      string
	RequestID      string
	Changes        map[string]Change // by member
}

// maxUserAgent bounds what clients say of themselves, in bytes.
const maxUserAgent = 500

// Record adds an entry to the audit log in the transaction that does what it
// tells, of whichever database has such a log. It fills in the entry's id, time,
// actor and request. Callers see to it that no secret is among the changes.
func (s *Service) Record(ctx context.Context, tx *db.Tx, by By, e Entry) error {
	ip := ""
	if by.IP.IsValid() {
		ip = by.IP.Unmap().String()
	}
	if e.Changes == nil {
		e.Changes = map[string]Change{}
	}
	_, err := tx.Exec(ctx, `INSERT INTO audit_log
		(id, organization_id, service, environment, at, action, actor, target_id, target, ip, user_agent, request_id, changes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		uuid.Must(uuid.NewV7()).String(), e.OrganizationID, string(e.Service), string(e.Environment), tx.Now.UnixMicro(),
		string(e.Action), db.JSON(by.Actor), e.Target.ID, db.JSON(e.Target), ip, clean(by.UserAgent, maxUserAgent),
		clean(by.RequestID, 64), db.JSON(e.Changes))
	if err != nil {
		return fmt.Errorf("write to the audit log: %w", err)
	}
	return nil
}

// RecordChange is [Service.Record] of what differs between two versions of a
// record, member by member of its JSON, but for updated_at and version. It adds
// nothing when nothing does.
func (s *Service) RecordChange(ctx context.Context, tx *db.Tx, by By, e Entry, before, after any) error {
	var err error
	if e.Changes, err = differences(before, after); err != nil || len(e.Changes) == 0 {
		return err
	}
	return s.Record(ctx, tx, by, e)
}

// AuditQuery says which entries are wanted. Empty members leave all in.
type AuditQuery struct {
	Service     ServiceName
	Environment Environment
	Action      AuditAction
	ActorType   ActorType
	ActorID     string
	TargetID    string
	From, To    time.Time // at or after, and before
	Before      string    // id of the last entry of the page before
	Limit       int       // from 1 to 500; 0 means 50
}

// AuditPage is some entries, newest first.
type AuditPage struct {
	Entries []Entry
	Next    string // for Before; empty at the end
}

// Audit returns entries of an organization's audit log, newest first. Where
// services write to a log in databases of their own, others are those, and the
// logs are read as one.
func (s *Service) Audit(ctx context.Context, organizationID string, q AuditQuery, others ...*db.DB) (AuditPage, error) {
	from := []db.Querier{s.db}
	for _, d := range others {
		from = append(from, d)
	}
	return audit(ctx, from, organizationID, q)
}

// maxExport is how long EachAudit may take.
const maxExport = time.Hour

// EachAudit calls fn with every entry that q wants, newest first, as all of a
// database were at one moment. q's Before and Limit do not count, and others are
// as for [Service.Audit]. An error of fn ends it and is returned. It may take an
// hour at most.
func (s *Service) EachAudit(ctx context.Context, organizationID string, q AuditQuery, fn func(*Entry) error, others ...*db.DB) error {
	q.Before, q.Limit = "", maxAudit
	ctx, cancel := context.WithTimeout(ctx, maxExport)
	defer cancel()
	read := func(from []db.Querier) error {
		for {
			page, err := audit(ctx, from, organizationID, q)
			if err != nil {
				return err
			}
			for i := range page.Entries {
				if err := fn(&page.Entries[i]); err != nil {
					return err
				}
			}
			if page.Next == "" {
				return nil
			}
			q.Before = page.Next
		}
	}
	for _, d := range append([]*db.DB{s.db}, others...) {
		next := read
		read = func(from []db.Querier) error {
			return d.ReadSlowly(ctx, func(tx *db.Tx) error { return next(append(from, tx)) })
		}
	}
	return read(nil)
}

// maxAudit is how many entries a page has at most.
const maxAudit = 500

// audit reads a page of several logs as one: ids are UUIDs of version 7, so they
// are in the order of time wherever they were made.
func audit(ctx context.Context, from []db.Querier, organizationID string, q AuditQuery) (AuditPage, error) {
	if q.Limit == 0 {
		q.Limit = 50
	}
	var v problem.Validation
	if q.Limit < 1 || q.Limit > maxAudit {
		v.Add("limit", "must be from 1 to %d", maxAudit)
	}
	if q.Before != "" {
		if id, err := uuid.Parse(q.Before); err != nil || id.String() != q.Before {
			v.Add("before", "must be the id of an entry")
		}
	}
	if err := v.Err(); err != nil {
		return AuditPage{}, err
	}
	var list []Entry
	for _, log := range from {
		part, err := entries(ctx, log, organizationID, q)
		if err != nil {
			return AuditPage{}, fmt.Errorf("read the audit log: %w", err)
		}
		list = append(list, part...)
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(b.ID, a.ID) })
	if len(list) <= q.Limit {
		return AuditPage{Entries: list}, nil
	}
	list = list[:q.Limit]
	return AuditPage{Entries: list, Next: list[q.Limit-1].ID}, nil
}

// entries returns those of one log, one more than the page has.
func entries(ctx context.Context, from db.Querier, organizationID string, q AuditQuery) ([]Entry, error) {
	where, args := "organization_id = $1", []any{organizationID}
	for _, f := range []struct{ condition, value string }{
		{"service =", string(q.Service)}, {"environment =", string(q.Environment)}, {"action =", string(q.Action)},
		{"target_id =", q.TargetID}, {"id <", q.Before},
	} {
		if f.value != "" {
			args = append(args, f.value)
			where += fmt.Sprintf(" AND %s $%d", f.condition, len(args))
		}
	}
	// The parts of an actor are looked for as they are stored: as members of JSON.
	for _, f := range []struct{ member, value string }{{"type", string(q.ActorType)}, {"id", q.ActorID}} {
		if f.value != "" {
			value, err := json.Marshal(f.value)
			if err != nil {
				return nil, err
			}
			args = append(args, "%"+likeText(`"`+f.member+`":`+string(value))+"%")
			where += fmt.Sprintf(` AND actor LIKE $%d ESCAPE '!'`, len(args))
		}
	}
	for _, f := range []struct {
		condition string
		at        time.Time
	}{{"at >=", q.From}, {"at <", q.To}} {
		if !f.at.IsZero() {
			args = append(args, f.at.UnixMicro())
			where += fmt.Sprintf(" AND %s $%d", f.condition, len(args))
		}
	}
	args = append(args, q.Limit+1)
	return db.All(ctx, from, scanEntry, fmt.Sprintf(`SELECT id, organization_id, service, environment, at, action, actor, target,
		ip, user_agent, request_id, changes FROM audit_log WHERE %s ORDER BY id DESC LIMIT $%d`, where, len(args)), args...)
}

// likeText is text as a part of a pattern of LIKE, with ! to escape.
func likeText(s string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(s)
}

func scanEntry(row db.Row) (Entry, error) {
	var e Entry
	err := row.Scan(&e.ID, &e.OrganizationID, &e.Service, &e.Environment, db.IntoTime(&e.At), &e.Action, db.IntoJSON(&e.Actor),
		db.IntoJSON(&e.Target), &e.IP, &e.UserAgent, &e.RequestID, db.IntoJSON(&e.Changes))
	return e, err
}
