package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// readyTimeout is longer than the server takes for /readyz at most.
const readyTimeout = 4 * time.Second

type readyCmd struct {
	Server string `arg:"" optional:"" help:"URL of the server. Default: the address of --listen on this machine."`
}

func (*readyCmd) Help() string {
	return `Asks a running server whether it can work (GET /readyz) and prints the parts of the
answer. The exit status is 1 unless it is ready: use it as the health check of a
container, which has no shell.`
}

// Run prints the answer of /readyz.
func (c *readyCmd) Run(ctx context.Context, e *env) error {
	server := strings.TrimSuffix(cmp.Or(c.Server, localURL(e.Listen)), "/")
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		return usageError{fmt.Errorf("server: %w", err)}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w (is the server running there?)", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", server, err)
	}
	var report struct {
		Status string `json:"status"`
		Parts  map[string]struct {
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"parts"`
	}
	if err := json.Unmarshal(body, &report); err != nil || report.Status == "" {
		return fmt.Errorf("%s/readyz answers %s, but not as a Kickstand server", server, resp.Status)
	}
	err = e.print(json.RawMessage(body), func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, name := range slices.Sorted(maps.Keys(report.Parts)) {
			fmt.Fprintf(table, "%s\t%s\t%s\n", report.Parts[name].Status, name, report.Parts[name].Reason)
		}
		table.Flush()
	})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New("the server is not ready")
	}
	return err
}
