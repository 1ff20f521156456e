package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// Query says which entries are wanted. Empty members leave all in.
type Query struct {
	Service, Environment string
	Action               Action // exactly
	Group                string // the part of the action before the dot
	Outcome              Outcome
	ActorType            ActorType
	ActorID              string
	TargetID             string
	From, To             time.Time // at or after, and before
	Before               string    // id of the last entry of the page before
	Limit                int       // from 1 to MaxPage; 0 means 50
}

// MaxPage is how many entries a page has at most.
const MaxPage = 500

// Page is some entries, newest first.
type Page struct {
	Entries []Entry
	Next    string // for Before; empty at the end
}

// List returns entries of an organization from several logs, read as one, newest
// first. An empty organizationID is the deployment.
func List(ctx context.Context, logs []*Log, organizationID string, q Query) (Page, error) {
	from := make([]db.Querier, len(logs))
	for i, l := range logs {
		from[i] = l.c.DB
	}
	return list(ctx, from, organizationID, q)
}

// maxExport is how long Each may take.
const maxExport = time.Hour

// Each calls fn with every entry that q wants, newest first, as all of a log were
// at one moment. q's Before and Limit do not count. An error of fn ends it and is
// returned. It may take an hour at most.
func Each(ctx context.Context, logs []*Log, organizationID string, q Query, fn func(*Entry) error) error {
	q.Before, q.Limit = "", MaxPage
	ctx, cancel := context.WithTimeout(ctx, maxExport)
	defer cancel()
	read := func(from []db.Querier) error {
		for {
			page, err := list(ctx, from, organizationID, q)
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
	for _, l := range logs {
		next := read
		read = func(from []db.Querier) error {
			return l.c.DB.ReadBulk(ctx, func(tx *db.Tx) error { return next(append(from, tx)) })
		}
	}
	return read(nil)
}

// list reads a page of several logs as one: ids are UUIDs of version 7, so they are
// in the order of time wherever they were made.
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
	if len(all) <= q.Limit {
		return Page{Entries: all}, nil
	}
	all = all[:q.Limit]
	return Page{Entries: all, Next: all[q.Limit-1].ID}, nil
}

// entries returns those of one log, one more than the page has.
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
		add("action <", q.Group+"/") // the character after the dot
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
