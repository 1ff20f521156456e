package fleet

import (
	"context"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TaskQuery selects tasks; see [RideQuery].
type TaskQuery struct {
	Subaccounts  []string // permitted subaccounts; nil: all
	Subaccount   []string // among the permitted
	VehicleID    []string
	Kind         []WorkKind
	State        []TaskState
	AssigneeID   []string
	ExternalID   []string
	TicketNumber *int64
	Overdue      *bool
	DueAt        period.Range
	CreatedAt    period.Range
	UpdatedAt    period.Range
	Sort         keyset.Sort // by created_at, updated_at or due_at
	After        *keyset.Cursor
	Limit        int // 0: 20; at most 100
}

// Check implements [problem.Checker].
func (q *TaskQuery) Check(v *problem.Validation) {
	keyset.CheckPage(v, q.Sort, q.After, q.Limit, maxPage, "created_at", "updated_at", "due_at")
	keyset.CheckValues(v, "subaccount_id", q.Subaccount)
	keyset.CheckValues(v, "vehicle_id", q.VehicleID)
	keyset.CheckValues(v, "kind", q.Kind)
	keyset.CheckValues(v, "state", q.State)
	keyset.CheckValues(v, "assignee_id", q.AssigneeID)
	keyset.CheckValues(v, "external_id", q.ExternalID)
}

// ListTasks is [Service.ListRides] for tasks.
func (s *Service) ListTasks(ctx context.Context, q db.Querier, organizationID string, query TaskQuery) ([]Record, *keyset.Cursor, error) {
	if err := problem.Check(&query); err != nil {
		return nil, nil, err
	}
	return s.listPage(ctx, q, query.Limit, func(q db.Querier) (*listQuery, error) { return taskListQuery(ctx, q, organizationID, &query), nil })
}

// EachTask is [Service.EachRide] for tasks.
func (s *Service) EachTask(ctx context.Context, organizationID string, query TaskQuery, fn func(*Record) error) error {
	query.After, query.Limit = nil, 0
	if err := problem.Check(&query); err != nil {
		return err
	}
	return s.eachRecord(ctx, func(ctx context.Context, q db.Querier) (*listQuery, error) {
		return taskListQuery(ctx, q, organizationID, &query), nil
	}, fn)
}

func taskListQuery(ctx context.Context, q db.Querier, organizationID string, query *TaskQuery) *listQuery {
	f := &listQuery{
		ctx: ctx, q: q, organization: organizationID, table: "tasks", after: query.After, descending: query.Sort.Descending,
	}
	switch query.Sort.Field {
	case "updated_at":
		f.key = sortKey{column: "updated_at", always: true}
	case "due_at":
		f.key = sortKey{column: "due_at"}
	case "":
		f.descending = true
	}
	f.whereEqual("vehicle_id", query.VehicleID, true, "")
	f.whereEqual("state", texts(query.State), true, "")
	f.whereEqual("kind", texts(query.Kind), false, "")
	f.whereEqual("assignee_id", query.AssigneeID, true, "assignee_id IS NOT NULL")
	f.whereEqual("external_id", query.ExternalID, true, "external_id IS NOT NULL")
	if n := query.TicketNumber; n != nil {
		f.whereInteger("ticket_number", Integers{n, n}, "ticket_number IS NOT NULL")
	}
	if query.Overdue != nil {
		f.unindexed = append(f.unindexed, func(st *keyset.Statement) string { return "overdue = " + st.Arg(*query.Overdue) })
	}
	f.whereSubaccounts(query.Subaccounts, query.Subaccount)
	f.whereCreated(taskPrefix, query.CreatedAt)
	f.whereTime("updated_at", query.UpdatedAt, "")
	f.whereTime("due_at", query.DueAt, "")
	return f
}
