package deskapi_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// walk reads a list page by page and returns the ids; it calls between after each page.
func (r *rig) walk(path string, limit int, between func()) []string {
	r.Helper()
	ids := []string{}
	cursor := ""
	for {
		a := r.Get(path + sep(path) + fmt.Sprintf("limit=%d", limit) + cursor)
		var page struct {
			Data []struct{ ID string }
			More bool    `json:"has_more"`
			Next *string `json:"next_cursor"`
		}
		a.JSON(&page)
		if a.Status != 200 || page.More != (page.Next != nil) || len(page.Data) > limit || page.More != strings.Contains(a.Header.Get("Link"), `rel="next"`) {
			r.Fatalf("%s: %d %.500s", path, a.Status, a.Body)
		}
		for _, record := range page.Data {
			ids = append(ids, record.ID)
		}
		if !page.More {
			return ids
		}
		cursor = "&cursor=" + *page.Next
		between()
	}
}

// index runs the search index.
func (r *rig) index() {
	r.Helper()
	for {
		n, err := r.desk.Index(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// TestWalk reads lists while tickets are added and deleted: tickets present throughout appear
// exactly once.
func TestWalk(t *testing.T) {
	r := newRig(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	live := map[string]bool{}
	add := func() {
		live[r.post("/tickets", fields{
			"subject": "S", "customer": fields{"email": "alex@example.com"}, "priority": []string{"low", "normal", "high", "urgent"}[random.IntN(4)],
			"tags": []string{"walk"},
		}).text("id")] = true
	}
	remove := func() {
		ids := make([]string, 0, len(live))
		for id := range live {
			ids = append(ids, id)
		}
		if len(ids) == 0 {
			return
		}
		id := ids[random.IntN(len(ids))]
		send(t, r.Client, "DELETE", "/tickets/"+id, "", 204)
		delete(live, id)
	}
	for range 25 {
		add()
	}
	for _, path := range []string{
		"/tickets", "/tickets?sort=created_at", "/tickets?sort=-priority", "/tickets?sort=priority", "/tickets?sort=-number", "/tickets?sort=updated_at",
		"/tickets?sort=-updated_at&status=open", "/tickets?tags=walk&priority=low,high,normal,urgent", "/tickets?assignee_id=none", "/tickets?q=S",
	} {
		r.index()
		stays := map[string]bool{}
		for id := range live {
			stays[id] = true
		}
		seen := r.walk(path, 1+random.IntN(7), func() {
			for range random.IntN(3) {
				if random.IntN(2) == 0 {
					add()
				} else {
					remove()
				}
			}
		})
		times := map[string]int{}
		for _, id := range seen {
			times[id]++
			if times[id] > 1 {
				t.Errorf("%s: %s comes %d times", path, id, times[id])
			}
		}
		for id := range stays {
			if live[id] && times[id] == 0 {
				t.Errorf("%s: %s is missing", path, id)
			}
		}
	}
}

// TestLists compares filters, searches, sort orders and exports.
func TestLists(t *testing.T) {
	r := newRig(t)
	hank := r.member(r.ours, "hank@a.example")
	var made []fields
	for i, body := range []fields{
		{"subject": "Flat tyre", "text": "The rear wheel is flat", "priority": "high", "tags": []string{"wheel"}, "assignee_id": r.grace.ID, "external_id": "e0"},
		{"subject": "Lost key", "text": "It fell into the river", "priority": "low", "tags": []string{"key", "wheel"}, "assignee_id": hank.ID},
		{"subject": "=1+1", "text": "Refund, \"please\"\nnow", "metadata": fields{"a": "1"}},
	} {
		body["customer"] = fields{"email": fmt.Sprintf("c%d@example.com", i)}
		made = append(made, r.post("/tickets", body))
	}
	send(t, r.Client, "PUT", "/tickets/"+made[1].text("id"), `{"status":"resolved"}`, 200)
	send(t, r.other(), "POST", "/tickets", `{"subject":"Flat tyre","text":"wheel","customer":{"email":"x@b.example"},"tags":["wheel"],"external_id":"e0"}`, 201)
	r.index()
	for query, want := range map[string][]int{
		"": {2, 1, 0}, "?sort=number": {0, 1, 2}, "?sort=-priority": {0, 2, 1}, "?sort=-updated_at": {1, 2, 0},
		"?status=resolved": {1}, "?status=open,closed": {2, 0}, "?priority=high,low": {1, 0}, "?tags=wheel": {1, 0}, "?tags=key,none": {1},
		"?assignee_id=none": {2}, "?assignee_id=none," + hank.ID: {2, 1}, "?customer_id=" + made[2].text("customer_id"): {2},
		"?channel=api": {2, 1, 0}, "?channel=sms": {}, "?number=1,3": {2, 0}, "?external_id=e0": {0}, "?q=wheel": {1, 0}, "?q=river%20fell": {1}, "?q=tag:wheel%20-status:resolved": {0}, "?q=-tag:wheel": {2}, "?q=key%20%232": {1}, "?q=bicycle": {},
		"?created_at[lt]=2020-01-01T00:00:00Z": {}, "?created_at[gte]=" + made[0].text("created_at"): {2, 1, 0}, "?updated_at[lte]=2020-01-01T00:00:00Z": {},
		"?status=open&priority=high&tags=wheel&q=flat": {0},
	} {
		ids := []string{}
		for _, i := range want {
			ids = append(ids, made[i].text("id"))
		}
		if got := r.walk("/tickets"+query, 2, func() {}); !slices.Equal(got, ids) {
			t.Errorf("%s lists %q, want %q", query, got, ids)
		}
		a := r.Get("/tickets"+query, "Accept: application/x-ndjson")
		var exported []string
		for line := range strings.Lines(a.Body) {
			var record fields
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("%s: line %q: %v", query, line, err)
			}
			if id := record.text("id"); jsonOf(t, record) != jsonOf(t, r.get("/tickets/"+id)) {
				t.Errorf("%s exports %v", query, record)
			}
			exported = append(exported, record.text("id"))
		}
		if a.Status != 200 || a.Err != nil || !slices.Equal(exported, ids) && len(ids) > 0 {
			t.Errorf("%s exports %d %q, want %q", query, a.Status, exported, ids)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(r.Get("/tickets", "Accept: text/csv").Body)).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("CSV has %d rows, %v", len(rows), err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	for name, want := range map[string][3]string{
		"subject": {"'=1+1", "Lost key", "Flat tyre"}, "assignee.email": {"", "hank@a.example", "grace@a.example"},
		"customer.email": {"c2@example.com", "c1@example.com", "c0@example.com"}, "tags": {"[]", `["key","wheel"]`, `["wheel"]`}, "metadata": {`{"a":"1"}`, "{}", "{}"},
	} {
		i := column(name)
		if i < 0 || rows[1][i] != want[0] || rows[2][i] != want[1] || rows[3][i] != want[2] {
			t.Errorf("column %s is %q, want %q", name, rows, want)
		}
	}
	for query, parameter := range map[string]string{
		"?number=x": "number invalid_value", "?status=new": "status invalid_value", "?limit=0": "limit invalid_value", "?sort=subject": "sort invalid_value", "?q=status:opne": "q invalid_value",
		"?created_at[gte]=yesterday": "created_at[gte] invalid_value", "?expand[]=assignee": "expand[] invalid_value", "?limit=5&limit=6": "limit invalid_value",
	} {
		refused(t, query, r.Get("/tickets"+query), 400, "invalid_parameter", parameter)
	}
	refused(t, "an export of a wrong filter", r.Get("/tickets?q=status:opne", "Accept: text/csv"), 400, "invalid_parameter", "q invalid_value")
	refused(t, "an export of a page", r.Get("/tickets?limit=5", "Accept: text/csv"), 400, "invalid_parameter", "limit invalid_value")
}

// TestOnce sends each create twice under one Idempotency-Key.
func TestOnce(t *testing.T) {
	r := newRig(t)
	ticket := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id")
	for path, body := range map[string]string{
		"/tickets":           `{"subject":"Once","text":"t","customer":{"email":"once@example.com"}}`,
		"/customers":         `{"emails":["only@example.com"]}`,
		ticket + "/messages": `{"kind":"reply","text":"Once","attachments":[{"name":"a","content":"aGVsbG8="}]}`,
	} {
		first := r.Do("POST", path, body, "Idempotency-Key: "+strings.ReplaceAll(path, "/", "-"))
		r.emitted()
		again := r.Do("POST", path, body, "Idempotency-Key: "+strings.ReplaceAll(path, "/", "-"))
		if first.Status != 201 || again.Status != 201 || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" ||
			again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("ETag") != first.Header.Get("ETag") {
			t.Errorf("%s: got %d %s %v, then %d %s %v", path, first.Status, first.Body, first.Header, again.Status, again.Body, again.Header)
		}
		if got := r.emitted(); len(got) > 0 {
			t.Errorf("%s: the second time emits %q", path, got)
		}
		refused(t, path+" with another body", r.Do("POST", path, strings.Replace(body, "nce", "ther", 1)+" ", "Idempotency-Key: "+strings.ReplaceAll(path, "/", "-")), 422, "idempotency_key_reused")
	}
	if got := r.get(ticket + "/messages")["data"].([]any); len(got) != 2 {
		t.Errorf("there are %d messages, want 2", len(got))
	}
}
