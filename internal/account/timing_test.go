package account_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// longer is the probability that a random sample of a is longer than a random one of b
// plus slack: Mann and Whitney's U over the number of pairs, 0.5 for equal distributions.
// It depends on ranks only, so that a pause of the machine counts as one long sample.
func longer(a, b []time.Duration, slack time.Duration) float64 {
	u := 0.0
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y+slack:
				u++
			case x == y+slack:
				u += 0.5
			}
		}
	}
	return u / float64(len(a)*len(b))
}

func TestLonger(t *testing.T) {
	for _, tt := range []struct {
		a, b  []time.Duration
		slack time.Duration
		want  float64
	}{
		{[]time.Duration{1, 2, 3}, []time.Duration{1, 2, 3}, 0, 0.5},
		{[]time.Duration{4, 5}, []time.Duration{1, 2, 3}, 0, 1},
		{[]time.Duration{1, 1e9}, []time.Duration{2, 3}, 0, 0.5},
		{[]time.Duration{0}, []time.Duration{1}, 0, 0},
		{[]time.Duration{12, 20}, []time.Duration{10}, 2, 0.75},
	} {
		if got := longer(tt.a, tt.b, tt.slack); got != tt.want {
			t.Errorf("longer(%v, %v, %v): got %v, want %v", tt.a, tt.b, tt.slack, got, tt.want)
		}
	}
}

// wantSameTime takes n samples of each case in turn, so that other load affects all
// alike, and compares each case with the last: neither may be longer with a probability
// over 0.8. Slack is a tenth: on PostgreSQL a foreign key check is that much of a
// transaction without disk writes. Equal distributions fail by chance once in thousands
// of runs, omitted work always. A difference is measured again, and counts if seen three
// times.
func wantSameTime(t *testing.T, n int, names []string, sample func(way, i int)) {
	t.Helper()
	ways := len(names)
	for attempt := range 3 {
		took := make([][]time.Duration, ways)
		runtime.GC()
		for i := range n {
			for k := range ways {
				way := (i + k) % ways
				start := time.Now()
				sample(way, attempt*n+i)
				took[way] = append(took[way], time.Since(start))
			}
		}
		last := ways - 1
		same := true
		for way := range last {
			a, b := took[way], took[last]
			median := slices.Sorted(slices.Values(b))[n/2]
			more, less := longer(a, b, median/10), longer(b, a, median/10)
			t.Logf("%s: longer than %s with a probability of %.2f, shorter with %.2f, of %v", names[way], names[last], more, less, median)
			same = same && more < 0.8 && less < 0.8
		}
		if same {
			return
		}
	}
	t.Error("the time tells who has an account")
}

// TestSameTime: known and unknown e-mail addresses are indistinguishable by the time of a
// response and by the work done.
func TestSameTime(t *testing.T) {
	t.Run("password", func(t *testing.T) {
		const samples = 12
		f := newFixture(t, dbtest.New(t))
		f.organization(t, "Acme")
		// A hash for each user with current parameters, computed once.
		if _, err := f.CreateUser(t.Context(), account.NewUser{Email: "with0@example.com", Password: "long enough", Organization: "acme", Role: account.Agent}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 * samples {
			for _, kind := range []string{"with", "without"} {
				if kind == "with" && i == 0 {
					continue
				}
				if _, err := f.CreateUser(t.Context(), account.NewUser{Email: fmt.Sprintf("%s%d@example.com", kind, i), Organization: "acme", Role: account.Agent}); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.exec(t, `UPDATE users SET password_hash = (SELECT password_hash FROM users WHERE email = 'with0@example.com') WHERE email LIKE 'with%' AND email NOT LIKE 'without%'`)
		names := []string{"with", "without", "unknown"}
		wantSameTime(t, samples, names, func(way, i int) {
			_, err := f.SignInWithPassword(t.Context(), account.PasswordSignIn{Email: fmt.Sprintf("%s%d@example.com", names[way], i), Password: "a guess"},
				account.Client{IP: fmt.Sprintf("192.0.2.%d", i)}) // each within the limit of its network
			if problem.Of(err) != problem.Unauthorized {
				t.Fatalf("got error %v", err)
			}
		})
	})

	names := []string{"known", "unknown"}
	for _, tt := range []struct {
		name, table string
		ask         func(f *fixture, email string) error
	}{
		{"link", "login_links", func(f *fixture, email string) error {
			_, err := f.SignInWithEmail(t.Context(), account.EmailSignIn{Email: email}, "", account.Client{})
			return err
		}},
		{"reset", "password_resets", func(f *fixture, email string) error {
			return f.SendPasswordReset(t.Context(), account.PasswordReset{Email: email}, account.Client{})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const samples = 100
			f := newFixture(t, dbtest.New(t))
			f.organization(t, "Acme")
			for i := range 3 * samples {
				if _, err := f.CreateUser(t.Context(), account.NewUser{Email: fmt.Sprintf("known%d@example.com", i), Organization: "acme", Role: account.Agent}); err != nil {
					t.Fatal(err)
				}
			}
			// The work: equal numbers of rows and mails.
			for _, name := range names {
				rows, mails := f.count(t, "SELECT count(*) FROM "+tt.table), len(f.mail.all())
				if err := tt.ask(f, name+"0@example.com"); err != nil {
					t.Fatal(err)
				}
				rows, mails = f.count(t, "SELECT count(*) FROM "+tt.table)-rows, len(f.mail.all())-mails
				if rows != 1 || mails != 1 {
					t.Errorf("%s: got %d rows and %d mails, want 1 of each", name, rows, mails)
				}
			}
			wantSameTime(t, samples, names, func(way, i int) {
				if err := tt.ask(f, fmt.Sprintf("%s%d@example.com", names[way], i)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
