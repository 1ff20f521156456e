package settings_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestVerifyAuditLog verifies an organization's chains on the page, and again after a row
// was changed in the database.
func TestVerifyAuditLog(t *testing.T) {
	const path = "/settings/audit"
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	agent := h.SignIn(h.Agent)
	agent.WantRefused(agent.Post(path+"/verify", url.Values{}), http.StatusForbidden)
	for _, l := range []*audit.Log{h.Audit, h.fleetLog} {
		for range 3 {
			if err := l.Record(t.Context(), audit.Entry{OrganizationID: h.Organization.ID, Action: "zone.created"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Post(path+"/verify", url.Values{})
	b.Page(path).Want("Verified up to", "6 entries", "Audit log verified")
	for name, form := range map[string]url.Values{
		"a log that is none": {"log": {"7"}, "total": {"0"}, "sequence": {"1"}, "hash": {strings.Repeat("0", 64)}},
		"no number":          {"log": {"0"}, "total": {"0"}, "sequence": {"x"}, "hash": {strings.Repeat("0", 64)}},
	} {
		if a := b.Post(path+"/verify", form); a.Code < 400 || a.Code >= 500 {
			t.Errorf("%s: got %d", name, a.Code)
		}
	}
	if err := h.fleet.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE audit_entries SET actor_email = 'somebody@example.com' WHERE organization_id = $1 AND sequence = 2", h.Organization.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.Post(path+"/verify", url.Values{})
	b.Page(path).Want("Verification failed", "entry 2 was altered")
}

// TestExportAuditLog exports the whole log, which is recorded.
func TestExportAuditLog(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Admin)
	if err := h.fleetLog.Record(t.Context(), audit.Entry{OrganizationID: h.Organization.ID, Action: "zone.created"}); err != nil {
		t.Fatal(err)
	}
	a := b.Post("/settings/audit/export", url.Values{})
	if a.Code != 200 || a.Header().Get("Content-Type") != "application/x-ndjson" || !strings.HasPrefix(a.Header().Get("Content-Disposition"), "attachment") {
		t.Fatalf("got %d %v", a.Code, a.Header())
	}
	var actions []string
	for line := range strings.Lines(a.Body.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.OrganizationID != h.Organization.ID || len(r.Hash) != 64 {
			t.Errorf("line %s: %v", line, err)
		}
		actions = append(actions, r.Action)
	}
	if strings.Join(actions, " ") != "audit.exported zone.created" {
		t.Errorf("exported %v", actions)
	}
}

var actionName = regexp.MustCompile(`(?:audit\.Action\s*=\s*|\bAction:\s*|\bAction\s+= +)"([a-z_]+\.[a-z_]+)"`)

// TestActionsHaveWords checks that every recorded action has a label.
func TestActionsHaveWords(t *testing.T) {
	h := newHarness(t)
	d := h.SignIn(h.Admin).Page("/settings/audit")
	known := map[string]bool{}
	for _, o := range d.All("option") {
		known[webtest.Attr(o, "value")] = true
	}
	root := os.DirFS("../..")
	found := 0
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		for _, m := range actionName.FindAllStringSubmatch(string(text), -1) {
			found++
			if !known[m[1]] {
				t.Errorf("%s: %s has no words", path, m[1])
			}
		}
		return nil
	})
	if err != nil || found < 60 {
		t.Errorf("found %d actions, %v", found, err)
	}
}
