package reports_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/web/reports"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

type harness struct {
	*webtest.Harness
	t       testing.TB
	tickets int
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{Harness: webtest.NewHarness(t), t: t}
	service := desk.Open(desk.Config{DB: h.DB, Queue: queue.Open(h.DB, queue.Config{}), Events: new(event.Log), BaseURL: webtest.BaseURL, Logger: h.Log})
	reports.Register(h.Site, reports.Config{Accounts: h.Accounts, Desk: service})
	return h
}

// ticket adds a ticket that was created at a time, and answered after ten minutes.
func (h *harness) ticket(organizationID string, created time.Time, channel, assignee string, tags ...string) {
	h.t.Helper()
	h.tickets++
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(h.t.Context(), `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id,
			created_at, updated_at, assignee_id, tags, first_responded_at) VALUES ($1, $2, $3, '', 'open', 'normal', $4, '', $5, $5, $6, $7, $8)`,
			fmt.Sprint("ticket-", h.tickets), organizationID, h.tickets, channel, created.UnixMicro(), db.Text(assignee), db.JSON(tags), created.Add(10*time.Minute).UnixMicro())
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) rows(b *webtest.Browser, path string) [][]string {
	h.t.Helper()
	w := b.Get(path)
	if text := w.Body.String(); strings.Count(text, "\r\n") != strings.Count(text, "\n") {
		h.t.Errorf("%s: lines do not end in CRLF: %q", path, text)
	}
	rows, err := csv.NewReader(w.Body).ReadAll()
	if w.Code != http.StatusOK || err != nil || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
		h.t.Fatalf("%s: %d, %v", path, w.Code, err)
	}
	return rows
}

func TestReports(t *testing.T) {
	h := newHarness(t)
	agent := h.SignIn(h.Agent)
	agent.Page("/reports").Want("No tickets in this period")
	if _, err := h.Accounts.SetTimeZone(t.Context(), h.Organization.ID, "Europe/Berlin"); err != nil {
		t.Fatal(err)
	}
	// The day on which the clocks of Berlin are set forward.
	first := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)
	h.ticket(h.Organization.ID, first.Add(-time.Microsecond), "email", "", "old")
	h.ticket(h.Organization.ID, first, "sms", h.Agent.ID, "=cmd", "brake")
	h.ticket(h.Organization.ID, first.Add(23*time.Hour-time.Microsecond), "email", "")
	h.ticket(h.Organization.ID, first.Add(23*time.Hour), "email", "", "next")
	h.ticket(h.NewOrganization("Strangers").ID, first.Add(time.Hour), "voice", "", "theirs")
	const day = "?days=dates&from=2026-03-29&to=2026-03-29"
	d := agent.Page("/reports" + day)
	d.Want("New tickets", "Backlog", "First response", "10 min", "Europe/Berlin", "By Channel", "SMS", "E-mail", "Show tables")
	if text := webtest.Text(d.All("main")[0]); strings.Contains(text, "Voice") {
		t.Error("the page shows tickets of strangers")
	}
	if n := len(d.WithAttr("class", "card chart")); n != 6 {
		t.Errorf("%d charts, want 6", n)
	}
	if n := len(agent.Page("/reports"+day+"&view=table").WithAttr("data-label", "Period")); n != 6 {
		t.Errorf("%d periods in tables, want one of each chart", n)
	}
	agent.Page("/reports"+day+"&by=tag").Want("By Tag", "brake", "No tag", "in the row of each")
	agent.Page("/reports"+day+"&by=assignee").Want("Ben", "Unassigned")

	rows := h.rows(agent, "/reports/export"+day)
	if want := []string{"2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2", "0", "0", "3", "2", "600", "600", "0", "", "", "0", "0"}; len(rows) != 2 || !slices.Equal(rows[1], want) {
		t.Errorf("got %q, want %q", rows, want)
	}
	var tags []string
	for _, row := range h.rows(agent, "/reports/export"+day+"&by=tag&rows=groups")[1:] {
		tags = append(tags, row[0]+" "+row[1]+" "+row[4])
	}
	if want := []string{"No tag 1 1", "'=cmd 1 1", "brake 1 1", "old 0 1"}; !slices.Equal(tags, want) {
		t.Errorf("got %q, want %q", tags, want)
	}
}

// TestSelectedPeriods: the page stays small, and exports have the selected periods.
func TestSelectedPeriods(t *testing.T) {
	h := newHarness(t)
	h.ticket(h.Organization.ID, h.Accounts.Now().Add(-time.Hour), "email", "")
	b := h.SignIn(h.Agent)
	for query, want := range map[string]int{"": 30, "?days=365&per=day": 365, "?days=90&per=day": 90, "?days=7": 7} {
		if got := len(h.rows(b, "/reports/export"+query)) - 1; got != want {
			t.Errorf("%s: %d periods in the export, want %d", query, got, want)
		}
		if w := b.Get("/reports" + query); w.Code != http.StatusOK || w.Body.Len() > 40_000 {
			t.Errorf("%s: got %d, %d bytes", query, w.Code, w.Body.Len())
		}
	}
	if n := len(b.Page("/reports?days=90&per=day&view=table").WithAttr("data-label", "Period")) / 6; n > 14 {
		t.Errorf("%d periods of 90 days, want weeks", n)
	}
}

func TestReportsOfWrongDates(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	for _, query := range []string{"from=2026-02-30&to=2026-03-01", "from=2026-03-01", "from=2026-03-02&to=2026-03-01", "from=2020-01-01&to=2026-01-01", "from=0001-01-01&to=0001-01-01"} {
		for _, path := range []string{"/reports", "/reports/export"} {
			if w := b.Get(path + "?days=dates&" + query); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s: got %d", query, w.Code)
			}
		}
	}
	for _, query := range []string{"days=-3", "days=x", "per=minute", "by=status"} { // the default values
		b.Page("/reports?" + query)
	}
}
