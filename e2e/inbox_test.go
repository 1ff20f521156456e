package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// sent reports whether a text message left.
func (s *state) sent(text string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(s.texts, text)
	}
}

// holdsFocus fails when nothing has the focus: who works with the keyboard would
// begin anew.
func (v *visitor) holdsFocus() {
	v.t.Helper()
	v.wait("the focus", `document.activeElement && document.activeElement !== document.body`)
}

// TestFirstTicket: who is new signs up, connects a number, gets a first message, sees
// it come in, answers it by keyboard, and is done with it. Without scripts it is the
// same work, by links and forms.
func TestFirstTicket(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		v.signUp(p, "ana@acme.example", "Ana Lind", "Acme Wheels")
		v.open("/settings/channels")
		v.click(`a[href="/settings/connect/sms"]`)
		v.at("/settings/connect/sms")
		v.fill(`[name="address"]`, ourNumber)
		v.fill(`[name="secrets.0"]`, textSecret)
		v.fill(`[name="name"]`, "Main number")
		v.fill(`[name="credentials.account_sid"]`, "AC00000000000000000000000000000000")
		v.fill(`[name="credentials.auth_token"]`, "token of the provider")
		v.press("Connect")
		v.see("Main number")
		v.open("/inbox")
		if scripts {
			v.hears()
		}
		const question, answer = "Hello, scooter B-0417 does not unlock.", "Sorry! Please try B-0112 beside it."
		p.text("SM1", "+14155550123", question)
		if scripts {
			v.see(question)
			v.keys("j")
			v.wait("the focus on the ticket", `document.activeElement.closest("#t1")`)
			v.keys(kb.Enter)
		} else {
			p.until("the ticket", func() bool {
				v.open("/inbox")
				return js[bool](v, `document.querySelector("#t1") !== null`)
			})
			v.click("#t1 > a")
		}
		v.at("/tickets/1*")
		v.see(question)
		if scripts {
			v.keys("r")
			v.wait("the focus where the reply is written", `document.activeElement.name === "reply"`)
			v.keys(answer)
			v.keys(kb.Enter, chromedp.ModifierCtrl)
		} else {
			v.fill("textarea[name=reply]", answer)
			v.press("Send")
		}
		v.wait("the answer in the thread", `document.querySelector("#thread").innerText.includes(`+quote(answer)+`)`)
		p.until("the answer at the provider", p.sent("+14155550123: "+answer))
		if scripts {
			v.onTicket()
			v.keys("e")
		} else {
			v.press("Resolve")
		}
		v.wait("a ticket that is done", `[...document.querySelectorAll("#ticket-head .chip")].some(c => c.innerText.trim() === "Resolved")`)
		v.checkLayout()
		v.look(narrow)
		v.checkLayout()
	})
}

// TestTwoAgents: two people at one ticket see what the other does.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	kim := p.member(o, "kim", "Kim Ortiz", account.Agent)
	p.connect(o)
	p.text("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	a, b := p.as(t, robin), p.as(t, kim)
	a.open("/inbox")
	a.see("Hello, scooter B-0417")
	a.click("#t1 > a")
	a.at("/tickets/1*")
	b.open("/tickets/1")
	a.hears()
	b.hears()
	a.fill("textarea[name=reply]", "I am on my way.")
	b.fill("textarea[name=reply]", "Half an answer of mine")
	a.click("button[data-sends]")
	b.wait("the other's reply", `document.querySelector("#thread").innerText.includes("I am on my way.")`)
	if got := b.value("textarea[name=reply]"); got != "Half an answer of mine" {
		t.Errorf("what was typed became %q", got)
	}
	b.fill("#field-priority", "urgent")
	a.wait("the other's priority", `document.querySelector("#field-priority").value === "urgent" && document.querySelector("#ticket-head").innerText.includes("Urgent")`)
	// And what a customer writes comes to both.
	p.text("SM2", "+14155550123", "It works now, thanks!")
	a.see("It works now, thanks!")
	b.see("It works now, thanks!")
	// The draft is still there for who comes back, and for nobody else.
	b.wait("a kept draft", `document.querySelector("[data-kept]").innerText.includes("kept")`)
	b.open("/inbox")
	b.open("/tickets/1")
	if got := b.value("textarea[name=reply]"); got != "Half an answer of mine" {
		t.Errorf("the draft became %q", got)
	}
	a.open("/tickets/1")
	if got := a.value("textarea[name=reply]"); got != "" {
		t.Errorf("somebody else's draft is %q", got)
	}
}

// TestKeyboard: a day's work without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	for i := range 4 {
		p.text(fmt.Sprint("SM", i), fmt.Sprint("+1415555012", i), fmt.Sprint("Question ", i))
		p.until("the ticket", func() bool { return p.tickets(o.ID) == i+1 })
	}
	v := p.as(t, robin)
	v.open("/inbox")
	at := func(row string) {
		t.Helper()
		v.wait("the focus at "+row, `document.activeElement.closest(".trow")?.id === `+quote(row))
	}
	v.keys("j")
	at("t4")
	v.keys("jj")
	at("t2")
	v.keys("k")
	at("t3")
	v.keys("x")
	v.see("1 selected")
	v.holdsFocus()
	v.keys("?")
	v.wait("the list of keys", `document.querySelector("dialog[open]")`)
	v.checkLayout()
	v.checkAccess()
	v.keys(kb.Escape)
	v.wait("no list of keys", `!document.querySelector("dialog[open]")`)
	v.holdsFocus()
	v.keys("/")
	v.wait("the focus in the search", `document.activeElement.name === "q"`)
	v.keys("Question 1" + kb.Enter)
	v.at("/inbox/all*")
	v.see("Question 1")
	v.wait("only what was searched", `document.querySelectorAll(".trow").length === 1`)
	v.keys("j")
	at("t2")
	v.keys(kb.Enter)
	v.at("/tickets/2*")
	v.keys("n")
	v.wait("the focus in the note", `document.activeElement.name === "note"`)
	v.keys("Ask operations.")
	v.keys(kb.Enter, chromedp.ModifierCtrl)
	v.wait("the note", `document.querySelector("#thread").innerText.includes("Ask operations.")`)
	v.onTicket()
	v.keys("a")
	v.wait("the focus at the assignee", `document.activeElement.id === "field-assignee"`)
	v.keys("R") // chooses the one that begins so
	v.wait("the assignee", `document.querySelector("#field-assignee").value === `+quote(robin.ID))
	v.keys(kb.Escape + "e")
	v.wait("a ticket that is done", `document.querySelector("#ticket-head").innerText.includes("Resolved")`)
	// What is in a closed menu or drawer has its key, too.
	v.look(middle)
	v.keys(kb.Escape + "p")
	v.wait("the focus at the priority", `document.activeElement.id === "field-priority"`)
	v.look(wide)
	v.keys(kb.Escape + kb.Escape + "m")
	v.at("/tickets/2/merge*")
}

// TestKeysWhileSending: what is pressed while a reply is under way is meant for the
// ticket, and in neither the reply nor the field.
func TestKeysWhileSending(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.text("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	v := p.as(t, robin)
	v.open("/tickets/1")
	v.fill("textarea[name=reply]", "On my way.")
	v.keys(kb.Enter, chromedp.ModifierCtrl)
	v.keys("xyz")
	v.wait("the reply", `document.querySelector("#thread").innerText.includes("On my way.")`)
	v.onTicket()
	if got := v.value("textarea[name=reply]"); got != "" {
		t.Errorf("the field has %q in it", got)
	}
	p.until("the reply at the provider", p.sent("+14155550123: On my way."))
}

// onTicket waits until the ticket has the focus, and no field of it.
func (v *visitor) onTicket() {
	v.t.Helper()
	v.wait("the focus on the ticket", `document.activeElement.matches(".ticket .scroll") && !composer.hasAttribute("aria-busy")`)
}

// TestCrossedReply: who sends a reply while a colleague has answered is asked first,
// and what they wrote stays until they decide.
func TestCrossedReply(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		kim := p.as(t, p.member(o, "kim", "Kim Ortiz", account.Agent))
		p.connect(o)
		p.text("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
		p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
		p.signIn(v, robin)
		v.allow("409 for /tickets/1/write")
		v.open("/tickets/1")
		kim.open("/tickets/1")
		const mine, theirs = "Please try B-0112.", "I am looking at it."
		v.fill("textarea[name=reply]", mine)
		if scripts {
			v.hears()
		}
		kim.fill("textarea[name=reply]", theirs)
		kim.press("Send")
		kim.see(theirs)
		if scripts {
			// It is on the page by now, which does not mean that it was read.
			v.wait("the other's reply", `document.querySelector("#thread").innerText.includes(`+quote(theirs)+`)`)
		}
		v.press("Send")
		if scripts {
			v.wait("the question", `document.querySelector("dialog[open] h1")?.innerText.match(/^Kim Ortiz replied \d+ s ago\. Send anyway\?$/)`)
			v.checkLayout()
			v.checkAccess()
			v.keys(kb.Enter) // keeps writing
			v.wait("the focus in the text", `document.activeElement.name === "reply" && !document.querySelector("dialog")`)
			if got := v.value("textarea[name=reply]"); got != mine {
				t.Errorf("what was typed became %q", got)
			}
			kim.fill("textarea[name=reply]", "Once more.")
			kim.press("Send")
			v.wait("the other's reply", `document.querySelector("#thread").innerText.includes("Once more.")`)
			v.keys(kb.Enter, chromedp.ModifierCtrl)
			v.wait("the question", `document.querySelector("dialog[open]")`)
			v.click("dialog[open] button[value=send]")
			v.onTicket()
		} else {
			v.see("Send anyway?")
			v.checkLayout()
			if got := v.value("textarea[name=reply]"); got != mine {
				t.Errorf("what was typed became %q", got)
			}
			v.see(theirs)
			v.press("Send anyway")
		}
		v.wait("the reply in the thread", `document.querySelector("#thread").innerText.includes(`+quote(mine)+`)`)
		p.until("the reply at the provider", p.sent("+14155550123: "+mine))
		if got := v.value("textarea[name=reply]"); got != "" {
			t.Errorf("the field has %q in it", got)
		}
	})
}
