package audit_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

func open(d *db.DB, keys ...seal.Key) *audit.Log {
	return audit.Open(audit.Config{DB: d, Box: seal.New(keys[0], keys[1:]...), Ledger: "helpdesk", Service: "helpdesk", Environment: "live"})
}

var alice = audit.Source{
	Actor:   audit.Actor{Type: audit.User, ID: "u1", Email: "alice@example.com"},
	Address: netip.MustParseAddr("192.0.2.7"), UserAgent: "Browser/1.0", RequestID: "r1", Surface: audit.Web,
}

func TestRecord(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	ctx := audit.WithSource(t.Context(), alice)
	err := d.Write(ctx, func(tx *db.Tx) error {
		return l.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: "o1", Action: "member.role_changed",
			Target:  audit.Target{Type: "member", ID: "u2", Name: "Bob"},
			Changes: map[string]audit.Change{"role": {From: "agent", To: "admin"}},
			Details: map[string]any{"confirmed": true},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := audit.List(t.Context(), []*audit.Log{l}, "o1", audit.Query{})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("%d entries, %v, want 1", len(page.Entries), err)
	}
	e := page.Entries[0]
	if e.Sequence != 1 || len(e.Hash) != 32 || len(e.Previous) != 32 || len(e.KeyID) != 8 || e.At.IsZero() || len(e.ID) != 36 {
		t.Errorf("place in the chain: %+v", e)
	}
	want := audit.Entry{
		OrganizationID: "o1", Action: "member.role_changed", Service: "helpdesk", Environment: "live",
		Target:  audit.Target{Type: "member", ID: "u2", Name: "Bob"},
		Changes: map[string]audit.Change{"role": {From: "agent", To: "admin"}},
		Details: map[string]any{"confirmed": true}, Source: alice,
		Sequence: e.Sequence, ID: e.ID, At: e.At, KeyID: e.KeyID, Previous: e.Previous, Hash: e.Hash,
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got  %+v\nwant %+v", e, want)
	}
}

// TestNilLog: services work without a log.
func TestNilLog(t *testing.T) {
	var l *audit.Log
	if err := l.RecordTx(t.Context(), nil, audit.Entry{Action: "a.b"}); err != nil {
		t.Error(err)
	}
	if err := l.Record(t.Context(), audit.Entry{Action: "a.b"}); err != nil {
		t.Error(err)
	}
}

// TestFailedNeighbours: transactions that fail next to others leave no gap in a chain,
// even in a shared commit.
func TestFailedNeighbours(t *testing.T) {
	d := dbtest.New(t)
	l := open(d, seal.NewKey())
	const n = 100
	failure := errors.New("refused")
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				for _, o := range []string{"o2", "", "o1"} {
					if err := l.RecordTx(t.Context(), tx, audit.Entry{OrganizationID: o, Action: "test.done", Target: audit.Target{ID: fmt.Sprint(i)}}); err != nil {
						return err
					}
				}
				if i%2 == 1 {
					return failure
				}
				return nil
			})
			if (i%2 == 1) != errors.Is(err, failure) {
				t.Errorf("transaction %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for o, want := range map[string]int{"o1": n / 2, "o2": n / 2, "": n/2 + 3} {
		page, err := audit.List(t.Context(), []*audit.Log{l}, o, audit.Query{Limit: audit.MaxPage})
		if err != nil || len(page.Entries) != want {
			t.Fatalf("chain %q has %d entries, %v, want %d", o, len(page.Entries), err, want)
		}
		seen := map[int64]bool{}
		for _, e := range page.Entries {
			seen[e.Sequence] = true
		}
		for i := range int64(want) {
			if !seen[i+1] {
				t.Errorf("chain %q has no entry %d", o, i+1)
			}
		}
	}
}

func TestSource(t *testing.T) {
	if got := audit.SourceOf(context.Background()); got != (audit.Source{Actor: audit.Actor{Type: audit.System}}) {
		t.Errorf("without a source: %+v", got)
	}
	ctx := audit.WithSource(t.Context(), alice)
	ctx = audit.WithActor(ctx, audit.Actor{Type: audit.Key, ID: "k1"})
	want := alice
	want.Actor = audit.Actor{Type: audit.Key, ID: "k1"}
	if got := audit.SourceOf(ctx); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestHeadsAreLockedInOneOrder records in several chains in opposite orders. Transactions
// wait for locks instead of retrying, so that an order which needs retries fails.
func TestHeadsAreLockedInOneOrder(t *testing.T) {
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
	d := dbtest.Open(t, address)
	l := open(d, seal.NewKey())
	chains := []string{"o1", "", "o2", "o3"}
	var wg sync.WaitGroup
	for w := range 8 {
		mine := slices.Clone(chains)
		if w%2 == 1 {
			slices.Reverse(mine)
		}
		wg.Go(func() {
			for range 25 {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					for _, o := range mine {
						if err := l.RecordTx(t.Context(), tx, audit.Entry{OrganizationID: o, Action: "test.done"}); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := broken(t, l); got != "" {
		t.Errorf("broken: %s", got)
	}
}
