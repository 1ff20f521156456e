package desk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// model is a naive implementation of the placement rules.
type model struct {
	tickets  []*modelTicket          // by number - 1; nil once deleted
	threads  map[string]*modelTicket // of texts, by connection and number
	mails    map[string]*modelTicket // by Message-ID
	messages map[string]*modelTicket // texts, by connection, number and id
}

type modelTicket struct {
	id       string
	number   int64
	status   desk.Status
	customer string
	members  map[string]bool // participants beside the customer
	messages int
	deleted  bool
	next     []*modelTicket // continuations after closing
}

// end follows closed tickets to their continuation.
func (m *modelTicket) end() *modelTicket {
	for m.status == desk.StatusClosed {
		i := len(m.next) - 1
		for i >= 0 && m.next[i].deleted {
			i--
		}
		if i < 0 {
			break
		}
		m = m.next[i]
	}
	return m
}

// For any sequence of events: every message is in the ticket of the model, once,
// and numbers have no gaps.
func TestIntakeIsLikeTheModel(t *testing.T) {
	f := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		org, connections := uuid.NewString(), []string{uuid.NewString(), uuid.NewString()}
		m := model{threads: map[string]*modelTicket{}, mails: map[string]*modelTicket{}, messages: map[string]*modelTicket{}}
		var ids []string // of sent mails

		intake := func(in desk.InboundEvent) desk.Result {
			in.OrganizationID = org
			r, err := f.tryIntake(in)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		start := func(r desk.Result, customer string) *modelTicket {
			if r.Outcome != desk.TicketCreated || r.TicketNumber != int64(len(m.tickets)+1) {
				t.Fatalf("got %+v, want ticket %d", r, len(m.tickets)+1)
			}
			ticket := &modelTicket{
				id: r.TicketID, number: r.TicketNumber, status: desk.StatusOpen,
				customer: customer, members: map[string]bool{}, messages: 1,
			}
			m.tickets = append(m.tickets, ticket)
			return ticket
		}
		appendTo := func(r desk.Result, ticket *modelTicket) {
			if r.Outcome != desk.Appended || r.TicketID != ticket.id || r.Reopened != (ticket.status != desk.StatusOpen) {
				t.Fatalf("got %+v, want it in ticket %d, which is %s", r, ticket.number, ticket.status)
			}
			ticket.messages++
			ticket.status = desk.StatusOpen
		}
		people := rapid.SampledFrom([]string{"ana@c.example", "bob@c.example", "eve@x.example"})

		t.Repeat(map[string]func(*rapid.T){
			"text": func(t *rapid.T) {
				connection := rapid.SampledFrom(connections).Draw(t, "connection")
				number := rapid.SampledFrom([]string{"+4915112345678", "+4915187654321"}).Draw(t, "number")
				in := text(number, fmt.Sprint("text ", rapid.IntRange(1, 9).Draw(t, "text")))
				in.ConnectionID = connection
				thread := connection + number
				r := intake(in)
				ticket := m.threads[thread]
				switch message := thread + in.Event.Message.ExternalID; {
				case ticket == nil:
					m.threads[thread] = start(r, number)
					m.messages[message] = m.threads[thread]
				case m.messages[message] == ticket:
					if r.Outcome != desk.Duplicate || r.TicketID != ticket.id {
						t.Fatalf("got %+v, want a duplicate", r)
					}
				default:
					appendTo(r, ticket)
					m.messages[message] = ticket
				}
			},
			"mail": func(t *rapid.T) {
				from := people.Draw(t, "from")
				id := fmt.Sprintf("%d@c.example", len(ids))
				in := mail(from, id)
				if rapid.Bool().Draw(t, "cc") {
					in.Event.Message.Cc = []channel.Party{{Email: people.Draw(t, "to")}}
				}
				details := in.Event.Message.Mail
				var to *modelTicket
				if len(ids) > 0 && rapid.Bool().Draw(t, "answers") {
					answered := rapid.SampledFrom(ids).Draw(t, "to")
					if rapid.Bool().Draw(t, "by references") {
						details.References = []string{answered, "unknown@c.example"}
					} else {
						details.InReplyTo = []string{answered}
					}
					to = m.mails[answered]
				}
				if rapid.Bool().Draw(t, "tag") {
					n := rapid.IntRange(1, 5).Draw(t, "number")
					details.TicketTag = int64(n)
					if to == nil && n <= len(m.tickets) && !m.tickets[n-1].deleted &&
						(m.tickets[n-1].customer == from || m.tickets[n-1].members[from]) {
						to = m.tickets[n-1]
					}
				}
				r := intake(in)
				if to != nil {
					to = to.end()
				}
				switch {
				case to == nil:
					to = start(r, from)
				case to.status == desk.StatusClosed:
					closed := to
					to = start(r, from)
					closed.next = append(closed.next, to)
				default:
					appendTo(r, to)
					if from != to.customer {
						to.members[from] = true
					}
				}
				for _, p := range in.Event.Message.Cc {
					if p.Email != to.customer && p.Email != from {
						to.members[p.Email] = true
					}
				}
				m.mails[id] = to
				ids = append(ids, id)
				if again := intake(in); again.Outcome != desk.Duplicate || again.MessageID != r.MessageID {
					t.Fatalf("again: %+v", again)
				}
			},
			"status": func(t *rapid.T) {
				ticket := m.draw(t)
				ticket.status = rapid.SampledFrom(desk.Statuses[:]).Draw(t, "status")
				if _, err := f.update(org, ticket.id, desk.Update{Status: &ticket.status}); err != nil {
					t.Fatal(err)
				}
			},
			"delete": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("not this time")
				}
				ticket := m.draw(t)
				if err := f.tryDelete(org, ticket.id); err != nil {
					t.Fatal(err)
				}
				ticket.deleted = true
				for _, index := range []map[string]*modelTicket{m.threads, m.mails, m.messages} {
					for key, of := range index {
						if of == ticket {
							delete(index, key)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				for _, want := range m.tickets {
					got, err := f.desk.TicketByNumber(f.Context(), f.db, org, want.number)
					if want.deleted {
						if err == nil {
							t.Fatalf("ticket %d is still there", want.number)
						}
						continue
					}
					if err != nil || got.ID != want.id || got.Status != want.status {
						t.Fatalf("ticket %d: %+v, %v; want %s", want.number, got, err, want.status)
					}
					messages, err := f.desk.Messages(f.Context(), f.db, org, want.id)
					if err != nil || len(messages) != want.messages {
						t.Fatalf("ticket %d: %d messages, want %d (%v)", want.number, len(messages), want.messages, err)
					}
				}
			},
		})
	})
	f.wantInvariants(t)
}

func (m *model) draw(t *rapid.T) *modelTicket {
	var alive []*modelTicket
	for _, ticket := range m.tickets {
		if !ticket.deleted {
			alive = append(alive, ticket)
		}
	}
	if len(alive) == 0 {
		t.Skip("no tickets yet")
	}
	return rapid.SampledFrom(alive).Draw(t, "ticket")
}

// slaModel counts the minutes of a ticket's clocks one by one.
type slaModel struct {
	status   desk.Status
	priority desk.Priority
	answered bool
	minute   int
	clocks   map[desk.Metric]*modelClock
	told     []string
}

type modelClock struct {
	target, used     int
	warned, breached bool
	met              bool
}

// promises are targets in minutes by priority; low has none.
var promises = map[desk.Priority]map[desk.Metric]int{
	desk.PriorityNormal: {desk.FirstResponse: 60, desk.Resolution: 300},
	desk.PriorityHigh:   {desk.FirstResponse: 30, desk.Resolution: 100},
	desk.PriorityUrgent: {desk.Resolution: 50},
}

func (m *slaModel) over(metric desk.Metric) bool {
	if metric == desk.FirstResponse {
		return m.answered
	}
	return m.status == desk.StatusResolved || m.status == desk.StatusClosed
}

func (m *slaModel) runs(metric desk.Metric) bool {
	c := m.clocks[metric]
	if c.target == 0 || c.breached || m.over(metric) {
		return false
	}
	return m.status == desk.StatusOpen || metric == desk.FirstResponse && m.status != desk.StatusResolved && m.status != desk.StatusClosed
}

// advance emits due events.
func (m *slaModel) advance() {
	for metric, c := range m.clocks {
		c.met = m.over(metric)
		if !m.runs(metric) {
			continue
		}
		if !c.warned && 5*c.used >= 4*c.target {
			c.warned = true
			m.told = append(m.told, fmt.Sprintf("%05d warning %s", m.minute, metric))
		}
		if c.used >= c.target {
			c.breached = true
			m.told = append(m.told, fmt.Sprintf("%05d breached %s", m.minute, metric))
		}
	}
}

func (m *slaModel) pass(minutes int) {
	for range minutes {
		m.minute++
		for metric, c := range m.clocks {
			if m.runs(metric) {
				c.used++
			}
		}
		m.advance()
	}
}

func (m *slaModel) setPriority(p desk.Priority) {
	if p == m.priority {
		return
	}
	m.priority = p
	for metric, c := range m.clocks {
		if !c.breached && (metric == desk.Resolution || !c.met) {
			c.target = promises[p][metric]
		}
	}
}

// slaStep is one change of a ticket.
type slaStep struct {
	what     string
	minutes  int
	status   desk.Status
	priority desk.Priority
}

// For any sequence of changes, the events and their times equal those of the model.
func TestSLAIsLikeTheModel(t *testing.T) {
	tests := t
	step := rapid.Custom(func(t *rapid.T) slaStep {
		return slaStep{
			what:     rapid.SampledFrom([]string{"pass", "pass", "status", "priority", "both", "customer", "agent"}).Draw(t, "what"),
			minutes:  rapid.IntRange(1, 90).Draw(t, "minutes"),
			status:   rapid.SampledFrom(desk.Statuses[:]).Draw(t, "status"),
			priority: rapid.SampledFrom(desk.Priorities[:]).Draw(t, "priority"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		stories := rapid.SliceOfN(rapid.SliceOfN(step, 1, 12), 1, 4).Draw(t, "stories")
		var wrong error
		// A bubble of its own, so that rapid uses real time.
		synctest.Test(tests, func(t *testing.T) {
			f := fixtureOn(t, dbtest.NewSQLite(t))
			if err := f.queue.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer f.queue.Stop(context.Background())
			for p, minutes := range promises {
				f.setPolicy(desk.SLAPolicy{
					Priority: p, FirstResponseMinutes: int64(minutes[desk.FirstResponse]), ResolutionMinutes: int64(minutes[desk.Resolution]),
				})
			}
			for i, steps := range stories {
				if wrong = compareSLA(f, fmt.Sprintf("+49151%08d", i), steps); wrong != nil {
					return
				}
			}
		})
		if wrong != nil {
			t.Fatal(wrong)
		}
	})
}

// compareSLA runs a ticket through steps and returns the first difference from the
// model.
func compareSLA(f *fixture, number string, steps []slaStep) error {
	said := 0
	say := func(in desk.InboundEvent) desk.Result {
		said++
		in.Event.Message.ExternalID = fmt.Sprint("SM", said)
		return f.intake(in)
	}
	f.emitted()
	id := say(text(number, "hello")).TicketID
	begin := time.Now()
	m := slaModel{status: desk.StatusOpen, priority: desk.PriorityNormal, clocks: map[desk.Metric]*modelClock{
		desk.FirstResponse: {target: 60}, desk.Resolution: {target: 300},
	}}
	for _, s := range steps {
		var u desk.Update
		switch s.what {
		case "pass":
			time.Sleep(time.Duration(s.minutes) * time.Minute)
			synctest.Wait()
			m.pass(s.minutes)
			continue
		case "customer":
			say(text(number, "again"))
			m.status = desk.StatusOpen
		case "agent":
			say(answer(number, "we look into it"))
			m.answered = true
		case "status":
			u.Status = &s.status
		case "priority":
			u.Priority = &s.priority
		case "both":
			u.Status, u.Priority = &s.status, &s.priority
		}
		if _, err := f.update(orgA, id, u); err != nil {
			return err
		}
		if u.Priority != nil {
			m.setPriority(s.priority)
		}
		if u.Status != nil {
			m.status = s.status
		}
		m.advance()
		synctest.Wait()
	}
	var told []string
	f.mu.Lock()
	for _, e := range f.log {
		if sla := e.Data.SLA; sla != nil && e.Data.Ticket.ID == id {
			told = append(told, fmt.Sprintf("%05d %s %s", int(e.At.Sub(begin).Minutes()), strings.TrimPrefix(string(e.Name), "sla."), sla.Metric))
		}
	}
	f.mu.Unlock()
	slices.Sort(told)
	slices.Sort(m.told)
	if !slices.Equal(told, m.told) {
		return fmt.Errorf("told\n got %q\nwant %q", told, m.told)
	}
	running := 0
	for _, metric := range []desk.Metric{desk.FirstResponse, desk.Resolution} {
		c, want, got := m.clocks[metric], desk.SLAState(""), desk.SLAState("")
		switch {
		case c.breached:
			want = desk.SLABreached
		case c.target == 0:
		case c.met:
			want = desk.SLAMet
		case m.runs(metric):
			want = desk.SLARunning
			running++
		default:
			want = desk.SLAPaused
		}
		for _, s := range f.ticket(id).SLA {
			if s.Metric == metric {
				got = s.State
			}
		}
		if got != want {
			return fmt.Errorf("%s is %q, want %q", metric, got, want)
		}
	}
	if n := f.count("jobs WHERE kind = 'sla' AND lane = '" + id + "'"); n != running {
		return fmt.Errorf("%d timers for %d running clocks", n, running)
	}
	f.delete(id)
	return nil
}
