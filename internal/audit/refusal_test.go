package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// refusing runs fn on a log in a synctest bubble, and returns the entries of o1 and of
// the deployment.
func refusing(t *testing.T, fn func(l *audit.Log)) (organization, deployment []audit.Entry, logged string) {
	t.Helper()
	dbtest.SQLiteURL(t) // skips the test on other engines, outside of the bubble too
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var out strings.Builder
		logger := slog.New(slog.NewTextHandler(writer(func(p []byte) { mu.Lock(); out.Write(p); mu.Unlock() }), nil))
		l := audit.Open(audit.Config{DB: dbtest.NewSQLite(t), Box: seal.New(seal.NewKey()), Ledger: "helpdesk", Logger: logger})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		fn(l)
		stop()
		running.Wait()
		for into, id := range map[*[]audit.Entry]string{&organization: "o1", &deployment: ""} {
			page, err := audit.List(t.Context(), []*audit.Log{l}, id, audit.Query{Outcome: audit.Refused, Limit: audit.MaxPage})
			if err != nil {
				t.Fatal(err)
			}
			*into = page.Entries
		}
		mu.Lock()
		logged = out.String()
		mu.Unlock()
	})
	return organization, deployment, logged
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func from(t *testing.T, address string) context.Context {
	return audit.WithSource(t.Context(), audit.Source{
		Actor: audit.Actor{Type: audit.Anonymous}, Address: netip.MustParseAddr(address), RequestID: "r7", Surface: audit.RPC,
	})
}

var signIn = audit.Entry{OrganizationID: "o1", Action: "sign_in.refused", Target: audit.Target{Type: "user", ID: "u1"}}

// TestRefusalsAreCoalesced: a thousand refusals of one kind are an entry and a count,
// also from a whole /64.
func TestRefusalsAreCoalesced(t *testing.T) {
	got, _, logged := refusing(t, func(l *audit.Log) {
		for i := range 1000 {
			l.Refuse(from(t, fmt.Sprintf("2001:db8::%x", i)), signIn)
		}
		synctest.Wait()
		time.Sleep(audit.RefusalWindow + time.Minute)
		l.Refuse(from(t, "2001:db8::1"), signIn)
		synctest.Wait()
	})
	var counts []string
	total := 0
	for _, e := range got {
		n := 1
		if c, ok := e.Details["count"].(float64); ok {
			n = int(c)
		}
		total += n
		counts = append(counts, fmt.Sprint(n))
	}
	if len(got) != 3 || total != 1001 {
		t.Errorf("got entries of %s refusals, want 3 of 1001 together", strings.Join(counts, ", "))
	}
	if e := got[len(got)-1]; e.Outcome != audit.Refused || e.Source.IP() != "2001:db8::" || e.Target.ID != "u1" || e.Source.RequestID != "r7" {
		t.Errorf("the first is %+v", e)
	}
	if n := strings.Count(logged, "msg=security event=sign_in.refused address="); n != 3 {
		t.Errorf("%d security events, want 3:\n%s", n, logged)
	}
}

// TestAttackFillTheDisk refuses a hundred thousand different users from as many networks.
func TestAttackFillTheDisk(t *testing.T) {
	organization, deployment, _ := refusing(t, func(l *audit.Log) {
		for i := range 100_000 {
			e := signIn
			e.Target.ID = fmt.Sprint("u", i)
			if i%2 == 0 {
				e.OrganizationID = ""
			}
			if i > 50_000 {
				e.OrganizationID = fmt.Sprint("organization-", i)
			}
			l.Refuse(from(t, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), e)
		}
		synctest.Wait()
		time.Sleep(audit.RefusalWindow + time.Minute)
		synctest.Wait()
	})
	if n := len(organization) + len(deployment); n > 300 {
		t.Errorf("%d entries in two chains, want at most 300", n)
	}
	var merged float64
	for _, e := range deployment {
		if e.Action == audit.RefusalsMerged {
			if c, ok := e.Details["count"].(float64); ok {
				merged += c
			} else {
				merged++
			}
		}
	}
	if merged < 49_000 {
		t.Errorf("%g refusals counted together, want nearly all of the second half", merged)
	}
}
