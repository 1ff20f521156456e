package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

type listenCmd struct {
	Address string `default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Address to listen on."`
	Secret  string `placeholder:"SECRET" help:"The webhook's secret, to verify signatures."`
	Status  int    `default:"200" help:"Response status; try 500 to see retries."`
	Max     int    `help:"Stop after this number of deliveries."`
}

func (*listenCmd) Help() string {
	return `Prints one line per delivery: time, event, delivery id, and whether the
signature is valid. With a demo in the working directory it needs neither address
nor secret.

  kickstand listen --address 127.0.0.1:9000 --secret "$SECRET" --json`
}

// received is the printed form of a received delivery.
type received struct {
	Time     time.Time       `json:"time"`
	Event    string          `json:"event"`
	Delivery string          `json:"delivery"`
	Verified bool            `json:"verified"`
	Form     string          `json:"form,omitempty"`
	Problem  string          `json:"problem,omitempty"`
	Body     json.RawMessage `json:"body"`
}

// Run listens until ctx ends.
func (l *listenCmd) Run(ctx context.Context, e *env) error {
	if l.Status < 200 || l.Status > 599 {
		return usageError{errors.New("--status must be between 200 and 599")}
	}
	ln, err := net.Listen("tcp", l.Address)
	if err != nil {
		return fmt.Errorf("listen: %w (another `kickstand listen`? choose another --address)", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	count := 0
	srv := &http.Server{
		ReadTimeout: 30 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
			if err != nil {
				http.Error(w, "the body could not be read", http.StatusBadRequest)
				return
			}
			got := l.check(r, body)
			w.WriteHeader(l.Status)
			mu.Lock()
			defer mu.Unlock()
			if err := e.delivery(got); err != nil {
				cancel()
			}
			if count++; count == l.Max {
				cancel()
			}
		}),
	}
	if !e.JSON {
		fmt.Fprintf(e.out, "Listening on http://%s/ for webhooks; Ctrl-C ends.\n", ln.Addr())
		if l.Secret == "" {
			fmt.Fprintln(e.out, "No --secret: signatures are not verified.")
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelEnd()
	if err := srv.Shutdown(end); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (l *listenCmd) check(r *http.Request, body []byte) received {
	got := received{
		Time: time.Now().UTC(), Event: r.Header.Get("X-Service-Event"), Delivery: r.Header.Get("X-Service-Delivery"),
		Body: body,
	}
	if !json.Valid(body) {
		got.Body, _ = json.Marshal(string(body))
	}
	if l.Secret == "" {
		got.Problem = "not verified: no secret"
		return got
	}
	form, err := payload.Verify(r.Header, body, l.Secret, got.Time)
	if err != nil {
		got.Problem = err.Error()
		return got
	}
	got.Verified, got.Form = true, string(form)
	return got
}

// delivery prints a delivery as one line.
func (e *env) delivery(got received) error {
	if e.JSON {
		line, err := json.Marshal(got)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.out, "%s\n", line)
		return err
	}
	mark := "verified"
	if !got.Verified {
		mark = got.Problem
	}
	var body bytes.Buffer
	if err := json.Compact(&body, got.Body); err != nil {
		return err
	}
	_, err := fmt.Fprintf(e.out, "%s  %-24s %s  %s\n    %s\n", got.Time.Local().Format("15:04:05"), got.Event, got.Delivery, mark, body.Bytes())
	return err
}
