package deskapi_test

import (
	"net/url"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// TestSearch: one text finds tickets, messages and customers, as far as the key may read them.
func TestSearch(t *testing.T) {
	r := newRig(t)
	made := r.post("/tickets", fields{"subject": "Flat tyre", "text": "The <lock> of bike 4711 does not open.", "tags": []string{"vip"},
		"customer": fields{"name": "Zoë Weber", "email": "zoe@client.example", "phone": "+4915112345678"}})
	r.post("/tickets", fields{"subject": "Something else", "text": "Hello", "customer": fields{"email": "max@client.example"}})
	r.index()
	find := func(q string) []fields { return r.get("/search?q=" + url.QueryEscape(q)).list("data") }
	for _, q := range []string{"zoe", "Weber Zoe", "zoe@client.example", "0151 12345678", "5678", "#1", "vip", "open lock", "4711", "tag:vip", `"does not open"`} {
		found := find(q)
		if len(found) == 0 || found[0]["object"] != "search_result" {
			t.Errorf("%s finds nothing", q)
			continue
		}
		ticket := false
		for _, f := range found {
			ticket = ticket || f["type"] == "ticket" && f["id"] == made["id"] && f["url"] == origin+"/tickets/1"
		}
		if !ticket {
			t.Errorf("%s finds %v", q, found)
		}
	}
	types := map[any]fields{}
	for _, f := range find("lock") {
		types[f["type"]] = f
	}
	if got := types["message"].text("highlight"); got != "The &lt;<mark>lock</mark>&gt; of bike 4711 does not open." {
		t.Errorf("the highlight is %q", got)
	}
	if found := find("zoe@client.example"); found[0]["type"] != "customer" || found[0]["score"] != 1.0 || found[0]["id"] != made["customer_id"] {
		t.Errorf("an address finds first %v", found[0])
	}
	if found := r.get("/search?q=zoe&types=customer").list("data"); len(found) != 1 || found[0]["type"] != "customer" {
		t.Errorf("customers only: %v", found)
	}
	few := r.As(r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{Named: map[string][]apikey.Action{"tickets": {apikey.Read}}}}))
	for _, f := range send(t, few, "GET", "/search?q=zoe", "", 200).list("data") {
		if f["type"] != "ticket" {
			t.Errorf("a key that reads tickets only finds %v", f)
		}
	}
	for _, f := range send(t, few, "GET", "/search?q=lock", "", 200).list("data") {
		if f["highlight"] != nil {
			t.Errorf("a key that may not read messages sees %v", f)
		}
	}
	theirs := r.As(r.key(r.theirs, apikey.Permissions{Level: apikey.Admin}))
	if found := send(t, theirs, "GET", "/search?q=zoe", "", 200).list("data"); len(found) != 0 {
		t.Errorf("another organization finds %v", found)
	}
	refused(t, "a fault", r.Do("GET", "/search?q=status:odd", ""), 400, "invalid_parameter")
	refused(t, "nothing", r.Do("GET", "/search", ""), 400, "invalid_parameter")
}
