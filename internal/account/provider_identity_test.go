package account_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func identity(subject, email string) account.ProviderIdentity {
	return account.ProviderIdentity{Issuer: "https://id.example.com", Subject: subject, Email: email, EmailVerified: true}
}

// arrive signs in an identity of the provider, each time from another address.
func (f *fixture) arrive(t *testing.T, p *provider, who account.ProviderIdentity) (account.SignIn, error) {
	t.Helper()
	p.mu.Lock()
	p.who = who
	from := account.Client{IP: fmt.Sprintf("192.0.2.%d", len(p.asked)%250+1), UserAgent: "test"}
	p.mu.Unlock()
	state, intent := f.depart(t, from)
	return f.FinishProvider(t.Context(), account.ProviderAnswer{State: state, Code: "c"}, intent, from)
}

// TestAttackRecycledAddress: an address that passes to another person at the provider, or
// that a user there claims, does not open the account of its former owner.
func TestAttackRecycledAddress(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	first, err := f.arrive(t, p, identity("1", "ada@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []account.ProviderIdentity{
		identity("2", "ada@example.com"), identity("2", " ADA@EXAMPLE.COM "), identity("1 ", "ada@example.com"), identity("01", "ada@example.com"),
	} {
		_, err := f.arrive(t, p, who)
		wantInvalid(t, err, "belongs to another identity")
	}
	if n := f.count(t, "SELECT count(*) FROM sessions"); n != 1 {
		t.Errorf("got %d sessions, want that of the first person only", n)
	}
	// The same subject at another provider is another person.
	elsewhere := identity("1", "eve@example.com")
	elsewhere.Issuer = "https://other.example.com"
	if eve, err := f.arrive(t, p, elsewhere); err != nil || eve.User.ID == first.User.ID {
		t.Errorf("got user %+v, error %v, want another one", eve.User, err)
	}
	if again, err := f.arrive(t, p, identity("1", "ada@example.com")); err != nil || again.User.ID != first.User.ID {
		t.Errorf("got user %+v, error %v, want the first one", again.User, err)
	}
}

// TestAttackAddressMovesAccount: a person with a changed address at the provider, now
// another user's, remains the same user.
func TestAttackAddressMovesAccount(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	bob := f.signIn(t, "bob@example.com")
	eve, err := f.arrive(t, p, identity("eve", "eve@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	unverified, none := identity("eve", "bob@example.com"), identity("eve", "")
	unverified.EmailVerified = false
	for _, who := range []account.ProviderIdentity{identity("eve", "bob@example.com"), identity("eve", "new@example.com"), unverified, none} {
		in, err := f.arrive(t, p, who)
		if err != nil || in.User.ID != eve.User.ID || in.User.Email != "eve@example.com" {
			t.Errorf("%+v: got user %+v, error %v, want Eve as she was", who, in.User, err)
		}
	}
	// The address stays available to its owner.
	if in, err := f.arrive(t, p, identity("bob", "bob@example.com")); err != nil || in.User.ID != bob.User.ID {
		t.Errorf("got user %+v, error %v, want Bob", in.User, err)
	}
	if n := f.count(t, "SELECT count(*) FROM users"); n != 2 {
		t.Errorf("got %d users, want 2", n)
	}
}

// TestIdentityOfNobody: a response without an identity links nothing.
func TestIdentityOfNobody(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	for _, who := range []account.ProviderIdentity{
		{Issuer: "", Subject: "1", Email: "ada@example.com", EmailVerified: true},
		identity("a\x00b", "ada@example.com"), identity("a\nb", "ada@example.com"), identity("\xff", "ada@example.com"),
		identity(strings.Repeat("a", 256), "ada@example.com"),
	} {
		_, err := f.arrive(t, p, who)
		wantInvalid(t, err, "does not identify you")
	}
	if n := f.count(t, "SELECT count(*) FROM users"); n != 0 {
		t.Errorf("got %d users, want none", n)
	}
}

// TestUnlinkIdentities: after the operator unlinks, another identity can sign in.
func TestUnlinkIdentities(t *testing.T) {
	f, p := newProviderFixture(t, dbtest.New(t), ada)
	first, err := f.arrive(t, p, identity("1", "ada@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.UnlinkIdentities(t.Context(), "ADA@example.com"); err != nil || n != 1 {
		t.Errorf("got %d unlinked, error %v, want 1", n, err)
	}
	if again, err := f.arrive(t, p, identity("2", "ada@example.com")); err != nil || again.User.ID != first.User.ID {
		t.Errorf("got user %+v, error %v, want the same", again.User, err)
	}
	_, err = f.arrive(t, p, identity("1", "ada@example.com"))
	wantInvalid(t, err, "belongs to another identity")
	_, err = f.UnlinkIdentities(t.Context(), "nobody@example.com")
	wantKind(t, err, problem.NotFound)
}

// TestAttackTwoIdentitiesAtOnce: of two concurrent identities with one address, one gets
// the account.
func TestAttackTwoIdentitiesAtOnce(t *testing.T) {
	f, p := newProviderFixture(t, patientDB(t), ada)
	for round := range 5 {
		email := fmt.Sprintf("r%d@example.com", round)
		if round%2 == 0 {
			f.signIn(t, email) // exists already
		}
		sessions := f.count(t, "SELECT count(*) FROM sessions")
		type trip struct{ state, intent string }
		trips := make([]trip, 4)
		for i := range trips {
			trips[i].state, trips[i].intent = f.depart(t, account.Client{IP: fmt.Sprintf("198.51.100.%d", round*4+i)})
		}
		var next int
		p.mu.Lock()
		p.turn = func() account.ProviderIdentity { next++; return identity(fmt.Sprint(round, " ", next), email) }
		p.mu.Unlock()
		var wg sync.WaitGroup
		for _, way := range trips {
			wg.Go(func() {
				_, err := f.FinishProvider(t.Context(), account.ProviderAnswer{State: way.state, Code: "c"}, way.intent, client)
				if err != nil && problem.Of(err) != problem.Invalid {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.mu.Lock()
		p.turn = nil
		p.mu.Unlock()
		if n := f.count(t, "SELECT count(*) FROM sessions"); n != sessions+1 {
			t.Errorf("round %d: got %d sign-ins, want 1", round, n-sessions)
		}
		if n := f.count(t, "SELECT count(*) FROM identities WHERE email = $1", email); n != 1 {
			t.Errorf("round %d: got %d identities, want 1", round, n)
		}
	}
}
