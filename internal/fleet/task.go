package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// WorkKind is the kind of work of a task.
type WorkKind string

// Kinds of tasks.
const (
	Maintenance WorkKind = "maintenance"
	Inspection  WorkKind = "inspection"
	BatterySwap WorkKind = "battery_swap"
	Relocation  WorkKind = "relocation"
	Cleaning    WorkKind = "cleaning"
	Repair      WorkKind = "repair"
	OtherTask   WorkKind = "other"
)

// WorkKinds lists all kinds.
var WorkKinds = []WorkKind{Maintenance, Inspection, BatterySwap, Relocation, Cleaning, Repair, OtherTask}

// TaskState is the state of a task.
type TaskState string

// States of tasks. The first two are open.
const (
	TaskOpen       TaskState = "open"
	TaskInProgress TaskState = "in_progress"
	TaskDone       TaskState = "done"
	TaskCancelled  TaskState = "cancelled"
)

// Open reports whether the task waits for work or is being worked on.
func (s TaskState) Open() bool { return s == TaskOpen || s == TaskInProgress }

// Next lists the states that a request may set.
func (s TaskState) Next() []TaskState {
	switch s {
	case TaskOpen:
		return []TaskState{TaskInProgress, TaskDone, TaskCancelled}
	case TaskInProgress:
		return []TaskState{TaskOpen, TaskDone, TaskCancelled}
	}
	return nil
}

// TaskPriority is the priority of a task.
type TaskPriority string

// Priorities of tasks, the default first.
const (
	NormalPriority TaskPriority = "normal"
	LowPriority    TaskPriority = "low"
	HighPriority   TaskPriority = "high"
	UrgentPriority TaskPriority = "urgent"
)

// Task is a maintenance task of a vehicle.
type Task struct {
	RecordHeader
	VehicleID         string         `json:"vehicle_id"`
	Kind              WorkKind       `json:"kind"`
	Title             string         `json:"title"`
	Description       NullString     `json:"description"`
	State             TaskState      `json:"state"`
	Priority          TaskPriority   `json:"priority"`
	Checklist         []TaskItem     `json:"checklist"`
	Photos            []TaskPhoto    `json:"photos"`
	AssigneeID        NullString     `json:"assignee_id"` // of a user; not checked here
	DueAt             rfc3339.Time   `json:"due_at"`
	DueOdometerMeters *int64         `json:"due_odometer_meters"`
	Overdue           bool           `json:"overdue"` // only of open tasks
	Recurrence        *Recurrence    `json:"recurrence"`
	TakesVehicleOut   bool           `json:"takes_vehicle_out"`
	VehicleReturn     *VehicleReturn `json:"vehicle_return"` // of a closed task that took its vehicle out of service
	TicketNumber      *int64         `json:"ticket_number"`  // of the helpdesk; not checked here
	PreviousTaskID    NullString     `json:"previous_task_id"`
	NextTaskID        NullString     `json:"next_task_id"`
	CreatedBy         Actor          `json:"created_by"`
	StartedAt         rfc3339.Time   `json:"started_at"`
	ClosedAt          rfc3339.Time   `json:"closed_at"`
	ClosedBy          *Actor         `json:"closed_by"`
	Timestamps

	// Not in the JSON.
	revision int64
	vehicle  *Vehicle // locked with the task; nil if it was deleted
	doc      []byte   // as stored
	org      orgContext
}

// TaskItem is an item of a checklist.
type TaskItem struct {
	Text   string       `json:"text"`
	Done   bool         `json:"done"`
	DoneAt rfc3339.Time `json:"done_at"`
	DoneBy *Actor       `json:"done_by"`
}

// Recurrence is the interval of a task that recurs. When it is done, the next one is created, due
// after these days, after these meters, or both. Zero: not by this.
type Recurrence struct {
	Days   int64 `json:"days"`
	Meters int64 `json:"meters"`
}

// VehicleReturn is the result, for its vehicle, of closing a task that took it out of service.
type VehicleReturn struct {
	Returned bool       `json:"returned"` // to service
	Code     NullString `json:"code"`     // why it stays out of service
	Message  NullString `json:"message"`
}

// NewTask has the fields of a task to create.
type NewTask struct {
	VehicleID         string            `json:"vehicle_id"`
	ExternalID        NullString        `json:"external_id"`
	Kind              WorkKind          `json:"kind"` // empty: maintenance
	Title             string            `json:"title"`
	Description       NullString        `json:"description"`
	Priority          TaskPriority      `json:"priority"` // empty: normal
	Checklist         []TaskItem        `json:"checklist"`
	AssigneeID        NullString        `json:"assignee_id"`
	DueAt             rfc3339.Time      `json:"due_at"`
	DueOdometerMeters *int64            `json:"due_odometer_meters"`
	Recurrence        *Recurrence       `json:"recurrence"`
	TakesVehicleOut   bool              `json:"takes_vehicle_out"`
	TicketNumber      *int64            `json:"ticket_number"`
	Metadata          map[string]string `json:"metadata"`
}

// TaskChange has the fields that a PUT sets. Absent fields remain.
type TaskChange struct {
	ExternalID        optional.Value[NullString]        `json:"external_id"`
	Kind              optional.Value[WorkKind]          `json:"kind"`
	Title             optional.Value[string]            `json:"title"`
	Description       optional.Value[NullString]        `json:"description"`
	State             optional.Value[TaskState]         `json:"state"`
	Priority          optional.Value[TaskPriority]      `json:"priority"`
	Checklist         optional.Value[[]TaskItem]        `json:"checklist"`
	AssigneeID        optional.Value[NullString]        `json:"assignee_id"`
	DueAt             optional.Value[rfc3339.Time]      `json:"due_at"`
	DueOdometerMeters optional.Value[int64]             `json:"due_odometer_meters"`
	Recurrence        optional.Value[Recurrence]        `json:"recurrence"`
	TakesVehicleOut   optional.Value[bool]              `json:"takes_vehicle_out"`
	TicketNumber      optional.Value[int64]             `json:"ticket_number"`
	Metadata          optional.Value[map[string]string] `json:"metadata"` // the merged result
}

// Bounds of tasks.
const (
	maxItems        = 50
	maxUserID       = 128
	maxRecurDays    = 3650
	maxTicketNumber = 1<<53 - 1
	maxOpenTasks    = 100 // of a vehicle
)

// takesOut reports whether the task takes its vehicle out of service now. A task that a recurrence
// created does so once it is started, since it is due later.
func (t *Task) takesOut() bool {
	return t.TakesVehicleOut && (t.State == TaskInProgress || t.State == TaskOpen && t.PreviousTaskID == "")
}

// timer returns the time at which the task becomes overdue, zero for none.
func (t *Task) timer() time.Time {
	if !t.State.Open() || t.Overdue {
		return time.Time{}
	}
	return t.DueAt.Std()
}

// isOverdue reports whether an open task is past its due time or its due odometer. v is its vehicle or nil.
func (t *Task) isOverdue(v *Vehicle, now time.Time) bool {
	if !t.State.Open() {
		return false
	}
	return t.pastTime(now) || t.pastDistance(v)
}

// Record returns the task's stored form.
func (t *Task) Record() (Record, error) {
	doc, err := t.doc, error(nil)
	if doc == nil {
		doc, err = encode(t)
	}
	return Record{ID: t.ID, SubaccountID: t.SubaccountID, Revision: t.revision, JSON: doc, Distance: -1}, err
}

// columns are the columns stored beside the document.
func (t *Task) columns() []column {
	return []column{
		{"id", t.ID},
		{"subaccount_id", t.SubaccountID},
		{"revision", t.revision},
		{"external_id", idValue(t.ExternalID)},
		{"vehicle_id", t.VehicleID},
		{"kind", string(t.Kind)},
		{"state", string(t.State)},
		{"assignee_id", idValue(t.AssigneeID)},
		{"ticket_number", integerValue(t.TicketNumber)},
		{"overdue", t.Overdue},
		{"out_of_service", t.takesOut()},
		{"due_at", db.Time(t.DueAt.Std())},
		{"due_odometer_meters", integerValue(t.DueOdometerMeters)},
		{"timer_at", db.Time(t.timer())},
		{"updated_at", db.Time(t.UpdatedAt.Std())},
		{"doc", string(t.doc)},
	}
}

// check adds issues of the task's own fields and normalizes it.
func (t *Task) check(v *problem.Validation) {
	checkCommon(v, t.ExternalID, t.Metadata)
	checkOneOf(v, "kind", t.Kind, WorkKinds...)
	checkOneOf(v, "state", t.State, TaskOpen, TaskInProgress, TaskDone, TaskCancelled)
	checkOneOf(v, "priority", t.Priority, LowPriority, NormalPriority, HighPriority, UrgentPriority)
	checkLine(v, "title", t.Title, maxName)
	v.Length("description", string(t.Description), 0, maxText)
	v.Line("assignee_id", string(t.AssigneeID), 0, maxUserID)
	if len(t.Checklist) > maxItems {
		v.AddCode("too_long", "checklist", "must have at most %d items", maxItems)
	}
	for i := range t.Checklist[:min(maxItems, len(t.Checklist))] {
		checkLine(v, "checklist."+strconv.Itoa(i)+".text", t.Checklist[i].Text, maxName)
	}
	t.DueAt, _ = checkTaskTime(v, "due_at", t.DueAt)
	checkOptional(v, "due_odometer_meters", t.DueOdometerMeters, 0, maxOdometer)
	checkOptional(v, "ticket_number", t.TicketNumber, 1, maxTicketNumber)
	if r := t.Recurrence; r != nil {
		checkRange(v, "recurrence.days", r.Days, 0, maxRecurDays)
		checkRange(v, "recurrence.meters", r.Meters, 0, maxMeters)
		if r.Days == 0 && r.Meters == 0 {
			v.AddCode("required", "recurrence", "must have days, meters or both")
		}
	}
}

// checkTaskTime returns a time in whole milliseconds, and false with an issue if it is out of range.
func checkTaskTime(v *problem.Validation, path string, at rfc3339.Time) (rfc3339.Time, bool) {
	if at.Std().IsZero() {
		return at, true
	}
	at = rfc3339.Time(at.Std().UTC().Truncate(time.Millisecond))
	if year := at.Std().Year(); year < 1970 || year > 9999 {
		v.AddCode("invalid_value", path, "must be from 1970 to 9999")
		return at, false
	}
	return at, true
}

// Task returns a task. Error: NotFound.
func (s *Service) Task(ctx context.Context, q db.Querier, organizationID, id string) (Task, error) {
	return readTask(ctx, q, organizationID, id, "")
}

func readTask(ctx context.Context, q db.Querier, organizationID, id, lock string) (Task, error) {
	var t Task
	err := t.scan(q.QueryRow(ctx, "SELECT revision, doc FROM tasks WHERE organization_id = $1 AND id = $2"+lock, organizationID, id))
	return t, wrapReadError(err, "task")
}

func (t *Task) scan(row db.Row) error {
	if err := row.Scan(&t.revision, &t.doc); err != nil {
		return err
	}
	if err := json.Unmarshal(t.doc, t); err != nil {
		return fmt.Errorf("decode a task: %w", err)
	}
	return nil
}

// LockTaskTx locks a task and its vehicle, for [Service.UpdateTaskTx] in the same transaction. A
// caller that has changed the vehicle must have saved it. Error: NotFound.
func (s *Service) LockTaskTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Task, error) {
	t, err := readTask(ctx, tx, organizationID, id, "")
	if err != nil {
		return t, err
	}
	v, err := s.LockVehicleTx(ctx, tx, organizationID, t.VehicleID)
	if ignoreAbsent(err) != nil {
		return t, err
	}
	locked, lockErr := readTask(ctx, tx, organizationID, id, " FOR UPDATE")
	if lockErr != nil {
		return locked, lockErr
	}
	if err == nil {
		locked.vehicle = &v
	}
	locked.org, err = s.reuseOrgContext(ctx, tx, v.org, organizationID)
	return locked, err
}

// CreateTaskTx creates a task of a vehicle in the caller's transaction. A task that takes the
// vehicle out of service does so at once or, if the vehicle has a ride, when the ride ends. The
// vehicle is locked and may be saved: a caller that has changed it must have saved it before and
// read it again after. Errors: Invalid, also if there is no such vehicle
// or it has 100 open tasks; Conflict already_exists with the member external_id.
func (s *Service) CreateTaskTx(ctx context.Context, tx *db.Tx, organizationID string, n NewTask, by Actor) (Task, error) {
	var faults problem.Validation
	v, err := s.LockVehicleTx(ctx, tx, organizationID, n.VehicleID)
	switch {
	case n.VehicleID == "":
		faults.AddCode("required", "vehicle_id", "is required")
	case problem.Of(err) == problem.NotFound:
		faults.AddCode("not_found", "vehicle_id", "must be a vehicle")
	case err != nil:
		return Task{}, err
	}
	a, err := s.reuseOrgContext(ctx, tx, v.org, organizationID)
	if err != nil {
		return Task{}, err
	}
	t := s.newTask(a, &v, n, by)
	t.check(&faults)
	if err := faults.Err(); err != nil {
		return t, err
	}
	full, err := hasMostTasks(ctx, tx, a, v.ID)
	if err != nil {
		return t, err
	}
	if full {
		faults.AddCode("too_long", "vehicle_id", "must have less than %d open tasks", maxOpenTasks)
		return t, faults.Err()
	}
	return t, s.insertTask(ctx, tx, a, &t, by)
}

// newTask returns a task of a locked vehicle, unchecked.
func (s *Service) newTask(a orgContext, v *Vehicle, n NewTask, by Actor) Task {
	t := Task{
		VehicleID: v.ID, Kind: cmp.Or(n.Kind, Maintenance), Title: n.Title, Description: n.Description, State: TaskOpen,
		Priority: cmp.Or(n.Priority, NormalPriority), AssigneeID: n.AssigneeID, DueAt: n.DueAt, DueOdometerMeters: n.DueOdometerMeters,
		Recurrence: n.Recurrence, TakesVehicleOut: n.TakesVehicleOut, TicketNumber: n.TicketNumber, CreatedBy: by, Photos: []TaskPhoto{},
		vehicle: v, org: a,
	}
	t.RecordHeader, t.Timestamps = s.newRecord(taskPrefix, "task", v.SubaccountID, a.now)
	t.ExternalID, t.Metadata = n.ExternalID, metadataOf(n.Metadata)
	t.Checklist = mergeChecklist(nil, n.Checklist, t.CreatedAt, by)
	return t
}

// hasMostTasks reports whether a locked vehicle has the maximum of open tasks.
func hasMostTasks(ctx context.Context, tx *db.Tx, a orgContext, vehicleID string) (bool, error) {
	var open int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM tasks WHERE organization_id = $1 AND vehicle_id = $2 AND state IN ('open', 'in_progress')", a.id, vehicleID).Scan(&open)
	if err != nil {
		return false, fmt.Errorf("count the tasks of a vehicle: %w", err)
	}
	return open >= maxOpenTasks, nil
}

// insertTask stores a new task and applies its effect on its vehicle.
func (s *Service) insertTask(ctx context.Context, tx *db.Tx, a orgContext, t *Task, by Actor) (err error) {
	t.revision, t.Overdue = 1, t.isOverdue(t.vehicle, a.now)
	if t.doc, err = encode(t); err != nil {
		return err
	}
	added, err := insertRow(ctx, tx, "tasks", a.id, t.columns())
	if err != nil {
		return err
	}
	if !added {
		return alreadyExistsError("external_id")
	}
	s.notify(tx, a.id, TaskKind, t.ID)
	if err := s.applyToVehicle(ctx, tx, a, nil, t, by); err != nil {
		return err
	}
	if err := s.emit(ctx, tx, a, event.TaskCreated, t.VehicleID, t.SubaccountID, a.now, eventData{Task: t.doc}); err != nil {
		return err
	}
	if err := s.sendOverdue(ctx, tx, a, nil, t); err != nil {
		return err
	}
	return s.recordTask(ctx, tx, a.id, TaskCreated, t, t, by)
}

// mergeChecklist returns the new items of a checklist. An item that was done stays done as it was:
// by whom and when.
func mergeChecklist(before, list []TaskItem, now rfc3339.Time, by Actor) []TaskItem {
	before = slices.Clone(before)
	merged := make([]TaskItem, len(list))
	for i, item := range list {
		merged[i] = TaskItem{Text: item.Text, Done: item.Done}
		if !item.Done {
			continue
		}
		merged[i].DoneAt, merged[i].DoneBy = now, &by
		if at := slices.IndexFunc(before, func(former TaskItem) bool { return former.Done && former.Text == item.Text }); at >= 0 {
			merged[i] = before[at]
			before = slices.Delete(before, at, at+1)
		}
	}
	return merged
}

// UpdateTaskTx updates a task that [Service.LockTaskTx] locked in the caller's transaction. An
// update without a difference creates no revision. When a task that took its vehicle out of
// service is closed, the vehicle returns to service if no other task prevents it and if a request
// might set it available; see [Task.VehicleReturn]. Errors: Invalid; Conflict already_exists with
// the member external_id; invalid_transition.
func (s *Service) UpdateTaskTx(ctx context.Context, tx *db.Tx, organizationID string, t Task, c TaskChange, by Actor) (Task, error) {
	a, err := s.reuseOrgContext(ctx, tx, t.org, organizationID)
	if err != nil {
		return t, err
	}
	before := t
	now := rfc3339.Time(a.now.Truncate(time.Millisecond))
	c.applyFields(&t)
	if c.Checklist.Set {
		t.Checklist = mergeChecklist(before.Checklist, c.Checklist.Value, now, by)
	}
	var faults problem.Validation
	t.check(&faults)
	if err := faults.Err(); err != nil {
		return t, err
	}
	if t.State != before.State {
		if err := t.move(before.State, now, by); err != nil {
			return t, err
		}
	}
	if t.ExternalID != before.ExternalID {
		if err := claimUnique(ctx, tx, "tasks", a.id, t.SubaccountID, t.ID, "external_id", t.ExternalID); err != nil {
			return t, err
		}
	}
	if t.State == TaskDone && before.State.Open() && t.Recurrence != nil && t.vehicle != nil {
		t.NextTaskID = NullString(newID(taskPrefix, now.Std(), s.entropy))
	}
	return t, s.saveTask(ctx, tx, a, &before, &t, by)
}

// applyFields applies the change except for the checklist.
func (c *TaskChange) applyFields(t *Task) {
	c.ExternalID.Into(&t.ExternalID)
	c.Kind.Into(&t.Kind)
	c.Title.Into(&t.Title)
	c.Description.Into(&t.Description)
	c.State.Into(&t.State)
	c.Priority.Into(&t.Priority)
	c.AssigneeID.Into(&t.AssigneeID)
	c.DueAt.Into(&t.DueAt)
	c.DueOdometerMeters.IntoPointer(&t.DueOdometerMeters)
	c.Recurrence.IntoPointer(&t.Recurrence)
	c.TakesVehicleOut.Into(&t.TakesVehicleOut)
	c.TicketNumber.IntoPointer(&t.TicketNumber)
	if c.Metadata.Set {
		t.Metadata = metadataOf(c.Metadata.Value)
	}
}

// move applies a change of state, which is set already.
func (t *Task) move(from TaskState, now rfc3339.Time, by Actor) error {
	if !slices.Contains(from.Next(), t.State) {
		return invalidTransition(from, t.State, from.Next())
	}
	switch {
	case !t.State.Open():
		t.ClosedAt, t.ClosedBy = now, &by
	case t.State == TaskInProgress && t.StartedAt.Std().IsZero():
		t.StartedAt = now
	}
	return nil
}

// saveTask writes t, stored until now as before, with its effects: on its vehicle and, of one that
// recurs, the next task.
func (s *Service) saveTask(ctx context.Context, tx *db.Tx, a orgContext, before, t *Task, by Actor) (err error) {
	t.Overdue = t.isOverdue(t.vehicle, a.now)
	if t.doc, err = encode(t); err != nil || bytes.Equal(t.doc, before.doc) {
		return err
	}
	if before.takesOut() && !t.takesOut() && t.vehicle != nil {
		t.VehicleReturn = t.vehicle.returnToService(a, by)
	} else if t.takesOut() {
		t.VehicleReturn = nil
	}
	t.revision, t.UpdatedAt = before.revision+1, nextUpdatedAt(before.UpdatedAt, a.now)
	if t.doc, err = encode(t); err != nil {
		return err
	}
	if err := updateRow(ctx, tx, "tasks", a.id, t.ID, before.columns(), t.columns()); err != nil {
		if db.IsUnique(err) { // by a concurrent transaction
			return alreadyExistsError("external_id")
		}
		return err
	}
	s.notify(tx, a.id, TaskKind, t.ID)
	if err := s.applyToVehicle(ctx, tx, a, before, t, by); err != nil {
		return err
	}
	if err := s.emitTask(ctx, tx, a, before, t); err != nil {
		return err
	}
	if err := s.sendOverdue(ctx, tx, a, before, t); err != nil {
		return err
	}
	if err := s.recordTask(ctx, tx, a.id, TaskUpdated, before, t, by); err != nil {
		return err
	}
	if t.NextTaskID != before.NextTaskID {
		return s.insertNextTask(ctx, tx, a, t)
	}
	return nil
}

// emitTask records the event of a changed task.
func (s *Service) emitTask(ctx context.Context, tx *db.Tx, a orgContext, before, t *Task) error {
	if !a.recorded {
		return nil
	}
	changed, err := changedMembers(before.doc, t.doc)
	if err != nil {
		return err
	}
	name := event.TaskUpdated
	if t.State == TaskDone && before.State.Open() {
		name = event.TaskDone
	}
	return s.emit(ctx, tx, a, name, t.VehicleID, t.SubaccountID, a.now, eventData{Task: t.doc, Changed: changed})
}

// insertNextTask creates the task that follows one that recurs and is done. Its distance counts
// from the present odometer, or from the former due odometer if that is unknown; its days are those of
// the subaccount's time zone.
func (s *Service) insertNextTask(ctx context.Context, tx *db.Tx, a orgContext, done *Task) error {
	next := Task{
		VehicleID: done.VehicleID, Kind: done.Kind, Title: done.Title, Description: done.Description, State: TaskOpen, Priority: done.Priority,
		AssigneeID: done.AssigneeID, Recurrence: done.Recurrence, TakesVehicleOut: done.TakesVehicleOut, PreviousTaskID: NullString(done.ID),
		CreatedBy: systemActor, Photos: []TaskPhoto{}, Checklist: slices.Clone(done.Checklist), vehicle: done.vehicle, org: a,
	}
	next.RecordHeader, next.Timestamps = s.newRecord(taskPrefix, "task", done.SubaccountID, a.now)
	next.ID = string(done.NextTaskID)
	for i := range next.Checklist {
		next.Checklist[i] = TaskItem{Text: next.Checklist[i].Text}
	}
	if days := done.Recurrence.Days; days > 0 {
		sub, _, err := s.subaccount(ctx, tx, a.id, done.SubaccountID)
		if err != nil {
			return err
		}
		zone, err := locationOf(sub.TimeZone)
		if err != nil {
			return err
		}
		next.DueAt = rfc3339.Time(done.ClosedAt.Std().In(zone).AddDate(0, 0, int(days)).UTC())
	}
	if meters := done.Recurrence.Meters; meters > 0 {
		from := cmp.Or(done.vehicle.OdometerMeters, done.DueOdometerMeters, new(int64))
		next.DueOdometerMeters = new(min(*from+meters, maxOdometer))
	}
	return s.insertTask(ctx, tx, a, &next, systemActor)
}

// applyToVehicle applies the effect of a new (before is nil) or changed task, which is stored, on
// its vehicle. Its return to service is in the vehicle already.
func (s *Service) applyToVehicle(ctx context.Context, tx *db.Tx, a orgContext, before, t *Task, by Actor) error {
	v := t.vehicle
	if v == nil {
		return nil
	}
	wasOut := before != nil && before.takesOut()
	if !wasOut && t.takesOut() {
		if v.outTasks++; v.State == Available {
			v.setState(NonOperational, "maintenance", a.now, "", by)
		}
	}
	if len(v.changes) > 0 || v.State == NonContactable {
		stored, err := readVehicle(ctx, tx, a.id, v.ID, "")
		if err != nil {
			return err
		}
		if len(v.changes) > 0 || v.formerState != stored.formerState {
			if err := s.saveVehicle(ctx, tx, a, &stored, v); err != nil {
				return err
			}
		}
	}
	return s.refreshVehicleTasks(ctx, tx, a, v)
}

// refreshVehicleTasks sets the columns of a vehicle that depend on its tasks.
func (s *Service) refreshVehicleTasks(ctx context.Context, tx *db.Tx, a orgContext, v *Vehicle) error {
	_, err := tx.Exec(ctx, `UPDATE vehicles SET
		out_tasks = (SELECT count(*) FROM tasks WHERE organization_id = $1 AND vehicle_id = $2 AND out_of_service),
		task_odometer_meters = (SELECT min(due_odometer_meters) FROM tasks WHERE organization_id = $1 AND vehicle_id = $2 AND state IN ('open', 'in_progress') AND NOT overdue)
		WHERE organization_id = $1 AND id = $2`, a.id, v.ID)
	if err != nil {
		return fmt.Errorf("note the tasks of a vehicle: %w", err)
	}
	s.notify(tx, a.id, VehicleKind, v.ID)
	return nil
}

// returnToService ends the effect of a task on the vehicle that it took out of service, and makes
// the vehicle available if a request might do so. A vehicle with a low battery returns when it is
// charged, if that took it out of service, and one out of contact when it reports.
func (v *Vehicle) returnToService(a orgContext, by Actor) *VehicleReturn {
	v.outTasks--
	stays := func(code, message string) *VehicleReturn {
		return &VehicleReturn{Code: NullString(code), Message: NullString(message)}
	}
	switch {
	case v.outTasks > 0:
		return stays("open_tasks", "Another task takes the vehicle out of service.")
	case v.State == Available || v.CurrentRideID != "":
		return &VehicleReturn{Returned: true} // the ride of the vehicle did not end in the meantime
	case v.State == NonContactable && v.Location != nil && (v.formerState == Available || v.formerState == NonOperational && v.formerEvent == "maintenance"):
		if v.batteryBelow(a.settings.LowBatteryPercent) {
			return stays("vehicle_low_battery", "The battery of the vehicle is low, and it is out of contact.")
		}
		v.formerState = Available
		return stays("no_contact", "The vehicle is out of contact. It is available when it reports.")
	case v.State != NonOperational || v.LastEvent != "maintenance" && v.formerEvent != "maintenance" && !v.disabledByBattery():
		return stays("invalid_transition", "The vehicle is "+string(v.State)+" for another reason: "+string(v.LastEvent)+".")
	case v.Location == nil:
		return stays("invalid_transition", "A vehicle without a location cannot be available.")
	case v.batteryBelow(a.settings.LowBatteryPercent), v.disabledByBattery() && v.batteryBelow(a.settings.BatteryReadyPercent):
		return stays("vehicle_low_battery", "The battery of the vehicle is low.")
	}
	v.setState(Available, "maintenance", a.now, "", by)
	return &VehicleReturn{Returned: true}
}

// applyOdometer makes the tasks overdue whose due odometer a saved vehicle has reached.
func (s *Service) applyOdometer(ctx context.Context, tx *db.Tx, a orgContext, v *Vehicle) error {
	if v.taskOdometer == nil || v.OdometerMeters == nil || *v.OdometerMeters < *v.taskOdometer {
		return nil
	}
	list, err := db.All(ctx, tx, scanTask, `SELECT revision, doc FROM tasks WHERE organization_id = $1 AND vehicle_id = $2
		AND state IN ('open', 'in_progress') AND NOT overdue AND due_odometer_meters <= $3 ORDER BY id FOR UPDATE`, a.id, v.ID, *v.OdometerMeters)
	if err != nil {
		return fmt.Errorf("read the tasks due by distance: %w", err)
	}
	for i := range list {
		list[i].vehicle = v
		if err := s.markOverdue(ctx, tx, a, &list[i]); err != nil {
			return err
		}
	}
	return s.refreshVehicleTasks(ctx, tx, a, v)
}

func scanTask(row db.Row) (t Task, err error) {
	err = t.scan(row)
	return t, err
}

// markOverdue makes a locked task overdue.
func (s *Service) markOverdue(ctx context.Context, tx *db.Tx, a orgContext, t *Task) (err error) {
	before := *t
	t.Overdue, t.revision, t.UpdatedAt = true, t.revision+1, nextUpdatedAt(t.UpdatedAt, a.now)
	if t.doc, err = encode(t); err != nil {
		return err
	}
	if err := updateRow(ctx, tx, "tasks", a.id, t.ID, before.columns(), t.columns()); err != nil {
		return err
	}
	s.notify(tx, a.id, TaskKind, t.ID)
	if err := s.emitTask(ctx, tx, a, &before, t); err != nil {
		return err
	}
	return s.sendOverdue(ctx, tx, a, &before, t)
}

// applyTaskTimer makes a task overdue whose time has come.
func (s *Service) applyTaskTimer(ctx context.Context, tx *db.Tx, a orgContext, due timer) error {
	t, err := readTask(ctx, tx, a.id, due.id, " FOR UPDATE")
	if err != nil {
		return ignoreAbsent(err)
	}
	if at := t.timer(); at.IsZero() || at.After(due.at) {
		return nil
	}
	return s.markOverdue(ctx, tx, a, &t)
}

// cancelTasks cancels the open tasks of a vehicle that is deleted.
func (s *Service) cancelTasks(ctx context.Context, tx *db.Tx, a orgContext, vehicleID string, by Actor) error {
	list, err := db.All(ctx, tx, scanTask, `SELECT revision, doc FROM tasks WHERE organization_id = $1 AND vehicle_id = $2
		AND state IN ('open', 'in_progress') ORDER BY id FOR UPDATE`, a.id, vehicleID)
	if err != nil {
		return fmt.Errorf("read the open tasks of a vehicle: %w", err)
	}
	now := rfc3339.Time(a.now.Truncate(time.Millisecond))
	for i := range list {
		t := list[i]
		t.State = TaskCancelled
		if err := t.move(list[i].State, now, by); err != nil {
			return err
		}
		if err := s.saveTask(ctx, tx, a, &list[i], &t, by); err != nil {
			return err
		}
	}
	return nil
}

// VehiclesWithOpenTasks returns the ids of the vehicles that have open tasks, among vehicleIDs.
func (s *Service) VehiclesWithOpenTasks(ctx context.Context, q db.Querier, organizationID string, vehicleIDs []string) (map[string]bool, error) {
	found := make(map[string]bool)
	if len(vehicleIDs) == 0 {
		return found, nil
	}
	list, err := db.All(ctx, q, scanID, `SELECT DISTINCT vehicle_id FROM tasks WHERE organization_id = $1 AND vehicle_id = ANY($2) AND state IN ('open', 'in_progress')`,
		organizationID, vehicleIDs)
	if err != nil {
		return nil, fmt.Errorf("look for vehicles with open tasks: %w", err)
	}
	for _, id := range list {
		found[id] = true
	}
	return found, nil
}
