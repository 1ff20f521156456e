package queue

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"

	"github.com/jackc/pgx/v5"
)

func newTestRunner(w Worker) *runner {
	r := newRunner(nil, w)
	r.open = true
	return r
}

func TestPlan(t *testing.T) {
	type told struct {
		lane string
		n    int
	}
	for _, test := range []struct {
		name    string
		worker  Worker
		running map[string]int // by lane, before any announcement
		told    []told
		want    []laneRequest
		rest    []string // still listed
	}{
		{
			name: "one job", worker: Worker{PerLane: 4, Concurrency: 10},
			told: []told{{"a", 1}},
			want: []laneRequest{{lane: "a", want: 1, known: 1}},
		},
		{
			name: "more than the lane takes", worker: Worker{PerLane: 4, Concurrency: 10},
			told: []told{{"a", 1}, {"a", 6}},
			want: []laneRequest{{lane: "a", want: 4, known: 7}},
		},
		{
			name: "not counted", worker: Worker{PerLane: 4, Concurrency: 10},
			told: []told{{"a", 1}, {"a", unknownCount}},
			want: []laneRequest{{lane: "a", want: 4, known: 1, unsure: true}},
		},
		{
			name: "oldest first, as far as there is room", worker: Worker{PerLane: 2, Concurrency: 5},
			told: []told{{"c", 2}, {"a", 2}, {"b", 2}, {"d", 2}},
			want: []laneRequest{{lane: "c", want: 2, known: 2}, {lane: "a", want: 2, known: 2}, {lane: "b", want: 1, known: 2}},
			rest: []string{"d"},
		},
		{
			name: "a full lane is not asked", worker: Worker{PerLane: 2, Concurrency: 10},
			running: map[string]int{"full": 2, "half": 1},
			told:    []told{{"full", 5}, {"half", 5}, {"full", unknownCount}},
			want:    []laneRequest{{lane: "half", want: 1, known: 5}},
		},
		{
			name: "a full process asks nothing", worker: Worker{PerLane: 2, Concurrency: 2},
			running: map[string]int{"a": 1, "b": 1},
			told:    []told{{"a", 1}, {"c", 1}},
			rest:    []string{"a", "c"},
		},
		{
			name: "an ordered lane", worker: Worker{PerLane: 7, Ordered: true, Concurrency: 10},
			running: map[string]int{"a": 1},
			told:    []told{{"a", 3}, {"b", 3}},
			want:    []laneRequest{{lane: "b", want: 1, known: 3}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newTestRunner(test.worker)
			for lane, n := range test.running {
				r.lane(lane).running = n
				r.running += n
			}
			for _, told := range test.told {
				r.addReady("", told.lane, told.n)
			}
			if got := r.planClaim(); !slices.Equal(got, test.want) {
				t.Errorf("got asks %+v, want %+v", got, test.want)
			}
			if rest := r.list.tenant("").listed; !slices.Equal(rest, test.rest) {
				t.Errorf("got %q still listed, want %q", rest, test.rest)
			}
		})
	}
}

// A lane announced while a claim fills it is read again only when there is room, and keeps its
// jobs.
func TestPlanAfterFilling(t *testing.T) {
	r := newTestRunner(Worker{PerLane: 1, Concurrency: 10})
	r.addReady("", "a", 1)
	if got, want := r.planClaim(), []laneRequest{{lane: "a", want: 1, known: 1}}; !slices.Equal(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	r.addReady("", "a", 1) // while the claim is under way, which then gets the first
	r.lanes["a"].running, r.running = 1, 1
	if got := r.planClaim(); len(got) != 0 {
		t.Errorf("got %+v, want nothing asked of a full lane", got)
	}
	j := &Job{Lane: "a", cancel: func(error) {}}
	r.jobEnded(j)
	if got, want := r.planClaim(), []laneRequest{{lane: "a", want: 1, known: 1}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Tenants are served in turns, the one with the fewest running jobs first, and share the capacity.
func TestPlanByTenant(t *testing.T) {
	r := newTestRunner(Worker{PerLane: 100, Concurrency: 12})
	r.list.run("busy", 3)
	r.running = 3
	for i := range 1000 {
		r.addReady("busy", fmt.Sprint("busy ", i), 1)
	}
	r.addReady("long", "long lane", 1000)
	r.addReady("small", "small 1", 1)
	r.addReady("small", "small 2", 1)
	got := make(map[string]int)
	requests := r.planClaim()
	for _, a := range requests {
		got[strings.Fields(a.lane)[0]] += a.want
	}
	if want := map[string]int{"busy": 4, "long": 3, "small": 2}; !maps.Equal(got, want) {
		t.Errorf("got %v of nine places, want %v", got, want)
	}
	if first := []string{requests[0].lane, requests[1].lane}; slices.Contains(first, "busy 0") {
		t.Errorf("the first lanes are %q, want those of tenants without running jobs", first)
	}
}

// Tenants that other processes serve take few places from the tenants of this one.
func TestPlanWithAffinity(t *testing.T) {
	r := newTestRunner(Worker{Concurrency: 128, Affinity: true})
	for tenant := range 20 {
		for lane := range 100 {
			r.addReady(fmt.Sprint("elsewhere ", tenant), fmt.Sprintf("elsewhere %d/%d", tenant, lane), 1)
		}
	}
	for lane := range 2000 {
		r.addReady("own", fmt.Sprint("own/", lane), 1)
	}
	r.list.run("own", 1)
	r.running = 1
	places, probed := 0, make(map[string]bool)
	for range 10 {
		requests := r.planClaim()
		var jobs []*Job
		for i := range requests {
			a := &requests[i]
			if a.busy = a.tenant != "own"; a.busy {
				probed[a.tenant] = true
				continue
			}
			a.got = a.want
			r.list.run("own", 1)
			jobs = append(jobs, &Job{Lane: a.lane, tenant: "own", cancel: func(error) {}})
		}
		r.claims++
		r.noteClaim(requests, nil)
		for _, j := range jobs {
			r.jobEnded(j)
		}
		places += len(jobs)
	}
	if places < 800 || len(probed) != 20 {
		t.Errorf("ten claims asked for %d jobs of this process's tenant, and for those of %d others, want 800 and all 20", places, len(probed))
	}
}

// A claim locks no lanes of tenants that another process serves, and so is in no other one's way.
func TestAffinityLocks(t *testing.T) {
	engines(t, func(t *testing.T, d *db.DB) {
		if !d.Postgres() {
			t.Skip("SQLite has no locks of lanes")
		}
		exec(t, d, insertMany, 1, 1, leased, []byte("payload"), "leased ", "lane ")
		exec(t, d, "UPDATE jobs SET tenant = 'elsewhere', lease = 'other/1', lease_until = 1")
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			locked, err := db.All(t.Context(), tx, func(row db.Row) (request string, err error) {
				err = row.Scan(&request, new(int64), new(string))
				return request, err
			}, sqlTryOwnLanes, laneLockPrefix("k"), []string{"000001 a", "000001 b"}, []string{"elsewhere", "free"}, "own/%", 0, "k")
			if err != nil {
				return err
			}
			n, err := db.One(t.Context(), tx, func(row db.Row) (n int, err error) { err = row.Scan(&n); return n, err },
				"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
			if err != nil {
				return err
			}
			if !slices.Equal(locked, []string{"000001 b"}) || n != 2 {
				t.Errorf("got %q and %d locks, want the lane b, and locks of it and its tenant", locked, n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMiddle(t *testing.T) {
	for _, test := range []struct{ first, last string }{
		{"lane 0", "lane 9999"}, {"a", "b"}, {"01a20ac3-9ee7", "01a20ad3-0000"}, {"c/+1415", "c/+49"},
	} {
		differ := false
		for range 100 {
			start := middle(test.first, test.last)
			differ = differ || start != middle(test.first, test.last)
			if start <= test.first[:1] || start >= test.last {
				t.Errorf("between %q and %q: got %q", test.first, test.last, start)
			}
		}
		if !differ {
			t.Errorf("between %q and %q: got the same place each time", test.first, test.last)
		}
	}
	for _, test := range []struct{ first, last string }{{"", "b"}, {"a", "a"}, {"a", "ab"}, {"\u00e9", "\u00f6"}, {"b", ""}} {
		if start := middle(test.first, test.last); start != "" {
			t.Errorf("between %q and %q: got %q, want none", test.first, test.last, start)
		}
	}
}

// A walk that begins in the middle reads every lane.
func TestWalkWraps(t *testing.T) {
	const lanes, page = 100, 7
	for _, start := range []string{"", "00", "42", "42x", "99", "zz"} {
		var walk tenant
		walk.begin(start)
		seen := make(map[string]bool)
		for steps := 0; ; steps++ {
			var found []foundLane
			for i := range lanes {
				if lane := fmt.Sprintf("%02d", i); lane >= walk.cursor && len(found) < page {
					found = append(found, foundLane{lane: lane})
				}
			}
			for _, f := range found {
				seen[f.lane] = true
			}
			if walk.advance(found, len(found) == page) {
				break
			}
			if steps > lanes {
				t.Fatalf("from %q: no end", start)
			}
		}
		if len(seen) != lanes {
			t.Errorf("from %q: read %d lanes, want %d", start, len(seen), lanes)
		}
	}
}

// A tenant with very many lanes leaves room in the list for others.
func TestListKeepsRoom(t *testing.T) {
	r := newTestRunner(Worker{Concurrency: 10})
	for i := range 2 * maxListed {
		r.addReady("flood", fmt.Sprint("flood ", i), 1)
	}
	for i := range 2 * ownLanes {
		r.addReady("other", fmt.Sprint("other ", i), 1)
	}
	if n := len(r.list.tenants["other"].listed); n != ownLanes {
		t.Errorf("got %d lanes of the other tenant listed, want %d", n, ownLanes)
	}
}

func TestWakeKeepsToItself(t *testing.T) {
	r := newTestRunner(Worker{Concurrency: 2})
	for i, want := range []bool{true, true, false, false} {
		if got := r.addReady("", fmt.Sprint(i), 1); got != want {
			t.Errorf("lane %d: got seen to at once %v, want %v", i, got, want)
		}
	}
	r.open = false
	if r.addReady("", "later", 1) || r.wakeAt(time.Now()) {
		t.Error("a stopped runner said it would see to a job")
	}
	if r.lanes["later"] != nil {
		t.Error("a stopped runner keeps lanes")
	}
}

// The list of lanes is bounded; walks find the rest.
func TestListIsBounded(t *testing.T) {
	r := newTestRunner(Worker{Concurrency: 10})
	for i := range 10 * maxListed {
		r.addReady("", fmt.Sprint(i), 1)
	}
	if r.list.size != maxListed || len(r.lanes) != maxListed || !r.walkAgain {
		t.Errorf("got %d listed, %d known, walk %v; want %d, %d, true", r.list.size, len(r.lanes), r.walkAgain, maxListed, maxListed)
	}
}

// Full and held lanes and lanes behind a delayed job cost no claims, however long and however
// often they are announced. Afterwards no lane state remains.
func TestIdleCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		q := Open(d, Config{})
		release := make(chan struct{})
		run := func(context.Context, *Job) error { <-release; return nil }
		q.Handle(Worker{Kind: "k", PerLane: 2, Concurrency: 1000, Run: run})
		q.Handle(Worker{Kind: "ordered", Ordered: true, Run: run})
		enqueue := func(jobs ...New) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return q.EnqueueTx(t.Context(), tx, jobs...) }); err != nil {
				t.Fatal(err)
			}
		}
		const lanes = 30
		for lane := range lanes {
			for range 5 {
				enqueue(New{Kind: "k", Lane: fmt.Sprint("full ", lane)})
			}
			enqueue(New{Kind: "ordered", Lane: fmt.Sprint("behind ", lane), RunAt: time.Now().Add(24 * time.Hour)},
				New{Kind: "ordered", Lane: fmt.Sprint("behind ", lane)},
				New{Kind: "k", Lane: fmt.Sprint("held ", lane)})
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return q.HoldLaneTx(t.Context(), tx, "k", fmt.Sprint("held ", lane)) }); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		k, ordered := q.runners["k"], q.runners["ordered"]
		if k.running != 2*lanes {
			t.Fatalf("got %d running, want %d", k.running, 2*lanes)
		}
		before, beforeOrdered := k.claims, ordered.claims
		for range 20 { // some ten casts of the net
			for lane := range lanes {
				if lane%10 == 0 {
					enqueue(New{Kind: "k", Lane: fmt.Sprint("full ", lane)})
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if k.claims != before || ordered.claims != beforeOrdered {
			t.Errorf("got %d and %d claims for nothing, want none", k.claims-before, ordered.claims-beforeOrdered)
		}
		if len(k.lanes) != lanes || len(ordered.lanes) != 0 {
			t.Errorf("got %d and %d lanes known, want %d and 0", len(k.lanes), len(ordered.lanes), lanes)
		}

		close(release)
		synctest.Wait()
		if len(k.lanes) != 0 || k.list.size != 0 || len(k.list.tenants) != 0 || len(k.jobs) != 0 {
			t.Errorf("got %d lanes, %d listed, %d jobs remembered, want none", len(k.lanes), k.list.size, len(k.jobs))
		}
		q.Stop(t.Context())
		var left int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM jobs").Scan(&left); err != nil || left != 3*lanes {
			t.Errorf("got %d jobs left (%v), want the %d held and behind", left, err, 3*lanes)
		}
	})
}

// engines runs a test on each engine with plans to examine.
func engines(t *testing.T, run func(t *testing.T, d *db.DB)) {
	t.Run("sqlite", func(t *testing.T) { run(t, dbtest.NewSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		if os.Getenv(dbtest.Variable) == "" {
			t.Skip(dbtest.Variable + " is not set")
		}
		run(t, dbtest.New(t))
	})
}

func exec(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	ctx := db.LongRunning(t.Context(), "filling")
	if err := d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// insertMany inserts jobs of kind k in a state, spread over lanes.
const insertMany = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
	INSERT INTO jobs (id, kind, lane, state, payload, run_at, created_at, lease_until)
	SELECT $5 || (1000000000 + i), 'k', $6 || (i % $2), $3, $4, i, 0, 0 FROM n`

// Every statement that finds work uses an index; none sorts or scans a table.
func TestPlans(t *testing.T) {
	engines(t, func(t *testing.T, d *db.DB) {
		many := 100_000 // enough for PostgreSQL's planner to prefer indexes
		if !d.Postgres() {
			many = 5000
		}
		exec(t, d, insertMany, many, 1000, ready, []byte("payload"), "ready ", "lane ")
		exec(t, d, insertMany, many/5, 1000, scheduled, []byte("payload"), "scheduled ", "lane ")
		exec(t, d, insertMany, 200, 200, leased, []byte("payload"), "leased ", "lane ")
		exec(t, d, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
			INSERT INTO held_lanes (kind, lane) SELECT 'k', 'held ' || i FROM n`)
		exec(t, d, "ANALYZE")
		lanes, requests := make([]string, claimLanes), make([]string, claimLanes)
		for i := range lanes {
			lanes[i] = fmt.Sprint("lane ", i)
			requests[i] = (&laneRequest{lane: lanes[i], want: 3}).text()
		}
		for _, test := range []struct {
			name, query string
			args        []any
			sqlite      []string // indexes used
			postgres    []string
		}{
			{"due", sqlDue, []any{"k"}, []string{"jobs_due"}, []string{"jobs_due"}},
			{"expired", sqlExpired, []any{"k", 0}, []string{"jobs_lane"}, []string{"jobs_lane"}},
			{"promote", sqlPromote, []any{"k", 100, promoteJobs}, []string{"PRIMARY KEY", "jobs_due"}, []string{"jobs_due", "jobs_pkey"}},
			{"take back", sqlReclaim, []any{"k", 0, promoteJobs}, []string{"PRIMARY KEY", "jobs_lane"}, []string{"jobs_lane", "jobs_pkey"}},
			{"survey", sqlSurvey(false), []any{"k", "", surveyLanes, surveyTenants, 2}, []string{"PRIMARY KEY", "jobs_lane", "jobs_tenant"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_tenant"}},
			{"last lane", sqlLastLane, []any{"k", "t"}, []string{"jobs_tenant"}, []string{"jobs_tenant"}},
			{"walk", sqlWalk(false), []any{"k", "t", "lane 3", walkLanes, 2}, []string{"PRIMARY KEY", "jobs_lane", "jobs_tenant"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_tenant"}},
			{"walk ordered", sqlWalk(true), []any{"k", "t", "lane 3", walkLanes, 1}, []string{"PRIMARY KEY", "jobs_lane", "jobs_tenant"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_tenant"}},
			{"lease", sqlLease(false, d.Postgres()), []any{"k", requests, 4, "lease", 0, 1}, []string{"PRIMARY KEY", "jobs_lane"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_pkey"}},
			{"lease ordered", sqlLease(true, d.Postgres()), []any{"k", requests, 1, "lease", 0, 1}, []string{"PRIMARY KEY", "jobs_lane"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_pkey"}},
			{"ready of a lane", sqlWaiting(ready), []any{"k", "lane 3", MoveMax}, []string{"jobs_lane"}, []string{"jobs_lane"}},
			{"scheduled of a lane", sqlWaiting(scheduled), []any{"k", "lane 3", MoveMax}, []string{"jobs_lane"}, []string{"jobs_lane"}},
			{"move", sqlMove, []any{lanes, "to"}, []string{"PRIMARY KEY"}, []string{"jobs_pkey"}},
			{"heads", sqlHeads(true, d.Postgres()), []any{"k", requests, 1}, []string{"PRIMARY KEY", "jobs_lane"}, []string{"held_lanes_pkey", "jobs_lane", "jobs_pkey"}},
			{"extend", sqlExtend, []any{lanes, 0, "instance/%"}, []string{"PRIMARY KEY"}, []string{"jobs_pkey"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				plan, want := explain(t, d, test.query, test.args), test.sqlite
				if d.Postgres() {
					want = test.postgres
				}
				used := make(map[string]bool)
				for _, m := range regexp.MustCompile(`jobs_\w+|held_lanes_\w+|PRIMARY KEY`).FindAllString(plan, -1) {
					used[m] = true
				}
				delete(used, "jobs_1") // aliases of PostgreSQL's
				delete(used, "jobs_2")
				if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
					t.Errorf("got indexes %q, want %q:\n%s", got, want, plan)
				}
				for _, bad := range []string{"Seq Scan on jobs", "Bitmap", "SCAN jobs", "SCAN j ", "SCAN r ", "(kind,state)>", "SEARCH j USING INDEX jobs_lane (kind=? AND state=?)", "AUTOMATIC"} {
					if strings.Contains(plan, bad) {
						t.Errorf("the plan has %q:\n%s", bad, plan)
					}
				}
			})
		}
	})
}

// A lane moves a bounded number of jobs at a time, oldest first; moved jobs run at once or when
// due.
func TestMoveLane(t *testing.T) {
	engines(t, func(t *testing.T, d *db.DB) {
		exec(t, d, insertMany, 2*MoveMax+1, 1, ready, []byte("payload"), "ready ", "lane ")
		exec(t, d, insertMany, 3, 1, scheduled, []byte("payload"), "scheduled ", "lane ")
		exec(t, d, insertMany, 2, 1, leased, []byte("payload"), "leased ", "lane ")
		exec(t, d, insertMany, 2, 1, ready, []byte("payload"), "other ", "other ")
		q := Open(d, Config{})
		scan := func(row db.Row) (id string, err error) { err = row.Scan(&id); return id, err }
		for step, want := range []int{MoveMax + 3, 2*MoveMax + 3, 2*MoveMax + 4} {
			var more bool
			if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				more, err = q.MoveLaneTx(t.Context(), tx, "k", "to", "lane 0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			moved, err := db.All(t.Context(), d, scan, "SELECT id FROM jobs WHERE kind = 'to' ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			if len(moved) != want || more != (step < 2) {
				t.Errorf("step %d: moved %d, with more: %t; want %d, %t", step+1, len(moved), more, want, step < 2)
			}
			if last := fmt.Sprint("ready ", 1000000000+want-3); moved[len(moved)-4] != last {
				t.Errorf("step %d: the newest that was moved is %s, want %s", step+1, moved[len(moved)-4], last)
			}
		}
		left, err := db.All(t.Context(), d, scan, "SELECT id FROM jobs WHERE kind = 'k' ORDER BY id")
		if err != nil || len(left) != 4 {
			t.Errorf("got %q, %v left; want what was leased and what is of the other lane", left, err)
		}
	})
}

func explain(t *testing.T, d *db.DB, query string, args []any) string {
	t.Helper()
	explain, dest := "EXPLAIN QUERY PLAN ", make([]any, 4)
	if d.Postgres() {
		explain, dest = "EXPLAIN ", make([]any, 1)
	}
	var line string
	for i := range dest {
		dest[i] = new(any)
	}
	dest[len(dest)-1] = &line
	lines, err := db.All(t.Context(), d, func(row db.Row) (string, error) {
		err := row.Scan(dest...)
		return line, err
	}, explain+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// With a million jobs waiting in one lane, the first job of a new lane is found at once, and
// claims cost the same as without them.
func TestMillionWaiting(t *testing.T) {
	engines(t, func(t *testing.T, d *db.DB) {
		q := Open(d, Config{Poll: time.Hour})
		r := newRunner(q, Worker{Kind: "k", PerLane: 8})
		measure := func(lane string) time.Duration {
			t.Helper()
			best := time.Hour
			for i := range 21 {
				// One lane each, so that each claim finds one job.
				name := fmt.Sprint(lane, i)
				exec(t, d, insertMany, 1, 1, ready, []byte{}, "new "+name, name)
				begin := time.Now()
				jobs, err := r.leaseJobs([]laneRequest{{lane: name + "0", want: 8}, {lane: "big 0", want: 1}}, "lease/"+name)
				if err != nil || len(jobs) == 0 {
					t.Fatalf("got %d jobs, %v", len(jobs), err)
				}
				best = min(best, time.Since(begin))
			}
			return best
		}
		exec(t, d, insertMany, 100, 1, ready, []byte("payload"), "few ", "big ")
		without := measure("before ")
		exec(t, d, "DELETE FROM jobs")
		jobs := 1_000_000
		if testing.Short() {
			jobs = 100_000
		}
		if raceDetector {
			jobs = 20_000
		}
		exec(t, d, insertMany, jobs, 1, ready, []byte("payload"), "many ", "big ")
		with := measure("after ") // with the plans from before
		if d.Postgres() {
			exec(t, d, "ANALYZE jobs")
			with = max(with, measure("analyzed "))
		}
		t.Logf("a claim takes %v without and %v with %d jobs waiting", without, with, jobs)
		if limit := 3*without + 2*time.Millisecond; with > limit {
			t.Errorf("a claim takes %v with %d jobs waiting, want at most %v", with, jobs, limit)
		}

		// The same through the whole queue, while the lane with a million jobs is at its limit.
		exec(t, d, "UPDATE jobs SET state = 0 WHERE state = 2")
		started := make(chan time.Time, 1)
		var once sync.Once
		busy := make(chan struct{})
		q.Handle(Worker{Kind: "k", PerLane: 8, Concurrency: 64, Run: func(ctx context.Context, j *Job) error {
			if j.Lane == "the new one" {
				started <- time.Now()
				return nil
			}
			once.Do(func() { close(busy) })
			<-ctx.Done()
			return ctx.Err()
		}})
		if err := q.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-busy
		slowest := time.Hour
		for range 5 { // the best of a few: the machine may do something else
			var committed time.Time
			if err := d.Write(t.Context(), func(tx *db.Tx) error {
				tx.AfterCommit(func() { committed = time.Now() })
				return q.EnqueueTx(t.Context(), tx, New{Kind: "k", Lane: "the new one"})
			}); err != nil {
				t.Fatal(err)
			}
			slowest = min(slowest, (<-started).Sub(committed))
		}
		t.Logf("a new lane's first job started after %v", slowest)
		if slowest > 50*time.Millisecond {
			t.Errorf("a new lane's first job started after %v, want within 50 ms", slowest)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		q.Stop(ended)
	})
}

// PostgreSQL caches plans made for the empty table; they must not scan a later backlog.
func TestPlansKept(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip(dbtest.Variable + " is not set")
	}
	rawURL := dbtest.URL(t)
	d, err := db.Open(t.Context(), rawURL, db.Options{MaxConns: 1}) // a single connection, which caches all plans
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	admin, err := pgx.Connect(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	q := Open(d, Config{})
	r := newRunner(q, Worker{Kind: "k", Affinity: true})
	n := 0
	// best returns the best time of five rounds of each step.
	best := func() (times [4]time.Duration) {
		for i := range times {
			times[i] = time.Hour
		}
		for range 5 {
			n++
			lane := fmt.Sprint("lane ", n)
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return q.EnqueueTx(t.Context(), tx, New{Kind: "k", Lane: lane, Tenant: "t"}) }); err != nil {
				t.Fatal(err)
			}
			var jobs []*Job
			for i, step := range []func() error{
				func() (err error) { _, _, err = r.promoteDue(true); return err },
				func() (err error) { _, err = r.readLanes(r.sqlWalk, "", "lane", walkLanes); return err },
				func() (err error) {
					jobs, err = r.leaseJobs([]laneRequest{{lane: lane, want: 1, tenant: "t"}}, lane)
					return err
				},
				func() error {
					return d.Write(t.Context(), func(tx *db.Tx) error { return jobs[0].FinishTx(t.Context(), tx) })
				},
			} {
				begin := time.Now()
				if err := step(); err != nil {
					t.Fatal(err)
				}
				times[i] = min(times[i], time.Since(begin))
			}
		}
		return times
	}
	for range 4 {
		if _, err := admin.Exec(t.Context(), "VACUUM ANALYZE jobs"); err != nil {
			t.Fatal(err)
		}
		best()
	}
	empty := best()
	exec(t, d, insertMany, 300_000, 1, ready, []byte("payload"), "many ", "big ")
	full := best()
	t.Logf("due, lanes, claim and finish take %v with an empty table, %v with a full one", empty, full)
	for i, step := range []string{"due", "lanes", "claim", "finish"} {
		if limit := 3*empty[i] + 5*time.Millisecond; full[i] > limit {
			t.Errorf("%s: got %v with a full table, want at most %v", step, full[i], limit)
		}
	}
}
