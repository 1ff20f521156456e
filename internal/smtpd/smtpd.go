// Package smtpd receives mail by SMTP, as the MX of domains, for the connections of the channel
// email-smtp.
//
// The server only receives: it has no AUTH and relays nothing. A recipient is accepted if it is a
// proven address of an enabled connection. A mail is answered 250 once its copies, one for each
// connection, and their jobs are durable in one transaction. A failure of this server is a 4xx, so
// that the sender repeats the mail; the repetition of a stored mail is a duplicate.
//
// # Lines
//
// Commands end with CRLF, and a mail with CRLF.CRLF. A bare LF in a command ends the connection; in
// a mail, bare CR and LF are content. So a mail that an outgoing server takes for one is never two
// here, nor the reverse (SMTP smuggling). There is no CHUNKING.
package smtpd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/telemetry"

	"blitiri.com.ar/go/spf"
)

// Journal stores received mails; implemented over package inbound.
type Journal interface {
	// Deliver stores copies of a mail, at most one for each connection, in one transaction. It
	// returns the number of those that were not stored before.
	Deliver(ctx context.Context, copies []Copy) (fresh int, err error)
	// Refuse records the refusal of a client's mail.
	Refuse(ctx context.Context, client netip.Addr, reason string)
}

// Limiter counts actions of clients; see package ratelimit.
type Limiter interface {
	Allow(ctx context.Context, key string) (ok bool, retryAfter time.Duration)
	Wait(ctx context.Context, key string) time.Duration
}

// Config configures a [Service]. Required are DB, Connections, Journal, Hostname and Logger.
type Config struct {
	DB          *db.DB
	Connections *connection.Service
	Journal     Journal
	Hostname    string // of the MX records
	// Certificate for STARTTLS; nil: STARTTLS is not offered.
	Certificate *Certificate
	// MaxSize is the largest mail in bytes; 0: [MaxSize].
	MaxSize int64
	// MaxConnections bounds the connections of all clients, and MaxPerClient those of one; 0:
	// [DefaultConnections] and a tenth of it.
	MaxConnections, MaxPerClient int
	// Mails and Refusals limit the mails, and the refused recipients, of a client. nil: no limit.
	Mails, Refusals Limiter
	Resolver        spf.DNSResolver // nil: SPF is not evaluated
	SpoolDir        string          // for mails while they arrive; empty: the system's
	Metrics         *telemetry.Metrics
	Access          *telemetry.AccessLog // nil: none
	Logger          *slog.Logger
}

const (
	// MaxSize is the largest mail of the channel in bytes.
	MaxSize = 35 << 20
	// DefaultConnections is the default of [Config.MaxConnections].
	DefaultConnections = 200
	// MaxRecipients bounds the recipients of a mail; RFC 5321 requires at least 100.
	MaxRecipients = 100
)

// A client is an IPv4 address or a /64 of IPv6. Timeouts are those of RFC 5321, 4.5.3.2, or shorter
// where senders wait for the server and not the server for them.
const (
	commandTime = 5 * time.Minute  // for a command, from the answer to the one before
	sessionTime = time.Hour        // of a connection, to the end of its present mail
	dataTime    = 3 * time.Minute  // between parts of a mail
	mailTime    = 30 * time.Minute // of a mail in all
	replyTime   = time.Minute      // for a client to read replies
	storeTime   = 2 * time.Minute  // to store a mail: senders wait for 10 minutes
	tlsTime     = 30 * time.Second
	spfTime     = 5 * time.Second
	memoryWait  = 30 * time.Second
	busyTime    = time.Second // to write the refusal of a connection
	lingerTime  = time.Second
	maxErrors   = 10  // of a connection
	maxIdle     = 100 // commands in a row without a mail, besides MAIL, RCPT and DATA
	maxReceived = 50  // Received fields of a mail
	maxLine     = 4 << 10
	maxMemory   = 128 << 20 // of mails being stored, in bytes
	maxEach     = 64 << 20  // of one client
	maxSpool    = 2 << 30   // of mails being received, in bytes
	spoolMemory = 256 << 10 // of a mail, before it goes to a file
)

// Service receives mail. It is safe for concurrent use.
type Service struct {
	Config
	memory   *fairqueue.Queue
	spooled  atomic.Int64 // bytes
	stopping atomic.Bool
	ctx      context.Context // ends when stopping begins
	end      context.CancelFunc
	storing  context.Context // ends when stopping takes too long
	abort    context.CancelFunc

	mu       sync.Mutex
	sessions map[*session]struct{}
	clients  map[string]int // connections
	listener net.Listener
	work     sync.WaitGroup
}

// Open returns the service.
func Open(c Config) *Service {
	c.MaxSize = cmp.Or(c.MaxSize, MaxSize)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultConnections)
	c.MaxPerClient = cmp.Or(c.MaxPerClient, max(2, c.MaxConnections/10))
	ctx, end := context.WithCancel(context.Background())
	storing, abort := context.WithCancel(context.Background())
	return &Service{
		ctx: ctx, end: end, storing: storing, abort: abort,
		Config: c, sessions: make(map[*session]struct{}), clients: make(map[string]int),
		memory: fairqueue.New(fairqueue.Config{Capacity: maxMemory, PerKey: c.MaxConnections, Waiting: c.MaxConnections}),
	}
}

// Serve receives mail on ln until [Service.Stop]. It returns nil then, or the error of ln.
func (s *Service) Serve(ln net.Listener) error {
	s.mu.Lock()
	s.listener = ln
	s.mu.Unlock()
	for pause := 5 * time.Millisecond; ; {
		conn, err := ln.Accept()
		switch {
		case s.stopping.Load():
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // out of descriptors, or a client that left
			s.Logger.Warn("an SMTP connection could not be accepted", "error", err)
			loop.Pause(s.ctx, pause) // its end shows above
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		s.work.Go(func() { s.ServeConn(conn) })
	}
}

// ServeConn receives mail on a connection, and closes it at the end.
func (s *Service) ServeConn(conn net.Conn) {
	defer conn.Close()
	c := newSession(s, conn)
	if reason := s.admit(c); reason != "" {
		conn.SetDeadline(time.Now().Add(busyTime))
		fmt.Fprintf(conn, "421 4.7.0 %s %s\r\n", s.Hostname, reason)
		return
	}
	defer s.leave(c)
	c.run()
}

// admit counts a connection, or returns the reason of its refusal.
func (s *Service) admit(c *session) (refusal string) {
	if refusal := s.count(c); refusal != "" {
		return refusal
	}
	if s.Refusals != nil && s.Refusals.Wait(s.ctx, c.client) > 0 {
		s.leave(c)
		s.refused("refusals_of_client")
		return "too many unknown recipients from your network, try again later"
	}
	return ""
}

// count counts a connection, unless there are too many.
func (s *Service) count(c *session) (refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping.Load():
		return "stopping, try again later"
	case len(s.sessions) >= s.MaxConnections:
		s.refused("connections")
		return "too many connections, try again later"
	case s.clients[c.client] >= s.MaxPerClient:
		s.refused("connections_of_client")
		return "too many connections from your network, try again later"
	}
	s.sessions[c] = struct{}{}
	s.clients[c.client]++
	if s.Metrics != nil {
		s.Metrics.SMTPConnections(1)
	}
	return ""
}

func (s *Service) leave(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	if s.clients[c.client]--; s.clients[c.client] == 0 {
		delete(s.clients, c.client)
	}
	if s.Metrics != nil {
		s.Metrics.SMTPConnections(-1)
	}
}

// refused counts a refusal.
func (s *Service) refused(reason string) {
	if s.Metrics != nil {
		s.Metrics.SMTPRefused(reason)
	}
}

// OpenConnections returns the number of open connections.
func (s *Service) OpenConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Stop ends the listener and idle connections, and waits for mails that are being received. When
// ctx ends, it ends their connections too: their senders repeat them.
func (s *Service) Stop(ctx context.Context) {
	s.stopping.Store(true)
	s.end()
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close()
	}
	for c := range s.sessions {
		c.wire.interrupt()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	s.abort()
	s.mu.Lock()
	for c := range s.sessions {
		c.wire.Conn.Close()
	}
	s.mu.Unlock()
	<-done
}

// network returns the key under which a client is limited, and its address.
func network(conn net.Conn) (client string, address netip.Addr) {
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		address = at.Addr().Unmap().WithZone("")
		return account.Network(address.String()), address
	}
	return conn.RemoteAddr().String(), netip.Addr{}
}

// wire is a connection with deadlines that every read and write renews.
type wire struct {
	net.Conn
	idle        atomic.Int64 // nanoseconds that a read waits
	until       atomic.Int64 // end of reading in Unix nanoseconds; 0: none
	busy        atomic.Bool  // a mail is being received: do not interrupt
	interrupted atomic.Bool
}

// Read reads until a deadline.
func (w *wire) Read(b []byte) (int, error) {
	at := time.Now().Add(time.Duration(w.idle.Load()))
	if n := w.until.Load(); n != 0 && n < at.UnixNano() {
		at = time.Unix(0, n)
	}
	if err := w.Conn.SetReadDeadline(at); err != nil {
		return 0, err
	}
	if w.interrupted.Load() && !w.busy.Load() {
		w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return w.Conn.Read(b)
}

// Write writes until a deadline.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.Conn.SetWriteDeadline(time.Now().Add(replyTime)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// interrupt ends the wait for the next command, unless a mail is being received.
func (w *wire) interrupt() {
	w.interrupted.Store(true)
	if !w.busy.Load() {
		w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// tlsConfig returns the configuration of STARTTLS.
func (s *Service) tlsConfig() *tls.Config {
	return &tls.Config{GetCertificate: s.Certificate.get, MinVersion: tls.VersionTLS12}
}
