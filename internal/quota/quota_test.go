package quota_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
)

const orgA, orgB = "org-a", "org-b"

// files is the query of the files of the fixture.
const files = "SELECT organization_id, size FROM attachments WHERE counted"

type fixture struct {
	testing.TB
	*quota.Service
	db    *db.DB
	queue *queue.Queue
	mails quotatest.Mailbox
	audit *audit.Log
	runs  chan struct{} // a value after each run of a job

	mu       sync.Mutex
	outcomes []string
}

func newFixture(t testing.TB, limits quota.Limits) *fixture {
	return fixtureOn(t, dbtest.New(t), limits)
}

func fixtureOn(t testing.TB, d *db.DB, limits quota.Limits, change ...func(*quota.Config)) *fixture {
	f := &fixture{TB: t, db: d, audit: audittest.Open(d), runs: make(chan struct{}, 100)}
	f.queue = queue.Open(d, queue.Config{Observe: func(string, string, time.Duration) { f.runs <- struct{}{} }})
	f.Service = quotatest.Open(d, f.queue, limits, append(change, func(c *quota.Config) {
		c.Admins, c.Mailer, c.Audit, c.Files, c.BaseURL = &f.mails, &f.mails, f.audit, []string{files}, "https://help.example.com"
		c.Observe = func(q quota.Quota, outcome string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.outcomes = append(f.outcomes, string(q)+" "+outcome)
		}
	})...)
	return f
}

// message counts a message.
func (f *fixture) message(org string, m quota.Mode) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error { return f.AddMessageTx(f.Context(), tx, org, m) })
}

// store stores a file, and deletes one if size is negative.
func (f *fixture) store(org string, size int64, m quota.Mode) error {
	return f.db.Write(f.Context(), func(tx *db.Tx) error {
		if size < 0 {
			if n, err := tx.Exec(f.Context(), "DELETE FROM attachments WHERE organization_id = $1 AND size = $2 AND counted", org, -size); err != nil || n != 1 {
				return errors.Join(fmt.Errorf("deleted %d files", n), err)
			}
			f.AddStorageTx(f.Context(), tx, org, size, m)
			return nil
		}
		counts, err := f.Counts(f.Context(), tx, org, quota.Storage)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(f.Context(), `INSERT INTO attachments (id, organization_id, ticket_id, message_id, name, content_type, inline, size, blob_key, created_at, counted)
			VALUES ($1, $2, '', '', '', '', FALSE, $3, 'x', 0, $4)`, queue.NewID(), org, size, counts); err != nil {
			return err
		}
		if counts {
			f.AddStorageTx(f.Context(), tx, org, size, m)
		}
		return nil
	})
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// wantRefused checks a refusal.
func wantRefused(t testing.TB, err error, kind problem.Kind, code string, details map[string]any, text string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != kind || p.Code != code || !reflect.DeepEqual(p.Details, details) || !strings.Contains(p.Message, text) {
		t.Errorf("got %v with code and details %+v, want %s %s %v: %s", err, p, kind, code, details, text)
	}
}

// atOnce calls fn n times at the same time and returns the number of nil results.
func atOnce(n int, fn func() error) (admitted int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			if fn() == nil {
				mu.Lock()
				admitted++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return admitted
}

// TestExact: of simultaneous transactions as many are admitted as the limit allows, and other
// organizations are not affected.
func TestExact(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 7, quota.Storage: 1000})
	if n := atOnce(40, func() error { return f.message(orgA, quota.Enforced) }); n != 7 {
		t.Errorf("admitted %d messages, want 7", n)
	}
	if n := atOnce(40, func() error { return f.store(orgA, 300, quota.Enforced) }); n != 3 {
		t.Errorf("admitted %d files, want 3", n)
	}
	if got, files := quotatest.Messages(t, f.db, orgA), quotatest.Storage(t, f.db, orgA); got != 7 || files != 900 {
		t.Errorf("counted %d messages and %d bytes, want 7 and 900", got, files)
	}
	f.must(f.store(orgA, 100, quota.Enforced)) // exactly the limit
	wantRefused(t, f.store(orgA, 1, quota.Enforced), problem.Precondition, quota.CodeExceeded,
		map[string]any{"quota": quota.Storage, "limit": int64(1000), "used": int64(1000)}, "limited to 1 kB of files, of which 1 kB are used")
	f.must(f.message(orgB, quota.Enforced))
	f.must(f.store(orgB, 1000, quota.Enforced))
	quotatest.WantSums(t, f.db, files)
}

// TestDaily: the refusal of a message says when the next day begins, and that day begins at zero.
func TestDaily(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 1})
	f.must(f.message(orgA, quota.Enforced))
	err := f.message(orgA, quota.Enforced)
	wantRefused(t, err, problem.RateLimited, quota.CodeDailyExceeded, map[string]any{"quota": quota.Messages, "limit": int64(1), "used": int64(1)}, "limited to 1 message a day")
	p, _ := errors.AsType[*problem.Error](err)
	if left := time.Until(quota.NextDay(time.Now())); p.RetryAfter <= 0 || (p.RetryAfter-left).Abs() > time.Minute {
		t.Errorf("retry after %s, want %s", p.RetryAfter, left)
	}
	if err := f.Check(t.Context(), orgA, 0, false); problem.Of(err) != problem.RateLimited {
		t.Errorf("the check before: got %v", err)
	}
	if err := f.Check(t.Context(), orgA, 0, true); err != nil {
		t.Errorf("a note: got %v", err)
	}
	shift := func(days int) {
		t.Helper()
		f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE quotas SET day = day + $1", days)
			return err
		}))
	}
	shift(-1)
	f.must(f.Check(t.Context(), orgA, 0, false))
	f.must(f.message(orgA, quota.Enforced))
	if n := quotatest.Messages(t, f.db, orgA); n != 1 {
		t.Errorf("the next day has %d messages", n)
	}
	// A transaction that began yesterday counts for the day that others have begun.
	shift(1)
	if err := f.message(orgA, quota.Enforced); problem.Of(err) != problem.RateLimited {
		t.Errorf("late: got %v", err)
	}
	f.must(f.message(orgA, quota.Counted))
	if n := quotatest.Messages(t, f.db, orgA); n != 2 {
		t.Errorf("late: counted %d messages, want 2", n)
	}
}

// TestCounted: what is only counted is never refused, however much it is.
func TestCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 2, quota.Storage: 0})
	for range 5 {
		f.must(f.message(orgA, quota.Counted))
		f.must(f.store(orgA, 50, quota.Counted))
	}
	if n := quotatest.Messages(t, f.db, orgA); n != 5 {
		t.Errorf("counted %d messages, want 5", n)
	}
	wantRefused(t, f.message(orgA, quota.Enforced), problem.RateLimited, quota.CodeDailyExceeded, map[string]any{"quota": quota.Messages, "limit": int64(2), "used": int64(5)}, "")
	// Giving back is never refused, nor is what needs no storage.
	f.must(f.store(orgA, 50, quota.Counted))
	f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
		f.AddStorageTx(t.Context(), tx, orgA, 0, quota.Enforced)
		return nil
	}))
	quotatest.WantSums(t, f.db, files)
}

var errAway = errors.New("the database is away")

// TestElsewhere: files in other databases are part of what is used, but not of the row.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var photos atomic.Int64
	f.Service = quotatest.Open(f.db, queue.Open(f.db, queue.Config{}), quota.Limits{quota.Storage: 1000}, func(c *quota.Config) {
		c.Elsewhere = func(_ context.Context, organizationID string, _ *db.DB) (int64, error) {
			if organizationID != orgA {
				return 0, nil
			}
			if photos.Load() < 0 {
				return 0, errAway
			}
			return photos.Load(), nil
		}
	})
	photos.Store(600)
	f.must(f.store(orgA, 300, quota.Enforced))
	f.must(f.Check(t.Context(), orgA, 100, true))
	used := map[string]any{"quota": quota.Storage, "limit": int64(1000), "used": int64(900)}
	wantRefused(t, f.Check(t.Context(), orgA, 101, true), problem.Precondition, quota.CodeExceeded, used, "of which 900 B are used; delete tickets with files or photos of tasks")
	wantRefused(t, f.store(orgA, 101, quota.Enforced), problem.Precondition, quota.CodeExceeded, used, "limited to 1 kB")
	f.must(f.store(orgB, 1000, quota.Enforced))
	list, err := f.Usage(t.Context(), orgA)
	if err != nil || list[0].Used != 900 {
		t.Errorf("used %+v, %v; want 900", list, err)
	}
	photos.Store(0) // all deleted
	f.must(f.Check(t.Context(), orgA, 700, true))
	f.must(f.store(orgA, 100, quota.Enforced))
	photos.Store(600) // and new ones
	wantRefused(t, f.store(orgA, 100, quota.Enforced), problem.Precondition, quota.CodeExceeded, map[string]any{"quota": quota.Storage, "limit": int64(1000), "used": int64(1000)}, "of which 1 kB are used")
	photos.Store(-1) // their database is away: files of customers are still received
	f.must(f.store(orgA, 100, quota.Counted))
	if err := f.store(orgA, 100, quota.Enforced); !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
	if row := quotatest.Storage(t, f.db, orgA); row != 500 {
		t.Errorf("the row has %d, want 500", row)
	}
}

// TestCheckElsewhere: files of another database are refused if all databases together exceed the limit when
// their transaction ends. Files that were stored and deleted before do not matter.
func TestCheckElsewhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                   string
		limit, raised          int64 // raised meanwhile by another process; 0: not
		before, meanwhile, end int64 // bytes in the other database without the new ones
		checked, stored        bool
	}{
		{"room", 350, 0, 100, 100, 100, true, true},
		{"exactly enough", 350, 0, 200, 200, 200, true, true},
		{"too little", 350, 0, 201, 201, 201, false, false},
		{"stored meanwhile", 350, 0, 200, 200, 201, true, false},
		{"stored during the check", 350, 0, 100, 200, 200, true, true},
		{"stored and deleted", 350, 0, 200, 300, 200, true, true},
		{"deleted and stored", 350, 0, 200, 100, 300, true, false},
		{"a raised limit", 350, 1000, 250, 250, 250, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			var photos atomic.Int64
			photos.Store(tt.before)
			asked := false
			f.Service = quotatest.Open(f.db, queue.Open(f.db, queue.Config{}), quota.Limits{quota.Storage: tt.limit}, func(c *quota.Config) {
				c.Elsewhere = func(_ context.Context, _ string, except *db.DB) (int64, error) {
					if except == nil {
						return photos.Load() + 20, nil
					}
					return 20, nil // of a third database
				}
			})
			f.must(f.store(orgA, 30, quota.Enforced)) // and the limits are cached
			if tt.raised != 0 {
				other := fixtureOn(t, f.db, quota.Limits{quota.Storage: tt.limit})
				f.must(other.SetLimits(t.Context(), orgA, audit.Target{Type: "organization", ID: orgA, Name: "A"}, map[quota.Quota]*int64{quota.Storage: &tt.raised}))
			}
			sum := func(context.Context, db.Querier, string) (int64, error) {
				n := photos.Load()
				if !asked {
					asked = true
					photos.Store(tt.meanwhile)
				}
				return n, nil
			}
			added, err := f.CheckElsewhere(t.Context(), f.db, orgA, 100, sum)
			if !tt.checked {
				used := map[string]any{"quota": quota.Storage, "limit": tt.limit, "used": tt.before + 50}
				wantRefused(t, err, problem.Precondition, quota.CodeExceeded, used, "delete tickets with files or photos of tasks")
				return
			}
			f.must(err)
			photos.Store(tt.end + 100)
			err = f.db.Write(t.Context(), func(tx *db.Tx) error { return added.DecideTx(t.Context(), tx) })
			if tt.stored {
				f.must(err)
			} else {
				used := map[string]any{"quota": quota.Storage, "limit": tt.limit, "used": tt.end + 50}
				wantRefused(t, err, problem.Precondition, quota.CodeExceeded, used, "delete tickets with files or photos of tasks")
			}
		})
	}
}

// TestOneRowPerTransaction: the changes of a transaction are added up, and nothing is written
// if they cancel out.
func TestOneRowPerTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 10, quota.Storage: 100})
	f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
		for _, n := range []int64{500, -450, 30} {
			f.AddStorageTx(t.Context(), tx, orgA, n, quota.Enforced)
		}
		f.AddStorageTx(t.Context(), tx, orgB, 7, quota.Enforced)
		f.AddStorageTx(t.Context(), tx, orgB, -7, quota.Enforced)
		return errors.Join(f.AddMessageTx(t.Context(), tx, orgA, quota.Enforced), f.AddMessageTx(t.Context(), tx, orgA, quota.Enforced))
	}))
	if messages, bytes := quotatest.Messages(t, f.db, orgA), quotatest.Storage(t, f.db, orgA); messages != 2 || bytes != 80 {
		t.Errorf("counted %d messages and %d bytes, want 2 and 80", messages, bytes)
	}
	var rows int
	if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM quotas").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v, want 1", rows, err)
	}
}

// TestUnlimited: without a limit nothing is written, also by a nil service.
func TestUnlimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: quota.Unlimited})
	none := &fixture{TB: t, db: f.db}
	for _, f := range []*fixture{f, none} {
		f.must(f.message(orgA, quota.Enforced))
		f.must(f.store(orgA, 1<<40, quota.Enforced))
		f.must(f.Check(t.Context(), orgA, 1<<40, false))
		f.must(f.CheckWebhooks(t.Context(), f.db, orgA, 1000))
	}
	var rows, counted int
	if err := f.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM quotas), (SELECT count(*) FROM attachments WHERE counted)").Scan(&rows, &counted); err != nil || rows+counted != 0 {
		t.Errorf("%d rows, %d counted files, %v, want none", rows, counted, err)
	}
}

// TestSetLimits: a limit of the organization replaces the plan's, is recorded, and is in force for
// refusals at once in other processes, too.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 1, quota.Webhooks: 2})
	other := fixtureOn(t, f.db, quota.Limits{quota.Messages: 1, quota.Webhooks: 2})
	f.must(f.message(orgA, quota.Enforced))
	target := audit.Target{Type: "organization", ID: orgA, Name: "A"}
	set := func(limits map[quota.Quota]*int64) {
		t.Helper()
		f.must(other.SetLimits(t.Context(), orgA, target, limits))
	}
	set(map[quota.Quota]*int64{quota.Messages: new(int64(3))})
	f.must(f.message(orgA, quota.Enforced))
	set(map[quota.Quota]*int64{quota.Storage: new(int64(5)), quota.Webhooks: new(quota.Unlimited)})
	set(map[quota.Quota]*int64{quota.Storage: new(int64(5))}) // no change
	f.must(f.CheckWebhooks(t.Context(), f.db, orgA, 50))
	wantRefused(t, f.CheckWebhooks(t.Context(), f.db, orgB, 3), problem.Precondition, quota.CodeExceeded,
		map[string]any{"quota": quota.Webhooks, "limit": int64(2), "used": int64(2)}, "limited to 2 webhooks")
	usage, err := f.Usage(t.Context(), orgA)
	if want := []quota.Usage{
		{Quota: quota.Storage, Limit: quota.Limit{Max: 5, Source: quota.ByOperator}},
		{Quota: quota.Messages, Limit: quota.Limit{Max: 3, Source: quota.ByOperator}, Used: 2},
		{Quota: quota.Webhooks, Limit: quota.Limit{Max: quota.Unlimited, Source: quota.ByOperator}},
	}; err != nil || !slices.Equal(usage, want) {
		t.Errorf("got usage %+v, %v, want %+v", usage, err, want)
	}
	set(map[quota.Quota]*int64{quota.Messages: nil, quota.Webhooks: nil})
	if usage, err = f.Usage(t.Context(), orgA); err != nil || usage[0].Max != 5 || usage[1].Limit != (quota.Limit{Max: 1, Source: quota.ByPlan}) || usage[2].Max != 2 || !usage[1].Reached() || usage[0].Reached() {
		t.Errorf("got usage %+v, %v", usage, err)
	}
	var changes []string
	for _, e := range audittest.List(t, f.audit, orgA, audit.Query{Action: quota.AuditUpdated}) {
		changes = append(changes, fmt.Sprint(e.Target.Name, " ", e.Changes))
	}
	want := []string{
		"A map[messages:{3 <nil>} webhooks:{-1 <nil>}]", "A map[storage:{<nil> 5} webhooks:{<nil> -1}]", "A map[messages:{<nil> 3}]",
	}
	if !slices.Equal(changes, want) {
		t.Errorf("the audit log has %q, want %q", changes, want)
	}
}

// startQueue runs jobs until the test ends. The function it returns waits for the runs of so many jobs, until
// which their mails may be on their way, and compares the mails since its last call.
func (f *fixture) startQueue() (wantMails func(what string, jobs int, want ...string)) {
	ctx := context.WithoutCancel(f.Context())
	f.must(f.queue.Start(ctx))
	f.Cleanup(func() { f.queue.Stop(ctx) })
	return func(what string, jobs int, want ...string) {
		f.Helper()
		for range jobs {
			select {
			case <-f.runs:
			case <-time.After(time.Minute):
				f.Fatalf("%s: fewer than %d jobs ran", what, jobs)
			}
		}
		var left int
		if err := f.db.QueryRow(ctx, "SELECT count(*) FROM jobs").Scan(&left); err != nil || left != 0 || len(f.runs) != 0 {
			f.Errorf("%s: %d jobs are left and %d more ran, %v, want none", what, left, len(f.runs), err)
		}
		if got := f.mails.Subjects(); !slices.Equal(got, want) {
			f.Errorf("%s: got mails %q, want %q", what, got, want)
		}
	}
}

// TestNotices: admins are mailed once at each share of a quota, and a quota that is used up is
// recorded.
func TestNotices(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Messages: 10, quota.Storage: 1000})
	want := f.startQueue()
	today := time.Now().UTC().Format("2 January 2006")
	for n := range 13 {
		f.must(f.message(orgA, quota.Counted))
		switch n {
		case 7:
			want("80 %", 1, "admin@org-a.example: 80% of the messages of "+today+" are used")
		case 9:
			want("all", 1, "admin@org-a.example: All messages of "+today+" are used")
		}
	}
	want("beyond", 0)
	f.must(f.store(orgA, 1200, quota.Counted))
	want("both shares at once", 1, "admin@org-a.example: Storage is full")
	f.must(f.store(orgA, -1200, quota.Counted))
	f.must(f.store(orgA, 900, quota.Counted))
	f.must(f.store(orgA, 100, quota.Counted))
	want("again within a day", 2)
	f.must(f.store(orgA, -100, quota.Counted))
	f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE quotas SET notified_at = $1", tx.Now.Add(-25*time.Hour).UnixMicro())
		return err
	}))
	f.must(f.store(orgA, 101, quota.Counted))
	want("a day later", 1, "admin@org-a.example: Storage is full")
	var reached []string
	for _, e := range audittest.List(t, f.audit, orgA, audit.Query{Action: quota.AuditReached}) {
		reached = append(reached, fmt.Sprint(e.Target.ID, e.Details, e.Source.Actor.Type))
	}
	if want := []string{"storagemap[limit:1000]system", "storagemap[limit:1000]system", "messagesmap[limit:10]system"}; !slices.Equal(reached, want) {
		t.Errorf("the audit log has %q, want %q", reached, want)
	}
	if got, want := fmt.Sprint(f.outcomes), "[messages reached storage reached storage reached storage reached]"; got != want {
		t.Errorf("observed %s, want %s", got, want)
	}
}

// TestNoticesElsewhere: files of another database that reach a share of the storage cause the same notices,
// also if the organization has no other files.
func TestNoticesElsewhere(t *testing.T) {
	t.Parallel()
	var photos int64
	sum := func(context.Context, db.Querier, string) (int64, error) { return photos, nil }
	f := fixtureOn(t, dbtest.New(t), quota.Limits{quota.Storage: 1000}, func(c *quota.Config) {
		c.Elsewhere = func(context.Context, string, *db.DB) (int64, error) { return 0, nil } // of a third database
	})
	want := f.startQueue()
	add := func(bytes int64) {
		t.Helper()
		files, err := f.CheckElsewhere(t.Context(), f.db, orgA, bytes, sum)
		f.must(err)
		f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
			photos += bytes
			return files.DecideTx(t.Context(), tx)
		}))
		files.Notify(t.Context())
	}
	add(799)
	want("below", 0)
	add(1)
	want("80 %", 1, "admin@org-a.example: 80% of your storage is used")
	add(100)
	want("beyond", 0)
	add(100)
	want("all", 1, "admin@org-a.example: Storage is full")
	photos -= 300
	add(100)
	want("80 % again within a day", 1)
}

// TestRecount repairs a sum.
func TestRecount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Storage: 1000})
	f.must(f.store(orgA, 10, quota.Enforced))
	f.must(f.store(orgA, 20, quota.Enforced))
	f.must(f.store(orgB, 40, quota.Enforced))
	f.must(f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE quotas SET storage = 31 WHERE organization_id = $1", orgA)
		return err
	}))
	rule := quota.Invariants(files)[0]
	var broken string
	if err := f.db.QueryRow(t.Context(), rule.Broken).Scan(&broken); err != nil || broken != orgA {
		t.Errorf("%s: broken by %q, %v, want %s", rule.Name, broken, err, orgA)
	}
	f.must(f.Recount(t.Context(), orgA, audit.Target{Type: "organization", ID: orgA}))
	quotatest.WantSums(t, f.db, files)
	if n := quotatest.Storage(t, f.db, orgA); n != 30 {
		t.Errorf("got %d bytes, want 30", n)
	}
	f.must(f.Recount(t.Context(), "org-c", audit.Target{}))
}

// TestRecountBesideWriters: a recount neither misses nor doubles what others store meanwhile.
func TestRecountBesideWriters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quota.Limits{quota.Storage: 1 << 40})
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for i := range 25 {
				if err := f.store(orgA, int64(1+n*25+i), quota.Enforced); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					if err := f.store(orgA, -int64(1+n*25+i), quota.Counted); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 10 {
		f.must(f.Recount(t.Context(), orgA, audit.Target{}))
	}
	writers.Wait()
	quotatest.WantSums(t, f.db, files)
}

func TestParsePlans(t *testing.T) {
	t.Parallel()
	got, err := quota.ParsePlans([]string{"messages=10000", " free.messages=500", "free.storage=1.5GB", "pro.webhooks=unlimited"}, "free", "pro")
	want := quota.Plans{
		"":     {quota.Messages: 10000},
		"free": {quota.Messages: 500, quota.Storage: 1_500_000_000},
		"pro":  {quota.Webhooks: quota.Unlimited},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"messages":                  `"messages" is not [PLAN.]QUOTA=LIMIT`,
		"tickets=5":                 `"tickets" is not one of storage, messages, webhooks`,
		"gold.messages=5":           `"gold" is not one of the plans free, pro`,
		".messages=5":               `"" is not one of the plans`,
		"free.messages=-1":          `free.messages: "-1" is not a number such as 500`,
		"messages=1.5":              "is not a number",
		"messages=":                 "is not a number",
		"storage=GB":                "is not a size such as 500MB",
		"storage=-1MB":              "is not a size",
		"storage=1e3MB":             "is not a size",
		"storage=1XB":               "is not a size",
		"storage=10000000000TB":     "is not a size",
		"messages=1,free.storage=5": "",
		"messages=1,messages=2":     "messages is there twice",
	} {
		if _, err := quota.ParsePlans(strings.Split(text, ","), "free", "pro"); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		quota quota.Quota
		text  string
		n     int64
		shown string
	}{
		{quota.Storage, "0", 0, "0 B"},
		{quota.Storage, "999", 999, "999 B"},
		{quota.Storage, "500MB", 500_000_000, "500 MB"},
		{quota.Storage, "1.5GB", 1_500_000_000, "1.5 GB"},
		{quota.Storage, "0.5kb", 500, "500 B"},
		{quota.Storage, "1999999B", 1_999_999, "1.9 MB"},
		{quota.Storage, "2TB", 2_000_000_000_000, "2 TB"},
		{quota.Storage, "5000TB", 5_000_000_000_000_000, "5000 TB"},
		{quota.Storage, "unlimited", quota.Unlimited, "unlimited"},
		{quota.Messages, "1", 1, "1 message"},
		{quota.Messages, "500", 500, "500 messages"},
		{quota.Webhooks, "0", 0, "0 webhooks"},
		{quota.Webhooks, "unlimited", quota.Unlimited, "unlimited"},
	} {
		n, err := tt.quota.ParseLimit(tt.text)
		if err != nil || n != tt.n || tt.quota.Amount(n) != tt.shown {
			t.Errorf("%s %s: got %d, %v, shown %q, want %d, %q", tt.quota, tt.text, n, err, tt.quota.Amount(n), tt.n, tt.shown)
		}
	}
}

// FuzzParsePlans: no text crashes the parser, and no limit is below zero.
func FuzzParsePlans(f *testing.F) {
	f.Add("free.storage=1.5GB,messages=500")
	f.Fuzz(func(t *testing.T, text string) {
		plans, err := quota.ParsePlans(strings.Split(text, ","), "free")
		if err != nil {
			return
		}
		for _, limits := range plans {
			for q, n := range limits {
				if n < quota.Unlimited {
					t.Errorf("%q: %s is %d", text, q, n)
				}
			}
		}
	})
}
