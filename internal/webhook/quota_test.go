package webhook_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// TestQuota: of simultaneous creations as many succeed as the organization's limit allows. Those of
// another organization do not count.
func TestQuota(t *testing.T) {
	r := newRig(t, dbtest.New(t), newNetwork(t), func(c *webhook.Config) {
		c.Quotas = quotatest.Open(c.DB, c.Queue, quota.Limits{quota.Webhooks: 3})
	})
	n := webhook.New{URL: "https://receiver.example.com/hook", Events: []string{"*"}}
	if _, err := r.hooks.Create(t.Context(), otherOrg, n); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var created []string
	for range 12 {
		wg.Go(func() {
			w, err := r.hooks.Create(t.Context(), org, n)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created = append(created, w.ID)
			} else if p, ok := errors.AsType[*problem.Error](err); !ok || p.Code != quota.CodeExceeded || p.Kind != problem.Precondition {
				t.Errorf("got %v, want %s", err, quota.CodeExceeded)
			}
		})
	}
	wg.Wait()
	if len(created) != 3 {
		t.Fatalf("%d webhooks were created, want 3", len(created))
	}
	if err := r.hooks.Delete(t.Context(), org, created[0]); err != nil {
		t.Fatal(err)
	}
	r.create(n)
}
