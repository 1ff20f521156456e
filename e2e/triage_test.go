package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestTriage works through 20 tickets by keyboard: read, insert a macro, edit, send, resolve, next.
// Beside the text each takes three keys. KICKSTAND_TEST_TRIAGE is the number of other tickets; the
// log has the server's times.
func TestTriage(t *testing.T) {
	t.Parallel()
	others := 500
	if text := os.Getenv("KICKSTAND_TEST_TRIAGE"); text != "" {
		var err error
		if others, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const triaged = 20
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveText("SM0", "+14155550100", "An older question")
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	p.fill(o.ID, others)
	if err := p.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := p.Desk.CreateMacroTx(t.Context(), tx, desk.Macro{OrganizationID: o.ID, Name: "Lock", Text: "Hello {{customer.first_name|there}}, we reset the lock."})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i := range triaged {
		p.receiveText(fmt.Sprintf("SM%d", i+1), fmt.Sprintf("+1415555%04d", 1000+i), "The lock does not open.")
	}
	p.until("the tickets", func() bool { return p.newest(o.ID) == int64(others+1+triaged) })

	v := p.as(t, robin)
	v.open(fmt.Sprintf("/tickets/%d?in=unassigned", others+1+triaged))
	v.keys(kb.Escape) // leaves no field with the focus
	var read, macro []float64
	keys := 0
	press := func(key string, modifiers ...chromedp.Modifier) {
		keys++
		v.keys(key, modifiers...)
	}
	from := time.Now()
	for i := range triaged {
		number := others + 1 + triaged - i
		path := fmt.Sprintf("/tickets/%d", number)
		v.at(path + "*")
		v.wait("the page", `document.readyState === "complete" && document.querySelector("#composer") !== null`)
		read = append(read, js[float64](v, `(([n]) => n.responseStart - n.requestStart)(performance.getEntriesByType("navigation"))`))
		press("i")
		v.wait("the list of macros", `document.querySelectorAll(".macros [role=option]").length > 0`)
		v.keys("lo") // text
		press(kb.Enter)
		v.wait("the macro's text", `document.querySelector("[name=reply]").value.includes("we reset the lock.")`)
		macro = append(macro, js[float64](v, `Math.max(...performance.getEntriesByType("resource").filter((e) => e.name.includes("/macros")).map((e) => e.responseStart - e.requestStart))`))
		v.keys(fmt.Sprintf(" Try it, %d.", i)) // text
		press(kb.Enter, chromedp.ModifierCtrl, chromedp.ModifierShift)
		if i < triaged-1 {
			v.at(fmt.Sprintf("/tickets/%d*", number-1))
		}
	}
	v.wait("another page", fmt.Sprintf("!location.pathname.endsWith('/%d')", others+2))
	took := time.Since(from)
	if keys > 3*triaged {
		t.Errorf("%d keys for %d tickets", keys, triaged)
	}
	for i := range triaged {
		want := fmt.Sprintf(": Hello there, we reset the lock. Try it, %d.", i)
		p.until(want, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.ContainsFunc(p.texts, func(text string) bool { return strings.HasSuffix(text, want) })
		})
	}
	if n := p.count(o.ID, desk.StatusResolved); n < triaged {
		t.Errorf("%d tickets are resolved, want %d", n, triaged)
	}
	slices.Sort(read)
	slices.Sort(macro)
	t.Logf("%d tickets beside %d others in %v, %d keys; server, median and greatest: macro %.0f and %.0f ms, the next page %.0f and %.0f ms",
		triaged, others, took.Round(time.Millisecond), keys, macro[triaged/2], macro[triaged-1], read[triaged/2], read[triaged-1])
}

// fill adds tickets like the organization's first one, a day older and numbered from 2.
func (p *program) fill(organizationID string, tickets int) {
	p.t.Helper()
	if err := p.DB.Write(p.t.Context(), func(tx *db.Tx) error {
		if err := tx.Queue(p.t.Context(), "UPDATE tickets SET created_at = created_at - 200000000000, updated_at = updated_at - 200000000000 WHERE organization_id = $1", organizationID); err != nil {
			return err
		}
		if err := tx.Queue(p.t.Context(), `INSERT INTO tickets (id, organization_id, number, subject, status, priority, channel, customer_id, created_at, updated_at)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
			SELECT '0190c0de-0000-7000-8000-' || CAST(100000000000 + i AS TEXT), organization_id, 1 + i, 'Question ' || CAST(i AS TEXT),
				CASE WHEN i % 10 = 0 THEN 'open' WHEN i % 10 = 1 THEN 'pending' ELSE 'closed' END, 'normal', channel, customer_id, created_at + i, updated_at + i
			FROM n, tickets WHERE organization_id = $1 AND number = 1`, organizationID, tickets); err != nil {
			return err
		}
		return tx.Queue(p.t.Context(), "UPDATE ticket_numbers SET last = 1 + $2, last_at = last_at - 100000000000 WHERE organization_id = $1", organizationID, tickets)
	}); err != nil {
		p.t.Fatal(err)
	}
}

// newest returns the highest number of a ticket.
func (p *program) newest(organizationID string) (number int64) {
	p.t.Helper()
	if err := p.DB.QueryRow(p.t.Context(), "SELECT max(number) FROM tickets WHERE organization_id = $1", organizationID).Scan(&number); err != nil {
		p.t.Fatal(err)
	}
	return number
}

// count returns the number of tickets of a status.
func (p *program) count(organizationID string, status desk.Status) (n int) {
	p.t.Helper()
	if err := p.DB.QueryRow(p.t.Context(), "SELECT count(*) FROM tickets WHERE organization_id = $1 AND status = $2", organizationID, string(status)).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}
