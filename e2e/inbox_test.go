package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// sent reports whether an SMS was sent.
func (s *state) sent(text string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(s.texts, text)
	}
}

// holdsFocus fails if no element has the focus: keyboard users would start over.
func (v *visitor) holdsFocus() {
	v.t.Helper()
	v.wait("the focus", `document.activeElement && document.activeElement !== document.body`)
}

// TestFirstTicket: a user signs up, connects a number, receives a first message, replies
// by keyboard and resolves the ticket. Without scripts the same works by links and forms.
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
		v.waitText("Main number")
		v.open("/inbox")
		v.waitText("Waiting for your first message")
		if scripts {
			v.waitLive()
		}
		const question, answer = "Hello, scooter B-0417 does not unlock.", "Sorry! Please try B-0112 beside it."
		p.receiveText("SM1", "+14155550123", question)
		if scripts {
			v.waitText(question, "First message received") // without a reload
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
		v.waitText(question)
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
		v.wait("a ticket that is done", `[...document.querySelectorAll("#ticket-head .badge")].some(c => c.innerText.trim() === "Resolved")`)
		v.checkLayout()
		v.setScreen(narrow)
		v.checkLayout()
	})
}

// TestTwoAgents: two agents with the same ticket see each other's changes.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	kim := p.member(o, "kim", "Kim Ortiz", account.Agent)
	p.connect(o)
	p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
	a, b := p.as(t, robin), p.as(t, kim)
	a.open("/inbox")
	a.waitText("Hello, scooter B-0417")
	a.click("#t1 > a")
	a.at("/tickets/1*")
	b.open("/tickets/1")
	a.waitLive()
	b.waitLive()
	a.fill("textarea[name=reply]", "I am on my way.")
	b.fill("textarea[name=reply]", "Half an answer of mine")
	a.click("button[data-sends]")
	b.wait("the other's reply", `document.querySelector("#thread").innerText.includes("I am on my way.")`)
	if got := b.value("textarea[name=reply]"); got != "Half an answer of mine" {
		t.Errorf("what was typed became %q", got)
	}
	b.fill("#field-priority", "urgent")
	a.wait("the other's priority", `document.querySelector("#field-priority").value === "urgent" && document.querySelector("#ticket-head").innerText.includes("Urgent")`)
	// Both see the customer's message.
	p.receiveText("SM2", "+14155550123", "It works now, thanks!")
	a.waitText("It works now, thanks!")
	b.waitText("It works now, thanks!")
	// The draft is still there for its author only.
	b.wait("a kept draft", `document.querySelector("[data-draft-state]").innerText.includes("saved")`)
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

// TestKeyboard uses the inbox without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	for i := range 4 {
		p.receiveText(fmt.Sprint("SM", i), fmt.Sprint("+1415555012", i), fmt.Sprint("Question ", i))
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
	v.waitText("1 selected")
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
	v.waitText("Question 1")
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
	v.keys("R") // selects the option that starts with R
	v.wait("the assignee", `document.querySelector("#field-assignee").value === `+quote(robin.ID))
	v.keys(kb.Escape + "e")
	v.wait("a ticket that is done", `document.querySelector("#ticket-head").innerText.includes("Resolved")`)
	// Shortcuts work for elements in a closed menu or drawer.
	v.setScreen(middle)
	v.keys(kb.Escape + "p")
	v.wait("the focus at the priority", `document.activeElement.id === "field-priority"`)
	v.setScreen(wide)
	v.keys(kb.Escape + kb.Escape + "m")
	v.at("/tickets/2/merge*")
}

// TestMacro: a macro is created, inserted by "/", some letters and Enter, and sent with
// its changes by Ctrl-Enter. Without scripts the same works by links and forms.
func TestMacro(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, _ *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		p.connect(o)
		p.receiveText("SM1", "+14155550123", "Scooter B-0417 does not unlock.")
		p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
		v := p.as(t, robin)
		if !scripts {
			v.withoutScripts()
		}
		for _, name := range []string{"Refund", "Lock stuck"} {
			v.open("/settings/macros/new")
			v.fill("#field-name", name)
			v.fill("#field-text", "Hello {{customer.first_name|there}}, about "+name+".")
			v.fill("#field-status", "pending")
			v.fill("#field-add_tags", "lock")
			v.press("Save")
			v.at("/settings/macros")
			v.waitText(name)
		}
		const answer = "Hello there, about Lock stuck."
		v.open("/tickets/1")
		if scripts {
			v.keys("r")
			v.wait("the focus in the reply", `document.activeElement.name === "reply"`)
			v.keys("/")
			v.wait("the list", `document.querySelectorAll(".macros [role=option]").length === 2`)
			v.checkAccess()
			v.checkLayout()
			v.keys("x" + kb.Escape)
			v.wait("the typed text", `document.activeElement.name === "reply" && document.activeElement.value === "/x"`)
			v.fill("textarea[name=reply]", "")
			v.keys("/lo" + kb.Enter)
			v.keys(kb.Enter, chromedp.ModifierCtrl)
		} else {
			v.press("Macro")
			v.at("/tickets/1/macros")
			v.press("Lock stuck")
			v.at("/tickets/1")
			v.waitText("Set status to pending, add tag lock")
			v.press("Send")
		}
		v.wait("the answer in the thread", `document.querySelector("#thread").innerText.includes(`+quote(answer)+`)`)
		v.wait("a pending ticket", `document.querySelector("#ticket-head").innerText.includes("Pending") && document.querySelector("#field-tags").value === "lock"`)
		v.wait("no macro in the composer", `!document.querySelector("[data-macro]")`)
		p.until("the answer at the provider", p.sent("+14155550123: "+answer))
		v.open("/settings/macros")
		v.wait("the use", `[...document.querySelectorAll("td.number")].map(e => e.innerText.trim()).sort().join() === "0,1"`)
	})
}

// TestMention: @ in a note completes the name of a member, which the thread marks.
func TestMention(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, _ *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		p.connect(o)
		p.receiveText("SM1", "+14155550123", "Scooter B-0417 does not unlock.")
		p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
		v := p.as(t, robin)
		if !scripts {
			v.withoutScripts()
		}
		v.open("/tickets/1")
		if scripts {
			v.keys("n")
			v.wait("the focus in the note", `document.activeElement.name === "note"`)
			v.keys("Ask @")
			v.wait("the list", `document.activeElement.getAttribute("role") === "combobox" && document.querySelectorAll(".macros [role=option]").length > 0`)
			v.checkAccess()
			v.checkLayout()
			v.keys(robin.Name[:2] + kb.Enter)
			v.wait("the name", `document.activeElement.name === "note" && document.activeElement.value === "Ask @"+`+quote(robin.Name)+`+" "`)
			v.keys("and @q")
			v.wait("the typed text", `document.activeElement.name === "note" && document.activeElement.value.endsWith("and @q")`)
			v.keys(kb.Enter, chromedp.ModifierCtrl)
		} else {
			v.click("#note")
			v.fill("textarea[name=note]", "Ask @"+robin.Name+" and @q")
			v.click("button[data-sends]")
		}
		v.wait("the mark", `document.querySelectorAll("#thread mark").length === 1 && document.querySelector("#thread mark").innerText === "@"+`+quote(robin.Name))
	})
}

// TestNoticeAnnounced: a mention counts in the title of a colleague's open page, and makes a
// notification of the browser if chosen.
func TestNoticeAnnounced(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	kim := p.member(o, "kim", "Kim Ortiz", account.Agent)
	p.connect(o)
	p.receiveText("SM1", "+14155550123", "Scooter B-0417 does not unlock.")
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	a, b := p.as(t, robin), p.as(t, kim)
	b.open("/notices")
	b.wait("the choices", `!document.getElementById("alerts").hidden`)
	b.checkAccess()
	b.checkLayout()
	b.waitLive()
	js[any](b, `(window.shown = [], Notification = class { static permission = "granted"; constructor(title, o) { shown.push(title + ": " + o.body); } }, localStorage.setItem("kickstand-notify", "on"), 1)`)
	a.open("/tickets/1")
	a.click("#note")
	a.fill("textarea[name=note]", "Can you, @Kim?")
	a.click("button[data-sends]")
	b.wait("the count in the title", `document.title.startsWith("(1) Notices")`)
	b.wait("the notice", `document.getElementById("notice-list").innerText.includes("mentions you")`)
	b.wait("the notification", `shown.length === 1 && shown[0].includes("#1") && shown[0].includes("Robin Berg mentions you")`)
}

// TestKeysWhileSending: keys pressed while a reply is being sent are shortcuts of the
// ticket and not typed.
func TestKeysWhileSending(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
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

// TestCrossedReply: sending a reply after an unseen one of a colleague needs a
// confirmation; the text stays.
func TestCrossedReply(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		kim := p.as(t, p.member(o, "kim", "Kim Ortiz", account.Agent))
		p.connect(o)
		p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
		p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
		p.signIn(v, robin)
		v.allow("409 for /tickets/1/write")
		v.open("/tickets/1")
		kim.open("/tickets/1")
		const mine, theirs = "Please try B-0112.", "I am looking at it."
		v.fill("textarea[name=reply]", mine)
		if scripts {
			v.waitLive()
		}
		kim.fill("textarea[name=reply]", theirs)
		kim.press("Send")
		kim.waitText(theirs)
		if scripts {
			// The reply is on the page, which does not mean that it was read.
			v.wait("the other's reply", `document.querySelector("#thread").innerText.includes(`+quote(theirs)+`)`)
		}
		v.press("Send")
		if scripts {
			v.wait("the question", `document.querySelector("dialog[open] h1")?.innerText.match(/^Kim Ortiz replied \d+ s ago\. Send anyway\?$/)`)
			v.checkLayout()
			v.checkAccess()
			v.keys(kb.Enter) // returns to the text
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
			v.waitText("Send anyway?")
			v.checkLayout()
			if got := v.value("textarea[name=reply]"); got != mine {
				t.Errorf("what was typed became %q", got)
			}
			v.waitText(theirs)
			v.press("Send anyway")
		}
		v.wait("the reply in the thread", `document.querySelector("#thread").innerText.includes(`+quote(mine)+`)`)
		p.until("the reply at the provider", p.sent("+14155550123: "+mine))
		if got := v.value("textarea[name=reply]"); got != "" {
			t.Errorf("the field has %q in it", got)
		}
	})
}

// TestLongList: further rows load while the list is scrolled, with live updates of all of them,
// and the way back leads to the same place. Without scripts a link leads on.
func TestLongList(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		p.connect(o)
		for i := range 60 {
			p.receiveText(fmt.Sprint("SM", i), fmt.Sprintf("+141555502%02d", i), fmt.Sprint("Question ", i))
		}
		p.until("the tickets", func() bool { return p.tickets(o.ID) == 60 })
		p.signIn(v, robin)
		v.open("/inbox?sort=-number")
		if !scripts {
			v.click("a[rel=next]")
			v.wait("the next page", `document.querySelector("#t35") && document.querySelector("a[rel=prev]")`)
			return
		}
		v.waitLive()
		v.keys("jx")
		v.wait("a selected ticket", `document.querySelector("#t60 :checked")`)
		v.wait("all tickets", `(document.querySelector(".list").scrollTop = 1e6, document.querySelectorAll(".trow").length === 60)`)
		v.wait("the focus and the selection", `document.activeElement.closest("#t60") && document.querySelector("#t60 :checked")`)
		v.waitText("1 selected")
		v.keys(strings.Repeat("j", 59))
		v.keys(strings.Repeat("k", 30))
		v.wait("the focused row below the bar", `(r => document.activeElement.closest("#t31") && r("#t31").top >= r(".bulk").bottom)(s => document.querySelector(s).getBoundingClientRect())`)
		v.wait("the rows in the address", `location.search === "?sort=-number&rows=75" && !document.querySelector("a[rel=next]")`)
		v.checkLayout()
		v.checkAccess()
		p.receiveText("SM60", "+14155550260", "Question 60")
		v.wait("one more ticket", `document.querySelectorAll(".trow").length === 61 && document.querySelector("#t60 :checked")`)
		v.click("#t1 > a")
		v.at("/tickets/1*")
		v.wait("the list beside it", `document.querySelectorAll(".trow").length === 61`)
		v.do(chromedp.NavigateBack())
		v.at("/inbox*")
		v.wait("the same place", `document.querySelectorAll(".trow").length === 61 && document.querySelector(".list").scrollTop > 0`)
	})
}

// TestSaveView: a search becomes a view, in a dialog; chips remove its filters, and a deleted view
// comes back.
func TestSaveView(t *testing.T) {
	t.Parallel()
	withAndWithoutScripts(t, func(t *testing.T, p *program, v *visitor, scripts bool) {
		o, robin := p.organization("Acme Wheels")
		p.connect(o)
		p.receiveText("SM1", "+14155550123", "Hello, scooter B-0417 does not unlock.")
		p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
		p.signIn(v, robin)
		v.open("/inbox/all?q=" + "status:open+channel:sms+priority:normal+-tag:lock+assignee:none")
		v.checkLayout()
		v.setScreen(narrow)
		v.checkLayout()
		v.click(".chips summary")
		v.checkLayout()
		if scripts {
			v.checkAccess()
		}
		v.setScreen(wide)
		v.click(`.tools a[data-dialog]`)
		v.waitText("Order")
		v.fill("input[name=name]", "To answer")
		v.press("Save")
		v.at("/inbox/views/*")
		v.wait("the view and its count", `[...document.querySelectorAll("#views a")].some(a => a.innerText.includes("To answer") && a.innerText.includes("1"))`)
		v.click(`.chips a[aria-label="Remove -tag:lock"]`)
		v.wait("a search with a filter less", `document.querySelector("input[name=q]").value === "status:open channel:sms priority:normal assignee:none" && document.querySelectorAll(".trow").length === 1`)
		v.open("/inbox/views")
		v.checkLayout()
		v.click("button[value=delete]")
		v.waitText("View deleted.")
		v.press("Undo")
		v.waitText("View restored.")
		v.waitText("To answer")
	})
}
