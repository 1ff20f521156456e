package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestStorefront receives a shop's customer and privacy requests, with the commands that
// handle them.
func TestStorefront(t *testing.T) {
	t.Parallel()
	flags := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--storefront-secret=secret of the app", "--storefront-api-secret=secret of the API"}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, flags...)...)
	command(t, nil, append([]string{"user", "create", "--org=acme", "--role=admin", "--email=admin@acme.example", "--password=correct horse battery"}, flags...)...)
	s := start(t, flags...)
	trigger := func(channel, event, want string) {
		t.Helper()
		var outcomes []outcome
		command(t, &outcomes, "trigger", channel, "--event="+event, "--base-url="+s.url, "--storefront-secret=secret of the app", "--storefront-api-secret=secret of the API")
		if len(outcomes) != 1 || outcomes[0].Status != http.StatusOK || !strings.Contains(outcomes[0].Body, want) {
			t.Errorf("%s %s was answered %+v, want 200 %s", channel, event, outcomes, want)
		}
	}
	type request struct {
		Kind        string     `json:"kind"`
		Shop        string     `json:"shop"`
		Subject     string     `json:"subject"`
		ReceivedAt  time.Time  `json:"received_at"`
		DueAt       time.Time  `json:"due_at"`
		CompletedAt *time.Time `json:"completed_at"`
	}
	list := func(args ...string) (list []request) {
		t.Helper()
		command(t, &list, append(append([]string{"privacy", "list", "--org=acme"}, args...), flags...)...)
		return list
	}
	if got := list(); len(got) != 0 {
		t.Errorf("privacy list = %+v before anything was asked for", got)
	}
	for _, event := range storefrontTrigger().events {
		trigger("storefront", event, "accepted")
	}
	kinds := storefrontPrivacyTrigger().events
	for i, event := range kinds {
		trigger("storefront-privacy", event, "accepted")
		for range poll(t, 30*time.Second) {
			if len(list()) == i+1 && len(list("--waiting")) == 0 {
				break
			}
		}
	}
	got := list()
	if len(got) != 3 {
		t.Fatalf("privacy list has %d requests, want 3: %+v", len(got), got)
	}
	for i, r := range got { // newest first
		if r.Kind != kinds[2-i] || r.Shop != demoShop || r.Subject != "" || r.CompletedAt == nil || r.DueAt.Sub(r.ReceivedAt) != 30*24*time.Hour {
			t.Errorf("request %d is %+v, want %s, done, about nobody", i, r, kinds[2-i])
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"privacy", "list", "--org=acme"}, flags...), noEnvironment, nil, &out, t.Output()); err != nil || strings.Count(out.String(), "\n") != 4 || !strings.Contains(out.String(), "redact a customer") {
		t.Errorf("privacy list printed %q, %v", out.String(), err)
	}
	resp, err := http.Get(s.url + "/privacy/exports/ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a link that nobody got was answered %d, want 404", resp.StatusCode)
	}
	s.stop()
}
