package deskapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"

	"github.com/google/uuid"
)

// TestTimeline lists changes by a key, a member in the dashboard, and the system.
func TestTimeline(t *testing.T) {
	r := newRig(t)
	made := r.ticket("Flat tyre", "alex@example.com")
	path := "/tickets/" + made.text("id") + "/timeline"
	send(t, r.Client, "PUT", "/tickets/"+made.text("id"), jsonOf(t, fields{"status": "pending", "assignee_id": r.grace.ID, "tags": []string{"lock"}}), 200)
	change := func(ctx context.Context, u desk.Update) {
		if err := r.db.Write(ctx, func(tx *db.Tx) error {
			_, err := r.desk.UpdateTx(ctx, tx, r.ours.ID, made.text("id"), u)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	dashboard := account.NewContext(audit.WithSource(t.Context(), audit.Source{Surface: audit.Web}), account.Identity{UserID: r.grace.ID})
	change(dashboard, desk.Update{Priority: new(desk.PriorityHigh), AssigneeID: new("")})
	change(t.Context(), desk.Update{Status: new(desk.StatusOpen)})

	keys, err := r.keys.List(t.Context(), r.ours.ID, apikey.Helpdesk, apikey.Live)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	key := fields{"type": "key", "id": keys[0].ID, "name": keys[0].Name}
	grace := fields{"id": r.grace.ID, "name": "grace", "email": "grace@a.example"}
	list := r.get(path).list("data")
	want := []fields{
		{"number": 0, "actor": key, "action": "ticket.created", "changes": fields{}, "surface": "rest"},
		{"number": 1, "actor": key, "action": "ticket.updated", "surface": "rest", "changes": fields{
			"status": fields{"from": "open", "to": "pending"}, "assignee": fields{"from": nil, "to": grace}, "tags": fields{"from": []string{}, "to": []string{"lock"}},
		}},
		{"number": 2, "actor": fields{"type": "user", "id": r.grace.ID, "name": "grace"}, "action": "ticket.updated", "surface": "web", "changes": fields{
			"priority": fields{"from": "normal", "to": "high"}, "assignee": fields{"from": grace, "to": nil},
		}},
		{"number": 3, "actor": fields{"type": "system", "id": nil, "name": nil}, "action": "ticket.updated", "surface": "system", "changes": fields{
			"status": fields{"from": "pending", "to": "open"},
		}},
	}
	if len(list) != len(want) {
		t.Fatalf("got %d changes: %v", len(list), list)
	}
	for i, got := range list {
		want[i]["object"], want[i]["ticket_id"], want[i]["at"] = "ticket_change", made["id"], got["at"]
		if jsonOf(t, got) != jsonOf(t, want[i]) {
			t.Errorf("change %d is\n%s, want\n%s", i, jsonOf(t, got), jsonOf(t, want[i]))
		}
	}
	if list[0]["at"] != made["created_at"] {
		t.Errorf("created at %v, want %v", list[0]["at"], made["created_at"])
	}

	// After the member and the key have left.
	if err := r.keys.Delete(t.Context(), r.ours.ID, keys[0].ID); err != nil {
		t.Fatal(err)
	}
	r.member(r.ours, "ada@a.example")
	if err := r.accounts.RemoveMember(t.Context(), r.ours.ID, r.grace.ID); err != nil {
		t.Fatal(err)
	}
	c := r.As(r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"tickets": {apikey.Read}}}}))
	last := send(t, c, "GET", path, "", 200).list("data")
	if got, want := jsonOf(t, last[2]["actor"]), jsonOf(t, fields{"type": "user", "id": r.grace.ID, "name": nil}); got != want {
		t.Errorf("a former member is %s, want %s", got, want)
	}
	if got := jsonOf(t, last[0]["actor"]); got != jsonOf(t, key) {
		t.Errorf("a deleted key is %s", got)
	}

	refused(t, "another's", r.other().Get(path), 404, "not_found")
	refused(t, "no ticket", c.Get("/tickets/"+uuid.NewString()+"/timeline"), 404, "not_found")
	messages := r.As(r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"messages": {apikey.Read}}}}))
	refused(t, "a key for messages", messages.Get(path), 403, "permission_denied")
}

// TestTimelinePages pages and filters, and exports.
func TestTimelinePages(t *testing.T) {
	r := newRig(t)
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id")
	for _, status := range []string{"pending", "on_hold", "resolved", "open"} {
		send(t, r.Client, "PUT", path, `{"status":"`+status+`"}`, 200)
	}
	path += "/timeline"
	for query, want := range map[string]string{
		"?limit=2":                              "[0 1] [2 3] [4]",
		"?limit=2&sort=-at":                     "[4 3] [2 1] [0]",
		"?action=ticket.updated&sort=at":        "[1 2 3 4]",
		"?action=ticket.created,ticket.merged":  "[0]",
		"?at[gt]=2000-01-01T00:00:00Z&limit=10": "[0 1 2 3 4]",
		"?at[lt]=2000-01-01T00:00:00Z":          "[]",
	} {
		var pages []string
		for next := ""; ; {
			page := r.get(path + query + next)
			var numbers []any
			for _, c := range page.list("data") {
				numbers = append(numbers, c["number"])
			}
			pages = append(pages, fmt.Sprint(numbers))
			if page["has_more"] != true {
				break
			}
			next = "&cursor=" + page.text("next_cursor")
		}
		if got := strings.Join(pages, " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	refused(t, "a wrong action", r.Get(path+"?action=ticket.eaten"), 400, "invalid_parameter", "action invalid_value")
	refused(t, "a wrong order", r.Get(path+"?sort=actor"), 400, "invalid_parameter", "sort invalid_value")
	refused(t, "a wrong cursor", r.Get(path+"?cursor=x"), 400, "invalid_cursor")
	var lines []string
	for line := range strings.Lines(r.Get(path, "Accept: application/x-ndjson").Body) {
		lines = append(lines, line)
	}
	if len(lines) != 5 || slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(l, `"ticket_change"`) }) {
		t.Errorf("exported %q", lines)
	}
}
