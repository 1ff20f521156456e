package account_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	netmail "net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// outbox collects the mails of committed transactions.
type outbox struct {
	mu    sync.Mutex
	mails []mail.Message
	err   error // if set, the error of EnqueueMail
}

func (o *outbox) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	if o.err != nil {
		return o.err
	}
	tx.AfterCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mails = append(o.mails, m)
	})
	return nil
}

func (o *outbox) all() []mail.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mails
}

var linkInMail = regexp.MustCompile(`https?://\S+`)

// token returns the token of the link in the last mail.
func (o *outbox) token(t *testing.T) string {
	t.Helper()
	mails := o.all()
	if len(mails) == 0 {
		t.Fatal("no mail was sent")
	}
	u, err := url.Parse(linkInMail.FindString(mails[len(mails)-1].Text))
	if err != nil || u.Query().Get("token") == "" {
		t.Fatalf("no link in %q", mails[len(mails)-1].Text)
	}
	return u.Query().Get("token")
}

// patientDB returns a database that waits for locks instead of retrying, so that a test
// fails if the lock order needs retries.
func patientDB(t *testing.T) *db.DB {
	t.Helper()
	address := dbtest.URL(t)
	if strings.HasPrefix(address, "postgres") {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("deadlock_timeout", "10min")
		q.Set("lock_timeout", "5s")
		u.RawQuery = q.Encode()
		address = u.String()
	}
	return dbtest.Open(t, address)
}

// checkMail checks that a mail has one recipient, both forms of text, and exactly the
// headers of an account mail.
func checkMail(t *testing.T, m mail.Message, to, subject string) {
	t.Helper()
	if len(m.To) != 1 || m.To[0].Address != to || len(m.Cc) != 0 {
		t.Errorf("got mail to %v and %v, want it to %s", m.To, m.Cc, to)
	}
	if m.Subject != subject {
		t.Errorf("got subject %q, want %q", m.Subject, subject)
	}
	if m.Text == "" || !strings.HasPrefix(m.HTML, "<!doctype html>") {
		t.Errorf("got text %q and HTML %q, want both", m.Text, m.HTML)
	}
	raw, err := mail.Compose(m)
	if err != nil {
		t.Error(err)
		return
	}
	parsed, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Error(err)
		return
	}
	got := slices.Sorted(maps.Keys(parsed.Header))
	want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"}
	if !slices.Equal(got, want) {
		t.Errorf("got headers %q, want %q", got, want)
	}
	for name, values := range parsed.Header {
		if len(values) != 1 {
			t.Errorf("got %s %d times", name, len(values))
		}
	}
	if decoded, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject")); err != nil || decoded != subject {
		t.Errorf("got subject %q as it is read, error %v, want %q", decoded, err, subject)
	}
}

type fixture struct {
	*account.Service
	db   *db.DB
	mail *outbox
}

func newFixture(t *testing.T, d *db.DB, change ...func(*account.Config)) *fixture {
	t.Helper()
	box := new(outbox)
	c := account.Config{
		DB:              d,
		HashMemory:      8,
		Mailer:          box,
		MailFrom:        mail.Address{Name: "Kickstand", Address: "no-reply@help.example.com"},
		BaseURL:         "https://help.example.com",
		RedirectOrigins: []string{"https://app.example.com"},
		Audit:           audittest.Open(d),
		Logger:          slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, fn := range change {
		fn(&c)
	}
	s, err := account.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{s, d, box}
}

var client = account.Client{IP: "192.0.2.7", UserAgent: "test"}

// signIn signs in by link.
func (f *fixture) signIn(t *testing.T, email string) account.SignIn {
	t.Helper()
	intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := f.FollowLink(t.Context(), f.mail.token(t), intent, client)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// works reports whether an access token authenticates, without a refresh.
func (f *fixture) works(t *testing.T, access string) bool {
	t.Helper()
	_, fresh, err := f.Authenticate(t.Context(), access, "", client)
	if err != nil && problem.Of(err) != problem.Unauthorized {
		t.Fatal(err)
	}
	if fresh != nil {
		t.Fatal("an access token was refreshed")
	}
	return err == nil
}

// identity returns the identity of a new session.
func (f *fixture) identity(t *testing.T, in account.SignIn) account.Identity {
	t.Helper()
	id, _, err := f.Authenticate(t.Context(), in.Tokens.Access, "", client)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (f *fixture) organization(t *testing.T, name string) account.Organization {
	t.Helper()
	o, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// member adds a member to an organization and signs them in.
func (f *fixture) member(t *testing.T, o account.Organization, email string, r account.Role) (account.Identity, account.Tokens) {
	t.Helper()
	if _, err := f.CreateUser(t.Context(), account.NewUser{Email: email, Organization: o.Slug, Role: r}); err != nil {
		t.Fatal(err)
	}
	in := f.signIn(t, email)
	return f.identity(t, in), in.Tokens
}

func (f *fixture) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), statement, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	if err := f.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantKind(t *testing.T, err error, want problem.Kind) {
	t.Helper()
	if err == nil || problem.Of(err) != want {
		t.Fatalf("got error %v, want one of kind %q", err, want)
	}
}

func TestFirstSignIn(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: " Ada@Example.com ", RedirectTo: "https://app.example.com/hi"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	if n := f.count(t, "SELECT count(*) FROM users"); n != 0 {
		t.Errorf("got %d users before the link was followed, want 0", n)
	}
	m := f.mail.all()[0]
	if m.To[0].Address != "Ada@Example.com" || m.From.Address != "no-reply@help.example.com" || m.MessageID == "" {
		t.Errorf("got mail from %v to %v with id %q", m.From, m.To, m.MessageID)
	}
	if !strings.Contains(m.Text, "\nhttps://help.example.com/api/auth/callback?token=") {
		t.Errorf("got mail %q, want a link to the callback", m.Text)
	}
	if _, err := mail.Compose(m); err != nil {
		t.Error(err)
	}

	in, err := f.FollowLink(t.Context(), f.mail.token(t), intent, client)
	if err != nil {
		t.Fatal(err)
	}
	if in.RedirectTo != "https://app.example.com/hi" {
		t.Errorf("got redirect %q", in.RedirectTo)
	}
	id, fresh, err := f.Authenticate(t.Context(), in.Tokens.Access, in.Tokens.Refresh, client)
	if err != nil || fresh != nil {
		t.Fatalf("got fresh tokens %v, error %v, want none", fresh, err)
	}
	u := id.User
	if u.Email != "Ada@Example.com" || u.OrganizationID != "" || u.Role != "" || string(u.Preferences) != "{}" || u.CreatedAt.IsZero() {
		t.Errorf("got user %+v", u)
	}
	if id.UserID != u.ID || id.SessionID != in.SessionID || id.OrganizationID != "" || id.Role != "" {
		t.Errorf("got identity %+v", id)
	}
	again := f.signIn(t, "ada@EXAMPLE.com")
	if again.User.ID != u.ID || again.RedirectTo != "/" {
		t.Errorf("got user %s and redirect %q the second time, want user %s and /", again.User.ID, again.RedirectTo, u.ID)
	}
	if got := f.mail.all()[1].To[0].Address; got != "Ada@Example.com" {
		t.Errorf("got the second mail to %q, want the address on file", got)
	}
}

// TestSameAnswer: neither result nor mail reveals whether an address has an account.
func TestSameAnswer(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.signIn(t, "known@example.com")
	for _, email := range []string{"known@example.com", "other@example.com"} {
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{}); err != nil {
			t.Errorf("%s: got error %v", email, err)
		}
	}
	mails := f.mail.all()
	known, other := mails[1], mails[2]
	plain := func(s string) string { return linkInMail.ReplaceAllString(s, "LINK") }
	if plain(known.Text) != plain(other.Text) || known.Subject != other.Subject {
		t.Errorf("got %q for a user and %q for a stranger", known.Text, other.Text)
	}
}

func TestMailRefused(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.mail.err = errors.New("no room")
	if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{}); !errors.Is(err, f.mail.err) {
		t.Errorf("got error %v, want that of the mailer", err)
	}
	if n := f.count(t, "SELECT count(*) FROM login_links"); n != 0 {
		t.Errorf("got %d links without a mail, want 0", n)
	}
}

// TestScanner opens a link from different browsers in different orders, and checks which
// session remains.
func TestScanner(t *testing.T) {
	for _, tt := range []struct {
		name     string
		openings string // o: the requesting browser; s: a stranger; e: a browser that requested another link
		want     string // y or n for each opening: signed in or not
		alive    int    // index of the opening whose session remains
	}{
		{"the browser that asked", "o", "y", 0},
		{"another browser", "s", "y", 0},
		{"twice", "oo", "yn", 0},
		{"twice by a stranger", "ss", "yn", 0},
		{"a scanner first", "so", "yy", 1},
		{"a scanner first, and last", "sos", "yyn", 1},
		{"a scanner first, and then twice", "soo", "yyn", 1},
		{"a scanner last", "os", "yn", 0},
		{"another intent is none", "se", "yn", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, dbtest.New(t))
			other, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "eve@example.com"}, "", account.Client{})
			if err != nil {
				t.Fatal(err)
			}
			own, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
			if err != nil {
				t.Fatal(err)
			}
			link := f.mail.token(t)
			sessions := make([]account.SignIn, len(tt.openings))
			for i, who := range tt.openings {
				intent := map[rune]string{'o': own, 'e': other}[who]
				in, err := f.FollowLink(t.Context(), link, intent, client)
				sessions[i] = in
				if got := err == nil; got != (tt.want[i] == 'y') {
					t.Fatalf("opening %d: got error %v, want success %c", i, err, tt.want[i])
				}
				if err != nil {
					wantKind(t, err, problem.Invalid)
				}
			}
			for i, in := range sessions {
				if got := f.works(t, in.Tokens.Access); got != (i == tt.alive) {
					t.Errorf("session of opening %d: got alive %t", i, got)
				}
			}
			if n := f.count(t, "SELECT count(*) FROM sessions"); n != 1 {
				t.Errorf("got %d sessions, want 1", n)
			}
		})
	}
}

// TestIntentIsKept: after two requests both links belong to the requesting browser.
func TestIntentIsKept(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	first, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	link := f.mail.token(t)
	second, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, first, account.Client{})
	if err != nil || second != first {
		t.Fatalf("got another intent, error %v", err)
	}
	for _, intent := range []string{"", second} { // a scanner, then the browser
		if _, err := f.FollowLink(t.Context(), link, intent, client); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"x", strings.Repeat("!", 43)} {
		if got, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, bad, account.Client{}); err != nil || got == bad {
			t.Errorf("intent %q: got %q, error %v", bad, got, err)
		}
	}
}

func TestUnknownLink(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	for _, token := range []string{"", "x", strings.Repeat("A", 43), in.Tokens.Access, in.Tokens.Refresh} {
		_, err := f.FollowLink(t.Context(), token, "", client)
		wantKind(t, err, problem.Invalid)
	}
}

// TestLinkRace: of many concurrent openings one succeeds; many concurrent first sign-ins
// of one address create one user.
func TestLinkRace(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	var links []string
	for range 4 {
		if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{}); err != nil {
			t.Fatal(err)
		}
		links = append(links, f.mail.token(t))
	}
	var mu sync.Mutex
	users := map[string]int{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			in, err := f.FollowLink(t.Context(), links[i%len(links)], "", client)
			if err != nil {
				if problem.Of(err) != problem.Invalid {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			users[in.User.ID]++
		})
	}
	wg.Wait()
	if len(users) != 1 || f.count(t, "SELECT count(*) FROM sessions") != 4 {
		t.Errorf("got sign-ins by user %v, want 4 of one", users)
	}
}

func TestPasswordSignIn(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	o, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	const password = "correct horse battery"
	u, err := f.CreateUser(t.Context(), account.NewUser{Email: "Ada@example.com", Password: password, Organization: "acme", Role: account.Admin})
	if err != nil {
		t.Fatal(err)
	}
	if u.Name != "Ada" || u.OrganizationID != o.ID || u.Role != account.Admin {
		t.Errorf("got user %+v", u)
	}
	f.signIn(t, "bob@example.com") // has no password

	in, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: " ADA@example.com", Password: password}, client)
	if err != nil {
		t.Fatal(err)
	}
	if in.User.ID != u.ID || !f.works(t, in.Tokens.Access) {
		t.Errorf("got sign-in %+v of user %s", in.User, u.ID)
	}
	var refusals []string
	for _, tt := range []struct{ email, password string }{
		{"ada@example.com", "correct horse batterx"},
		{"ada@example.com", password + " "},
		{"nobody@example.com", password},
		{"bob@example.com", password},
	} {
		_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: tt.email, Password: tt.password}, client)
		wantKind(t, err, problem.Unauthorized)
		refusals = append(refusals, err.Error())
	}
	for _, r := range refusals {
		if r != refusals[0] {
			t.Errorf("got refusals %q, want them the same", refusals)
		}
	}
}

func TestPasswordInput(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for _, tt := range []struct {
		in   account.PasswordSignIn
		want string // paths
	}{
		{account.PasswordSignIn{Email: "ada@example.com", Password: "12345"}, "password"},
		{account.PasswordSignIn{Email: "ada@example.com", Password: "ééééé"}, "password"}, // characters, not bytes
		{account.PasswordSignIn{Email: "ada@example.com", Password: strings.Repeat("é", 513)}, "password"},
		{account.PasswordSignIn{Email: "ada", Password: ""}, "email password"},
	} {
		_, err := f.SignInWithPassword(t.Context(), tt.in, client)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid {
			t.Errorf("%+v: got error %v", tt.in, err)
			continue
		}
		var paths []string
		for _, i := range p.Issues {
			paths = append(paths, i.Path)
		}
		if got := strings.Join(paths, " "); got != tt.want {
			t.Errorf("%+v: got issues with %q, want %q", tt.in, got, tt.want)
		}
	}
	// 6 characters and 1024 bytes are within the limits.
	for _, password := range []string{"éééééé", strings.Repeat("é", 512)} {
		_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: password}, client)
		wantKind(t, err, problem.Unauthorized)
	}
}

// TestHashIsRenewed: a hash with outdated parameters works and is replaced.
func TestHashIsRenewed(t *testing.T) {
	f := newFixture(t, dbtest.New(t), func(c *account.Config) { c.HashMemory = 0 })
	if _, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	u, err := f.CreateUser(t.Context(), account.NewUser{Email: "ada@example.com", Password: "long enough", Organization: "acme", Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	hash := func() string {
		t.Helper()
		var s string
		if err := f.db.QueryRow(t.Context(), "SELECT password_hash FROM users WHERE id = $1", u.ID).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	const form = "$argon2id$v=19$m=19456,t=2,p=1$"
	fresh := hash()
	if !strings.HasPrefix(fresh, form) {
		t.Fatalf("got hash %.30q…, want one in the form %s…", fresh, form)
	}
	signIn := func(password string) error {
		_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: u.Email, Password: password}, client)
		return err
	}
	if err := signIn("long enough"); err != nil || hash() != fresh {
		t.Errorf("got error %v, and a hash that changed: %t; want neither", err, hash() != fresh)
	}
	// Hash of "old password" with weaker parameters.
	const old = "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0c2FsdA$%s"
	sum := oldSum(t)
	if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE users SET password_hash = $2 WHERE id = $1", u.ID, fmt.Sprintf(old, sum))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, signIn("older password"), problem.Unauthorized)
	for range 2 { // with the old hash, then with the new
		if err := signIn("old password"); err != nil {
			t.Fatal(err)
		}
		if got := hash(); !strings.HasPrefix(got, form) {
			t.Errorf("got hash %.30q…, want one in the form %s…", got, form)
		}
	}
}

type checkout struct {
	url  string
	err  error
	seen []account.CheckoutRequest
}

func (c *checkout) StartCheckout(_ context.Context, r account.CheckoutRequest) (string, error) {
	c.seen = append(c.seen, r)
	return c.url, c.err
}

func TestCompleteSignup(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	done, err := f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: " Ada Lovelace ", OrganizationName: "Äpfel & Birnen"})
	if err != nil {
		t.Fatal(err)
	}
	u, o := done.User, done.Organization
	if u.ID != in.User.ID || u.Name != "Ada Lovelace" || u.Role != account.Admin || u.OrganizationID != o.ID || u.Email != "ada@example.com" {
		t.Errorf("got user %+v", u)
	}
	if o.Name != "Äpfel & Birnen" || o.Slug != "aepfel-birnen" || o.Plan != account.Free || o.PendingPlan != "" || done.CheckoutURL != "" {
		t.Errorf("got organization %+v, checkout %q", o, done.CheckoutURL)
	}
	if got, err := f.User(t.Context(), u.ID); err != nil || got.Name != u.Name || got.OrganizationID != o.ID || got.Role != account.Admin || !got.UpdatedAt.Equal(u.UpdatedAt) {
		t.Errorf("got stored user %+v, error %v", got, err)
	}
	if got, err := f.Organization(t.Context(), o.ID); err != nil || got != o {
		t.Errorf("got stored organization %+v, error %v, want %+v", got, err, o)
	}
	_, err = f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "Ada", OrganizationName: "Second"})
	wantKind(t, err, problem.Conflict)
	if n := f.count(t, "SELECT count(*) FROM organizations"); n != 1 {
		t.Errorf("got %d organizations, want 1", n)
	}
}

func TestSignupInput(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	long := strings.Repeat("é", 255)
	for _, r := range []account.SignupRequest{
		{Name: "", OrganizationName: "Acme"},
		{Name: " ", OrganizationName: "Acme"},
		{Name: long + "é", OrganizationName: "Acme"},
		{Name: "Ada", OrganizationName: ""},
		{Name: "Ada", OrganizationName: long + "é"},
		{Name: "Ada", OrganizationName: "Acme", Plan: "gold"},
		{Name: "A\x00", OrganizationName: "Acme"},
	} {
		_, err := f.CompleteSignup(t.Context(), in.User.ID, r)
		wantKind(t, err, problem.Invalid)
	}
	if _, err := f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: long, OrganizationName: long, Plan: account.Free}); err != nil {
		t.Error(err)
	}
}

func TestPaidSignup(t *testing.T) {
	request := account.SignupRequest{Name: "Ada", OrganizationName: "Acme", Plan: account.Pro}
	unchanged := func(t *testing.T, f *fixture, id string) {
		t.Helper()
		if n := f.count(t, "SELECT count(*) FROM organizations"); n != 0 {
			t.Errorf("got %d organizations, want 0", n)
		}
		if u, err := f.User(t.Context(), id); err != nil || u.OrganizationID != "" || u.Name != "" {
			t.Errorf("got user %+v, error %v, want it unchanged", u, err)
		}
	}
	t.Run("without checkout", func(t *testing.T) {
		f := newFixture(t, dbtest.New(t))
		in := f.signIn(t, "ada@example.com")
		_, err := f.CompleteSignup(t.Context(), in.User.ID, request)
		wantKind(t, err, problem.Precondition)
		unchanged(t, f, in.User.ID)
	})
	t.Run("checkout fails", func(t *testing.T) {
		far := &checkout{err: errors.New("the provider is down")}
		f := newFixture(t, dbtest.New(t), func(c *account.Config) { c.Checkout = far })
		in := f.signIn(t, "ada@example.com")
		if _, err := f.CompleteSignup(t.Context(), in.User.ID, request); !errors.Is(err, far.err) {
			t.Errorf("got error %v, want that of the checkout", err)
		}
		unchanged(t, f, in.User.ID)
	})
	t.Run("with checkout", func(t *testing.T) {
		far := &checkout{url: "https://pay.example/1"}
		f := newFixture(t, dbtest.New(t), func(c *account.Config) { c.Checkout = far })
		in := f.signIn(t, "ada@example.com")
		done, err := f.CompleteSignup(t.Context(), in.User.ID, request)
		if err != nil {
			t.Fatal(err)
		}
		o := done.Organization
		if done.CheckoutURL != far.url || o.Plan != account.Free || o.PendingPlan != account.Pro {
			t.Errorf("got checkout %q, organization %+v", done.CheckoutURL, o)
		}
		want := account.CheckoutRequest{OrganizationID: o.ID, OrganizationName: "Acme", Plan: account.Pro, UserID: in.User.ID, Email: "ada@example.com"}
		if len(far.seen) != 1 || far.seen[0] != want {
			t.Errorf("got checkouts %+v, want one of %+v", far.seen, want)
		}
		_, err = f.CompleteSignup(t.Context(), in.User.ID, request)
		wantKind(t, err, problem.Conflict)
		if len(far.seen) != 1 {
			t.Error("a second sign-up started a checkout")
		}
	})
}

func TestSignupRaces(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	in := f.signIn(t, "ada@example.com")
	var wg sync.WaitGroup
	var mu sync.Mutex
	succeeded := 0
	for range 16 {
		wg.Go(func() {
			_, err := f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "Ada", OrganizationName: "Acme"})
			if err != nil && problem.Of(err) != problem.Conflict {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				succeeded++
			}
		})
	}
	wg.Wait()
	if n := f.count(t, "SELECT count(*) FROM organizations"); succeeded != 1 || n != 1 {
		t.Errorf("got %d successes and %d organizations, want 1 of each", succeeded, n)
	}

	slugs := map[string]bool{}
	for range 30 {
		wg.Go(func() {
			o, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "ACME!"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			slugs[o.Slug] = true
		})
	}
	wg.Wait()
	if len(slugs) != 30 || slugs["acme"] || !slugs["acme-2"] || !slugs["acme-3"] {
		t.Errorf("got slugs %v, want 30 from acme-2 on", slugs)
	}
	for s := range slugs {
		if !regexp.MustCompile(`^acme-[0-9]+$`).MatchString(s) {
			t.Errorf("got slug %q, want a numeric suffix", s)
		}
	}
}

func TestCreate(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme", Plan: account.Business, FleetRateLimit: 2000})
	if err != nil {
		t.Fatal(err)
	}
	if acme.Slug != "acme" || acme.Plan != account.Business || acme.FleetRateLimit != 2000 {
		t.Errorf("got organization %+v", acme)
	}
	if got, err := f.OrganizationBySlug(t.Context(), "acme"); err != nil || got != acme {
		t.Errorf("got organization %+v, error %v, want %+v", got, err, acme)
	}
	other, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: "Other"})
	if err != nil || other.Plan != account.Free {
		t.Fatalf("got organization %+v, error %v", other, err)
	}

	for _, n := range []account.NewOrganization{
		{Name: ""}, {Name: "A", Plan: "gold"}, {Name: "A", Plan: account.Pro, FleetRateLimit: 2000},
		{Name: "A", Plan: account.Business, FleetRateLimit: 999}, {Name: strings.Repeat("a", 256)},
	} {
		_, err := f.CreateOrganization(t.Context(), n)
		wantKind(t, err, problem.Invalid)
	}

	user := account.NewUser{Email: "ada@example.com", Password: "long enough", Organization: "acme", Role: account.Admin}
	ada, err := f.CreateUser(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*account.NewUser)
		want   problem.Kind
	}{
		{"taken", func(n *account.NewUser) { n.Email = "ADA@example.com" }, problem.Conflict},
		{"bad e-mail", func(n *account.NewUser) { n.Email = "ada" }, problem.Invalid},
		{"short password", func(n *account.NewUser) { n.Email, n.Password = "b@example.com", "1234567" }, problem.Invalid},
		{"password like the e-mail", func(n *account.NewUser) { n.Email, n.Password = "b@example.com", "B@example.com" }, problem.Invalid},
		{"bad role", func(n *account.NewUser) { n.Email, n.Role = "b@example.com", "owner" }, problem.Invalid},
		{"no role", func(n *account.NewUser) { n.Email, n.Role = "b@example.com", "" }, problem.Invalid},
		{"unknown organization", func(n *account.NewUser) { n.Email, n.Organization = "b@example.com", "nope" }, problem.NotFound},
	} {
		n := user
		tt.change(&n)
		if _, err := f.CreateUser(t.Context(), n); err == nil || problem.Of(err) != tt.want {
			t.Errorf("%s: got error %v, want one of kind %q", tt.name, err, tt.want)
		}
	}
	bob, err := f.CreateUser(t.Context(), account.NewUser{Email: "bob@example.com", Name: "Bob B.", Organization: "acme", Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.CreateUser(t.Context(), account.NewUser{Email: "cyn@example.com", Organization: "other", Role: account.Admin}); err != nil {
		t.Fatal(err)
	}

	if got, err := f.AdminEmails(t.Context(), f.db, acme.ID); err != nil || len(got) != 1 || got[0] != "ada@example.com" {
		t.Errorf("got admins %q, error %v", got, err)
	}
	for _, tt := range []struct {
		org, id, email string
		want           bool
	}{
		{acme.ID, bob.ID, "BOB@example.com ", true},
		{acme.ID, ada.ID, "ada@example.com", true},
		{other.ID, bob.ID, "bob@example.com", false},
		{acme.ID, "nobody", "nobody@example.com", false},
		{"", bob.ID, "bob@example.com", false},
	} {
		byID, ok, err := f.Agent(t.Context(), f.db, tt.org, tt.id)
		if err != nil || ok != tt.want || ok && byID.ID != tt.id {
			t.Errorf("agent %s of %s: got %+v, %t, %v", tt.id, tt.org, byID, ok, err)
		}
		byEmail, ok, err := f.AgentByEmail(t.Context(), f.db, tt.org, tt.email)
		if err != nil || ok != tt.want || byEmail != byID {
			t.Errorf("agent %s of %s: got %+v, %t, %v, want %+v", tt.email, tt.org, byEmail, ok, err, byID)
		}
	}
	_, err = f.User(t.Context(), "nobody")
	wantKind(t, err, problem.NotFound)
	_, err = f.Organization(t.Context(), "nobody")
	wantKind(t, err, problem.NotFound)
}

func TestConfig(t *testing.T) {
	for _, c := range []account.Config{
		{BaseURL: "help.example.com"},
		{BaseURL: "https://help.example.com", RedirectOrigins: []string{"app"}},
		{BaseURL: "https://help.example.com", AccessLife: -time.Second},
	} {
		if _, err := account.New(c); err == nil {
			t.Errorf("%+v: got no error", c)
		}
	}
}
