package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	config

	HelpAll helpAll `name:"help-all" group:"Flags of every command:" help:"Also show the server's settings, such as --base-url and --data, which every command accepts as flags."`
	JSON    bool    `name:"json" group:"Flags of every command:" help:"Print the result as JSON; the last output is one JSON value."`

	// Commands with the tag creates create a missing database.
	Serve   serveCmd   `cmd:"" creates:"" help:"Run the server."`
	Demo    demoCmd    `cmd:"" creates:"" help:"Run a demo server with a new data folder and demo data."`
	Trigger triggerCmd `cmd:"" help:"Send a realistic, correctly signed inbound request to a running server."`
	Listen_ listenCmd  `cmd:"" name:"listen" help:"Receive outgoing webhooks, verify and print them."`
	Org     orgCmd     `cmd:"" help:"Organizations."`
	User    userCmd    `cmd:"" help:"Users."`
	Channel channelCmd `cmd:"" help:"Channel connections."`
	Privacy privacyCmd `cmd:"" help:"Privacy requests about customers' data."`
	Key     keyCmd     `cmd:"" help:"API keys of the helpdesk and the fleet."`
	Fleet   fleetCmd   `cmd:"" help:"An organization's vehicles, rides and customers: seed, import, export."`
	SLA     slaCmd     `cmd:"" name:"sla" help:"SLA targets."`
	Import  importCmd  `cmd:"" help:"Import the history of another helpdesk: mbox, CSV, Zendesk."`
	Inbound inboundCmd `cmd:"" help:"Inbound events: list, show, route, replay."`
	Webhook webhookCmd `cmd:"" help:"Webhooks and their deliveries: list, show, replay, enable, disable."`
	MCP     mcpCmd     `cmd:"" name:"mcp" help:"Serve a server's API as tools to an assistant, over standard input and output."`
	OpenAPI openAPICmd `cmd:"" name:"openapi" help:"Print the OpenAPI document of an API."`
	Ready   readyCmd   `cmd:"" help:"Ask a running server whether it can work, part by part."`
	Doctor  doctorCmd  `cmd:"" help:"Check the configuration and the server's dependencies."`
	Audit   auditCmd   `cmd:"" help:"Audit log: list, verify, export."`
	Backup  backupCmd  `cmd:"" help:"Back up the databases and attachments while servers run."`
	Restore restoreCmd `cmd:"" creates:"" help:"Restore a backup into an empty data folder or database."`
	Hold    holdCmd    `cmd:"" help:"Hold outgoing work after a restore by other tools."`
	Release releaseCmd `cmd:"" help:"List, send or discard the outgoing work that a restore holds."`
	Move    moveCmd    `cmd:"" help:"Move the databases to another database or engine."`
	Verify  verifyCmd  `cmd:"" help:"Verify that the stored records and attachments are complete."`
	Migrate migrateCmd `cmd:"" creates:"" help:"Migrate the database to this version's schema."`
	Config_ configCmd  `cmd:"" name:"config" help:"Print the effective configuration, secrets masked."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

const description = `The back office of people who rent out vehicles: requests from mail, SMS and
other channels become tickets; webhooks notify other systems.

Try it:
  kickstand demo                  a server with sample data
  kickstand listen                in a second terminal: see webhooks arrive
  kickstand trigger sms           in a third: send a customer's text

Every setting is a flag, a variable KICKSTAND_… (or …_FILE) and a key of
kickstand.toml.`

// env is the environment of a command.
type env struct {
	*commands
	stdio
	sources *sources
	given   *config // of the user, before the demo changed it; nil: no demo
	creates bool    // the command may create the database
}

// settings returns the configuration of the program. Credentials for S3 come from the variables
// that all programs share, unless a URL has others.
func (e *env) settings() (app.Config, error) {
	set, err := e.config.settings()
	set.Settings = e.described(set.BaseURL)
	set.BlobAccess.AccessKey, _ = e.sources.lookup("AWS_ACCESS_KEY_ID")
	set.BlobAccess.SecretKey, _ = e.sources.lookup("AWS_SECRET_ACCESS_KEY")
	set.BlobAccess.SessionToken, _ = e.sources.lookup("AWS_SESSION_TOKEN")
	return set, err
}

// run is the program: it returns when the command is done or, for a server, after a
// graceful shutdown.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdin io.Reader, stdout, stderr io.Writer) error {
	var cli commands
	exited := false
	parser, err := kong.New(&cli,
		kong.Name("kickstand"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true; panic(exit{}) }),
		kong.ConfigureHelp(helpOptions), kong.Help(ownHelp),
		kong.BindTo(audit.WithSource(ctx, commandSource()), (*context.Context)(nil)),
	)
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	parser.Model.HelpFlag.Group = everyCommand
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	src, err := sourcesFor(ctx, parser, args, lookup)
	if err != nil {
		return err
	}
	if err := kong.Resolvers(src).Apply(parser); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	parsed, err := parse(parser, args)
	if exited {
		return nil // help was printed
	}
	if err != nil {
		hint := "run `kickstand --help` to list commands"
		if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
			hint = "run `kickstand " + e.Context.Selected().Path() + " --help` for its usage"
		}
		return usageError{fmt.Errorf("%w\n%s", err, hint)}
	}
	src.flags = make(map[string]bool)
	for _, p := range parsed.Path {
		if p.Flag != nil && !p.Resolved {
			src.flags[p.Flag.Name] = true
		}
	}
	command := parsed.Selected()
	return wrongUse(command, parsed.Run(&env{commands: &cli, stdio: stdio{stdin, stdout, stderr}, sources: src, creates: createsDatabase(command)}))
}

// wrongUse turns a refusal of a command's input into a usage error that names each wrong
// flag or argument.
func wrongUse(command *kong.Node, err error) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Invalid || len(p.Issues) == 0 {
		return err
	}
	lines := make([]string, len(p.Issues))
	for i, issue := range p.Issues {
		lines[i] = inputOf(command, issue.Path) + " " + issue.Message
	}
	return usageError{errors.New(strings.Join(lines, "\n"))}
}

// inputOf returns the flag or argument that set a field of a record: --secret for
// secrets.0, --plan for planTier, --imap for credentials.imap_url. A field without one is returned
// unchanged.
func inputOf(command *kong.Node, member string) string {
	if command == nil {
		return member
	}
	head, tail, _ := strings.Cut(member, ".")
	if head == "credentials" && tail != "" {
		for _, f := range command.Flags {
			if f.Name == tail || f.Name+"_url" == tail || f.Name+"name" == tail {
				return "--" + f.Name
			}
		}
	}
	name := strings.ReplaceAll(kebab(head), "_", "-")
	match := []func(flag string) bool{
		func(flag string) bool { return flag == name },
		func(flag string) bool { return flag+"s" == name },
		func(flag string) bool { return strings.HasPrefix(name, flag) },
	}
	for _, is := range match {
		for _, f := range command.Flags {
			if is(f.Name) {
				return "--" + f.Name
			}
		}
		for _, p := range command.Positional {
			if is(p.Name) {
				return strings.ToUpper(p.Name)
			}
		}
	}
	return member
}

// createsDatabase reports whether a command creates a missing database.
func createsDatabase(command *kong.Node) bool {
	return command.Tag != nil && command.Tag.Has("creates")
}

// sourcesFor opens the sources for args. Without configuration, commands find the demo,
// except those that serve or prepare for it: trigger and listen by its file, commands on
// records only while it runs, since the next one starts afresh.
func sourcesFor(ctx context.Context, parser *kong.Kong, args []string, lookup func(string) (string, bool)) (*sources, error) {
	trace, err := kong.Trace(parser, args)
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	path, named := "", false // whether a database is named
	for _, name := range []string{"data", "database-url"} {
		value, _ := lookup(variable(name))
		file, _ := lookup(variable(name) + "_FILE")
		named = named || value != "" || file != ""
	}
	for _, p := range trace.Path {
		switch {
		case p.Flag == nil:
		case p.Flag.Name == "config":
			path, _ = trace.FlagValue(p.Flag).(string)
		case p.Flag.Name == "data", p.Flag.Name == "database-url":
			named = true
		}
	}
	demo := func() bool { return false }
	switch command := trace.Selected(); {
	case command == nil, command.Name == "serve", command.Name == "demo", command.Name == "migrate", command.Name == "restore":
	case command.Name == "trigger", command.Name == "listen":
		demo = func() bool { return true }
	case !named && !exists(ownDatabase):
		demo = func() bool {
			_, runs := runningDemo(ctx, demoFolder)
			return runs
		}
	}
	src, err := openSources(lookup, path, demo)
	if err != nil {
		return nil, err
	}
	src.byDefault = !named && src.path == ""
	return src, nil
}

// ownDatabase is the default database of serve.
var ownDatabase = filepath.Join("kickstand-data", "kickstand.db")

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// exit unwinds kong's help, which would exit the process.
type exit struct{}

func parse(parser *kong.Kong, args []string) (parsed *kong.Context, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exit); !ok {
				panic(p)
			}
		}
	}()
	return parser.Parse(args)
}

// logger logs to standard error, so that standard output has the command's result only.
func (e *env) logger() *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(e.LogLevel)) // valid: an enum
	opts := &slog.HandlerOptions{Level: level}
	if e.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(e.err, opts))
	}
	return slog.New(slog.NewTextHandler(e.err, opts))
}

// print writes v as JSON with --json, else calls human.
func (e *env) print(v any, human func(w io.Writer)) error {
	if !e.JSON {
		human(e.out)
		return nil
	}
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
