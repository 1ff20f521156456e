package web_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// endCase ends or restricts a member's session.
type endCase struct {
	name string
	end  func(n *liveFixture, admin, member account.SignIn) error
}

// token returns the token of the last mail's link.
func (n *liveFixture) token() string {
	_, token, _ := strings.Cut(n.link(), "token=")
	return token
}

const memberPassword = "wheels under ben"

var endCases = []endCase{
	{"signed out", func(n *liveFixture, _, m account.SignIn) error {
		return n.elsewhere.SignOut(n.t.Context(), m.SessionID)
	}},
	{"ended from another session", func(n *liveFixture, _, m account.SignIn) error {
		return n.elsewhere.EndSession(n.t.Context(), m.User.ID, m.SessionID)
	}},
	{"all others ended", func(n *liveFixture, _, m account.SignIn) error {
		_, err := n.elsewhere.EndSessions(n.t.Context(), m.User.ID, n.enter(m.User.Email, "").SessionID)
		return err
	}},
	{"password changed in another session", func(n *liveFixture, _, m account.SignIn) error {
		other := n.enter(m.User.Email, "")
		by := account.Identity{UserID: m.User.ID, SessionID: other.SessionID, User: m.User}
		return n.elsewhere.ChangePassword(n.t.Context(), by, account.PasswordChange{CurrentPassword: memberPassword, NewPassword: "spokes under ben"})
	}},
	{"password reset", func(n *liveFixture, _, m account.SignIn) error {
		if err := n.accounts.SendPasswordReset(n.t.Context(), account.PasswordReset{Email: m.User.Email}, account.Client{}); err != nil {
			return err
		}
		return n.elsewhere.ResetPassword(n.t.Context(), n.token(), "spokes under ben")
	}},
	{"removed from the organization", func(n *liveFixture, a, m account.SignIn) error {
		return n.elsewhere.RemoveMember(n.t.Context(), a.User.OrganizationID, m.User.ID)
	}},
	{"moved to another organization", func(n *liveFixture, a, m account.SignIn) error {
		eve := n.enter("eve@example.com", "Evil")
		if err := n.elsewhere.RemoveMember(n.t.Context(), a.User.OrganizationID, m.User.ID); err != nil {
			return err
		}
		by := account.Identity{UserID: eve.User.ID, OrganizationID: eve.User.OrganizationID, Role: account.Admin, SessionID: eve.SessionID, User: eve.User}
		if _, err := n.elsewhere.Invite(n.t.Context(), by, account.NewInvitation{Email: m.User.Email, Role: account.Agent}); err != nil {
			return err
		}
		_, err := n.elsewhere.AcceptInvitation(n.t.Context(), n.token(), "", account.Client{})
		return err
	}},
	{"role changed", func(n *liveFixture, a, m account.SignIn) error {
		_, err := n.elsewhere.ChangeRole(n.t.Context(), a.User.OrganizationID, m.User.ID, account.Admin)
		return err
	}},
	{"provider required", func(n *liveFixture, a, _ account.SignIn) error {
		o, err := n.accounts.Organization(n.t.Context(), a.User.OrganizationID)
		if err != nil {
			return err
		}
		_, err = n.elsewhere.RequireProviderByOperator(n.t.Context(), o.Slug, account.ProviderForEveryone)
		return err
	}},
	{"second factor required", func(n *liveFixture, a, _ account.SignIn) error {
		by := account.Identity{UserID: a.User.ID, OrganizationID: a.User.OrganizationID, Role: account.Admin, SessionID: a.SessionID, SecondFactor: true, User: a.User}
		_, err := n.elsewhere.RequireSecondFactor(n.t.Context(), by, true)
		return err
	}},
	{"link followed by a stranger and then its owner", func(n *liveFixture, _, m account.SignIn) error {
		in, err := n.accounts.SignInWithEmail(n.t.Context(), account.EmailSignIn{Email: m.User.Email}, "", account.Client{})
		if err != nil {
			return err
		}
		token := n.token()
		first, err := n.accounts.FollowLink(n.t.Context(), token, "", account.Client{})
		if err != nil {
			return err
		}
		s := n.listen(first)
		if _, err := n.elsewhere.FollowLink(n.t.Context(), token, in, account.Client{}); err != nil {
			return err
		}
		s.wantEnd(n.t)
		return n.elsewhere.SignOut(n.t.Context(), m.SessionID)
	}},
	{"refresh token stolen", func(n *liveFixture, _, m account.SignIn) error {
		if _, _, err := n.accounts.Authenticate(n.t.Context(), "", m.Tokens.Refresh, account.Client{}); err != nil {
			return err
		}
		n.exec("UPDATE session_tokens SET consumed_at = consumed_at - $1 WHERE consumed_at IS NOT NULL", time.Hour.Microseconds())
		if _, _, err := n.elsewhere.Authenticate(n.t.Context(), "", m.Tokens.Refresh, account.Client{}); err == nil {
			return fmt.Errorf("a used refresh token is taken again")
		}
		return nil
	}},
}

// TestStreamEndsWithSession checks that a session's end, also in another process, ends
// its streams immediately and before a further event, and no other member's.
func TestStreamEndsWithSession(t *testing.T) {
	for _, tt := range endCases {
		t.Run(tt.name, func(t *testing.T) {
			if os.Getenv(dbtest.Variable) != "" {
				n := newLiveFixture(t)
				// The periodic check would end it after 20 seconds, too.
				if took := n.endStream(t, tt); took > 10*time.Second {
					t.Errorf("the stream went on for %v", took)
				}
				return
			}
			withLiveFixture(t, func(t *testing.T, n *liveFixture) {
				if took := n.endStream(t, tt); took != 0 {
					t.Errorf("the stream went on for %v", took)
				}
			})
		})
	}
}

// endStream ends a member's session and returns the time until its stream ended.
func (n *liveFixture) endStream(t *testing.T, how endCase) time.Duration {
	t.Helper()
	admin := n.enter("ada@example.com", "Acme")
	o, err := n.accounts.Organization(t.Context(), admin.User.OrganizationID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.accounts.CreateUser(t.Context(), account.NewUser{
		Email: "ben@example.com", Name: "Ben", Password: memberPassword, Organization: o.Slug, Role: account.Agent,
	}); err != nil {
		t.Fatal(err)
	}
	member := n.enter("ben@example.com", "")
	s, bystander := n.listen(member), n.listen(n.enter("eva@example.com", "Bystanders"))
	if err := how.end(n, admin, member); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	for s.lines.Scan() {
		if text := s.lines.Text(); strings.HasPrefix(text, "data:") && text != "data: member" && text != "data: organization" {
			t.Errorf("the stream of an ended session said %q", text)
		}
	}
	<-s.done
	took := time.Since(since)
	select {
	case <-bystander.done:
		t.Error("the stream of somebody else ended, too")
	default:
	}
	return took
}

// TestStreamEndsAbsolutely checks that a stream ends with the absolute lifetime of its
// session.
func TestStreamEndsAbsolutely(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		since := time.Now()
		ada := n.enter("ada@example.com", "Acme")
		n.listen(ada).wantQuietEnd(t)
		if took := time.Since(since); took != 7*time.Minute+time.Second {
			t.Errorf("it lasted %v, want 7m1s", took)
		}
		if w := n.serve("GET", "/live", signedIn(ada)); w.Code != http.StatusUnauthorized {
			t.Errorf("then: got %d", w.Code)
		}
	}, func(c *account.Config) { c.SessionLife = 7*time.Minute + time.Second })
}

// TestStreamMissesNoEnd checks that the next heartbeat detects the end of a session when its
// announcement was lost.
func TestStreamMissesNoEnd(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		ada := n.enter("ada@example.com", "Acme")
		s := n.listen(ada)
		since := time.Now()
		n.exec("DELETE FROM sessions WHERE id = $1", ada.SessionID)
		s.wantEnd(t)
		if took := time.Since(since); took != 20*time.Second {
			t.Errorf("it went on for %v, want 20s", took)
		}
	})
}

// TestStreamsAreLimited checks the limits per session, user and network, and that a
// closed stream frees its place.
func TestStreamsAreLimited(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		refused := func(name string, in account.SignIn) {
			t.Helper()
			for _, method := range []string{"GET", "HEAD"} {
				w := n.serve(method, "/live", signedIn(in))
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("%s: %s got %d with header %v", name, method, w.Code, w.Header())
				}
			}
		}
		ada := n.enter("ada@example.com", "Acme")
		var open []*stream
		for range 6 {
			open = append(open, n.listen(ada))
		}
		refused("a seventh of one session", ada)

		// Another session of the same user has its own six, up to 24 in total.
		for range 3 {
			again := n.enter("ada@example.com", "")
			for range 6 {
				n.listen(again)
			}
		}
		last := n.enter("ada@example.com", "")
		refused("a 25th of one person", last)
		open[0].leave()
		<-open[0].done
		n.listen(last)
		refused("once more", last)

		// Other users are not affected.
		eve := n.enter("eve@example.com", "Evil")
		if w := n.serve("HEAD", "/live", signedIn(eve)); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("somebody else: got %d %v", w.Code, w.Header())
		}
		n.listen(eve)
	})
}

// TestStreamsOfOneNetwork checks that many users behind one address can open 500 streams.
func TestStreamsOfOneNetwork(t *testing.T) {
	withLiveFixture(t, func(t *testing.T, n *liveFixture) {
		var last account.SignIn
		for i := range 500 {
			if i%6 == 0 {
				last = n.enter(fmt.Sprintf("ada%d@example.com", i/24), map[bool]string{true: fmt.Sprint("Acme ", i)}[i%24 == 0])
			}
			n.listen(last)
		}
		w := n.serve("GET", "/live", signedIn(last))
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("the 501st of a network: got %d", w.Code)
		}
		n.listenFrom(last, "192.0.2.99:1")
	})
}
