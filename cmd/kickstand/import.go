package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
)

type importCmd struct {
	Mbox    importMboxCmd    `cmd:"" help:"Import mailboxes in the format mbox: a thread of mails becomes a ticket."`
	CSV     importCSVCmd     `cmd:"" name:"csv" help:"Import a CSV file with a row per message."`
	Zendesk importZendeskCmd `cmd:"" help:"Import JSON from Zendesk's API: tickets, users and comments."`
	List    importListCmd    `cmd:"" help:"List the imports of an organization."`
	Show    importShowCmd    `cmd:"" help:"Show an import with its problems."`
	Undo    importUndoCmd    `cmd:"" help:"Delete what an import wrote."`
}

func (*importCmd) Help() string {
	return `An import brings people, tickets, messages, notes, files and tags, with the times as
they were. It is silent: no mail, no webhooks, no notices.

Look first, then import, also while the server runs:
  kickstand import csv tickets.csv --org acme --dry-run
  kickstand import csv tickets.csv --org acme

An import that was interrupted continues when the command runs again. A further run
adds only records that are missing. docs/import.md describes the files.`
}

// importOf are the flags of all imports.
type importOf struct {
	Org    string   `required:"" placeholder:"SLUG" help:"Organization."`
	DryRun bool     `help:"Read everything and report, but write nothing."`
	Agents []string `placeholder:"ADDRESS" help:"Mail addresses of former agents, or domains such as @example.com, beside those of members and channels."`
}

// run runs an import and prints the result.
func (c *importOf) run(ctx context.Context, e *env, source, path string, o importer.Options) error {
	o.Ours = c.Agents
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		progress := e.copyProgress()
		r, err := a.Imports.Run(ctx, importer.New{
			OrganizationID: organizationID, Source: source, Path: path, Name: filepath.Base(path), Options: o, Dry: c.DryRun,
		}, func(what string, done, total int64) { progress(what, done, total) })
		if err != nil && r.ID == "" {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w\n%d of %d tickets are done; run the command again to continue", err, r.Position, r.Total)
		}
		return e.print(r, func(w io.Writer) {
			printRun(w, &r)
			switch {
			case r.Dry:
				fmt.Fprintln(w, "Nothing was written. Run the command without --dry-run to import.")
			case r.Counts.Tickets+r.Counts.Messages+r.Counts.Notes > 0:
				fmt.Fprintf(w, "To delete what it wrote: kickstand import undo %s --org %s\n", r.ID, c.Org)
			}
		})
	})
}

type importMboxCmd struct {
	Path   string   `arg:"" placeholder:"FILE|DIR" help:"Mailbox, or a folder with files *.mbox that belong together, such as Inbox and Sent."`
	Of     importOf `embed:""`
	Status string   `default:"resolved" enum:"open,pending,resolved,closed" help:"Status of the tickets: open, pending, resolved or closed. An answer opens a resolved ticket, and continues a closed one in a new one."`
}

func (*importMboxCmd) Help() string {
	return `Mails that refer to each other by Message-ID, In-Reply-To and References become one
ticket. Its customer is the first sender who is no agent. Mails from members, from
channel addresses and from --agents are agents' messages. Later answers to an
imported mail join its ticket.

Import Inbox and Sent together, so that questions and answers are in order:
  kickstand import mbox ./mail --org acme --agents @acme.example --dry-run`
}

func (c *importMboxCmd) Run(ctx context.Context, e *env) error {
	return c.Of.run(ctx, e, importer.Mbox, c.Path, importer.Options{Status: desk.Status(c.Status)})
}

type importCSVCmd struct {
	Path  string   `arg:"" placeholder:"FILE" help:"CSV file with a header."`
	Of    importOf `embed:""`
	From  string   `placeholder:"NAME" help:"Name of the helpdesk: ticket 12 gets the external id NAME-12, and is found by it (default: csv)."`
	Files string   `placeholder:"DIR" help:"Folder with the files of messages (default: the folder of the CSV file)."`
}

func (*importCSVCmd) Help() string {
	return `A row is a message or a note. Rows with the same ticket_id are one ticket, whose own
columns are read from its first row. Required are ticket_id and message_at. Columns:
  ticket_id, subject, status, priority, tags, assignee_email,
  customer_name, customer_email, customer_phone,
  created_at, updated_at, resolved_at,
  message_id, message_at, message_by (customer, agent or note),
  author_name, author_email, text, html, files (paths separated by |)

Times are written as 2024-05-01T09:30:00Z; without a zone they are UTC.`
}

func (c *importCSVCmd) Run(ctx context.Context, e *env) error {
	return c.Of.run(ctx, e, importer.CSV, c.Path, importer.Options{From: c.From, Files: c.Files})
}

type importZendeskCmd struct {
	Path  string   `arg:"" placeholder:"FILE|DIR" help:"JSON file, or a folder of them."`
	Of    importOf `embed:""`
	Files string   `placeholder:"DIR" help:"Folder with attachments, as ID-NAME or ID/NAME (default: attachments beside the JSON); others are fetched from content_url."`
}

func (*importZendeskCmd) Help() string {
	return `The folder has answers of Zendesk's API as they are, in files *.json: pages of tickets
(incremental export), pages of users, and the comments of each ticket as
comments/TICKET.json. Files *.jsonl have a record per line. Ticket 35 gets the
external id zendesk-35, and is found by it.

A file that could not be fetched is reported. Run the command again to fetch it.`
}

func (c *importZendeskCmd) Run(ctx context.Context, e *env) error {
	return c.Of.run(ctx, e, importer.Zendesk, c.Path, importer.Options{Files: c.Files})
}

type importListCmd struct {
	Org   string `required:"" placeholder:"SLUG" help:"Organization."`
	Limit int    `default:"50" help:"Number of imports, newest first."`
}

func (c *importListCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		list, err := a.Imports.List(ctx, a.DB, organizationID, c.Limit)
		if err != nil {
			return err
		}
		if list == nil {
			list = []importer.Run{}
		}
		return e.print(list, func(w io.Writer) {
			if len(list) == 0 {
				fmt.Fprintf(w, "%s has no imports.\n", c.Org)
				return
			}
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tSTARTED\tSOURCE\tNAME\tSTATE\tTICKETS\tPROBLEMS")
			for i := range list {
				r := &list[i]
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\n", r.ID, formatTime(&r.CreatedAt), r.Source, oneLine(printable(r.Name)), runState(r), r.Position, r.Total, r.Counts.Problems)
			}
			t.Flush()
		})
	})
}

type importShowCmd struct {
	ID  string `arg:"" help:"Id of the import."`
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (c *importShowCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		r, err := a.Imports.Get(ctx, a.DB, organizationID, c.ID)
		if err != nil {
			return err
		}
		return e.print(r, func(w io.Writer) { printRun(w, &r) })
	})
}

type importUndoCmd struct {
	ID  string `arg:"" help:"Id of the import."`
	Org string `required:"" placeholder:"SLUG" help:"Organization."`
}

func (*importUndoCmd) Help() string {
	return `It deletes the tickets, messages, files and customers that the import wrote. Tickets
with later messages, merged tickets and customers with other tickets stay. Nothing
is sent. It continues where it was interrupted.`
}

func (c *importUndoCmd) Run(ctx context.Context, e *env) error {
	return e.withOrganization(ctx, c.Org, func(a *app.App, organizationID string) error {
		progress := e.copyProgress()
		r, err := a.Imports.Undo(ctx, organizationID, c.ID, func(what string, done, total int64) { progress(what, done, total) })
		if err != nil {
			return err
		}
		return e.print(r, func(w io.Writer) {
			n := r.Counts.Removed
			fmt.Fprintf(w, "Deleted %d tickets and %d customers, and %d messages of other tickets. %d tickets stay: they have later messages, or were merged.\n",
				n.Tickets, n.Customers, n.Messages, n.Left)
		})
	})
}

// runState describes the state of a run.
func runState(r *importer.Run) string {
	state := string(r.State)
	if r.Dry {
		state += " (dry run)"
	}
	return state
}

// printRun prints a run with its problems.
func printRun(w io.Writer, r *importer.Run) {
	c := &r.Counts
	fmt.Fprintf(w, "Import %s of %s (%s): %s\n", r.ID, oneLine(printable(r.Name)), r.Source, runState(r))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range []struct {
		label string
		n     int64
	}{
		{"tickets", c.Tickets}, {"messages", c.Messages}, {"notes", c.Notes}, {"files", c.Files}, {"new customers", c.Customers},
		{"already there", c.Known}, {"skipped tickets", c.Skipped}, {"files without content", c.MissingFiles}, {"agents who are no members", c.UnknownAuthors}, {"problems", c.Problems},
	} {
		fmt.Fprintf(t, "  %s\t%d\n", row.label, row.n)
	}
	t.Flush()
	if r.Error != "" {
		fmt.Fprintf(w, "It ended early: %s\n", oneLine(printable(r.Error)))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  %s: %s\n", oneLine(printable(p.Where)), strings.TrimSpace(oneLine(printable(p.Reason))))
	}
	if more := c.Problems - int64(len(r.Problems)); more > 0 && len(r.Problems) > 0 {
		fmt.Fprintf(w, "  … and %d more\n", more)
	}
}
