package fleetpages

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// taskBadges are the badges of tasks.
var taskBadges = map[fleet.TaskState]web.Badge{
	fleet.TaskOpen:       {Text: "Open", Tone: web.Accent, Icon: "clock"},
	fleet.TaskInProgress: {Text: "In progress", Tone: web.Warning, Icon: "play"},
	fleet.TaskDone:       {Text: "Done", Tone: web.Good, Icon: "check"},
	fleet.TaskCancelled:  {Text: "Cancelled", Icon: "x"},
}

var overdueBadge = web.Badge{Text: "Overdue", Tone: web.Bad, Icon: "alert"}

// workKinds are the kinds of tasks with their labels.
var workKinds = []web.Option{
	{Value: string(fleet.Maintenance), Label: "Maintenance"}, {Value: string(fleet.Repair), Label: "Repair"}, {Value: string(fleet.Inspection), Label: "Inspection"},
	{Value: string(fleet.BatterySwap), Label: "Battery swap"}, {Value: string(fleet.Relocation), Label: "Relocation"}, {Value: string(fleet.Cleaning), Label: "Cleaning"},
	{Value: string(fleet.OtherTask), Label: "Other"},
}

var taskPriorities = []web.Option{
	{Value: string(fleet.LowPriority), Label: "Low"}, {Value: string(fleet.NormalPriority), Label: "Normal"},
	{Value: string(fleet.HighPriority), Label: "High"}, {Value: string(fleet.UrgentPriority), Label: "Urgent"},
}

// labelOf returns the label of an option.
func labelOf(list []web.Option, value string) string {
	at := slices.IndexFunc(list, func(o web.Option) bool { return o.Value == value })
	if at < 0 {
		return value
	}
	return list[at].Label
}

// taskTable is a table of tasks. Its template is "task-table".
type taskTable struct {
	Vehicles bool // has the column
	Rows     []taskRow
}

type taskRow struct {
	ID, Path, Title string
	State           web.Badge
	Overdue         *web.Badge
	Kind, Priority  string
	Vehicle         namedLink
	Assignee        string // empty: nobody
	Due             web.Time
	DueOdometer     string
}

// taskList is the body of the list of tasks.
type taskList struct {
	Filters filters
	Topic   string
	Count   string
	Table   taskTable
	Empty   web.Empty
	Pager   web.Pager
	New     string
}

// tasks lists tasks.
func (p *pages) tasks(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	_, choice, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	people, err := p.people(ctx, r)
	if err != nil {
		return err
	}
	f := filters{Fields: append(web.Fields{
		{Name: "state", Label: "State", Type: "select", Options: []web.Option{
			{Label: "Open and in progress"}, {Value: "open", Label: "Open"}, {Value: "in_progress", Label: "In progress"}, {Value: "done", Label: "Done"}, {Value: "cancelled", Label: "Cancelled"}, {Value: "all", Label: "All"},
		}},
		{Name: "kind", Label: "Kind", Type: "select", Options: append([]web.Option{{Label: "All"}}, workKinds...)},
		{Name: "assignee", Label: "Assignee", Type: "select", Options: append([]web.Option{{Label: "Anyone"}}, people...)},
		{Name: "overdue", Label: "Due", Type: "select", Options: []web.Option{{Label: "Any time"}, {Value: "yes", Label: "Overdue"}}},
		{Name: "vehicle", Label: "Vehicle", Type: "search", Placeholder: "B-0417"},
		{Name: "sort", Label: "Sort by", Type: "select", Options: []web.Option{{Label: "Newest first"}, {Value: "due_at", Label: "Due first"}, {Value: "-updated_at", Label: "Recently updated"}}},
	}, choice...)}
	f.parse(r)
	q := fleet.TaskQuery{AssigneeID: f.list("assignee"), Subaccount: f.list("subaccount"), Sort: f.sort(), After: after(r), Limit: perPage}
	switch state := f.get("state"); state {
	case "":
		q.State = []fleet.TaskState{fleet.TaskOpen, fleet.TaskInProgress}
	case "all":
	default:
		q.State = []fleet.TaskState{fleet.TaskState(state)}
	}
	if kind := f.get("kind"); kind != "" {
		q.Kind = []fleet.WorkKind{fleet.WorkKind(kind)}
	}
	if f.get("overdue") != "" {
		q.Overdue = new(true)
	}
	if code := f.get("vehicle"); code != "" {
		id, err := p.vehicleByCode(ctx, r, code)
		if err != nil {
			return err
		}
		if id == "" {
			f.fail("vehicle", "There is no vehicle with this code.")
		}
		q.VehicleID = []string{id}
	}
	var docs []fleet.Record
	var next *keyset.Cursor
	if f.ok() {
		if docs, next, err = p.Fleet.ListTasks(ctx, p.DB, r.OrganizationID, q); err != nil {
			return err
		}
	}
	list := taskList{
		Filters: f, Topic: p.topic(fleet.TaskKind), Count: resultCount(len(docs), q.After == nil, next, "%d task", "%d tasks"), New: p.base + "/tasks/new",
		Empty: web.Empty{Text: "No tasks match these filters.", Path: p.base + "/tasks", Label: "Open tasks"},
	}
	if f.All == "" {
		list.Empty = web.Empty{Text: "No open tasks. Create one here, or from the page of a vehicle.", Path: list.New, Label: "New task"}
	}
	if list.Table, err = p.taskTable(ctx, r, docs, true, people); err != nil {
		return err
	}
	if list.Pager, err = pager(r, next); err != nil {
		return err
	}
	return p.Render(w, r, "tasks", p.listPage(r, "/tasks", "Tasks", list))
}

// vehicleByCode returns the id of the vehicle with a code; empty if there is none.
func (p *pages) vehicleByCode(ctx context.Context, r *web.Request, code string) (string, error) {
	docs, _, err := p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, fleet.VehicleQuery{Code: []string{code}})
	if problem.Of(err) == problem.Invalid { // no vehicle has such a code
		return "", nil
	}
	if len(docs) == 0 || err != nil {
		return "", err
	}
	return docs[0].ID, nil
}

// people are the members of the organization as options.
func (p *pages) people(ctx context.Context, r *web.Request) ([]web.Option, error) {
	members, err := p.Members(ctx, r.OrganizationID)
	return options(members, "", func(u account.User) web.Option {
		if u.Name == "" {
			return web.Option{Value: u.ID, Label: u.Email}
		}
		return web.Option{Value: u.ID, Label: u.Name}
	}), err
}

// taskTable returns the table of tasks.
func (p *pages) taskTable(ctx context.Context, r *web.Request, docs []fleet.Record, vehicles bool, people []web.Option) (taskTable, error) {
	table := taskTable{Vehicles: vehicles}
	tasks, err := decode[fleet.Task](docs)
	if err != nil {
		return table, err
	}
	var ids []string
	for i := range tasks {
		if vehicles {
			ids = append(ids, tasks[i].VehicleID)
		}
	}
	codes, err := p.codesOf(ctx, r, ids)
	if err != nil {
		return table, err
	}
	for i := range tasks {
		t := &tasks[i]
		row := taskRow{
			ID: t.ID, Path: p.base + "/tasks/" + t.ID, Title: t.Title, State: web.BadgeFor(taskBadges, t.State), Kind: labelOf(workKinds, string(t.Kind)),
			Vehicle: namedLink{Name: "Deleted vehicle"}, Due: r.Time(t.DueAt.Std()),
		}
		if t.Priority != fleet.NormalPriority {
			row.Priority = labelOf(taskPriorities, string(t.Priority))
		}
		if t.Overdue {
			row.Overdue = &overdueBadge
		}
		if t.AssigneeID != "" {
			row.Assignee = personName(people, t.AssigneeID)
		}
		row.DueOdometer = dueOdometer(t)
		if code := codes[t.VehicleID]; code != "" {
			row.Vehicle = namedLink{p.base + "/vehicles/" + t.VehicleID, code}
		}
		table.Rows = append(table.Rows, row)
	}
	return table, nil
}

// dueOdometer describes the odometer at which a task is due, after its due time; empty for none.
func dueOdometer(t *fleet.Task) string {
	switch {
	case t.DueOdometerMeters == nil:
		return ""
	case t.DueAt.Std().IsZero():
		return "at " + distance(*t.DueOdometerMeters)
	}
	return "or at " + distance(*t.DueOdometerMeters)
}

// personName returns the name of a member.
func personName(people []web.Option, id fleet.NullString) string {
	if name := labelOf(people, string(id)); name != string(id) {
		return name
	}
	return "Former member"
}

// taskFields are the editable fields of a task.
func taskFields(r *web.Request, t *fleet.Task, people []web.Option) web.Fields {
	var items []string
	for _, item := range t.Checklist {
		items = append(items, item.Text)
	}
	days, meters := "", ""
	if t.Recurrence != nil {
		if t.Recurrence.Days > 0 {
			days = strconv.FormatInt(t.Recurrence.Days, 10)
		}
		if t.Recurrence.Meters > 0 {
			meters = strconv.FormatInt(t.Recurrence.Meters, 10)
		}
	}
	assignees := append([]web.Option{{Label: "Nobody"}}, people...)
	if id := string(t.AssigneeID); !isMember(people, id) {
		assignees = append(assignees, web.Option{Value: id, Label: "Former member"})
	}
	zone := r.Now.Location()
	return web.Fields{
		{Name: "title", Label: "Title", Type: "text", Most: 256, Value: t.Title, Placeholder: "Replace the brake"},
		{Name: "kind", Label: "Kind", Type: "select", Value: string(t.Kind), Options: workKinds},
		{Name: "priority", Label: "Priority", Type: "select", Value: string(t.Priority), Options: taskPriorities},
		{Name: "assignee_id", Label: "Assignee", Type: "select", Optional: true, Value: string(t.AssigneeID), Options: assignees},
		{Name: "takes_vehicle_out", Label: "Take the vehicle out of service until the task is closed", Type: "checkbox", Optional: true, Value: checked(t.TakesVehicleOut)},
		{Name: "description", Label: "Description", Type: "textarea", Rows: 3, Optional: true, Value: string(t.Description)},
		{Name: "checklist", Label: "Checklist", Type: "textarea", Rows: 4, Optional: true, Value: strings.Join(items, "\n"), Help: "One item a line."},
		{Name: "due_at", Label: "Due", Type: "datetime-local", Optional: true, Value: localTime(t.DueAt, zone)},
		{Name: "due_odometer_meters", Label: "Due at odometer (m)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(t.DueOdometerMeters)},
		{Name: "recurrence.days", Label: "Repeat after (days)", Type: "text", Mode: "numeric", Optional: true, Value: days},
		{Name: "recurrence.meters", Label: "Repeat after (m)", Type: "text", Mode: "numeric", Optional: true, Value: meters},
	}
}

// taskGroups lays out the fields of [taskFields], after others.
func taskGroups(fields web.Fields, before int) []group {
	return layout(fields, part{"", "", before + 1, false}, part{"", "", 3, true}, part{"", "", 3, false}, part{"Due date and repetition", "", 4, true}, part{"", "", 0, false})
}
