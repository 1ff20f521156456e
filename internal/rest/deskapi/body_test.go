package deskapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/event"
)

// TestDeliveryBodies: the document describes every event, as the fixtures of package payload have it, and
// entries of the audit log. Every other test of this package checks the events that it causes.
func TestDeliveryBodies(t *testing.T) {
	r := newRig(t)
	files, err := filepath.Glob("../../webhook/payload/testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var seen []event.Name
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(filepath.Base(file), ".")
		name, form := parts[0]+"."+parts[1], parts[len(parts)-2]
		seen = append(seen, event.Name(name))
		r.CheckWebhook(name+map[string]string{"a": ".a"}[form], body)
	}
	for _, name := range event.Names {
		if !slices.Contains(seen, name) {
			t.Errorf("there is no fixture of %s", name)
		}
	}

	r.Do("POST", "/webhooks", `{"url":"https://example.com/hook","events":["ticket.created"]}`)
	entries, err := r.audit.After(t.Context(), r.ours.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatal("the audit log has no entries")
	}
	for i := range entries {
		record := entries[i].Record()
		record.Ledger = "helpdesk"
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		r.checkBodies(&event.Event{ID: fmt.Sprint(i), Name: event.AuditRecorded, At: time.Now(), Data: event.Data{Entry: text}})
	}
}
