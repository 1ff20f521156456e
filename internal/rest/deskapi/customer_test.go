package deskapi_test

import (
	"slices"
	"testing"
)

func TestCustomer(t *testing.T) {
	r := newRig(t)
	r.emitted()
	a := r.Do("POST", "/customers", jsonOf(t, fields{
		"name": "Alex Rider", "emails": []string{"Alex@Example.com", "a@example.com"}, "phones": []string{"+49 1511 2345678"}, "external_id": "c1", "metadata": fields{"vip": "yes"},
	}))
	if a.Status != 201 {
		t.Fatalf("POST: %d %s", a.Status, a.Body)
	}
	var made fields
	a.JSON(&made)
	path := "/customers/" + made.text("id")
	want := jsonOf(t, fields{
		"id": made["id"], "object": "customer", "organization_id": r.ours.ID, "name": "Alex Rider", "emails": []string{"Alex@Example.com", "a@example.com"},
		"phones": []string{"+4915112345678"}, "identities": []string{}, "undeliverable": []string{}, "external_id": "c1", "metadata": fields{"vip": "yes"},
		"created_at": made["created_at"], "updated_at": made["created_at"],
	})
	if got := jsonOf(t, made); got != want {
		t.Errorf("made\n%s, want\n%s", got, want)
	}
	got := r.Get(path)
	if got.Body != a.Body || got.Header.Get("ETag") != a.Header.Get("ETag") || a.Header.Get("Location") != "/api/v1"+path {
		t.Errorf("read %s, made %s", got.Body, a.Body)
	}
	if same := r.Do("PUT", path, got.Body, "If-Match: "+got.Header.Get("ETag")); same.Status != 200 || same.Body != got.Body {
		t.Errorf("PUT of what was read: %d %s", same.Status, same.Body)
	}
	if got := r.emitted(); !slices.Equal(got, []string{"customer.created"}) {
		t.Errorf("emitted %q", got)
	}
	changed := send(t, r.Client, "PUT", path, `{"name":null,"emails":["new@example.com"],"phones":null,"external_id":null,"metadata":null}`, 200)
	for member, want := range map[string]string{"name": "null", "emails": `["new@example.com"]`, "phones": "[]", "external_id": "null", "metadata": "{}"} {
		if got := jsonOf(t, changed[member]); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	other := r.post("/customers", fields{"emails": []string{"sam@example.com"}, "external_id": "c2"})
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		code, member             string
		flaws                    []string
	}{
		{"a taken address", "POST", "/customers", `{"emails":["NEW@example.com"]}`, 409, "already_exists", "emails", nil},
		{"a taken id", "POST", "/customers", `{"external_id":"c2"}`, 409, "already_exists", "external_id", nil},
		{"a taken address", "PUT", path, `{"emails":["sam@example.com"]}`, 409, "already_exists", "emails", nil},
		{"a taken id", "PUT", path, `{"external_id":"c2"}`, 409, "already_exists", "external_id", nil},
		{"no address", "POST", "/customers", `{"emails":["nobody",""],"phones":["12"]}`, 422, "validation_failed", "",
			[]string{"#/emails/1 too_short"}},
		{"no address", "PUT", path, `{"emails":["nobody"],"phones":["12"]}`, 422, "validation_failed", "",
			[]string{"#/emails/0 invalid_format", "#/phones/0 invalid_format"}},
		{"read-only members", "PUT", path, `{"id":"x","identities":[{"channel":"chat","external_id":"U1"}]}`, 422, "validation_failed", "",
			[]string{"#/id read_only", "#/identities read_only"}},
		{"an old one", "PUT", path, `{"name":"x"}`, 412, "precondition_failed", "", nil},
		{"an old one", "DELETE", path, "", 412, "precondition_failed", "", nil},
	} {
		headers := []string{}
		if test.status == 412 {
			headers = append(headers, "If-Match: "+got.Header.Get("ETag"))
		}
		a := r.Do(test.method, test.path, test.body, headers...)
		refused(t, test.method+" "+test.name, a, test.status, test.code, test.flaws...)
		if got := a.Problem().Member; got != test.member {
			t.Errorf("%s %s: member is %q, want %q", test.method, test.name, got, test.member)
		}
	}
	if got := r.get(path); jsonOf(t, got) != jsonOf(t, changed) {
		t.Errorf("the customer is %v, was %v", got, changed)
	}

	for query, want := range map[string][]string{
		"": {other.text("id"), made.text("id")}, "?sort=created_at": {made.text("id"), other.text("id")},
		"?email=SAM@example.com": {other.text("id")}, "?external_id=c2,c9": {other.text("id")}, "?q=nobody": {}, "?phone=+49170": {},
	} {
		ids := []string{}
		for _, c := range r.get("/customers" + query)["data"].([]any) {
			ids = append(ids, c.(map[string]any)["id"].(string))
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s lists %q, want %q", query, ids, want)
		}
	}

	// Their tickets stay, with a customer without a name.
	ticket := r.post("/tickets", fields{"subject": "S", "customer_id": other["id"]})
	send(t, r.Client, "DELETE", "/customers/"+other.text("id"), "", 204)
	refused(t, "a deleted customer", r.Get("/customers/"+other.text("id")), 404, "not_found")
	left := r.get("/tickets/" + ticket.text("id") + "?expand[]=customer")["customer"].(map[string]any)
	if left["id"] != other["id"] || left["name"] != nil || left["email"] != nil || len(left["emails"].([]any)) != 0 || left["object"] != "customer" {
		t.Errorf("the ticket's customer is %v", left)
	}
	refused(t, "a ticket for them", r.Do("POST", "/tickets", `{"subject":"S","customer_id":"`+other.text("id")+`"}`), 422, "validation_failed", "#/customer_id not_found")
}
