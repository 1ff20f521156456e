package inbox_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// person creates a customer.
func (h *harness) person(n desk.NewCustomer) desk.Customer {
	h.t.Helper()
	var c desk.Customer
	if err := h.DB.Write(h.t.Context(), func(tx *db.Tx) (err error) {
		c, err = h.desk.CreateCustomerTx(h.t.Context(), tx, h.Organization.ID, n)
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// people returns the names in a list.
func people(d webtest.Document) (list []string) {
	for _, n := range d.WithAttr("class", "person") {
		list = append(list, webtest.Text(n.LastChild))
	}
	slices.Sort(list)
	return list
}

func TestCustomers(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	b.Page("/customers").Want("No customers yet")
	b.Page("/customers?q=ana").Want("No customers found")
	h.person(desk.NewCustomer{Name: "Ana Lopez", Emails: []string{"ana@c.example", "lopez@c.example"}})
	h.person(desk.NewCustomer{Name: `<b>"Anatol" & Sons`, Phones: []string{"+4915112345678"}})
	h.text("+14155550101", "SM1", "hello")
	h.receive("chat", channel.Message{ExternalID: "1", ThreadKey: "C1:2", From: channel.Party{ID: "U1"}, Text: "hi"})
	for path, want := range map[string][]string{
		"/customers":                    {`+14155550101`, `<b>"Anatol" & Sons`, "Ana Lopez", "Team chat U1"},
		"/customers?q=ana":              {"Ana Lopez"},
		"/customers?q=LOPEZ@c.example":  {"Ana Lopez"},
		"/customers?q=%2B4915112345678": {`<b>"Anatol" & Sons`},
		"/customers?q=%2B14155550101":   {`+14155550101`},
		"/customers?q=%3Cb":             {`<b>"Anatol" & Sons`},
		"/customers?q=nobody":           nil,
		"/customers?after=x":            nil,
	} {
		if got := people(b.Page(path)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	other := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	if got := people(other.Page("/customers")); len(got) != 0 {
		t.Errorf("another organization sees %q", got)
	}
}

// TestCustomersByWords checks that customers are found by any part of a name, an address or a number.
func TestCustomersByWords(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	for i, name := range []string{"José María Núñez", "Maria Lopez", "Someone Else"} {
		phone := fmt.Sprintf("+1415555010%d", i)
		h.receive("sms", channel.Message{ExternalID: phone, ThreadKey: phone, From: channel.Party{Phone: phone, Name: name}, Text: "I am not Maria Lopez"})
	}
	h.mail("ana.lopez@c.example", "m1")
	h.person(desk.NewCustomer{Name: "Zoë Without-Ticket", Phones: []string{"+4915112345678"}})
	if n, err := h.desk.Index(t.Context()); err != nil || n == 0 {
		t.Fatalf("indexed %d, %v", n, err)
	}
	for q, want := range map[string][]string{
		"nunez jose":     {"José María Núñez"},
		"NÚÑEZ":          {"José María Núñez"},
		"lopez maria":    {"Maria Lopez"},
		"maria":          {"José María Núñez", "Maria Lopez"},
		"0102":           {"Someone Else"},
		"c.example":      {"Ana"},
		"icket zoe":      {"Zoë Without-Ticket"},
		"0151 12345":     {"Zoë Without-Ticket"},
		"not":            nil, // a word of the texts
		"status:strange": nil,
		"\"":             nil,
	} {
		got := people(b.Page("/customers?q=" + url.QueryEscape(q)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", q, got, want)
		}
	}
	other := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	if got := people(other.Page("/customers?q=maria")); len(got) != 0 {
		t.Errorf("another organization sees %q", got)
	}
}

func TestCustomerPage(t *testing.T) {
	h := newHarness(t)
	browsers := map[account.Role]*webtest.Browser{account.Agent: h.SignIn(h.Agent), account.Admin: h.SignIn(h.Admin)}
	for i, text := range hostile {
		id := h.receive("sms", channel.Message{
			ExternalID: fmt.Sprint("SM", i), ThreadKey: fmt.Sprintf("+1415555010%d", i), From: channel.Party{Phone: fmt.Sprintf("+1415555010%d", i), Name: text}, Text: text,
		}).CustomerID
		short := strings.Join(strings.Fields(text[:min(len(text), 100)]), " ")
		for role, b := range browsers {
			d := b.Page("/customers/" + id)
			d.Want(short, fmt.Sprintf("+1415555010%d", i), fmt.Sprintf("#%d", i+1), "Open")
			if deletes := len(d.WithAttr("href", "/customers/"+id+"/delete")); deletes != map[account.Role]int{account.Admin: 1}[role] {
				t.Errorf("%s: got %d links that delete", role, deletes)
			}
		}
	}
	b := browsers[account.Agent]
	bare := h.person(desk.NewCustomer{Emails: []string{"bare@c.example"}, ExternalID: "crm-7", Metadata: desk.MetadataUpdate{"vip": new("<yes>")}})
	b.Page("/customers/"+bare.ID).Want("bare@c.example", "Nothing here.", "crm-7", "vip", "<yes>")
	other := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	for _, path := range []string{"/customers/" + bare.ID, "/customers/" + bare.ID + "/edit", "/customers/" + bare.ID + "/delete", "/tickets/new?customer=" + bare.ID} {
		other.WantRefused(other.Get(path), http.StatusNotFound)
	}
	other.WantRefused(other.Post("/customers/"+bare.ID+"/edit", url.Values{"name": {"x"}}), http.StatusNotFound)
	other.WantRefused(other.Post("/customers/"+bare.ID+"/delete", url.Values{"confirm": {"bare@c.example"}}), http.StatusNotFound)
	b.Page("/customers/" + bare.ID)
	b.WantRefused(b.Get("/customers/nobody"), http.StatusNotFound)
}

func TestEditCustomer(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	w := b.Post("/customers/new", url.Values{"name": {" Ana "}, "emails": {"ana@c.example\r\n\r\nlopez@c.example"}, "phones": {"+49 151 12345678"}, "external_id": {"7"}})
	d, notice := b.Follow(w)
	d.Want("Ana", "ana@c.example", "lopez@c.example", "+4915112345678", "7")
	path := w.Header().Get("Location")
	if notice != "Customer created." {
		t.Errorf("got notice %q", notice)
	}
	form := b.Page(path + "/edit")
	if got := webtest.Text(form.Field("emails")); got != "ana@c.example lopez@c.example" {
		t.Errorf("the form has %q", got)
	}
	d, _ = b.Follow(b.Post(path+"/edit", url.Values{"name": {"Ana <b>"}, "emails": {"lopez@c.example"}, "phones": {""}, "external_id": {""}}))
	d.Want("Ana <b>", "lopez@c.example")
	if strings.Contains(webtest.Text(d.Root), "ana@c.example") {
		t.Error("an address that was taken away is there")
	}
	h.person(desk.NewCustomer{Name: "Bob", Emails: []string{"bob@c.example"}, ExternalID: "8"})
	for _, at := range []string{path + "/edit", "/customers/new"} {
		for field, c := range map[string]struct {
			form url.Values
			says string
		}{
			"emails":      {url.Values{"name": {"Ana"}, "emails": {"ok@c.example\nbob@c.example"}}, "E-mail addresses cannot be this"},
			"phones":      {url.Values{"name": {"Ana"}, "phones": {"0151"}}, "Phone numbers must be a telephone number with its country code"},
			"external_id": {url.Values{"name": {"Ana"}, "external_id": {"8"}}, "External id cannot be this"},
		} {
			d := b.WantRefused(b.Post(at, c.form), http.StatusUnprocessableEntity)
			if got := strings.Join(d.DescribedBy(field), " "); !strings.Contains(got, c.says) || webtest.Attr(d.Field("name"), "value") != "Ana" {
				t.Errorf("%s, %s: got %q", at, field, got)
			}
		}
	}
	b.Page(path).Want("Ana <b>")
}

func TestDeleteCustomer(t *testing.T) {
	h := newHarness(t)
	id := h.receive("sms", channel.Message{ExternalID: "1", ThreadKey: "+14155550101", From: channel.Party{Phone: "+14155550101", Name: "Ana <b>"}, Text: "hello"}).CustomerID
	agent, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)
	path := "/customers/" + id + "/delete"
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	agent.WantRefused(agent.Post(path, url.Values{"confirm": {"Ana <b>"}}), http.StatusForbidden)
	admin.Page(path).Want("Ana <b>", "permanently deletes")
	d := admin.WantRefused(admin.Post(path, url.Values{"confirm": {"Ana"}}), http.StatusUnprocessableEntity)
	d.Want("The text does not match")
	d, notice := admin.Follow(admin.Post(path, url.Values{"confirm": {"Ana <b>"}}))
	if notice != "Customer deleted." || len(people(d)) != 0 {
		t.Errorf("got notice %q and %q", notice, people(d))
	}
	admin.WantRefused(admin.Get("/customers/"+id), http.StatusNotFound)
	if got := subjects(admin.Page("/inbox")); len(got) != 1 {
		t.Errorf("their ticket is gone: %q", got)
	}
}

// TestNewTicket creates tickets of a new and of an existing customer.
func TestNewTicket(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	b.Page("/tickets/new").Want("New ticket", "Don’t send: record a message from the customer")
	latest := func() desk.Ticket {
		t.Helper()
		list, _, err := h.desk.FindTickets(t.Context(), h.DB, h.Organization.ID, desk.TicketQuery{Limit: 1})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	w := b.Post("/tickets/new", url.Values{
		"customer.name": {"Ana"}, "customer.email": {" ana@c.example"}, "channel": {"api"}, "subject": {"Flat tyre"}, "text": {"On the bridge.\r\nHelp!"},
		"priority": {"high"}, "assignee_id": {h.Agent.ID}, "tags": {"tyre, bridge"},
	})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/tickets/1" {
		t.Fatalf("got %d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	one := latest()
	if one.Subject != "Flat tyre" || one.Priority != desk.PriorityHigh || one.AssigneeID != h.Agent.ID || strings.Join(one.Tags, " ") != "tyre bridge" || one.Customer.Email != "ana@c.example" || one.Channel != "api" {
		t.Errorf("made %+v", one)
	}
	if list, err := h.desk.Messages(t.Context(), h.DB, h.Organization.ID, one.ID); err != nil || len(list) != 1 || list[0].Text != "On the bridge.\nHelp!" {
		t.Errorf("it says %+v, %v", list, err)
	}
	if row := rowOf(t, b.Page("/inbox"), 1); webtest.Attr(row, "class") != "trow" {
		t.Error("what one made oneself is unread")
	}
	known := "/tickets/new?customer=" + one.Customer.ID
	d := b.Page(known)
	d.Want("Ana", "ana@c.example")
	if len(d.WithAttr("name", "customer.email")) != 0 {
		t.Error("asks again who it is")
	}
	if w := b.Post(known, url.Values{"channel": {"email"}, "subject": {"Your refund"}, "text": {"It is on its way."}}); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	if two := latest(); two.Customer.ID != one.Customer.ID || two.Channel != "email" || two.AssigneeID != "" {
		t.Errorf("made %+v", two)
	}

	for what, c := range map[string]struct {
		form  url.Values
		field string
		says  string
	}{
		"no subject":  {url.Values{"customer.name": {"Bob"}}, "subject", "Subject must"},
		"nobody":      {url.Values{"subject": {"x"}}, "customer.name", "must have a name, an email or a phone"},
		"no address":  {url.Values{"subject": {"x"}, "customer.email": {"bob"}}, "customer.email", "E-mail must be an e-mail address"},
		"no number":   {url.Values{"subject": {"x"}, "customer.phone": {"0151"}}, "customer.phone", "Phone must be a telephone number"},
		"no text":     {url.Values{"subject": {"x"}, "customer.email": {"bob@c.example"}, "channel": {"email"}}, "text", "Message must be given"},
		"no member":   {url.Values{"subject": {"x"}, "customer.name": {"Bob"}, "assignee_id": {"eve"}}, "assignee_id", "Assignee must be a member"},
		"a long tag":  {url.Values{"subject": {"x"}, "customer.name": {"Bob"}, "tags": {strings.Repeat("x", 60)}}, "tags", "Tags must"},
		"unreachable": {url.Values{"subject": {"x"}, "text": {"y"}, "customer.email": {"bob@c.example"}, "channel": {"sms"}}, "customer.phone", "Phone must be given for this channel"},
	} {
		d := b.WantRefused(b.Post("/tickets/new", c.form), http.StatusUnprocessableEntity)
		if got := strings.Join(d.DescribedBy(c.field), " "); !strings.Contains(got, c.says) {
			t.Errorf("%s: got %q", what, got)
		}
		if got := webtest.Attr(d.Field("customer.email"), "value"); got != c.form.Get("customer.email") {
			t.Errorf("%s: the form has forgotten what was typed: %q", what, got)
		}
	}
	if got := latest().Number; got != 2 {
		t.Errorf("what was refused made ticket %d", got)
	}
}

// TestStaleCustomer checks that a stale form does not remove an address that was added
// meanwhile.
func TestStaleCustomer(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	c := h.person(desk.NewCustomer{Name: "Ana", Emails: []string{"ana@c.example"}})
	path := "/customers/" + c.ID
	form := url.Values{"name": {"Ana L."}, "emails": {"ana@c.example"}, "was": {webtest.Attr(b.Page(path+"/edit").Field("was"), "value")}}
	colleague := h.SignIn(h.Admin)
	colleague.Follow(colleague.Post(path+"/edit", url.Values{"name": {"Ana"}, "emails": {"ana@c.example\nnew@c.example"}}))
	d := b.WantRefused(b.Post(path+"/edit", form), http.StatusUnprocessableEntity)
	if !strings.Contains(d.Alert(), "ana@c.example, new@c.example") || webtest.Attr(d.Field("name"), "value") != "Ana L." {
		t.Errorf("got %q, and the name %q", d.Alert(), webtest.Attr(d.Field("name"), "value"))
	}
	b.Page(path).Want("new@c.example")
	form.Set("was", webtest.Attr(d.Field("was"), "value"))
	b.Follow(b.Post(path+"/edit", form))
	if text := webtest.Text(b.Page(path).Root); strings.Contains(text, "new@c.example") || !strings.Contains(text, "Ana L.") {
		t.Errorf("got %s", text)
	}
}

// TestLongNewTicket checks the length limit in any alphabet, and that a repeated form
// creates one ticket.
func TestLongNewTicket(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	form := url.Values{"customer.name": {"Ana"}, "channel": {"api"}, "subject": {"Long"}, "once": {webtest.Attr(b.Page("/tickets/new").Field("once"), "value")}}
	b.WantRefused(b.PostFiles("/tickets/new", url.Values{"text": {strings.Repeat("я", 100_000)}, "once": form["once"]}), http.StatusUnprocessableEntity)
	form.Set("text", strings.Repeat("я", 100_000))
	for range 2 {
		b.Follow(b.PostFiles("/tickets/new", form))
	}
	list, _, err := h.desk.FindTickets(t.Context(), h.DB, h.Organization.ID, desk.TicketQuery{})
	if err != nil || len(list) != 1 {
		t.Errorf("there are %d tickets, %v", len(list), err)
	}
}

// TestMadeUpAddresses checks that malformed paths are not found.
func TestMadeUpAddresses(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	for _, path := range []string{"/customers/%00", "/customers/%ff", "/customers?q=%00", "/inbox?after=%00~x", "/inbox?q=%ff", "/messages/%00/x/html"} {
		if w := b.Get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

// TestMergeCustomers merges two customers by the pages, and undoes it.
func TestMergeCustomers(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	ana := h.person(desk.NewCustomer{Name: "Ana Lopez", Emails: []string{"ana@c.example"}})
	same := h.person(desk.NewCustomer{Name: "ana lopez", Phones: []string{"+4915112345678"}})
	other := h.person(desk.NewCustomer{Name: "Bo", Emails: []string{"bo@c.example"}})
	page := "/customers/" + ana.ID
	b.Page(page).Want("Merge with…")
	b.Page(page+"/merge").Want("Same name", "ana lopez", "Preview merge")
	b.Page(page+"/merge?find=bo").Want("Search results", "Bo")
	b.Page(page + "/merge?find=nobody").Want("No other customers found")
	b.Page(page+"/merge?with="+same.ID).Want("Result", "ana@c.example", "+4915112345678", "0 tickets", "of ana lopez move to Ana Lopez")
	b.Page(page + "/merge?with=" + same.ID + "&keep=other").Want("of Ana Lopez move to ana lopez")
	d, notice := b.Follow(b.Post("/customers/"+same.ID+"/merge", url.Values{"into": {ana.ID}}))
	if d.Want("Merged customers", "+4915112345678", "Undo merge"); notice != "Customers merged. Undo" {
		t.Errorf("got notice %q", notice)
	}
	if a := b.Get("/customers/" + same.ID); a.Header().Get("Location") != page {
		t.Errorf("the merged customer leads to %q", a.Header().Get("Location"))
	}
	if got := people(b.Page("/customers")); !slices.Equal(got, []string{"Ana Lopez", "Bo"}) {
		t.Errorf("got %q", got)
	}
	if d, notice = b.Follow(b.Post("/customers/"+same.ID+"/unmerge", nil)); !strings.HasPrefix(notice, "Merge undone") {
		t.Errorf("got notice %q", notice)
	}
	d.Want("+4915112345678")
	eve := h.SignIn(h.NewUser(h.NewOrganization("Other"), "eve@example.com", "Eve", account.Admin))
	for _, path := range []string{page + "/merge", page + "/merge?with=" + other.ID} {
		if a := eve.Get(path); a.Code != http.StatusNotFound {
			t.Errorf("another organization gets %d of %s", a.Code, path)
		}
	}
}

// TestCustomerHistory pages through the history of a customer, and filters it by kind.
func TestCustomerHistory(t *testing.T) {
	h := newHarness(t)
	b := h.SignIn(h.Agent)
	const phone = "+14155550101"
	var id string
	for i := range 35 {
		id = h.receive("sms", channel.Message{ExternalID: fmt.Sprint("SM", i), ThreadKey: phone, From: channel.Party{Phone: phone, Name: "Ana"}, Text: fmt.Sprintf("words %02d.", i)}).CustomerID
	}
	page := "/customers/" + id
	d := b.Page(page)
	text := webtest.Text(d.Root)
	if !strings.Contains(text, "words 34.") || !strings.Contains(text, "words 05.") || strings.Contains(text, "words 04.") {
		t.Errorf("the first page is %s", text)
	}
	older := ""
	for _, n := range d.All("a") {
		if path := webtest.Attr(n, "href"); strings.Contains(path, "before=") {
			older = path
		}
	}
	text = webtest.Text(b.Page(older).Root)
	if !strings.Contains(text, "words 04.") || !strings.Contains(text, "words 00.") || !strings.Contains(text, "#1") || strings.Contains(text, "words 05.") {
		t.Errorf("the second page, %s, is %s", older, text)
	}
	for kind, want := range map[string][2]bool{"messages": {true, false}, "tickets": {false, true}, "orders": {}, "strange": {true, false}} {
		text := webtest.Text(b.Page(page + "?kind=" + kind).Root)
		if got := [2]bool{strings.Contains(text, "words 34."), strings.Contains(text, "#1 ")}; got != want {
			t.Errorf("%s: got messages and tickets %v, want %v in %s", kind, got, want, text)
		}
	}
	b.Page(page + "?before=x")
}
