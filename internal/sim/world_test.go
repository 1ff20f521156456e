package sim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// weather has the probabilities of faults.
type weather struct {
	failRead, failBegin, failCommit, loseAnswer, slow float64
	slowest                                           time.Duration
	loseNotice, lateNotice, repeatNotice              float64
	failBlob, network                                 float64
}

// world is a simulated cluster with its surroundings.
type world struct {
	t       testing.TB
	seed    uint64
	sched   *scheduler
	model   *model
	weather weather
	verbose io.Writer // nil: silent

	db      *db.DB
	offset  time.Duration // of the database's clock
	box     *seal.Box
	files   map[string][]byte
	hosts   map[string]host
	nodes   []*node // those that run
	started int
	running *node // made the last step
	tasks   sync.WaitGroup

	poll, lease time.Duration
	scale       float64 // of the waits between deliveries
	receivers   []*receiver
	senders     []*sender
	texts       int // replies so far

	nodeTime time.Duration
	counted  time.Time
}

// databaseNow is the clock of the database. The nodes' clocks differ from it.
func (w *world) databaseNow() time.Time {
	return time.Now().Add(w.offset).UTC().Truncate(time.Microsecond)
}

// spawn runs fn until the end of the simulation at the latest.
func (w *world) spawn(fn func()) { w.tasks.Go(fn) }

func (w *world) remove(n *node) {
	w.countTime()
	w.nodes = slices.DeleteFunc(w.nodes, func(x *node) bool { return x == n })
}

// countTime adds the time since the last call, times the nodes.
func (w *world) countTime() {
	now := time.Now()
	w.nodeTime += now.Sub(w.counted) * time.Duration(len(w.nodes))
	w.counted = now
}

// stalled reports whether the node was stopped so recently that it may not know of a lost lease.
func (n *node) stalled() bool {
	return n.paused || !n.resumedAt.IsZero() && time.Since(n.resumedAt) < n.w.lease
}

// pick returns a node that accepts connections; nil: none does.
func (w *world) pick() *node {
	if len(w.nodes) == 0 {
		return nil
	}
	return w.nodes[w.sched.rng.IntN(len(w.nodes))]
}

// run simulates a seed and returns the world after it.
func run(t testing.TB, seed uint64, template string, verbose io.Writer) *world {
	w := &world{t: t, seed: seed, sched: newScheduler(seed), verbose: verbose, files: map[string][]byte{}, hosts: map[string]host{}}
	w.model = newModel(w)
	w.sched.after = w.model.apply
	if verbose != nil {
		w.sched.log = func(format string, args ...any) { fmt.Fprintf(verbose, format+"\n", args...) }
	}
	w.counted = time.Now()
	useNodeClocks(w)
	w.open(template)
	w.build()
	w.load()
	w.drain()
	w.close()
	return w
}

// open opens the shared database, a copy of template.
func (w *world) open(template string) {
	data, err := os.ReadFile(template)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.t.TempDir(), "kickstand.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if w.db, err = db.Open(context.Background(), "sqlite:"+path, db.Options{}); err != nil {
		w.t.Fatal(err)
	}
	w.box = seal.New(seal.NewKey())
}

// sender is a customer who writes to the organization.
type sender struct {
	w       *world
	address string
	mail    bool
	queued  int // messages that its provider has not delivered yet
	next    int // number of the next message
	busy    bool
}

// build makes the organization's records, by a node without faults.
func (w *world) build() {
	rng := w.sched.rng
	w.offset = []time.Duration{0, 0, time.Second, -15 * time.Second, 2 * time.Minute, -2 * time.Minute, 4 * time.Minute}[rng.IntN(7)]
	w.poll, w.lease, w.scale = 10*time.Minute, 30*time.Second, 0.25
	if w.seed%8 == 0 {
		w.poll, w.lease, w.scale = 0, 0, 0.01 // the queue's defaults
	}
	n := w.start("0", 0)
	w.lease = max(w.lease, 10*time.Second)
	ctx := context.Background()
	w.do(func() error {
		for _, c := range []connection.New{
			{Channel: "sms", Address: ourNumber, Secrets: []string{"secret of the provider"}, Credentials: map[string]string{sms.CredentialAccount: "AC1", sms.CredentialToken: "token of AC1"}},
			{Channel: email.NewRaw(email.Config{}).Info().Name, Address: ourMail, Secrets: []string{"secret of the converter"}},
		} {
			c.OrganizationID, c.ByOperator = organization, true
			if _, _, err := n.connections.Connect(ctx, c); err != nil {
				return err
			}
		}
		for i := range 3 {
			host := fmt.Sprintf("r%d.example", i)
			h, err := n.hooks.Create(ctx, organization, webhook.New{URL: "https://" + host + "/hook", Events: []string{"*"}, Ordered: i == 1})
			if err != nil {
				return err
			}
			rc := &receiver{w: w, id: h.ID, ordered: i == 1}
			w.receivers = append(w.receivers, rc)
			w.hosts[host] = rc
			w.model.webhooks = append(w.model.webhooks, h.ID)
		}
		return nil
	})
	w.hosts["api.twilio.com"] = &smsAPI{w: w}
	for i := range 2 + rng.IntN(4) {
		w.senders = append(w.senders, &sender{w: w, address: fmt.Sprintf("+1415555%04d", 1000+i), next: 1})
	}
	for i := range 1 + rng.IntN(2) {
		w.senders = append(w.senders, &sender{w: w, address: fmt.Sprintf("c%d@c.example", i), mail: true, next: 1})
	}
	w.started = 1
	for range 1 + rng.IntN(3) {
		w.startNext()
	}
}

// startNext starts a node under the next name.
func (w *world) startNext() {
	w.countTime()
	skews := []time.Duration{0, time.Second, -15 * time.Second, 2 * time.Minute, -time.Hour}
	w.start(fmt.Sprint(w.started), skews[w.sched.rng.IntN(len(skews))])
	w.started++
}

// do runs fn beside the scheduler and waits for it.
func (w *world) do(fn func() error) {
	var err error
	done := false
	w.spawn(func() { err = fn(); done = true })
	w.sched.run(time.Now().Add(time.Hour), func() bool { return done })
	if err != nil || !done {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
}

// load lets customers, agents and faults come in bursts.
func (w *world) load() {
	s := w.sched
	least, most := 30*time.Hour, 60*time.Hour
	if w.poll == 0 {
		least, most = time.Hour, 2*time.Hour // polls are frequent
	}
	end := time.Now().Add(s.between(least, most))
	for at := time.Now(); at.Before(end); at = at.Add(s.between(most/36, most/5)) {
		w.burst(at)
	}
	s.run(end, nil)
}

// burst plans some minutes of work and faults.
func (w *world) burst(at time.Time) {
	s, rng := w.sched, w.sched.rng
	length := s.between(10*time.Second, 5*time.Minute)
	within := func() time.Time { return at.Add(time.Duration(rng.Int64N(int64(length)))) }
	storm := w.storm()
	s.at(at, "storm", func() { w.weather = storm })
	s.at(at.Add(length), "calm", func() { w.weather = weather{} })
	for range 4 + rng.IntN(12) {
		who := w.senders[rng.IntN(len(w.senders))]
		s.at(within(), "write "+who.address, who.write)
	}
	for range rng.IntN(6) {
		s.at(within(), "reply", w.reply)
	}
	for range rng.IntN(3) {
		s.at(within(), "crash", func() {
			if n := w.pick(); n != nil {
				n.crash()
				s.in(s.between(0, 2*time.Minute), "start", w.startNext)
			}
		})
	}
	if s.chance(0.4) {
		s.at(within(), "stop", func() {
			if n := w.pick(); n != nil && !n.paused {
				n.stop(s.between(0, 20*time.Second))
				s.in(s.between(0, time.Minute), "start", w.startNext)
			}
		})
	}
	for range rng.IntN(3) {
		s.at(within(), "pause", func() {
			if n := w.pick(); n != nil && !n.paused {
				n.paused = true
				s.in(s.between(100*time.Millisecond, 3*w.lease), "resume", n.resume)
			}
		})
	}
	for _, rc := range w.receivers {
		if s.chance(0.25) {
			kind := rng.IntN(3)
			s.at(within(), "receiver down", func() {
				rc.down = func() fate {
					return []fate{{unreachable: true}, {status: 503, until: time.Second}, {}}[kind]
				}
				s.in(s.between(time.Second, 20*time.Minute), "receiver up", func() { rc.down = nil })
			})
		}
	}
}

func (n *node) resume() {
	if n.paused {
		n.paused, n.resumedAt = false, time.Now()
	}
}

// storm draws the faults of a burst.
func (w *world) storm() weather {
	s := w.sched
	some := func(most float64) float64 {
		if s.chance(0.5) {
			return 0
		}
		return most * s.rng.Float64()
	}
	return weather{
		failRead: some(0.05), failBegin: some(0.05), failCommit: some(0.05), loseAnswer: some(0.1),
		slow: some(0.2), slowest: s.between(10*time.Millisecond, 20*time.Second),
		loseNotice: some(1), lateNotice: some(0.5), repeatNotice: some(0.5),
		failBlob: some(0.3), network: some(0.5),
	}
}

// write queues a message. The sender's provider delivers its messages in order, each until it
// was accepted.
func (c *sender) write() {
	c.queued++
	if !c.busy {
		c.busy = true
		c.w.spawn(c.deliver)
	}
}

func (c *sender) deliver() {
	w := c.w
	for ; c.queued > 0; c.queued-- {
		text := fmt.Sprintf("%s %d", c.address, c.next)
		for accepted := false; !accepted; {
			if n := w.pick(); n != nil {
				limit := 15 * time.Second
				accepted = n.post(c.request(text), limit) == http.StatusOK
				if accepted && w.sched.chance(0.1) { // a repetition
					n.post(c.request(text), limit)
				}
			}
			if !accepted {
				loop.Pause(context.Background(), w.sched.between(100*time.Millisecond, 10*time.Second))
			}
		}
		w.model.sent[c.address] = c.next
		c.next++
	}
	c.busy = false
}

// request returns the provider's signed request with a message.
func (c *sender) request(text string) *http.Request {
	if c.mail {
		id, _, _ := strings.Cut(text, "@")
		body := "From: " + c.address + "\r\nTo: " + ourMail + "\r\nSubject: Help\r\nMessage-ID: <" + id + fmt.Sprint(c.next) + "@c.example>\r\n" +
			"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n" + text +
			"\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n\r\nfile of " + text + "\r\n--b--\r\n"
		r := httptest.NewRequest("POST", email.NewRaw(email.Config{}).Info().Path, strings.NewReader(body))
		r.Header.Set("Content-Type", "message/rfc822")
		r.Header.Add("X-Envelope-To", ourMail)
		signature, at := email.SignRaw([]byte(body), time.Now(), "secret of the converter")
		r.Header.Set("X-Webhook-Signature", signature)
		r.Header.Set("X-Webhook-Timestamp", at)
		return r
	}
	form := url.Values{"MessageSid": {"SM" + strings.ReplaceAll(text, " ", "x")}, "AccountSid": {"AC1"}, "From": {c.address}, "To": {ourNumber}, "Body": {text}, "NumMedia": {"0"}}
	r := httptest.NewRequest("POST", "/api/webhooks/sms", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Twilio-Signature", sms.Sign(baseURL+"/api/webhooks/sms", form, "secret of the provider"))
	return r
}

// reply has the agent reply to a ticket.
func (w *world) reply() {
	tickets := make([]string, 0, len(w.model.senderOf))
	for id := range w.model.senderOf {
		tickets = append(tickets, id)
	}
	n := w.pick()
	if len(tickets) == 0 || n == nil {
		return
	}
	slices.Sort(tickets)
	ticket := tickets[w.sched.rng.IntN(len(tickets))]
	w.texts++
	text := fmt.Sprintf("reply %d", w.texts)
	w.spawn(func() {
		content, err := n.desk.Compose(n.ctx, "", desk.Draft{Text: text})
		if err != nil {
			return
		}
		err = n.db.Write(n.ctx, func(tx *db.Tx) error {
			_, err := n.desk.ReplyTx(n.ctx, tx, organization, ticket, desk.Reply{By: desk.Actor{ID: agentID, Name: agent.Name}, Content: content})
			return err
		})
		if err == nil {
			w.model.told = append(w.model.told, text)
		}
	})
}

// maxDrain bounds the time from the last fault until all work is done: longer than the waits of
// a delivery's last attempts.
const maxDrain = 4 * 24 * time.Hour

// drain ends the faults, and waits until all is done.
func (w *world) drain() {
	s := w.sched
	w.weather = weather{}
	s.run(time.Now().Add(20*time.Minute), nil) // the last planned actions
	for _, n := range w.nodes {
		n.resume()
	}
	for _, rc := range w.receivers {
		rc.down = nil
	}
	if len(w.nodes) == 0 {
		w.startNext()
	}
	done := func() bool {
		for _, c := range w.senders {
			if c.busy {
				return false
			}
		}
		return w.model.pending() == ""
	}
	end := time.Now().Add(maxDrain)
	for !done() && time.Now().Before(end) && len(w.model.violations) == 0 {
		s.run(min2(end, time.Now().Add(time.Hour)), done)
		w.enableReceivers()
	}
	if left := w.model.pending(); left != "" && len(w.model.violations) == 0 {
		w.model.violate("it does not drain: %s", left)
	}
	if len(w.model.violations) == 0 {
		w.model.finish()
		w.do(w.checkThreads)
	}
}

func min2(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// enableReceivers enables webhooks that exhausted deliveries have suspended.
func (w *world) enableReceivers() {
	for _, id := range w.model.webhooks {
		if !w.model.suspended[id] {
			continue
		}
		w.do(func() error {
			yes := true
			_, err := w.nodes[0].hooks.Update(context.Background(), organization, id, webhook.Change{Enabled: &yes})
			return err
		})
	}
}

// checkThreads checks that tickets show the messages of their sender in order.
func (w *world) checkThreads() error {
	n := w.nodes[0]
	for ticket, sender := range w.model.senderOf {
		list, err := n.desk.Messages(context.Background(), n.db, organization, ticket)
		if err != nil {
			return err
		}
		last := 0
		for _, m := range list {
			if m.Direction != "inbound" || m.Kind == "note" {
				continue
			}
			var i int
			if _, err := fmt.Sscanf(m.Text, sender+" %d", &i); err != nil {
				return err
			}
			if i <= last {
				w.model.violate("ticket %s shows message %d of %s after message %d", ticket, i, sender, last)
			}
			last = i
			if strings.Contains(sender, "@") && len(m.Attachments) != 1 {
				w.model.violate("message %q has %d files, not one", m.Text, len(m.Attachments))
			}
		}
	}
	keys, err := db.All(context.Background(), w.db, func(r db.Row) (key string, err error) { return key, r.Scan(&key) }, "SELECT coalesce(blob_key, '') FROM attachments")
	for _, key := range keys {
		if w.files[key] == nil {
			w.model.violate("the file %q of an attachment is not stored", key)
		}
	}
	return err
}

// close ends all that runs.
func (w *world) close() {
	w.countTime()
	for _, n := range slices.Clone(w.nodes) {
		n.crash()
	}
	ended := false
	go func() { w.tasks.Wait(); ended = true }()
	w.sched.run(time.Now().Add(time.Hour), func() bool { return ended })
	if !ended {
		w.t.Errorf("seed %d: something does not end", w.seed)
	}
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
}
