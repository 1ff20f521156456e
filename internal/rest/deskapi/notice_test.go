package deskapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"

	"github.com/google/uuid"
)

func TestFollowers(t *testing.T) {
	r := newRig(t)
	ticket := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id")
	ben := r.member(r.ours, "ben@a.example")
	names := func(query string) string {
		var list []string
		for _, f := range r.get(ticket + "/followers" + query).list("data") {
			list = append(list, f.text("email"))
		}
		return strings.Join(list, " ")
	}
	if got := names(""); got != "" {
		t.Errorf("a new ticket is followed by %s", got)
	}
	first := send(t, r.Client, "PUT", ticket+"/followers/"+ben.ID, "", 200)
	if first["object"] != "follower" || first["member_id"] != ben.ID || first["email"] != "ben@a.example" || first.text("followed_at") == "" {
		t.Errorf("ben follows as %v", first)
	}
	send(t, r.Client, "PUT", ticket, `{"assignee_id":"`+r.grace.ID+`"}`, 200)
	if again := send(t, r.Client, "PUT", ticket+"/followers/"+ben.ID, "", 200); again["followed_at"] != first["followed_at"] {
		t.Errorf("ben follows again at %v, at first at %v", again["followed_at"], first["followed_at"])
	}
	want := "ben@a.example grace@a.example; grace@a.example"
	if list := r.get(ticket + "/followers").list("data"); list[0].text("followed_at") == list[1].text("followed_at") && list[0].text("member_id") == r.grace.ID {
		want = "grace@a.example ben@a.example; ben@a.example" // in the same millisecond
	}
	if got := names("") + "; " + names("?sort=-followed_at&limit=1"); got != want {
		t.Errorf("the followers are %s", got)
	}
	// The customer's next message notifies both.
	send(t, r.Client, "DELETE", ticket+"/followers/"+r.grace.ID, "", 204)
	if got := names(""); got != "ben@a.example" {
		t.Errorf("after one left they are %s", got)
	}
	refused(t, "who does not follow", r.Do("DELETE", ticket+"/followers/"+r.grace.ID, ""), 404, "not_found")
	for what, member := range map[string]string{"a stranger": r.mallory.ID, "nobody": uuid.NewString(), "no id": "me"} {
		refused(t, what, r.Do("PUT", ticket+"/followers/"+member, ""), 404, "not_found")
	}
	refused(t, "another's ticket", r.other().Do("PUT", ticket+"/followers/"+r.mallory.ID, ""), 404, "not_found")
	refused(t, "another's list", r.other().Get(ticket+"/followers"), 404, "not_found")
	if got := names(""); got != "ben@a.example" {
		t.Errorf("refused requests made them %s", got)
	}
	refused(t, "a reader", r.As(r.key(r.ours, apikey.Permissions{Level: apikey.ReadOnly})).Do("PUT", ticket+"/followers/"+ben.ID, ""), 403, "permission_denied")
}

func TestNotices(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	var tickets []fields
	for i := range 3 {
		made := r.ticket(fmt.Sprint("Ticket ", i+1), "alex@example.com")
		send(t, r.Client, "PUT", "/tickets/"+made.text("id"), `{"assignee_id":"`+r.grace.ID+`"}`, 200)
		tickets = append(tickets, made)
	}
	path := "/members/" + r.grace.ID + "/notices"
	list := func(query string) []fields { return send(t, admin, "GET", path+query, "", 200).list("data") }
	numbers := func(query string) string {
		var out []string
		for _, n := range list(query) {
			out = append(out, fmt.Sprint(n["ticket_number"]))
		}
		return strings.Join(out, " ")
	}
	if got := numbers("") + "; " + numbers("?sort=created_at&limit=2"); got != "3 2 1; 1 2" {
		t.Errorf("the notices are of %s", got)
	}
	n := list("")[1]
	if n["kind"] != "assigned" || n["ticket_id"] != tickets[1]["id"] || n["member_id"] != r.grace.ID || n["message_id"] != nil || n["read_at"] != nil {
		t.Errorf("a notice is %v", n)
	}
	at := path + "/" + n.text("id") + "/read"
	read := send(t, admin, "POST", at, "", 200)
	if read.text("read_at") == "" {
		t.Errorf("read, it is %v", read)
	}
	if again := send(t, admin, "POST", at, "", 200); again["read_at"] != read["read_at"] {
		t.Errorf("read again at %v, at first at %v", again["read_at"], read["read_at"])
	}
	if got := numbers("?unread=true") + "; " + numbers("?unread=false"); got != "3 1; 2" {
		t.Errorf("unread and read are %s", got)
	}
	theirs := r.tenant(r.theirs)
	refused(t, "another organization's key", theirs.Get(path), 404, "not_found")
	refused(t, "it reads", theirs.Do("POST", path+"/"+list("")[0].text("id")+"/read", ""), 404, "not_found")
	refused(t, "a notice of another member", admin.Do("POST", "/members/"+r.member(r.ours, "ben@a.example").ID+"/notices/"+list("")[0].text("id")+"/read", ""), 404, "not_found")
	for what, level := range map[string]apikey.Level{"read_only": apikey.ReadOnly, "read_write": apikey.ReadWrite} {
		refused(t, what, r.As(r.key(r.ours, apikey.Permissions{Level: level})).Get(path), 403, "permission_denied")
	}
	if got := numbers("?unread=true"); got != "3 1" {
		t.Errorf("refused requests left %s unread", got)
	}
}
