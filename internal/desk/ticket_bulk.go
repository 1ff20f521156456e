package desk

import (
	"context"
	"errors"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// BulkUpdate describes a change of many tickets.
type BulkUpdate struct {
	Update
	AddTags    []string // in addition to the ticket's own
	RemoveTags []string
}

// Check implements [problem.Checker].
func (u BulkUpdate) Check(v *problem.Validation) {
	u.Update.Check(v)
	checkTags(v, u.AddTags)
	checkTags(v, u.RemoveTags)
	if u.Tags != nil && len(u.AddTags)+len(u.RemoveTags) > 0 {
		v.AddCode("conflict", "tags", "must not be combined with tags to add or remove")
	}
	if u.ExternalID != nil {
		v.Add("external_id", "must be changed ticket by ticket")
	}
}

// UpdateResult is the result for one of many tickets.
type UpdateResult struct {
	Before, After Ticket
	Err           error // a problem; the ticket is unchanged
}

// UpdateTicketsTx changes up to 200 tickets in the caller's transaction, each as
// [Service.UpdateTx] does, and returns one result per id, in the order given. A
// ticket that cannot be changed, such as a merged one, does not affect the rest.
// Error: Invalid; then no ticket is changed.
func (s *Service) UpdateTicketsTx(ctx context.Context, tx *db.Tx, organizationID string, ids []string, u BulkUpdate) ([]UpdateResult, error) {
	var v problem.Validation
	if len(ids) == 0 {
		v.AddCode("required", "tickets", "must be given")
	} else if len(ids) > maxPage {
		v.AddCode("too_long", "tickets", "must have at most %d values", maxPage)
	}
	u.Check(&v)
	if err := v.Err(); err != nil {
		return nil, err
	}
	if u.AssigneeID != nil {
		if _, err := s.checkAssignee(ctx, tx, organizationID, *u.AssigneeID); err != nil {
			return nil, err
		}
	}
	locked, err := lockTickets(ctx, tx, organizationID, ids)
	if err != nil {
		return nil, err
	}
	results := make([]UpdateResult, len(ids))
	for i, id := range ids {
		t := locked[id]
		if t == nil {
			results[i].Err = notFound(db.ErrNoRows, "ticket")
			continue
		}
		before := *t
		before.Tags, before.clocks = slices.Clone(t.Tags), slices.Clone(t.clocks)
		if t.MergedIntoID != "" {
			results[i] = UpdateResult{before, before, mergedError(t)}
			continue
		}
		change := u.Update
		if len(u.AddTags)+len(u.RemoveTags) > 0 {
			remove := tagSet(u.RemoveTags)
			tags := slices.DeleteFunc(tagSet(slices.Concat(t.Tags, u.AddTags)), func(tag string) bool { return slices.Contains(remove, tag) })
			change.Tags = &tags
		}
		err := problem.Check(change) // with the ticket's own tags
		if err == nil {
			err = s.applyUpdate(ctx, tx, t, change)
		}
		if _, ok := errors.AsType[*problem.Error](err); err != nil && !ok {
			return nil, err
		}
		results[i] = UpdateResult{before, *t, err}
	}
	return results, nil
}
