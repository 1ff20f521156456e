package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
	"github.com/kickstand-dev/kickstand/internal/web/inbox"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// harness is a site with the inbox.
type harness struct {
	*webtest.Harness
	t    testing.TB
	desk *desk.Service
}

// dispatcher admits every message.
type dispatcher struct{}

func (dispatcher) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	m.From, m.MessageID = "support@example.com", m.ID+"@example.com"
	return connectionID, nil
}

// noAddresses owns no channel address.
type noAddresses struct{}

func (noAddresses) Owns(context.Context, db.Querier, string, string, string) (bool, error) {
	return false, nil
}

func newHarness(t testing.TB, change ...func(*inbox.Config)) *harness {
	t.Helper()
	return newHarnessWith(t, dispatcher{}, change...)
}

func newHarnessWith(t testing.TB, d desk.Dispatcher, change ...func(*inbox.Config)) *harness {
	t.Helper()
	return newLimitedHarness(t, d, nil, change...)
}

// newLimitedHarness is newHarnessWith quotas.
func newLimitedHarness(t testing.TB, d desk.Dispatcher, limits quota.Limits, change ...func(*inbox.Config)) *harness {
	t.Helper()
	h := &harness{Harness: webtest.NewHarness(t), t: t}
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	jobs := queue.Open(h.DB, queue.Config{Poll: time.Hour})
	h.desk = desk.Open(desk.Config{
		DB: h.DB, Queue: jobs, Quotas: quotatest.Open(h.DB, jobs, limits), Events: new(event.Log), Blob: files,
		Directory: h.Accounts, Addresses: noAddresses{}, Dispatcher: d, BaseURL: webtest.BaseURL, Logger: h.Log,
	})
	c := inbox.Config{DB: h.DB, Accounts: h.Accounts, Desk: h.desk, Live: h.Live}
	for _, fn := range change {
		fn(&c)
	}
	inbox.Register(h.Site, c)
	return h
}

// receive passes an inbound message to the desk.
func (h *harness) receive(ticketChannel string, m channel.Message) desk.Result {
	h.t.Helper()
	var res desk.Result
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) (err error) {
		res, err = h.desk.IngestTx(h.t.Context(), tx, desk.InboundEvent{OrganizationID: h.Organization.ID, Channel: ticketChannel, Event: channel.Event{Message: &m}})
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return res
}

// text receives an SMS from a customer.
func (h *harness) text(from, id, says string) desk.Result {
	h.t.Helper()
	return h.receive("sms", channel.Message{ExternalID: id, ThreadKey: from, From: channel.Party{Phone: from}, Text: says})
}
