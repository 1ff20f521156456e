package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// ParseQuotas parses limits of organizations by plan, such as "messages=10000,free.storage=1GB".
func ParseQuotas(list []string) (quota.Plans, error) {
	return quota.ParsePlans(list, string(account.Free), string(account.Pro), string(account.Business))
}

// countedFiles are the queries of the files that are part of an organization's storage.
var countedFiles = []string{desk.CountedFiles, inbound.CountedFiles}

func (a *App) openQuotas(out *outbox) *quota.Service {
	for _, q := range quota.All {
		a.metrics.AddQuota(string(q))
	}
	return quota.Open(quota.Config{
		DB: a.DB, Queue: a.queue, Plans: a.config.Quotas, CountWebhooks: webhook.Total, Files: countedFiles, Elsewhere: a.photoBytes,
		Plan: func(ctx context.Context, q db.Querier, organizationID string) (string, error) {
			plan, err := a.Accounts.Plan(ctx, q, organizationID)
			return string(plan), err
		},
		Admins: admins{a.Accounts}, Mailer: out, BaseURL: a.config.BaseURL, Audit: a.Audit,
		Observe: func(q quota.Quota, outcome string) { a.metrics.Quota(string(q), outcome) }, Logger: a.log,
	})
}

// photoBytes returns the bytes of an organization's photos of tasks in both fleets, without those in
// except.
func (a *App) photoBytes(ctx context.Context, organizationID string, except *db.DB) (sum int64, err error) {
	for _, f := range []Fleet{a.Fleet, a.Sandbox} {
		if f.DB == except {
			continue
		}
		n, err := f.PhotoBytes(ctx, f.DB, organizationID)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// countStorage counts the files of all organizations with limited storage that are not counted
// yet: those stored before the limit, or by a previous version of the program.
func (a *App) countStorage(ctx context.Context) error {
	list, err := a.Accounts.Organizations(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range list {
		errs = append(errs, a.CountStorage(ctx, o.ID))
	}
	return errors.Join(errs...)
}

// CountStorage counts the files of an organization that are not counted yet, if its storage is
// limited.
func (a *App) CountStorage(ctx context.Context, organizationID string) error {
	counts, err := a.Quotas.Counts(ctx, a.DB, organizationID, quota.Storage)
	if err != nil || !counts {
		return err
	}
	if err := errors.Join(a.Desk.CountFiles(ctx, organizationID), a.Inbound.CountBodies(ctx, organizationID)); err != nil {
		return fmt.Errorf("organization %s: %w", organizationID, err)
	}
	return nil
}
