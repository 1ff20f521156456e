package account_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// invite returns an invitation and its mailed token.
func (f *fixture) invite(t *testing.T, by account.Identity, email string, r account.Role) (account.Invitation, string) {
	t.Helper()
	i, err := f.Invite(t.Context(), by, account.NewInvitation{Email: email, Role: r})
	if err != nil {
		t.Fatal(err)
	}
	return i, f.mail.token(t)
}

func (f *fixture) invitations(t *testing.T, o account.Organization) []account.Invitation {
	t.Helper()
	list, err := f.Invitations(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wantRefused checks that a link can neither be previewed nor accepted.
func wantRefused(t *testing.T, f *fixture, token, why string) {
	t.Helper()
	_, looked := f.PreviewInvitation(t.Context(), token)
	_, accepted := f.AcceptInvitation(t.Context(), token, "Somebody", client)
	for _, err := range []error{looked, accepted} {
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || len(p.Issues) != 0 || !strings.Contains(p.Message, why) {
			t.Errorf("got error %v, want an invalid link, %q", err, why)
		}
	}
}

func TestInvite(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme := f.organization(t, "Acme")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	if _, err := f.UpdateProfile(t.Context(), ada.UserID, account.Profile{Name: new("Ada Lovelace")}); err != nil {
		t.Fatal(err)
	}
	ada.User.Name = "Ada Lovelace"
	sent := len(f.mail.all())

	i, token := f.invite(t, ada, " Bob@Example.com ", account.Agent)
	if i.ID == "" || i.OrganizationID != acme.ID || i.Email != "Bob@Example.com" || i.Role != account.Agent || i.InvitedBy != "Ada Lovelace" ||
		i.ExpiresAt.Sub(i.CreatedAt) != 7*24*time.Hour {
		t.Errorf("got invitation %+v", i)
	}
	mails := f.mail.all()[sent:]
	if len(mails) != 1 {
		t.Fatalf("got %d mails, want 1", len(mails))
	}
	checkMail(t, mails[0], "Bob@Example.com", "Join Acme on Kickstand")
	link := "https://help.example.com/invitation?token=" + token
	for _, body := range []string{mails[0].Text, mails[0].HTML} {
		for _, want := range []string{link, "Ada Lovelace invites you to work with Acme", "as agent", "7 days"} {
			if !strings.Contains(body, want) {
				t.Errorf("got mail %q, want %q in it", body, want)
			}
		}
	}
	if list := f.invitations(t, acme); len(list) != 1 || list[0] != i {
		t.Errorf("got invitations %+v, want %+v", list, i)
	}
	for range 2 { // a preview changes nothing
		if w, err := f.PreviewInvitation(t.Context(), token); err != nil || w.Invitation != i || w.Organization != "Acme" || w.Name != "" {
			t.Errorf("got welcome %+v, error %v", w, err)
		}
	}

	// A user without a name must give one; a refusal leaves the link usable.
	for _, name := range []string{"", "  ", strings.Repeat("a", 256), "A\nB", "A\x00", "\xff"} {
		_, err := f.AcceptInvitation(t.Context(), token, name, client)
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.Invalid || len(p.Issues) != 1 || p.Issues[0].Path != "name" {
			t.Errorf("name %q: got error %v, want an issue with the name", name, err)
		}
	}
	if n := f.count(t, "SELECT count(*) FROM users"); n != 1 {
		t.Errorf("got %d users after refusals, want 1", n)
	}
	in, err := f.AcceptInvitation(t.Context(), token, " Bob B. ", client)
	if err != nil {
		t.Fatal(err)
	}
	if in.RedirectTo != "/" || in.User.Name != "Bob B." || in.User.Email != "Bob@Example.com" || in.User.OrganizationID != acme.ID || in.User.Role != account.Agent {
		t.Errorf("got sign-in %+v", in)
	}
	if id := f.identity(t, in); id.OrganizationID != acme.ID || id.Role != account.Agent || id.SessionID != in.SessionID || !sameUser(id.User, in.User) {
		t.Errorf("got identity %+v", id)
	}
	wantRefused(t, f, token, "accepted or revoked")
	wantMembers(t, f, acme, "ada@example.com admin", "Bob@Example.com agent")
	if list := f.invitations(t, acme); len(list) != 0 {
		t.Errorf("got invitations %+v, want none", list)
	}

	// Inviting a member is a conflict, however the address is spelled.
	for _, email := range []string{"bob@example.com", "ADA@example.com "} {
		_, err := f.Invite(t.Context(), ada, account.NewInvitation{Email: email, Role: account.Agent})
		wantKind(t, err, problem.Conflict)
	}
	for _, n := range []account.NewInvitation{
		{Email: "cyn@example.com"}, {Email: "cyn@example.com", Role: "owner"}, {Role: account.Agent}, {Email: "cyn", Role: account.Agent},
		{Email: "cyn@example.com\r\nBcc: eve@example.com", Role: account.Agent}, {Email: "Cyn <cyn@example.com>", Role: account.Agent}, {Email: "\xff@example.com", Role: account.Agent},
	} {
		_, err := f.Invite(t.Context(), ada, n)
		wantKind(t, err, problem.Invalid)
	}
	f.mail.err = errors.New("no room")
	if _, err := f.Invite(t.Context(), ada, account.NewInvitation{Email: "cyn@example.com", Role: account.Agent}); !errors.Is(err, f.mail.err) {
		t.Errorf("got error %v, want that of the mailer", err)
	}
	if list := f.invitations(t, acme); len(list) != 0 {
		t.Errorf("got invitations %+v without a mail, want none", list)
	}
	for _, token := range []string{"", "x", strings.Repeat("A", 43), strings.Repeat("A", 42) + "B", strings.Repeat("\xff", 43), in.Tokens.Access, in.Tokens.Refresh} {
		wantRefused(t, f, token, "accepted or revoked")
	}
}

func TestInvitationReplacedAndRevoked(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme, other := f.organization(t, "Acme"), f.organization(t, "Other")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	cyn, _ := f.member(t, other, "cyn@example.com", account.Admin)
	first, older := f.invite(t, ada, "bob@example.com", account.Agent)
	second, newer := f.invite(t, ada, "BOB@example.com", account.Admin)
	theirs, elsewhere := f.invite(t, cyn, "bob@example.com", account.Agent)
	dan, dans := f.invite(t, ada, "dan@example.com", account.Agent)
	if first.ID == second.ID {
		t.Error("got the same id for both invitations")
	}
	wantRefused(t, f, older, "newer one")
	if list := f.invitations(t, acme); len(list) != 2 || list[0] != second || list[1] != dan {
		t.Errorf("got invitations %+v, want the newer one and that of dan", list)
	}
	if list := f.invitations(t, other); len(list) != 1 || list[0] != theirs {
		t.Errorf("got invitations %+v, want %+v", list, theirs)
	}
	for _, tt := range []struct{ organization, id string }{
		{other.ID, second.ID}, {acme.ID, theirs.ID}, {acme.ID, first.ID}, {acme.ID, "nothing"}, {acme.ID, ""}, {"", second.ID},
	} {
		wantKind(t, f.RevokeInvitation(t.Context(), tt.organization, tt.id), problem.NotFound)
	}
	if err := f.RevokeInvitation(t.Context(), acme.ID, dan.ID); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, f, dans, "revoked")
	wantKind(t, f.RevokeInvitation(t.Context(), acme.ID, dan.ID), problem.NotFound)

	in, err := f.AcceptInvitation(t.Context(), newer, "Bob", client)
	if err != nil || in.User.Role != account.Admin || in.User.OrganizationID != acme.ID {
		t.Fatalf("got user %+v, error %v, want an admin of Acme", in.User, err)
	}
	// The other organization's link still shows, and cannot be accepted.
	if w, err := f.PreviewInvitation(t.Context(), elsewhere); err != nil || w.Organization != "Other" || w.Name != "Bob" {
		t.Errorf("got welcome %+v, error %v", w, err)
	}
	_, err = f.AcceptInvitation(t.Context(), elsewhere, "", client)
	wantKind(t, err, problem.Conflict)
	wantMembers(t, f, other, "cyn@example.com admin")
}

// TestAcceptKnown: an existing user retains name and sessions, and a member of another
// organization stays there.
func TestAcceptKnown(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme, other := f.organization(t, "Acme"), f.organization(t, "Other")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)

	bob := f.signIn(t, "Bob@example.com")
	if _, err := f.UpdateProfile(t.Context(), bob.User.ID, account.Profile{Name: new("Bob B.")}); err != nil {
		t.Fatal(err)
	}
	_, token := f.invite(t, ada, "bob@EXAMPLE.com", account.Agent)
	if w, err := f.PreviewInvitation(t.Context(), token); err != nil || w.Name != "Bob B." {
		t.Errorf("got welcome %+v, error %v, want it to know Bob's name", w, err)
	}
	in, err := f.AcceptInvitation(t.Context(), token, "Robert", client)
	if err != nil || in.User.ID != bob.User.ID || in.User.Name != "Bob B." || in.User.Email != "Bob@example.com" || in.User.OrganizationID != acme.ID {
		t.Errorf("got user %+v, error %v, want Bob as he was", in.User, err)
	}
	if id := f.identity(t, bob); id.OrganizationID != acme.ID || id.Role != account.Agent {
		t.Errorf("got identity %+v in the session from before, want a member", id)
	}

	f.signIn(t, "nameless@example.com")
	_, token = f.invite(t, ada, "nameless@example.com", account.Agent)
	_, err = f.AcceptInvitation(t.Context(), token, "", client)
	wantKind(t, err, problem.Invalid)
	if in, err := f.AcceptInvitation(t.Context(), token, "Nemo", client); err != nil || in.User.Name != "Nemo" {
		t.Errorf("got user %+v, error %v, want the name given", in.User, err)
	}

	// Since the invitation they have joined another organization, or this one.
	for _, tt := range []struct {
		o    account.Organization
		want string
	}{{other, "another organization"}, {acme, "member of Acme already"}} {
		email := tt.o.Slug + "@example.com"
		_, token := f.invite(t, ada, email, account.Admin)
		_, tokens := f.member(t, tt.o, email, account.Agent)
		sessions := f.count(t, "SELECT count(*) FROM sessions")
		_, err := f.AcceptInvitation(t.Context(), token, "Somebody", client)
		wantKind(t, err, problem.Conflict)
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
		id := f.identity(t, account.SignIn{Tokens: tokens})
		if id.OrganizationID != tt.o.ID || id.Role != account.Agent || id.User.Name == "Somebody" {
			t.Errorf("got identity %+v, want it unchanged", id)
		}
		if n := f.count(t, "SELECT count(*) FROM sessions"); n != sessions {
			t.Errorf("a refused invitation opened a session")
		}
	}
}

func TestAcceptRace(t *testing.T) {
	f := newFixture(t, patientDB(t))
	acme, other := f.organization(t, "Acme"), f.organization(t, "Other")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	cyn, _ := f.member(t, other, "cyn@example.com", account.Admin)

	// One link, many concurrent holders.
	_, token := f.invite(t, ada, "bob@example.com", account.Agent)
	var accepted atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := f.AcceptInvitation(t.Context(), token, fmt.Sprintf("Bob %d", i), client)
			if err == nil {
				accepted.Add(1)
			} else if problem.Of(err) != problem.Invalid {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.count(t, "SELECT count(*) FROM sessions s JOIN users u ON u.id = s.user_id WHERE u.email = 'bob@example.com'"); accepted.Load() != 1 || n != 1 {
		t.Errorf("got %d acceptances with %d sessions, want 1 of each", accepted.Load(), n)
	}

	// One new user, two organizations.
	for round := range 5 {
		email := fmt.Sprintf("new%d@example.com", round)
		_, here := f.invite(t, ada, email, account.Agent)
		_, there := f.invite(t, cyn, email, account.Agent)
		accepted.Store(0)
		for _, token := range []string{here, there} {
			wg.Go(func() {
				_, err := f.AcceptInvitation(t.Context(), token, "New", client)
				if err == nil {
					accepted.Add(1)
				} else if problem.Of(err) != problem.Conflict {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.count(t, "SELECT count(*) FROM users WHERE email = $1 AND organization_id IS NOT NULL", email); accepted.Load() != 1 || n != 1 {
			t.Errorf("round %d: got %d acceptances by %d users, want 1 of each", round, accepted.Load(), n)
		}
	}

	// Acceptance against revocation.
	for round := range 15 {
		email := fmt.Sprintf("maybe%d@example.com", round)
		i, token := f.invite(t, ada, email, account.Agent)
		var joined, revoked error
		wg.Go(func() { _, joined = f.AcceptInvitation(t.Context(), token, "Maybe", client) })
		wg.Go(func() { revoked = f.RevokeInvitation(t.Context(), acme.ID, i.ID) })
		wg.Wait()
		if (joined == nil) == (revoked == nil) {
			t.Errorf("round %d: got errors %v of the acceptance and %v of the revocation, want one", round, joined, revoked)
		}
	}

	// Acceptance against revocation, another invitation, and a sign-up.
	for round := range 5 {
		email := fmt.Sprintf("late%d@example.com", round)
		i, token := f.invite(t, ada, email, account.Agent)
		user := f.signIn(t, email).User.ID
		var joined, revoked, replaced, founded error
		wg.Go(func() { _, joined = f.AcceptInvitation(t.Context(), token, "Late", client) })
		wg.Go(func() { revoked = f.RevokeInvitation(t.Context(), acme.ID, i.ID) })
		wg.Go(func() {
			_, replaced = f.Invite(t.Context(), ada, account.NewInvitation{Email: email, Role: account.Agent})
		})
		wg.Go(func() {
			_, founded = f.CompleteSignup(t.Context(), user, account.SignupRequest{Name: "Late", OrganizationName: "Late"})
		})
		wg.Wait()
		for _, outcome := range []struct {
			err   error
			other []problem.Kind
		}{
			{joined, []problem.Kind{problem.Invalid, problem.Conflict}}, {revoked, []problem.Kind{problem.NotFound}},
			{replaced, []problem.Kind{problem.Conflict}}, {founded, []problem.Kind{problem.Conflict}},
		} {
			if err := outcome.err; err != nil && problem.Of(err) != outcome.other[0] && problem.Of(err) != outcome.other[len(outcome.other)-1] {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if joined == nil && (revoked == nil || founded == nil) {
			t.Errorf("round %d: joined, although the invitation was revoked (%v) or the user founded an organization (%v)", round, revoked, founded)
		}
		if joined == nil && replaced == nil {
			t.Errorf("round %d: joined by an invitation that was replaced, or a member was invited", round)
		}
	}
}

// TestInviteKnownAddress: the mail goes to the user's stored address, however the inviter
// typed it, and the inviter learns nothing from that.
func TestInviteKnownAddress(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme := f.organization(t, "Acme")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	bob := f.signIn(t, "bob@example.com")
	i, token := f.invite(t, ada, "BOB@example.com", account.Agent)
	mails := f.mail.all()
	checkMail(t, mails[len(mails)-1], "bob@example.com", "Join Acme on Kickstand")
	if list := f.invitations(t, acme); i.Email != "BOB@example.com" || len(list) != 1 || list[0] != i {
		t.Errorf("got invitation %+v and %+v in the list, want the address as typed in both", i, list)
	}
	in, err := f.AcceptInvitation(t.Context(), token, "Bob", client)
	if err != nil || in.User.ID != bob.User.ID || in.User.Email != "bob@example.com" {
		t.Errorf("got %+v, error %v, want user %s", in.User, err, bob.User.ID)
	}
}

func TestInvitationLife(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		ok    bool
	}{
		{7*24*time.Hour - time.Second, true},
		{7 * 24 * time.Hour, false},
		{7*24*time.Hour + 23*time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, dbtest.NewSQLite(t))
			o := f.organization(t, "Acme")
			ada, _ := f.member(t, o, "ada@example.com", account.Admin)
			_, token := f.invite(t, ada, "bob@example.com", account.Agent)
			time.Sleep(tt.after)
			if got := len(f.invitations(t, o)) == 1; got != tt.ok {
				t.Errorf("after %v: got listed %t, want %t", tt.after, got, tt.ok)
			}
			if !tt.ok {
				wantRefused(t, f, token, "older than 7 days")
				return
			}
			if _, err := f.PreviewInvitation(t.Context(), token); err != nil {
				t.Errorf("after %v: %v", tt.after, err)
			}
			if _, err := f.AcceptInvitation(t.Context(), token, "Bob", client); err != nil {
				t.Errorf("after %v: %v", tt.after, err)
			}
		})
	}
}

func TestInvitationLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		o := f.organization(t, "Acme")
		ada, _ := f.member(t, o, "ada@example.com", account.Admin)
		try := func(email string) error {
			_, err := f.Invite(context.Background(), ada, account.NewInvitation{Email: email, Role: account.Agent})
			return err
		}
		for _, email := range []string{"bob@example.com", "BOB@example.com", " bob@EXAMPLE.com", "bob@example.com", "bob@example.com"} {
			if err := try(email); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(17500 * time.Millisecond)
		err := try("Bob@example.com")
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != problem.RateLimited || p.RetryAfter != 42500*time.Millisecond ||
			p.Message != "too many invitations to this address, try again in 43 seconds" {
			t.Errorf("got error %v the sixth time", err)
		}
		// Other addresses and ways to sign in are unaffected.
		if err := try("dan@example.com"); err != nil {
			t.Error(err)
		}
		f.signIn(t, "bob@example.com")
		time.Sleep(42500 * time.Millisecond)
		if err := try("bob@example.com"); err != nil {
			t.Error(err)
		}

		// The maximum is pending; replacing one is possible.
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			for n := f.count(t, "SELECT count(*) FROM invitations"); n < 500; n++ {
				if _, err := tx.Exec(t.Context(), `INSERT INTO invitations (id, digest, organization_id, email, email_key, role, invited_by, inviter_id, created_at)
					VALUES ($1, $2, $3, $4, $4, 'agent', 'Ada', '', $5)`,
					fmt.Sprint(n), fmt.Append(nil, n), o.ID, fmt.Sprintf("p%d@example.com", n), tx.Now.UnixMicro()); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		wantKind(t, try("one.more@example.com"), problem.Conflict)
		if err := try("p400@example.com"); err != nil {
			t.Error(err)
		}
		if got := len(f.invitations(t, o)); got != 500 {
			t.Errorf("got %d invitations, want 500", got)
		}
		// Expired invitations do not count, even before their deletion.
		time.Sleep(7 * 24 * time.Hour)
		if err := try("one.more@example.com"); err != nil {
			t.Errorf("after the others expired: %v", err)
		}
	})
}

// TestInvitationHeaders: names are always encoded as text.
func TestInvitationHeaders(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme := f.organization(t, "Acme")
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	for i, tt := range []struct{ name, mailed string }{
		{"Müller & Söhne", "Müller & Söhne"},
		{"東京レンタカー", "東京レンタカー"},
		{strings.Repeat("é", 255), strings.Repeat("é", 59) + "…"},
		{strings.Repeat("a", 255), strings.Repeat("a", 59) + "…"},
		{strings.Repeat("🚲", 255), strings.Repeat("🚲", 59) + "…"},
		{"=?utf-8?q?a=0d=0aBcc:_eve@example.com?=", "=?utf-8?q?a=0d=0aBcc _eve example com?="},
		{"=?utf-8?b?DQpCY2M6IGV2ZUBleGFtcGxlLmNvbQ==?=", "=?utf-8?b?DQpCY2M6IGV2ZUBleGFtcGxlLmNvbQ==?="},
		{"Bcc: eve@example.com", "Bcc: eve example com"},
		{`"quoted" <eve@example.com>, other`, `"quoted" <eve example com>, other`},
		{"<script>alert(1)</script>", "<script>alert(1)< script>"},
		{"two  spaces   and more", "two spaces and more"},
		{"%0d%0aBcc: eve@example.com", "%0d%0aBcc: eve example com"},
		{`back\slash`, "back slash"},
		{"{{.}} %s", "{{ }} %s"},
	} {
		name := tt.name
		o, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: name})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		u, err := f.UpdateProfile(t.Context(), ada.UserID, account.Profile{Name: &name})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		f.exec(t, "UPDATE users SET organization_id = $2 WHERE id = $1", u.ID, o.ID)
		by := account.Identity{UserID: u.ID, OrganizationID: o.ID, Role: account.Admin, User: u}
		to := fmt.Sprintf("bob%d@example.com", i)
		f.invite(t, by, to, account.Agent)
		mails := f.mail.all()
		m := mails[len(mails)-1]
		checkMail(t, m, to, "Join "+tt.mailed+" on Kickstand")
		if !strings.Contains(m.Text, tt.mailed+" invites you to work with "+tt.mailed+" on Kickstand") {
			t.Errorf("%q: got text %q", name, m.Text)
		}
		if strings.Contains(m.HTML, "<script>") {
			t.Errorf("%q: got HTML %q", name, m.HTML)
		}
	}
	// Line ends are refused in names.
	in := f.signIn(t, "eve@example.com")
	for _, name := range []string{"A\r\nBcc: eve@example.com", "A\nB", "A\rB", "A\u0085B", "A\u2028B", "A\x00B"} {
		_, err := f.CreateOrganization(t.Context(), account.NewOrganization{Name: name})
		wantKind(t, err, problem.Invalid)
		_, err = f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: "Eve", OrganizationName: name})
		wantKind(t, err, problem.Invalid)
		_, err = f.CompleteSignup(t.Context(), in.User.ID, account.SignupRequest{Name: name, OrganizationName: "Acme"})
		wantKind(t, err, problem.Invalid)
	}
}

// TestAttackInvitationCarriesLink: the names of organization and inviter contain a link,
// which the mail must not have.
func TestAttackInvitationCarriesLink(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	for i, name := range []string{
		"Visit http://evil.example now", "evil.example", "WWW.EVIL.EXAMPLE/win", "evil\u3002example", "Pay at evil\u200b.example",
		"write to win@evil.example", "ｈｔｔｐ：／／ｅｖｉｌ．ｅｘａｍｐｌｅ",
	} {
		o := f.organization(t, name)
		u, err := f.CreateUser(t.Context(), account.NewUser{
			Email: fmt.Sprintf("eve%d@attacker.test", i), Name: name, Organization: o.Slug, Role: account.Admin,
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := len(f.mail.all())
		by := account.Identity{UserID: u.ID, OrganizationID: o.ID, Role: account.Admin, User: u}
		if _, err := f.Invite(t.Context(), by, account.NewInvitation{Email: fmt.Sprintf("victim%d@example.com", i), Role: account.Agent}); err != nil {
			t.Fatal(err)
		}
		m := f.mail.all()[sent]
		ours := strings.ReplaceAll(m.Subject+"\n"+m.Text+"\n"+m.HTML, "https://help.example.com/invitation", "")
		for _, part := range []string{"evil.example", "EVIL.EXAMPLE", "http:", "WWW.", "\u3002", "\u200b", "win@", "ｈｔｔｐ"} {
			if strings.Contains(ours, part) {
				t.Errorf("%q: got %q in the mail\n%s\n%s", name, part, m.Subject, m.Text)
			}
		}
		if !strings.Contains(m.Text, fmt.Sprintf("from the account of eve%d@attacker.test", i)) {
			t.Errorf("%q: the mail does not say who invites:\n%s", name, m.Text)
		}
	}
}
