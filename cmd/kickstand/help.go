package main

import (
	"github.com/alecthomas/kong"
)

// helpOptions are the form of all help.
var helpOptions = kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}

// everyCommand is the group of flags that every command has and that are no settings
// of the server. A command's own flags have no group, and come first.
var everyCommand = &kong.Group{Key: "Flags of every command:", Title: "Flags of every command:"}

// ownHelp is --help: a command with its own flags and those of [everyCommand], without
// the server's settings.
func ownHelp(options kong.HelpOptions, ctx *kong.Context) error {
	for _, f := range ctx.Model.Flags {
		f.Hidden = f.Group.Key != everyCommand.Key
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// helpAll is --help-all: the same with the server's settings.
type helpAll bool

// IgnoreDefault implements [kong.IgnoreDefault].
func (helpAll) IgnoreDefault() {}

// BeforeReset prints the help and ends the program, as kong's own flag does, whatever
// else is wrong with the command line.
func (helpAll) BeforeReset(ctx *kong.Context) error {
	options := helpOptions
	options.ValueFormatter = kong.DefaultHelpValueFormatter
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	ctx.Kong.Exit(0)
	return nil
}
