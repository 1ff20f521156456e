package settings

import (
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// usage is the use of the organization's quotas: those with a limit.
type usage struct {
	Rows   []usageRow
	Full   []usageRow // used up, so that something is refused; of those, only messages and storage
	Resets web.Time   // when the next day of messages begins
}

type usageRow struct {
	Quota   quota.Quota
	Name    string
	Used    string
	Limit   string
	Percent int64 // at most 100
}

var quotaNames = map[quota.Quota]string{quota.Storage: "Storage", quota.Messages: "Messages today", quota.Webhooks: "Webhooks"}

func (p *pages) usage(r *web.Request) (usage, error) {
	list, err := p.Quotas.Usage(r.Context(), r.OrganizationID)
	if err != nil {
		return usage{}, err
	}
	u := usage{Resets: r.Time(quota.NextDay(r.Now))}
	for _, of := range list {
		if of.Max == quota.Unlimited {
			continue
		}
		row := usageRow{Quota: of.Quota, Name: quotaNames[of.Quota], Used: web.Number(of.Used), Limit: web.Number(of.Max), Percent: 100}
		if of.Quota == quota.Storage {
			row.Used, row.Limit = of.Quota.Amount(of.Used), of.Quota.Amount(of.Max)
		}
		if of.Used < of.Max {
			row.Percent = of.Used * 100 / of.Max
		} else if of.Quota != quota.Webhooks {
			u.Full = append(u.Full, row)
		}
		u.Rows = append(u.Rows, row)
	}
	return u, nil
}
