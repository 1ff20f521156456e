package main

import (
	"context"
	"fmt"
	"net"

	"github.com/kickstand-dev/kickstand/internal/app"
)

type serveCmd struct{}

func (*serveCmd) Help() string {
	return `Serves until it gets SIGINT or SIGTERM; then it finishes what it is doing
(--stop-timeout) and ends. A second signal ends it at once, and loses nothing.

  KICKSTAND_BASE_URL=https://help.example.com KICKSTAND_SMTP_URL=smtp://… kickstand serve`
}

// Run serves until ctx ends.
func (*serveCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	return e.serve(ctx, set, func(*app.App, net.Addr) error { return nil })
}

// serve runs a server until ctx ends, calling ready once it answers.
func (e *env) serve(ctx context.Context, set app.Config, ready func(a *app.App, addr net.Addr) error) error {
	// Taken first, so that a taken port is an error before anything starts.
	ln, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w (choose another address with --listen)", e.Listen, err)
	}
	defer ln.Close()
	if e.BaseURL == "" {
		set.BaseURL = "http://" + ln.Addr().String() // the real port, where 0 was asked for
	}
	a, err := app.Open(ctx, set, e.logger())
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Serve(ctx, ln, func() error { return ready(a, ln.Addr()) })
}
