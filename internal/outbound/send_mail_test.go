package outbound_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/emersion/go-smtp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// relay is a mail server in memory.
type relay struct {
	attempts
	received []mail.Message
	// fail is called before and after the submission.
	fail func(m mail.Message, handed bool) error
}

func (r *relay) Send(ctx context.Context, m mail.Message) error {
	_, err := r.SendTracked(ctx, m, func() error { return nil })
	return err
}

func (r *relay) SendTracked(ctx context.Context, m mail.Message, submitting func() error) (string, error) {
	r.note()
	if _, err := mail.Compose(m); err != nil {
		return "", err
	}
	r.mu.Lock()
	fail := r.fail
	r.mu.Unlock()
	if fail != nil {
		if err := fail(m, false); err != nil {
			return "", err
		}
	}
	if err := submitting(); err != nil {
		return "", &mail.Error{Op: mail.OpContent, Temporary: true, Err: err}
	}
	if fail != nil {
		if err := fail(m, true); err != nil {
			return "", err
		}
	}
	if err := submitting(); err != nil {
		return "", &mail.Error{Op: mail.OpContent, Temporary: true, Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received = append(r.received, m)
	return "", nil
}

// recover ends all failures.
func (r *relay) recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = nil
}

const question = "From: Ana <ana@c.example>\nTo: support@a.example\nSubject: Lost key\nMessage-ID: <a1@c.example>\n\nHelp!\n"

// golden are raw mails; testdata has their replies in wire form.
var golden = []struct {
	name, mail string
	reply      desk.Draft
	change     func(r *desk.Reply)
}{
	{"plain", question, desk.Draft{Text: "Under the mat.\n\nGrace"}, nil},
	{
		"composed", question,
		desk.Draft{
			Text: "See ![the map](attachment:map.png)\n\n- <one>\n- [two](https://a.example/)\n\n| a | b |\n|---|---|\n| 1 | ~~2~~ |\n",
			Attachments: []channel.Attachment{
				{Name: "map.png", ContentType: "image/png", Data: []byte("png")}, {Name: "terms.txt", ContentType: "text/plain", Data: []byte("terms")},
			},
		},
		func(r *desk.Reply) {
			r.By = desk.Actor{ID: adaID, Name: "Ada"}
			r.Cc, r.Bcc = []string{"bob@c.example"}, []string{"law@a.example"}
		},
	},
	{
		"thread",
		"From: =?utf-8?q?Ana_Ma=C3=B1ana?= <Ana@c.example>\nReply-To: ana@home.example\nTo: support@a.example, Bob <bob@c.example>\n" +
			"Cc: noreply@c.example, sales@a.example, carol@c.example\nSubject: AW: RE: Re[2]: =?utf-8?q?Schl=C3=BCssel?= weg [Ticket #77]\n" +
			"Message-ID: <a9@c.example>\nIn-Reply-To: <x24@c.example>\nReferences: " + manyIDs(25) + "\n\nHelp!\n",
		desk.Draft{
			Text: "Grüße", HTML: `<p onclick="x()">Grüße <img src="https://a.example/logo.png"></p>`,
			Attachments: []channel.Attachment{{Name: "Übersicht.txt", ContentType: "text/plain", Data: []byte("1\n")}},
		}, nil,
	},
}

func manyIDs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " <x%d@c.example>\n", i)
	}
	return strings.TrimSpace(b.String())
}

// TestHeaders compares the wire form of replies with golden files, with random
// parts replaced by names.
func TestHeaders(t *testing.T) {
	for _, tt := range golden {
		t.Run(tt.name, func(t *testing.T) {
			server := mailtest.NewServer(t, mailtest.ServerConfig{})
			r := newRig(t, func(r *rig) { r.mail = open(t, server.URL) })
			r.connect("email-raw", "sales@a.example")
			c := r.connect("email-raw", ourMail, func(n *connection.New) {
				if n.Name = "Acme help"; tt.change != nil {
					n.Settings = map[string]string{"signature": "Acme & Co"}
				}
			})
			in := r.mails(c, tt.mail)
			says, err := r.desk.Compose(t.Context(), "", tt.reply)
			if err != nil {
				t.Fatal(err)
			}
			m := r.reply(in.TicketID, "", func(r *desk.Reply) {
				if r.Content = says; tt.change != nil {
					tt.change(r)
				}
			})
			r.run()
			r.until(m, channel.ReceiptSent, "")
			d := server.Deliveries()
			if len(d) != 1 {
				t.Fatalf("the server took %d mails, want 1", len(d))
			}
			got := fmt.Sprintf("envelope %s -> %s\r\n%s", d[0].From, strings.Join(d[0].To, " "), d[0].Raw)
			got = strings.NewReplacer("\r\n", "\n", in.TicketID, "TICKET", m.ID, "MESSAGE").Replace(got)
			for _, random := range []struct{ pattern, name string }{
				{`MESSAGE\.[0-9a-f]{10}@`, "MESSAGE.HMAC@"}, {`MESSAGE\.[0-9a-f]{32}\n`, "MESSAGE.COPYMAC\n"},
				{`(?m)^Date: .*$`, "Date: DATE"}, {`boundary=\S+`, "boundary=BOUNDARY"}, {`(?m)^--[0-9a-f]{20,}`, "--BOUNDARY"},
				{`[0-9a-f]{8}-[0-9a-f-]{27}@picture`, "ID@picture"},
			} {
				got = regexp.MustCompile(random.pattern).ReplaceAllString(got, random.name)
			}
			file := filepath.Join("testdata", tt.name+".eml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func open(t testing.TB, rawURL string) mail.TrackedSender {
	t.Helper()
	s, err := mail.OpenSMTP(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mailFixture is a mail of Ana's and its reply, in a bubble.
func mailFixture(t *testing.T, fail func(m mail.Message, handed bool) error) (*rig, *relay, desk.Message) {
	server := &relay{fail: fail}
	r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
	c := r.connect("email-raw", ourMail)
	m := r.reply(r.mails(c, strings.Replace(question, "\nSubject", "\nCc: bob@c.example, dead@c.example\nSubject", 1)).TicketID, "Under the mat.")
	r.run()
	return r, server, m
}

// TestMailFailures: a mail server refuses in every way.
func TestMailFailures(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	refused := []time.Duration{5 * m, 15 * m, h, 4 * h, 8 * h, 10 * h, 12 * h, 12 * h}
	for _, tt := range []struct {
		name   string
		err    mail.Error
		after  bool // the content was sent
		waits  []time.Duration
		within time.Duration // time until the end
		want   desk.Delivery
	}{
		{"451", mail.Error{Op: mail.OpContent, Code: 451, EnhancedCode: "4.7.1", Text: "greylisted", Temporary: true}, true, refused, 60 * h,
			desk.Delivery{State: channel.ReceiptFailed, Error: "the mail server did not accept the mail: 451 4.7.1 greylisted"}},
		{"550 for the recipient", mail.Error{Op: mail.OpRecipient, Recipient: "<ana@c.example>", Code: 550, EnhancedCode: "5.1.1", Text: "no such user"}, false, nil, m,
			desk.Delivery{State: channel.ReceiptFailed, Error: "the mail server rejects mail for ana@c.example: 550 5.1.1 no such user"}},
		{"554 for the content", mail.Error{Op: mail.OpContent, Code: 554, EnhancedCode: "5.7.1", Text: "spam"}, true, nil, m,
			desk.Delivery{State: channel.ReceiptFailed, Error: "the mail server did not accept the mail: 554 5.7.1 spam"}},
		{"no answer to the content", mail.Error{Op: mail.OpContent, Err: io.EOF, Temporary: true, Unclear: true}, true, nil, m,
			desk.Delivery{State: channel.ReceiptFailed, Error: "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically"}},
		{"unreachable", mail.Error{Op: mail.OpConnect, Err: errors.New("connection refused"), Temporary: true}, false,
			[]time.Duration{5 * s, 15 * s, 45 * s, 2 * m, 5 * m, 15 * m, 30 * m, 30 * m}, 0,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the mail server cannot be reached: connection refused"}},
		{"a changed password", mail.Error{Op: mail.OpLogin, Code: 535, EnhancedCode: "5.7.8", Text: "no"}, false, []time.Duration{5 * s, 15 * s}, 0,
			desk.Delivery{State: channel.ReceiptQueued, Error: "the mail server rejects our login: 535 5.7.8 no"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, server, m := mailFixture(t, func(_ mail.Message, handed bool) error {
					if handed == tt.after {
						return new(tt.err)
					}
					return nil
				})
				for i, want := range tt.waits {
					for len(server.times()) < i+2 {
						time.Sleep(time.Second)
					}
					if got := server.times()[i+1].Sub(server.times()[i]); got < want || got > want+want/8+time.Second {
						t.Errorf("wait %d is %s, want %s", i+1, got, want)
					}
				}
				time.Sleep(tt.within)
				synctest.Wait()
				if got := r.message(m).Delivery; got != tt.want {
					t.Errorf("delivery is %+v, want %+v", got, tt.want)
				}
				if len(server.received) != 0 {
					t.Errorf("the server has %d mails, want none", len(server.received))
				}
				if tries := len(server.times()); tt.want.State == channel.ReceiptFailed && tries != len(tt.waits)+1 {
					t.Errorf("%d attempts, want %d", tries, len(tt.waits)+1)
				}
				if tt.want.State == channel.ReceiptQueued {
					server.recover()
					time.Sleep(h)
					synctest.Wait()
					if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptSent}) || len(server.received) != 1 {
						t.Errorf("once the server is back, it is %+v and was sent %d times; want sent, once", got, len(server.received))
					}
				}
			})
		})
	}
}

// TestRefusedCopy sends the mail without the copy that the server refuses.
func TestRefusedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server, m := mailFixture(t, func(m mail.Message, handed bool) error {
			for _, a := range m.Cc {
				if a.Address == "dead@c.example" {
					return &mail.Error{Op: mail.OpRecipient, Recipient: "<dead@c.example>", Code: 550, EnhancedCode: "5.1.1", Text: "gone"}
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(server.received) != 1 || len(server.received[0].Cc) != 1 || server.received[0].Cc[0].Address != "bob@c.example" {
			t.Fatalf("the server took %+v, want one mail with a copy for Bob alone", server.received)
		}
		got := r.message(m)
		if got.Delivery.State != channel.ReceiptSent || len(got.Details.Cc) != 1 {
			t.Errorf("the message is %s with copies for %v, want sent, with one", got.Delivery.State, got.Details.Cc)
		}
		list, err := r.desk.Messages(t.Context(), r.db, org, m.TicketID)
		if err != nil {
			t.Fatal(err)
		}
		const note = "No copy was sent to dead@c.example: the mail server rejects mail for dead@c.example: 550 5.1.1 gone"
		if !slices.ContainsFunc(list, func(m desk.Message) bool { return m.Kind == desk.KindNote && m.Text == note }) {
			t.Errorf("there is no note %q", note)
		}
	})
}

// TestCrashDuringSubmission: a process died during the submission of a mail.
func TestCrashDuringSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(relay)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
		c := r.connect("email-raw", ourMail)
		m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
		r.crashDuringSubmission(m, "smtp")
		r.run()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := desk.Delivery{State: channel.ReceiptFailed, Error: "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically"}
		if got := r.message(m).Delivery; got != want || len(server.times()) != 0 {
			t.Errorf("delivery is %+v after %d attempts, want %+v after none", got, len(server.times()), want)
		}
	})
}

// TestMailOfEarlierVersion: mails are jobs of a kind that versions without signatures do not run, and
// jobs of those leave, too.
func TestMailOfEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(relay)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
		ticket := r.mails(r.connect("email-raw", ourMail), question).TicketID
		for _, earlier := range []bool{false, true} {
			m := r.reply(ticket, "Under **the** mat.")
			var kind string
			if err := r.db.QueryRow(t.Context(), "SELECT kind FROM jobs WHERE id = $1", m.ID).Scan(&kind); err != nil || kind == "outbound/email" {
				t.Errorf("the job is of kind %q, %v", kind, err)
			}
			if !earlier {
				continue
			}
			if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE jobs SET kind = 'outbound/email' WHERE id = $1", m.ID)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(server.times()); n != 2 {
			t.Errorf("%d mails left, want 2", n)
		}
	})
}

// TestRemovedConnection removes the connection of an uncertain mail: it may have
// arrived.
func TestRemovedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = new(relay) })
		c := r.connect("email-raw", ourMail)
		ticket := r.mails(c, question).TicketID
		handed, waits := r.reply(ticket, "Under the mat."), r.reply(ticket, "Or beside it.")
		r.crashDuringSubmission(handed, "smtp")
		if err := r.db.Write(t.Context(), func(tx *db.Tx) error { return r.connections.DeleteTx(t.Context(), tx, org, c.ID) }); err != nil {
			t.Fatal(err)
		}
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		for m, want := range map[*desk.Message]string{
			&handed: "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically",
			&waits:  "its connection was removed",
		} {
			if got := r.message(*m).Delivery; got != (desk.Delivery{State: channel.ReceiptFailed, Error: want}) {
				t.Errorf("delivery is %+v, want it failed: %s", got, want)
			}
		}
	})
}

// TestProofIsLostBeforeSending: a reply waits while its connection lacks a proof,
// and leaves once the address is proven again.
func TestProofIsLostBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(relay)
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
		c := r.connect("email-raw", ourMail)
		m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
		change := func(f func(context.Context, *db.Tx, string) (connection.Connection, error)) {
			t.Helper()
			err := r.db.Write(t.Context(), func(tx *db.Tx) error { _, err := f(t.Context(), tx, c.ID); return err })
			if err != nil {
				t.Fatal(err)
			}
		}
		change(r.connections.RevokeProofTx)
		r.run()
		time.Sleep(time.Hour)
		synctest.Wait()
		got := r.message(m).Delivery
		if got.State != channel.ReceiptQueued || !strings.Contains(got.Error, "is not proven yet") || len(server.received) != 0 {
			t.Errorf("delivery is %+v, sent %d times; want it queued for the proof", got, len(server.received))
		}
		change(r.connections.ProveTx)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := r.message(m).Delivery.State; got != channel.ReceiptSent || len(server.received) != 1 {
			t.Errorf("it is %s, sent %d times; want sent, once", got, len(server.received))
		}
	})
}

// TestOwnServer sends by a connection's own mail server, and waits while that is
// not usable.
func TestOwnServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := new(relay)
		var usable atomic.Bool
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) {
			r.open = func(_ *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error) {
				if credentials.Get("smtp_url") != "smtp://mail.a.example" || !usable.Load() {
					return nil, errors.New("its smtp_url has no host")
				}
				return own, nil
			}
		})
		c := r.connect("email-raw", ourMail, func(n *connection.New) { n.Credentials = map[string]string{"smtp_url": "smtp://mail.a.example"} })
		m := r.reply(r.mails(c, question).TicketID, "Under the mat.")
		r.run()
		time.Sleep(time.Second)
		synctest.Wait()
		want := desk.Delivery{State: channel.ReceiptQueued, Error: "the connection cannot send: its smtp_url has no host"}
		if got := r.message(m).Delivery; got != want {
			t.Errorf("delivery is %+v, want %+v", got, want)
		}
		usable.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := r.message(m).Delivery.State; got != channel.ReceiptSent || len(own.received) != 1 {
			t.Errorf("it is %s, sent %d times; want sent, once", got, len(own.received))
		}
	})
}

// TestTooLarge: a mail beyond every server's limit is refused when written.
func TestTooLarge(t *testing.T) {
	r := newRig(t)
	c := r.connect("email-raw", ourMail)
	ticket := r.mails(c, question).TicketID
	for _, tt := range []struct {
		bytes int
		want  problem.Kind
	}{{18 << 20, 0}, {19 << 20, problem.TooLarge}} {
		says, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "See the file.", Attachments: []channel.Attachment{{Name: "a.bin", Data: make([]byte, tt.bytes)}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.tryReply(ticket, "", func(r *desk.Reply) { r.Content = says })
		if (err != nil) != (tt.want != 0) || err != nil && problem.Of(err) != tt.want {
			t.Errorf("%d bytes: error %v, want kind %v", tt.bytes, err, tt.want)
		}
	}
}

// TestUndeliverable: a reply to an address that failed before has a warning.
func TestUndeliverable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &relay{fail: func(mail.Message, bool) error {
			return &mail.Error{Op: mail.OpRecipient, Recipient: "<ana@c.example>", Code: 550, EnhancedCode: "5.1.1", Text: "gone"}
		}}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.mail = server })
		c := r.connect("email-raw", ourMail)
		ticket := r.mails(c, question).TicketID
		r.reply(ticket, "Under the mat.")
		r.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		server.recover()
		m := r.reply(ticket, "Or beside it.")
		if want := (desk.Delivery{State: channel.ReceiptQueued, Error: "an earlier message to ana@c.example could not be delivered"}); m.Delivery != want {
			t.Errorf("delivery is %+v, want %+v", m.Delivery, want)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.message(m).Delivery; got != (desk.Delivery{State: channel.ReceiptSent}) {
			t.Errorf("delivery is %+v, want it sent", got)
		}
	})
}

// TestReplyEffects checks the effects of a reply on its ticket.
func TestReplyEffects(t *testing.T) {
	r := newRig(t)
	c := r.connect("email-raw", ourMail)
	in := r.mails(c, question)
	m := r.reply(in.TicketID, "Under the mat.")
	ticket, err := r.desk.Ticket(t.Context(), r.db, org, in.TicketID)
	if err != nil {
		t.Fatal(err)
	}
	if ticket.Status != desk.StatusOpen || !ticket.FirstRespondedAt.Equal(m.CreatedAt) {
		t.Errorf("the ticket is %s, first responded %s; want open, %s", ticket.Status, ticket.FirstRespondedAt, m.CreatedAt)
	}
	if m.Author.Type != desk.AuthorAgent || m.Author.Name != "Grace" || m.Direction != desk.DirectionOutbound || m.Kind != desk.KindReply {
		t.Errorf("the reply is %+v", m)
	}
	id, ok := r.VerifyCopyHeader(org, m.ID+".00")
	if ok {
		t.Errorf("a copy header without a MAC names %s", id)
	}
}

// TestBadCopies: Cc addresses that are invalid, rejected or unknown do not keep the
// reply from the other recipients.
func TestBadCopies(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{Refuse: func(command string) *smtp.SMTPError {
		if strings.HasPrefix(command, "RCPT carl@") || strings.HasPrefix(command, "RCPT a..b@") {
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "gone"}
		}
		return nil
	}})
	r := newRig(t, func(r *rig) { r.mail = open(t, server.URL) })
	c := r.connect("email-raw", ourMail)
	in := r.mails(c, strings.Replace(question, "\nSubject",
		"\nCc: \"x:y\"@c.example, a..b@c.example, müller@c.example, carl@bücher.example, bob@c.example\nSubject", 1))
	m := r.reply(in.TicketID, "Under the mat.")
	r.run()
	r.until(m, channel.ReceiptSent, "")
	d := server.Deliveries()
	if len(d) != 1 || !slices.Equal(d[0].To, []string{"ana@c.example", "bob@c.example"}) {
		t.Errorf("the server took %d mails, want one to Ana and Bob", len(d))
	}
	if got := r.message(m).Details.Cc; len(got) != 1 || got[0].Email != "bob@c.example" {
		t.Errorf("copies are noted for %v, want Bob alone", got)
	}
}

// TestBigMailsOfADeadServer: a tenant's hanging mails with large files do not delay
// another tenant's mail.
func TestBigMailsOfADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, shared := new(relay), new(relay)
		own.fail = func(mail.Message, bool) error {
			time.Sleep(30 * time.Second)
			return &mail.Error{Op: mail.OpConnect, Temporary: true, Err: io.EOF}
		}
		r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) {
			r.mail = shared
			r.open = func(_ *connection.Connection, credentials channel.Credentials) (mail.TrackedSender, error) {
				if credentials.Get("smtp_url") == "" {
					return nil, nil
				}
				return own, nil
			}
		})
		dead := r.connect("email-raw", "dead@a.example", func(n *connection.New) { n.Credentials = map[string]string{"smtp_url": "smtp://mail.a.example"} })
		alive := r.connect("email-raw", ourMail)
		says, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "a.bin", Data: make([]byte, 15<<20)}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			q := fmt.Sprintf("From: bob%d@c.example\nTo: dead@a.example\nSubject: Lost key\nMessage-ID: <b%d@c.example>\n\nHelp!\n", i, i)
			r.reply(r.mails(dead, q).TicketID, "", func(r *desk.Reply) { r.Content = says })
		}
		r.run()
		time.Sleep(time.Second)
		synctest.Wait()
		ticket := r.mails(alive, question).TicketID
		plain := r.reply(ticket, "Under the mat.")
		photo, err := r.desk.Compose(t.Context(), "", desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "a.bin", Data: make([]byte, 5<<20)}}})
		if err != nil {
			t.Fatal(err)
		}
		big := r.reply(ticket, "", func(r *desk.Reply) { r.Content = photo })
		time.Sleep(time.Second)
		synctest.Wait()
		for _, m := range []desk.Message{plain, big} {
			if got := r.message(m).Delivery; got.State != channel.ReceiptSent {
				t.Errorf("after a second delivery is %+v, want it sent", got)
			}
		}
	})
}

// TestReplyBrand: the logo follows the HTML of a reply, and not its text.
func TestReplyBrand(t *testing.T) {
	for _, brand := range []mail.Brand{{}, {Name: "Acme", Logo: "https://help.example/brand/1.png", Width: 100, Height: 30}} {
		server := new(relay)
		r := newRig(t, func(r *rig) { r.mail, r.brand = server, brand })
		c := r.connect("email-raw", ourMail)
		m := r.reply(r.mails(c, question).TicketID, "Under the **mat**.")
		r.run()
		r.until(m, channel.ReceiptSent, "")
		got := server.received
		if len(got) != 1 || !strings.Contains(got[0].HTML, "<strong>mat</strong>") || !strings.HasSuffix(got[0].HTML, brand.Footer()) || strings.Contains(got[0].HTML, "<img") != (brand.Logo != "") {
			t.Errorf("%+v: got %+v", brand, got)
		}
		if strings.Contains(r.message(m).HTML, "<img") {
			t.Error("the ticket has the logo")
		}
	}
}
