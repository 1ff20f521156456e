package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/app/apptest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// TestCrash kills the server at random times while SMS and mails arrive and deliveries
// are sent. Each request acknowledged with 200 must be exactly one message, every event
// must reach the receiver, and a known number must keep its ticket. An event may arrive
// twice, but only as the same delivery, and at most as often as deliveries were in flight
// at the kills.
func TestCrash(t *testing.T) {
	kills := 50
	if os.Getenv("CI") != "" {
		kills = 20 // on each engine
	}
	if testing.Short() {
		kills = 12
	}
	p := newPatient(t)
	p.start()
	p.setUp()

	load, stopLoad := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 6 {
		writers.Go(func() { p.pour(load, w) })
	}
	for range kills {
		// Counted from readiness, so that each process does some work.
		select { // deliberately random
		case <-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))):
		case <-t.Context().Done():
		}
		p.kill()
		p.start()
	}
	stopLoad()
	writers.Wait()

	for range poll(t, time.Minute) {
		if p.settled() {
			break
		}
	}
	// The next SMS of a known number must land in its ticket.
	p.post(t.Context(), smsRequest(p.url, p.secret, "SMlast", p.number(0), p.to, "still there?"), "SMlast")
	for range poll(t, time.Minute) {
		if p.settled() {
			break
		}
	}
	p.kill()
	p.check()
	p.command("verify", "--blobs")
	t.Logf("%d kills, %d requests accepted, %d deliveries received, %d of them twice",
		kills, len(p.accepted), p.deliveries.Load(), int(p.deliveries.Load())-len(p.received))
}

// patient is a server process that is killed and restarted.
type patient struct {
	t           *testing.T
	url, secret string
	listen      string
	to, mailbox string
	args        []string
	databaseURL string
	process     *apptest.Process // nil: none is running
	output      string           // of the last process
	watch       *db.DB
	receiver    *httptest.Server
	deliveries  atomic.Int64

	mu       sync.Mutex
	accepted map[string]bool   // external ids of requests acknowledged with 200
	received map[string]string // delivery id by event id, of the received events
	inFlight int               // deliveries possibly in flight, summed over all kills
}

// perReceiver is the maximum number of concurrent deliveries to one receiver.
const perReceiver = 64

func newPatient(t *testing.T) *patient {
	p := &patient{
		t: t, secret: "crash-" + strings.Repeat("x", 20), to: "+14155550100", mailbox: "support@demo.example",
		accepted: make(map[string]bool), received: make(map[string]string), databaseURL: dbtest.URL(t),
	}
	p.listen = apptest.Address(t)
	p.url = "http://" + p.listen
	p.args = []string{"--listen=" + p.listen, "--data=" + t.TempDir(), "--database-url=" + p.databaseURL, "--log-format=json",
		"--sms-secret=" + p.secret, "--email-raw-secret=" + p.secret, "--allow-private-receivers", "--retry-time-scale=0.001"}
	p.watch = dbtest.Open(t, p.databaseURL)
	p.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return
		}
		p.deliveries.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		delivery := r.Header.Get("X-Service-Delivery")
		if before, twice := p.received[body.ID]; twice && before != delivery {
			p.t.Errorf("event %s came as delivery %s and as %s", body.ID, before, delivery)
		}
		p.received[body.ID] = delivery
	}))
	t.Cleanup(p.receiver.Close)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the server said, at last: %s", p.output)
		}
	})
	return p
}

// command runs a command of the program next to the server.
func (p *patient) command(args ...string) {
	p.t.Helper()
	if err := run(p.t.Context(), append(args, p.args...), noEnvironment, strings.NewReader(""), io.Discard, p.t.Output()); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

func (p *patient) setUp() {
	p.command("org", "create", "--name=Crash")
	password := "crash-test-password"
	p.command("user", "create", "--email=admin@example.com", "--password="+password, "--org=crash", "--role=admin")
	p.command("channel", "connect", "sms", "--org=crash", "--address="+p.to, "--secret="+p.secret, `--credentials={"account_sid":"AC1","auth_token":"t"}`)
	p.command("channel", "connect", "email-raw", "--org=crash", "--address="+p.mailbox, "--secret="+p.secret)
	c := browser(p.t)
	call(p.t, c, p.url, "auth.signInWithPassword", map[string]any{"email": "admin@example.com", "password": password}, nil)
	call(p.t, c, p.url, "webhooks.create", map[string]any{"url": p.receiver.URL, "events": []string{"*"}, "secret": p.secret}, nil)
}

// start starts the server and returns when it responds.
func (p *patient) start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve"}, p.args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	p.process = apptest.Start(p.t, cmd, p.url)
}

func (p *patient) kill() {
	if p.process != nil {
		p.process.Kill()
		p.output = p.process.Output()
		p.process = nil
		p.inFlight += perReceiver
	}
}

func (p *patient) number(n int) string { return fmt.Sprintf("+14155550%03d", 101+n) }

// pour sends SMS and mails, each repeatedly until it is acknowledged, as a provider does.
func (p *patient) pour(ctx context.Context, writer int) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%d-%d", writer, i)
		if i%5 == 4 {
			raw := fmt.Appendf(nil, "From: Ana <ana%d@client.example>\r\nTo: %s\r\nSubject: Mail %s\r\nMessage-ID: <%s@client.example>\r\n\r\nHello\r\n", writer, p.mailbox, id, id)
			if i%25 == 24 { // its body is a file
				raw = append(raw, strings.Repeat("The lock does not open.\r\n", 2000)...)
			}
			req := mailRequest(p.url, p.secret, fmt.Sprintf("ana%d@client.example", writer), p.mailbox, raw)
			p.post(ctx, req, id+"@client.example")
			continue
		}
		p.post(ctx, smsRequest(p.url, p.secret, "SM"+id, p.number((writer*7+i)%20), p.to, "text "+id), "SM"+id)
	}
}

// post sends until the response is 200. If ctx ends first, the outcome is unknown and not
// checked.
func (p *patient) post(ctx context.Context, req *http.Request, id string) {
	client := http.Client{Timeout: 20 * time.Second}
	for {
		again := req.Clone(ctx)
		again.Body, _ = req.GetBody()
		resp, err := client.Do(again)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				p.mu.Lock()
				p.accepted[id] = true
				p.mu.Unlock()
				return
			case http.StatusServiceUnavailable:
			default:
				p.t.Errorf("%s was answered %s", id, resp.Status)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settled reports whether only future timers are left.
func (p *patient) settled() bool {
	var left int
	if err := p.watch.QueryRow(p.t.Context(), "SELECT count(*) FROM jobs WHERE kind LIKE 'inbound/%' OR kind = 'webhook'").Scan(&left); err != nil {
		p.t.Fatal(err)
	}
	return left == 0
}

func (p *patient) check() {
	ctx := context.Background()
	text := func(row db.Row) (s string, err error) { err = row.Scan(&s); return s, err }
	ids, err := db.All(ctx, p.watch, text, "SELECT external_id FROM messages")
	if err != nil {
		p.t.Fatal(err)
	}
	count := make(map[string]int)
	for _, id := range ids {
		count[id]++
	}
	for id := range p.accepted {
		if count[id] != 1 {
			p.t.Errorf("%s was answered 200 and is %d messages, want 1", id, count[id])
		}
	}
	for id, n := range count {
		if n > 1 {
			p.t.Errorf("%s is %d messages", id, n)
		}
	}
	events, err := eventIDs(ctx, p.watch)
	if err != nil {
		p.t.Fatal(err)
	}
	missing := 0
	for _, id := range events {
		if p.received[id] == "" {
			missing++
		}
	}
	if twice := int(p.deliveries.Load()) - len(p.received); twice > p.inFlight {
		p.t.Errorf("%d deliveries came twice, want at most the %d that could have been on their way", twice, p.inFlight)
	}
	if missing > 0 || len(events) == 0 {
		p.t.Errorf("%d of %d events did not reach the receiver", missing, len(events))
	}
	many, err := db.All(ctx, p.watch, text, `SELECT thread_key FROM conversations WHERE channel = 'sms'
		GROUP BY thread_key HAVING count(DISTINCT ticket_id) > 1`)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(many) > 0 {
		p.t.Errorf("numbers with more than one ticket: %v", many)
	}
	var same int
	if err := p.watch.QueryRow(ctx, `SELECT count(DISTINCT ticket_id) FROM messages WHERE external_id = 'SMlast' OR ticket_id IN
		(SELECT ticket_id FROM conversations WHERE thread_key = $1)`, p.number(0)).Scan(&same); err != nil {
		p.t.Fatal(err)
	}
	if same != 1 {
		p.t.Errorf("the last text and its number's earlier ones are in %d tickets, want 1", same)
	}
}

// eventIDs returns the ids of all stored events.
func eventIDs(ctx context.Context, q db.Querier) ([]string, error) {
	rows, err := db.All(ctx, q, func(row db.Row) ([]string, error) {
		var id, members string
		err := row.Scan(&id, &members)
		return event.IDs(id, members, ""), err
	}, "SELECT id, coalesce(members, '') FROM events")
	return slices.Concat(rows...), err
}
