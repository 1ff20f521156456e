package inbound_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// outbox holds the mails with challenges.
type outbox struct{ mails []mail.Message }

func (p *outbox) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { p.mails = append(p.mails, m) })
	return nil
}

// raw returns the last challenge as a mail server delivers it, and its token.
func (p *outbox) raw(t testing.TB) (raw, token string) {
	t.Helper()
	if len(p.mails) == 0 {
		t.Fatal("no challenge was sent")
	}
	m := p.mails[len(p.mails)-1]
	m.From = mail.Address{Address: "no-reply@help.example"}
	b, err := mail.Compose(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), regexp.MustCompile(`kickstand-proof-[a-z2-7]{26}`).FindString(m.Subject)
}

// claimed makes a connection one of the organization's own, unproven.
func claimed(organization string) func(*connection.New) {
	return func(n *connection.New) {
		n.OrganizationID, n.ByOperator = organization, false
		n.Secrets = []string{"secret of " + organization + " at " + n.Address}
	}
}

// proofHouse has deployment secrets for texts and mail.
func proofHouse(t testing.TB, change ...func(*house)) (*house, *outbox) {
	p := new(outbox)
	h := start(t, append([]func(*house){func(h *house) {
		h.secrets = map[string][]string{"sms": {"the deployment's"}, "email-raw": {"the deployment's"}}
	}}, change...)...)
	h.connections.UseProofs(connection.Proofs{
		Mailer: p, Text: func(context.Context, string, string) error { return nil }, BaseURL: baseURL,
		Shared: map[string]bool{"sms": true, "email-raw": true},
	})
	return h, p
}

func (h *house) challenge(t testing.TB, c connection.Connection, way channel.ProofWay) {
	t.Helper()
	if _, err := h.connections.Prove(t.Context(), c.OrganizationID, c.ID, way); err != nil {
		t.Fatal(err)
	}
}

func (h *house) proof(t testing.TB, c connection.Connection) string {
	t.Helper()
	now, err := h.connections.Find(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(now.Proof.State) + " " + string(now.Proof.Method))
}

func (h *house) wantProof(t testing.TB, c connection.Connection, want string) {
	t.Helper()
	if got := h.proof(t, c); got != want {
		t.Errorf("%s of %s is %s, want %s", c.Address, c.OrganizationID, got, want)
	}
}

// named addresses a request to the URL of a connection.
func named(r *http.Request, c connection.Connection) *http.Request {
	r.URL.RawQuery = "c=" + c.ID
	r.RequestURI = r.URL.RequestURI()
	return r
}

// owners returns organization and state of all events, oldest first; "-" for no organization.
func (h *house) owners(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, e := range slices.Backward(h.list(t)) {
		owner := e.OrganizationID
		if owner == "" {
			owner = "-"
		}
		out = append(out, owner+" "+string(e.State))
	}
	h.exec(t, "DELETE FROM inbound_events")
	h.exec(t, "DELETE FROM jobs")
	return out
}

func (h *house) wantOwners(t testing.TB, want ...string) {
	t.Helper()
	if got := h.owners(t); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestStrangerCannotClaimAddress: an organization that connects another's address receives no
// request verified by the deployment's secret, before and after the owner connects it, with or
// without challenges.
func TestStrangerCannotClaimAddress(t *testing.T) {
	h, p := proofHouse(t)
	const support = "support@acme.example"
	mallory := h.connect(t, "email-raw", support, claimed("org-2"))
	malloryText := h.connect(t, "sms", ours, claimed("org-2"))
	n := 0
	deliver := func(want string) {
		t.Helper()
		n++
		id := "m" + string(rune('a'+n)) + "@client.example"
		h.wantAnswer(t, mailRequest(mailText(id, "ana@client.example", support, "secret plans"), "the deployment's", support), 200, want)
		if w := h.do(smsRequest(text("SM"+id, theirs, "secret plans"), "the deployment's")); w.Code != 200 {
			t.Errorf("the text was answered %d", w.Code)
		}
		// Nor by the URL of its own connection.
		h.wantAnswer(t, named(mailRequest(mailText(id, "ana@client.example", support, "secret plans"), "the deployment's", support), mallory), 401, denied)
	}
	deliver(ignored)
	h.wantOwners(t, "- unrouted", "- unrouted")

	// Mail to the address arrives here, and so does the challenge.
	h.challenge(t, mallory, channel.ProveByMail)
	raw, token := p.raw(t)
	h.wantAnswer(t, mailRequest(raw, "the deployment's", support), 200, accepted)
	h.wantAnswer(t, mailRequest(mailText("f1@client.example", "ana@client.example", support, token), "the deployment's", support), 200, ignored)
	h.wantProof(t, mallory, "pending")
	h.owners(t)

	// Unclaimed events go to a default organization, and still do.
	sole := "org-3"
	h.fallback.Store(&sole)
	deliver(accepted)
	h.wantOwners(t, "org-3 accepted", "org-3 accepted")
	h.wantAnswer(t, mailRequest(raw+"again\r\n", "the deployment's", support), 200, accepted)
	h.wantProof(t, mallory, "pending")
	h.owners(t)
	h.fallback.Store(nil)

	acme, acmeText := h.connect(t, "email-raw", support), h.connect(t, "sms", ours)
	deliver(accepted)
	h.wantOwners(t, "org-1 accepted", "org-1 accepted")
	h.wantAnswer(t, mailRequest(raw+"and again\r\n", "the deployment's", support), 200, accepted)
	h.wantProof(t, mallory, "pending")
	h.wantProof(t, malloryText, "pending")
	h.wantProof(t, acme, "proven operator")
	h.wantProof(t, acmeText, "proven operator")
	h.owners(t)

	// Requests signed with its own secret remain its own.
	h.wantAnswer(t, mailRequest(mailText("x@client.example", "ana@client.example", support, "made up"), "secret of org-2 at "+support, support), 200, accepted)
	h.wantOwners(t, "org-2 accepted")
}

// TestReplayNeverReachesClaim: replaying an unrouted event does not route it to another
// organization that connected its address later.
func TestReplayNeverReachesClaim(t *testing.T) {
	h, _ := proofHouse(t)
	if w := h.do(smsRequest(text("SM1", theirs, "secret plans"), "the deployment's")); w.Code != 200 {
		t.Fatalf("answered %d", w.Code)
	}
	e := h.list(t, inbound.Unrouted)[0]
	mallory := h.connect(t, "sms", ours, claimed("org-2"))
	if _, err := h.Replay(t.Context(), e.ID); problem.Of(err) != problem.Precondition {
		t.Errorf("Replay() with a claim alone: %v, want a precondition", err)
	}
	if got := h.list(t)[0]; got.OrganizationID != "" || got.State != inbound.Unrouted {
		t.Errorf("the event became %+v", got)
	}
	if err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.connections.ProveTx(t.Context(), tx, mallory.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Replay(t.Context(), e.ID); err != nil {
		t.Error(err)
	}
	h.wantOwners(t, "org-2 accepted")
}

// TestPendingIsNotGreeted: the deployment's secret does not set up a pending connection, and
// the refusal is the usual one.
func TestPendingIsNotGreeted(t *testing.T) {
	dbtest.SQLiteURL(t) // skips the whole test on other engines, not only the bubble
	synctest.Test(t, func(t *testing.T) {
		h, _ := chatHouse(t)
		h.connections.UseProofs(connection.Proofs{})
		c := h.connect(t, "chat", "T1", claimed("org-2"))
		const greeting = `{"token":"x","type":"url_verification","challenge":"3eZbrw1aBm2r"}`
		h.wantAnswer(t, chatRequest(chatPath+"?c="+c.ID, greeting, "the deployment's secret"), 401, denied)
		if w := h.do(chatRequest(chatPath+"?c="+c.ID, greeting, "secret of org-2 at T1")); w.Code != 200 || w.Body.String() != "3eZbrw1aBm2r" {
			t.Errorf("with its own secret: answered %d %q", w.Code, w.Body)
		}
	})
}

// TestOwnSecretNeedsNoProof: requests signed with a connection's own secret reach it at once,
// named in the URL or not, and also after another organization has proven the address.
func TestOwnSecretNeedsNoProof(t *testing.T) {
	h, _ := proofHouse(t)
	const support = "support@acme.example"
	c := h.connect(t, "email-raw", support, claimed("org-2"))
	own := "secret of org-2 at " + support
	request := func(id string) *http.Request {
		return mailRequest(mailText(id, "ana@client.example", support, "hello"), own, support)
	}
	h.wantAnswer(t, request("1@x"), 200, accepted)
	h.wantAnswer(t, named(request("2@x"), c), 200, accepted)
	h.connect(t, "email-raw", support)
	h.wantAnswer(t, request("3@x"), 200, accepted)
	h.wantAnswer(t, named(request("4@x"), c), 200, accepted)
	h.wantOwners(t, "org-2 accepted", "org-2 accepted", "org-2 accepted", "org-2 accepted")
	off := h.connections.SetEnabled(t.Context(), "org-2", c.ID, false)
	if off != nil {
		t.Fatal(off)
	}
	h.wantAnswer(t, request("5@x"), 401, denied)
	h.wantAnswer(t, named(request("6@x"), c), 401, denied)
}

// TestCopiedKey: a secret that two organizations use at one address identifies neither. Some
// keys are public, such as verification keys.
func TestCopiedKey(t *testing.T) {
	h, _ := proofHouse(t)
	same := func(organization string) func(*connection.New) {
		return func(n *connection.New) {
			n.OrganizationID, n.ByOperator, n.Secrets = organization, false, []string{"one key for two"}
		}
	}
	const support = "support@acme.example"
	h.connect(t, "email-raw", support, same("org-2"))
	request := func(id string) *http.Request {
		return mailRequest(mailText(id, "ana@client.example", support, "hello"), "one key for two", support)
	}
	h.wantAnswer(t, request("1@x"), 200, accepted)
	late := h.connect(t, "email-raw", support, same("org-4"))
	h.wantAnswer(t, request("2@x"), 401, denied)
	h.wantAnswer(t, named(request("3@x"), late), 200, accepted)
	h.wantOwners(t, "org-2 accepted", "org-4 accepted")
	if err := h.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := h.connections.ProveTx(t.Context(), tx, late.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.wantAnswer(t, request("4@x"), 200, accepted)
	h.wantOwners(t, "org-4 accepted")
}

// TestClaimOfDefault: events for an unproven address go to the default organization, by its own
// connection if it has one, never by another's.
func TestClaimOfDefault(t *testing.T) {
	h, p := proofHouse(t)
	h.connect(t, "sms", ours, claimed("org-2"))
	c := h.connect(t, "sms", ours, claimed("org-3"))
	const support = "support@acme.example"
	mailbox := h.connect(t, "email-raw", support, claimed("org-3"))
	sole := "org-3"
	h.fallback.Store(&sole)
	for i, r := range []*http.Request{smsRequest(text("SM1", theirs, "hello"), "the deployment's")} {
		if w := h.do(r); w.Code != 200 {
			t.Errorf("request %d was answered %d", i, w.Code)
		}
	}
	list := h.list(t)
	if len(list) != 1 || list[0].ConnectionID != c.ID || list[0].OrganizationID != "org-3" || list[0].VerifiedBy != "deployment, secret 1" {
		t.Errorf("events %+v, want one of %s", list, c.ID)
	}
	h.owners(t)
	// Its returned challenges prove the address: it receives the mail already.
	h.challenge(t, mailbox, channel.ProveByMail)
	raw, _ := p.raw(t)
	h.wantAnswer(t, mailRequest(raw, "the deployment's", support), 200, accepted)
	h.wantProof(t, mailbox, "proven mail")
	h.wantOwners(t, "org-3 processed")
}

// TestChallengeComesBack: a challenge returned to its connection proves the address and never
// opens a ticket.
func TestChallengeComesBack(t *testing.T) {
	const support = "support@acme.example"
	forward := func(raw string) string { // forwarded manually: no header, another subject
		_, token, _ := strings.Cut(raw, "? ")
		token, _, _ = strings.Cut(token, "\r\n")
		return "From: sam@acme.example\r\nTo: " + support + "\r\nSubject: Fwd: Connect this address to Kickstand? " + strings.TrimSpace(token) + "\r\n\r\nsee below\r\n"
	}
	for _, tt := range []struct {
		name string
		path func(c connection.Connection) string
		key  string
		edit func(string) string
		want string
	}{
		{"by its own secret", nil, "secret of org-2 at " + support, nil, "proven mail"},
		{"by its own secret, forwarded by hand", nil, "secret of org-2 at " + support, forward, "proven mail"},
		{"by the deployment's, where the URL names it", func(c connection.Connection) string { return "c=" + c.ID }, "the deployment's", nil, "proven mail"},
		{"by the deployment's, where it names nobody", nil, "the deployment's", nil, "pending"},
		{"unsigned", func(c connection.Connection) string { return "c=" + c.ID }, "made up", nil, "pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, p := proofHouse(t)
			c := h.connect(t, "email-raw", support, claimed("org-2"))
			h.challenge(t, c, channel.ProveByMail)
			raw, _ := p.raw(t)
			if tt.edit != nil {
				raw = tt.edit(raw)
			}
			for range 2 { // it may arrive twice
				r := mailRequest(raw, tt.key, support)
				if tt.path != nil {
					r.URL.RawQuery = tt.path(c)
					r.RequestURI = r.URL.RequestURI()
				}
				if w := h.do(r); (w.Code == 200) != (tt.name != "unsigned") {
					t.Errorf("answered %d %s", w.Code, w.Body)
				}
			}
			h.wantProof(t, c, tt.want)
			for _, e := range h.list(t) {
				if e.State != inbound.Processed || e.Kind != "challenge" {
					t.Errorf("event %+v, want one that is done with", e)
				}
				if _, err := h.Replay(t.Context(), e.ID); err == nil {
					t.Error("it can be replayed, as a message")
				}
			}
			// Later mail is ordinary mail.
			if tt.want == "pending" {
				return
			}
			h.wantAnswer(t, mailRequest(mailText("2@client.example", "ana@client.example", support, "hello"), "the deployment's", support), 200, accepted)
			h.until(t, event.TicketCreated, 1)
			if got := h.tickets(t, "org-2"); len(got) != 1 || got[0][0] != "hello" {
				t.Errorf("tickets %q, want that of the mail alone", got)
			}
		})
	}
}

// TestPendingIsNotTold: the URL of a pending connection accepts its challenge and nothing else,
// and every refusal is the usual one.
func TestPendingIsNotTold(t *testing.T) {
	h, p := proofHouse(t)
	const support = "support@acme.example"
	c := h.connect(t, "email-raw", support, claimed("org-2"))
	h.challenge(t, c, channel.ProveByMail)
	_, token := p.raw(t)
	before := h.rows(t)
	for name, body := range map[string]string{
		"a mail":               mailText("1@x", "ana@client.example", support, "hello"),
		"a token of no use":    strings.Replace(mailText("1@x", "ana@client.example", support, "hello"), "Help", "kickstand-proof-aaaaaaaaaaaaaaaaaaaaaaaaaa", 1),
		"the token in a text":  mailText("1@x", "ana@client.example", support, token),
		"what cannot be read":  "",
		"an empty message":     "\r\n",
		"many, none for it":    mailText("1@x", "ana@client.example", "other@acme.example", "hello"),
		"a challenge's header": "X-Kickstand-Challenge: x\r\n" + mailText("1@x", "ana@client.example", support, "hello"),
	} {
		w := h.do(named(mailRequest(body, "the deployment's", support), c))
		if w.Code != 401 || w.Body.String() != denied {
			t.Errorf("%s: answered %d %s", name, w.Code, w.Body)
		}
	}
	h.wantUntouched(t, before)
	h.wantProof(t, c, "pending")
}

// TestTextComesBack: a texted code never becomes a ticket that others can read, and no text
// answers a challenge.
func TestTextComesBack(t *testing.T) {
	h, _ := proofHouse(t)
	c := h.connect(t, "sms", ours, claimed("org-2"))
	sole := "org-3"
	h.fallback.Store(&sole)
	form := text("SM1", theirs, channel.ProofText("12345678"))
	if w := h.do(smsRequest(form, "the deployment's")); w.Code != 200 {
		t.Errorf("answered %d", w.Code)
	}
	h.wantOwners(t, "org-3 accepted") // no challenge was sent there: an ordinary text
	h.challenge(t, c, channel.ProveByText)
	for i, secret := range []string{"the deployment's", "secret of org-2 at " + ours} {
		form.Set("MessageSid", []string{"SM2", "SM3"}[i])
		if w := h.do(smsRequest(form, secret)); w.Code != 200 || w.Body.String() != twiml {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	}
	h.wantProof(t, c, "pending")
	h.wantOwners(t, "org-3 processed", "org-2 processed")
}

// TestPendingHandshake: the verify token of a pending connection is valid only at its own URL,
// so that a stranger's token does not count for the channel.
func TestPendingHandshake(t *testing.T) {
	h := start(t, withParcels(greeting{newParcels("parcels")}))
	c := h.connect(t, "parcels", "a", claimed("org-2"), func(n *connection.New) { n.Credentials = map[string]string{channel.VerifyToken: "mine"} })
	ask := func(query string) int {
		return h.do(httptest.NewRequest("GET", parcelPath+"?hub.mode=subscribe&hub.challenge=1&hub.verify_token=mine"+query, nil)).Code
	}
	if got := ask(""); got != http.StatusForbidden {
		t.Errorf("without its address: answered %d", got)
	}
	if got := ask("&c=" + c.ID); got != http.StatusOK {
		t.Errorf("at its address: answered %d", got)
	}
}

// TestMarketplaceClaims: an unproven topic receives only its setup messages, and a message
// published on it proves it.
func TestMarketplaceClaims(t *testing.T) {
	dbtest.SQLiteURL(t) // skips the whole test on other engines, not only the bubble
	synctest.Test(t, func(t *testing.T) {
		s := newSNS(t)
		h, p, _ := marketHouse(t, s)
		h.connections.UseProofs(connection.Proofs{})
		mallory := h.connect(t, "marketplace", ourTopic, claimed("org-2"))
		acme := h.connect(t, "marketplace", ourTopic, claimed("org-1"))
		now := time.Now()
		order := func(id string) *http.Request {
			return s.request(ourTopic, id, orderChange(id, "1", "BuyerRequestedChange", "Unshipped", now))
		}
		for _, c := range []connection.Connection{mallory, acme} {
			h.wantAnswer(t, order("m1"), 401, denied)
			h.wantAnswer(t, named(order("m1"), c), 401, denied)
		}
		h.wantAnswer(t, s.request(ourTopic, "s1", "confirm", "Type", "SubscriptionConfirmation", "Token", "hush", "SubscribeURL", confirmIt), 401, denied)
		h.wantAnswer(t, named(s.request(ourTopic, "s1", "confirm", "Type", "SubscriptionConfirmation", "Token", "hush", "SubscribeURL", confirmIt), acme), 200, accepted)
		h.run(t)
		synctest.Wait()
		if !slices.ContainsFunc(p.asked, func(q string) bool { return strings.Contains(q, "ConfirmSubscription") }) {
			t.Errorf("the subscription was not confirmed: %q", p.asked)
		}
		h.challenge(t, mallory, channel.ProveByTopic)
		h.challenge(t, acme, channel.ProveByTopic)
		st, err := h.connections.FullProofStatus(t.Context(), h.db, &acme)
		if err != nil || st.Challenge == nil {
			t.Fatalf("status %+v, %v", st, err)
		}
		h.wantAnswer(t, named(s.request(ourTopic, "m2", "kickstand-proof-aaaaaaaaaaaaaaaaaaaaaaaaaa"), acme), 401, denied)
		h.wantAnswer(t, named(newSNS(t).request(ourTopic, "m3", st.Challenge.Publish), acme), 401, denied)
		h.wantAnswer(t, named(s.request(ourTopic+"2", "m4", st.Challenge.Publish), acme), 401, denied)
		h.wantProof(t, acme, "pending")
		h.wantAnswer(t, named(s.request(ourTopic, "m5", st.Challenge.Publish), acme), 200, accepted)
		h.wantProof(t, acme, "proven topic")
		h.wantProof(t, mallory, "pending")
		h.wantAnswer(t, order("m6"), 200, accepted)
		h.wantAnswer(t, named(order("m7"), mallory), 401, denied)
		synctest.Wait()
		h.wantOwners(t, "org-1 processed", "org-1 processed", "org-1 processed") // set up, proven, one order
	})
}
