package smtpd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/smtpd"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

const (
	host = "mx.kickstand.example"
	ours = "help@acme.example"
)

// rig is a receiver with two organizations: acme, which has proven its domain, and bolt, one
// address of which the operator has proven.
type rig struct {
	*smtpd.Service
	t           *testing.T
	config      smtpd.Config
	connections *connection.Service
	journal     *journal
	records     []string // TXT records of acme.example
	log         bytes.Buffer
	access      bytes.Buffer
	address     string // of the listener
}

// journal stores copies in memory, each once.
type journal struct {
	mu      sync.Mutex
	stored  []smtpd.Copy
	seen    map[string]bool
	fail    error
	refused []string
	hold    chan struct{} // Deliver closes it and waits for the end of its context, if it is not nil
}

// Deliver implements [smtpd.Journal].
func (j *journal) Deliver(ctx context.Context, copies []smtpd.Copy) (fresh int, err error) {
	if j.hold != nil {
		close(j.hold)
		<-ctx.Done()
		return 0, ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return 0, j.fail
	}
	for _, c := range copies {
		parts, err := email.NewDirect(email.Config{}).Split(c.Request)
		key := c.Connection.ID + " unreadable"
		if err == nil {
			key = c.Connection.ID + " " + parts[0].Key
		}
		if !j.seen[key] {
			j.seen[key] = true
			j.stored = append(j.stored, c)
			fresh++
		}
	}
	return fresh, nil
}

// Refuse implements [smtpd.Journal].
func (j *journal) Refuse(_ context.Context, _ netip.Addr, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refused = append(j.refused, reason)
}

// copies returns the stored copies.
func (j *journal) copies() []smtpd.Copy {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]smtpd.Copy(nil), j.stored...)
}

func start(t *testing.T, change ...func(*rig)) *rig { return startOn(t, dbtest.New(t), change...) }

func startOn(t *testing.T, d *db.DB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, journal: &journal{seen: make(map[string]bool)}}
	r.connections = connection.Open(d, seal.New(seal.NewKey()), []channel.Adapter{email.NewDirect(email.Config{}), email.NewRaw(email.Config{})})
	r.connections.UseProofs(connection.Proofs{
		LookupTXT: func(context.Context, string) ([]string, error) { return r.records, nil },
		Allowed:   []connection.Allowed{{TicketChannel: "email", Domain: "wide.example", Slug: "bolt"}, {TicketChannel: "email", Address: "one@narrow.example", Slug: "bolt"}},
		Slug: func(_ context.Context, _ db.Querier, organizationID string) (string, error) {
			return organizationID, nil
		},
	})
	r.config = smtpd.Config{
		DB: d, Connections: r.connections, Journal: r.journal, Hostname: host, SpoolDir: t.TempDir(), MaxConnections: 1000, MaxPerClient: 1000,
		Metrics: telemetry.NewMetrics("test"), Access: telemetry.NewAccessLog(&r.access), Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	for _, f := range change {
		f(r)
	}
	r.Service = smtpd.Open(r.config)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.Stop(ctx)
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// connect connects an address of an organization by the operator's proof, or pending.
func (r *rig) connect(organization, name, address string, proven bool, settings map[string]string) connection.Connection {
	r.t.Helper()
	c, _, err := r.connections.Connect(context.Background(), connection.New{OrganizationID: organization, Channel: name, Address: address, Settings: settings, ByOperator: proven})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// own connects an address and proves its domain by DNS.
func (r *rig) own(organization, address string, settings map[string]string) connection.Connection {
	r.t.Helper()
	c := r.connect(organization, email.DirectName, address, false, settings)
	r.records = []string{r.connections.ProofStatus(&c).Record.Value}
	c, err := r.connections.Prove(context.Background(), organization, c.ID, channel.ProveByDNS)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// listen serves on a port of this machine.
func (r *rig) listen() *rig {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = ln.Addr().String()
	go r.Serve(ln)
	return r
}

// client is the other end of a session.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// dial connects to the listener, or by a pipe without one.
func (r *rig) dial() *client {
	r.t.Helper()
	if r.address == "" {
		near, far := net.Pipe()
		go r.ServeConn(far)
		r.t.Cleanup(func() { near.Close() })
		return &client{r.t, near, bufio.NewReader(near)}
	}
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return &client{r.t, conn, bufio.NewReader(conn)}
}

// greeted connects and sends EHLO.
func (r *rig) greeted() *client {
	r.t.Helper()
	c := r.dial()
	c.want(220)
	c.do("EHLO client.example", 250)
	return c
}

// reply reads a reply. The code is 0 at the end of the connection.
func (c *client) reply() (code int, text string) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return 0, err.Error()
		}
		if !strings.HasSuffix(line, "\r\n") || len(line) < 6 {
			c.t.Errorf("the reply %q is malformed", line)
		}
		text += line
		if line[3] == ' ' {
			code, _ = strconv.Atoi(line[:3])
			return code, text
		}
	}
}

// want reads a reply with a code.
func (c *client) want(code int) string {
	c.t.Helper()
	got, text := c.reply()
	if got != code {
		c.t.Errorf("got %d %q, want %d", got, text, code)
	}
	return text
}

// write sends text as it is.
func (c *client) write(text string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(text)); err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Log(err)
	}
}

// do sends a command and reads the reply.
func (c *client) do(command string, code int) string {
	c.t.Helper()
	c.write(command + "\r\n")
	got, text := c.reply()
	if got != code {
		c.t.Errorf("%q: got %d %q, want %d", command, got, text, code)
	}
	return text
}

// send sends a mail, already with its dots, and wants the code as its reply.
func (c *client) send(from, to, content string, code int) string {
	c.t.Helper()
	c.do("MAIL FROM:<"+from+">", 250)
	c.do("RCPT TO:<"+to+">", 250)
	c.do("DATA", 354)
	c.write(content + "\r\n.\r\n")
	return c.want(code)
}

// letter returns a small mail.
func letter(n int) string {
	return fmt.Sprintf("From: Ana <ana@client.example>\r\nTo: %s\r\nSubject: Mail %d\r\nMessage-ID: <%d@client.example>\r\n\r\nHello", ours, n, n)
}

// received returns a stored mail without the trace fields.
func received(t *testing.T, c smtpd.Copy) string {
	t.Helper()
	n, err := strconv.Atoi(c.Request.Header.Get(email.DirectTraceHeader))
	if err != nil {
		t.Fatal(err)
	}
	return string(c.Request.Body[n:])
}

// resolver answers from maps.
type resolver struct {
	txt  map[string]string
	slow bool // answers nothing until the context ends
	odd  bool // panics
}

func (r *resolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	if r.odd {
		panic("an odd record")
	}
	if r.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if v, ok := r.txt[strings.TrimSuffix(name, ".")]; ok {
		return []string{v}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (*resolver) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (*resolver) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (*resolver) LookupAddr(_ context.Context, name string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// limiter allows a number of actions.
type limiter struct {
	mu   sync.Mutex
	left int
}

func (l *limiter) Allow(context.Context, string) (bool, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	return l.left >= 0, time.Minute
}

func (l *limiter) Wait(context.Context, string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		return 0
	}
	return time.Minute
}
