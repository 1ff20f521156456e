package settings_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/push"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web/settings"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// newHarness returns a site with the settings.
func newHarness(t *testing.T, change ...func(*account.Config)) *harness {
	t.Helper()
	h := &harness{fleet: dbtest.NewFleet(t)}
	h.Harness = webtest.NewHarness(t, append([]func(*account.Config){func(c *account.Config) {
		c.Audit = nil
		c.OnMemberRemoved = func(ctx context.Context, tx *db.Tx, organizationID, userID string, credentials bool) error {
			if !credentials {
				return nil
			}
			if _, err := h.keys.RevokeCreatedTx(ctx, tx, organizationID, userID); err != nil {
				return err
			}
			return h.hooks.DisableCreatedTx(ctx, tx, organizationID, userID)
		}
		c.OnUserDeleted = func(ctx context.Context, tx *db.Tx, userID string) error { return h.keys.RedactUserTx(ctx, tx, userID) }
	}}, change...)...)
	jobs := queue.Open(h.DB, queue.Config{})
	events := new(event.Log)
	files, err := blob.Open("file:"+t.TempDir(), blob.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	h.desk = desk.Open(desk.Config{DB: h.DB, Queue: jobs, Events: events, Blob: files, Directory: h.Accounts, Box: seal.New(seal.NewKey()), BaseURL: webtest.BaseURL})
	h.keys = apikey.Open(apikey.Config{
		DB: h.DB, Audit: h.Audit, PlanLimit: func(context.Context, string) (int64, error) { return 300, nil },
		Catalogues: map[apikey.ServiceName]apikey.Catalogue{
			apikey.Helpdesk: {Resources: []apikey.Resource{{Name: "tickets", Actions: []apikey.Action{apikey.Read}}}},
		},
	})
	h.hooks = webhook.Open(webhook.Config{DB: h.DB, Queue: jobs, Events: events, Box: seal.New(seal.NewKey()), Mailer: h.Harness, BaseURL: webtest.BaseURL, Logger: h.Log})
	h.fleetLog = audittest.Fleet(h.fleet, true)
	h.quotas = quotatest.Open(h.DB, jobs, nil)
	h.push = push.Open(push.Config{DB: h.DB, Queue: jobs, Box: seal.New(seal.NewKey())})
	h.queue = jobs
	h.imports = importer.Open(importer.Config{DB: h.DB, Desk: h.desk, Blob: files, Queue: jobs, Audit: h.Audit})
	settings.Register(h.Site, settings.Config{
		Accounts: h.Accounts, Factors: h.Factors, Billing: h.Billing, Desk: h.desk, Imports: h.imports, DB: h.DB, Keys: h.keys, Webhooks: h.hooks, Quotas: h.quotas, Push: h.push, Logs: []*audit.Log{h.Audit, h.fleetLog},
		Exports: []string{webtest.BaseURL + "/api/v1/settings/audit-log"},
	})
	return h
}

type harness struct {
	*webtest.Harness
	desk     *desk.Service
	imports  *importer.Service
	queue    *queue.Queue
	keys     *apikey.Service
	hooks    *webhook.Service
	quotas   *quota.Service
	push     *push.Service
	fleet    *db.DB
	fleetLog *audit.Log
}

func TestSessions(t *testing.T) {
	const path = "/settings/sessions"
	h := newHarness(t)
	here := h.SignIn(h.Agent)
	d := here.Page(path)
	d.Want("Sessions", "Firefox on Linux", "192.0.2.1", "Current")
	if len(d.WithAttr("name", "session")) != 0 {
		t.Error("the only session can be ended")
	}
	h.SignIn(h.Agent)
	there := h.SignIn(h.Agent)
	others := here.Page(path).WithAttr("name", "session")
	if len(others) != 2 {
		t.Fatalf("got %d other sessions, want 2", len(others))
	}
	here.WantRefused(here.Post(path, url.Values{"session": {"01985ec5-8a60-7000-8000-5a7e1c0d2b3f"}}), http.StatusNotFound)
	if _, notice := here.Follow(here.Post(path, url.Values{"session": {webtest.Attr(others[1], "value")}})); notice != "Session ended." {
		t.Errorf("got notice %q", notice)
	}
	if _, notice := here.Follow(here.Post(path, nil)); notice != "One other session ended." {
		t.Errorf("got notice %q", notice)
	}
	if w := there.Get(path); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/sign-in?next=%2Fsettings%2Fsessions" {
		t.Errorf("a session that has ended: got %d to %q", w.Code, w.Header().Get("Location"))
	}
	there.WantRefused(there.Post(path, nil), http.StatusUnauthorized).Want("Nothing was changed")
	here.Page(path)
}

// TestFrame checks the organization's name in the layout, and that a notice is shown
// once.
func TestFrame(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	d, notice := b.Follow(b.Post("/settings/sessions", nil))
	d.Want(h.Organization.Name, h.Admin.Name)
	if notice == "" || webtest.Text(b.Page("/settings/sessions").WithAttr("id", "toasts")[0]) != "" {
		t.Errorf("got notice %q, and then %q", notice, webtest.Text(b.Page("/settings/sessions").WithAttr("id", "toasts")[0]))
	}
	if w := h.SignIn(account.User{}).Get("/settings/sessions"); w.Code != http.StatusSeeOther {
		t.Errorf("nobody: got %d", w.Code)
	}
	if w := b.Do(mustRequest("PUT", "/settings/sessions")); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, POST, HEAD" {
		t.Errorf("PUT: got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func mustRequest(method, path string) *http.Request {
	r, err := http.NewRequest(method, path, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// TestViews checks the navigation by role, and the current item.
func TestViews(t *testing.T) {
	h := newHarness(t)
	views := func(u account.User) (paths []string, present string) {
		for _, ul := range h.SignIn(u).Page("/settings/sessions").WithAttr("class", "under") {
			for n := range ul.Descendants() {
				if n.Data != "a" {
					continue
				}
				paths = append(paths, webtest.Attr(n, "href"))
				if webtest.Attr(n, "aria-current") == "page" {
					present += webtest.Text(n)
				}
			}
		}
		return paths, present
	}
	for _, tt := range []struct {
		user account.User
		want int
		sees bool
	}{{h.Admin, 15, true}, {h.Agent, 8, false}} {
		paths, present := views(tt.user)
		if len(paths) != tt.want || slices.Contains(paths, "/settings/keys") != tt.sees || present != "Sessions" {
			t.Errorf("%s: got %q, at %q", tt.user.Role, paths, present)
		}
	}
}

// TestTimeZone: admins set the time zone of reports.
func TestTimeZone(t *testing.T) {
	const path = "/settings/organization/time-zone"
	h := newHarness(t)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	agent.WantRefused(agent.Post(path, url.Values{"timeZone": {"Europe/Berlin"}}), http.StatusForbidden)
	for _, zone := range []string{"", "Local", "Nowhere/<b>", "../etc"} {
		w := admin.Post(path, url.Values{"timeZone": {zone}})
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "must be an IANA time zone") {
			t.Errorf("%q: got %d", zone, w.Code)
		}
	}
	_, notice := admin.Follow(admin.Post(path, url.Values{"timeZone": {" Europe/Berlin "}}))
	if got := webtest.Attr(admin.Page("/settings/organization").Field("timeZone"), "value"); got != "Europe/Berlin" || !strings.HasPrefix(notice, "Time zone of reports set to Europe/Berlin.") {
		t.Errorf("got %q, %q", got, notice)
	}
	agent.Page("/settings/organization").Want("Europe/Berlin")
}
