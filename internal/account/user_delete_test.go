package account_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestAttackSessionOfDeletedUser: no earlier secret opens the account of a deleted user,
// or a later account with the same address.
func TestAttackSessionOfDeletedUser(t *testing.T) {
	d := dbtest.New(t)
	f, p := newProviderFixture(t, d, ada)
	acme := f.organization(t, "Acme")
	f.member(t, acme, "ada@example.com", account.Admin)
	if _, err := f.CreateUser(t.Context(), account.NewUser{Email: "ben@example.com", Password: "correct horse", Organization: acme.Slug, Role: account.Agent}); err != nil {
		t.Fatal(err)
	}
	in, err := f.arrive(t, p, identity("ben", "ben@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	ben := f.identity(t, in)
	intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ben@example.com"}, "", client)
	if err != nil {
		t.Fatal(err)
	}
	link := f.mail.token(t)
	reset := f.reset(t, "ben@example.com")

	for _, email := range []string{"", "ada@example.com", "ben@example.com.evil.example"} {
		wantKind(t, f.DeleteAccount(t.Context(), ben, account.Deletion{Email: email}), problem.Invalid)
	}
	if err := f.DeleteAccount(t.Context(), ben, account.Deletion{Email: " BEN@example.com "}); err != nil {
		t.Fatal(err)
	}
	if f.works(t, in.Tokens.Access) {
		t.Error("the session goes on")
	}
	if _, _, err := f.Authenticate(t.Context(), "", in.Tokens.Refresh, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("the session is refreshed: error %v", err)
	}
	if _, err := f.FollowLink(t.Context(), link, intent, client); problem.Of(err) != problem.Invalid {
		t.Errorf("the sign-in link works: error %v", err)
	}
	if err := f.ResetPassword(t.Context(), reset, "another horse"); problem.Of(err) != problem.Invalid {
		t.Errorf("the reset works: error %v", err)
	}
	if _, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ben@example.com", Password: "correct horse"}, client); problem.Of(err) != problem.Unauthorized {
		t.Errorf("the password works: error %v", err)
	}
	// The address's next owner is a new user.
	again, err := f.arrive(t, p, identity("ben", "ben@example.com"))
	if err != nil || again.User.ID == ben.UserID || again.User.OrganizationID != "" {
		t.Errorf("got user %+v, error %v, want a new one", again.User, err)
	}
	wantMembers(t, f, acme, "ada@example.com admin")
	wantKind(t, f.DeleteAccount(t.Context(), ben, account.Deletion{Email: "ben@example.com"}), problem.Unauthorized)
}

// TestDeletedUserLeavesNoTrace: no table of accounts has a row of a deleted user; the
// audit log has their entry.
func TestDeletedUserLeavesNoTrace(t *testing.T) {
	d := dbtest.New(t)
	log := audittest.Open(d)
	var deleted, revoked []string
	f := newFixture(t, d, func(c *account.Config) {
		c.Audit = log
		c.OnMemberRemoved = func(_ context.Context, _ *db.Tx, o, u string, credentials bool) error {
			if credentials {
				revoked = append(revoked, o+" "+u)
			}
			return nil
		}
		c.OnUserDeleted = func(_ context.Context, _ *db.Tx, u string) error { deleted = append(deleted, u); return nil }
	})
	acme := f.organization(t, "Acme")
	f.member(t, acme, "ada@example.com", account.Admin)
	eve, _ := f.member(t, acme, "Eve.Leaver@example.com", account.Admin)
	f.invite(t, eve, "friend@example.com", account.Agent)
	f.reset(t, "eve.leaver@example.com")
	u, err := f.DeleteUser(t.Context(), "EVE.leaver@example.com", true)
	if err != nil || u.ID != eve.UserID {
		t.Fatalf("got user %+v, error %v", u, err)
	}
	if len(deleted) != 1 || deleted[0] != eve.UserID || len(revoked) != 1 || revoked[0] != acme.ID+" "+eve.UserID {
		t.Errorf("got deletions %q and revocations %q", deleted, revoked)
	}
	for _, table := range []string{"users", "sessions", "session_tokens", "login_links", "password_resets", "invitations", "identities", "known_browsers", "passkeys", "totp_secrets", "recovery_codes", "pending_sign_ins"} {
		where := map[string]string{
			"users": "id = $1", "session_tokens": "session_id IN (SELECT id FROM sessions WHERE user_id = $1)", "invitations": "inviter_id = $1",
			"login_links": "email_key = 'eve.leaver@example.com' AND $1 <> ''",
		}[table]
		if where == "" {
			where = "user_id = $1"
		}
		if n := f.count(t, "SELECT count(*) FROM "+table+" WHERE "+where, eve.UserID); n != 0 {
			t.Errorf("got %d rows in %s", n, table)
		}
	}
	mails := f.mail.all()
	checkMail(t, mails[len(mails)-1], "Eve.Leaver@example.com", "Your Kickstand account is deleted")
	list := audittest.List(t, log, acme.ID, audit.Query{Action: "user.deleted"})
	if len(list) != 1 || list[0].Target.ID != eve.UserID {
		t.Errorf("got audit entries %+v", list)
	}
	_, err = f.DeleteUser(t.Context(), "eve.leaver@example.com", false)
	wantKind(t, err, problem.NotFound)
}

// TestAttackOwnerlessOrganization: of two admins that delete their accounts concurrently,
// one stays: the second waits for the first, and is then the last admin.
func TestAttackOwnerlessOrganization(t *testing.T) {
	var during func(tx *db.Tx) // called in the first deletion, before it commits
	f := newFixture(t, patientDB(t), func(c *account.Config) {
		c.OnMemberRemoved = func(_ context.Context, tx *db.Tx, _, _ string, _ bool) error {
			if run := during; run != nil {
				during = nil
				run(tx)
			}
			return nil
		}
	})
	acme := f.organization(t, "Acme")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	ben, _ := f.member(t, acme, "ben@example.com", account.Admin)
	second := make(chan error, 1)
	during = func(tx *db.Tx) {
		go func() { second <- f.DeleteAccount(t.Context(), ben, account.Deletion{Email: "ben@example.com"}) }()
		for f.db.Postgres() && len(second) == 0 { // on SQLite this is the only writer
			var waits bool
			if err := tx.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))").Scan(&waits); err != nil {
				t.Error(err)
				return
			}
			if waits {
				return
			}
		}
	}
	if err := f.DeleteAccount(t.Context(), ada, account.Deletion{Email: "ada@example.com"}); err != nil {
		t.Fatal(err)
	}
	err := <-second
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Conflict || !strings.Contains(p.Message, "last admin") {
		t.Errorf("got error %v, want the refusal of the last admin", err)
	}
	wantMembers(t, f, acme, "ben@example.com admin")
	// The only member of an organization is its last admin.
	o := f.organization(t, "Solo")
	solo, _ := f.member(t, o, "solo@example.com", account.Admin)
	wantKind(t, f.DeleteAccount(t.Context(), solo, account.Deletion{Email: "solo@example.com"}), problem.Conflict)
	_, err = f.DeleteUser(t.Context(), "solo@example.com", false)
	wantKind(t, err, problem.Conflict)
	// A user without an organization can always be deleted.
	in := f.signIn(t, "nobody@example.com")
	if err := f.DeleteAccount(t.Context(), f.identity(t, in), account.Deletion{Email: "nobody@example.com"}); err != nil || f.works(t, in.Tokens.Access) {
		t.Errorf("got error %v", err)
	}
}
