package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
)

type doctorCmd struct{}

func (*doctorCmd) Help() string {
	return `Prints one line per check: ok, warn or fail, the finding, and the remedy. Use the
configuration of the server, which may be running. The command sends no mail,
creates no database and shows no secret. The exit status is 1 if a check fails.`
}

// Run checks the deployment.
func (*doctorCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	if set.SecretKey != "" {
		set.SecretKeyFile, _ = e.sources.lookup(variable("secret-key") + "_FILE")
	}
	findings := app.Diagnose(ctx, set)
	count := map[doctor.Status]int{}
	for _, f := range findings {
		count[f.Status]++
	}
	err = e.print(findings, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, f := range findings {
			text := f.Found
			if f.Remedy != "" {
				text = strings.TrimSuffix(text, ".") + ". " + f.Remedy
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", f.Status, f.Check, text)
		}
		table.Flush()
		fmt.Fprintf(w, "\n%d ok, %d warnings, %d failures\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
	})
	if err == nil && doctor.Worst(findings) == doctor.Fail {
		err = errors.New("some checks fail")
	}
	return err
}
