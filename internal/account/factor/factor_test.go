package factor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/descope/virtualwebauthn"
	"github.com/google/uuid"
	"github.com/pquerna/otp/totp"
)

// outbox collects the mails of committed transactions.
type outbox struct {
	mu    sync.Mutex
	mails []mail.Message
}

func (o *outbox) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mails = append(o.mails, m)
	})
	return nil
}

// last returns the text of the newest mail.
func (o *outbox) last(t *testing.T) mail.Message {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mails) == 0 {
		t.Fatal("no mail was sent")
	}
	return o.mails[len(o.mails)-1]
}

type fixture struct {
	*factor.Service
	t        *testing.T
	accounts *account.Service
	db       *db.DB
	mails    *outbox
	audit    *audit.Log
	org      account.Organization
}

const (
	baseURL  = "https://help.example.com"
	password = "correct horse battery"
)

var client = account.Client{IP: "192.0.2.1", UserAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"}

func newFixture(t *testing.T, d *db.DB, change ...func(*factor.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, db: d, mails: new(outbox)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	box := seal.New(seal.NewKey())
	f.audit = audit.Open(audit.Config{DB: d, Box: box, Ledger: "helpdesk"})
	c := factor.Config{DB: d, Box: box, BaseURL: baseURL, Audit: f.audit, Logger: log}
	for _, fn := range change {
		fn(&c)
	}
	var err error
	if f.accounts, err = account.New(account.Config{DB: d, HashMemory: 8, Mailer: f.mails, BaseURL: baseURL, FreshProof: c.FreshProof, Audit: f.audit, Logger: log}); err != nil {
		t.Fatal(err)
	}
	c.Accounts = f.accounts
	if f.Service, err = factor.Open(c); err != nil {
		t.Fatal(err)
	}
	if f.org, err = f.accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	return f
}

// fresh requires proofs of at most ten minutes.
func fresh(c *factor.Config) { c.FreshProof = 10 * time.Minute }

func (f *fixture) user(email string, role account.Role) account.User {
	f.t.Helper()
	u, err := f.accounts.CreateUser(f.t.Context(), account.NewUser{Email: email, Password: password, Organization: f.org.Slug, Role: role})
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// signIn signs in by password, without a second factor.
func (f *fixture) signIn(email string) account.Identity {
	f.t.Helper()
	in := f.byPassword(email)
	if in.Pending != "" {
		f.t.Fatalf("the sign-in of %s waits for a second step", email)
	}
	return f.identity(in)
}

func (f *fixture) byPassword(email string) account.SignIn {
	f.t.Helper()
	in, err := f.accounts.SignInWithPassword(f.t.Context(), account.PasswordSignIn{Email: email, Password: password}, client)
	if err != nil {
		f.t.Fatal(err)
	}
	return in
}

// identity returns the identity of a sign-in's session.
func (f *fixture) identity(in account.SignIn) account.Identity {
	f.t.Helper()
	id, _, err := f.accounts.Authenticate(f.t.Context(), in.Tokens.Access, "", client)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// age makes the last proof of a session older.
func (f *fixture) age(id *account.Identity, by time.Duration) {
	f.t.Helper()
	f.exec("UPDATE sessions SET proven_at = proven_at - $1 WHERE id = $2", by.Microseconds(), id.SessionID)
	id.ProvenAt = id.ProvenAt.Add(-by)
}

func (f *fixture) exec(statement string, args ...any) {
	f.t.Helper()
	if err := f.db.Write(f.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.t.Context(), statement, args...)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) count(query string, args ...any) int {
	f.t.Helper()
	var n int
	if err := f.db.QueryRow(f.t.Context(), query, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// device is an authenticator with one passkey.
type device struct {
	auth virtualwebauthn.Authenticator
	key  virtualwebauthn.Credential
	rp   virtualwebauthn.RelyingParty
}

func newDevice(t *testing.T) *device {
	t.Helper()
	return &device{
		virtualwebauthn.NewAuthenticator(), virtualwebauthn.NewCredentialWithImportedKey(virtualwebauthn.KeyTypeEC2, newKey(t)),
		virtualwebauthn.RelyingParty{ID: "help.example.com", Name: "Kickstand", Origin: baseURL},
	}
}

// newKey returns a private key in PKCS #8. Neither coordinate of its public key starts
// with a zero byte, which virtualwebauthn drops: RFC 9053, section 7.1.1, refuses such a
// key.
func newKey(t *testing.T) []byte {
	t.Helper()
	for {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		point, err := key.PublicKey.Bytes() // 4, x, y
		if err != nil {
			t.Fatal(err)
		}
		if point[1] == 0 || point[33] == 0 {
			continue
		}
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// create implements navigator.credentials.create.
func (d *device) create(t *testing.T, options string) string {
	t.Helper()
	o, err := virtualwebauthn.ParseAttestationOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	d.auth.Options.UserHandle = []byte(o.UserID)
	return virtualwebauthn.CreateAttestationResponse(d.rp, d.auth, d.key, *o)
}

// get implements navigator.credentials.get.
func (d *device) get(t *testing.T, options string) string {
	t.Helper()
	o, err := virtualwebauthn.ParseAssertionOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	return virtualwebauthn.CreateAssertionResponse(d.rp, d.auth, d.key, *o)
}

// addPasskey registers a new device for a user.
func (f *fixture) addPasskey(id account.Identity, name string) (*device, factor.Passkey) {
	f.t.Helper()
	d := newDevice(f.t)
	options, err := f.RegistrationOptions(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := f.AddPasskey(f.t.Context(), id, name, d.create(f.t, options))
	if err != nil {
		f.t.Fatal(err)
	}
	return d, p
}

// app is an authenticator app.
type app struct{ secret string }

// code returns the code for a time.
func (a app) code(t *testing.T, at time.Time) string {
	t.Helper()
	code, err := totp.GenerateCode(a.secret, at)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// addApp sets up an authenticator app for a user. Its current code is used up.
func (f *fixture) addApp(id account.Identity) (app, []string) {
	f.t.Helper()
	e, err := f.BeginTOTP(id)
	if err != nil {
		f.t.Fatal(err)
	}
	a := app{strings.ReplaceAll(e.Secret, " ", "")}
	codes, err := f.EnableTOTP(f.t.Context(), id, e.Sealed, a.code(f.t, time.Now()))
	if err != nil {
		f.t.Fatal(err)
	}
	return a, codes
}

// resetStep makes the app's current code usable again.
func (f *fixture) resetStep(userID string) {
	f.t.Helper()
	f.exec("UPDATE totp_secrets SET last_step = 0 WHERE user_id = $1", userID)
}

// want checks that err is a refusal of a kind.
func want(t *testing.T, what string, err error, kind problem.Kind, code string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != kind || p.Code != code {
		t.Errorf("%s: got error %v, want a refusal %v %s", what, err, kind, code)
	}
}

func TestPasskeySignsIn(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	ada := f.user("ada@example.com", account.Admin)
	d, p := f.addPasskey(f.signIn("ada@example.com"), " Laptop ")
	if p.Name != "Laptop" || !p.UsedAt.IsZero() || p.CreatedAt.IsZero() {
		t.Errorf("got passkey %+v", p)
	}
	if got := f.mails.last(t); got.To[0].Address != "ada@example.com" || !strings.Contains(got.Text, "The passkey “Laptop” was added") {
		t.Errorf("got mail to %v: %s", got.To, got.Text)
	}
	options, err := f.SignInOptions()
	if err != nil {
		t.Fatal(err)
	}
	in, err := f.SignIn(t.Context(), d.get(t, options), "/tickets/7", client)
	if err != nil {
		t.Fatal(err)
	}
	if in.User.ID != ada.ID || in.RedirectTo != "/tickets/7" || in.Pending != "" {
		t.Errorf("got sign-in %+v", in)
	}
	if id := f.identity(in); !id.SecondFactor || id.NeedsSecondFactor || time.Since(id.ProvenAt) > time.Minute {
		t.Errorf("got session with second factor %t, proven %v", id.SecondFactor, id.ProvenAt)
	}
	list, err := f.Passkeys(t.Context(), ada.ID)
	if err != nil || len(list) != 1 || list[0].UsedAt.IsZero() {
		t.Errorf("got passkeys %+v, error %v", list, err)
	}
}

// TestPasskeyAlone: an optional passkey leaves the other ways to sign in unchanged.
func TestPasskeyAlone(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	f.addPasskey(f.signIn("ada@example.com"), "")
	if id := f.signIn("ada@example.com"); id.SecondFactor || id.NeedsSecondFactor {
		t.Errorf("got session %+v", id)
	}
}

func TestPasskeyForAnotherOrigin(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	d, _ := f.addPasskey(id, "")
	for _, tt := range []struct {
		name       string
		rp, origin string
	}{
		{"another site", "help.example.com", "https://help.example.com.evil.example"},
		{"without TLS", "help.example.com", "http://help.example.com"},
		{"another port", "help.example.com", "https://help.example.com:8443"},
		{"a subdomain", "help.example.com", "https://mail.help.example.com"},
		{"another relying party", "example.com", baseURL},
	} {
		options, err := f.SignInOptions()
		if err != nil {
			t.Fatal(err)
		}
		phished := *d
		phished.rp.ID, phished.rp.Origin = tt.rp, tt.origin
		_, err = f.SignIn(t.Context(), phished.get(t, options), "", client)
		want(t, "sign-in at "+tt.name, err, problem.Invalid, "")

		options, err = f.RegistrationOptions(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		other := newDevice(t)
		other.rp.ID, other.rp.Origin = tt.rp, tt.origin
		_, err = f.AddPasskey(t.Context(), id, "", other.create(t, options))
		want(t, "registration at "+tt.name, err, problem.Invalid, "")
	}
	if n := f.count("SELECT count(*) FROM passkeys"); n != 1 {
		t.Errorf("got %d passkeys, want 1", n)
	}
}

func TestReplayedAssertion(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	d, _ := f.addPasskey(id, "")
	options, err := f.SignInOptions()
	if err != nil {
		t.Fatal(err)
	}
	answer := d.get(t, options)
	if _, err := f.SignIn(t.Context(), answer, "", client); err != nil {
		t.Fatal(err)
	}
	_, err = f.SignIn(t.Context(), answer, "", client)
	want(t, "the same answer again", err, problem.Invalid, "")

	var wins int
	var mu sync.Mutex
	var all sync.WaitGroup
	answer = d.get(t, mustOptions(t, f))
	for range 8 {
		all.Go(func() {
			if _, err := f.SignIn(t.Context(), answer, "", client); err == nil {
				mu.Lock()
				wins++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if wins != 1 {
		t.Errorf("%d of 8 parallel sign-ins with one answer succeeded, want 1", wins)
	}
}

func mustOptions(t *testing.T, f *fixture) string {
	t.Helper()
	options, err := f.SignInOptions()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// TestChallengeOfAnotherPurpose: an assertion for one purpose is refused for another.
func TestChallengeOfAnotherPurpose(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	f.user("ada@example.com", account.Admin)
	id, other := f.signIn("ada@example.com"), f.signIn("ada@example.com")
	d, _ := f.addPasskey(id, "")
	want(t, "an answer for a sign-in as a proof", f.Prove(t.Context(), id, factor.Answer{Passkey: d.get(t, mustOptions(t, f))}), problem.Invalid, "")

	options, err := f.ProofOptions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.SignIn(t.Context(), d.get(t, options.Passkey), "", client)
	want(t, "an answer for a proof as a sign-in", err, problem.Invalid, "")
	want(t, "an answer for the proof of another session", f.Prove(t.Context(), other, factor.Answer{Passkey: d.get(t, options.Passkey)}), problem.Invalid, "")
	if err := f.Prove(t.Context(), id, factor.Answer{Passkey: d.get(t, options.Passkey)}); err != nil {
		t.Errorf("the right answer: %v", err)
	}
	registration, err := f.RegistrationOptions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	challenge := regexp.MustCompile(`"challenge":"[^"]*"`)
	mixed := challenge.ReplaceAllLiteralString(options.Passkey, challenge.FindString(registration))
	want(t, "an answer for a registration as a proof", f.Prove(t.Context(), id, factor.Answer{Passkey: d.get(t, mixed)}), problem.Invalid, "")
	forged := newFixture(t, dbtest.New(t))
	_, err = f.SignIn(t.Context(), d.get(t, mustOptions(t, forged)), "", client)
	want(t, "a challenge of another deployment", err, problem.Invalid, "")
}

// TestUserHandle: the user handle of a sign-in must be the passkey owner's.
func TestUserHandle(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	f.user("bob@example.com", account.Agent)
	d, _ := f.addPasskey(f.signIn("ada@example.com"), "")
	bobs, _ := f.addPasskey(f.signIn("bob@example.com"), "")
	for name, handle := range map[string][]byte{"nobody": nil, "somebody else": bobs.auth.Options.UserHandle, "a stranger": []byte("0123456789abcdef")} {
		as := *d
		as.auth.Options.UserHandle = handle
		_, err := f.SignIn(t.Context(), as.get(t, mustOptions(t, f)), "", client)
		want(t, "a sign-in as "+name, err, problem.Invalid, "")
	}
	if _, err := f.SignIn(t.Context(), d.get(t, mustOptions(t, f)), "", client); err != nil {
		t.Errorf("as Ada: %v", err)
	}
}

// TestChallengeEnds: a page with a challenge may stay open for half an hour.
func TestChallengeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		f.user("ada@example.com", account.Admin)
		d, _ := f.addPasskey(f.signIn("ada@example.com"), "")
		first, second := d.get(t, mustOptions(t, f)), d.get(t, mustOptions(t, f))
		time.Sleep(30*time.Minute - time.Second)
		if _, err := f.SignIn(t.Context(), first, "", client); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(time.Second)
		_, err := f.SignIn(t.Context(), second, "", client)
		want(t, "at its end", err, problem.Invalid, "")
	})
}

func TestUnverifiedPerson(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	d, _ := f.addPasskey(id, "")
	d.auth.Options.UserNotVerified = true
	_, err := f.SignIn(t.Context(), d.get(t, mustOptions(t, f)), "", client)
	want(t, "a sign-in without verification of the person", err, problem.Invalid, "")

	options, err := f.RegistrationOptions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	other := newDevice(t)
	other.auth.Options.UserNotVerified = true
	_, err = f.AddPasskey(t.Context(), id, "", other.create(t, options))
	want(t, "a registration without verification of the person", err, problem.Invalid, "")
}

func TestCopiedPasskey(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	d, _ := f.addPasskey(f.signIn("ada@example.com"), "")
	d.key.Counter = 7
	if _, err := f.SignIn(t.Context(), d.get(t, mustOptions(t, f)), "", client); err != nil {
		t.Fatal(err)
	}
	for _, counter := range []uint32{7, 6, 0} {
		d.key.Counter = counter
		_, err := f.SignIn(t.Context(), d.get(t, mustOptions(t, f)), "", client)
		want(t, "a counter that does not grow", err, problem.Invalid, "")
	}
	d.key.Counter = 8
	if _, err := f.SignIn(t.Context(), d.get(t, mustOptions(t, f)), "", client); err != nil {
		t.Errorf("a counter that grows: %v", err)
	}
}

func TestFactorsOfAnotherUser(t *testing.T) {
	f := newFixture(t, dbtest.New(t), fresh)
	f.user("ada@example.com", account.Admin)
	f.user("eve@example.com", account.Agent)
	ada, eve := f.signIn("ada@example.com"), f.signIn("eve@example.com")
	key, p := f.addPasskey(ada, "Laptop")
	evil, _ := f.addPasskey(eve, "Evil")
	enrolment, err := f.BeginTOTP(ada)
	if err != nil {
		t.Fatal(err)
	}
	adaApp, codes := f.addApp(ada)

	want(t, "rename", f.RenamePasskey(t.Context(), eve, p.ID, "Mine"), problem.NotFound, "")
	want(t, "remove", f.RemovePasskey(t.Context(), eve, p.ID), problem.NotFound, "")
	_, err = f.EnableTOTP(t.Context(), eve, enrolment.Sealed, app{strings.ReplaceAll(enrolment.Secret, " ", "")}.code(t, time.Now()))
	want(t, "finish an enrolment", err, problem.Invalid, "")
	_, err = f.ContinueTOTP(eve, enrolment.Sealed)
	want(t, "see an enrolment", err, problem.Invalid, "")
	f.resetStep(ada.UserID)
	want(t, "prove by a code", f.Prove(t.Context(), eve, factor.Answer{Code: adaApp.code(t, time.Now())}), problem.Unauthorized, "")
	want(t, "prove by a recovery code", f.Prove(t.Context(), eve, factor.Answer{RecoveryCode: codes[0]}), problem.Unauthorized, "")
	options, err := f.ProofOptions(t.Context(), eve)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "prove by a passkey", f.Prove(t.Context(), eve, factor.Answer{Passkey: key.get(t, options.Passkey)}), problem.Invalid, "")

	// Ada's pending sign-ins with Eve's factors.
	pending := f.byPassword("ada@example.com").Pending
	if pending == "" {
		t.Fatal("the sign-in does not wait for its second step")
	}
	sign, err := f.accounts.Pending(t.Context(), pending)
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.PendingOptions(t.Context(), sign)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Complete(t.Context(), pending, factor.Answer{Passkey: evil.get(t, second.Passkey)}, client)
	want(t, "complete by another's passkey", err, problem.Invalid, "")
	// An authenticator that claims another user's handle.
	evil.auth.Options.UserHandle = uuidBytes(t, ada.UserID)
	_, err = f.SignIn(t.Context(), evil.get(t, mustOptions(t, f)), "", client)
	want(t, "a foreign user handle", err, problem.Invalid, "")
	// A credential that another user has registered.
	registration, err := f.RegistrationOptions(t.Context(), eve)
	if err != nil {
		t.Fatal(err)
	}
	copied := newDevice(t)
	copied.key = key.key
	_, err = f.AddPasskey(t.Context(), eve, "", copied.create(t, registration))
	want(t, "register a credential in use", err, problem.Conflict, "")
}

func uuidBytes(t *testing.T, id string) []byte {
	t.Helper()
	u, err := uuid.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return u[:]
}

func TestEnrolmentHasAQRCode(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.user("ada@example.com", account.Admin)
	id := f.signIn("ada@example.com")
	e, err := f.BeginTOTP(id)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.ReplaceAll(e.Secret, " ", "")
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil || len(raw) != 20 {
		t.Errorf("got secret of %d bytes, error %v, want 20", len(raw), err)
	}
	if want := "otpauth://totp/Kickstand:ada@example.com?secret=" + secret + "&issuer=Kickstand"; e.URI != want {
		t.Errorf("got URI %q, want %q", e.URI, want)
	}
	if e.QR.Size < 29 || !strings.HasPrefix(e.QR.Path, "M4 4h7v1h-7z") {
		t.Errorf("got QR code of size %d: %.40s", e.QR.Size, e.QR.Path)
	}
	again, err := f.ContinueTOTP(id, e.Sealed)
	if err != nil || again != e {
		t.Errorf("got another enrolment, error %v", err)
	}
	if f.count("SELECT count(*) FROM totp_secrets") != 0 {
		t.Error("a secret is stored before its first code")
	}
}
