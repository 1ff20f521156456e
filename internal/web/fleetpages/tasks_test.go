package fleetpages_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// A task is created on the page of its vehicle, worked on by a member, and closed.
func TestTaskPages(t *testing.T) {
	y := newYard(t)
	y.agent.Page("/fleet/tasks").Want("No open tasks", "New task")
	l := furnish(y)
	v := l.vehicle()
	d := y.agent.Page("/fleet/vehicles/" + v.ID)
	if got := links(d, "/fleet/tasks/new?vehicle="+v.ID); len(got) != 1 {
		t.Fatalf("the vehicle links to %q", got)
	}
	add := "/fleet/tasks/new?vehicle=" + v.ID
	if got := webtest.Attr(y.agent.Page(add).Field("vehicle_id"), "value"); got != v.Code {
		t.Errorf("the form has vehicle %q", got)
	}
	y.agent.WantRefused(y.agent.Post(add, url.Values{"vehicle_id": {v.Code}, "kind": {"repair"}, "priority": {"high"}}), http.StatusUnprocessableEntity)
	y.agent.WantRefused(y.agent.Post(add, url.Values{"vehicle_id": {"none"}, "title": {"x"}, "kind": {"repair"}, "priority": {"high"}}), http.StatusUnprocessableEntity).Want("Vehicle must be the code of a vehicle.")
	made := y.agent.Post(add, url.Values{
		"vehicle_id": {strings.ToLower(v.Code)}, "title": {"Brake " + hostile}, "kind": {"repair"}, "priority": {"high"}, "takes_vehicle_out": {"on"}, "checklist": {"Pads\n\nCable\n"},
		"due_at": {"2031-01-02T03:04"}, "recurrence.days": {"90"},
	})
	path := made.Header().Get("Location")
	d, _ = y.agent.Follow(made)
	d.Want("Task created.", "Brake "+hostile, "Repair", "High", "Pads", "Cable", "every 90 days", "Out of service", "Takes the vehicle out of service")
	y.agent.Page("/fleet/tasks").Want("1 task.", v.Code, "High priority", "nobody")
	y.agent.Page("/fleet/vehicles/"+v.ID).Want("Brake "+hostile, "All tasks of this vehicle")
	y.agent.Page("/fleet/map").Want("Open task")

	d, _ = y.agent.Follow(y.agent.Post(path+"/checklist", url.Values{"text": {"Pads", "Cable"}, "done": {"1"}}))
	d.Want("Checklist saved.", "you, ")
	y.agent.WantRefused(y.agent.Post(path+"/checklist", url.Values{"text": {"Pads"}, "done": {"0"}}), http.StatusConflict)
	d, _ = y.agent.Follow(y.agent.Post(path+"/assignee", url.Values{"assignee": {y.Agent.ID}}))
	d.Want("Task assigned to")
	y.agent.WantRefused(y.agent.Post(path+"/assignee", url.Values{"assignee": {"somebody"}}), http.StatusUnprocessableEntity)
	y.agent.Page("/fleet/tasks?assignee=" + y.Agent.ID).Want("1 task.")
	y.agent.Page("/fleet/tasks?overdue=yes").Want("No tasks match")
	y.agent.Page("/fleet/tasks?vehicle=none").Want("There is no vehicle with this code.")
	d, _ = y.agent.Follow(y.agent.Post(path+"/edit", url.Values{"title": {"Front brake"}, "kind": {"repair"}, "priority": {"normal"}, "takes_vehicle_out": {"on"}, "checklist": {"Cable\nLever"}}))
	d.Want("Task saved.", "Front brake", "Lever", "you, ")

	d, _ = y.agent.Follow(y.agent.Post(path+"/state", url.Values{"state": {"in_progress"}}))
	d.Want("Task started.", "In progress")
	d, _ = y.agent.Follow(y.agent.Post(path+"/state", url.Values{"state": {"done"}}))
	d.Want("Task done. The vehicle is back in service.", "Available", "The vehicle returned to service when the task was closed")
	y.agent.WantRefused(y.agent.Post(path+"/state", url.Values{"state": {"open"}}), http.StatusUnprocessableEntity)
	y.agent.Page("/fleet/tasks?state=done").Want("Front brake")
	y.agent.WantRefused(y.agent.Get(strings.Replace(path, "/fleet/", "/sandbox/fleet/", 1)), http.StatusNotFound)
}

// Items with equal texts are done one by one: an edit of the task does none of them.
func TestEqualTaskItems(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	v := l.vehicle()
	var task fleet.Task
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		task, err = l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: v.ID, Title: "Check", Checklist: []fleet.TaskItem{{Text: "Bolt"}, {Text: "Bolt", Done: true}, {Text: "Bolt"}, {Text: "Pads"}}}, fleet.Actor{Type: "system"})
		return err
	})
	for texts, want := range map[string][]bool{
		"Bolt\nBolt\nBolt\nPads":             {false, true, false, false},
		"Bolt\nBolt\nBolt\nBolt":             {false, true, false, false},
		"Cable\nBolt\nBolt\nPads\nBolt":      {false, false, true, false, false},
		"Pads\nBolt\nBolt\nBolt\nBolt\nBolt": {false, false, true, false, false, false},
	} {
		y.agent.Follow(y.agent.Post("/fleet/tasks/"+task.ID+"/edit", url.Values{"title": {"Check"}, "kind": {"repair"}, "priority": {"normal"}, "checklist": {texts}}))
		stored, err := l.Task(t.Context(), l.db, l.organization.ID, task.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []bool
		for _, item := range stored.Checklist {
			got = append(got, item.Done)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", texts, got, want)
		}
	}
}

// A vehicle that cannot return stays, and the notice says why.
func TestTaskNotice(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	v := l.vehicle()
	var task fleet.Task
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		for range 2 {
			task, err = l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: v.ID, Title: "Check", TakesVehicleOut: true}, fleet.Actor{Type: "system"})
		}
		return err
	})
	d, _ := y.agent.Follow(y.agent.Post("/fleet/tasks/"+task.ID+"/state", url.Values{"state": {"done"}}))
	d.Want("The vehicle stayed out of service. Another task", "The vehicle stays out of service. Another task takes the vehicle out of service.")
}

// checkTask creates a task and returns it with a photo.
func (l *lot) checkTask(t *testing.T) (task fleet.Task, photo []byte) {
	t.Helper()
	v := l.vehicle()
	l.write(func(ctx context.Context, tx *db.Tx) (err error) {
		task, err = l.CreateTaskTx(ctx, tx, l.organization.ID, fleet.NewTask{VehicleID: v.ID, Title: "Check"}, fleet.Actor{Type: "system"})
		return err
	})
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	return task, file.Bytes()
}

// TestPhotoBeyondStorage: a photo without room is refused with the reason, and admins are notified of a
// share that a photo reaches.
func TestPhotoBeyondStorage(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	task, photo := l.checkTask(t)
	limit := int64(2*len(photo)) + 1
	o := y.Organization
	if err := y.quotas.SetLimits(t.Context(), o.ID, audit.Target{Type: "organization", ID: o.ID, Name: o.Name}, map[quota.Quota]*int64{quota.Storage: &limit}); err != nil {
		t.Fatal(err)
	}
	path := "/fleet/tasks/" + task.ID
	notices := func() (n int) {
		if err := y.DB.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind = 'quota.notice'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for want := range 2 { // half of it and nearly all
		d, _ := y.agent.Follow(y.agent.PostFiles(path+"/photos", nil, web.File{Name: "brake.png", ContentType: "image/png", Data: photo}))
		d.Want("1 photo added.")
		if got := notices(); got != want {
			t.Errorf("%d photos: %d notices", want+1, got)
		}
	}
	d, _ := y.agent.Follow(y.agent.PostFiles(path+"/photos", nil, web.File{Name: "brake.png", ContentType: "image/png", Data: photo}))
	d.Want("No photo was added: the organization is limited to")
	if stored, err := l.Task(t.Context(), l.db, o.ID, task.ID); err != nil || len(stored.Photos) != 2 {
		t.Errorf("%d photos, %v; want 2", len(stored.Photos), err)
	}
}

func TestTaskPhotos(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	task, photo := l.checkTask(t)
	path := "/fleet/tasks/" + task.ID
	add := func(content []byte) string {
		_, notice := y.agent.Follow(y.agent.PostFiles(path+"/photos", nil, web.File{Name: "brake.html", ContentType: "text/html", Data: content}))
		return notice
	}
	if got := add([]byte("<script>")); !strings.Contains(got, "The photo must be a JPEG, PNG or WebP.") {
		t.Errorf("a script as a photo: %s", got)
	}
	if got := add(photo); !strings.Contains(got, "1 photo added.") {
		t.Errorf("a photo: %s", got)
	}
	stored, err := l.Task(t.Context(), l.db, l.organization.ID, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	at := path + "/photos/" + stored.Photos[0].ID
	if a := y.agent.Get(at); a.Header().Get("Content-Type") != "image/png" || a.Header().Get("X-Content-Type-Options") != "nosniff" || !bytes.Equal(a.Body.Bytes(), photo) {
		t.Errorf("shown with %v", a.Header())
	}
	// Sent again without an answer, it is added once.
	form := url.Values{"was.form": {"opened"}}
	for _, want := range []string{"1 photo added.", "The photos were added before."} {
		d, _ := y.agent.Follow(y.agent.PostFiles(path+"/photos", form, web.File{Name: "again.png", ContentType: "image/png", Data: photo}))
		d.Want(want)
	}
	if stored, err = l.Task(t.Context(), l.db, l.organization.ID, task.ID); err != nil || len(stored.Photos) != 2 {
		t.Errorf("%d photos, %v; want 2", len(stored.Photos), err)
	}
	d, _ := y.agent.Follow(y.agent.Post(at+"/delete", nil))
	d.Want("Photo deleted.")
	y.agent.WantRefused(y.agent.Get(at), http.StatusNotFound)
}
