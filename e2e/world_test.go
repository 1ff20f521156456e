package e2e

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
)

// world is a program with an organization in which everything has happened, one that
// is new, and people.
type world struct {
	*program
	acme   account.Organization
	people map[who]account.User

	tickets        []int64 // numbers, as tales has them
	webhooks, keys []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{program: start(t), people: map[who]account.User{}}
	w.acme, w.people[admin] = w.organization("Acme Wheels")
	w.people[agent] = w.member(w.acme, "kim", "Kim Ortiz", account.Agent)
	_, w.people[newcomer] = w.organization("Brand New")
	w.fill()
	return w
}

// with is the same world for a part of the test.
func (w *world) with(t testing.TB) *world {
	part := *w
	part.program = w.program.with(t)
	return &part
}

// visitor opens a browser for one of the people.
func (w *world) visitor(who who) *visitor {
	w.t.Helper()
	if who == nobody {
		return w.visit(w.t)
	}
	return w.as(w.t, w.people[who])
}

// places is the table of all pages.
var places = []place{
	{name: "start", path: at("/")},
	{name: "not-found", path: at("/nowhere"), status: 404},
	{name: "reset-password", path: func(w *world) string {
		email := w.member(w.acme, "resetting", "Sam Reset", account.Agent).Email
		if err := w.Accounts.SendPasswordReset(w.t.Context(), account.PasswordReset{Email: email}); err != nil {
			w.t.Fatal(err)
		}
		return w.mailed(email, "/reset-password")
	}},
	{name: "reset-password-wrong", path: at("/reset-password?token=wrong"), status: 400},
	{name: "reset-password-done", path: at("/reset-password/done")},
	{name: "invitation", path: func(w *world) string {
		w.invite(w.people[admin], "invited@client.example")
		return w.mailed("invited@client.example", "/invitation")
	}},
	{name: "mailbox", path: func(w *world) string {
		w.mailed("guest@client.example", "/invitation")
		return "/dev/mailbox"
	}},
	{name: "mail", path: func(w *world) string {
		w.mailed("guest@client.example", "/invitation")
		_, list := w.call("GET", "/dev/mailbox.json", nil, nil)
		var mails []struct{ ID string }
		if err := json.Unmarshal(list, &mails); err != nil || len(mails) == 0 {
			w.t.Fatalf("got mails %s, %v", list, err)
		}
		return "/dev/mailbox/" + mails[0].ID
	}},
	{name: "sessions", path: at("/settings/sessions"), who: admin},
	{name: "sessions-of-newcomer", path: at("/settings/sessions"), who: newcomer},
	{name: "not-found-inside", path: at("/settings/nowhere"), who: admin, status: 404},
	{name: "checkout", path: func(w *world) string {
		o, err := w.Accounts.CreateOrganization(w.t.Context(), account.NewOrganization{Name: "Paying Wheels", Plan: account.Free})
		if err != nil {
			w.t.Fatal(err)
		}
		link, err := w.Billing.StartForOrganization(w.t.Context(), w.member(o, "admin", "Lee Paying", account.Admin), account.Pro)
		if err != nil {
			w.t.Fatal(err)
		}
		u, err := url.Parse(link)
		if err != nil {
			w.t.Fatal(err)
		}
		return u.RequestURI()
	}},
}

// at is the place of a page that is always there.
func at(path string) func(*world) string {
	return func(*world) string { return path }
}
