package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/ops"
)

type verifyCmd struct {
	Blobs bool `help:"Also read every attachment and compare its content with its digest."`
}

func (*verifyCmd) Help() string {
	return `Checks rules that always hold of stored records: every message is in a ticket,
every accepted event has a job, the audit chains are complete, every attachment is
stored. Prints one line per rule with the number of records, and the ids of some
that break it. The exit status is 1 if a rule is broken. A server may run.

Use the server's configuration: the retention decides which events must exist.`
}

// Run verifies the stored records.
func (c *verifyCmd) Run(ctx context.Context, e *env) error {
	checks := []ops.Check{}
	broken := 0
	err := e.with(ctx, func(a *app.App) error {
		return a.Verify(ctx, c.Blobs, func(check ops.Check) error {
			checks = append(checks, check)
			if !check.OK() {
				broken++
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if err := e.print(checks, func(w io.Writer) { printChecks(w, checks) }); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d rules are broken", broken, len(checks))
	}
	return nil
}

func printChecks(w io.Writer, checks []ops.Check) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	var broken int64
	for _, c := range checks {
		result := "ok"
		if !c.OK() {
			result = "BROKEN"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", result, c.Database, c.Name, c.Records)
		for _, example := range c.Examples {
			fmt.Fprintf(t, "\t\t  %s\t\n", oneLine(example))
		}
		if more := c.Broken - int64(len(c.Examples)); more > 0 {
			fmt.Fprintf(t, "\t\t  and %d more\t\n", more)
		}
		broken += c.Broken
	}
	t.Flush()
	fmt.Fprintf(w, "\n%d rules, %d broken records\n", len(checks), broken)
}
