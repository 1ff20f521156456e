// Command kickstand is the back office: server and tools in one program. Each command is
// a file; the configuration is one struct, in config.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "time/tzdata" // business hours need time zones, which a container may lack

	_ "golang.org/x/crypto/x509roots/fallback" // TLS needs root certificates, which a container may lack
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, which starts a graceful shutdown, a second one kills.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "kickstand:", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is a wrong use of the command line, exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// stdio has the streams of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}
