package web_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// liveFixture is a site with live events.
type liveFixture struct {
	fixture
	live      *live.Hub
	elsewhere *account.Service // of another process, if the database supports several
}

// withLiveFixture runs test in a synctest bubble, on SQLite.
func withLiveFixture(t *testing.T, test func(t *testing.T, n *liveFixture), change ...func(*account.Config)) {
	t.Helper()
	url := dbtest.SQLiteURL(t)
	synctest.Test(t, func(t *testing.T) {
		n := &liveFixture{fixture: fixture{t: t, db: dbtest.Open(t, url)}}
		n.live = live.Open(n.db)
		n.accounts = n.newAccounts(n.live, n.db, change...)
		n.elsewhere = n.accounts
		n.Handler = web.New(web.Config{Accounts: n.accounts, Gate: &browser.SessionAuth{Accounts: n.accounts}, Live: n.live})
		test(t, n)
	})
}

func (n *liveFixture) newAccounts(hub *live.Hub, d *db.DB, change ...func(*account.Config)) *account.Service {
	n.t.Helper()
	c := account.Config{DB: d, Mailer: n, BaseURL: baseURL, Provider: new(provider), Notify: hub.Publish}
	for _, f := range change {
		f(&c)
	}
	s, err := account.New(c)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// newLiveFixture returns a fixture on PostgreSQL with a second process.
func newLiveFixture(t *testing.T) *liveFixture {
	t.Helper()
	url := dbtest.URL(t)
	n := &liveFixture{fixture: fixture{t: t, db: dbtest.Open(t, url)}}
	n.live = live.Open(n.db)
	n.accounts = n.newAccounts(n.live, n.db)
	there := dbtest.Open(t, url)
	n.elsewhere = n.newAccounts(live.Open(there), there)
	n.Handler = web.New(web.Config{Accounts: n.accounts, Gate: &browser.SessionAuth{Accounts: n.accounts}, Live: n.live})

	s := n.live.Subscribe("") // before the first event
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-s.Ready() // events of the other process arrive from here on
	return n
}

// stream is a response that is read while it is written.
type stream struct {
	header http.Header
	status int
	w      *io.PipeWriter
	lines  *bufio.Scanner
	leave  context.CancelFunc
	done   chan struct{} // closed when the handler returns
}

func (s *stream) Header() http.Header  { return s.header }
func (s *stream) WriteHeader(code int) { s.status = code }
func (s *stream) Flush()               {}
func (s *stream) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.w.Write(p)
}

// listen opens a stream with a session.
func (n *liveFixture) listen(in account.SignIn) *stream {
	n.t.Helper()
	return n.listenSince(in, "/live", "", "")
}

// listenSince opens a stream at an address with a Last-Event-ID, and asserts its first
// event.
func (n *liveFixture) listenSince(in account.SignIn, address, last, first string) *stream {
	n.t.Helper()
	return n.open(in, address, last, first)
}

// listenFrom opens a stream from another network.
func (n *liveFixture) listenFrom(in account.SignIn, remote string) *stream {
	n.t.Helper()
	return n.open(in, "/live", "", "", func(r *http.Request) { r.RemoteAddr = remote })
}

func (n *liveFixture) open(in account.SignIn, address, last, first string, change ...func(*http.Request)) *stream {
	n.t.Helper()
	mark := n.live.Version(in.User.OrganizationID)
	ctx, cancel := context.WithCancel(n.t.Context())
	pr, pw := io.Pipe()
	s := &stream{header: http.Header{}, w: pw, lines: bufio.NewScanner(pr), leave: cancel, done: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, "GET", address, nil)
	signedIn(in)(r)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	for _, f := range change {
		f(r)
	}
	go func() {
		defer close(s.done)
		n.ServeHTTP(s, r)
		pw.Close()
	}()
	n.t.Cleanup(func() {
		cancel()
		pr.Close()
		<-s.done
	})
	s.want(n.t, "retry: 2000\nid: "+mark+first)
	if s.status != http.StatusOK || s.header.Get("Content-Type") != "text/event-stream" || s.header.Get("Cache-Control") != "no-store" {
		n.t.Fatalf("got %d with header %v", s.status, s.header)
	}
	return s
}

// want asserts the next event, of one or more lines.
func (s *stream) want(t testing.TB, want string) {
	t.Helper()
	var got []string
	for s.lines.Scan() && s.lines.Text() != "" {
		got = append(got, s.lines.Text())
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Fatalf("got %q in the stream, want %q", text, want)
	}
}

// wantEnd asserts that the stream ends without a further event.
func (s *stream) wantEnd(t testing.TB) {
	t.Helper()
	s.want(t, "")
	<-s.done
}

// enter creates a session of a member, or of a user without an organization.
func (n *liveFixture) enter(email, organization string) account.SignIn {
	n.t.Helper()
	in, err := n.accounts.SignInWithEmail(n.t.Context(), account.EmailSignIn{Email: email}, "", account.Client{})
	if err != nil {
		n.t.Fatal(err)
	}
	_, token, _ := strings.Cut(n.link(), "token=")
	s, err := n.accounts.FollowLink(n.t.Context(), token, in, account.Client{})
	if err != nil {
		n.t.Fatal(err)
	}
	if organization == "" {
		return s
	}
	done, err := n.accounts.CompleteSignup(n.t.Context(), s.User.ID, account.SignupRequest{Name: "Ada", OrganizationName: organization})
	if err != nil {
		n.t.Fatal(err)
	}
	s.User = done.User
	return s
}

func TestLive(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		ada, eve := n.enter("ada@example.com", "Acme"), n.enter("eve@example.com", "Evil")
		s, other := n.listen(ada), n.listen(eve)
		n.live.Publish(ada.User.OrganizationID, "ticket:2", "ticket:1")
		s.want(t, "id: "+n.live.Version(ada.User.OrganizationID)+"\ndata: ticket:1\ndata: ticket:2")
		n.live.Publish(ada.User.OrganizationID, "customer:1")
		s.want(t, "id: "+n.live.Version(ada.User.OrganizationID)+"\ndata: customer:1")

		// A listener gets only the events of its organization, and a comment while there
		// are none.
		other.want(t, ": still here")
		s.want(t, ": still here")
		n.live.Publish(eve.User.OrganizationID, "ticket:3")
		other.want(t, "id: "+n.live.Version(eve.User.OrganizationID)+"\ndata: ticket:3")

		// Stopping the server ends all streams.
		n.live.Close()
		s.wantEnd(t)
		other.wantEnd(t)
	})
}

// TestLiveMissed checks that events between page and stream, or between two streams, are
// not lost.
func TestLiveMissed(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		ada := n.enter("ada@example.com", "Acme")
		organization := ada.User.OrganizationID
		page := n.live.Version(organization)
		since := "/live?since=" + url.QueryEscape(page)
		n.listenSince(ada, since, "", "")

		n.live.PublishCoalesced(organization, "ride:1")
		n.listenSince(ada, since, "", "\ndata: *")
		// A browser reconnects to the same address with its last event id.
		n.listenSince(ada, since, n.live.Version(organization), "")
		n.listenSince(ada, since, page, "\ndata: *")
		// The same with an id of another process, or of an earlier run.
		n.listenSince(ada, "/live?since=made-up", "", "\ndata: *")
	})
}

// TestLiveListeners checks that streams need a session and belong to one organization.
func TestLiveListeners(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		w := n.serve("GET", "/live")
		if w.Code != http.StatusUnauthorized || w.Header().Get("Cache-Control") != "no-store" || w.Body.String() != "Sign in first.\n" {
			t.Errorf("nobody: got %d %q", w.Code, w.Body)
		}
		newcomer := n.enter("bob@example.com", "")
		if w := n.serve("GET", "/live", signedIn(newcomer)); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
			t.Errorf("of no organization: got %d %q", w.Code, w.Body)
		}
		if w := n.serve("POST", "/live", signedIn(newcomer)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: got %d", w.Code)
		}
		ada := n.enter("ada@example.com", "Acme")
		if err := n.db.Close(); err != nil {
			t.Fatal(err)
		}
		if w := n.serve("GET", "/live", signedIn(ada)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("no database: got %d", w.Code)
		}
	})
}

// TestLiveEnd checks that a stream ends with its client, and after its lifetime.
func TestLiveEnd(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		ada := n.enter("ada@example.com", "Acme")
		left := n.listen(ada)
		left.leave()
		left.wantEnd(t)

		begun := time.Now()
		n.listen(ada).wantQuietEnd(t)
		if took := time.Since(begun); took != 30*time.Minute {
			t.Errorf("it lasted %v, want 30m", took)
		}
	})
}

// wantQuietEnd asserts that only comments follow until the end.
func (s *stream) wantQuietEnd(t testing.TB) {
	t.Helper()
	for s.lines.Scan() {
		if text := s.lines.Text(); text != "" && text != ": still here" {
			t.Fatalf("got %q", text)
		}
	}
	<-s.done
}
