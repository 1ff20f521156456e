package deskapi_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

func TestMacros(t *testing.T) {
	r := newRig(t)
	admin := r.As(r.key(r.ours, apikey.Permissions{Level: apikey.Admin}))
	full := `{"name":"Lock","text":"Hi {{customer.first_name|there}}","note":"N","status":"on_hold","priority":"high","assignee":"me","add_tags":["lock"],"remove_tags":["new"]}`
	m := send(t, admin, "POST", "/macros", full, 201)
	path := "/macros/" + m.text("id")
	for name, want := range map[string]any{
		"object": "macro", "name": "Lock", "text": "Hi {{customer.first_name|there}}", "note": "N", "status": "on_hold", "priority": "high",
		"assignee": "me", "add_tags": "[lock]", "remove_tags": "[new]", "uses": "0", "used_at": "<nil>",
	} {
		if got := fmt.Sprint(m[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	m = send(t, admin, "PUT", path, `{"note":null,"status":null,"assignee":"`+r.grace.ID+`","remove_tags":[]}`, 200)
	if m["note"] != nil || m["status"] != nil || m.text("assignee") != r.grace.ID || m.text("priority") != "high" || len(m["remove_tags"].([]any)) != 0 {
		t.Errorf("got %v", m)
	}
	if got := r.get(path); fmt.Sprint(got) != fmt.Sprint(m) {
		t.Errorf("got %v, want %v", got, m)
	}
	refused(t, "a stale change", admin.Do("PUT", path, `{"name":"x"}`, `If-Match: "x"`), 412, "precondition_failed")
	refused(t, "a used name", admin.Do("POST", "/macros", `{"name":"LOCK","text":"x"}`), 409, "already_exists")
	for body, at := range map[string]string{
		`{"text":"x"}`:                                            "#/name required",
		`{"name":"n"}`:                                            "#/text required",
		`{"name":"n","text":"{{x}}"}`:                             "#/text invalid_value",
		`{"name":"n","status":"done"}`:                            "#/status invalid_value",
		`{"name":"n","assignee":"` + r.mallory.ID + `"}`:          "#/assignee not_found",
		`{"name":"n","add_tags":["a"],"remove_tags":["a"]}`:       "#/remove_tags/0 conflict",
		`{"name":"n","text":"` + strings.Repeat("a", 5001) + `"}`: "#/text too_long",
	} {
		refused(t, body, admin.Do("POST", "/macros", body), 422, "validation_failed", at)
	}
	// A private macro is not in the API.
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		own, err := r.desk.CreateMacroTx(t.Context(), tx, desk.Macro{OrganizationID: r.ours.ID, OwnerID: r.grace.ID, Name: "Own", Text: "x"})
		path = path + " /macros/" + own.ID
		return err
	}); err != nil {
		t.Fatal(err)
	}
	path, own, _ := strings.Cut(path, " ")
	refused(t, "a private macro", r.Do("GET", own, ""), 404, "not_found")
	if ids := r.walk("/macros", 1, func() {}); len(ids) != 1 {
		t.Errorf("got %v", ids)
	}
	send(t, admin, "DELETE", path, "", 204)
	refused(t, "a deleted macro", r.Do("GET", path, ""), 404, "not_found")
}

func TestApplyMacro(t *testing.T) {
	r := newRig(t)
	admin := r.As(r.key(r.ours, apikey.Permissions{Level: apikey.Admin}))
	ticket := r.ticket("Flat tyre", "ana@example.com")
	id := ticket.text("id")
	m := send(t, admin, "POST", "/macros", `{"name":"Lock","text":"Hi {{customer.first_name}}, {{agent.name|we}} of {{organization.name}}","note":"#{{ticket.number}}","status":"pending","add_tags":["lock"]}`, 201)
	apply := "/macros/" + m.text("id") + "/apply"
	body := func(more string) string { return `{"ticket_id":"` + id + `"` + more + `}` }

	r.emitted()
	preview := send(t, r.Client, "POST", apply, body(`,"preview":true`), 200)
	if preview["preview"] != true || preview.text("text") != "Hi {{customer.first_name}}, we of Acme Wheels" || preview.text("note") != "#1" || fmt.Sprint(preview["missing"]) != "[customer.first_name]" ||
		preview["message_id"] != nil || fmt.Sprint(preview["changes"]) != "map[status:map[from:open to:pending] tags:map[from:[] to:[lock]]]" {
		t.Errorf("got %v", preview)
	}
	refused(t, "a missing value", r.Do("POST", apply, body("")), 409, "invalid_transition")
	if names := r.emitted(); len(names) != 0 {
		t.Errorf("emitted %v", names)
	}

	send(t, admin, "PUT", "/macros/"+m.text("id"), `{"text":"Hi {{customer.first_name|there}}, {{agent.name|we}} of {{organization.name}}"}`, 200)
	first := r.Do("POST", apply, body(""), "Idempotency-Key: once")
	again := r.Do("POST", apply, body(""), "Idempotency-Key: once")
	if first.Status != 200 || again.Body != first.Body {
		t.Errorf("got %d %s, then %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	var done fields
	first.JSON(&done)
	reply := r.get("/tickets/" + id + "/messages/" + done.text("message_id"))
	note := r.get("/tickets/" + id + "/messages/" + done.text("note_id"))
	if reply.text("text") != "Hi there, we of Acme Wheels" || reply.text("kind") != "reply" || note.text("text") != "#1" || note.text("kind") != "note" {
		t.Errorf("got %v and %v", reply, note)
	}
	if got := r.get("/tickets/" + id); got.text("status") != "pending" || fmt.Sprint(got["tags"]) != "[lock]" {
		t.Errorf("got %v", got)
	}
	if got := r.get("/macros/" + m.text("id")); fmt.Sprint(got["uses"]) != "1" || got["used_at"] == nil {
		t.Errorf("got %v", got)
	}
	if got, want := strings.Join(r.emitted(), " "), "conversation.created message.created message.agent_reply ticket.updated ticket.status_changed"; got != want {
		t.Errorf("emitted %s, want %s", got, want)
	}

	mine := "/macros/" + send(t, admin, "POST", "/macros", `{"name":"Mine","assignee":"me"}`, 201).text("id") + "/apply"
	refused(t, "me without a member", r.Do("POST", mine, body("")), 422, "validation_failed", "#/agent_id required")
	refused(t, "me of others", r.Do("POST", mine, body(`,"agent_id":"`+r.mallory.ID+`"`)), 422, "validation_failed", "#/agent_id not_found")
	noMessages := allResources()
	delete(noMessages, "messages")
	quiet := r.As(r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{Named: noMessages}}))
	send(t, quiet, "POST", mine, body(`,"agent_id":"`+r.grace.ID+`"`), 200)
	if got := r.get("/tickets/" + id); got.text("assignee_id") != r.grace.ID {
		t.Errorf("got %v", got)
	}
	refused(t, "a reply without the permission", quiet.Do("POST", apply, body("")), 403, "permission_denied")
	send(t, quiet, "POST", apply, body(`,"preview":true`), 200)
	refused(t, "an unknown ticket", r.Do("POST", apply, `{"ticket_id":"x"}`), 422, "validation_failed", "#/ticket_id not_found")
	theirs := send(t, r.other(), "POST", "/tickets", `{"subject":"S","customer":{"email":"sam@example.com"}}`, 201)
	refused(t, "another's ticket", r.Do("POST", apply, `{"ticket_id":"`+theirs.text("id")+`"}`), 422, "validation_failed", "#/ticket_id not_found")
	refused(t, "another's conversation", r.Do("POST", apply, body(`,"conversation_id":"x"`)), 422, "validation_failed", "#/conversation_id not_found")
}

func TestMacroAttachments(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	const one = `{"name":"manual.txt","content_type":"text/plain","content":"aGVsbG8="}`
	m := send(t, admin, "POST", "/macros", `{"name":"Manual","text":"See the file.","attachments":[`+one+`]}`, 201)
	at := "/macros/" + m.text("id")
	file := m.list("attachments")[0]
	if file["name"] != "manual.txt" || file["size"] != 5.0 || file.text("url") != origin+"/api/v1/attachments/"+file.text("id") {
		t.Errorf("the file is %v", file)
	}
	path := strings.TrimPrefix(file.text("url"), origin+"/api/v1")
	if a := admin.Get(path); a.Status != 200 || a.Body != "hello" {
		t.Errorf("its content is answered %d %s", a.Status, a.Body)
	}
	refused(t, "another organization", r.tenant(r.theirs).Get(path), 404, "not_found")
	send(t, admin, "PUT", at, jsonOf(t, send(t, admin, "GET", at, "", 200)), 200)
	refused(t, "a replacement", admin.Do("PUT", at, `{"attachments":[]}`), 422, "validation_failed", "#/attachments read_only")

	two := send(t, admin, "POST", at+"/attachments", `{"name":"b.txt","content":"Yg=="}`, 200).list("attachments")
	if len(two) != 2 || two[1]["name"] != "b.txt" || two[1]["content_type"] != "application/octet-stream" {
		t.Errorf("the files are %v", two)
	}
	for body, pointer := range map[string]string{
		`{"name":"","content":"Yg=="}`: "#/name too_short", `{"name":"c.txt","content":"?"}`: "#/content invalid_format", `{"name":"c.txt"}`: "#/content required",
	} {
		refused(t, body, admin.Do("POST", at+"/attachments", body), 422, "validation_failed", pointer)
	}
	large := `{"name":"large","content":"` + base64.StdEncoding.EncodeToString(make([]byte, 10<<20)) + `"}`
	refused(t, "a large one", admin.Do("POST", at+"/attachments", large), 422, "validation_failed", "#/content too_large")
	refused(t, "a large one of a new macro", admin.Do("POST", "/macros", `{"name":"Large","text":"x","attachments":[`+large+","+one+"]}"), 422, "validation_failed", "#/attachments too_large")

	ticket := r.ticket("Flat tyre", "ana@example.com").text("id")
	done := send(t, admin, "POST", at+"/apply", `{"ticket_id":"`+ticket+`"}`, 200)
	reply := r.get("/tickets/" + ticket + "/messages/" + done.text("message_id"))
	if files := reply.list("attachments"); len(files) != 2 || files[0]["name"] != "manual.txt" || files[0]["id"] == file["id"] || files[1]["state"] != "stored" {
		t.Errorf("the reply has %v", files)
	}
	send(t, admin, "DELETE", at+"/attachments/"+file.text("id"), "", 204)
	refused(t, "a deleted one", admin.Do("DELETE", at+"/attachments/"+file.text("id"), ""), 404, "not_found")
	refused(t, "its content", admin.Get(path), 404, "not_found")
	if left := send(t, admin, "GET", at, "", 200).list("attachments"); len(left) != 1 || left[0]["name"] != "b.txt" {
		t.Errorf("left are %v", left)
	}
	files := reply.list("attachments")
	if a := r.Get(strings.TrimPrefix(files[0].text("url"), origin+"/api/v1")); a.Status != 200 || a.Body != "hello" {
		t.Errorf("the reply's file is answered %d", a.Status)
	}
}
