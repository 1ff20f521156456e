package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// compression measures a list of 100 tickets by each coding. The ceiling is the same
// list as it is, in bytes and in answers a second: what compression costs the server.
func compression(ctx context.Context, b *bench) ([]row, error) {
	const clients = 16
	n := b.scale(4000)
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
	measure := func(coding string) (size int, perSecond float64, err error) {
		get := func(c *http.Client) ([]byte, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+deskapi.Base+"/tickets?limit=100", nil)
			if err != nil {
				return nil, err
			}
			r.Header.Set("Authorization", "Bearer "+key)
			r.Header.Set("Accept-Encoding", coding)
			body, _, err := exchange(c, r)
			return body, err
		}
		body, err := get(http.DefaultClient)
		if err != nil {
			return 0, 0, err
		}
		took, _, err := load(n, clients, func(c *http.Client, _ int) error {
			_, err := get(c)
			return err
		})
		return len(body), float64(n) / took.Seconds(), err
	}
	plain, ceiling, err := measure("identity")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, coding := range []string{"gzip", "zstd"} {
		size, got, err := measure(coding)
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			row{"list of 100 tickets by " + coding + ", 16 clients", rate(got), rate(ceiling), fmt.Sprintf("%.2f", got/ceiling), "≥ 0.6"},
			row{"… size", fmt.Sprintf("%d KB", size/1000), fmt.Sprintf("%d KB", plain/1000), fmt.Sprintf("%.2f", float64(size)/float64(plain)), "≤ 0.2"})
	}
	return rows, p.stop()
}
