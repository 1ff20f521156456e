package inbound_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// enqueuedMails are the mails enqueued in committed transactions.
type enqueuedMails struct {
	mu   sync.Mutex
	list []mail.Message
}

func (e *enqueuedMails) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, m)
	})
	return nil
}

func (e *enqueuedMails) all() []mail.Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.list
}

func lost(h *house) {
	h.secrets = map[string][]string{"sms": {"the deployment's"}}
	h.operator = mail.Address{Address: "ops@help.example"}
}

// loses receives a text for an unconnected number.
func (h *house) loses(t *testing.T, id, number string) {
	t.Helper()
	form := text(id, theirs, "hello")
	form.Set("To", number)
	h.wantAnswer(t, smsRequest(form, "the deployment's"), 200, twiml)
}

const recipientCount = "an inbound event has no organization"

// TestUnroutedIsLogged: the log names each address once an hour with the number of its events.
func TestUnroutedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, lost)
		wantLines := func(n int, last string) {
			t.Helper()
			var lines []string
			for line := range strings.Lines(h.logged()) {
				if strings.Contains(line, recipientCount) {
					lines = append(lines, line)
				}
			}
			if len(lines) != n || n > 0 && !strings.Contains(lines[n-1], last) {
				t.Errorf("got %d lines, the last %q; want %d and %q", len(lines), lines[max(0, len(lines)-1):], n, last)
			}
		}
		wantLines(0, "")
		h.loses(t, "SM1", "+14155550101")
		wantLines(1, "channel=sms address=+14155550101 events=1 ")
		for i := range 20 {
			h.loses(t, fmt.Sprint("SM1-", i), "+14155550101")
		}
		h.loses(t, "SM1", "+14155550101") // a repetition
		wantLines(1, "events=1 ")
		h.loses(t, "SM2", "+14155550102")
		wantLines(2, "address=+14155550102 events=1 ")
		time.Sleep(time.Hour)
		h.loses(t, "SM3", "+14155550101")
		wantLines(3, "address=+14155550101 events=22 ")
		h.fallback.Store(new("org-1"))
		h.loses(t, "SM4", "+14155550104")
		wantLines(3, "events=22 ")
	})
}

// TestManyUnroutedAddressesAreOneLine: ever new addresses fill neither the memory nor the log.
func TestManyUnroutedAddressesAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, lost)
		for i := range 1100 {
			h.loses(t, fmt.Sprint("SM", i), fmt.Sprintf("+1415556%04d", i))
		}
		if got := strings.Count(h.logged(), recipientCount); got != 1001 {
			t.Errorf("got %d lines, want one for each of 1,000 addresses and one for the others", got)
		}
		if got := strings.Count(h.logged(), "address=(others) events=1 "); got != 1 {
			t.Errorf("got %d lines for the others, want 1", got)
		}
	})
}

// TestOperatorIsMailedOnceADay: unrouted events are in one mail a day, if there are new ones.
func TestOperatorIsMailedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, lost)
		hours := func(n int) {
			t.Helper()
			for range n {
				if err := h.NotifyOperator(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour)
			}
		}
		wantMails := func(when string, n int, texts ...string) {
			t.Helper()
			list := h.mailed.all()
			if len(list) != n {
				t.Fatalf("%s: %d mails, want %d", when, len(list), n)
			}
			for _, text := range texts {
				if m := list[n-1]; !strings.Contains(m.Text, text) || m.To[0].Address != "ops@help.example" || strings.Contains(m.Subject, "+1415") {
					t.Errorf("%s: the mail to %v says %q, want %q in it", when, m.To, m.Text, text)
				}
			}
		}
		hours(3)
		wantMails("nothing came", 0)
		h.loses(t, "SM1", "+14155550101")
		h.loses(t, "SM2", "+14155550101")
		h.loses(t, "SM3", "+14155550102")
		hours(1)
		wantMails("three came", 1, `sms "+14155550101": 2 events`, `sms "+14155550102": 1 event, the last on `, "kickstand org default SLUG", "kickstand inbound replay")
		h.loses(t, "SM4", "+14155550103")
		hours(22)
		wantMails("within a day", 1)
		hours(4)
		wantMails("the next day", 2, `sms "+14155550103": 1 event`, `sms "+14155550101": 2 events`)
		hours(72)
		wantMails("no news", 2)
		for i := range 30 {
			h.loses(t, fmt.Sprint("SMx", i), fmt.Sprintf("+1415555%04d", i))
		}
		hours(1)
		wantMails("many", 3, "There are more addresses")
		if got := strings.Count(h.mailed.all()[2].Text, "sms "); got != 20 {
			t.Errorf("the mail lists %d addresses, want 20", got)
		}
	})
}

// TestOneProcessMailsTheOperator: of many concurrent processes, one sends the mail.
func TestOneProcessMailsTheOperator(t *testing.T) {
	h := start(t, lost)
	h.loses(t, "SM1", "+14155550101")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := h.NotifyOperator(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := len(h.mailed.all()); got != 1 {
		t.Errorf("%d mails, want 1", got)
	}
}

// TestNobodyIsMailedWithoutAnAddress: without an operator address there is no mail, and no
// record that would delay the first one.
func TestNobodyIsMailedWithoutAnAddress(t *testing.T) {
	h := start(t, lost, func(h *house) { h.operator = mail.Address{} })
	h.loses(t, "SM1", "+14155550101")
	if err := h.NotifyOperator(t.Context()); err != nil {
		t.Error(err)
	}
	var noted int
	if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM operator_notices").Scan(&noted); err != nil || noted != 0 || len(h.mailed.all()) != 0 {
		t.Errorf("%d notices, %v, and the mails %v", noted, err, h.mailed.all())
	}
}
