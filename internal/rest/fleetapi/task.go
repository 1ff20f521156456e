package fleetapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

var (
	workKinds      = []string{"maintenance", "inspection", "battery_swap", "relocation", "cleaning", "repair", "other"}
	taskStates     = []string{"open", "in_progress", "done", "cancelled"}
	taskPriorities = []string{"low", "normal", "high", "urgent"}
)

// maxPhotoBody bounds the body with a photo in base64.
const maxPhotoBody = fleet.MaxPhotoFile/3*4 + 1<<10

var actorRecord = &schema.Record{Name: "actor", Doc: "Who did it.", Members: []schema.Member{
	{Name: "type", Type: schema.Enum("key", "user", "system")},
	{Name: "id", Type: schema.ID(), Nullable: true},
}}

var taskRecord = record("task", "Work on a vehicle.",
	schema.Member{Name: "vehicle_id", Type: schema.ID(), Access: schema.CreateOnly, Doc: "Required. The task belongs to the subaccount of its vehicle."},
	schema.Member{Name: "kind", Type: schema.Enum(workKinds...), Access: schema.Writable, Doc: "Defaults to maintenance."},
	schema.Member{Name: "title", Type: schema.String(1, 256), Access: schema.Required, Example: "Replace the brake"},
	schema.Member{Name: "description", Type: schema.String(1, 5000), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "state", Type: schema.Enum(taskStates...), Access: schema.UpdateOnly, Doc: "open at creation. done and cancelled are final."},
	schema.Member{Name: "priority", Type: schema.Enum(taskPriorities...), Access: schema.Writable, Doc: "Defaults to normal."},
	schema.Member{Name: "checklist", Type: schema.Array(schema.Nested(&schema.Record{Name: "task_item", Members: []schema.Member{
		{Name: "text", Type: schema.String(1, 256), Access: schema.Required, Example: "Brake pads"},
		{Name: "done", Type: schema.Bool(), Access: schema.Writable},
		{Name: "done_at", Type: schema.Timestamp(), Nullable: true},
		{Name: "done_by", Type: schema.Nested(actorRecord), Nullable: true},
	}}), 50), Access: schema.Writable, Doc: "A PUT replaces it. An item that was done already stays done by the same person at the same time."},
	schema.Member{Name: "photos", Type: schema.Array(schema.Nested(&schema.Record{Name: "task_photo", Members: []schema.Member{
		{Name: "id", Type: schema.ID()},
		{Name: "content_type", Type: schema.Enum("image/jpeg", "image/png", "image/webp")},
		{Name: "size", Type: schema.Integer(), Doc: "Bytes."},
		{Name: "width", Type: schema.Integer(), Doc: "Pixels."},
		{Name: "height", Type: schema.Integer()},
		{Name: "created_at", Type: schema.Timestamp()},
		{Name: "created_by", Type: schema.Nested(actorRecord)},
	}}), 10), Doc: "Read and changed by their own operations."},
	schema.Member{Name: "assignee_id", Type: schema.ID(), Access: schema.Writable, Nullable: true, Doc: "A member of the organization. It is not checked."},
	schema.Member{Name: "due_at", Type: schema.Timestamp(), Access: schema.Writable, Nullable: true},
	schema.Member{Name: "due_odometer_meters", Type: schema.Int(0, maxExact), Access: schema.Writable, Nullable: true, Doc: "Due when the vehicle's odometer reaches it."},
	schema.Member{Name: "overdue", Type: schema.Bool(), Doc: "The task is not closed, and past due_at or due_odometer_meters."},
	schema.Member{Name: "recurrence", Type: schema.Nested(&schema.Record{Name: "recurrence", Doc: "At least one is not 0.", Members: []schema.Member{
		{Name: "days", Type: schema.Int(0, 3650), Access: schema.Writable, Doc: "From the completion, in the time zone of the subaccount.", Example: 90},
		{Name: "meters", Type: schema.Int(0, 10_000_000), Access: schema.Writable, Doc: "From the odometer at the completion.", Example: 500000},
	}}), Access: schema.Writable, Nullable: true, Doc: "When the task is done, the next one is created, due after this interval."},
	schema.Member{Name: "takes_vehicle_out", Type: schema.Bool(), Access: schema.Writable, Doc: "The vehicle is out of service (`non_operational`, event `maintenance`) until the task is closed; one on a ride from its end. A task that a recurrence created does so once it is in progress."},
	schema.Member{Name: "vehicle_return", Nullable: true, Type: schema.Nested(&schema.Record{Name: "vehicle_return", Members: []schema.Member{
		{Name: "returned", Type: schema.Bool(), Doc: "The vehicle is back in service."},
		{Name: "code", Type: schema.Enum("open_tasks", "invalid_transition", "vehicle_low_battery", "no_contact"), Nullable: true, Doc: "The reason, if it is not."},
		{Name: "message", Type: schema.Text(), Nullable: true},
	}}), Doc: "The outcome for the vehicle when a task that took it out of service was closed."},
	schema.Member{Name: "ticket_number", Type: schema.Int(1, maxExact), Access: schema.Writable, Nullable: true, Doc: "A ticket of the helpdesk. It is not checked."},
	schema.Member{Name: "previous_task_id", Type: schema.ID(), Nullable: true, Doc: "The task whose recurrence created this one."},
	schema.Member{Name: "next_task_id", Type: schema.ID(), Nullable: true},
	schema.Member{Name: "created_by", Type: schema.Nested(actorRecord)},
	schema.Member{Name: "started_at", Type: schema.Timestamp(), Nullable: true},
	schema.Member{Name: "closed_at", Type: schema.Timestamp(), Nullable: true},
	schema.Member{Name: "closed_by", Type: schema.Nested(actorRecord), Nullable: true},
)

var photoRecord = &schema.Record{Name: "photo", Members: []schema.Member{
	{Name: "photo", Type: schema.Formatted("byte", maxPhotoBody), Access: schema.Required, WriteOnly: true, Example: "iVBORw0KGgo=", Doc: "Base64 of a JPEG, PNG or WebP of at most 4 MiB."},
}}

func (a *API) taskRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/tasks", ID: "listTasks", Tag: "Tasks", Summary: "List tasks",
		Needs: needs("vehicles", apikey.Read),
		Query: []rest.Param{
			{Name: "vehicle_id", Kind: rest.StringsParam},
			{Name: "kind", Kind: rest.EnumsParam, Values: workKinds},
			{Name: "state", Kind: rest.EnumsParam, Values: taskStates},
			{Name: "assignee_id", Kind: rest.StringsParam},
			{Name: "overdue", Kind: rest.BoolParam},
			{Name: "ticket_number", Kind: rest.IntParam, Min: 1, Max: maxExact},
			{Name: "external_id", Kind: rest.StringsParam},
			{Name: "subaccount_id", Kind: rest.StringsParam},
			{Name: "due_at", Kind: rest.TimeRange},
			{Name: "created_at", Kind: rest.TimeRange},
			{Name: "updated_at", Kind: rest.TimeRange},
		},
		Sort: []string{"created_at", "updated_at", "due_at"}, Export: true, Output: taskRecord, List: true, Handle: a.listTasks,
	}, {
		Method: "POST", Path: "/tasks", ID: "createTask", Tag: "Tasks", Summary: "Create a task",
		Needs: needs("vehicles", apikey.Update), Input: taskRecord, Output: taskRecord, Codes: []string{"subaccount_out_of_scope", "already_exists"}, Handle: a.createTask,
	}, {
		Method: "GET", Path: "/tasks/{id}", ID: "getTask", Tag: "Tasks", Summary: "Read a task",
		Needs: needs("vehicles", apikey.Read), Output: taskRecord, Handle: a.getTask,
	}, {
		Method: "PUT", Path: "/tasks/{id}", ID: "updateTask", Tag: "Tasks", Summary: "Change a task, start it or close it",
		Doc:   "A vehicle that the task took out of service returns when the task is closed, if no other task prevents it and a PUT might set it available; `vehicle_return` has the result.",
		Needs: needs("vehicles", apikey.Update), Input: taskRecord, Output: taskRecord, Codes: []string{"invalid_transition", "already_exists"}, Handle: a.updateTask,
	}, {
		Method: "POST", Path: "/tasks/{id}/photos", ID: "createTaskPhoto", Tag: "Tasks", Summary: "Add a photo to a task",
		Needs: needs("vehicles", apikey.Update), Input: photoRecord, MaxBody: maxPhotoBody + 1<<10, Output: taskRecord, Status: 200, Codes: []string{quota.CodeExceeded}, Handle: a.createTaskPhoto,
	}, {
		Method: "GET", Path: "/tasks/{id}/photos/{photo_id}", ID: "getTaskPhoto", Tag: "Tasks", Summary: "Read a photo of a task",
		Needs: needs("vehicles", apikey.Read), File: true, Handle: a.getTaskPhoto,
	}, {
		Method: "DELETE", Path: "/tasks/{id}/photos/{photo_id}", ID: "deleteTaskPhoto", Tag: "Tasks", Summary: "Delete a photo of a task",
		Needs: needs("vehicles", apikey.Update), Handle: a.deleteTaskPhoto,
	}}
}

func (a *API) listTasks(ctx context.Context, r *rest.Request) (rest.Response, error) {
	q := fleet.TaskQuery{
		Subaccounts: r.Subaccounts(), VehicleID: r.Strings("vehicle_id"), Kind: rest.Typed[fleet.WorkKind](r.Strings("kind")), State: rest.Typed[fleet.TaskState](r.Strings("state")),
		AssigneeID: r.Strings("assignee_id"), ExternalID: r.Strings("external_id"), DueAt: r.Range("due_at"), CreatedAt: r.Range("created_at"), UpdatedAt: r.Range("updated_at"),
		Sort: r.Sort(), Limit: r.Limit(),
	}
	if overdue, ok := r.Bool("overdue"); ok {
		q.Overdue = &overdue
	}
	if number, ok := r.Int("ticket_number"); ok {
		q.TicketNumber = &number
	}
	if r.Exporting() {
		return exported(ctx, r, func(fn func(*fleet.Record) error) error {
			return a.Fleet.EachTask(ctx, r.Key.OrganizationID, q, fn)
		}, plain, false), nil
	}
	var err error
	if q.After, err = r.After(); err != nil {
		return rest.Response{}, err
	}
	docs, after, err := a.Fleet.ListTasks(ctx, a.DB, r.Key.OrganizationID, q)
	if err != nil {
		return rest.Response{}, rest.AsCursorError(err)
	}
	return listed(ctx, r, docs, after, plain)
}

func (a *API) getTask(ctx context.Context, r *rest.Request) (rest.Response, error) {
	t, err := a.readTask(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	return ok(&t)
}

// readTask returns the task of the path, in scope.
func (a *API) readTask(ctx context.Context, r *rest.Request) (fleet.Task, error) {
	t, err := a.Fleet.Task(ctx, a.DB, r.Key.OrganizationID, r.Path("id"))
	if err != nil {
		return t, err
	}
	return t, r.Within(t.SubaccountID)
}

func (a *API) createTask(ctx context.Context, r *rest.Request) (rest.Response, error) {
	var in fleet.NewTask
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		// First the scope: a vehicle out of scope must not be revealed.
		if err := a.reaches(ctx, tx, r, fleet.NewRide{VehicleID: fleet.NullString(in.VehicleID)}); err != nil {
			return rest.Response{}, err
		}
		t, err := a.Fleet.CreateTaskTx(ctx, tx, r.Key.OrganizationID, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		return created("/tasks/", t.ID, t.SubaccountID, &t)
	})
}

func (a *API) updateTask(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, current, err := a.lockTask(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		var in fleet.TaskChange
		if err := r.Update(current, &in); err != nil {
			return rest.Response{}, err
		}
		t, err = a.Fleet.UpdateTaskTx(ctx, tx, r.Key.OrganizationID, t, in, actorOf(r))
		if err != nil {
			return rest.Response{}, err
		}
		return changed(t.SubaccountID, &t)
	})
}

// lockTask returns the task of the path, locked and in scope, and its wire format.
func (a *API) lockTask(ctx context.Context, tx *db.Tx, r *rest.Request) (t fleet.Task, current rest.Document, err error) {
	if t, err = a.Fleet.LockTaskTx(ctx, tx, r.Key.OrganizationID, r.Path("id")); err == nil {
		current, err = reached(r, t.SubaccountID, &t)
	}
	return t, current, err
}

func (a *API) createTaskPhoto(ctx context.Context, r *rest.Request) (rest.Response, error) {
	if _, err := a.readTask(ctx, r); err != nil {
		return rest.Response{}, err
	}
	var in struct {
		Photo string `json:"photo"`
	}
	if err := r.Decode(&in); err != nil {
		return rest.Response{}, err
	}
	file, err := base64.StdEncoding.DecodeString(in.Photo)
	if err != nil {
		var v problem.Validation
		v.AddCode("invalid_format", "photo", "must be base64")
		return rest.Response{}, v.Err()
	}
	files, err := a.Quotas.CheckElsewhere(ctx, a.DB, r.Key.OrganizationID, int64(len(file)), a.Fleet.PhotoBytes)
	if err != nil {
		return rest.Response{}, err
	}
	response, err := r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, _, err := a.lockTask(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		t, err = a.Fleet.AddTaskPhotoTx(ctx, tx, r.Key.OrganizationID, t, file, actorOf(r))
		if err == nil {
			err = files.DecideTx(ctx, tx)
		}
		if err != nil {
			return rest.Response{}, err
		}
		return changed(t.SubaccountID, &t)
	})
	if err == nil {
		files.Notify(ctx)
	}
	return response, err
}

func (a *API) getTaskPhoto(ctx context.Context, r *rest.Request) (rest.Response, error) {
	t, err := a.readTask(ctx, r)
	if err != nil {
		return rest.Response{}, err
	}
	photo, content, err := a.Fleet.TaskPhoto(ctx, a.DB, r.Key.OrganizationID, &t, r.Path("photo_id"))
	if err != nil {
		return rest.Response{}, err
	}
	return rest.File(photo.FileName(), photo.ContentType, photo.Size, io.NopCloser(bytes.NewReader(content))), nil
}

func (a *API) deleteTaskPhoto(ctx context.Context, r *rest.Request) (rest.Response, error) {
	return r.Write(ctx, func(tx *db.Tx) (rest.Response, error) {
		t, _, err := a.lockTask(ctx, tx, r)
		if err != nil {
			return rest.Response{}, err
		}
		_, err = a.Fleet.DeleteTaskPhotoTx(ctx, tx, r.Key.OrganizationID, t, r.Path("photo_id"), actorOf(r))
		return rest.NoContent().In(t.SubaccountID), err
	})
}
