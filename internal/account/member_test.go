package account_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// members returns an organization's members as e-mail addresses with roles.
func (f *fixture) members(t *testing.T, o account.Organization) []string {
	t.Helper()
	users, err := f.Members(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, u := range users {
		if u.OrganizationID != o.ID {
			t.Errorf("got a member of %s", u.OrganizationID)
		}
		list = append(list, u.Email+" "+string(u.Role))
	}
	return list
}

func wantMembers(t *testing.T, f *fixture, o account.Organization, want ...string) {
	t.Helper()
	if got := f.members(t, o); !slices.Equal(got, want) {
		t.Errorf("got members %q, want %q", got, want)
	}
}

func TestChangeRole(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme, other := f.organization(t, "Acme"), f.organization(t, "Other")
	wantMembers(t, f, acme)
	ada, _ := f.member(t, acme, "ada@example.com", account.Admin)
	bob, bobs := f.member(t, acme, "bob@example.com", account.Agent)
	cyn, _ := f.member(t, other, "cyn@example.com", account.Admin)
	dan := f.signIn(t, "dan@example.com") // has no organization
	wantMembers(t, f, acme, "ada@example.com admin", "bob@example.com agent")

	for _, r := range []account.Role{"", "owner", "Admin", "admin ", "admin\x00", "\xff"} {
		_, err := f.ChangeRole(t.Context(), acme.ID, bob.UserID, r)
		wantKind(t, err, problem.Invalid)
	}
	for _, tt := range []struct{ organization, user string }{
		{acme.ID, cyn.UserID}, {acme.ID, dan.User.ID}, {acme.ID, "nobody"}, {acme.ID, ""},
		{other.ID, bob.UserID}, {"nothing", bob.UserID}, {"", bob.UserID}, {"", dan.User.ID},
	} {
		_, err := f.ChangeRole(t.Context(), tt.organization, tt.user, account.Admin)
		wantKind(t, err, problem.NotFound)
		wantKind(t, f.RemoveMember(t.Context(), tt.organization, tt.user), problem.NotFound)
	}
	// The only admin stays one.
	_, err := f.ChangeRole(t.Context(), acme.ID, ada.UserID, account.Agent)
	wantKind(t, err, problem.Conflict)
	wantKind(t, f.RemoveMember(t.Context(), acme.ID, ada.UserID), problem.Conflict)
	if u, err := f.ChangeRole(t.Context(), acme.ID, ada.UserID, account.Admin); err != nil || !sameUser(u, ada.User) {
		t.Errorf("got user %+v, error %v, want no change", u, err)
	}

	u, err := f.ChangeRole(t.Context(), acme.ID, bob.UserID, account.Admin)
	if err != nil || u.Role != account.Admin || !u.UpdatedAt.After(bob.User.UpdatedAt) {
		t.Errorf("got user %+v, error %v, want an admin", u, err)
	}
	// It takes effect with the next request.
	if id, _, err := f.Authenticate(t.Context(), bobs.Access, "", client); err != nil || id.Role != account.Admin {
		t.Errorf("got role %q, error %v, want admin", id.Role, err)
	}
	if _, err := f.ChangeRole(t.Context(), acme.ID, ada.UserID, account.Agent); err != nil {
		t.Error(err)
	}
	wantMembers(t, f, acme, "ada@example.com agent", "bob@example.com admin")
	wantMembers(t, f, other, "cyn@example.com admin")
	if got, err := f.AdminEmails(t.Context(), f.db, acme.ID); err != nil || !slices.Equal(got, []string{"bob@example.com"}) {
		t.Errorf("got admins %q, error %v", got, err)
	}
}

// TestLastAdminRace: of two admins that remove or demote each other concurrently, one
// stays.
func TestLastAdminRace(t *testing.T) {
	f := newFixture(t, patientDB(t))
	for round := range 24 {
		o := f.organization(t, "Acme")
		var ids [2]string
		for i := range ids {
			u, err := f.CreateUser(t.Context(), account.NewUser{Email: fmt.Sprintf("ada%d-%d@example.com", round, i), Organization: o.Slug, Role: account.Admin})
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = u.ID
		}
		var wg sync.WaitGroup
		var errs [2]error
		for i, id := range ids {
			wg.Go(func() {
				if (round+i*(round/2))%2 == 0 { // both orders, mixed
					_, errs[i] = f.ChangeRole(t.Context(), o.ID, id, account.Agent)
				} else {
					errs[i] = f.RemoveMember(t.Context(), o.ID, id)
				}
			})
		}
		wg.Wait()
		refused := 0
		for _, err := range errs {
			if err != nil {
				wantKind(t, err, problem.Conflict)
				refused++
			}
		}
		if n := f.count(t, "SELECT count(*) FROM users WHERE organization_id = $1 AND role = 'admin'", o.ID); n != 1 || refused != 1 {
			t.Fatalf("round %d: got %d admins, %d refusals, want 1 of each", round, n, refused)
		}
	}
}

func TestRemoveMember(t *testing.T) {
	type removal struct{ organizationID, userID string }
	var seen []removal
	var refuse error
	f := newFixture(t, dbtest.New(t), func(c *account.Config) {
		c.OnMemberRemoved = func(ctx context.Context, tx *db.Tx, organizationID, userID string, _ bool) error {
			// The member still exists, and the hook's writes are part of the removal.
			var member bool
			if err := tx.QueryRow(ctx, "SELECT organization_id = $2 FROM users WHERE id = $1", userID, organizationID).Scan(&member); err != nil {
				return err
			}
			if !member {
				return errors.New("the user is no member any more")
			}
			if _, err := tx.Exec(ctx, "UPDATE organizations SET name = $2 WHERE id = $1", organizationID, "Touched"); err != nil {
				return err
			}
			tx.AfterCommit(func() { seen = append(seen, removal{organizationID, userID}) })
			return refuse
		}
	})
	acme, other := f.organization(t, "Acme"), f.organization(t, "Other")
	_, adas := f.member(t, acme, "ada@example.com", account.Admin)
	bob, bobs := f.member(t, acme, "Bob@example.com", account.Agent)
	second := f.signIn(t, "bob@example.com").Tokens
	_, cyns := f.member(t, other, "cyn@example.com", account.Admin)
	name := func() string {
		t.Helper()
		o, err := f.Organization(t.Context(), acme.ID)
		if err != nil {
			t.Fatal(err)
		}
		return o.Name
	}

	refuse = errors.New("not now")
	if err := f.RemoveMember(t.Context(), acme.ID, bob.UserID); !errors.Is(err, refuse) {
		t.Fatalf("got error %v, want that of OnMemberRemoved", err)
	}
	wantMembers(t, f, acme, "ada@example.com admin", "Bob@example.com agent")
	if !f.works(t, bobs.Access) || !f.works(t, second.Access) || len(seen) != 0 || name() != "Acme" {
		t.Errorf("a removal that failed changed something: seen %v, organization %s", seen, name())
	}

	refuse = nil
	if err := f.RemoveMember(t.Context(), acme.ID, bob.UserID); err != nil {
		t.Fatal(err)
	}
	if want := []removal{{acme.ID, bob.UserID}}; !slices.Equal(seen, want) || name() != "Touched" {
		t.Errorf("got removals %v, organization %s, want %v, Touched", seen, name(), want)
	}
	wantMembers(t, f, acme, "ada@example.com admin")
	for _, tokens := range []account.Tokens{bobs, second} {
		_, _, err := f.Authenticate(t.Context(), tokens.Access, tokens.Refresh, client)
		wantKind(t, err, problem.Unauthorized)
	}
	if !f.works(t, adas.Access) || !f.works(t, cyns.Access) {
		t.Error("somebody else's session ended")
	}
	wantKind(t, f.RemoveMember(t.Context(), acme.ID, bob.UserID), problem.NotFound)

	// The user remains without an organization and can be invited.
	again := f.signIn(t, "bob@example.com")
	if u := again.User; u.ID != bob.UserID || u.OrganizationID != "" || u.Role != "" || u.Name != bob.User.Name || u.Email != "Bob@example.com" {
		t.Errorf("got user %+v after the removal", u)
	}
	ada := f.identity(t, account.SignIn{Tokens: adas})
	for _, o := range []account.Organization{other, acme} {
		by := ada
		by.OrganizationID = o.ID
		f.exec(t, "UPDATE users SET organization_id = $2 WHERE id = $1", by.UserID, o.ID)
		if _, err := f.Invite(t.Context(), by, account.NewInvitation{Email: "bob@example.com", Role: account.Admin}); err != nil {
			t.Fatal(err)
		}
		in, err := f.AcceptInvitation(t.Context(), f.mail.token(t), "", client)
		if err != nil || in.User.ID != bob.UserID || in.User.OrganizationID != o.ID || in.User.Role != account.Admin {
			t.Fatalf("got user %+v, error %v, want an admin of %s", in.User, err, o.Name)
		}
		if err := f.RemoveMember(t.Context(), o.ID, bob.UserID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveYourself: an admin may leave while another admin remains.
func TestRemoveYourself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		o := f.organization(t, "Acme")
		ada, tokens := f.member(t, o, "ada@example.com", account.Admin)
		f.member(t, o, "bob@example.com", account.Admin)
		time.Sleep(time.Minute)
		if err := f.RemoveMember(t.Context(), ada.OrganizationID, ada.UserID); err != nil {
			t.Fatal(err)
		}
		if f.works(t, tokens.Access) {
			t.Error("the session goes on")
		}
		u, err := f.User(t.Context(), ada.UserID)
		if err != nil || u.UpdatedAt.Sub(ada.User.UpdatedAt) != time.Minute {
			t.Errorf("got user %+v, error %v, want it changed a minute later", u, err)
		}
		wantMembers(t, f, o, "bob@example.com admin")
	})
}

// TestInvitationsOfWhoMayNotAnyMore: the invitations of a former admin end, and they
// cannot invite, even with an identity from before.
func TestInvitationsOfWhoMayNotAnyMore(t *testing.T) {
	for name, leave := range map[string]func(f *fixture, o account.Organization, by account.Identity) error{
		"removed": func(f *fixture, o account.Organization, by account.Identity) error {
			return f.RemoveMember(t.Context(), o.ID, by.UserID)
		},
		"an agent now": func(f *fixture, o account.Organization, by account.Identity) error {
			_, err := f.ChangeRole(t.Context(), o.ID, by.UserID, account.Agent)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dbtest.New(t))
			o := f.organization(t, "Acme")
			ada, _ := f.member(t, o, "ada@example.com", account.Admin)
			mallory, _ := f.member(t, o, "mallory@example.com", account.Admin)
			_, hers := f.invite(t, mallory, "mallory2@example.com", account.Admin)
			_, others := f.invite(t, ada, "bob@example.com", account.Agent)
			if err := leave(f, o, mallory); err != nil {
				t.Fatal(err)
			}
			_, err := f.AcceptInvitation(t.Context(), hers, "Mallory", client)
			wantKind(t, err, problem.Invalid)
			if _, err := f.AcceptInvitation(t.Context(), others, "Bob", client); err != nil {
				t.Errorf("somebody else's invitation: %v", err)
			}
			_, err = f.Invite(t.Context(), mallory, account.NewInvitation{Email: "mallory3@example.com", Role: account.Admin})
			wantKind(t, err, problem.Forbidden)
		})
	}
}

// TestInvitationsOfOneOrganization: the number is limited, so that nobody mails any
// number of strangers by inviting and revoking.
func TestInvitationsOfOneOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		o := f.organization(t, "Acme")
		ada, _ := f.member(t, o, "ada@example.com", account.Admin)
		try := func(i int) error {
			_, err := f.Invite(t.Context(), ada, account.NewInvitation{Email: fmt.Sprintf("p%d@example.com", i), Role: account.Agent})
			return err
		}
		for i := range 100 {
			if err := try(i); err != nil {
				t.Fatalf("invitation %d: %v", i, err)
			}
		}
		wantKind(t, try(100), problem.RateLimited)
		time.Sleep(time.Hour)
		if err := try(101); err != nil {
			t.Errorf("an hour later: %v", err)
		}
	})
}

// TestResetEndsSignInLinks: a sign-in link from before a password reset no longer works.
func TestResetEndsSignInLinks(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	f.signIn(t, "ada@example.com")
	intent, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "ada@example.com"}, "", account.Client{})
	if err != nil {
		t.Fatal(err)
	}
	link := f.mail.token(t)
	if _, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: "bob@example.com"}, "", account.Client{}); err != nil {
		t.Fatal(err)
	}
	others := f.mail.token(t)
	if err := f.ResetPassword(t.Context(), f.reset(t, "ada@example.com"), "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	_, err = f.FollowLink(t.Context(), link, intent, client)
	wantKind(t, err, problem.Invalid)
	if _, err := f.FollowLink(t.Context(), others, "", client); err != nil {
		t.Errorf("somebody else's link: %v", err)
	}
}

func TestRenameOrganization(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	acme := f.organization(t, "Acme")
	got, err := f.RenameOrganization(t.Context(), acme.ID, " Acme & Sons ")
	if err != nil || got.Name != "Acme & Sons" || got.Slug != acme.Slug {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := f.Organization(t.Context(), acme.ID); err != nil || got.Name != "Acme & Sons" || got.Slug != acme.Slug {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, name := range []string{"", " ", "a\nb", "a\u202eb", strings.Repeat("a", 256)} {
		_, err := f.RenameOrganization(t.Context(), acme.ID, name)
		wantKind(t, err, problem.Invalid)
	}
	_, err = f.RenameOrganization(t.Context(), "nothing", "x")
	wantKind(t, err, problem.NotFound)
}
