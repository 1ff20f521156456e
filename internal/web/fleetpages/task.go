package fleetpages

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// handleTasks registers the pages of tasks.
func (p *pages) handleTasks() {
	p.handle("/tasks", route{get: p.tasks})
	p.handle("/tasks/new", route{get: p.newTask, post: p.newTask, anyone: true})
	p.handle("/tasks/{id}", route{get: p.task})
	p.handle("/tasks/{id}/edit", route{get: p.editTask, post: p.editTask, anyone: true})
	p.handle("/tasks/{id}/state", route{post: p.setTaskState, anyone: true})
	p.handle("/tasks/{id}/assignee", route{post: p.assignTask, anyone: true})
	p.handle("/tasks/{id}/checklist", route{post: p.tickTask, anyone: true})
	p.handle("/tasks/{id}/photos", route{post: p.addTaskPhoto, anyone: true})
	p.handle("/tasks/{id}/photos/{photo}", route{get: p.taskPhoto})
	p.handle("/tasks/{id}/photos/{photo}/delete", route{post: p.deleteTaskPhoto, anyone: true})
}

// taskPage is the body of the page of a task.
type taskPage struct {
	*fleet.Task
	Topic                 string
	Path                  string
	Chip                  web.Badge
	Late                  *web.Badge
	KindLabel, Importance string
	Vehicle               namedLink
	VehicleState          *web.Badge
	Assignee              string
	Mine                  bool
	Due                   web.Time
	DueOdometer           string
	Repeats               string
	Ticket                string // link
	Next, Previous        string // links
	Created, Started      web.Time
	Closed                web.Time
	By                    string
	Service               string // what the task does, or did, to the service of the vehicle
	Steps                 []taskStep
	People                []web.Option
	Pictures              []taskPicture
	Items                 []taskItem
	Entries               []auditRow
}

// taskStep is a change of state that the page offers.
type taskStep struct {
	State       fleet.TaskState
	Label, Icon string
	Main        bool
}

type taskItem struct {
	fleet.TaskItem
	At web.Time
	By string
}

type taskPicture struct {
	Path string
	At   web.Time
	By   string
}

var taskSteps = map[fleet.TaskState][]taskStep{
	fleet.TaskOpen:       {{fleet.TaskInProgress, "Start", "play", true}, {fleet.TaskDone, "Mark as done", "check", false}, {fleet.TaskCancelled, "Cancel task", "x", false}},
	fleet.TaskInProgress: {{fleet.TaskDone, "Mark as done", "check", true}, {fleet.TaskOpen, "Stop work", "pause", false}, {fleet.TaskCancelled, "Cancel task", "x", false}},
}

// task shows a task.
func (p *pages) task(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	t, err := p.Fleet.Task(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	people, err := p.people(ctx, r)
	if err != nil {
		return err
	}
	b := taskPage{
		Task: &t, Topic: p.topic(fleet.TaskKind, t.ID), Path: p.base + "/tasks/" + t.ID, Chip: web.BadgeFor(taskBadges, t.State), People: people, Steps: taskSteps[t.State],
		KindLabel: labelOf(workKinds, string(t.Kind)), Importance: labelOf(taskPriorities, string(t.Priority)), Mine: string(t.AssigneeID) == r.UserID,
		Due: r.Time(t.DueAt.Std()), Created: r.Time(t.CreatedAt.Std()), Started: r.Time(t.StartedAt.Std()), Closed: r.Time(t.ClosedAt.Std()), By: actor(r, t.CreatedBy),
	}
	if t.Overdue {
		b.Late = &overdueBadge
	}
	if t.AssigneeID != "" {
		b.Assignee = personName(people, t.AssigneeID)
	}
	b.DueOdometer = dueOdometer(&t)
	b.Repeats = repetition(t.Recurrence)
	if t.TicketNumber != nil {
		b.Ticket = "/tickets/" + strconv.FormatInt(*t.TicketNumber, 10)
	}
	if t.NextTaskID != "" {
		b.Next = p.base + "/tasks/" + string(t.NextTaskID)
	}
	if t.PreviousTaskID != "" {
		b.Previous = p.base + "/tasks/" + string(t.PreviousTaskID)
	}
	switch back := t.VehicleReturn; {
	case t.State.Open():
		b.Service = "Takes the vehicle out of service"
	case back == nil:
		b.Service = "Was set to take the vehicle out of service"
	case back.Returned:
		b.Service = "The vehicle returned to service when the task was closed"
	default:
		b.Service = "The vehicle stayed out of service. " + string(back.Message)
	}
	for _, item := range t.Checklist {
		one := taskItem{TaskItem: item, At: r.Time(item.DoneAt.Std())}
		if item.DoneBy != nil {
			one.By = p.name(r, people, *item.DoneBy)
		}
		b.Items = append(b.Items, one)
	}
	for _, photo := range t.Photos {
		b.Pictures = append(b.Pictures, taskPicture{b.Path + "/photos/" + photo.ID, r.Time(photo.CreatedAt.Std()), p.name(r, people, photo.CreatedBy)})
	}
	if err := p.taskVehicle(ctx, r, &b); err != nil {
		return err
	}
	if b.Entries, err = p.audit(ctx, r, t.ID); err != nil {
		return err
	}
	if err := p.markAlertsRead(r, "/fleet/tasks/"+t.ID); err != nil {
		return err
	}
	return p.Render(w, r, "task", p.page(r, "/tasks", t.Title, b))
}

// name is the name of an actor.
func (p *pages) name(r *web.Request, people []web.Option, by fleet.Actor) string {
	if name := labelOf(people, string(by.ID)); by.Type == "user" && string(by.ID) != r.UserID && name != string(by.ID) {
		return name
	}
	return actor(r, by)
}

// taskVehicle sets the vehicle of a task.
func (p *pages) taskVehicle(ctx context.Context, r *web.Request, b *taskPage) error {
	v, err := p.Fleet.Vehicle(ctx, p.DB, r.OrganizationID, b.VehicleID)
	if problem.Of(err) == problem.NotFound {
		b.Vehicle.Name, _, err = p.Fleet.DeletedVehicle(ctx, p.DB, r.OrganizationID, b.VehicleID)
		return err
	}
	if err != nil {
		return err
	}
	b.Vehicle = namedLink{p.base + "/vehicles/" + v.ID, v.Code}
	b.VehicleState = new(web.BadgeFor(stateBadges, v.State))
	return nil
}

// repetition describes a recurrence.
func repetition(c *fleet.Recurrence) string {
	switch {
	case c == nil:
		return ""
	case c.Meters == 0:
		return "every " + web.Count(c.Days, "%d day", "%d days")
	case c.Days == 0:
		return "every " + distance(c.Meters)
	}
	return "every " + web.Count(c.Days, "%d day", "%d days") + " or " + distance(c.Meters)
}

// newTask creates a task: of any vehicle by its code, or of the vehicle in the address. From a
// ticket, the task refers to it.
func (p *pages) newTask(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	id := cmp.Or(r.PathValue("id"), r.URL.Query().Get("vehicle"))
	back := p.base + "/tasks"
	t := fleet.Task{Kind: fleet.Maintenance, Priority: fleet.NormalPriority}
	var code string
	if id != "" {
		v, err := p.Fleet.Vehicle(ctx, p.DB, r.OrganizationID, id)
		if err != nil {
			return err
		}
		code, back = v.Code, p.base+"/vehicles/"+v.ID
	}
	from, err := p.origin(r, back)
	if err != nil {
		return err
	}
	if from.ticket != nil {
		t.Kind, t.TakesVehicleOut = fleet.Repair, true // no words of the customer, who may be erased
	}
	people, err := p.people(ctx, r)
	if err != nil {
		return err
	}
	fields := append(web.Fields{{Name: "vehicle_id", Label: "Vehicle", Type: "text", Most: 32, Value: code, Placeholder: "B-0417", Help: "The code on the vehicle."}}, taskFields(r, &t, people)...)
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return nil
		}
		input := &formInput{Values: values}
		n := fleet.NewTask{
			Title: input.text("title"), Kind: fleet.WorkKind(input.text("kind")), Priority: fleet.TaskPriority(input.text("priority")), Description: fleet.NullString(input.text("description")),
			AssigneeID: fleet.NullString(input.text("assignee_id")), TakesVehicleOut: input.on("takes_vehicle_out"), DueAt: input.moment("due_at", r.Now.Location()),
			DueOdometerMeters: input.optional("due_odometer_meters"), Recurrence: input.recurrence(),
		}
		for _, text := range web.Lines(input.Get("checklist")) {
			n.Checklist = append(n.Checklist, fleet.TaskItem{Text: text})
		}
		if from.ticket != nil {
			n.TicketNumber = &from.ticket.Number
		}
		code := input.text("vehicle_id")
		if n.VehicleID, err = p.vehicleByCode(ctx, r, code); err != nil {
			return err
		}
		if n.VehicleID == "" && code != "" {
			input.v.AddCode("not_found", "vehicle_id", "must be the code of a vehicle")
		}
		if !isMember(people, string(n.AssigneeID)) {
			input.v.AddCode("invalid_reference", "assignee_id", "must be a member of %s", r.Organization.Name)
		}
		var made fleet.Task
		saved, err := p.change(r, fields, input, func(ctx context.Context, tx *db.Tx) (err error) {
			made, err = p.Fleet.CreateTaskTx(ctx, tx, r.OrganizationID, n, by(r))
			return err
		})
		if err != nil {
			return err
		}
		if saved {
			if from.ticket == nil {
				from.path = p.base + "/tasks/" + made.ID
			}
			return p.finish(w, r, from, "Task created.", "Created task "+made.Title+" for vehicle "+input.text("vehicle_id")+".")
		}
	}
	return p.showForm(w, r, p.frame(r, from, "/tasks", "New task"), fields, form{Groups: taskGroups(fields, 1), Label: "Create task", Cancel: from.path})
}

// recurrence parses the fields of a recurrence, nil if both are empty.
func (t *formInput) recurrence() *fleet.Recurrence {
	days, meters := t.integer("recurrence.days"), t.integer("recurrence.meters")
	if days == 0 && meters == 0 {
		return nil
	}
	return &fleet.Recurrence{Days: days, Meters: meters}
}

// editTask updates a task's fields.
func (p *pages) editTask(w http.ResponseWriter, r *web.Request) error {
	t, err := p.Fleet.Task(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	people, err := p.people(r.Context(), r)
	if err != nil {
		return err
	}
	back := p.base + "/tasks/" + t.ID
	fields, input := taskFields(r, &t, people), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if input.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		zone := r.Now.Location()
		c := fleet.TaskChange{
			Title: optional.Of(input.text("title")), Kind: optional.Of(fleet.WorkKind(input.text("kind"))), Priority: optional.Of(fleet.TaskPriority(input.text("priority"))),
			Description: optional.Of(fleet.NullString(input.text("description"))), AssigneeID: optional.Of(fleet.NullString(input.text("assignee_id"))), TakesVehicleOut: optional.Of(input.on("takes_vehicle_out")),
			DueOdometerMeters: orNull(input.optional("due_odometer_meters")), Recurrence: orNull(input.recurrence()),
		}
		due := input.moment("due_at", zone)
		saved, err := p.change(r, fields, input, func(ctx context.Context, tx *db.Tx) error {
			now, err := p.Fleet.LockTaskTx(ctx, tx, r.OrganizationID, t.ID)
			if err != nil {
				return err
			}
			if id := string(c.AssigneeID.Value); id != string(now.AssigneeID) && !isMember(people, id) {
				input.v.AddCode("invalid_reference", "assignee_id", "must be a member of %s", r.Organization.Name)
				return input.v.Err()
			}
			c.DueAt = optional.Of(due)
			if input.Get("due_at") == localTime(now.DueAt, zone) {
				c.DueAt = optional.Of(now.DueAt) // with its seconds
			}
			c.Checklist = optional.Of(editedChecklist(now.Checklist, web.Lines(input.Get("checklist"))))
			after, err := p.Fleet.UpdateTaskTx(ctx, tx, r.OrganizationID, now, c, by(r))
			if err != nil {
				return err
			}
			return input.checkStored(taskFields(r, &now, nil), taskFields(r, &after, nil))
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Task saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/tasks", "Edit task", nil), fields, form{Groups: taskGroups(fields, 0), Was: input.openedWith(fields), Label: "Save", Cancel: back})
}

// editedChecklist returns items with texts. Of equal texts, as many are done as were before, and
// the first ones that match.
func editedChecklist(before []fleet.TaskItem, texts []string) []fleet.TaskItem {
	rest := slices.Clone(before)
	var items []fleet.TaskItem
	for _, text := range texts {
		item := fleet.TaskItem{Text: text}
		if i := slices.IndexFunc(rest, func(was fleet.TaskItem) bool { return strings.TrimSpace(was.Text) == text }); i >= 0 {
			item = rest[i]
			rest = slices.Delete(rest, i, i+1)
		}
		items = append(items, item)
	}
	return items
}

// updateTask updates a task by a form of its page.
func (p *pages) updateTask(r *web.Request, change func(t *fleet.Task) (fleet.TaskChange, error)) (updated fleet.Task, err error) {
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		t, err := p.Fleet.LockTaskTx(ctx, tx, r.OrganizationID, r.PathValue("id"))
		if err != nil {
			return err
		}
		c, err := change(&t)
		if err != nil {
			return err
		}
		updated, err = p.Fleet.UpdateTaskTx(ctx, tx, r.OrganizationID, t, c, by(r))
		return err
	})
	return updated, err
}

// setTaskState starts or closes a task.
func (p *pages) setTaskState(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	t, err := p.updateTask(r, func(t *fleet.Task) (fleet.TaskChange, error) {
		return fleet.TaskChange{State: optional.Of(fleet.TaskState(values.Get("state")))}, nil
	})
	if err != nil {
		return err
	}
	n := web.Notice{Text: map[fleet.TaskState]string{
		fleet.TaskOpen: "Work stopped.", fleet.TaskInProgress: "Task started.", fleet.TaskDone: "Task done.", fleet.TaskCancelled: "Task cancelled.",
	}[t.State]}
	if back := t.VehicleReturn; back != nil && !t.State.Open() {
		if back.Returned {
			n.Text += " The vehicle is back in service."
		} else {
			n = web.Notice{Text: n.Text + " The vehicle stays out of service. " + string(back.Message), Bad: true}
		}
	}
	return p.Redirect(w, p.base+"/tasks/"+t.ID, n)
}

// isMember reports whether a task can be assigned to a person, or to nobody.
func isMember(people []web.Option, id string) bool {
	return id == "" || slices.ContainsFunc(people, func(o web.Option) bool { return o.Value == id })
}

// assignTask sets the assignee of a task.
func (p *pages) assignTask(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	people, err := p.people(r.Context(), r)
	if err != nil {
		return err
	}
	id := values.Get("assignee")
	if values.Has("me") {
		id = r.UserID
	}
	if !isMember(people, id) {
		return problem.New(problem.Invalid, "Must be a member of %s.", r.Organization.Name)
	}
	t, err := p.updateTask(r, func(*fleet.Task) (fleet.TaskChange, error) {
		return fleet.TaskChange{AssigneeID: optional.Of(fleet.NullString(id))}, nil
	})
	if err != nil {
		return err
	}
	n := web.Notice{Text: "Assignee removed."}
	if id != "" {
		n.Text = "Task assigned to " + personName(people, t.AssigneeID) + "."
	}
	return p.Redirect(w, p.base+"/tasks/"+t.ID, n)
}

// tickTask applies the items that differ from those on the page, so that two members can work on
// one list.
func (p *pages) tickTask(w http.ResponseWriter, r *web.Request) error {
	values, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	t, err := p.updateTask(r, func(t *fleet.Task) (fleet.TaskChange, error) {
		var texts []string
		items := slices.Clone(t.Checklist)
		for i := range items {
			texts = append(texts, items[i].Text)
			at := strconv.Itoa(i)
			if done := slices.Contains(values["done"], at); done != slices.Contains(values["was"], at) {
				items[i].Done = done
			}
		}
		if !slices.Equal(texts, values["text"]) {
			return fleet.TaskChange{}, problem.New(problem.Conflict, "The checklist has changed in the meantime. Open the task again.")
		}
		return fleet.TaskChange{Checklist: optional.Of(items)}, nil
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, p.base+"/tasks/"+t.ID, web.Notice{Text: "Checklist saved."})
}

// addTaskPhoto adds photos to a task.
func (p *pages) addTaskPhoto(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, 10*fleet.MaxPhotoFile)
	if !ok {
		return nil
	}
	path := p.base + "/tasks/" + r.PathValue("id")
	switch {
	case form.TooLarge:
		return p.Redirect(w, path, web.Notice{Text: "The photos are too large.", Bad: true})
	case len(form.Files) == 0:
		return p.Redirect(w, path, web.Notice{Text: "No photo was chosen.", Bad: true})
	}
	var size int64
	for _, f := range form.Files {
		size += int64(len(f.Data))
	}
	files, err := p.Quotas.CheckElsewhere(r.Context(), p.DB, r.OrganizationID, size, p.Fleet.PhotoBytes)
	if err != nil {
		return p.refusePhotos(w, path, err)
	}
	once := formInput{Values: form.Values}
	for _, f := range form.Files {
		once.Add("file", fmt.Sprintf("%x", sha256.Sum256(f.Data)))
	}
	err = p.write(r, func(ctx context.Context, tx *db.Tx) error {
		if err := p.once(ctx, tx, r, &once); err != nil {
			return err
		}
		for _, f := range form.Files {
			t, err := p.Fleet.LockTaskTx(ctx, tx, r.OrganizationID, r.PathValue("id"))
			if err != nil {
				return err
			}
			if _, err := p.Fleet.AddTaskPhotoTx(ctx, tx, r.OrganizationID, t, f.Data, by(r)); err != nil {
				return err
			}
		}
		return files.DecideTx(ctx, tx)
	})
	if err != nil {
		return p.refusePhotos(w, path, err)
	}
	files.Notify(r.Context())
	return p.Redirect(w, path, web.Notice{Text: web.Count(int64(len(form.Files)), "%d photo added.", "%d photos added.")})
}

// refusePhotos shows at the task why photos were not added, unless err is no refusal of them.
func (p *pages) refusePhotos(w http.ResponseWriter, path string, err error) error {
	e, ok := errors.AsType[*problem.Error](err)
	switch {
	case ok && len(e.Issues) > 0:
		return p.Redirect(w, path, web.Notice{Text: "The photo " + e.Issues[0].Message + ".", Bad: true})
	case ok && e.Code == problem.CodeSavedBefore:
		return p.Redirect(w, path, web.Notice{Text: "The photos were added before."})
	case ok && e.Code == quota.CodeExceeded:
		return p.Redirect(w, path, web.Notice{Text: "No photo was added: " + e.Message + ".", Bad: true})
	default:
		return err
	}
}

// taskPhoto shows a photo. Its type is that of its content, and a browser runs nothing in it.
func (p *pages) taskPhoto(w http.ResponseWriter, r *web.Request) error {
	t, err := p.Fleet.Task(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	photo, content, err := p.Fleet.TaskPhoto(r.Context(), p.DB, r.OrganizationID, &t, r.PathValue("photo"))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", photo.ContentType)
	h.Set("Content-Length", strconv.FormatInt(photo.Size, 10))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	_, _ = io.Copy(w, bytes.NewReader(content))
	return nil
}

// deleteTaskPhoto deletes a photo.
func (p *pages) deleteTaskPhoto(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	err := p.write(r, func(ctx context.Context, tx *db.Tx) error {
		t, err := p.Fleet.LockTaskTx(ctx, tx, r.OrganizationID, r.PathValue("id"))
		if err == nil {
			_, err = p.Fleet.DeleteTaskPhotoTx(ctx, tx, r.OrganizationID, t, r.PathValue("photo"), by(r))
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, p.base+"/tasks/"+r.PathValue("id"), web.Notice{Text: "Photo deleted."})
}
