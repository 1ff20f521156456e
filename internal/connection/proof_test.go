package connection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// provableMail and the types below are channels with every way to prove an address.
type provableMail struct{ mailboxes }

func (provableMail) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByMail, channel.ProveByDNS}
}

func (provableMail) API() channel.API {
	return channel.API{Credentials: []channel.Credential{{Name: "smtp_url", Kind: channel.KindServer}}}
}

func (provableMail) UsesOwnAccount(c channel.Credentials) bool { return c.Get("smtp_url") != "" }

type provableNumbers struct{ numbers }

func (provableNumbers) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByText}
}

type workspaces struct{ channel.Adapter }

func (workspaces) Info() channel.Info { return channel.Info{Name: "chat", TicketChannel: "chat"} }

func (workspaces) API() channel.API {
	return channel.API{URL: "https://provider.example", Credentials: []channel.Credential{
		{Name: "token", Kind: channel.KindAPIKey}, {Name: "api_url", Kind: channel.KindAPIURL},
	}}
}

func (workspaces) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByProvider}
}

func (w workspaces) ProofAPI(string) channel.API { return w.API() }

func (workspaces) ProofCall(address string, c channel.Credentials, answers []channel.Response) (*channel.APIRequest, error) {
	if len(answers) == 0 {
		call := c.NewRequest("GET", "/owner", http.Header{"Authorization": {c.Get("token")}}, nil)
		return &call, nil
	}
	if string(answers[0].Body) == "ask again" {
		call := c.NewRequest("GET", "/owner", nil, nil)
		return &call, nil
	}
	if string(answers[0].Body) != address {
		return nil, errors.New("the token is of another workspace")
	}
	return nil, nil
}

type topics struct{ channel.Adapter }

func (topics) Info() channel.Info {
	return channel.Info{Name: "marketplace", TicketChannel: "marketplace", SharedKey: true}
}

func (topics) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByTopic}
}

// zone is a DNS zone.
type zone map[string][]string

func (z zone) LookupTXT(_ context.Context, name string) ([]string, error) {
	if r, ok := z[name]; ok {
		return r, nil
	}
	if strings.HasPrefix(name, "_kickstand-challenge.broken.") {
		return nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	}
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

type provider func(*http.Request) (*http.Response, error)

func (f provider) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// boxes holds the keys of tests that reopen the service.
var boxes sync.Map

func box(t testing.TB) *seal.Box {
	b, _ := boxes.LoadOrStore(t.Name(), seal.New(seal.NewKey()))
	return b.(*seal.Box)
}

// rig is the service with all dependencies of proofs.
type rig struct {
	*connection.Service
	t      testing.TB
	d      *db.DB
	office *office
	texts  []string // "number: text"
	zone   zone
	owner  string // owner named by the provider
	asked  []string
}

func newRig(t testing.TB, d *db.DB, change ...func(*connection.Proofs)) *rig {
	r := &rig{t: t, d: d, office: new(office), zone: zone{}}
	r.Service = connection.Open(d, box(t), []channel.Adapter{provableMail{}, provableNumbers{}, workspaces{}, topics{}, keyed{}})
	r.EnableAdminMail(r.office, r.office, "https://desk.example")
	p := connection.Proofs{
		Mailer: r.office, LookupTXT: r.zone.LookupTXT, BaseURL: "https://desk.example",
		Text: func(_ context.Context, number, text string) error {
			r.texts = append(r.texts, number+": "+text)
			return nil
		},
		HTTP: provider(func(q *http.Request) (*http.Response, error) {
			r.asked = append(r.asked, q.URL.String()+" "+q.Header.Get("Authorization"))
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(r.owner))}, nil
		}),
		Slug:   func(_ context.Context, _ db.Querier, id string) (string, error) { return "slug-of-" + id, nil },
		Shared: map[string]bool{"email-raw": true, "sms": true, "marketplace": true},
	}
	for _, f := range change {
		f(&p)
	}
	r.UseProofs(p)
	return r
}

// claim connects an address as an organization's admin.
func (r *rig) claim(organization, channel, address string, credentials ...string) connection.Connection {
	r.t.Helper()
	n := connection.New{OrganizationID: organization, Channel: channel, Address: address}
	for i := 0; i < len(credentials); i += 2 {
		n.Credentials = map[string]string{credentials[0]: credentials[1]}
		if len(credentials) == 4 {
			n.Credentials[credentials[2]] = credentials[3]
		}
	}
	c, _, err := r.Connect(r.t.Context(), n)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// state returns "pending" or "proven by METHOD".
func (r *rig) state(c connection.Connection) string {
	r.t.Helper()
	now, err := r.Find(r.t.Context(), c.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	if now.Proven() != !now.Proof.At.IsZero() || now.Proven() != (now.Proof.Method != "") {
		r.t.Errorf("proof %+v is neither here nor there", now.Proof)
	}
	if !now.Proven() {
		return string(now.Proof.State)
	}
	return string(now.Proof.State) + " by " + string(now.Proof.Method)
}

func (r *rig) want(c connection.Connection, want string) {
	r.t.Helper()
	if got := r.state(c); got != want {
		r.t.Errorf("%s of %s is %s, want %s", c.Address, c.OrganizationID, got, want)
	}
}

func (r *rig) prove(c connection.Connection, way channel.ProofWay) error {
	_, err := r.Prove(r.t.Context(), c.OrganizationID, c.ID, way)
	return err
}

func (r *rig) answer(c connection.Connection, code string) error {
	_, err := r.AnswerChallenge(r.t.Context(), c.OrganizationID, c.ID, code)
	return err
}

// returned passes a token back to a connection, or to none if it is nil.
func (r *rig) returned(ticketChannel, address, token string, to *connection.Connection) (outcome string, known bool) {
	r.t.Helper()
	id := ""
	if to != nil {
		id = to.ID
	}
	err := r.d.Write(r.t.Context(), func(tx *db.Tx) error {
		got, k, err := r.ApplyReturnedTokenTx(r.t.Context(), tx, ticketChannel, address, token, id)
		outcome, known = got.Outcome, k
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return outcome, known
}

var (
	tokenForm = regexp.MustCompile(`kickstand-proof-[a-z2-7]{26}`)
	codeForm  = regexp.MustCompile(`\d{4} ?\d{4}`)
)

// lastMail returns the last challenge: token, code and mail.
func (r *rig) lastMail() (token, code string, m mail.Message) {
	r.t.Helper()
	if len(r.office.mails) == 0 {
		r.t.Fatal("no mail was sent")
	}
	m = r.office.mails[len(r.office.mails)-1]
	return tokenForm.FindString(m.Subject), codeForm.FindString(m.Text), m
}

func (r *rig) textedCode(i int) string {
	r.t.Helper()
	if i >= len(r.texts) {
		r.t.Fatalf("texts %q", r.texts)
	}
	_, text, _ := strings.Cut(r.texts[i], "code: ")
	return text[:8]
}

func (r *rig) setProof(c connection.Connection, method connection.Method) {
	r.t.Helper()
	err := r.d.Write(r.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(r.t.Context(), "UPDATE connections SET proof = 'proven', proof_method = $2, proven_at = 1 WHERE id = $1", c.ID, string(method))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func kind(t testing.TB, err error, want problem.Kind) {
	t.Helper()
	if err == nil || problem.Of(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestPending: an admin's connection is pending, the operator's is proven, and each receives
// accordingly.
func TestPending(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "email-raw", "support@acme.example")
	r.want(c, "pending")
	if !c.Receives(true) || c.Receives(false) {
		t.Error("it must receive by its own secret only")
	}
	if got := r.Needs(&c); !slices.Equal(got, []connection.Capability{connection.ToReceive, connection.ToSend}) {
		t.Errorf("Needs() = %v", got)
	}
	kind(t, r.SendRefusal(&c), problem.Precondition)
	own := r.claim("org-1", "email-raw", "own@acme.example", "smtp_url", "smtps://mail.acme.example")
	if got := r.Needs(&own); !slices.Equal(got, []connection.Capability{connection.ToReceive}) || r.SendRefusal(&own) != nil {
		t.Errorf("Needs() of one with a server of its own = %v, %v", got, r.SendRefusal(&own))
	}
	topic := r.claim("org-1", "marketplace", "arn")
	if topic.Receives(true) || topic.Receives(false) {
		t.Error("where the provider signs for everybody, nothing may be received before the proof")
	}
	made := connect(t, r.Service, connection.New{OrganizationID: "org-2", Channel: "marketplace", Address: "arn"})
	r.want(made, "proven by operator")
	if !made.Receives(true) || !made.Receives(false) || len(r.Needs(&made)) != 0 {
		t.Error("what the operator connects must receive")
	}
}

// TestConnectedElsewhere: the answer to a claim does not depend on other organizations'
// connections.
func TestConnectedElsewhere(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	held := connect(t, r.Service, connection.New{OrganizationID: "org-1", Channel: "email-raw", Address: "held@acme.example"})
	r.claim("org-3", "email-raw", "claimed@acme.example")
	shape := func(address string) string {
		t.Helper()
		c, secrets, err := r.Connect(t.Context(), connection.New{OrganizationID: "org-2", Channel: "email-raw", Address: address, Name: "n"})
		if err != nil || len(secrets) != 1 {
			t.Fatalf("Connect(%s): %v", address, err)
		}
		st, err := r.FullProofStatus(t.Context(), r.d, &c)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(struct {
			C connection.Connection
			S connection.Status
		}{c, st})
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`"(id|created_at|updated_at)":"[^"]*"`).ReplaceAllString(strings.ReplaceAll(string(b), c.Address, "ADDRESS"), "")
	}
	free := shape("free@acme.example")
	for _, address := range []string{held.Address, "claimed@acme.example"} {
		if got := shape(address); got != free {
			t.Errorf("%s: %s\nfree: %s", address, got, free)
		}
	}
	// Within an organization it does.
	_, _, err := r.Connect(t.Context(), connection.New{OrganizationID: "org-2", Channel: "email-raw", Address: "free@acme.example"})
	kind(t, err, problem.Conflict)
	if got := at(t, r.Service, "email", "held@acme.example"); len(got) != 2 || got[0] != held.ID {
		t.Errorf("At() = %v, want the proven one first", got)
	}
}

// TestManyClaims: of any number of claims, only a few are read, and always the proven one.
func TestManyClaims(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	var first connection.Connection
	for i := range 20 {
		c := r.claim(fmt.Sprintf("org-%d", i), "sms", "+14155550100")
		if i == 0 {
			first = c
		}
	}
	held := connect(t, r.Service, connection.New{OrganizationID: "org", Channel: "sms", Address: "+14155550100"})
	got := at(t, r.Service, "sms", "+14155550100")
	if len(got) != 5 || got[0] != held.ID || got[1] != first.ID {
		t.Errorf("At() = %v, want %s, then the four oldest from %s on", got, held.ID, first.ID)
	}
	if again := at(t, r.Service, "sms", "+14155550100"); !slices.Equal(again, got) {
		t.Errorf("from memory: %v, want %v", again, got)
	}
	c, err := r.FindByAddress(t.Context(), "org-19", "sms", "+14155550100")
	if err != nil || c == nil || c.OrganizationID != "org-19" {
		t.Errorf("ClaimOf() = %v, %v", c, err)
	}
}

// TestMailProof: a challenge proves the address when it returns to its connection, or by its
// code.
func TestMailProof(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "email-raw", "support@acme.example")
	if err := r.prove(c, channel.ProveByMail); err != nil {
		t.Fatal(err)
	}
	token, code, m := r.lastMail()
	if m.To[0].Address != c.Address || token == "" || !strings.Contains(m.Text, token) || len(code) != 9 || !strings.Contains(m.Text, "ignore this message") ||
		!slices.Contains(m.Headers, mail.Header{Name: channel.ProofHeader, Value: token}) || !slices.Contains(m.Headers, mail.Header{Name: "Auto-Submitted", Value: "auto-generated"}) {
		t.Errorf("the challenge is %+v", m)
	}
	st, err := r.FullProofStatus(t.Context(), r.d, &c)
	if err != nil || st.Challenge == nil || st.Challenge.Way != channel.ProveByMail || st.Challenge.TriesLeft != 5 || st.Challenge.Publish != "" {
		t.Errorf("status %+v, %v", st, err)
	}
	if outcome, known := r.returned("email", c.Address, token, &c); outcome != "proven" || !known {
		t.Errorf("it came back: %s, %t", outcome, known)
	}
	r.want(c, "proven by mail")
	kind(t, r.prove(c, channel.ProveByMail), problem.Precondition)

	byCode := r.claim("org-1", "email-raw", "sales@acme.example")
	if err := r.prove(byCode, channel.ProveByMail); err != nil {
		t.Fatal(err)
	}
	_, code, _ = r.lastMail()
	if err := r.answer(byCode, " "+code+" "); err != nil {
		t.Fatal(err)
	}
	r.want(byCode, "proven by mail")
}

// TestChallengeCannotBeForged: only the token that was sent proves an address, and only for its
// connection.
func TestChallengeCannotBeForged(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "email-raw", "support@acme.example")
	theirs := r.claim("org-2", "email-raw", "support@acme.example")
	if err := r.prove(c, channel.ProveByMail); err != nil {
		t.Fatal(err)
	}
	token, _, _ := r.lastMail()
	last := "a"
	if strings.HasSuffix(token, "a") {
		last = "b"
	}
	rec := r.ProofStatus(&c).Record.Value
	for _, forged := range []string{"", "kickstand-proof-", token[:len(token)-1] + last, strings.ToUpper(token), rec, "text"} {
		if outcome, known := r.returned("email", c.Address, forged, &c); outcome == "proven" || known {
			t.Errorf("%q: %s, %t", forged, outcome, known)
		}
	}
	// The real token at another connection is recognized and proves nothing.
	for name, to := range map[string]*connection.Connection{"nobody": nil, "another's": &theirs} {
		if outcome, known := r.returned("email", c.Address, token, to); outcome != "recognized" || !known {
			t.Errorf("back at %s: %s, %t", name, outcome, known)
		}
	}
	r.want(c, "pending")
	r.want(theirs, "pending")
}

// TestChallengeCannotBeReplayed: a token and a code count once, until they expire or are
// replaced.
func TestChallengeCannotBeReplayed(t *testing.T) {
	url := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dbtest.Open(t, url))
		c := r.claim("org-1", "email-raw", "support@acme.example")
		send := func() (token, code string) {
			t.Helper()
			time.Sleep(time.Minute)
			if err := r.prove(c, channel.ProveByMail); err != nil {
				t.Fatal(err)
			}
			token, code, _ = r.lastMail()
			return token, code
		}
		useless := func(token, code string) {
			t.Helper()
			if outcome, known := r.returned("email", c.Address, token, &c); outcome != "recognized" || !known {
				t.Errorf("the token: %s, %t", outcome, known)
			}
			kind(t, r.answer(c, code), problem.Invalid)
			r.want(c, "pending")
		}
		older, olderCode := send()
		token, code := send()
		if olderCode != code {
			kind(t, r.answer(c, olderCode), problem.Invalid)
		}
		if outcome, _ := r.returned("email", c.Address, older, &c); outcome != "recognized" {
			t.Errorf("a token that was replaced: %s", outcome)
		}
		if outcome, _ := r.returned("email", c.Address, token, &c); outcome != "proven" {
			t.Fatalf("the newest token: %s", outcome)
		}
		if err := r.d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.RevokeProofTx(t.Context(), tx, c.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		useless(token, code)

		token, code = send()
		time.Sleep(24 * time.Hour)
		useless(token, code)
	})
}

// TestChallengeAnsweredByAnotherOrganization: an organization cannot use the code of another's
// challenge.
func TestChallengeAnsweredByAnotherOrganization(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "sms", "+14155550100")
	theirs := r.claim("org-2", "sms", "+14155550100")
	if err := r.prove(c, channel.ProveByText); err != nil {
		t.Fatal(err)
	}
	code := r.textedCode(0)
	_, err := r.AnswerChallenge(t.Context(), "org-2", c.ID, code)
	kind(t, err, problem.NotFound)
	kind(t, r.answer(theirs, code), problem.Invalid)
	if err := r.prove(theirs, channel.ProveByText); err != nil {
		t.Fatal(err)
	}
	if other := r.textedCode(1); other != code {
		kind(t, r.answer(theirs, code), problem.Invalid)
	}
	r.want(theirs, "pending")
	if err := r.answer(c, code); err != nil {
		t.Fatal(err)
	}
	r.want(c, "proven by text")
}

// TestTextedCodeGuessing: a code allows five attempts, also concurrent ones, and every attempt
// is counted.
func TestTextedCodeGuessing(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "sms", "+14155550100")
	kind(t, r.answer(c, "00000000"), problem.Invalid) // no code was sent
	if err := r.prove(c, channel.ProveByText); err != nil {
		t.Fatal(err)
	}
	if len(r.texts) != 1 || !strings.HasPrefix(r.texts[0], "+14155550100: Kickstand code: ") {
		t.Fatalf("texts %q", r.texts)
	}
	code := r.textedCode(0)
	var wrong []string
	for i := 0; len(wrong) < 40; i++ {
		if guess := fmt.Sprintf("%08d", i); guess != code {
			wrong = append(wrong, guess)
		}
	}
	var left sync.Map
	var tries atomic.Int64
	var all sync.WaitGroup
	for _, guess := range wrong {
		all.Go(func() {
			p, _ := errors.AsType[*problem.Error](r.answer(c, guess))
			if p == nil || p.Kind != problem.Invalid || len(p.Issues) != 1 {
				t.Errorf("the guess %s: %v", guess, p)
				return
			}
			if strings.Contains(p.Issues[0].Message, "left") {
				tries.Add(1)
				left.Store(p.Issues[0].Message, true)
			}
		})
	}
	all.Wait()
	if n := tries.Load(); n != 4 {
		t.Errorf("%d guesses left a further try, want 4", n)
	}
	kind(t, r.answer(c, code), problem.Invalid)
	r.want(c, "pending")
	// Inbound texts cannot be used to try codes.
	if outcome, known := r.returned("sms", c.Address, "text", &c); outcome == "proven" || !known {
		t.Errorf("a text that came back: %s, %t", outcome, known)
	}
	r.want(c, "pending")
}

// TestTextFails: a code that could not be sent leaves no challenge and reveals nothing of the
// operator's account.
func TestTextFails(t *testing.T) {
	var fails error
	var log strings.Builder
	r := newRig(t, dbtest.New(t), func(p *connection.Proofs) {
		p.Text = func(context.Context, string, string) error { return fails }
		p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for i, tt := range []struct {
		err          error
		want, logged string
	}{
		{problem.New(problem.Precondition, "it is a landline"), "the code could not be sent to +14155550100: it is a landline", ""},
		{errors.New("account AC0operator is suspended"), "the code could not be sent to +14155550100: the SMS account did not accept it; try again later, or ask the operator of this server",
			"account AC0operator is suspended"},
	} {
		fails = tt.err
		c := r.claim(fmt.Sprintf("org-%d", i), "sms", "+14155550100")
		err := r.prove(c, channel.ProveByText)
		kind(t, err, problem.Precondition)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Message != tt.want {
			t.Errorf("got %v, want %q", err, tt.want)
		}
		if !strings.Contains(log.String(), tt.logged) || tt.logged == "" && log.Len() > 0 {
			t.Errorf("logged %q, want %q", log.String(), tt.logged)
		}
		if st, err := r.FullProofStatus(t.Context(), r.d, &c); err != nil || st.Challenge != nil {
			t.Errorf("status %+v, %v", st, err)
		}
	}
}

// TestChallengeFlood: no number of organizations and requests can flood an address.
func TestChallengeFlood(t *testing.T) {
	url := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(24*time.Hour - time.Duration(time.Now().UnixNano())%(24*time.Hour))) // start of a day
		r := newRig(t, dbtest.Open(t, url))
		var claims []connection.Connection
		for i := range 4 {
			claims = append(claims, r.claim(fmt.Sprintf("org-%d", i), "email-raw", "victim@acme.example"))
		}
		var sent, refused int
		for range 10 {
			for _, c := range claims {
				switch err := r.prove(c, channel.ProveByMail); {
				case err == nil:
					sent++
				default:
					kind(t, err, problem.RateLimited)
					refused++
				}
				kind(t, r.prove(c, channel.ProveByMail), problem.RateLimited) // within one minute
			}
			time.Sleep(time.Minute)
		}
		if sent != 10 || len(r.office.mails) != 10 || refused != 30 {
			t.Errorf("%d were sent and %d refused, with %d mails; want 10, 30, 10", sent, refused, len(r.office.mails))
		}
		time.Sleep(24 * time.Hour)
		if err := r.prove(claims[0], channel.ProveByMail); err != nil {
			t.Errorf("the day after: %v", err)
		}
		if err := r.PurgeProofs(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			time.Sleep(time.Minute)
			if err := r.prove(claims[0], channel.ProveByMail); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		kind(t, r.prove(claims[0], channel.ProveByMail), problem.RateLimited) // the organization's sixth
	})
}

// TestOrganizationFlood: an organization can challenge thirty addresses a day, and make sixty
// lookups an hour.
func TestOrganizationFlood(t *testing.T) {
	url := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - time.Duration(time.Now().UnixNano())%(24*time.Hour)) // start of a day
		r := newRig(t, dbtest.Open(t, url))
		for i := range 31 {
			channelName, way, address := "email-raw", channel.ProveByMail, fmt.Sprintf("victim-%d@acme.example", i)
			if i%2 == 1 {
				channelName, way, address = "sms", channel.ProveByText, fmt.Sprintf("+141555501%02d", i)
			}
			c := r.claim("org-1", channelName, address)
			err := r.prove(c, way)
			if i < 30 && err != nil {
				t.Fatalf("challenge %d: %v", i, err)
			}
			if i == 30 {
				kind(t, err, problem.RateLimited)
			}
		}
		if len(r.office.mails) != 15 || len(r.texts) != 15 {
			t.Errorf("%d mails and %d texts were sent, want 15 of each", len(r.office.mails), len(r.texts))
		}
		if err := r.prove(r.claim("org-2", "email-raw", "another@acme.example"), channel.ProveByMail); err != nil {
			t.Errorf("another organization: %v", err)
		}
		mailbox, space := r.claim("org-3", "email-raw", "x@acme.example"), r.claim("org-3", "chat", "T1", "token", "t")
		for i := range 60 {
			c, way := mailbox, channel.ProveByDNS
			if i%2 == 1 {
				c, way = space, channel.ProveByProvider
			}
			kind(t, r.prove(c, way), problem.Precondition)
		}
		kind(t, r.prove(mailbox, channel.ProveByDNS), problem.RateLimited)
		kind(t, r.prove(space, channel.ProveByProvider), problem.RateLimited)
		if len(r.asked) != 30 {
			t.Errorf("the provider was asked %d times, want 30", len(r.asked))
		}
		time.Sleep(time.Hour)
		kind(t, r.prove(mailbox, channel.ProveByDNS), problem.Precondition)
	})
}

// TestLimitsAreExact: concurrent requests never exceed a limit.
func TestLimitsAreExact(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "email-raw", "victim@acme.example")
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if r.prove(c, channel.ProveByMail) == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n != 1 && n != 2 { // 2 if a new minute began
		t.Errorf("%d challenges were sent within a minute, want 1", n)
	}
}

// TestDNSProof: an organization's record proves only its connections of the domain.
func TestDNSProof(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	a, b := r.claim("org-1", "email-raw", "a@acme.example"), r.claim("org-1", "email-raw", "b@acme.example")
	sub, other := r.claim("org-1", "email-raw", "a@sub.acme.example"), r.claim("org-2", "email-raw", "a@acme.example")
	broken := r.claim("org-1", "email-raw", "a@broken.example")
	rec := r.ProofStatus(&a).Record
	if rec == nil || rec.Name != "_kickstand-challenge.acme.example" || !tokenForm.MatchString(rec.Value) {
		t.Fatalf("record %+v", rec)
	}
	if theirs := r.ProofStatus(&other).Record; theirs.Name != rec.Name || theirs.Value == rec.Value {
		t.Errorf("the record of another organization is %+v", theirs)
	}
	kind(t, r.prove(a, channel.ProveByDNS), problem.Precondition) // no record
	kind(t, r.prove(broken, channel.ProveByDNS), problem.Unavailable)
	r.zone[rec.Name] = []string{"v=spf1 -all", "kickstand-proof-", "kickstand-proof-aaaaaaaaaaaaaaaaaaaaaaaaaa", " " + rec.Value + " "}
	kind(t, r.prove(other, channel.ProveByDNS), problem.Precondition)
	kind(t, r.prove(sub, channel.ProveByDNS), problem.Precondition)
	if err := r.prove(a, channel.ProveByDNS); err != nil {
		t.Fatal(err)
	}
	r.want(a, "proven by dns")
	r.want(b, "proven by dns")
	r.want(sub, "pending")
	r.want(other, "pending")
}

// TestProofMovesAddress: which proof overrides which.
func TestProofMovesAddress(t *testing.T) {
	prove := map[string]func(*testing.T, *rig, connection.Connection) error{
		"operator": func(t *testing.T, r *rig, c connection.Connection) error {
			return r.d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := r.ProveTx(t.Context(), tx, c.ID)
				return err
			})
		},
		"dns": func(t *testing.T, r *rig, c connection.Connection) error {
			rec := r.ProofStatus(&c).Record
			r.zone[rec.Name] = []string{rec.Value}
			return r.prove(c, channel.ProveByDNS)
		},
		"dns of both": func(t *testing.T, r *rig, c connection.Connection) error {
			holder := c
			holder.OrganizationID = "org-1"
			rec, theirs := r.ProofStatus(&c).Record, r.ProofStatus(&holder).Record
			r.zone[rec.Name] = []string{theirs.Value, rec.Value}
			return r.prove(c, channel.ProveByDNS)
		},
		"code": func(t *testing.T, r *rig, c connection.Connection) error {
			if err := r.prove(c, channel.ProveByMail); err != nil {
				return err
			}
			_, code, _ := r.lastMail()
			return r.answer(c, code)
		},
		"mail back": func(t *testing.T, r *rig, c connection.Connection) error {
			if err := r.prove(c, channel.ProveByMail); err != nil {
				return err
			}
			token, _, _ := r.lastMail()
			r.returned("email", c.Address, token, &c)
			return nil
		},
	}
	for _, tt := range []struct {
		held connection.Method
		by   string
		want bool
	}{
		{connection.ByOperator, "operator", true}, {connection.ByOperator, "dns", false}, {connection.ByOperator, "code", false}, {connection.ByOperator, "mail back", false},
		{connection.ByAllowList, "operator", true}, {connection.ByAllowList, "dns", false}, {connection.ByAllowList, "code", false},
		{connection.ByDNS, "operator", true}, {connection.ByDNS, "dns", true}, {connection.ByDNS, "dns of both", false}, {connection.ByDNS, "code", false}, {connection.ByDNS, "mail back", false},
		{connection.ByMail, "operator", true}, {connection.ByMail, "dns", true}, {connection.ByMail, "dns of both", true}, {connection.ByMail, "code", false}, {connection.ByMail, "mail back", false},
		{connection.BeforeProofs, "operator", true}, {connection.BeforeProofs, "dns", true}, {connection.BeforeProofs, "code", true}, {connection.BeforeProofs, "mail back", true},
	} {
		t.Run(string(tt.held)+" against "+tt.by, func(t *testing.T) {
			r := newRig(t, dbtest.New(t))
			holder, c := r.claim("org-1", "email-raw", "support@acme.example"), r.claim("org-2", "email-raw", "support@acme.example")
			r.setProof(holder, tt.held)
			err := prove[tt.by](t, r, c)
			if !tt.want {
				if tt.by != "mail back" {
					kind(t, err, problem.Precondition)
				}
				r.want(holder, "proven by "+string(tt.held))
				r.want(c, "pending")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r.want(holder, "pending")
			if got := r.state(c); !strings.HasPrefix(got, "proven by ") {
				t.Errorf("the new owner is %s", got)
			}
			now, err := r.Find(t.Context(), holder.ID)
			if err != nil || now.Notice == nil || !strings.Contains(now.Notice.Text, "somebody else has proven") {
				t.Errorf("the former owner's notice is %+v, %v", now.Notice, err)
			}
			if !slices.ContainsFunc(r.office.mails, func(m mail.Message) bool { return m.To[0].Address == "a@office.example" }) {
				t.Error("the former owner's admins got no mail")
			}
			if now.Receives(false) || !now.Receives(true) {
				t.Error("the former owner must receive by its own secret only")
			}
		})
	}
}

// TestOneProof: of many concurrent proofs of an address, one succeeds.
func TestOneProof(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	r.owner = "T1"
	var claims []connection.Connection
	for i := range 8 {
		claims = append(claims, r.claim(fmt.Sprintf("org-%d", i), "chat", "T1", "token", "t"))
	}
	var proven atomic.Int64
	var all sync.WaitGroup
	for _, c := range claims {
		all.Go(func() {
			if err := r.d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := r.ProveTx(t.Context(), tx, c.ID)
				return err
			}); err != nil {
				t.Error(err)
				return
			}
			proven.Add(1)
		})
	}
	all.Wait()
	n := 0
	for _, c := range claims {
		if r.state(c) != "pending" {
			n++
		}
	}
	if proven.Load() != 8 || n != 1 {
		t.Errorf("%d were told that they have proven it, and %d have", proven.Load(), n)
	}
}

// TestProofCallGoesToProviderOnly: the call goes to the operator's API address, never to one
// among the credentials.
func TestProofCallGoesToProviderOnly(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c := r.claim("org-1", "chat", "T1", "token", "the token", "api_url", "https://evil.example")
	r.owner = "ask again"
	if err := r.prove(c, channel.ProveByProvider); err == nil || len(r.asked) != 3 {
		t.Errorf("a provider that is asked without end: %v after %d calls, want an error after 3", err, len(r.asked))
	}
	r.want(c, "pending")
	r.asked, r.owner = nil, "T2"
	kind(t, r.prove(c, channel.ProveByProvider), problem.Precondition)
	r.want(c, "pending")
	r.owner = "T1"
	if err := r.prove(c, channel.ProveByProvider); err != nil {
		t.Fatal(err)
	}
	r.want(c, "proven by provider")
	if want := []string{"https://provider.example/owner the token", "https://provider.example/owner the token"}; !slices.Equal(r.asked, want) {
		t.Errorf("asked %q, want %q", r.asked, want)
	}
	// A second proof is told that there is a first; the operator decides.
	late := r.claim("org-2", "chat", "T1", "token", "another")
	err := r.prove(late, channel.ProveByProvider)
	kind(t, err, problem.Precondition)
	r.want(c, "proven by provider")
	r.want(late, "pending")
}

// TestProviderTrouble: an unreachable provider proves nothing.
func TestProviderTrouble(t *testing.T) {
	status := 500
	r := newRig(t, dbtest.New(t), func(p *connection.Proofs) {
		p.HTTP = provider(func(q *http.Request) (*http.Response, error) {
			if status == 0 {
				return nil, errors.New("no route with the token")
			}
			return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://evil.example/owner"}}, Body: io.NopCloser(strings.NewReader("T1 "))}, nil
		})
	})
	c := r.claim("org-1", "chat", "T1", "token", "t")
	for _, status = range []int{0, 429, 500} {
		kind(t, r.prove(c, channel.ProveByProvider), problem.Unavailable)
	}
	status = 302
	kind(t, r.prove(c, channel.ProveByProvider), problem.Precondition)
	r.want(c, "pending")
}

// TestTopicProof: a message published on a topic proves it, by whichever connection it arrives.
func TestTopicProof(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	c, theirs := r.claim("org-1", "marketplace", "arn:1"), r.claim("org-2", "marketplace", "arn:2")
	if err := r.prove(c, channel.ProveByTopic); err != nil {
		t.Fatal(err)
	}
	st, err := r.FullProofStatus(t.Context(), r.d, &c)
	if err != nil || st.Challenge == nil || !tokenForm.MatchString(st.Challenge.Publish) {
		t.Fatalf("status %+v, %v", st.Challenge, err)
	}
	if outcome, known := r.returned("marketplace", "arn:2", st.Challenge.Publish, &theirs); outcome != "recognized" || !known {
		t.Errorf("on another topic: %s, %t", outcome, known)
	}
	r.want(c, "pending")
	if outcome, _ := r.returned("marketplace", "arn:1", st.Challenge.Publish, nil); outcome != "proven" {
		t.Errorf("on the topic: %s", outcome)
	}
	r.want(c, "proven by topic")
	r.want(theirs, "pending")
}

// TestAllowed: connections on the allow list are proven when they are created, or at the next
// start.
func TestAllowed(t *testing.T) {
	adapters := []channel.Adapter{provableMail{}, provableNumbers{}, workspaces{}, keyed{}}
	parse := func(entries ...string) []connection.Allowed {
		t.Helper()
		list, err := connection.ParseAllowed(entries, adapters)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, bad := range []string{"", "support@acme.example", "=acme", "support@acme.example=", "@=acme", "@local=acme", "sms:@acme.example=acme", "email:support=acme"} {
		if list, err := connection.ParseAllowed([]string{bad}, []channel.Adapter{provableMail{}, provableNumbers{}}); err == nil {
			t.Errorf("%q is taken: %+v", bad, list)
		}
	}
	var allowed []connection.Allowed
	d := dbtest.New(t)
	open := func() *rig { return newRig(t, d, func(p *connection.Proofs) { p.Allowed = allowed }) }
	r := open()
	early := r.claim("org-1", "email-raw", "early@acme.example")
	theirs := r.claim("org-2", "email-raw", "early@acme.example")
	r.setProof(theirs, connection.ByDNS)
	allowed = parse(" Help+x@ACME.example = slug-of-org-1", "@acme.example=slug-of-org-1", "sms:+14155550100=slug-of-org-1", "+14155550199=slug-of-org-2", "T1=slug-of-org-1")
	r = open()
	for _, tt := range []struct{ organization, channel, address, want string }{
		{"org-1", "email-raw", "any@acme.example", "proven by allowed"},
		{"org-2", "email-raw", "any@acme.example", "pending"},
		{"org-1", "email-raw", "any@sub.acme.example", "pending"},
		{"org-1", "sms", "+14155550100", "proven by allowed"},
		{"org-1", "sms", "+14155550199", "pending"},
		{"org-2", "sms", "+14155550199", "proven by allowed"},
		{"org-1", "chat", "T1", "proven by allowed"},
		{"org-1", "keyed", "+14155550100", "pending"},
	} {
		n := connection.New{OrganizationID: tt.organization, Channel: tt.channel, Address: tt.address}
		if tt.channel == "keyed" {
			n.Secrets = []string{"key of one"}
		}
		c, _, err := r.Connect(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		r.want(c, tt.want)
	}
	r.want(early, "pending")
	if n, err := r.ProveAllowed(t.Context()); n != 1 || err != nil {
		t.Errorf("ProveAllowed() = %d, %v", n, err)
	}
	r.want(early, "proven by allowed")
	r.want(theirs, "pending")
}
