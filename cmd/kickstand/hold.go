package main

import (
	"context"
	"fmt"
	"io"

	"github.com/kickstand-dev/kickstand/internal/app"
)

type holdCmd struct {
	Reason string `default:"restored by other tools" help:"Shown by release and doctor, in one line."`
}

func (*holdCmd) Help() string {
	return `kickstand restore holds outgoing work by itself. Run this after a restore by other tools,
such as Litestream or PostgreSQL's own, before the first server starts:
  kickstand hold --reason "recovered to 2026-11-26 12:00"
  kickstand release

Replies that wait count as ones that may have been sent since; kickstand release lists
them, and sends or discards them.`
}

// Run holds outgoing work.
func (c *holdCmd) Run(ctx context.Context, e *env) error {
	return e.with(ctx, func(a *app.App) error {
		if err := a.HoldOutgoing(ctx, c.Reason); err != nil {
			return err
		}
		return e.print(struct {
			Held bool `json:"held"`
		}{true}, func(w io.Writer) {
			fmt.Fprint(w, "Outgoing mail, messages and webhooks are held.\nNext:\n  kickstand release    lists what waits, and sends or discards it\n")
		})
	})
}
