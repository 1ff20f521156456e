package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/app/doctor"
)

type serveCmd struct{}

func (*serveCmd) Help() string {
	return `Serves until SIGINT or SIGTERM, then finishes running work (--stop-timeout) and
exits. A second signal exits at once, without data loss.

  KICKSTAND_BASE_URL=https://help.example.com KICKSTAND_SMTP_URL=smtp://… kickstand serve`
}

// Run serves until ctx ends.
func (*serveCmd) Run(ctx context.Context, e *env) error {
	set, err := e.settings()
	if err != nil {
		return err
	}
	if err := app.CheckServe(ctx, set); err != nil {
		return usageError{err}
	}
	ln, err := e.listen()
	if err != nil {
		return err
	}
	defer ln.Close()
	return e.serve(ctx, set, ln, func(*app.App) error { return nil })
}

// listen opens the listener. It comes first, so that a port in use is an error before
// anything starts or changes.
func (e *env) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (choose another address with --listen)", e.Listen, err)
	}
	return ln, nil
}

// serve runs a server on ln until ctx ends, and calls ready once it responds.
func (e *env) serve(ctx context.Context, set app.Config, ln net.Listener, ready func(a *app.App) error) error {
	if e.BaseURL == "" {
		set.BaseURL = localURL(ln.Addr().String()) // the actual port, if 0 was given
	}
	if err := doctor.Limits(); err != nil {
		return err
	}
	e.setMemory(ctx)
	release, err := set.Lock()
	if err != nil {
		return err
	}
	defer release()
	if e.AccessLog == "on" {
		set.AccessLog = e.out
	}
	if set.MailReceiver.Listen == app.SocketActivation {
		if set.MailReceiver.Socket, err = passedSocket(); err != nil {
			return fmt.Errorf("smtp-listen: %w", err)
		}
	}
	a, err := app.Open(ctx, set, e.logger())
	if err == nil {
		defer a.Close()
		err = a.Serve(ctx, ln, func() error {
			err := ready(a)
			// Releases the memory of the start and its checks.
			rest := time.AfterFunc(5*time.Second, func() {
				debug.FreeOSMemory()
				if err := releaseProgram(); err != nil {
					e.logger().Debug("the program stays mapped", "error", err)
				}
			})
			context.AfterFunc(ctx, func() { rest.Stop() })
			return err
		})
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // stopped during the start
	}
	return err
}

// passedSocket returns the socket that systemd passes to the process.
func passedSocket() (net.Listener, error) {
	pid, err := strconv.Atoi(os.Getenv("LISTEN_PID"))
	if err != nil || pid != os.Getpid() {
		return nil, errors.New("systemd has passed no socket (LISTEN_PID)")
	}
	if os.Getenv("LISTEN_FDS") != "1" {
		return nil, fmt.Errorf("systemd has passed %q sockets, want 1 (LISTEN_FDS)", os.Getenv("LISTEN_FDS"))
	}
	file := os.NewFile(3, "smtp")
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket of systemd: %w", err)
	}
	return ln, nil
}

// gcPercent lets the heap grow to three times its live size before a collection, instead of twice:
// the live heap is small compared with the allocations of requests, and each collection delays some.
const gcPercent = 200

// setMemory sets the targets of the garbage collector: gcPercent, and the memory limit of the
// process's control group. GOGC and GOMEMLIMIT of the operator win.
func (e *env) setMemory(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit, source := doctor.MemoryLimit()
	if os.Getenv("GOMEMLIMIT") != "" {
		source = "GOMEMLIMIT"
	} else if limit > 0 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
	if soft := debug.SetMemoryLimit(-1); soft < math.MaxInt64 {
		e.logger().InfoContext(ctx, "memory is limited", "mb", soft>>20, "source", source)
	}
}
