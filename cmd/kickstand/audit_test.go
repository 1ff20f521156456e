package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestAudit lists, exports and verifies the log, also a broken one.
func TestAudit(t *testing.T) {
	databaseURL := dbtest.URL(t)
	data := t.TempDir()
	common := []string{"--data=" + data, "--database-url=" + databaseURL}
	command := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, common...), noEnvironment, strings.NewReader(""), &out, t.Output())
		return out.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := command(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	must("org", "create", "--name=Acme")
	const secret = "planted-" + "signing-secret"
	key := must("key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Export", "--level=read_only", "--json")
	must("channel", "connect", "sms", "--org=acme", "--address=+14155550100", "--secret="+secret)
	var token struct {
		ID, Key string
	}
	if err := json.Unmarshal([]byte(key), &token); err != nil || token.Key == "" {
		t.Fatal(key, err)
	}
	var list []audit.Record
	if err := json.Unmarshal([]byte(must("audit", "list", "--org=acme", "--group=api_key", "--json")), &list); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if e := list[0]; e.Action != "api_key.created" || e.Target.ID != token.ID || e.Actor.Type != audit.Operator || e.Surface != audit.CLI || e.Sequence < 1 || len(e.Hash) != 64 {
		t.Errorf("got %+v", e)
	}
	if out := must("audit", "list", "--org=acme", "--action=api_key.created"); !strings.Contains(out, "api_key.created  done     operator") {
		t.Errorf("got %s", out)
	}
	if out := must("audit", "list", "--org=acme", "--target=nothing"); out != "No entry matches.\n" {
		t.Errorf("got %q", out)
	}
	export := must("audit", "export", "--org=acme")
	for line := range strings.Lines(export) {
		var e audit.Record
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("line %q: %v", line, err)
		}
	}
	for _, planted := range []string{secret, token.Key, token.Key[8:38]} {
		if strings.Contains(export, planted) {
			t.Errorf("the export has a secret")
		}
	}
	if out := must("audit", "list", "--org=acme", "--action=audit.exported", "--json"); !strings.Contains(out, `"entries"`) {
		t.Errorf("the export was not recorded: %s", out)
	}

	clean := must("audit", "verify", "--json")
	earlier := filepath.Join(t.TempDir(), "heads.json")
	if err := os.WriteFile(earlier, []byte(clean), 0o600); err != nil {
		t.Fatal(err)
	}
	must("key", "revoke", "--yes", token.ID)
	if out := must("audit", "verify", "--against="+earlier); !strings.HasPrefix(out, "Verified ") {
		t.Errorf("got %s", out)
	}
	_, err := command("audit", "verify", "--against="+data)
	if _, wrong := errors.AsType[usageError](err); !wrong {
		t.Errorf("against a folder: %v, want a usage error", err)
	}
	d := dbtest.Open(t, databaseURL)
	var organization string
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		if err := tx.QueryRow(t.Context(), "SELECT id FROM organizations").Scan(&organization); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE audit_entries SET actor_id = 'mallory' WHERE action = 'api_key.revoked'")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := command("audit", "verify")
	if err == nil || !strings.Contains(err.Error(), "1 of ") || !strings.Contains(out, "BROKEN  helpdesk  organization "+organization+"  entry ") {
		t.Errorf("after a byte was changed: %s%v", out, err)
	}
	if out, err := command("audit", "verify", "--org=acme", "--json"); err == nil || !strings.Contains(out, `"ok": false`) {
		t.Errorf("of the organization: %s%v", out, err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		for _, chain := range []string{"DELETE FROM audit_entries WHERE organization_id = $1 OR target_id = $1", "DELETE FROM audit_heads WHERE organization_id = $1"} {
			if _, err := tx.Exec(t.Context(), chain, organization); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err = command("audit", "verify", "--org=acme")
	if err == nil || !strings.Contains(out, "BROKEN  helpdesk  organization "+organization+"  entry 1: the chain is missing") ||
		!strings.Contains(out, "BROKEN  helpdesk  organization (the deployment)  entry ") || !strings.Contains(out, "EMPTY   fleet_live  organization "+organization) {
		t.Errorf("after the chain was removed whole: %s%v", out, err)
	}
}

// TestAuditCrash kills the server at random times during audited changes. The chains must
// verify, and each acknowledged change must have its entry.
func TestAuditCrash(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 8
	}
	p := newPatient(t)
	p.start()
	const password = "crash-test-password"
	p.command("org", "create", "--name=Crash")
	p.command("user", "create", "--email=admin@example.com", "--password="+password, "--org=crash", "--role=admin")
	c := browser(t)
	c.Timeout = 20 * time.Second
	call(t, c, p.url, "auth.signInWithPassword", map[string]any{"email": "admin@example.com", "password": password}, nil)

	load, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	made := map[string]bool{} // ids of acknowledged webhooks
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; load.Err() == nil; i++ {
				var hook struct{ ID string }
				err := mutate(load, c, p.url, "webhooks.create", map[string]any{
					"url": fmt.Sprintf("%s/%d-%d", p.receiver.URL, w, i), "events": []string{"ticket.created"},
				}, &hook)
				if err != nil {
					continue // unknown whether it was created
				}
				mu.Lock()
				made[hook.ID] = true
				mu.Unlock()
				var done struct{ Success bool }
				mutate(load, c, p.url, "webhooks.delete", map[string]any{"id": hook.ID}, &done) // acknowledged or not
			}
		})
	}
	for range kills {
		select { // deliberately random
		case <-time.After(20*time.Millisecond + time.Duration(rand.Int64N(int64(250*time.Millisecond)))):
		case <-t.Context().Done():
		}
		p.kill()
		p.start()
	}
	stop()
	writers.Wait()
	p.kill()

	p.command("audit", "verify")
	entries, err := db.All(t.Context(), p.watch, func(row db.Row) (id string, err error) { return id, row.Scan(&id) },
		"SELECT target_id FROM audit_entries WHERE action = 'webhook.created'")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, id := range entries {
		count[id]++
	}
	for id := range made {
		if count[id] != 1 {
			t.Errorf("the creation of webhook %s was acknowledged and has %d entries, want 1", id, count[id])
		}
	}
	for id, n := range count {
		if n > 1 {
			t.Errorf("the creation of webhook %s has %d entries", id, n)
		}
	}
	if len(made) == 0 {
		t.Error("nothing was made")
	}
	t.Logf("%d kills, %d changes acknowledged, %d recorded", kills, len(made), len(entries))
}

// mutate calls a mutation once and decodes its output. After an error the outcome is
// unknown.
func mutate(ctx context.Context, c *http.Client, base, procedure string, input, output any) error {
	body, err := json.Marshal(map[string]any{"json": input})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/trpc/"+procedure, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", procedure, resp.Status)
	}
	var envelope struct {
		Result struct {
			Data struct{ JSON json.RawMessage }
		}
	}
	if err := json.Unmarshal(answer, &envelope); err != nil {
		return err
	}
	return json.Unmarshal(envelope.Result.Data.JSON, output)
}
