package inbound_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mailauth/mailauthtest"
)

// crew has one member.
type crew struct{}

var ann = event.Person{ID: "0190c0de-0000-7000-8000-0000000000d1", Name: "Ann", Email: "ann@staff.example"}

func (crew) Agent(_ context.Context, _ db.Querier, _, id string) (event.Person, bool, error) {
	return ann, id == ann.ID, nil
}

func (crew) AgentByEmail(_ context.Context, _ db.Querier, _, address string) (event.Person, bool, error) {
	return ann, strings.EqualFold(address, ann.Email), nil
}

func (crew) Agents(context.Context, db.Querier, string) ([]event.Person, error) {
	return []event.Person{ann}, nil
}

func (crew) Preferences(_ context.Context, _ db.Querier, _ string, ids []string) (map[string]json.RawMessage, error) {
	if !slices.Contains(ids, ann.ID) {
		return nil, nil
	}
	return map[string]json.RawMessage{ann.ID: json.RawMessage("{}")}, nil
}

// fromHelp sends all mail from help@acme.example.
type fromHelp struct{}

func (fromHelp) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	m.From, m.MessageID = "help@acme.example", m.ID+"@acme.example"
	return connectionID, nil
}

// TestNoticeIsAnsweredByMail: a real mail that answers a notice, signed by the member's domain,
// becomes the member's reply once. Forged ones do not, whoever signs them.
func TestNoticeIsAnsweredByMail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := mailauthtest.Zone{}
		z.Publish("staff.example")
		z.Publish("evil.example")
		var sent enqueuedMails
		h := startSQLite(t, withDNS(z.Lookup), func(h *house) { h.directory, h.dispatcher, h.notices = crew{}, fromHelp{}, &sent })
		const to = "help@acme.example"
		h.connect(t, "email-raw", to)
		post := func(raw string) {
			t.Helper()
			h.wantAnswer(t, mailRequest(raw, secretOf(to), to), 200, accepted)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		h.run(t)
		post(mailText("1@client.example", "bo@client.example", to, "The lock is stuck."))
		id := result(t, h.list(t, inbound.Processed)[0]).TicketID
		messages := func() []desk.Message {
			t.Helper()
			list, err := h.desk.Messages(t.Context(), h.db, "org-1", id)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		if err := h.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := h.desk.UpdateTx(t.Context(), tx, "org-1", id, desk.Update{AssigneeID: &ann.ID})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(sent.all()) != 1 || sent.all()[0].ReplyTo.Address != to {
			t.Fatalf("mailed %+v, want one notice that can be answered", sent.all())
		}
		notice := sent.all()[0]
		notice.From.Address = "no-reply@kickstand.example"
		if _, err := mail.Compose(notice); err != nil {
			t.Fatal(err)
		}
		answer := func(id, from, domain, answers string) string {
			body := "We come at noon.\r\n\r\nOn Thu, 26 Nov 2026 at 10:00, Kickstand <no-reply@kickstand.example> wrote:\r\n\r\n> " +
				strings.ReplaceAll(strings.TrimSpace(notice.Text), "\n", "\r\n> ")
			raw := "In-Reply-To: <" + answers + ">\r\nReferences: <" + answers + ">\r\n" + mailText(id, from, to, body)
			if domain == "" {
				return raw
			}
			return mailauthtest.Sign(t, raw, mailauthtest.Signature{Domain: domain})
		}
		forged := strings.Replace(notice.MessageID, id, "0190c0de-0000-7000-8000-0000000000ff", 1)
		post(answer("a@staff.example", ann.Email, "", notice.MessageID))
		post(answer("b@evil.example", ann.Email, "evil.example", notice.MessageID))
		post(answer("c@evil.example", "eve@evil.example", "evil.example", notice.MessageID))
		post(answer("d@staff.example", ann.Email, "staff.example", forged))
		if n := len(messages()); n != 1 {
			t.Fatalf("%d messages after forged answers, want 1", n)
		}
		reasons := 0
		for _, e := range h.list(t, inbound.Processed) {
			if r := result(t, e); r.Reason != "" {
				reasons++
			}
		}
		if reasons != 3 {
			t.Errorf("%d events with a reason, want 3", reasons)
		}

		good := answer("e@staff.example", ann.Email, "staff.example", notice.MessageID)
		post(good)
		post("Received: from elsewhere\r\n" + good) // delivered again
		list := messages()
		if len(list) != 2 {
			t.Fatalf("%d messages after the answer, want 2\n%s", len(list), h.logged())
		}
		if m := list[1]; m.Text != "We come at noon." || m.Author.ID != ann.ID || m.Kind != desk.KindReply || m.Direction != desk.DirectionOutbound ||
			m.Details.To[0].Email != "bo@client.example" {
			t.Errorf("the reply is %+v", m)
		}
	})
}
