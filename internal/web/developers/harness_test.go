package developers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web/developers"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// hostile contains HTML and control characters.
const hostile = `<script>alert("1")</script>' & ` + "\u202eRTL "

// harness is a site with the pages, and a webhook receiver without a network.
type harness struct {
	*webtest.Harness
	t         *testing.T
	log       *event.Log
	queue     *queue.Queue
	keys      *apikey.Service
	requests  *requestlog.Log
	hooks     *webhook.Service
	admin     *webtest.Browser
	sub       string // a subaccount of the live fleet
	elsewhere account.Organization
	receiver  receiver
	tested    string // the organization that has made too many tests
}

// receiver responds to deliveries.
type receiver struct {
	mu     sync.Mutex
	status int
	answer string
	got    chan *http.Request // with the body read
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	kept := req.Clone(context.Background())
	kept.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got <- kept
	if r.status == 0 {
		return nil, fmt.Errorf("connection refused by %s", hostile)
	}
	return &http.Response{StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.answer))}, nil
}

func (r *receiver) set(status int, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.answer = status, answer
}

type nobody struct{}

func (nobody) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return nil, nil
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: webtest.NewHarness(t), t: t, log: new(event.Log), receiver: receiver{status: 200, answer: "thanks " + hostile, got: make(chan *http.Request, 1000)}}
	all := []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}
	h.keys = apikey.Open(apikey.Config{
		DB: h.DB, Audit: h.Audit, PlanLimit: func(context.Context, string) (int64, error) { return 300, nil },
		Catalogues: map[apikey.ServiceName]apikey.Catalogue{
			apikey.Helpdesk: {Resources: []apikey.Resource{{Name: "tickets", Actions: all}, {Name: "analytics", Actions: all[:1]}, {Name: "settings", Actions: []apikey.Action{apikey.Read, apikey.Update}, Settings: true}}},
			apikey.Fleet: {
				Resources: []apikey.Resource{
					{Name: "rides", Actions: all[:3]}, {Name: "vehicles", Actions: all}, {Name: "pricing", Actions: []apikey.Action{apikey.Read, apikey.Update}},
					{Name: "zones", Actions: all, Unnamed: true}, {Name: "settings", Actions: []apikey.Action{apikey.Read, apikey.Update}, Settings: true},
				},
				Test: true, Subaccounts: true,
			},
		},
	})
	h.requests = requestlog.Open(requestlog.Config{DB: h.DB})
	h.queue = queue.Open(h.DB, queue.Config{Logger: h.Log})
	t.Cleanup(func() { h.queue.Stop(context.Background()) })
	h.hooks = webhook.Open(webhook.Config{
		DB: h.DB, Queue: h.queue, Events: h.log, Box: seal.New(seal.NewKey()), Admins: nobody{}, Mailer: h.Harness, Transport: &h.receiver, BaseURL: webtest.BaseURL, Logger: h.Log,
		Changed: func(organizationID, id string) { h.Live.Publish(organizationID, "webhook:"+id) },
	})
	open := func(live bool, api string) developers.Fleet {
		d := dbtest.NewFleet(t)
		return developers.Fleet{Service: fleet.Open(fleet.Config{DB: d, Live: live, Logger: h.Log}), DB: d, API: api}
	}
	live := open(true, "https://api.example.com/v1")
	developers.Register(h.Site, developers.Config{
		DB: h.DB, Keys: h.keys, Requests: h.requests, Audit: h.Audit, Webhooks: h.hooks, Fleet: live, Sandbox: open(false, "https://api.example.com/sandbox/v1"), DeskAPI: webtest.BaseURL + "/api/v1",
		AllowTest: func(_ context.Context, organizationID string) (bool, time.Duration) {
			return organizationID != h.tested, time.Minute
		},
	})
	h.admin, h.elsewhere = h.SignIn(h.Admin), h.NewOrganization("Elsewhere")
	o := fleet.Organization{ID: h.Organization.ID, Name: h.Organization.Name}
	if err := live.Provision(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := live.DB.Write(t.Context(), func(tx *db.Tx) error {
		list, err := live.Subaccounts(t.Context(), tx, o.ID)
		if err != nil || len(list) == 0 {
			return fmt.Errorf("subaccounts: got %v, %w", list, err)
		}
		sub, err := live.LockSubaccountTx(t.Context(), tx, o.ID, list[0].ID)
		if err != nil {
			return err
		}
		h.sub = sub.ID
		name := "Lisboa " + `<b>"&"</b>`
		_, err = live.UpdateSubaccountTx(t.Context(), tx, o.ID, sub, fleet.SubaccountChange{Name: optional.Of(name)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return h
}

// hook creates a webhook.
func (h *harness) hook(n webhook.New) webhook.Webhook {
	h.t.Helper()
	if n.URL == "" {
		n.URL = "https://receiver.example.com/hook?q=" + `%22%3Cb%3E`
	}
	if n.Events == nil {
		n.Events = []string{"*"}
	}
	w, err := h.hooks.Create(h.t.Context(), h.Organization.ID, n)
	if err != nil {
		h.t.Fatal(err)
	}
	return w
}

// emit emits n ticket events.
func (h *harness) emit(n int) {
	h.t.Helper()
	var events []event.Event
	for i := range n {
		events = append(events, event.Event{OrganizationID: h.Organization.ID, Name: event.TicketCreated, Data: event.Data{Ticket: &event.Ticket{
			ID: fmt.Sprintf("0190c0de-0000-7000-8000-%012d", i), Number: int64(i + 1), Subject: hostile, Status: "open", Priority: "normal", Channel: "sms",
		}}})
	}
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) error { return h.log.EmitTx(h.t.Context(), tx, events...) }); err != nil {
		h.t.Fatal(err)
	}
}

// deliver delivers the n deliveries that are due and waits until they are recorded.
func (h *harness) deliver(n int) []*http.Request {
	h.t.Helper()
	if err := h.queue.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	var got []*http.Request
	for range n {
		select {
		case r := <-h.receiver.got:
			got = append(got, r)
		case <-time.After(time.Minute):
			h.t.Fatalf("got %d posts, want %d", len(got), n)
		}
	}
	h.queue.Stop(context.Background())
	return got
}

// deliveries returns the deliveries of a webhook, newest first.
func (h *harness) deliveries(w webhook.Webhook) []webhook.Delivery {
	h.t.Helper()
	page, err := h.hooks.Search(h.t.Context(), h.Organization.ID, webhook.Query{WebhookID: w.ID, Limit: webhook.MaxPage})
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Deliveries
}
