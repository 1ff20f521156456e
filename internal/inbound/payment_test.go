package inbound_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ledger records payments of committed transactions.
type ledger struct {
	taken []string
	err   error // returned instead
}

func (l *ledger) IngestPaymentTx(_ context.Context, tx *db.Tx, p *channel.Payment) (any, error) {
	if l.err != nil {
		return nil, l.err
	}
	tx.AfterCommit(func() { l.taken = append(l.taken, p.EventID) })
	return map[string]string{"outcome": "taken", "customer": p.CustomerID}, nil
}

const paymentsPath = "/api/webhooks/payments"

func paymentRequest(body, secret string) *http.Request {
	r := httptest.NewRequest("POST", paymentsPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Stripe-Signature", payments.Sign([]byte(body), time.Now(), secret))
	return r
}

// failed is an event about a failed payment.
func failed(id string) string {
	return `{"id":"` + id + `","object":"event","type":"invoice.payment_failed","created":1764000000,"data":{"object":{"id":"in_1","customer":"cus_1","subscription":"sub_1"}}}`
}

// withBilling adds billing to a house.
func withBilling(l *ledger) func(*house) {
	return func(h *house) {
		h.billing = l
		h.adapters = append(slices.Clone(h.adapters), payments.New())
		h.secrets = map[string][]string{"payments": {"new secret", "old secret"}}
	}
}

const (
	accepted  = `{"status":"accepted"}` + "\n"
	duplicate = `{"status":"duplicate"}` + "\n"
	ignored   = `{"status":"ignored"}` + "\n"
)

// TestPayment: payment events belong to the deployment, however many organizations there are.
func TestPayment(t *testing.T) {
	for _, sole := range []string{"", "org-1"} {
		synctest.Test(t, func(t *testing.T) {
			l := new(ledger)
			h := startSQLite(t, withBilling(l))
			if sole != "" {
				h.fallback.Store(&sole)
			}
			h.wantAnswer(t, paymentRequest(failed("evt_1"), "wrong secret"), 401, denied)
			h.wantAnswer(t, paymentRequest(failed("evt_1"), "old secret"), 200, accepted)
			h.wantAnswer(t, paymentRequest(failed("evt_1"), "new secret"), 200, duplicate)
			h.wantAnswer(t, paymentRequest(strings.Replace(failed("evt_2"), "payment_failed", "created", 1), "new secret"), 200, ignored)
			h.wantAnswer(t, paymentRequest(strings.Replace(failed("evt_3"), `{"id"`, `{"account":"acct_1","id"`, 1), "new secret"), 200, ignored)
			h.run(t)
			h.settled(t)
			list := h.list(t)
			if len(list) != 1 {
				t.Fatalf("%d events are kept, want 1", len(list))
			}
			e := list[0]
			if e.State != inbound.Processed || e.OrganizationID != "" || e.ConnectionID != "" || e.VerifiedBy != "deployment, secret 2" ||
				e.Sender != "cus_1" || e.Kind != "invoice.payment_failed" || string(e.Result) != `{"customer":"cus_1","outcome":"taken"}` {
				t.Errorf("the event is %+v with the result %s, want it processed for no organization", e, e.Result)
			}
			if _, err := h.Replay(t.Context(), e.ID); err != nil {
				t.Errorf("Replay() of a processed event: %v", err)
			}
			h.settled(t)
			if want := []string{"evt_1", "evt_1"}; !slices.Equal(l.taken, want) {
				t.Errorf("billing was given %v, want %v", l.taken, want)
			}
			if n := h.count(t, "SELECT count(*) FROM tickets"); n != 0 {
				t.Errorf("%d tickets came of it, want none", n)
			}
		})
	}
}

// TestPaymentDead: events that billing refuses wait for review and can be replayed.
func TestPaymentDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{err: errors.New("no ink")}
		h := startSQLite(t, withBilling(l))
		h.wantAnswer(t, paymentRequest(failed("evt_1"), "new secret"), 200, accepted)
		h.run(t)
		h.settled(t)
		list := h.list(t, inbound.Dead)
		if len(list) != 1 || !strings.Contains(list[0].Error, "no ink") {
			t.Fatalf("dead events %+v, want one that says why", list)
		}
		l.err = nil
		if _, err := h.Replay(t.Context(), list[0].ID); err != nil {
			t.Fatal(err)
		}
		h.settled(t)
		if want := []string{"evt_1"}; !slices.Equal(l.taken, want) {
			t.Errorf("billing was given %v, want %v", l.taken, want)
		}
	})
}

// TestPaymentRejected: an event without an id is stored, listed, and not routed.
func TestPaymentRejected(t *testing.T) {
	l := new(ledger)
	h := start(t, withBilling(l))
	w := h.do(paymentRequest(failed(""), "new secret"))
	if w.Code != 400 || !bytes.Contains(w.Body.Bytes(), []byte("needs an id")) {
		t.Errorf("answered %d %s, want 400 with the reason", w.Code, w.Body)
	}
	list := h.list(t, inbound.Rejected)
	if len(list) != 1 || list[0].OrganizationID != "" {
		t.Fatalf("rejected events %+v, want one of no organization", list)
	}
	if _, err := h.Replay(t.Context(), list[0].ID); problem.Of(err) != problem.Precondition {
		t.Errorf("Replay() of what still cannot be read: %v, want a precondition", err)
	}
	c := h.connect(t, "sms", ours)
	if _, err := h.Route(t.Context(), list[0].ID, c.ID); problem.Of(err) != problem.Precondition {
		t.Errorf("Route() of what is the deployment's: %v, want a precondition", err)
	}
}
