package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
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
	if err := set.CheckServe(); err != nil {
		return usageError{err}
	}
	ln, err := e.listen()
	if err != nil {
		return err
	}
	defer ln.Close()
	return e.serve(ctx, set, ln, func(*app.App) error { return nil })
}

// listen takes the address to serve on. It comes first, so that a taken one is
// an error before anything starts or changes.
func (e *env) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (choose another address with --listen)", e.Listen, err)
	}
	return ln, nil
}

// serve runs a server on ln until ctx ends, calling ready once it answers.
func (e *env) serve(ctx context.Context, set app.Config, ln net.Listener, ready func(a *app.App) error) error {
	if e.BaseURL == "" {
		set.BaseURL = localURL(ln.Addr().String()) // the real port, where 0 was asked for
	}
	if err := doctor.Limits(); err != nil {
		return err
	}
	if limit := doctor.MemoryLimit(); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
	release, err := set.Lock()
	if err != nil {
		return err
	}
	defer release()
	a, err := app.Open(ctx, set, e.logger())
	if err == nil {
		defer a.Close()
		err = a.Serve(ctx, ln, func() error {
			err := ready(a)
			// What starting and its checks took, the server does not need again.
			rest := time.AfterFunc(5*time.Second, debug.FreeOSMemory)
			context.AfterFunc(ctx, func() { rest.Stop() })
			return err
		})
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // told to end while it was starting: it did
	}
	return err
}
