package e2e

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// world is a program with a populated and an empty organization, and users.
type world struct {
	*program
	acme   account.Organization
	people map[persona]account.User

	macro          string  // id
	tickets        []int64 // in the order of sampleTickets
	webhooks, keys []string
	pending        connection.Connection // awaits the code of its challenge
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{program: start(t, atLocalhost), people: map[persona]account.User{}}
	w.acme, w.people[admin] = w.organization("Acme Wheels")
	w.people[agent] = w.member(w.acme, "kim", "Kim Ortiz", account.Agent)
	w.people[halfway] = w.member(w.acme, "half", "Lou Half", account.Agent)
	w.enableTOTP(w.people[halfway])
	w.people[secured] = w.member(w.acme, "secured", "Mika Secured", account.Agent)
	_, w.people[newcomer] = w.organization("Brand New")
	w.fill()
	return w
}

// with returns the same world for a subtest.
func (w *world) with(t testing.TB) *world {
	part := *w
	part.program = w.program.with(t)
	return &part
}

// visitor opens a browser as a persona.
func (w *world) visitor(who persona) *visitor {
	w.t.Helper()
	if who == anonymous {
		return w.visit(w.t)
	}
	if who == signingUp {
		v := w.visit(w.t)
		v.open("/sign-up")
		v.fill("#field-email", "new@client.example")
		v.press("Send link")
		v.at("/sign-in/sent")
		v.open(w.link("new@client.example", account.CallbackPath))
		v.at("/welcome/passkey*")
		return v
	}
	if who == halfway {
		v := w.visit(w.t)
		v.open("/sign-in")
		v.fill("#field-email", w.people[halfway].Email)
		v.fill("#field-password", password)
		v.press("Sign in")
		v.at("/sign-in/second-factor")
		return v
	}
	v := w.as(w.t, w.people[who])
	if who == secured {
		v.open("/settings/security")
		v.setUpApp()
	}
	return v
}

// pageCases is the table of all pages.
var pageCases = []pageCase{
	{name: "start", path: at("/")},
	{name: "not-found", path: at("/nowhere"), status: 404},
	{name: "reset-password", path: func(w *world) string {
		email := w.member(w.acme, "resetting", "Sam Reset", account.Agent).Email
		if err := w.Accounts.SendPasswordReset(w.t.Context(), account.PasswordReset{Email: email}, account.Client{}); err != nil {
			w.t.Fatal(err)
		}
		return w.link(email, "/reset-password")
	}},
	{name: "reset-password-wrong", path: at("/reset-password?token=wrong"), status: 400},
	{name: "reset-password-done", path: at("/reset-password/done")},
	{name: "invitation", path: func(w *world) string {
		w.invite(w.people[admin], "invited@client.example")
		return w.link("invited@client.example", "/invitation")
	}},
	{name: "sign-in", path: at("/sign-in?next=/settings"), picture: true},
	{name: "sign-in-sent", path: at("/sign-in/sent")},
	{name: "sign-in-link", path: func(w *world) string { // of another browser
		email := w.member(w.acme, "linked", "Lin Linked", account.Agent).Email
		if _, err := w.Accounts.SignInWithEmail(w.t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
			w.t.Fatal(err)
		}
		return w.link(email, account.CallbackPath)
	}},
	{name: "sign-up", path: at("/sign-up")},
	{name: "forgot-password", path: at("/forgot-password")},
	{name: "forgot-password-sent", path: at("/forgot-password/sent")},
	{name: "welcome", path: at("/welcome"), persona: signingUp, picture: true},
	{name: "welcome-passkey", path: at("/welcome/passkey"), persona: signingUp},
	{name: "second-factor", path: at("/sign-in/second-factor"), persona: halfway},
	{name: "confirm", path: at("/confirm?next=/settings/keys"), persona: admin},
	{name: "security", path: at("/settings/security"), persona: admin},
	{name: "security-with-factors", path: at("/settings/security"), persona: secured},
	{name: "security-totp", path: at("/settings/security/totp"), persona: admin},
	{name: "profile-delete", path: at("/settings/profile/delete"), persona: admin},
	{name: "organization-branding", path: at("/settings/organization/branding"), persona: admin},
	{name: "organization", path: at("/settings/organization"), persona: admin},
	{name: "member-remove", path: func(w *world) string { // with a key that they created
		u := w.member(w.acme, "leaver", "Lea Leaver", account.Agent)
		ctx := account.NewContext(w.t.Context(), account.Identity{UserID: u.ID, User: u})
		if _, _, err := w.Keys.Create(ctx, apikey.New{
			OrganizationID: w.acme.ID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: "Nightly export", Permissions: apikey.Permissions{Level: apikey.ReadOnly},
		}); err != nil {
			w.t.Fatal(err)
		}
		return "/settings/members/" + u.ID + "/remove"
	}, persona: admin},
	{name: "inbox", path: at("/inbox"), persona: admin, picture: true},
	{name: "inbox-of-agent", path: at("/inbox/mine"), persona: agent},
	{name: "inbox-empty", path: at("/inbox"), persona: newcomer, picture: true},
	{name: "inbox-search", path: at("/inbox/all?q=scooter"), persona: agent},
	{name: "inbox-nothing-found", path: at("/inbox/all?q=nothing+has+this"), persona: agent},
	{name: "inbox-view", path: func(w *world) string {
		var v desk.View
		if err := w.DB.Write(w.t.Context(), func(tx *db.Tx) (err error) {
			v, err = w.Desk.CreateViewTx(w.t.Context(), tx, w.acme.ID, desk.NewView{Name: "Tickets that are worth a second look today", Query: "status:open,pending,on_hold -channel:voice created:>2020-01-01 assignee:none,me", Columns: desk.Columns})
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
		return "/inbox/views/" + v.ID
	}, persona: agent},
	{name: "inbox-wrong", path: at("/inbox/no-such-view"), persona: agent, status: 404},
	{name: "ticket", path: func(w *world) string { return fmt.Sprint("/tickets/", w.tickets[0]) }, persona: admin, picture: true},
	{name: "ticket-question", path: func(w *world) string { return fmt.Sprint("/tickets/", w.tickets[1]) }, persona: admin},
	{name: "ticket-macros", path: func(w *world) string { return fmt.Sprint("/tickets/", w.tickets[0], "/macros") }, persona: admin},
	{name: "ticket-with-macro", path: func(w *world) string { return fmt.Sprint("/tickets/", w.tickets[0], "?macro=", w.macro) }, persona: admin},
	{name: "customers", path: at("/customers"), persona: admin, picture: true},
	{name: "reports", path: at("/reports"), persona: admin, picture: true},
	{name: "reports-tables", path: at("/reports?view=table&by=assignee&days=90"), persona: agent},
	{name: "reports-empty", path: at("/reports"), persona: newcomer},
	{name: "fleet", path: at("/fleet"), persona: admin, picture: true},
	{name: "fleet-map", path: at("/fleet/map"), persona: admin, picture: true},
	{name: "fleet-rides", path: at("/fleet/rides"), persona: admin, picture: true},
	{name: "sandbox-fleet", path: at("/sandbox/fleet"), persona: admin, picture: true},
	{name: "settings-channels", path: at("/settings/channels"), persona: admin, picture: true},
	{name: "settings-channels-pending", path: func(w *world) string { return "/settings/channels/" + w.pending.ID }, persona: admin},
	{name: "settings-keys", path: at("/settings/keys"), persona: admin, picture: true},
	{name: "settings-keys-new", path: at("/settings/keys/new"), persona: admin, picture: true},
	{name: "settings-webhook", path: func(w *world) string { return "/settings/webhooks/" + w.webhooks[1] }, persona: admin, picture: true},
	{name: "server", path: at("/settings/server"), persona: admin},
	{name: "server-checks", path: at("/settings/server/checks"), persona: admin},
	{name: "server-mail", path: at("/settings/server/mail"), persona: admin},
	{name: "server-channels", path: at("/settings/server/channels"), persona: admin},
	{name: "server-retention", path: at("/settings/server/retention"), persona: admin},
	{name: "mailbox", path: at("/dev/mailbox")},
	{name: "mail", path: func(w *world) string {
		w.invite(w.people[admin], "guest@client.example")
		m, _ := w.mailed("guest@client.example", "/invitation")
		return "/dev/mailbox/" + m.ID
	}},
	{name: "reference", path: at("/docs/sandbox")},
	{name: "reference-rides", path: at("/docs/sandbox/rides"), picture: true},
	{name: "reference-tickets", path: at("/api/docs/tickets")},
	{name: "reference-search", path: at("/api/docs?q=reply")},
	{name: "sessions", path: at("/settings/sessions"), persona: admin},
	{name: "sessions-of-newcomer", path: at("/settings/sessions"), persona: newcomer},
	{name: "fleet", path: at("/sandbox/fleet"), persona: admin, picture: true},
	{name: "fleet-empty", path: at("/fleet"), persona: newcomer},
	{name: "fleet-map", path: at("/sandbox/fleet/map"), persona: admin, picture: true},
	{name: "fleet-map-earth", path: at("/sandbox/fleet/map?z=2&lat=40&lng=60"), persona: agent},
	{name: "fleet-map-empty", path: at("/fleet/map"), persona: newcomer},
	{name: "fleet-tasks", path: at("/sandbox/fleet/tasks"), persona: agent},
	{name: "fleet-tasks-empty", path: at("/fleet/tasks"), persona: newcomer},
	{name: "fleet-task-new", path: at("/sandbox/fleet/tasks/new"), persona: agent},
	{name: "fleet-task", path: func(w *world) string { return w.task("/sandbox/fleet/tasks/%s") }, persona: agent},
	{name: "fleet-task-edit", path: func(w *world) string { return w.task("/sandbox/fleet/tasks/%s/edit") }, persona: agent},
	{name: "fleet-zones", path: at("/sandbox/fleet/zones"), persona: admin},
	{name: "fleet-zones-empty", path: at("/fleet/zones"), persona: newcomer},
	{name: "fleet-zone-new", path: at("/sandbox/fleet/zones/new"), persona: admin, picture: true},
	{name: "not-found-inside", path: at("/settings/nowhere"), persona: admin, status: 404},
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

// at returns the path function of a page that always exists.
func at(path string) func(*world) string {
	return func(*world) string { return path }
}

// link waits for a mailed link.
func (w *world) link(to, path string) string {
	w.t.Helper()
	_, link := w.mailed(to, path)
	return link
}
