// Package quotatest opens services of quotas for tests.
package quotatest

import (
	"context"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Plan is the plan of all organizations.
const Plan = "free"

// Open returns a service with the limits of the plan. Change may change its configuration.
func Open(d *db.DB, q *queue.Queue, limits quota.Limits, change ...func(*quota.Config)) *quota.Service {
	c := quota.Config{
		DB: d, Queue: q, Plans: quota.Plans{Plan: limits}, Admins: new(Mailbox), Mailer: new(Mailbox),
		Plan: func(context.Context, db.Querier, string) (string, error) { return Plan, nil },
		CountWebhooks: func(ctx context.Context, q db.Querier, organizationID string) (n int64, err error) {
			err = q.QueryRow(ctx, "SELECT count(*) FROM webhooks WHERE organization_id = $1", organizationID).Scan(&n)
			return n, err
		},
	}
	for _, fn := range change {
		fn(&c)
	}
	return quota.Open(c)
}

// Mailbox receives mails. Each organization has one admin. It is safe for concurrent use.
type Mailbox struct {
	mu       sync.Mutex
	subjects []string
}

// AdminAddresses implements [mail.Admins].
func (m *Mailbox) AdminAddresses(_ context.Context, _ db.Querier, organizationID string) ([]mail.Address, error) {
	return []mail.Address{{Address: "admin@" + organizationID + ".example"}}, nil
}

// EnqueueMailTx implements [mail.Enqueuer].
func (m *Mailbox) EnqueueMailTx(_ context.Context, tx *db.Tx, message mail.Message) error {
	tx.AfterCommit(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.subjects = append(m.subjects, message.To[0].Address+": "+message.Subject)
	})
	return nil
}

// Subjects returns the recipients and subjects of the mails since the last call.
func (m *Mailbox) Subjects() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.subjects
	m.subjects = nil
	return list
}

// Storage returns the counted bytes of an organization.
func Storage(t testing.TB, q db.Querier, organizationID string) int64 {
	return column(t, q, "storage", organizationID)
}

// Messages returns the counted messages of an organization.
func Messages(t testing.TB, q db.Querier, organizationID string) int64 {
	return column(t, q, "messages", organizationID)
}

func column(t testing.TB, q db.Querier, name, organizationID string) (n int64) {
	t.Helper()
	if err := q.QueryRow(t.Context(), "SELECT coalesce(max("+name+"), 0) FROM quotas WHERE organization_id = $1", organizationID).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// WantSums checks that the storage of each organization is the sum of its counted files, given by
// the queries of [quota.Config].
func WantSums(t testing.TB, q db.Querier, files ...string) {
	t.Helper()
	rule := quota.Invariants(files...)[0]
	broken, err := db.All(t.Context(), q, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, rule.Broken)
	if err != nil || len(broken) > 0 {
		t.Errorf("%s: not %q, %v", rule.Name, broken, err)
	}
}
