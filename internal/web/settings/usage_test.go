package settings_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestUsage: admins see the use of limited quotas, and all members what is used up and refused.
func TestUsage(t *testing.T) {
	h := newHarness(t)
	admin, agent := h.SignIn(h.Admin), h.SignIn(h.Agent)
	if d := admin.Page("/settings/plan"); len(d.WithAttr("id", "usage")) != 0 {
		t.Error("without limits there is a usage")
	}
	set := func(q quota.Quota, limit int64) {
		t.Helper()
		if err := h.quotas.SetLimits(t.Context(), h.Organization.ID, audit.Target{}, map[quota.Quota]*int64{q: &limit}); err != nil {
			t.Fatal(err)
		}
	}
	use := func(messages int, bytes int64) {
		t.Helper()
		if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
			for range messages {
				if err := h.quotas.AddMessageTx(t.Context(), tx, h.Organization.ID, quota.Counted); err != nil {
					return err
				}
			}
			h.quotas.AddStorageTx(t.Context(), tx, h.Organization.ID, bytes, quota.Counted)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(quota.Messages, 1500)
	set(quota.Storage, 2_000_000_000)
	use(1200, 500_000_000)
	d := admin.Page("/settings/plan")
	shown := webtest.Text(d.WithAttr("id", "usage")[0])
	for _, want := range []string{"Storage500 MB of 2 GB", "Messages today1,200 of 1,500"} {
		if !strings.Contains(shown, want) {
			t.Errorf("usage %q, want %q in it", shown, want)
		}
	}
	if strings.Contains(shown, "Webhooks") || len(d.WithAttr("id", "full-messages")) != 0 {
		t.Errorf("usage %q, want neither webhooks nor a banner", shown)
	}
	set(quota.Webhooks, 0)
	use(300, 0)
	for name, d := range map[string]webtest.Document{"plan": admin.Page("/settings/plan"), "organization": agent.Page("/settings/organization")} {
		banner := webtest.Text(d.WithAttr("id", "full-messages")[0])
		if !strings.Contains(banner, "All messages of today are used: 1,500 of 1,500. Replies are refused until ") || !strings.Contains(banner, "00:00. Messages from customers are received") {
			t.Errorf("%s: got %q", name, banner)
		}
		if len(d.WithAttr("id", "full-storage"))+len(d.WithAttr("id", "full-webhooks")) != 0 {
			t.Errorf("%s: more is full", name)
		}
	}
	use(0, 1_500_000_000)
	agent.Page("/settings/organization").Want("Storage is full: 2 GB of 2 GB.", "Replies and notes with files, and photos of tasks, are refused")
	admin.Page("/settings/plan").Want("Webhooks", "0 of 0")
	admin.Page("/settings/audit").Want("Quotas changed by the operator")
}
