package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// Serve runs the program on ln until ctx ends or a part of it fails. It starts the
// workers, then serves requests, and calls ready once both run. Shutdown is in order:
// requests finish, then jobs finish, or are cancelled after the stop timeout.
func (a *App) Serve(ctx context.Context, ln net.Listener, ready func() error) error {
	mails, err := a.listenMail()
	if err != nil {
		return err
	}
	if mails != nil {
		defer mails.Close()
	}
	if err := a.openHandler(); err != nil {
		return err
	}
	stopPrivate, err := a.servePrivate(ctx)
	if err != nil {
		return err
	}
	defer stopPrivate()
	if n, err := a.Connections.ProveAllowed(ctx); err != nil {
		return fmt.Errorf("prove the allowed addresses: %w", err)
	} else if n > 0 {
		a.log.InfoContext(ctx, "connections are proven by allowed-addresses", "connections", n)
	}
	if a.config.Worker {
		if err := a.queue.Start(ctx); err != nil {
			return err
		}
	}
	if a.redis != nil && a.config.Web {
		a.redis.Check(ctx)
	}
	background, stopBackground := context.WithCancel(context.Background())
	var tending sync.WaitGroup
	tending.Go(func() { a.watchClock(background) })
	tending.Go(func() { a.Accounts.Run(background) })
	tending.Go(func() { a.Factors.Run(background) })
	tending.Go(func() { a.Keys.Run(background) })
	tending.Go(func() { a.Requests.Run(background) })
	for _, l := range a.AuditLogs() {
		tending.Go(func() { l.Run(background) })
	}
	if a.config.Web {
		tending.Go(func() { a.live.Run(background) })
	}
	tending.Go(func() { a.protectAttachments(background) })
	tending.Go(func() { a.watchSettings(background) })
	if a.config.Worker {
		tending.Go(func() { a.runMaintenance(background) })
		tending.Go(func() { loop.Every(background, time.Hour, a.log, "count stored files", a.countStorage) })
		tending.Go(func() { a.Webhooks.RunAudit(background) })
		tending.Go(func() { a.Webhooks.RunSources(background) })
		tending.Go(func() { a.runAlerts(background) })
		tending.Go(func() { a.Mailboxes.Run(background) })
		tending.Go(func() { a.Desk.Run(background) })
		tending.Go(func() { loop.Every(background, time.Minute, a.log, "packing tickets for reports", a.Desk.PackReports) })
		tending.Go(func() { a.Fleet.Run(background) })
		tending.Go(func() { a.Sandbox.Run(background) })
	}
	srv := newServer(a.handler, a.log)
	srv.RegisterOnShutdown(a.live.Close) // event streams do not end by themselves
	failed := make(chan error, 3)
	go func() { failed <- srv.Serve(ln) }()
	if mails != nil {
		go func() {
			if err := a.receiver.Serve(mails); err != nil {
				failed <- fmt.Errorf("receive mail: %w", err)
			}
		}()
		a.log.InfoContext(ctx, "receiving mail", "address", mails.Addr().String(), "host", a.config.mailHost(), "tls", a.receiver.Certificate != nil)
	}
	tending.Go(func() {
		loop.Every(background, db.FenceInterval, a.log, "looking for newer versions", func(ctx context.Context) error {
			err := a.checkFences(ctx)
			if errors.Is(err, db.ErrNewerSchema) {
				select {
				case failed <- err:
				default:
				}
				return nil
			}
			return err
		})
	})
	a.log.InfoContext(ctx, "serving", "address", ln.Addr().String(), "url", a.BaseURL, "web", a.config.Web, "worker", a.config.Worker)

	err = ready()
	if err == nil {
		tending.Go(func() { a.diagnose(background) })
		select {
		case <-ctx.Done():
			a.log.InfoContext(ctx, "stopping", "because", context.Cause(ctx).Error())
		case err = <-failed:
			err = fmt.Errorf("serve: %w", err)
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.StopTimeout)
	defer cancel()
	var receiving sync.WaitGroup
	if mails != nil {
		receiving.Go(func() { a.receiver.Stop(stop) })
	}
	if serr := srv.Shutdown(stop); serr != nil {
		srv.Close()
		err = errors.Join(err, fmt.Errorf("some requests did not end in time: %w", serr))
	}
	receiving.Wait()
	a.queue.Stop(stop)
	stopBackground()
	tending.Wait()
	return err
}

// checkFences returns [db.ErrNewerSchema] if a newer version of the program has announced that
// it takes something away that this version uses.
func (a *App) checkFences(ctx context.Context) error {
	for i, d := range []*db.DB{a.DB, a.Fleet.DB, a.Sandbox.DB} {
		if err := d.CheckFence(ctx); err != nil {
			return fmt.Errorf("database %s: %w", databases[i].name, err)
		}
	}
	return nil
}

// newServer returns a server with limits per connection.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // 35 MB of mail over a slow line
		WriteTimeout:      3 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    2 * rpc.MaxQuery,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
