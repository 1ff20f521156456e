package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/businesshours"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

func (f *fixture) setPolicy(p desk.SLAPolicy) desk.SLAPolicy {
	f.Helper()
	if p.OrganizationID == "" {
		p.OrganizationID = orgA
	}
	p, err := f.desk.SetSLAPolicy(f.Context(), p)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

func (f *fixture) setPriority(ticketID string, p desk.Priority) {
	f.Helper()
	if _, err := f.update(orgA, ticketID, desk.Update{Priority: &p}); err != nil {
		f.Fatal(err)
	}
}

// answer is a text of an agent.
func answer(to, body string) desk.InboundEvent {
	in := text(to, body)
	in.Event.Message.Outbound, in.Event.Message.To = true, []channel.Party{{Phone: to}}
	return in
}

const ana = "+4915112345678"

// story runs changes of one ticket through time.
type story struct {
	*fixture
	pass  func(time.Duration)
	begin time.Time // of the ticket
	id    string
	said  int
}

// customer and agent write; the customer's first text creates the ticket.
func (s *story) customer() {
	s.Helper()
	s.said++
	r := s.intake(text(ana, fmt.Sprint("text ", s.said)))
	if s.id == "" {
		s.id, s.begin = r.TicketID, s.ticket(r.TicketID).CreatedAt
	}
}

func (s *story) agent() {
	s.Helper()
	s.said++
	r := s.intake(answer(ana, fmt.Sprint("text ", s.said)))
	if s.id == "" {
		s.id, s.begin = r.TicketID, s.ticket(r.TicketID).CreatedAt
	}
}

func (s *story) status(to desk.Status)     { s.Helper(); s.setStatus(s.id, to) }
func (s *story) priority(to desk.Priority) { s.Helper(); s.setPriority(s.id, to) }

// promise sets a policy, in minutes.
func (s *story) promise(p desk.Priority, firstResponse, resolution int64) {
	s.Helper()
	s.setPolicy(desk.SLAPolicy{Priority: p, FirstResponseMinutes: firstResponse, ResolutionMinutes: resolution})
}

// told returns the SLA events so far: name, metric and due time since the ticket's
// creation; with at, also the time of emission.
func (s *story) told(at bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, e := range s.log {
		if e.Data.SLA != nil {
			line := fmt.Sprintf("%s %s due %v", strings.TrimPrefix(string(e.Name), "sla."), e.Data.SLA.Metric, e.Data.SLA.DueAt.Sub(s.begin))
			if at {
				line = fmt.Sprintf("%v: %s", e.At.Sub(s.begin), line)
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// shown returns the ticket's SLA.
func (s *story) shown() string {
	s.Helper()
	var lines []string
	for _, l := range s.ticket(s.id).SLA {
		line := new(strings.Builder)
		fmt.Fprintf(line, "%s %s of %d", l.Metric, l.State, l.TargetMinutes)
		if !l.DueAt.IsZero() {
			fmt.Fprintf(line, " due %v", l.DueAt.Sub(s.begin).Round(time.Minute))
		}
		for _, m := range []struct {
			name string
			at   time.Time
		}{{"warned", l.WarnedAt}, {"breached", l.BreachedAt}, {"met", l.MetAt}} {
			if !m.at.IsZero() {
				fmt.Fprintf(line, " %s %v", m.name, m.at.Sub(s.begin).Round(time.Minute))
			}
		}
		lines = append(lines, line.String())
	}
	return strings.Join(lines, "\n")
}

// stories are the transitions of the clocks. All start at midnight on a Saturday,
// without a policy.
var stories = []struct {
	name  string
	run   func(s *story)
	told  string
	shown string
	jobs  int // remaining jobs of the clocks
}{
	{"left alone", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 480)
		s.customer()
		s.pass(10 * time.Hour)
	}, `48m0s: warning first_response due 1h0m0s
		1h0m0s: breached first_response due 1h0m0s
		6h24m0s: warning resolution due 8h0m0s
		8h0m0s: breached resolution due 8h0m0s`,
		`first_response breached of 60 due 1h0m0s warned 48m0s breached 1h0m0s
		resolution breached of 480 due 8h0m0s warned 6h24m0s breached 8h0m0s`, 0},
	{"both in time", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 480)
		s.customer()
		s.pass(30 * time.Minute)
		s.agent()
		s.pass(time.Hour)
		s.status(desk.StatusResolved)
		s.pass(9 * time.Hour)
	}, "", `first_response met of 60 due 1h0m0s met 30m0s
		resolution met of 480 due 8h0m0s met 1h30m0s`, 0},
	{"running", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 480)
		s.customer()
		s.pass(50 * time.Minute)
	}, "48m0s: warning first_response due 1h0m0s", `first_response running of 60 due 1h0m0s warned 48m0s
		resolution running of 480 due 8h0m0s`, 2},
	{"first response only", func(s *story) {
		s.promise(desk.PriorityNormal, 1, 0)
		s.customer()
		s.pass(time.Hour)
	}, "48s: warning first_response due 1m0s\n1m0s: breached first_response due 1m0s", "first_response breached of 1 due 1m0s warned 1m0s breached 1m0s", 0},
	{"late is still breached", func(s *story) {
		s.promise(desk.PriorityNormal, 10, 20)
		s.customer()
		s.pass(time.Hour)
		s.agent()
		s.status(desk.StatusClosed)
		s.pass(time.Hour)
	}, `8m0s: warning first_response due 10m0s
		10m0s: breached first_response due 10m0s
		16m0s: warning resolution due 20m0s
		20m0s: breached resolution due 20m0s`,
		`first_response breached of 10 due 10m0s warned 8m0s breached 10m0s met 1h0m0s
		resolution breached of 20 due 20m0s warned 16m0s breached 20m0s met 1h0m0s`, 0},
	{"pending stops the resolution", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 120)
		s.customer()
		s.pass(20 * time.Minute)
		s.status(desk.StatusPending)
		s.pass(3 * time.Hour)
		s.status(desk.StatusOnHold)
		s.pass(3 * time.Hour)
		s.status(desk.StatusOpen)
		s.pass(3 * time.Hour)
	}, `48m0s: warning first_response due 1h0m0s
		1h0m0s: breached first_response due 1h0m0s
		7h36m0s: warning resolution due 8h0m0s
		8h0m0s: breached resolution due 8h0m0s`,
		`first_response breached of 60 due 1h0m0s warned 48m0s breached 1h0m0s
		resolution breached of 120 due 8h0m0s warned 7h36m0s breached 8h0m0s`, 0},
	{"paused", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 120)
		s.customer()
		s.pass(100 * time.Minute)
		s.status(desk.StatusPending)
		s.pass(30 * time.Hour)
	}, "1h36m0s: warning resolution due 2h0m0s", "resolution paused of 120 warned 1h36m0s", 0},
	{"warned once, though paused after it", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(90 * time.Minute)
		s.status(desk.StatusOnHold)
		s.pass(time.Hour)
		s.status(desk.StatusOpen)
		s.pass(time.Hour)
	}, "1h20m0s: warning resolution due 1h40m0s\n2h40m0s: breached resolution due 2h40m0s",
		"resolution breached of 100 due 2h40m0s warned 1h20m0s breached 2h40m0s", 0},
	{"the customer answers what is pending", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(10 * time.Minute)
		s.status(desk.StatusPending)
		s.pass(time.Hour)
		s.customer()
		s.pass(time.Minute)
	}, "", "resolution running of 100 due 2h40m0s", 1},
	{"resolved time does not count", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusResolved)
		s.pass(10 * time.Hour)
		s.customer()
		s.pass(time.Minute)
	}, "", "resolution running of 100 due 11h40m0s", 1},
	{"reopened after the breach", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(2 * time.Hour)
		s.status(desk.StatusResolved)
		s.pass(time.Hour)
		s.customer()
		s.pass(10 * time.Hour)
	}, "1h20m0s: warning resolution due 1h40m0s\n1h40m0s: breached resolution due 1h40m0s",
		"resolution breached of 100 due 1h40m0s warned 1h20m0s breached 1h40m0s", 0},
	{"resolved, closed, reopened", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(10 * time.Minute)
		s.status(desk.StatusResolved)
		s.pass(8 * 24 * time.Hour) // closed by then
		s.customer()
		s.pass(10 * time.Minute)
		s.status(desk.StatusClosed)
		s.pass(time.Hour)
	}, "", "resolution met of 100 due 193h40m0s met 192h20m0s", 0},
	{"reopened to wait for the customer", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusResolved)
		s.status(desk.StatusPending)
		s.pass(time.Hour)
	}, "", "resolution paused of 100", 0},
	{"resolved without a response", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 0)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusResolved)
		s.pass(5 * time.Hour)
	}, "", "first_response paused of 60", 0},
	{"resolved without a response, and reopened", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 0)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusResolved)
		s.pass(5 * time.Hour)
		s.customer()
		s.pass(20 * time.Minute)
	}, "5h48m0s: warning first_response due 6h0m0s", "first_response running of 60 due 6h0m0s warned 5h48m0s", 1},
	{"a note is no response", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 0)
		s.customer()
		if _, err := s.note(orgA, s.id, grace, desk.Draft{Text: "hm"}); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Minute)
	}, "", "first_response running of 60 due 1h0m0s", 1},
	{"an agent began it", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 120)
		s.agent()
		s.customer()
		s.pass(time.Minute)
	}, "", "resolution running of 120 due 2h0m0s", 1},
	{"an agent began it before there was a promise", func(s *story) {
		s.promise(desk.PriorityUrgent, 60, 120)
		s.agent()
		s.pass(time.Minute)
		s.priority(desk.PriorityUrgent)
		s.pass(time.Minute)
	}, "", "resolution running of 120 due 2h1m0s", 1},
	{"nothing promised", func(s *story) {
		s.customer()
		s.pass(time.Hour)
		s.promise(desk.PriorityNormal, 60, 120)
		s.status(desk.StatusPending)
		s.customer()
		s.agent()
		s.pass(5 * time.Hour)
	}, "", "", 0},
	{"nothing promised for this priority", func(s *story) {
		s.promise(desk.PriorityHigh, 60, 120)
		s.customer()
		s.pass(5 * time.Hour)
	}, "", "", 0},
	{"a policy that is replaced or deleted holds for what runs", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 120)
		s.customer()
		s.promise(desk.PriorityNormal, 5, 6)
		s.pass(50 * time.Minute)
		s.status(desk.StatusPending)
		if err := s.desk.DeleteSLAPolicy(s.Context(), orgA, desk.PriorityNormal); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Hour)
		s.status(desk.StatusOpen)
		s.pass(time.Minute)
	}, "48m0s: warning first_response due 1h0m0s\n1h0m0s: breached first_response due 1h0m0s",
		"first_response breached of 60 due 1h0m0s warned 48m0s breached 1h0m0s\nresolution running of 120 due 3h0m0s", 1},
	{"more urgent", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 600)
		s.promise(desk.PriorityUrgent, 40, 120)
		s.customer()
		s.pass(30 * time.Minute)
		s.priority(desk.PriorityUrgent)
		s.pass(5 * time.Minute)
	}, "32m0s: warning first_response due 40m0s", "first_response running of 40 due 40m0s warned 32m0s\nresolution running of 120 due 2h0m0s", 2},
	{"more urgent, and late at once", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 600)
		s.promise(desk.PriorityUrgent, 0, 20)
		s.customer()
		s.pass(30 * time.Minute)
		s.priority(desk.PriorityUrgent)
		s.pass(5 * time.Minute)
	}, "30m0s: warning resolution due 30m0s\n30m0s: breached resolution due 30m0s", "resolution breached of 20 due 30m0s warned 30m0s breached 30m0s", 0},
	{"less urgent, after the warning", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.promise(desk.PriorityLow, 0, 200)
		s.customer()
		s.pass(90 * time.Minute)
		s.priority(desk.PriorityLow)
		s.pass(2 * time.Hour)
	}, "1h20m0s: warning resolution due 1h40m0s\n3h20m0s: breached resolution due 3h20m0s",
		"resolution breached of 200 due 3h20m0s warned 1h20m0s breached 3h20m0s", 0},
	{"nothing promised for the new priority, and back", func(s *story) {
		s.promise(desk.PriorityNormal, 60, 100)
		s.customer()
		s.pass(30 * time.Minute)
		s.priority(desk.PriorityLow)
		s.pass(10 * time.Hour)
		if got := s.shown(); got != "" {
			s.Errorf("shown without a promise: %s", got)
		}
		s.priority(desk.PriorityNormal)
		s.pass(time.Minute)
	}, "", "first_response running of 60 due 11h0m0s\nresolution running of 100 due 11h40m0s", 2},
	{"promised with the new priority", func(s *story) {
		s.promise(desk.PriorityHigh, 60, 100)
		s.customer()
		s.pass(30 * time.Minute)
		s.priority(desk.PriorityHigh)
		s.pass(time.Minute)
	}, "", "first_response running of 60 due 1h30m0s\nresolution running of 100 due 2h10m0s", 2},
	{"another priority while it is pending", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.promise(desk.PriorityHigh, 0, 60)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusPending)
		s.pass(time.Hour)
		s.priority(desk.PriorityHigh)
		s.pass(time.Hour)
		s.status(desk.StatusOpen)
		s.pass(time.Minute)
	}, "", "resolution running of 60 due 3h0m0s", 1},
	{"another priority while it is resolved", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.promise(desk.PriorityHigh, 0, 60)
		s.customer()
		s.pass(30 * time.Minute)
		s.status(desk.StatusResolved)
		s.priority(desk.PriorityHigh)
		s.pass(time.Hour)
		s.customer()
		s.pass(time.Minute)
	}, "", "resolution running of 60 due 2h0m0s", 1},
	{"priority and status at once", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.promise(desk.PriorityHigh, 0, 60)
		s.customer()
		s.pass(30 * time.Minute)
		if _, err := s.update(orgA, s.id, desk.Update{Priority: new(desk.PriorityHigh), Status: new(desk.StatusOnHold)}); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Hour)
	}, "", "resolution paused of 60", 0},
	{"a breach stays one whatever the priority", func(s *story) {
		s.promise(desk.PriorityNormal, 0, 100)
		s.promise(desk.PriorityLow, 0, 1000)
		s.customer()
		s.pass(2 * time.Hour)
		s.priority(desk.PriorityLow)
		s.pass(20 * time.Hour)
	}, "1h20m0s: warning resolution due 1h40m0s\n1h40m0s: breached resolution due 1h40m0s",
		"resolution breached of 100 due 1h40m0s warned 1h20m0s breached 1h40m0s", 0},
}

// compare compares lines without indentation.
func compare(t *testing.T, what, got, want string) {
	t.Helper()
	if want = strings.ReplaceAll(want, "\n\t\t", "\n"); got != want {
		t.Errorf("%s\n got\n%s\nwant\n%s", what, got, want)
	}
}

func (f *fixture) timers() int {
	f.Helper()
	var n int
	if err := f.db.QueryRow(f.Context(), "SELECT count(*) FROM jobs WHERE kind = 'sla'").Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

func TestSLA(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fixtureOn(t, dbtest.NewSQLite(t))
				if err := f.queue.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer f.queue.Stop(context.Background())
				s := &story{fixture: f, pass: func(d time.Duration) {
					time.Sleep(d)
					synctest.Wait()
				}}
				c.run(s)
				compare(t, "told", s.told(true), c.told)
				compare(t, "shown", s.shown(), c.shown)
				if got := s.timers(); got != c.jobs {
					t.Errorf("%d timers left, want %d", got, c.jobs)
				}
				if stored := s.count("events WHERE name LIKE 'sla.%'"); stored != len(strings.Split(c.told, "\n")) && (c.told != "" || stored != 0) {
					t.Errorf("%d events are stored", stored)
				}
			})
		})
	}
}

// The same on PostgreSQL, in real time: time passes by aging all stored rows. Times
// of emission are not compared.
func TestSLAOnTheWall(t *testing.T) {
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip("bubbles tell about SQLite")
	}
	t.Parallel()
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if err := f.queue.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer f.queue.Stop(context.Background())
			s := &story{fixture: f}
			s.pass = s.age
			c.run(s)
			var told []string
			for line := range strings.SplitSeq(strings.ReplaceAll(c.told, "\n\t\t", "\n"), "\n") {
				_, line, _ = strings.Cut(line, ": ")
				told = append(told, line)
			}
			// A breach due at once, after a late change of priority, is due at a real time.
			got := strings.Split(s.told(false), "\n")
			for i, line := range got {
				what, due, _ := strings.Cut(line, " due ")
				if d, err := time.ParseDuration(due); err == nil {
					got[i] = fmt.Sprintf("%s due %v", what, d.Round(time.Minute))
				}
			}
			compare(t, "told", strings.Join(got, "\n"), strings.Join(told, "\n"))
			if got := s.timers(); got != c.jobs {
				t.Errorf("%d timers left, want %d", got, c.jobs)
			}
		})
	}
}

// age ages all rows by d, in steps, and waits after each for due jobs, so that
// their effects precede the next step.
func (s *story) age(d time.Duration) {
	s.Helper()
	heard := func() bool { // committed events
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.log) == s.count("events")
	}
	s.waitForTimers(heard)
	for d > 0 {
		var next *int64
		if err := s.db.QueryRow(s.Context(), "SELECT min(run_at) FROM jobs WHERE state = 1").Scan(&next); err != nil {
			s.Fatal(err)
		}
		step := d
		if next != nil {
			step = min(d, max(time.Until(time.UnixMicro(*next)), time.Microsecond))
		}
		s.mu.Lock()
		for i := range s.log {
			if sla := s.log[i].Data.SLA; sla != nil {
				s.log[i].Data.SLA = &event.SLA{Metric: sla.Metric, DueAt: sla.DueAt.Add(-step)}
			}
		}
		s.mu.Unlock()
		s.begin = s.begin.Add(-step)
		s.older(step)
		d -= step
		s.waitForTimers(heard)
	}
}

// older ages all rows in one transaction.
func (f *fixture) older(d time.Duration) {
	f.Helper()
	us := d.Microseconds()
	ctx := f.Context()
	err := f.db.Write(ctx, func(tx *db.Tx) error {
		type row struct{ id, sla string }
		rows, err := db.All(ctx, tx, func(r db.Row) (x row, err error) {
			err = r.Scan(&x.id, db.IntoText(&x.sla))
			return x, err
		}, "SELECT id, sla FROM tickets")
		if err != nil {
			return err
		}
		for _, r := range rows {
			var clocks []map[string]any
			if r.sla != "" {
				if err := json.Unmarshal([]byte(r.sla), &clocks); err != nil {
					return err
				}
			}
			for _, c := range clocks {
				for _, name := range []string{"since", "warn", "due", "warned", "breached", "met", "job_at"} {
					if at, ok := c[name].(float64); ok {
						c[name] = int64(at) - us
					}
				}
			}
			var stored any
			if clocks != nil {
				stored = db.JSON(clocks)
			}
			if _, err := tx.Exec(ctx, `UPDATE tickets SET sla = $2, created_at = created_at - $3, resolved_at = resolved_at - $3,
				first_responded_at = first_responded_at - $3 WHERE id = $1`, r.id, stored, us); err != nil {
				return err
			}
		}
		type job struct {
			id, kind, lane string
			payload        []byte
			at             int64
		}
		jobs, err := db.All(ctx, tx, func(r db.Row) (j job, err error) {
			err = r.Scan(&j.id, &j.kind, &j.lane, &j.payload, &j.at)
			return j, err
		}, "SELECT id, kind, lane, payload, run_at FROM jobs WHERE state = 1")
		if err != nil {
			return err
		}
		// Enqueued again, so that the queue knows their times.
		for _, j := range jobs {
			if err := f.queue.DeleteTx(ctx, tx, j.id); err != nil {
				return err
			}
			payload := j.payload
			var closing map[string]any
			if err := json.Unmarshal(payload, &closing); err != nil {
				return err
			}
			if at, ok := closing["resolved_at"].(float64); ok {
				closing["resolved_at"] = int64(at) - us
				if payload, err = json.Marshal(closing); err != nil {
					return err
				}
			}
			if err := f.queue.EnqueueTx(ctx, tx, queue.New{ID: j.id, Kind: j.kind, Lane: j.lane, Payload: payload, RunAt: time.UnixMicro(j.at - us)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
}

// waitForTimers waits until no timer is due and also holds.
func (f *fixture) waitForTimers(also ...func() bool) {
	f.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		if f.count(fmt.Sprintf("jobs WHERE state <> 1 OR run_at <= %d", time.Now().UnixMicro())) == 0 &&
			!slices.ContainsFunc(also, func(holds func() bool) bool { return !holds() }) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatal("timers are due and nothing happens")
		}
	}
}

// The clocks run in business hours only: 2000 began on a Saturday.
func TestSLAInBusinessHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		f.setPolicy(desk.SLAPolicy{
			Priority: desk.PriorityNormal, FirstResponseMinutes: 60, ResolutionMinutes: 600,
			Hours: &businesshours.Hours{TimeZone: "Europe/Berlin", Weekly: week(t, "mon-fri 09:00-17:00"), Holidays: []string{"2000-01-06"}},
		})
		s := &story{fixture: f}
		until := func(day, hour, minute int) {
			time.Sleep(time.Until(time.Date(2000, 1, day, hour-1, minute, 0, 0, time.UTC))) // Berlin's clock
			synctest.Wait()
		}
		s.customer()
		until(3, 9, 30)
		s.agent()
		until(3, 14, 0) // 5 h used
		s.status(desk.StatusPending)
		until(4, 16, 0)
		s.customer() // 1 h today, 4 h the day after
		until(5, 16, 0)
		s.status(desk.StatusOnHold)
		s.status(desk.StatusOpen)
		until(8, 0, 0)
		var told []string
		for _, e := range f.log {
			if e.Data.SLA != nil {
				told = append(told, fmt.Sprintf("%s %s %s due %s", e.At.Format("02T15:04"), e.Name, e.Data.SLA.Metric, e.Data.SLA.DueAt.Format("02T15:04")))
			}
		}
		want := []string{"05T10:00 sla.warning resolution due 05T12:00", "05T12:00 sla.breached resolution due 05T12:00"}
		if !slices.Equal(told, want) {
			t.Errorf("told\n got %q\nwant %q", told, want)
		}
		if sla := f.ticket(s.id).SLA[0]; sla.State != desk.SLAMet || !sla.DueAt.Equal(time.Date(2000, 1, 3, 9, 0, 0, 0, time.UTC)) {
			t.Errorf("first response: %+v", sla)
		}
	})
}

// The process was down when the warning and the breach were due.
func TestSLAComesDueWhileNothingRuns(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(s *story) // before the timers run
	}{
		{"nothing happened since", func(*story) {}},
		{"the agent was quicker than the timers", func(s *story) { s.agent(); s.status(desk.StatusClosed) }},
		{"pending", func(s *story) { s.status(desk.StatusPending) }},
		{"another priority", func(s *story) { s.priority(desk.PriorityLow) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fixtureOn(t, dbtest.NewSQLite(t))
				s := &story{fixture: f}
				s.promise(desk.PriorityNormal, 60, 60)
				s.customer()
				time.Sleep(5 * time.Hour)
				c.then(s)
				if err := f.queue.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer f.queue.Stop(context.Background())
				time.Sleep(time.Hour)
				synctest.Wait()
				compare(t, "told", s.told(true), `5h0m0s: warning first_response due 1h0m0s
		5h0m0s: warning resolution due 1h0m0s
		5h0m0s: breached first_response due 1h0m0s
		5h0m0s: breached resolution due 1h0m0s`)
				for _, e := range s.log {
					if e.Data.SLA != nil && e.Data.Ticket.Status != "open" {
						t.Errorf("%s shows the ticket %s, want it as it was", e.Name, e.Data.Ticket.Status)
					}
				}
				if n := s.timers(); n != 0 {
					t.Errorf("%d timers left", n)
				}
			})
		})
	}
}

// A response in time meets the target even if its event arrives after the due time.
func TestSLAResponseInTimeHeardOfLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t)) // whose timers do not run
		s := &story{fixture: f}
		s.promise(desk.PriorityNormal, 60, 0)
		s.customer()
		time.Sleep(50 * time.Minute)
		in := answer(ana, "at once")
		in.ReceivedAt = time.Now()
		time.Sleep(time.Hour)
		s.intake(in)
		compare(t, "told", s.told(true), "1h50m0s: warning first_response due 1h0m0s")
		compare(t, "shown", s.shown(), "first_response met of 60 due 1h0m0s warned 1h50m0s met 50m0s")
	})
}

func TestSLADeletedTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		s := &story{fixture: f}
		s.promise(desk.PriorityNormal, 60, 120)
		s.customer()
		time.Sleep(50 * time.Minute)
		if n := s.timers(); n != 2 {
			t.Fatalf("%d timers, want 2", n)
		}
		s.delete(s.id)
		if n := s.timers(); n != 0 {
			t.Errorf("%d timers left", n)
		}
		compare(t, "told", s.told(true), "")
	})
}

// A failed timer has emitted nothing; the next attempt emits once.
func TestSLATimerThatFails(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(ctx context.Context, tx *db.Tx) error
		told string
	}{
		{"refused", func(context.Context, *db.Tx) error { return errors.New("no room") }, "48m1s: warning first_response due 1h0m0s"},
		{"crashed", func(context.Context, *db.Tx) error { panic("crash") }, "48m1s: warning first_response due 1h0m0s"},
		{"taken over", func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE jobs SET lease = 'another' WHERE state = 2")
			return err
		}, "1h48m0s: warning first_response due 1h0m0s\n1h48m0s: breached first_response due 1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fixtureOn(t, dbtest.NewSQLite(t))
				failed := false
				f.events.BeforeCommit(func(ctx context.Context, tx *db.Tx, events []event.Event) error {
					if events[0].Name == event.SLAWarning && !failed {
						failed = true
						return c.fail(ctx, tx)
					}
					return nil
				})
				if err := f.queue.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer f.queue.Stop(context.Background())
				s := &story{fixture: f}
				s.promise(desk.PriorityNormal, 60, 0)
				s.customer()
				time.Sleep(48 * time.Minute)
				synctest.Wait()
				if n := f.count("events WHERE name LIKE 'sla.%'"); !failed || n != 0 {
					t.Fatalf("failed %v, %d events, want none", failed, n)
				}
				if strings.Contains(c.told, "breached") {
					time.Sleep(2 * time.Hour) // a lease, and the next look for ended ones
				} else {
					time.Sleep(2 * time.Second)
				}
				synctest.Wait()
				got := s.told(true)
				if c.name == "taken over" {
					// The queue checks for expired leases at a random time.
					got = s.told(false)
					c.told = "warning first_response due 1h0m0s\nbreached first_response due 1h0m0s"
				}
				compare(t, "told", got, c.told)
			})
		})
	}
}

// Two processes share the database; each timer is one event.
func TestSLATwoProcesses(t *testing.T) {
	const tickets = 50
	one := newFixture(t)
	two := fixtureOn(t, one.db)
	one.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 10})
	for i := range tickets {
		one.intake(text(fmt.Sprintf("+49151123%05d", i), "hello"))
	}
	one.older(9 * time.Minute)
	for _, f := range []*fixture{one, two} {
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
	}
	one.waitForTimers()
	if n := one.count("events WHERE name = 'sla.warning'"); n != tickets {
		t.Errorf("%d warnings, want %d", n, tickets)
	}
	one.older(time.Minute)
	one.waitForTimers()
	if n := one.count("events WHERE name LIKE 'sla.%'"); n != 2*tickets {
		t.Errorf("%d events, want %d", n, 2*tickets)
	}
	if n := one.count("jobs"); n != 0 {
		t.Errorf("%d jobs left", n)
	}
}

// Two processes run one timer at the same moment, because the owner of its lease
// was presumed dead. SQLite has one writer; see "taken over" above.
func TestSLATimerRunsTwice(t *testing.T) {
	one := newFixture(t)
	if !one.db.Postgres() {
		t.Skip("takes two transactions at once")
	}
	two := fixtureOn(t, one.db)
	one.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 10})
	one.intake(text(ana, "hello"))
	one.emitted()
	told, goOn := make(chan struct{}), make(chan struct{})
	one.events.BeforeCommit(func(context.Context, *db.Tx, []event.Event) error {
		close(told)
		<-goOn
		return nil
	})
	one.older(20 * time.Minute)
	if err := one.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer one.queue.Stop(context.Background())
	<-told // and not committed
	if err := one.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := two.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer two.queue.Stop(context.Background())
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for one.count("jobs WHERE lease IS NOT NULL") == 0 {
		<-tick.C
	}
	close(goOn)
	one.waitForTimers()
	for _, name := range []event.Name{event.SLAWarning, event.SLABreached} {
		if n := one.count(fmt.Sprintf("events WHERE name = '%s'", name)); n != 1 {
			t.Errorf("%d events %s, want 1", n, name)
		}
	}
	if got := one.emitted(); got != "" {
		t.Errorf("the process that lost the timer told %s", got)
	}
}

func TestSLAManyAtOnce(t *testing.T) {
	const tickets = 1000
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 1, ResolutionMinutes: 525600})
		for i := range tickets {
			f.intake(text(fmt.Sprintf("+49151123%05d", i), "hello"))
		}
		begin := time.Now()
		f.emitted()
		time.Sleep(time.Hour)
		synctest.Wait()
		seen := make(map[string]int)
		for _, e := range f.log {
			seen[fmt.Sprint(e.Name, " after ", e.At.Sub(begin))]++
		}
		if len(seen) != 2 || seen["sla.warning after 48s"] != tickets || seen["sla.breached after 1m0s"] != tickets {
			t.Errorf("got %v, want %d of each, on the second", seen, tickets)
		}
		if n := f.timers(); n != tickets {
			t.Errorf("%d timers, want those %d of a year", n, tickets)
		}
	})
}

// Every list and read of tickets shows the clocks.
func TestSLAIsShown(t *testing.T) {
	f := newFixture(t)
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 60})
	r := f.intake(text(ana, "hello"))
	list, _, err := f.desk.FindTickets(t.Context(), f.db, orgA, desk.TicketQuery{})
	if err != nil {
		t.Fatal(err)
	}
	numbered, err := f.desk.TicketByNumber(t.Context(), f.db, orgA, 1)
	if err != nil {
		t.Fatal(err)
	}
	updated, err := f.update(orgA, r.TicketID, desk.Update{Priority: new(desk.PriorityHigh)})
	if err != nil {
		t.Fatal(err)
	}
	for name, ticket := range map[string]desk.Ticket{"list": list[0], "by number": numbered} {
		got, err := json.Marshal(ticket.SLA)
		want := fmt.Sprintf(`[{"metric":"first_response","state":"running","due_at":%q,"target_minutes":60}]`,
			ticket.CreatedAt.Add(time.Hour).Format(time.RFC3339Nano))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
	if got, err := json.Marshal(updated.SLA); err != nil || string(got) != "[]" {
		t.Errorf("without a promise: got %s, want []", got)
	}
}

func TestSLAPolicies(t *testing.T) {
	f := newFixture(t)
	office := &businesshours.Hours{
		TimeZone: "Europe/Berlin", Weekly: businesshours.Week{"mon": {{From: "13:00", To: "17:00"}, {From: "09:00", To: "12:00"}}, "tue": {}},
		Holidays: []string{"2026-12-26", "2026-12-25", "2026-12-26"},
	}
	list := func(org string) string {
		t.Helper()
		policies, err := f.desk.SLAPolicies(t.Context(), org)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, p := range policies {
			line := fmt.Sprint(p.Priority, " ", p.FirstResponseMinutes, " ", p.ResolutionMinutes)
			if p.Hours != nil {
				line += fmt.Sprint(" ", p.Hours.TimeZone, " ", p.Hours.Weekly, " ", p.Hours.Holidays)
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	}
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityUrgent, FirstResponseMinutes: 5})
	first := f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, FirstResponseMinutes: 30, ResolutionMinutes: 480, Hours: office})
	f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityLow, ResolutionMinutes: 525600})
	f.setPolicy(desk.SLAPolicy{OrganizationID: orgB, Priority: desk.PriorityLow, ResolutionMinutes: 1})
	compare(t, "list", list(orgA), `low 0 525600
		normal 30 480 Europe/Berlin mon 09:00-12:00 13:00-17:00 [2026-12-25 2026-12-26]
		urgent 5 0`)
	compare(t, "other list", list(orgB), "low 0 1")

	again := f.setPolicy(desk.SLAPolicy{Priority: desk.PriorityNormal, ResolutionMinutes: 60})
	if !again.CreatedAt.Equal(first.CreatedAt) || !again.UpdatedAt.After(first.UpdatedAt) {
		t.Errorf("set again: made %v, changed %v; first made %v", again.CreatedAt, again.UpdatedAt, first.CreatedAt)
	}
	if err := f.desk.DeleteSLAPolicy(t.Context(), orgA, desk.PriorityLow); err != nil {
		t.Fatal(err)
	}
	compare(t, "changed list", list(orgA), "normal 0 60\nurgent 5 0")
	compare(t, "other list", list(orgB), "low 0 1")
	if err := f.desk.DeleteSLAPolicy(t.Context(), orgA, desk.PriorityLow); problem.Of(err) != problem.NotFound {
		t.Errorf("deleting what is not there: %v", err)
	}
	if err := f.desk.DeleteSLAPolicy(t.Context(), orgA, "huge"); problem.Of(err) != problem.Invalid {
		t.Errorf("deleting what cannot be: %v", err)
	}

	for _, c := range []struct {
		policy desk.SLAPolicy
		want   string
	}{
		{desk.SLAPolicy{Priority: desk.PriorityLow}, "firstResponseMinutes or resolutionMinutes must be given"},
		{desk.SLAPolicy{Priority: "", FirstResponseMinutes: 1}, "priority must be one of low, normal, high, urgent"},
		{desk.SLAPolicy{Priority: desk.PriorityLow, FirstResponseMinutes: -1}, "firstResponseMinutes must be from 1 to 525600, a year"},
		{desk.SLAPolicy{Priority: desk.PriorityLow, ResolutionMinutes: 525601}, "resolutionMinutes must be from 1 to 525600, a year"},
		{desk.SLAPolicy{Priority: desk.PriorityLow, ResolutionMinutes: 1, Hours: &businesshours.Hours{TimeZone: "UTC"}}, "businessHours.weekly must have hours on at least one day"},
		{
			desk.SLAPolicy{Priority: desk.PriorityLow, FirstResponseMinutes: 520, ResolutionMinutes: 521, Hours: &businesshours.Hours{TimeZone: "UTC", Weekly: week(t, "mon 00:00-00:01")}},
			"resolutionMinutes must be at most 520 minutes, which are 520 weeks of these business hours",
		},
	} {
		c.policy.OrganizationID = orgA
		if _, err := f.desk.SetSLAPolicy(t.Context(), c.policy); err == nil || err.Error() != "invalid: "+c.want {
			t.Errorf("got %v\nwant invalid: %s", err, c.want)
		}
	}
}

// Two concurrent changes of a policy: one of them is in force.
func TestSLAPolicyIsSetOnceAtATime(t *testing.T) {
	f := newFixture(t)
	errs := make(chan error)
	for i := range 20 {
		go func() {
			_, err := f.desk.SetSLAPolicy(context.Background(), desk.SLAPolicy{OrganizationID: orgA, Priority: desk.PriorityLow, ResolutionMinutes: int64(i + 1)})
			errs <- err
		}()
	}
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := f.count("sla_policies WHERE replaced_at IS NULL"); n != 1 {
		t.Errorf("%d are in force, want 1", n)
	}
}

// A policy with an unknown zone keeps no message out.
func TestSLAZoneIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fixtureOn(t, dbtest.NewSQLite(t))
		f.setPolicy(desk.SLAPolicy{
			Priority: desk.PriorityNormal, ResolutionMinutes: 60, Hours: &businesshours.Hours{TimeZone: "Asia/Tokyo", Weekly: week(t, "mon 09:00-17:00")},
		})
		if err := f.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE sla_policies SET hours = replace(hours, 'Tokyo', 'Atlantis')")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		id := f.intake(text(ana, "hello")).TicketID // on Saturday, 1 January 2000
		if due := f.ticket(id).SLA[0].DueAt; !due.Equal(time.Date(2000, 1, 3, 10, 0, 0, 0, time.UTC)) {
			t.Errorf("due %v, want 3 January at 10:00 UTC", due)
		}
		f.setStatus(id, desk.StatusPending)
	})
}

// week parses a [businesshours.Week].
func week(t testing.TB, text string) businesshours.Week {
	t.Helper()
	w, err := businesshours.ParseWeek(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
