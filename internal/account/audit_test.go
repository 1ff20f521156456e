package account_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// TestAudited performs each action on accounts: each has its entry in the organization's
// chain, and none has a password or a token.
func TestAudited(t *testing.T) {
	f := newFixture(t, dbtest.New(t))
	log := audittest.Open(f.db)
	o := f.organization(t, "Acme")
	const first, second = "planted-first-passphrase", "planted-second-passphrase"
	if _, err := f.CreateUser(t.Context(), account.NewUser{Email: "ada@example.com", Name: "Ada", Password: first, Organization: o.Slug, Role: account.Admin}); err != nil {
		t.Fatal(err)
	}
	in, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: "ada@example.com", Password: first}, client)
	if err != nil {
		t.Fatal(err)
	}
	ada := f.identity(t, in)
	as := account.NewContext(t.Context(), ada)
	bob, _ := f.member(t, o, "bob@example.com", account.Agent)
	invitation, err := f.Invite(as, ada, account.NewInvitation{Email: "cyn@example.com", Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Invite(as, ada, account.NewInvitation{Email: "dan@example.com", Role: account.Admin}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.AcceptInvitation(t.Context(), f.mail.token(t), "Dan", client); err != nil {
		t.Fatal(err)
	}
	planted := []string{first, second, in.Tokens.Access, in.Tokens.Refresh, f.mail.token(t)}
	for _, step := range []func() error{
		func() error { return f.RevokeInvitation(as, o.ID, invitation.ID) },
		func() error { _, err := f.ChangeRole(as, o.ID, bob.UserID, account.Admin); return err },
		func() error { _, err := f.ChangeRole(as, o.ID, bob.UserID, account.Admin); return err }, // no change
		func() error { return f.RemoveMember(as, o.ID, bob.UserID) },
		func() error { _, err := f.RenameOrganization(as, o.ID, "Acme Wheels"); return err },
		func() error { _, err := f.SetTimeZone(as, o.ID, "Europe/Berlin"); return err },
		func() error { _, err := f.SetTimeZone(as, o.ID, "Europe/Berlin"); return err }, // no change
		func() error {
			_, err := f.UpdateProfile(as, ada.UserID, account.Profile{Name: new("Ada L.")})
			return err
		},
		func() error {
			return f.ChangePassword(as, ada, account.PasswordChange{CurrentPassword: first, NewPassword: second})
		},
		func() error { _, err := f.EndSessions(as, ada.UserID, ada.SessionID); return err }, // no other session
		func() error { return f.SignOut(as, ada.SessionID) },
		func() error { return f.SignOut(as, ada.SessionID) }, // ended already
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range audittest.List(t, log, o.ID, audit.Query{}) {
		changes, _ := json.Marshal(e.Changes)
		who := e.Source.Actor.Email
		if who == "" {
			who = string(e.Source.Actor.Type)
		}
		got = append(got, strings.Join([]string{e.Action, e.Target.Name, "by", who, string(changes)}, " "))
		details, _ := json.Marshal(e.Details)
		for _, p := range planted {
			if strings.Contains(string(changes)+string(details)+e.Target.Name, p) {
				t.Errorf("%s has a secret", e.Action)
			}
		}
	}
	slices.Reverse(got)
	want := []string{
		"organization.created Acme by system {}",
		"user.created ada@example.com by system {}",
		"sign_in.completed ada@example.com by ada@example.com {}",
		"user.created bob@example.com by system {}",
		"sign_in.completed bob@example.com by bob@example.com {}",
		"invitation.created cyn@example.com by ada@example.com {}",
		"invitation.created dan@example.com by ada@example.com {}",
		"member.joined dan@example.com by dan@example.com {}",
		"sign_in.completed dan@example.com by dan@example.com {}",
		"invitation.revoked cyn@example.com by ada@example.com {}",
		`member.role_changed bob@example.com by ada@example.com {"role":{"from":"agent","to":"admin"}}`,
		`member.removed bob@example.com by ada@example.com {"role":{"from":"admin","to":null}}`,
		`organization.updated Acme Wheels by ada@example.com {"name":{"from":"Acme","to":"Acme Wheels"}}`,
		`organization.updated Acme Wheels by ada@example.com {"time_zone":{"from":"UTC","to":"Europe/Berlin"}}`,
		`user.profile_updated ada@example.com by ada@example.com {"name":{"from":"Ada","to":"Ada L."}}`,
		"password.changed ada@example.com by ada@example.com {}",
		"sign_out.completed ada@example.com by ada@example.com {}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRefusedSignInsAreAudited refuses sign-ins of a known and of an unknown address.
func TestRefusedSignInsAreAudited(t *testing.T) {
	d := dbtest.New(t)
	log := audittest.Open(d)
	f := newFixture(t, d, func(c *account.Config) { c.Audit = log })
	o := f.organization(t, "Acme")
	if _, err := f.CreateUser(t.Context(), account.NewUser{Email: "ada@example.com", Password: "correct horse battery", Organization: o.Slug, Role: account.Admin}); err != nil {
		t.Fatal(err)
	}
	const typed = "typed-into-the-wrong-field@example.com"
	for _, email := range []string{"ada@example.com", "ada@example.com", typed} {
		_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: email, Password: "planted guess"}, client)
		wantKind(t, err, problem.Unauthorized)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var running sync.WaitGroup
	running.Go(func() { log.Run(ctx) })
	running.Wait()
	ours := audittest.List(t, log, o.ID, audit.Query{Outcome: audit.Refused})
	refused := 0.0
	for _, e := range ours {
		if n, ok := e.Details["count"].(float64); ok {
			refused += n
		} else {
			refused++
		}
		if e.Action != account.AuditSignInRefused || e.Target.Name != "ada@example.com" {
			t.Errorf("of the organization: %+v", e)
		}
	}
	if refused != 2 {
		t.Errorf("%g refusals in the organization's chain, want 2", refused)
	}
	nobodys := audittest.List(t, log, "", audit.Query{Outcome: audit.Refused})
	if len(nobodys) != 1 || nobodys[0].Target != (audit.Target{Type: "user"}) {
		t.Errorf("of nobody: %+v", nobodys)
	}
}
