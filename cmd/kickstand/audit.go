package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
)

// commandSource returns the audit source of commands: the operator, with the name of
// their account on this machine.
func commandSource() audit.Source {
	s := audit.Source{Actor: audit.Actor{Type: audit.Operator}, Surface: audit.CLI}
	if u, err := user.Current(); err == nil {
		s.Actor.ID = u.Username
	}
	return s
}

type auditCmd struct {
	List   auditListCmd   `cmd:"" help:"List entries, newest first."`
	Verify auditVerifyCmd `cmd:"" help:"Verify that no entry was altered, removed or moved."`
	Export auditExportCmd `cmd:"" help:"Write the whole log as NDJSON, one entry per line."`
}

// auditOf selects a log.
type auditOf struct {
	Org string `placeholder:"SLUG" help:"Organization (default: the deployment's log, with sign-ins of unknown users and commands without an organization)."`
}

func (o auditOf) with(ctx context.Context, e *env, fn func(a *app.App, organizationID string) error) error {
	if o.Org == "" {
		return e.with(ctx, func(a *app.App) error { return fn(a, "") })
	}
	return e.withOrganization(ctx, o.Org, fn)
}

type auditListCmd struct {
	Of     auditOf   `embed:""`
	Action string    `placeholder:"ACTION" help:"Only this action, such as member.removed."`
	Group  string    `placeholder:"GROUP" help:"Only actions of this group, the part before the dot: member."`
	Actor  string    `placeholder:"ID" help:"Only actions of this user or key."`
	Target string    `placeholder:"ID" help:"Only actions on this record."`
	From   time.Time `placeholder:"TIME" format:"2006-01-02T15:04:05Z07:00" help:"From this time on, such as 2026-12-25T08:00:00Z."`
	To     time.Time `placeholder:"TIME" format:"2006-01-02T15:04:05Z07:00" help:"Before this time."`
	Limit  int       `default:"50" help:"Number of entries, at most 500."`
}

func (c *auditListCmd) Run(ctx context.Context, e *env) error {
	return c.Of.with(ctx, e, func(a *app.App, organizationID string) error {
		page, err := audit.List(ctx, a.AuditLogs(), organizationID, audit.Query{
			Action: c.Action, Group: c.Group, ActorID: c.Actor, TargetID: c.Target, From: c.From, To: c.To, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		shown := make([]audit.Record, len(page.Entries))
		for i := range page.Entries {
			shown[i] = page.Entries[i].Record()
		}
		return e.print(shown, func(w io.Writer) {
			if len(shown) == 0 {
				fmt.Fprintln(w, "No entry matches.")
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "TIME\tACTION\tOUTCOME\tACTOR\tTARGET\tADDRESS")
			for _, s := range shown {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.At.Format(time.RFC3339), s.Action, firstNonEmpty(s.Outcome, "done"),
					oneLine(string(s.Actor.Type)+" "+firstNonEmpty(s.Actor.Email, s.Actor.ID)), firstNonEmpty(oneLine(firstNonEmpty(s.Target.Name, s.Target.ID)), "-"), firstNonEmpty(s.IP, "-"))
			}
			t.Flush()
		})
	})
}

type auditExportCmd struct {
	Of auditOf `embed:""`
}

func (*auditExportCmd) Help() string {
	return `Writes the entries of all three databases, newest first, from one snapshot of each.`
}

func (c *auditExportCmd) Run(ctx context.Context, e *env) error {
	return c.Of.with(ctx, e, func(a *app.App, organizationID string) error {
		out := bufio.NewWriter(e.out)
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		n := 0
		err := audit.Each(ctx, a.AuditLogs(), organizationID, audit.Query{}, func(entry *audit.Entry) error {
			n++
			return enc.Encode(entry.Record())
		})
		if err := errors.Join(err, out.Flush()); err != nil {
			return err
		}
		return a.Audit.Record(ctx, audit.Entry{OrganizationID: organizationID, Action: audit.Exported, Details: map[string]any{"entries": n}})
	})
}

type auditVerifyCmd struct {
	Of      auditOf `embed:""`
	Against string  `placeholder:"FILE" help:"Output of an earlier 'kickstand audit verify --json': the chains must contain its heads."`
}

func (*auditVerifyCmd) Help() string {
	return `Verifies the chains of all three databases, or those of --org and the deployment. The exit status is 1 if any is broken; the
output names the organization and the first bad entry. To detect that a whole database was restored to an earlier state,
store the output of --json on another machine and compare with --against.`
}

func (c *auditVerifyCmd) Run(ctx context.Context, e *env) error {
	known, err := readHeads(c.Against)
	if err != nil {
		return err
	}
	reports := []audit.Report{}
	broken := 0
	err = c.Of.with(ctx, e, func(a *app.App, organizationID string) error {
		v := audit.Verification{Known: known, Progress: e.progress()}
		if c.Of.Org != "" {
			v.OrganizationID = &organizationID
		}
		for _, l := range a.AuditLogs() {
			err := l.Verify(ctx, v, func(r audit.Report) error {
				reports = append(reports, r)
				if !r.OK {
					broken++
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.print(reports, func(w io.Writer) { printReports(w, reports) }); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d audit chains are broken", broken, len(reports))
	}
	return nil
}

func printReports(w io.Writer, reports []audit.Report) {
	var entries, before int64
	var empty []audit.Report
	for _, r := range reports {
		if r.Empty {
			empty = append(empty, r)
		}
		entries += r.Sequence
		before += r.BeforeChain
		if !r.OK {
			fmt.Fprintf(w, "BROKEN  %s  organization %s  entry %d: %s\n", r.Ledger, firstNonEmpty(r.OrganizationID, "(the deployment)"), r.FirstBad, r.Problem)
		}
	}
	fmt.Fprintf(w, "Verified %d entries in %d chains, and %d from before the chains.\n", entries, len(reports)-len(empty), before)
	for _, r := range empty {
		fmt.Fprintf(w, "EMPTY   %s  organization %s: no entry was ever recorded\n", r.Ledger, firstNonEmpty(r.OrganizationID, "(the deployment)"))
	}
}

// readHeads reads the output of an earlier verification; nothing for an empty path.
func readHeads(path string) ([]audit.Head, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	var earlier []audit.Report
	if err := json.Unmarshal(text, &earlier); err != nil {
		return nil, usageError{fmt.Errorf("--against %s is not the output of 'kickstand audit verify --json': %w", path, err)}
	}
	var heads []audit.Head
	for _, r := range earlier {
		if r.OK && r.Sequence > 0 {
			heads = append(heads, r.Head)
		}
	}
	return heads, nil
}

// progress returns a function that reports the progress of long chains to standard error,
// once a second.
func (e *env) progress() func(organizationID string, done, total int64) {
	last := time.Now()
	return func(organizationID string, done, total int64) {
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			fmt.Fprintf(e.err, "organization %s: %d of %d entries\n", firstNonEmpty(organizationID, "(the deployment)"), done, total)
		}
	}
}
