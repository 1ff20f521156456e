package deskapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestTicket(t *testing.T) {
	r := newRig(t)
	r.emitted()
	a := r.Do("POST", "/tickets", jsonOf(t, fields{
		"subject": " Flat tyre ", "html": "<p>It is <b>flat</b><script>alert(1)</script></p>", "priority": "high", "tags": []string{"a", "b", "a"},
		"customer":    fields{"name": "Alex Rider", "email": "Alex@Example.com", "phone": "+49 1511 2345678"},
		"assignee_id": r.grace.ID, "external_id": "crm-1", "metadata": fields{"shop": "7"},
	}))
	if a.Status != 201 {
		t.Fatalf("POST: %d %s", a.Status, a.Body)
	}
	var made fields
	a.JSON(&made)
	id := made.text("id")
	if got, want := a.Header.Get("Location"), "/api/v1/tickets/"+id; got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
	if got, want := r.emitted(), []string{"customer.created", "ticket.created", "ticket.assigned", "conversation.created", "message.created"}; !slices.Equal(got, want) {
		t.Errorf("emitted %q, want %q", got, want)
	}
	customerID := made.text("customer_id")
	want := fields{
		"id": id, "object": "ticket", "organization_id": r.ours.ID, "number": 1.0, "subject": "Flat tyre", "status": "open", "priority": "high",
		"channel": "api", "customer_id": customerID,
		"customer":    fields{"id": customerID, "name": "Alex Rider", "email": "Alex@Example.com", "phone": "+4915112345678"},
		"assignee_id": r.grace.ID, "assignee": fields{"id": r.grace.ID, "name": "grace", "email": "grace@a.example"},
		"tags": []string{"a", "b"}, "external_id": "crm-1", "snoozed_until": nil, "metadata": fields{"shop": "7"}, "linked_ticket_id": nil, "link_reason": nil,
		"merged_into_id": nil, "url": origin + "/tickets/1", "created_at": made["created_at"], "updated_at": made["created_at"],
		"first_responded_at": nil, "resolved_at": nil, "sla": []string{},
	}
	if got := jsonOf(t, made); got != jsonOf(t, want) {
		t.Errorf("made\n%s, want\n%s", got, jsonOf(t, want))
	}
	got := r.Get("/tickets/" + id)
	if got.Body != a.Body || got.Header.Get("ETag") != a.Header.Get("ETag") || got.Header.Get("ETag") == "" {
		t.Errorf("read %s %s, made %s %s", got.Header.Get("ETag"), got.Body, a.Header.Get("ETag"), a.Body)
	}
	first := r.get("/tickets/" + id + "/messages")["data"].([]any)[0].(map[string]any)
	if first["html"] != "<p>It is <b>flat</b></p>" || first["text"] != "It is flat" || first["direction"] != "inbound" || first["placed_by"] != "new_ticket" {
		t.Errorf("first message %v", first)
	}

	// A record sent back unchanged changes nothing.
	same := r.Do("PUT", "/tickets/"+id, got.Body, "If-Match: "+got.Header.Get("ETag"))
	if same.Status != 200 || same.Body != got.Body {
		t.Errorf("PUT of what was read: %d %s, want %s", same.Status, same.Body, got.Body)
	}
	if got := r.emitted(); len(got) > 0 {
		t.Errorf("it emitted %q", got)
	}
	changed := send(t, r.Client, "PUT", "/tickets/"+id, jsonOf(t, fields{
		"subject": "Flat tyres", "status": "resolved", "priority": "low", "assignee_id": nil, "tags": nil, "external_id": nil,
		"metadata": fields{"shop": nil, "bike": "9"},
	}), 200)
	if got := r.emitted(); !slices.Equal(got, []string{"ticket.updated", "ticket.status_changed", "ticket.assigned", "ticket.priority_changed"}) {
		t.Errorf("emitted %q", got)
	}
	for member, want := range map[string]string{
		"subject": `"Flat tyres"`, "status": `"resolved"`, "priority": `"low"`, "assignee_id": "null", "assignee": "null", "tags": "[]",
		"external_id": "null", "metadata": `{"bike":"9"}`,
	} {
		if got := jsonOf(t, changed[member]); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	if changed["resolved_at"] == nil {
		t.Error("a resolved ticket has no resolved_at")
	}
	refused(t, "If-Match of an old one", r.Do("PUT", "/tickets/"+id, `{"subject":"x"}`, "If-Match: "+got.Header.Get("ETag")), 412, "precondition_failed")
	refused(t, "DELETE with it", r.Do("DELETE", "/tickets/"+id, "", "If-Match: "+got.Header.Get("ETag")), 412, "precondition_failed")
	if r.Get("/tickets/"+id, "If-None-Match: "+r.Get("/tickets/"+id).Header.Get("ETag")).Status != 304 {
		t.Error("If-None-Match is not answered with 304")
	}

	send(t, r.Client, "DELETE", "/tickets/"+id, "", 204)
	refused(t, "a deleted ticket", r.Get("/tickets/"+id), 404, "not_found")
	if got := r.emitted(); !slices.Equal(got, []string{"ticket.deleted"}) {
		t.Errorf("emitted %q", got)
	}
}

// TestTicketBodies sends invalid bodies.
func TestTicketBodies(t *testing.T) {
	r := newRig(t)
	ticket := r.post("/tickets", fields{"subject": "One", "customer": fields{"email": "alex@example.com"}, "external_id": "x1"})
	other := send(t, r.other(), "POST", "/tickets", `{"subject":"Other","customer":{"email":"a@b.example"}}`, 201)
	nobody := uuid.NewString()
	with := func(more string) string { return `{"subject":"S","customer":{"email":"e@f.example"}` + more + `}` }
	for _, test := range []struct {
		name, method, body string
		status             int
		code               string
		flaws              []string
	}{
		{"nothing", "POST", `{}`, 422, "validation_failed", []string{"#/subject required"}},
		{"no customer", "POST", `{"subject":"S"}`, 422, "validation_failed", []string{"#/customer_id required"}},
		{"an empty customer", "POST", `{"subject":"S","customer":{}}`, 422, "validation_failed", []string{"#/customer required"}},
		{"two customers", "POST", with(`,"customer_id":"` + nobody + `"`), 422, "validation_failed", []string{"#/customer conflict"}},
		{"an unknown customer", "POST", `{"subject":"S","customer_id":"` + nobody + `"}`, 422, "validation_failed", []string{"#/customer_id not_found"}},
		{"another's customer", "POST", `{"subject":"S","customer_id":"` + other.text("customer_id") + `"}`, 422, "validation_failed", []string{"#/customer_id not_found"}},
		{"another's member", "POST", with(`,"assignee_id":"` + r.mallory.ID + `"`), 422, "validation_failed", []string{"#/assignee_id not_found"}},
		{"a bad address and number", "POST", `{"subject":"S","customer":{"email":"nobody","phone":"12"}}`, 422, "validation_failed",
			[]string{"#/customer/email invalid_format", "#/customer/phone invalid_format"}},
		{"several faults", "POST", `{"subject":"","priority":"huge","tags":["",7],"status":"open","number":3,"colour":"red"}`, 422, "validation_failed",
			[]string{"#/subject too_short", "#/priority invalid_value", "#/tags/0 too_short", "#/tags/1 invalid_type", "#/status read_only", "#/number read_only", "#/colour unknown_field"}},
		{"a blank subject", "POST", `{"subject":"  ","customer":{"email":"e@f.example"}}`, 422, "validation_failed", []string{"#/subject too_short"}},
		{"a channel nobody has", "POST", with(`,"channel":"pigeon"`), 422, "validation_failed", []string{"#/channel invalid_value"}},
		{"mail without words", "POST", with(`,"channel":"email"`), 422, "validation_failed", []string{"#/text required"}},
		{"a taken external id", "POST", with(`,"external_id":"x1"`), 409, "already_exists", nil},
		{"a customer's id", "POST", `{"subject":"S","customer":{"id":"` + nobody + `","email":"e@f.example"}}`, 422, "validation_failed", []string{"#/customer/id read_only"}},
		{"no JSON", "POST", `{`, 400, "invalid_json", nil},
		{"a null", "PUT", `{"subject":null,"priority":null}`, 422, "validation_failed", []string{"#/subject required", "#/priority invalid_type"}},
		{"another customer", "PUT", `{"customer_id":"` + nobody + `","channel":"sms","text":"t"}`, 422, "validation_failed",
			[]string{"#/customer_id read_only", "#/channel read_only", "#/text read_only"}},
		{"read-only members", "PUT", `{"number":1,"url":"http://elsewhere","created_at":null,"customer":{"id":"x"}}`, 422, "validation_failed",
			[]string{"#/url read_only", "#/created_at read_only", "#/customer read_only"}},
		{"another's member", "PUT", `{"assignee_id":"` + r.mallory.ID + `"}`, 422, "validation_failed", []string{"#/assignee_id not_found"}},
		{"too much", "PUT", `{"subject":"` + strings.Repeat("x", 501) + `"}`, 422, "validation_failed", []string{"#/subject too_long"}},
	} {
		path := "/tickets"
		if test.method == "PUT" {
			path += "/" + ticket.text("id")
		}
		refused(t, test.method+" "+test.name, r.Do(test.method, path, test.body), test.status, test.code, test.flaws...)
	}
	if got := r.get("/tickets/" + ticket.text("id")); jsonOf(t, got) != jsonOf(t, ticket) {
		t.Errorf("the ticket is %v, was %v", got, ticket)
	}
	if got := r.Do("POST", "/tickets", with(`,"external_id":"x1"`)).Problem(); got.Member != "external_id" {
		t.Errorf("already_exists names %q", got.Member)
	}
}

func TestMergeAndSplit(t *testing.T) {
	r := newRig(t)
	one, two := r.ticket("One", "alex@example.com"), r.ticket("Two", "sam@example.com")
	a, b := "/tickets/"+one.text("id"), "/tickets/"+two.text("id")
	texts := func(path string) (list []string) {
		for _, m := range r.get(path + "/messages")["data"].([]any) {
			list = append(list, m.(map[string]any)["text"].(string))
		}
		return list
	}
	into := `{"into":"` + two.text("id") + `"}`

	survivor := send(t, r.Client, "POST", a+"/merge", into, 200)
	if survivor.text("id") != two.text("id") {
		t.Errorf("merge answers %v", survivor)
	}
	if got := r.get(a); got.text("merged_into_id") != two.text("id") || got.text("status") != "closed" {
		t.Errorf("the merged ticket is %v", got)
	}
	if got := texts(b); !slices.Equal(got, []string{"Text of One", "Text of Two"}) || len(texts(a)) > 0 {
		t.Errorf("messages are %q and %q", got, texts(a))
	}
	refused(t, "merging again", r.Do("POST", a+"/merge", into), 409, "invalid_transition")
	// A message to the merged ticket goes to the survivor.
	m := r.post(a+"/messages", fields{"kind": "note", "text": "Seen"})
	if m.text("ticket_id") != two.text("id") {
		t.Errorf("a note on a merged ticket is %v", m)
	}

	back := send(t, r.Client, "POST", a+"/unmerge", "", 200)
	if back.text("id") != one.text("id") || back["merged_into_id"] != nil || back.text("status") != "open" {
		t.Errorf("unmerge answers %v", back)
	}
	if got := texts(a); !slices.Equal(got, []string{"Text of One"}) {
		t.Errorf("messages are %q", got)
	}
	refused(t, "unmerging again", r.Do("POST", a+"/unmerge", ""), 409, "invalid_transition")

	said := r.post(b+"/messages", fields{"kind": "reply", "text": "Another matter"})
	split := send(t, r.Client, "POST", b+"/split", jsonOf(t, fields{"message_ids": []string{said.text("id")}}), 201)
	if split.text("linked_ticket_id") != two.text("id") || split.text("link_reason") != "split" {
		t.Errorf("split answers %v", split)
	}
	if got := texts("/tickets/" + split.text("id")); !slices.Equal(got, []string{"Another matter"}) {
		t.Errorf("messages are %q", got)
	}
	for _, test := range []struct {
		name, path, body string
		status           int
		code             string
		flaws            []string
	}{
		{"into itself", a + "/merge", `{"into":"` + one.text("id") + `"}`, 409, "invalid_transition", nil},
		{"into nothing", a + "/merge", `{}`, 422, "validation_failed", []string{"#/into required"}},
		{"into what is not there", a + "/merge", `{"into":"` + uuid.NewString() + `"}`, 422, "validation_failed", []string{"#/into not_found"}},
		{"unmerge with a body", a + "/unmerge", into, 422, "validation_failed", []string{"#/into unknown_field"}},
		{"split nothing", b + "/split", `{"message_ids":[]}`, 422, "validation_failed", []string{"#/message_ids required"}},
		{"split what is elsewhere", b + "/split", jsonOf(t, fields{"message_ids": []string{said.text("id")}}), 422, "validation_failed", []string{"#/message_ids/0 not_found"}},
	} {
		refused(t, test.name, r.Do("POST", test.path, test.body), test.status, test.code, test.flaws...)
	}
	all := r.get(b + "/messages")["data"].([]any)
	var ids []string
	for _, m := range all {
		ids = append(ids, m.(map[string]any)["id"].(string))
	}
	refused(t, "split all", r.Do("POST", b+"/split", jsonOf(t, fields{"message_ids": ids})), 409, "invalid_transition")
	stranger := r.other()
	for _, path := range []string{a + "/merge", a + "/unmerge", a + "/split"} {
		refused(t, "another's "+path, stranger.Do("POST", path, `{}`), 404, "not_found")
	}
}

// TestTicketByNumber: a path with a ticket's number answers with a hint to find the ticket.
func TestTicketByNumber(t *testing.T) {
	r := newRig(t)
	made := r.ticket("Flat tyre", "alex@example.com")
	for _, path := range []string{"/tickets/1", "/tickets/1/messages", "/tickets/77"} {
		a := r.Get(path)
		n, _, _ := strings.Cut(strings.TrimPrefix(path, "/tickets/"), "/")
		if p := a.Problem(); a.Status != 404 || p.Code != "not_found" || !strings.Contains(p.Detail, "GET /api/v1/tickets?number="+n+".") {
			t.Errorf("%s: got %d %s", path, a.Status, a.Body)
		}
	}
	if list := r.get("/tickets?number=1").list("data"); len(list) != 1 || list[0]["id"] != made["id"] {
		t.Errorf("the ticket number 1 is %v", list)
	}
	if p := r.Get("/tickets/" + uuid.NewString()).Problem(); strings.Contains(p.Detail, "number") {
		t.Errorf("an unknown id: %s", p.Detail)
	}
}

// TestChannelNames: channel names may be written with - or _, and unknown names are refused.
func TestChannelNames(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/tickets?channel=business-messaging", "/tickets?channel=business_messaging", "/tickets?channel=sms&channel=social-messenger", "/inbound-events?channel=email_raw", "/inbound-events?channel=email-raw"} {
		if a := r.Get(path); a.Status != 200 {
			t.Errorf("%s: got %d %s", path, a.Status, a.Body)
		}
	}
	for _, path := range []string{"/tickets?channel=fax", "/tickets?channel=sms,fax", "/inbound-events?channel=fax"} {
		refused(t, path, r.Get(path), 400, "invalid_parameter")
	}
	if c := r.post("/channels", fields{"channel": "email_raw", "address": "support@a.example"}); c["channel"] != "email-raw" {
		t.Errorf("connected %v", c)
	}
}

// TestReplyToSilentTicket: a ticket created without text can be answered at once.
func TestReplyToSilentTicket(t *testing.T) {
	r := newRig(t)
	made := r.post("/tickets", fields{"subject": "Flat tyre", "customer": fields{"email": "alex@example.com"}})
	path := "/tickets/" + made.text("id") + "/messages"
	r.emitted()
	first := r.post(path, fields{"kind": "reply", "text": "Are you at the bike?"})
	if got, want := r.emitted(), []string{"conversation.created", "message.created", "message.agent_reply"}; !slices.Equal(got, want) {
		t.Errorf("emitted %q, want %q", got, want)
	}
	second := r.post(path, fields{"kind": "reply", "text": "Hello?"})
	if first["conversation_id"] == nil || first["conversation_id"] != second["conversation_id"] || first["direction"] != "outbound" || first["channel"] != "api" {
		t.Errorf("the replies are %v and %v, want both in one conversation", first, second)
	}
	if list := r.get("/tickets/" + made.text("id") + "/conversations").list("data"); len(list) != 1 {
		t.Errorf("conversations %v, want one", list)
	}
}

// TestSeveralConnections: a message that could be sent by several connections is refused with
// their addresses and ids.
func TestSeveralConnections(t *testing.T) {
	r := newRig(t)
	body := fields{"subject": "Your bike", "channel": "sms", "text": "It is ready.", "customer": fields{"phone": "+4915112345678"}}
	a := r.post("/channels", fields{"channel": "sms", "address": "+14155550100"})
	b := r.post("/channels", fields{"channel": "sms", "address": "+14155550101"})
	got := r.Do("POST", "/tickets", jsonOf(t, body))
	refused(t, "no channel_id", got, 422, "validation_failed", "#/channel_id required")
	for _, want := range []string{"+14155550100 (" + a.text("id") + ")", "+14155550101 (" + b.text("id") + ")"} {
		if !strings.Contains(got.Problem().Detail, want) {
			t.Errorf("the detail %q does not name %s", got.Problem().Detail, want)
		}
	}
	other := r.post("/channels", fields{"channel": "email-raw", "address": "support@acme.example"})
	body["channel_id"] = other["id"]
	refused(t, "a channel_id of another channel", r.Do("POST", "/tickets", jsonOf(t, body)), 422, "validation_failed", "#/channel_id not_found")
	body["channel_id"] = "0190a6f0-0000-7000-8000-000000000000"
	refused(t, "an unknown channel_id", r.Do("POST", "/tickets", jsonOf(t, body)), 422, "validation_failed", "#/channel_id not_found")
	body["channel_id"] = b["id"]
	if chosen := r.Do("POST", "/tickets", jsonOf(t, body)); strings.Contains(chosen.Body, "#/channel_id") || strings.Contains(chosen.Body, "several") {
		t.Errorf("with channel_id: %d %s", chosen.Status, chosen.Body)
	}
}
