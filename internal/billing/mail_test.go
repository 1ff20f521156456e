package billing_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestFailureMail: admins get one mail per new failure.
func TestFailureMail(t *testing.T) {
	const paid, failed = channel.InvoicePaid, channel.InvoiceFailed
	again := func(p channel.Payment) channel.Payment {
		p.EventID += "_again" // a second destination reports it under another id, a moment later
		p.Created = p.Created.Add(1e9)
		return p
	}
	f := newFixture(t, dbtest.New(t))
	for _, tt := range []struct {
		name   string
		events func(o account.Organization) []channel.Payment
		want   int
	}{
		{"one failure", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(failed, 9, "in_2", 1)}
		}, 1},
		{"told twice", func(o account.Organization) []channel.Payment {
			e := invoice(failed, 9, "in_2", 1)
			return []channel.Payment{checkout(0, "paid", o, "pro"), e, e, again(e)}
		}, 1},
		{"told twice, without a count of tries", func(o account.Organization) []channel.Payment {
			e := invoice(failed, 9, "in_2", 0)
			return []channel.Payment{checkout(0, "paid", o, "pro"), e, e}
		}, 1},
		{"the subscription says so too", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), invoice(failed, 9, "in_2", 1),
				subscription(channel.SubscriptionUpdated, 9, "past_due", "price_pro"), subscription(channel.SubscriptionUpdated, 10, "past_due", "price_pro"),
			}
		}, 1},
		{"every try that fails is news", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(failed, 9, "in_2", 1), invoice(failed, 19, "in_2", 2), invoice(failed, 29, "in_3", 1)}
		}, 3},
		{"an older try is not", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(failed, 19, "in_2", 2), invoice(failed, 9, "in_2", 1)}
		}, 1},
		{"what was made up for is not", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(paid, 19, "in_2", 2), invoice(failed, 9, "in_2", 1)}
		}, 0},
		{"the link comes later", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				invoice(failed, 9, "in_2", 1), subscription(channel.SubscriptionUpdated, 9, "past_due", "price_pro"), checkout(0, "paid", o, "pro"),
			}
		}, 1},
		{"the link comes when it is made up for", func(o account.Organization) []channel.Payment {
			return []channel.Payment{invoice(failed, 9, "in_2", 1), invoice(paid, 10, "in_2", 2), checkout(0, "paid", o, "pro")}
		}, 0},
		{"the subscription is gone", func(o account.Organization) []channel.Payment {
			return []channel.Payment{
				checkout(0, "paid", o, "pro"), subscription(channel.SubscriptionDeleted, 20, "canceled", "price_pro"), invoice(failed, 9, "in_2", 1),
			}
		}, 0},
		{"a first payment", func(o account.Organization) []channel.Payment {
			e := invoice(failed, 0, "in_1", 1)
			e.OrganizationID, e.First = o.ID, true
			return []channel.Payment{e, subscription(channel.SubscriptionCreated, 0, "incomplete", "price_pro")}
		}, 0},
		{"the first invoice of a subscription that has begun", func(o account.Organization) []channel.Payment {
			e := invoice(failed, 1, "in_1", 1)
			e.OrganizationID, e.First = o.ID, true
			return []channel.Payment{e, subscription(channel.SubscriptionCreated, 0, "active", "price_pro")}
		}, 1},
		{"nothing but a failure", func(o account.Organization) []channel.Payment {
			e := invoice(failed, 1, "in_2", 1)
			e.OrganizationID = o.ID
			return []channel.Payment{e}
		}, 1},
		{"a failure after a recovery", func(o account.Organization) []channel.Payment {
			return []channel.Payment{checkout(0, "paid", o, "pro"), invoice(failed, 9, "in_2", 1), invoice(paid, 10, "in_2", 2), invoice(failed, 90, "in_3", 1)}
		}, 2},
	} {
		o := f.organization(t, strings.ReplaceAll(tt.name, ",", ""), account.Free)
		events := tt.events(o)
		own(events, o.ID)
		f.mail.mails = nil
		f.intake(t, events...)
		if got := len(f.mail.mails); got != tt.want {
			t.Errorf("%s: %d mails, want %d", tt.name, got, tt.want)
		}
		for _, m := range f.mail.mails {
			if len(m.To) != 1 || m.To[0].Address != "admin@"+o.Slug+".example" {
				t.Errorf("%s: a mail to %v, want one to the admin", tt.name, m.To)
			}
		}
	}
}

func TestFailureMailText(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o := f.organization(t, "Größe & <Co>", account.Free)
	event := invoice(channel.InvoiceFailed, 9, "in_2", 1)
	r := f.intake(t, checkout(0, "paid", o, "pro"), event)
	if r.Mails != 1 || !r.PastDue || r.Plan != account.Pro {
		t.Errorf("the failure came to %+v, want pro, past due, and one mail", r)
	}
	m := f.mail.mails[0]
	if m.Subject != "A payment for Größe & <Co> failed" || m.From.Address != "no-reply@help.example" {
		t.Errorf("the mail is %q from %v", m.Subject, m.From)
	}
	for _, want := range []string{"the plan pro of Größe & <Co> could not be collected", "Pay the invoice:\n\nhttps://pay.example/in_2\n", "because you are an admin"} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("the text lacks %q:\n%s", want, m.Text)
		}
	}
	if !strings.Contains(m.HTML, `href="https://pay.example/in_2"`) || strings.Contains(m.HTML, "<Co>") {
		t.Errorf("the page lacks the link, or is not escaped:\n%s", m.HTML)
	}
	if !strings.Contains(m.Text, "Nothing changes for now.") {
		t.Errorf("the text does not say that nothing changes:\n%s", m.Text)
	}
	event.Attempt, event.Created, event.PayURL = 2, at(19), ""
	f.intake(t, event)
	if last := f.mail.mails[1]; !strings.Contains(last.Text, "Open Kickstand:\n\nhttps://help.example/\n") {
		t.Errorf("without a page to pay at:\n%s", last.Text)
	}
	event.Attempt, event.Created = 3, at(29)
	f.intake(t, subscription(channel.SubscriptionUpdated, 29, "unpaid", "price_pro"), event)
	last := f.mail.mails[2].Text
	if !strings.Contains(last, "the plan pro of Größe & <Co> could not") || !strings.Contains(last, "Until it is paid, Größe & <Co> has the plan free.") ||
		strings.Contains(last, "Nothing changes") {
		t.Errorf("of a subscription that does not count any more:\n%s", last)
	}
}
