package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

type orgQuotaCmd struct {
	Slug     string  `arg:"" help:"Slug of the organization."`
	Storage  *string `placeholder:"SIZE|unlimited|plan" help:"Bytes of files, such as 500MB or 1.5GB; unlimited; or plan for the plan's limit."`
	Messages *string `placeholder:"N|unlimited|plan" help:"Messages per day (UTC), received and sent."`
	Webhooks *string `placeholder:"N|unlimited|plan" help:"Webhooks."`
	Recount  bool    `help:"Compute the use of storage anew, if kickstand verify reports that it is wrong."`
}

func (*orgQuotaCmd) Help() string {
	return `Without options it shows the quotas and their use. Limits of plans are the setting
--quotas. A limit set here replaces them for this organization, within five seconds
on all servers. Setting a limit of storage counts the files stored so far.

Beyond a quota, replies, files and webhooks of members and API keys are refused.
Messages from customers are received in any case.`
}

// planLimit removes the organization's own limit.
const planLimit = "plan"

// limits returns the limits to set; nil: the plan's.
func (c *orgQuotaCmd) limits() (map[quota.Quota]*int64, error) {
	set := make(map[quota.Quota]*int64)
	for q, text := range map[quota.Quota]*string{quota.Storage: c.Storage, quota.Messages: c.Messages, quota.Webhooks: c.Webhooks} {
		if text == nil {
			continue
		}
		if *text == planLimit {
			set[q] = nil
			continue
		}
		n, err := q.ParseLimit(*text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w, nor %s", q, err, planLimit)
		}
		set[q] = &n
	}
	return set, nil
}

func (c *orgQuotaCmd) Run(ctx context.Context, e *env) error {
	set, err := c.limits()
	if err != nil {
		return usageError{err}
	}
	return e.with(ctx, func(a *app.App) error {
		o, err := a.Accounts.OrganizationBySlug(ctx, c.Slug)
		if err != nil {
			return withListHint(err, "org list")
		}
		if err := c.apply(ctx, a, o, set); err != nil {
			return err
		}
		list, err := showQuotas(ctx, a, o.ID)
		if err != nil {
			return err
		}
		record := struct {
			ID     string       `json:"id"`
			Slug   string       `json:"slug"`
			Plan   account.Plan `json:"plan"`
			Quotas []shownQuota `json:"quotas"`
		}{o.ID, o.Slug, o.Plan, list}
		return e.print(record, func(w io.Writer) { printQuotas(w, list) })
	})
}

// apply sets limits and counts what they limit.
func (c *orgQuotaCmd) apply(ctx context.Context, a *app.App, o account.Organization, set map[quota.Quota]*int64) error {
	target := audit.Target{Type: "organization", ID: o.ID, Name: o.Name}
	var errs []error
	if len(set) > 0 {
		errs = append(errs, a.Quotas.SetLimits(ctx, o.ID, target, set), a.CountStorage(ctx, o.ID))
	}
	if c.Recount {
		errs = append(errs, a.Quotas.Recount(ctx, o.ID, target))
	}
	return errors.Join(errs...)
}

// shownQuota is the printed form of a quota with its use.
type shownQuota struct {
	Quota  quota.Quota  `json:"quota"`
	Limit  *int64       `json:"limit"`  // null: unlimited
	Source quota.Source `json:"source"` // of the limit; empty: none
	Used   *int64       `json:"used"`   // null: not counted without a limit

	usage quota.Usage
}

func showQuotas(ctx context.Context, a *app.App, organizationID string) ([]shownQuota, error) {
	usage, err := a.Quotas.Usage(ctx, organizationID)
	if err != nil {
		return nil, err
	}
	list := make([]shownQuota, len(usage))
	for i, u := range usage {
		list[i] = shownQuota{Quota: u.Quota, Source: u.Source, usage: u}
		if u.Max != quota.Unlimited {
			list[i].Limit = &u.Max
		}
		if u.Counted() {
			list[i].Used = &u.Used
		}
	}
	return list, nil
}

func printQuotas(w io.Writer, list []shownQuota) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "QUOTA\tUSED\tLIMIT\tSET BY")
	for _, s := range list {
		used := "not counted"
		if s.Used != nil {
			used = s.Quota.Amount(*s.Used)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Quota, used, s.Quota.Amount(s.usage.Max), firstNonEmpty(string(s.Source), "-"))
	}
	t.Flush()
}
