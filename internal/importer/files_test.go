package importer_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/period"
)

// files is a transport that answers from a map of addresses.
type files map[string]string

func (f files) RoundTrip(r *http.Request) (*http.Response, error) {
	text, ok := f[r.URL.String()]
	if !ok {
		return nil, errors.New("no such host")
	}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Request: r, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestFetchedLater: a file that could not be fetched is reported, and a further run brings it, once.
func TestFetchedLater(t *testing.T) {
	r := newRig(t)
	const query = "SELECT size, coalesce(error, '') FROM attachments WHERE name = 'far.txt'"
	first := r.run(imported(importer.Zendesk, org))
	if got := r.rows(query); first.Counts.MissingFiles != 1 || !slices.Equal(got, []string{"0 | the file is not in the folder beside the source"}) {
		t.Errorf("%d missing, %q", first.Counts.MissingFiles, got)
	}
	r.imports.SetPublic(files{"https://files.invalid/902": "from far away"})
	second := r.run(imported(importer.Zendesk, org))
	if got := r.rows(query); second.Counts.Files != 1 || second.Counts.MissingFiles != 0 || !slices.Equal(got, []string{"13 | "}) {
		t.Errorf("%+v, %q", second.Counts, got)
	}
	r.imports.SetPublic(nil) // it is not fetched again
	if third := r.run(imported(importer.Zendesk, org)); third.Counts.Files+third.Counts.MissingFiles != 0 {
		t.Errorf("%+v", third.Counts)
	}
}

// TestReports: imported tickets count at their own times.
func TestReports(t *testing.T) {
	r := newRig(t)
	r.run(imported(importer.Zendesk, org))
	at := func(year int) desk.ReportFigures {
		report, err := r.desk.Report(t.Context(), org, desk.ReportQuery{
			From: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC), Granularity: period.Month, Location: time.UTC,
		})
		if err != nil {
			t.Fatal(err)
		}
		return report.Totals
	}
	if past, now := at(2022), at(r.db.Now().Year()); past.Created != 4 || past.Resolved != 3 || now.Created != 0 || now.Resolved != 0 {
		t.Errorf("2022: %+v, now: %+v", past, now)
	}
}

// TestNewerExport: a newer export adds the messages that a ticket lacks.
func TestNewerExport(t *testing.T) {
	r := newRig(t)
	n := imported(importer.Mbox, org)
	n.Path = "testdata/mbox/Inbox.mbox"
	r.run(n)
	run := r.run(imported(importer.Mbox, org)) // with Sent
	got := r.rows("SELECT t.subject, count(*) FROM tickets t JOIN messages m ON m.ticket_id = t.id GROUP BY t.subject ORDER BY t.subject")
	if want := []string{"No id | 1", "Rechnung für Mai | 2", "The lock does not open | 3"}; run.Counts.Tickets != 0 || run.Counts.Messages != 2 || !slices.Equal(got, want) {
		t.Errorf("%+v, %q, want %q", run.Counts, got, want)
	}
}
