package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/alecthomas/kong"
)

// commands is the whole command line.
type commands struct {
	config

	JSON bool `name:"json" help:"Print records as JSON; the last thing printed is one JSON value."`

	Serve   serveCmd   `cmd:"" help:"Run the server."`
	Demo    demoCmd    `cmd:"" help:"Run a server with a fresh, filled data folder to try things out."`
	Trigger triggerCmd `cmd:"" help:"Send a realistic, correctly signed inbound request to a running server."`
	Listen_ listenCmd  `cmd:"" name:"listen" help:"Receive outgoing webhooks, verify and print them."`
	Org     orgCmd     `cmd:"" help:"Organizations."`
	User    userCmd    `cmd:"" help:"Users."`
	Channel channelCmd `cmd:"" help:"Channel connections."`
	Migrate migrateCmd `cmd:"" help:"Bring the database to this version's schema."`
	Config_ configCmd  `cmd:"" name:"config" help:"Print the effective configuration, secrets masked."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

const description = `The back office of people who rent out vehicles: requests from mail, SMS and
other channels become tickets; other systems hear of them by webhooks.

Try it:
  kickstand demo                  a server with something in it
  kickstand listen                in a second terminal: see webhooks arrive
  kickstand trigger sms           in a third: a customer writes

Every setting is a flag, a variable KICKSTAND_… (or …_FILE) and a key of
kickstand.toml.`

// env is what a command works with.
type env struct {
	*commands
	stdio
	sources *sources
}

// run is the program: it returns when the command is done or, for a server,
// when ctx ends and everything has come to rest.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdin io.Reader, stdout, stderr io.Writer) error {
	var cli commands
	// With nothing else configured, the commands that try things out find the
	// demo.
	demo := slices.Contains(args, "trigger") || slices.Contains(args, "listen")
	src, err := openSources(lookup, flagValue(args, "--config"), demo)
	if err != nil {
		return err
	}
	exited := false
	parser, err := kong.New(&cli,
		kong.Name("kickstand"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true; panic(exit{}) }),
		kong.Resolvers(src),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
		kong.ValueFormatter(func(v *kong.Value) string {
			if v.Flag == nil || v.Flag.Name == "help" {
				return v.Help
			}
			return kong.DefaultHelpValueFormatter(v)
		}),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parse(parser, args)
	if exited {
		return nil // help was printed
	}
	if err != nil {
		hint := "run `kickstand --help` for what there is"
		if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
			hint = "run `kickstand " + e.Context.Selected().Path() + " --help` for its use"
		}
		return usageError{fmt.Errorf("%w\n%s", err, hint)}
	}
	return parsed.Run(&env{commands: &cli, stdio: stdio{stdin, stdout, stderr}, sources: src})
}

// exit unwinds kong's help, which wants to end the process.
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

// flagValue finds a flag's value before the arguments are parsed.
func flagValue(args []string, name string) string {
	for i, a := range args {
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
		if len(a) > len(name) && a[:len(name)+1] == name+"=" {
			return a[len(name)+1:]
		}
	}
	return ""
}

// logger writes to standard error, so that standard output stays what was
// asked for.
func (e *env) logger() *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(e.LogLevel)) // one of the enum's
	opts := &slog.HandlerOptions{Level: level}
	if e.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(e.err, opts))
	}
	return slog.New(slog.NewTextHandler(e.err, opts))
}

// print writes v as JSON, or else calls human.
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
