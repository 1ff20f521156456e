// Package demo makes up the records of a rental company: the tickets of ninety days, and what its
// customers and a second agent do while somebody tries the program. The same seed makes the same
// records, with times relative to the present.
package demo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
)

// Person is a customer or an agent.
type Person struct {
	Name  string
	Email string
	Phone string // E.164; empty: none
}

// First returns the first word of the name.
func (p Person) First() string {
	first, _, _ := strings.Cut(p.Name, " ")
	return first
}

// Ride is a completed ride of a customer.
type Ride struct {
	ID      string
	Vehicle string // its code
	Rider   Person
	EndedAt time.Time
	Minutes int64
	Price   string // with its currency
	City    string // of [places]
}

// Connection is the connection by which tickets of a channel came.
type Connection struct {
	Channel string // of tickets: "email", "sms"
	ID      string
}

// Company has what tickets are about.
type Company struct {
	Rides       []Ride // newest first; not empty
	Agents      []Person
	Connections []Connection
	Location    *time.Location // of the business hours
}

// Days is the length of the history.
const Days = 90

// places are the places that texts mention, by city.
var places = map[string][]string{
	"berlin":  {"Rosenthaler Platz", "the main station", "Alexanderplatz", "Torstraße 80", "Monbijou Park", "the Hackescher Markt", "Invalidenstraße 44", "Zionskirchplatz"},
	"fukuoka": {"Tenjin Station", "Ohori Park", "Canal City", "Hakata Station", "Nakasu Bridge", "the Kego Park"},
}

// writer makes up tickets.
type writer struct {
	Company
	rng    *rand.Rand
	now    time.Time
	ride   int  // index of the next ticket's ride
	recent bool // the next ticket is of the last days
}

// Tickets returns n tickets of the last [Days] days, oldest first.
func Tickets(c Company, now time.Time, n int) []desk.ImportedTicket {
	w := &writer{Company: c, rng: rand.New(rand.NewPCG(1, 9)), now: now}
	list := make([]desk.ImportedTicket, 0, n)
	var order []int
	for i := range n {
		w.recent = i < n/20
		if len(order) == 0 {
			order = w.rng.Perm(len(stories))
		}
		list = append(list, w.ticket(&stories[order[0]]))
		order = order[1:]
	}
	slices.SortStableFunc(list, func(a, b desk.ImportedTicket) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for i := range list {
		t := &list[i]
		t.ID = strconv.Itoa(i + 1)
		for k := range t.Messages {
			t.Messages[k].ID = fmt.Sprintf("%d.%d", i+1, k+1)
		}
	}
	return list
}

// ticket makes up a ticket with the course of s.
func (w *writer) ticket(s *story) desk.ImportedTicket {
	r := w.nextRide()
	at := w.workingTime()
	if s.ride {
		at = r.EndedAt.Add(time.Duration(4+w.rng.IntN(170)) * time.Minute)
	}
	agent := w.Agents[w.rng.IntN(len(w.Agents))]
	via := w.connection(s, r.Rider)
	t := desk.ImportedTicket{
		Subject: fill(s.subject, r, agent), Priority: desk.Priority(s.priority), Tags: s.tags, Assignee: agent.Email,
		Customer: person(r.Rider), Channel: via.Channel, ConnectionID: via.ID, CreatedAt: at, SLA: true,
	}
	until := w.course(s, at)
	for i, l := range s.lines[:until] {
		if i > 0 {
			at = w.after(at, l.from)
		}
		if at.After(w.now) {
			break
		}
		m := desk.ImportedMessage{At: at, Text: fill(l.text, r, agent), Author: t.Customer, Note: l.from == note, Agent: l.from != customer}
		if m.Agent {
			m.Author = desk.ImportedPerson{Name: agent.Name, Email: agent.Email}
		}
		t.Messages = append(t.Messages, m)
	}
	if t.Subject == "" {
		t.Subject = opening(t.Messages[0].Text)
	}
	w.end(&t, len(t.Messages) == len(s.lines))
	return t
}

// course returns how many lines of a story have been written. Many of the newest wait for an agent or
// for the customer, and some older ones still do.
func (w *writer) course(s *story, began time.Time) int {
	age, n := w.now.Sub(began), w.rng.IntN(100)
	switch {
	case age < 3*24*time.Hour && n < 45, age < 14*24*time.Hour && n < 6:
		return 1
	case age < 3*24*time.Hour && n < 65, age < 21*24*time.Hour && n < 15, n < 2:
		return min(2, len(s.lines))
	}
	return len(s.lines)
}

// end sets the status of a ticket by its last message; over reports that its story is.
func (w *writer) end(t *desk.ImportedTicket, over bool) {
	last := t.Messages[len(t.Messages)-1]
	age := w.now.Sub(last.At)
	switch {
	case over && age > 6*24*time.Hour:
		t.Status = desk.StatusClosed
	case over && (last.Agent || len(t.Messages) > 1) && age > 12*time.Hour:
		t.Status = desk.StatusResolved
	case last.Agent && !last.Note:
		t.Status = desk.StatusPending
	case last.Note && w.rng.IntN(2) == 0:
		t.Status = desk.StatusOnHold
	default:
		t.Status = desk.StatusOpen
	}
	if t.Status == desk.StatusClosed || t.Status == desk.StatusResolved {
		t.ResolvedAt = last.At.Add(time.Duration(1+w.rng.IntN(25)) * time.Minute)
	}
	if t.Status == desk.StatusOpen && w.rng.IntN(3) == 0 {
		t.Assignee = ""
	}
}

// nextRide returns the ride of the next ticket. Customers of newer rides write more often, as they
// do where a company grows.
func (w *writer) nextRide() Ride {
	r := w.Rides[w.ride%len(w.Rides)]
	w.ride += 1 + int(math.Abs(w.rng.NormFloat64())*float64(len(w.Rides))/300)
	return r
}

// workingTime returns a time of the last days, mostly in the daytime and on weekdays.
func (w *writer) workingTime() time.Time {
	for {
		back := time.Duration(w.rng.Int64N(int64(Days * 24 * time.Hour)))
		if w.recent {
			back /= Days / 3
		}
		at := w.now.Add(-back).In(w.Location)
		weight := [24]int{1, 1, 0, 0, 0, 1, 3, 6, 9, 10, 9, 8, 8, 7, 7, 8, 9, 10, 9, 7, 5, 4, 3, 2}[at.Hour()]
		if day := at.Weekday(); day == time.Saturday || day == time.Sunday {
			weight = (weight + 1) / 2
		}
		if w.rng.IntN(10) < weight {
			return at
		}
	}
}

// after returns when the next author writes. Agents answer from 8:00 to 20:00.
func (w *writer) after(at time.Time, from string) time.Time {
	minutes := math.Exp(w.rng.NormFloat64()*0.9 + 3.2) // half of them within 25
	if from == customer {
		minutes *= 2
	}
	at = at.Add(time.Duration(minutes*float64(time.Minute)) + time.Duration(w.rng.IntN(60))*time.Second)
	if from == customer {
		return at
	}
	if local := at.In(w.Location); local.Hour() < 8 {
		return time.Date(local.Year(), local.Month(), local.Day(), 8, 1+w.rng.IntN(50), w.rng.IntN(60), 0, w.Location)
	} else if local.Hour() >= 20 {
		return time.Date(local.Year(), local.Month(), local.Day()+1, 8, 1+w.rng.IntN(50), w.rng.IntN(60), 0, w.Location)
	}
	return at
}

// shares are how many of a hundred short tickets come by a channel.
var shares = []struct {
	channel string
	share   int
}{{"sms", 34}, {"business_messaging", 28}, {"social_messenger", 12}, {"chat", 4}, {"email", 22}}

// connection returns the connection of a ticket.
func (w *writer) connection(s *story, p Person) Connection {
	channel := "email"
	if slices.Contains(s.tags, "voicemail") {
		channel = "voice"
	} else if !s.mail {
		n := w.rng.IntN(100)
		for _, share := range shares {
			if channel = share.channel; n < share.share {
				break
			}
			n -= share.share
		}
	}
	if p.Phone == "" {
		channel = "email"
	}
	i := slices.IndexFunc(w.Connections, func(c Connection) bool { return c.Channel == channel })
	if i < 0 {
		return Connection{Channel: channel}
	}
	return w.Connections[i]
}

func person(p Person) desk.ImportedPerson {
	return desk.ImportedPerson{ID: p.Email, Name: p.Name, Email: p.Email, Phone: p.Phone}
}

// fill replaces the placeholders of a text.
func fill(text string, r Ride, agent Person) string {
	list := places[r.City]
	place := list[int(r.EndedAt.Unix()/60)%len(list)]
	return strings.NewReplacer(
		"{first}", r.Rider.First(), "{name}", r.Rider.Name, "{agent}", agent.First(), "{vehicle}", r.Vehicle, "{ride}", r.ID,
		"{minutes}", strconv.FormatInt(r.Minutes, 10), "{price}", r.Price, "{place}", place, "{day}", r.EndedAt.Format("2 January"),
	).Replace(text)
}

// opening returns the first words of a message, as the subject of its ticket.
func opening(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	words := strings.Fields(text)
	for i := range words {
		if len(strings.Join(words[:i+1], " ")) > 60 {
			return strings.Join(words[:i], " ") + "…"
		}
	}
	return strings.Join(words, " ")
}

// History is an [importer.Reader] of tickets.
type History []desk.ImportedTicket

// Index implements [importer.Reader].
func (h History) Index(context.Context, *importer.Report) (digest string, tickets int, err error) {
	return "demo", len(h), nil
}

// Ticket implements [importer.Reader].
func (h History) Ticket(_ context.Context, i int, _ *importer.Report) (importer.Ticket, error) {
	return importer.Ticket{ImportedTicket: h[i]}, nil
}

// Close implements [importer.Reader].
func (History) Close() error { return nil }

// Letter is what a customer writes now.
type Letter struct {
	From    Person
	Channel string // as in [Connection]
	Subject string // of mail
	Text    string
	Tags    []string
	// Answer is the reply of an agent, and Thanks that of the customer; either may be empty.
	Answer, Thanks string
}

// Letters returns letters that customers write now, each the beginning of another story. agent is
// who answers them.
func Letters(c Company, now time.Time, seed uint64, agent Person) []Letter {
	w := &writer{Company: c, rng: rand.New(rand.NewPCG(seed, 2)), now: now}
	var list []Letter
	for _, i := range w.rng.Perm(len(stories)) {
		s, r := &stories[i], w.nextRide()
		l := Letter{From: r.Rider, Channel: w.connection(s, r.Rider).Channel, Subject: fill(s.subject, r, agent), Tags: s.tags}
		for _, line := range s.lines {
			text := fill(line.text, r, agent)
			switch {
			case l.Text == "":
				l.Text = text
			case line.from == note:
			case line.from != customer && l.Answer == "":
				l.Answer = text
			case line.from == customer && l.Thanks == "":
				l.Thanks = text
			}
		}
		if l.Subject == "" {
			l.Subject = opening(l.Text)
		}
		list = append(list, l)
	}
	return list
}
