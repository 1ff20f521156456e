package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Query filters entries. Empty fields match all.
type Query struct {
	Service, Environment string
	Action               Action // exact
	Group                string // the part of the action before the dot
	Outcome              Outcome
	ActorType            ActorType
	ActorID              string
	TargetID             string
	From, To             time.Time // inclusive, exclusive
	Before               string    // id of the previous page's last entry
	Limit                int       // from 1 to MaxPage; 0 means 50
}

// MaxPage is the maximum page size.
const MaxPage = 500

// Page is a page of entries, newest first.
type Page struct {
	Entries []Entry
	Next    string // value for Before; empty on the last page
}

// List returns an organization's entries from several logs, merged, newest first. An
// empty organizationID is the deployment.
func List(ctx context.Context, logs []*Log, organizationID string, q Query) (Page, error) {
	from := make([]db.Querier, len(logs))
	for i, l := range logs {
		from[i] = l.c.DB
	}
	return list(ctx, from, organizationID, q)
}

// Each calls fn with every entry that matches q, newest first, from one snapshot per log.
// It ignores q.Before and q.Limit. An error of fn ends it and is returned. It runs for at
// most [keyset.MaxExport].
func Each(ctx context.Context, logs []*Log, organizationID string, q Query, fn func(*Entry) error) error {
	q.Limit = MaxPage
	read := func(ctx context.Context, from []db.Querier) error {
		return keyset.EachPage("audit entries", fn, func(before string) ([]Entry, string, error) {
			q.Before = before
			page, err := list(ctx, from, organizationID, q)
			return page.Entries, page.Next, err
		})
	}
	for _, l := range logs {
		next := read
		read = func(ctx context.Context, from []db.Querier) error {
			return keyset.Export(ctx, l.c.DB, func(ctx context.Context, tx *db.Tx) error { return next(ctx, append(from, tx)) })
		}
	}
	return read(ctx, nil)
}

// list returns a page of several logs merged by id: ids are UUIDv7, so they sort by time
// across logs.
func list(ctx context.Context, from []db.Querier, organizationID string, q Query) (Page, error) {
	q.Limit = cmp.Or(q.Limit, 50)
	var v problem.Validation
	if q.Limit < 1 || q.Limit > MaxPage {
		v.Add("limit", "must be from 1 to %d", MaxPage)
	}
	if q.Before != "" {
		if id, err := uuid.Parse(q.Before); err != nil || id.String() != q.Before {
			v.Add("before", "must be the id of an entry")
		}
	}
	if err := v.Err(); err != nil {
		return Page{}, err
	}
	var all []Entry
	for _, log := range from {
		part, err := entries(ctx, log, organizationID, q)
		if err != nil {
			return Page{}, fmt.Errorf("read the audit log: %w", err)
		}
		all = append(all, part...)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(b.ID, a.ID) })
	all, next := keyset.TrimPage(all, q.Limit, func(last *Entry) string { return last.ID })
	return Page{all, next}, nil
}

// entries returns the matching entries of one log, up to one more than the page size.
func entries(ctx context.Context, from db.Querier, organizationID string, q Query) ([]Entry, error) {
	where, args := "organization_id = $1", []any{organizationID}
	add := func(condition string, value any) {
		args = append(args, value)
		where += fmt.Sprintf(" AND %s $%d", condition, len(args))
	}
	for _, f := range []struct{ condition, value string }{
		{"service =", q.Service}, {"environment =", q.Environment}, {"action =", q.Action}, {"outcome =", string(q.Outcome)},
		{"actor_type =", string(q.ActorType)}, {"actor_id =", q.ActorID}, {"target_id =", q.TargetID}, {"id <", q.Before},
	} {
		if f.value != "" {
			add(f.condition, f.value)
		}
	}
	if q.Group != "" {
		add("action >=", q.Group+".")
		add("action <", q.Group+"/") // "/" follows "." in ASCII
	}
	if !q.From.IsZero() {
		add("at >=", q.From.UnixMicro())
	}
	if !q.To.IsZero() {
		add("at <", q.To.UnixMicro())
	}
	args = append(args, q.Limit+1)
	return db.All(ctx, from, scanEntry, fmt.Sprintf("SELECT %s FROM audit_entries WHERE %s ORDER BY id DESC LIMIT $%d", columns, where, len(args)), args...)
}

func scanEntry(from db.Row) (Entry, error) {
	r, err := scanRow(from)
	if err != nil {
		return Entry{}, err
	}
	return r.entry()
}
