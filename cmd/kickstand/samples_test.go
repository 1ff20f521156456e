package main

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestSampleMails sends every sample mail of the enmime module, including broken ones, by
// `trigger email --file`: each becomes a ticket, a message on one, or a recorded
// classification.
func TestSampleMails(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jhillyerd/enmime/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "mail", "*.raw"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d sample mails, want at least 40 (%v)", len(files), err)
	}
	secret := "samples-" + strings.Repeat("s", 20)
	url := dbtest.URL(t)
	s := start(t, "--data="+t.TempDir(), "--database-url="+url, "--email-raw-secret="+secret)
	if err := run(t.Context(), []string{"org", "create", "--name=Samples", "--data=" + t.TempDir(), "--database-url=" + url},
		noEnvironment, nil, io.Discard, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := run(t.Context(), []string{"trigger", "email", "--file", file, "--base-url=" + s.url, "--email-raw-secret=" + secret},
			noEnvironment, nil, io.Discard, t.Output()); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
	d := dbtest.Open(t, url)
	for range poll(t, 20*time.Second) {
		var left int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind LIKE 'inbound/%'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
	}
	type stored struct {
		State  string
		Result struct {
			Outcome  string `json:"outcome"`
			Class    string `json:"class"`
			TicketID string `json:"ticket_id"`
		}
	}
	events, err := db.All(context.Background(), d, func(row db.Row) (e stored, err error) {
		var result string
		if err := row.Scan(&e.State, db.IntoText(&result)); err != nil {
			return e, err
		}
		return e, json.Unmarshal([]byte(result), &e.Result)
	}, "SELECT state, result FROM inbound_events")
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != len(files) {
		t.Errorf("%d mails are stored, want %d", len(events), len(files))
	}
	for _, e := range events {
		if e.State != "processed" || e.Result.TicketID == "" && (e.Result.Outcome != "recorded" || e.Result.Class == "") {
			t.Errorf("a mail ended as %+v", e)
		}
	}
	s.stop()
}
