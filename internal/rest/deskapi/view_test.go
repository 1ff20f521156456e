package deskapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

func TestViews(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	made := send(t, admin, "POST", "/views", `{"name":"Locks","query":"status:open tag:lock assignee:none"}`, 201)
	if got := jsonOf(t, made["columns"]); made["object"] != "view" || made["sort"] != "-updated_at" || made["position"] != 1.0 || got != `["status","priority","due","tags","assignee","channel","updated"]` {
		t.Errorf("made %v", made)
	}
	at := "/views/" + made.text("id")
	changed := send(t, admin, "PUT", at, `{"sort":"priority","columns":["tags","created"]}`, 200)
	if changed["sort"] != "priority" || jsonOf(t, changed["columns"]) != `["tags","created"]` || changed["name"] != "Locks" {
		t.Errorf("changed to %v", changed)
	}
	tag := admin.Get(at).Header.Get("Etag")
	send(t, admin, "PUT", at, jsonOf(t, send(t, admin, "GET", at, "", 200)), 200, "If-Match: "+tag)
	send(t, admin, "POST", "/views", `{"name":"Mine","query":"assignee:me","position":1,"sort":"-number"}`, 201)
	order := func(query string) string {
		var names []string
		for _, v := range send(t, admin, "GET", "/views"+query, "", 200).list("data") {
			names = append(names, fmt.Sprint(v.text("name"), " ", v["position"]))
		}
		return strings.Join(names, ", ")
	}
	if got := order("") + "; " + order("?sort=-position&limit=1"); got != "Mine 1, Locks 2; Locks 2" {
		t.Errorf("the lists are %s", got)
	}
	refused(t, "an old one", admin.Do("PUT", at, `{"name":"X"}`, "If-Match: "+tag), 412, "precondition_failed")
	for body, pointer := range map[string]string{
		`{"name":"X","query":"status:opne"}`: "#/query invalid_value", `{"name":""}`: "#/name too_short", `{"name":"X","sort":"subject"}`: "#/sort invalid_value",
		`{"name":"X","columns":["status","colour"]}`: "#/columns/1 invalid_value", `{"name":"X","columns":["tags","tags"]}`: "#/columns invalid_value",
	} {
		refused(t, body, admin.Do("POST", "/views", body), 422, "validation_failed", pointer)
	}

	// A member's own view is not in the API, and neither is that of another organization.
	var own desk.View
	if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		own, err = r.desk.CreateViewTx(t.Context(), tx, r.ours.ID, desk.NewView{OwnerID: "0190c0de-0000-7000-8000-0000000000d1", Name: "Own"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	theirs := r.tenant(r.theirs).Client
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = `{"name":"X"}`
		}
		refused(t, method+" of an own one", admin.Do(method, "/views/"+own.ID, body), 404, "not_found")
		refused(t, method+" of theirs", theirs.Do(method, at, body), 404, "not_found")
	}
	if list := send(t, theirs, "GET", "/views", "", 200).list("data"); len(list) != 0 {
		t.Errorf("they see %v", list)
	}
	reader := r.As(r.key(r.ours, apikey.Permissions{Level: apikey.ReadWrite}))
	send(t, reader, "GET", at, "", 200)
	refused(t, "without settings", reader.Do("POST", "/views", `{"name":"X"}`), 403, "permission_denied")

	if a := admin.Do("DELETE", at, ""); a.Status != 204 {
		t.Errorf("deleted: %d %s", a.Status, a.Body)
	}
	refused(t, "deleted", admin.Get(at), 404, "not_found")
	if got := order(""); got != "Mine 1" {
		t.Errorf("left are %s", got)
	}
}

// TestTicketsOfAView lists the tickets of a view.
func TestTicketsOfAView(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	for i, tags := range []string{`["lock"]`, `["brake"]`, `["lock","brake"]`} {
		send(t, admin, "POST", "/tickets", fmt.Sprintf(`{"subject":"Ticket %d","tags":%s,"customer":{"email":"sam@example.com"}}`, i+1, tags), 201)
	}
	view := func(body string) string {
		return send(t, admin, "POST", "/views", body, 201).text("id")
	}
	locks := view(`{"name":"Locks","query":"tag:lock","sort":"number"}`)
	numbers := func(query string) string {
		var list []string
		for _, v := range send(t, admin, "GET", "/tickets?view="+locks+query, "", 200).list("data") {
			list = append(list, fmt.Sprint(v["number"]))
		}
		return strings.Join(list, " ")
	}
	for query, want := range map[string]string{"": "1 3", "&sort=-number": "3 1", "&q=-tag:brake": "1", "&tags=brake": "3", "&limit=1": "1"} {
		if got := numbers(query); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	first := send(t, admin, "GET", "/tickets?limit=1&view="+locks, "", 200)
	second := send(t, admin, "GET", "/tickets?limit=1&view="+locks+"&cursor="+first.text("next_cursor"), "", 200).list("data")
	if len(second) != 1 || second[0]["number"] != 3.0 {
		t.Errorf("the second page has %v", second)
	}
	refused(t, "no view", admin.Get("/tickets?view=x"), 400, "invalid_parameter")
	refused(t, "theirs", r.tenant(r.theirs).Get("/tickets?view="+locks), 400, "invalid_parameter")
	refused(t, "for a member", admin.Get("/tickets?view="+view(`{"name":"Mine","query":"assignee:me"}`)), 400, "invalid_parameter")
}
