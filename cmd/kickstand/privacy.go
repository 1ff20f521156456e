package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

type privacyCmd struct {
	List privacyListCmd `cmd:"" help:"List privacy requests: access to a customer's data, or redaction."`
}

type privacyListCmd struct {
	Org     string `required:"" placeholder:"SLUG" help:"Organization."`
	Waiting bool   `help:"Only open requests."`
	Limit   int    `default:"100" help:"Number of requests, newest first."`
}

func (*privacyListCmd) Help() string {
	return `Shops forward their customers' privacy requests. They are processed automatically, usually within a minute, and must be
within 30 days. The list shows delays and failures with the reason.`
}

func (c *privacyListCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		list, err := a.Shop.Requests(ctx, shop.Filter{OrganizationID: organizationID, Waiting: c.Waiting, Limit: c.Limit})
		if err != nil {
			return err
		}
		if list == nil {
			list = []*shop.Request{}
		}
		return e.print(list, func(w io.Writer) {
			if len(list) == 0 {
				fmt.Fprintf(w, "%s has no privacy requests.\n", c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "RECEIVED\tSHOP\tASKED\tCUSTOMER\tDUE\tDONE\tTRIES\tTROUBLE")
			for _, r := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", formatTime(&r.ReceivedAt), oneLine(r.Shop), privacyText(r.Kind), firstNonEmpty(oneLine(r.Subject), "-"),
					r.DueAt.Format(time.DateOnly), formatTime(momentOf(r.CompletedAt)), r.Attempts, oneLine(r.Error))
			}
			t.Flush()
		})
	})
}

// privacyText describes a privacy request.
func privacyText(k channel.PrivacyKind) string {
	switch k {
	case channel.PrivacyDataRequest:
		return "show a customer's data"
	case channel.PrivacyRedactCustomer:
		return "redact a customer"
	}
	return "redact the shop"
}
