package main

import (
	"github.com/alecthomas/kong"
)

// helpOptions formats all help texts.
var helpOptions = kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}

// everyCommand groups the flags that every command has besides the server's settings. A
// command's own flags have no group and come first.
var everyCommand = &kong.Group{Key: "Flags of every command:", Title: "Flags of every command:"}

// ownHelp prints --help: a command with its own flags and those of [everyCommand],
// without the server's settings.
func ownHelp(options kong.HelpOptions, ctx *kong.Context) error {
	for _, f := range ctx.Model.Flags {
		f.Hidden = f.Group.Key != everyCommand.Key
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// helpAll is --help-all: help including the server's settings.
type helpAll bool

// IgnoreDefault implements [kong.IgnoreDefault].
func (helpAll) IgnoreDefault() {}

// BeforeReset prints the help and exits, like kong's own flag, regardless of other errors
// of the command line.
func (helpAll) BeforeReset(ctx *kong.Context) error {
	options := helpOptions
	options.ValueFormatter = kong.DefaultHelpValueFormatter
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	ctx.Kong.Exit(0)
	return nil
}
