package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// compression measures a list of 100 tickets by each coding. The ceiling is the
// uncompressed list, in bytes and in responses a second: the cost of compression.
func compression(ctx context.Context, b *bench) ([]row, error) {
	const clients, rounds = 16, 8
	n := b.brief(4000)
	p, key, err := b.openKeyed(ctx, "compression")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	for i := range 100 {
		r, err := ticketRequest(ctx, p.url, key, i)
		if err != nil {
			return nil, err
		}
		if _, _, err := exchange(http.DefaultClient, r); err != nil {
			return nil, err
		}
	}
	get := func(c *http.Client, coding string) (size int, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+deskapi.Base+"/tickets?limit=100", nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Accept-Encoding", coding)
		body, _, err := exchange(c, r)
		return len(body), err
	}
	// Alternating, so that other load affects all.
	codings := []string{"identity", "gzip", "zstd"}
	sizes, took := make([]int, len(codings)), make([]time.Duration, len(codings))
	for range rounds {
		for i, coding := range codings {
			if sizes[i], err = get(http.DefaultClient, coding); err != nil {
				return nil, err
			}
			d, _, err := load(n/rounds, clients, func(c *http.Client, _ int) error {
				_, err := get(c, coding)
				return err
			})
			if err != nil {
				return nil, err
			}
			took[i] += d
		}
	}
	perSecond := func(i int) float64 { return float64(n/rounds*rounds) / took[i].Seconds() }
	var rows []row
	for i, coding := range codings[1:] {
		got, ceiling := perSecond(i+1), perSecond(0)
		rows = append(rows,
			besideCeiling("list of 100 tickets by "+coding+", 16 clients", got, ceiling, "≥ 0.6"),
			row{"… size", fmt.Sprintf("%d KB", sizes[i+1]/1000), fmt.Sprintf("%d KB", sizes[0]/1000), fmt.Sprintf("%.2f", float64(sizes[i+1])/float64(sizes[0])), "≤ 0.2"})
	}
	return rows, p.stop()
}
