package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// company has a ride every five hours, and a connection of each channel.
func company(now time.Time) Company {
	c := Company{Location: time.UTC, Agents: []Person{{Name: "Robin Demo", Email: "robin@demo.example"}, {Name: "Kim Wagner", Email: "kim@demo.example"}}}
	for i := range 400 {
		r := Ride{
			ID: "ride_1", Vehicle: "B-0101", EndedAt: now.Add(-time.Duration(i) * 5 * time.Hour), Minutes: 12, Price: "€3.40", City: "berlin",
			Rider: Person{Name: "Ida Tannert", Email: "ida@example.com", Phone: "+493023125000"},
		}
		if i%2 == 1 {
			r.City = "fukuoka"
		}
		c.Rides = append(c.Rides, r)
	}
	for _, channel := range []string{"sms", "voice", "chat", "business_messaging", "social_messenger", "email"} {
		c.Connections = append(c.Connections, Connection{Channel: channel, ID: "of " + channel})
	}
	return c
}

func TestTickets(t *testing.T) {
	now := time.Date(2026, 11, 27, 15, 0, 0, 0, time.UTC)
	list := Tickets(company(now), now, 200)
	if len(list) != 200 {
		t.Fatalf("%d tickets, want 200", len(list))
	}
	channels, statuses, subjects := map[string]int{}, map[desk.Status]int{}, map[string]bool{}
	last := now.AddDate(0, 0, -Days-1)
	for _, ticket := range list {
		if ticket.CreatedAt.Before(last) || ticket.CreatedAt.After(now) {
			t.Errorf("%s was created at %s, after one of %s", ticket.ID, ticket.CreatedAt, last)
		}
		last = ticket.CreatedAt
		channels[ticket.Channel]++
		statuses[ticket.Status]++
		subjects[ticket.Subject] = true
		if ticket.ConnectionID != "of "+ticket.Channel {
			t.Errorf("%s came by %q, which is no connection of %s", ticket.ID, ticket.ConnectionID, ticket.Channel)
		}
		at := ticket.CreatedAt
		for i, m := range ticket.Messages {
			if m.At.Before(at) || m.At.After(now) {
				t.Errorf("message %s is of %s, after one of %s", m.ID, m.At, at)
			}
			if at = m.At; strings.ContainsAny(m.Text+ticket.Subject, "{}") || m.Text == "" {
				t.Errorf("message %s is %q", m.ID, m.Text)
			}
			if i == 0 && m.Agent {
				t.Errorf("%s begins with an agent", ticket.ID)
			}
		}
	}
	for channel := range map[string]bool{"sms": true, "voice": true, "chat": true, "business_messaging": true, "social_messenger": true, "email": true} {
		if channels[channel] == 0 {
			t.Errorf("no ticket came by %s: %v", channel, channels)
		}
	}
	for status, atLeast := range map[desk.Status]int{desk.StatusOpen: 8, desk.StatusPending: 3, desk.StatusResolved: 5, desk.StatusClosed: 100} {
		if statuses[status] < atLeast {
			t.Errorf("%d tickets are %s, want %d at least: %v", statuses[status], status, atLeast, statuses)
		}
	}
	if len(subjects) < 30 {
		t.Errorf("%d different subjects", len(subjects))
	}
}

func TestTicketsAreTheSame(t *testing.T) {
	now := time.Date(2026, 11, 27, 15, 0, 0, 0, time.UTC)
	texts := func() (list []string) {
		for _, ticket := range Tickets(company(now), now, 50) {
			list = append(list, ticket.CreatedAt.String()+ticket.Subject+string(ticket.Status))
		}
		return list
	}
	if a, b := texts(), texts(); !slices.Equal(a, b) {
		t.Errorf("two calls return different tickets:\n%q\n%q", a, b)
	}
}

func TestLetters(t *testing.T) {
	now := time.Date(2026, 11, 27, 15, 0, 0, 0, time.UTC)
	answered := 0
	for _, l := range Letters(company(now), now, 3, Person{Name: "Kim Wagner"}) {
		if l.Text == "" || l.Subject == "" || strings.ContainsAny(l.Text+l.Subject+l.Answer+l.Thanks, "{}") {
			t.Errorf("letter %+v", l)
		}
		if l.Answer != "" {
			answered++
		}
	}
	if answered < len(stories)/2 {
		t.Errorf("%d of %d letters have answers", answered, len(stories))
	}
}
