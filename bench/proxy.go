package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// proxy forwards connections to PostgreSQL, and counts or delays its answers. A delay makes
// each statement cost time and no processor, as if server and processes had cores of their own
// and a network between them: a simulation.
//
// Answers are delayed, requests are not. What a client sends without waiting for an answer is
// one round trip, with one delay.
type proxy struct {
	ln    net.Listener
	to    string
	delay time.Duration
	trips atomic.Int64 // round trips: answers that followed a request
	open  sync.WaitGroup
}

// startProxy starts a proxy to the server of a URL and returns the URL through it. The caller
// closes it.
func startProxy(ctx context.Context, rawURL string, delay time.Duration) (*proxy, string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil, "", errors.New("the URL of PostgreSQL has no host")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	p := &proxy{ln: ln, to: u.Host, delay: delay}
	if u.Port() == "" {
		p.to = net.JoinHostPort(u.Hostname(), "5432")
	}
	u.Host = ln.Addr().String()
	p.open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			p.open.Go(func() { p.forward(ctx, c) })
		}
	})
	return p, u.String(), nil
}

// close ends the proxy. Its connections end with their clients'.
func (p *proxy) close() {
	p.ln.Close()
	p.open.Wait()
}

// chunk is a part of the server's answers and the time to pass it on.
type chunk struct {
	data []byte
	due  time.Time
}

func (p *proxy) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	var asked atomic.Bool // since the last answer
	chunks := make(chan chunk, 256)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer server.Close()
		io.Copy(writer(func(b []byte) (int, error) {
			asked.Store(true)
			return server.Write(b)
		}), client)
	})
	wg.Go(func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 16<<10)
			n, err := server.Read(buffer)
			if n > 0 {
				if asked.Swap(false) {
					p.trips.Add(1)
				}
				chunks <- chunk{buffer[:n], time.Now().Add(p.delay)}
			}
			if err != nil {
				return
			}
		}
	})
	failed := false
	for c := range chunks {
		if wait := time.Until(c.due); wait > 0 {
			pause(ctx, wait)
		}
		if !failed {
			_, err := client.Write(c.data)
			failed = err != nil // the rest is read and dropped
		}
	}
	client.Close()
	wg.Wait()
}

// writer is a function as an [io.Writer].
type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
