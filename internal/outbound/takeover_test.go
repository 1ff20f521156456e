package outbound_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

// process is one of two processes. It can stand still: then its calls of the database wait, so
// that it neither extends leases nor notices their loss.
type process struct {
	db.Simulator // panics: not used
	step         string

	mu      sync.Mutex
	running chan struct{} // closed while it runs
	stopped chan struct{} // closed when it first stood still
}

func newProcess(step string) *process {
	p := &process{step: step, running: make(chan struct{}), stopped: make(chan struct{})}
	close(p.running)
	return p
}

func (p *process) wait() {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	<-running
}

// reach makes the process stand still at its step, once.
func (p *process) reach(step string) {
	p.mu.Lock()
	if p.step != step {
		p.mu.Unlock()
		return
	}
	p.step = "none"
	p.running = make(chan struct{})
	close(p.stopped)
	p.mu.Unlock()
	p.wait()
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.running)
}

func (p *process) Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (p *process) Read(context.Context) error {
	p.wait()
	return nil
}

func (p *process) Write(_ context.Context, run func(end func(tx *db.Tx) error) error, answer func()) error {
	p.wait()
	err := run(func(*db.Tx) error { return nil })
	p.wait()
	if err == nil {
		answer()
	}
	return err
}

func (p *process) Notify(context.Context, string, []string) error { return nil }

func (p *process) Listen(ctx context.Context, _ string, _ func(string)) { <-ctx.Done() }

// The steps at which a process stands still.
const (
	beforeRecord = "before the record"
	afterRecord  = "after the record"
	inCall       = "in the call"
	afterAnswer  = "after the answer"
)

// slowTransport is a network between a process and a provider.
type slowTransport struct {
	*process
	provider http.RoundTripper
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return s.provider.RoundTrip(r)
	}
	s.reach(afterRecord)
	body, err := io.ReadAll(r.Body) // as a transport sends it
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := s.provider.RoundTrip(r)
	s.reach(inCall)
	go s.reach(afterAnswer) // the answer arrives, and is not recorded
	return resp, err
}

// slowServer is the same for a mail server without a memory.
type slowServer struct {
	*process
	*relay
}

func (s slowServer) SendTracked(ctx context.Context, m mail.Message, submitting func() error) (string, error) {
	steps := []string{afterRecord, "complete"}
	id, err := s.relay.SendTracked(ctx, m, func() error {
		err := submitting()
		s.reach(steps[0])
		steps = steps[1:]
		return err
	})
	s.reach(inCall)
	go s.reach(afterAnswer)
	return id, err
}

// serve answers a request by a handler, without a network.
type serve struct{ http.Handler }

func (s serve) RoundTrip(r *http.Request) (*http.Response, error) {
	trace(r)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestTakeover: a process stands still while it sends a reply, another takes the reply over, and
// the first goes on. The provider never gets the reply twice, whatever it can tell.
func TestTakeover(t *testing.T) {
	for _, by := range []string{"pigeon", "ringed", "sms", "mail server", "delivery provider"} {
		for _, step := range []string{beforeRecord, afterRecord, inCall, afterAnswer} {
			for _, pause := range []time.Duration{11 * time.Second, 25 * time.Second, 45 * time.Second, 3 * time.Minute} {
				t.Run(fmt.Sprint(by, "/", step, "/", pause), func(t *testing.T) {
					deliveries := mailtest.NewProvider(t, nil) // its server may not run in the bubble
					synctest.Test(t, func(t *testing.T) { takeover(t, by, step, pause, deliveries) })
				})
			}
		}
	}
}

func takeover(t *testing.T, by, step string, pause time.Duration, deliveries *mailtest.Provider) {
	d := dbtest.NewSQLite(t)
	l, texts, mails := new(loft), new(provider), new(relay)
	a, b := newProcess(step), newProcess("none")
	first := (*rig)(nil)
	open := func(p *process) *rig {
		return rigOn(t, d.Simulated(p), func(r *rig) {
			r.poll, r.before = 5*time.Second, func() { p.reach(beforeRecord) }
			r.more = []channel.Adapter{pigeon{}, ringed{}}
			if first != nil {
				r.box = first.box
			}
			var network http.RoundTripper = l
			switch by {
			case "sms":
				r.apiURL, network = "https://sms.example", serve{texts}
			case "mail server":
				r.mail = slowServer{p, mails}
			case "delivery provider":
				api, err := mail.OpenAPI(deliveries.URL, deliveries.Key)
				if err != nil {
					t.Fatal(err)
				}
				api.HTTP = slowTransport{p, deliveries}
				r.mail = api
			}
			r.http = slowTransport{p, network}
		})
	}
	first = open(a)
	var m desk.Message
	switch by {
	case "pigeon", "ringed":
		m = first.flown(by, "ana", "Hello!")
	case "sms":
		c := first.connect("sms", ourNumber)
		m = first.reply(first.texts(c, "SM1", anasPhone, "Where?").TicketID, "Here.")
	default:
		c := first.connect("email-raw", ourMail)
		m = first.reply(first.mails(c, question).TicketID, "Here.")
	}
	first.run()
	<-a.stopped
	second := open(b)
	second.run()
	time.Sleep(pause)
	a.resume()
	time.Sleep(10 * time.Minute)
	synctest.Wait()

	count := map[string]int{
		"pigeon": len(l.calls()), "ringed": min(len(l.calls()), 1), "sms": len(texts.taken()), "mail server": len(mails.received),
		"delivery provider": len(deliveries.Deliveries()),
	}[by]
	got := second.message(m).Delivery
	certain := by == "ringed" || by == "sms" || by == "delivery provider"
	switch {
	case count > 1:
		t.Errorf("it arrived %d times", count)
	case certain && (count != 1 || got.State != channel.ReceiptSent):
		t.Errorf("it arrived %d times and is %+v, want once and sent", count, got)
	case got.State == channel.ReceiptSent && count != 1, got.State != channel.ReceiptSent && got.State != channel.ReceiptFailed:
		t.Errorf("it arrived %d times and is %+v", count, got)
	case step == beforeRecord && got.State != channel.ReceiptSent:
		t.Errorf("it is %+v, although it was not submitted", got)
	}
}
