package shop_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

const domain = "acme-lamps.myshopify.com"

// ana receives a customer with an order from the shop, and returns the desk's id.
func (f *fixture) ana(o channel.Source) string {
	f.t.Helper()
	result, _ := f.intake(o, channel.Record{
		ExternalID: "191167", Customer: channel.Party{ID: "191167", Name: "Ana", Email: "ana@client.example", Phone: "+4915112345678"}, UpdatedAt: noon,
		Order: &channel.Order{ExternalID: "299938", Number: "#1001", Status: "paid", PlacedAt: noon, Items: []channel.OrderItem{{Name: "Lamp", Quantity: 1}}},
	})
	return result.CustomerID
}

func see(id string) channel.PrivacyRequest {
	return channel.PrivacyRequest{
		Kind: channel.PrivacyDataRequest, RequestID: id, Shop: domain, CustomerID: "191167", Email: "ana@client.example", OrderIDs: []string{"299938"},
	}
}

func redact() channel.PrivacyRequest {
	return channel.PrivacyRequest{Kind: channel.PrivacyRedactCustomer, Shop: domain, CustomerID: "191167", Email: "ana@client.example", OrderIDs: []string{"299938"}}
}

// unpack returns the files of an archive by name.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(content)
	}
	return files
}

func TestShow(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	id := f.ana(o)
	f.tickets[id] = []string{"ticket-1"}
	photo, err := f.blob.Put(t.Context(), strings.NewReader("a photo"))
	if err != nil {
		t.Fatal(err)
	}
	f.files[id] = []shop.File{{Name: "a1/photo.jpg", BlobKey: photo.Key}, {Name: "a2/lost.jpg", BlobKey: strings.Repeat("0", 64)}}

	request := f.intakeRequest(o, see("9999"))
	if again := f.intakeRequest(o, see("9999")); again != request {
		t.Errorf("the same request again is %s, want %s", again, request)
	}
	if r := f.request(request); !r.DueAt.Equal(o.ReceivedAt.Add(30*24*time.Hour)) || !r.CompletedAt.IsZero() || r.Subject != "191167" {
		t.Errorf("the request is %+v, want it due in 30 days", r)
	}

	f.refuse = errFar
	if err := f.CarryOut(t.Context(), request); err == nil {
		t.Error("the mail server is down, and the request is done")
	}
	if r := f.request(request); r.Attempts != 1 || !strings.Contains(r.Error, "the far side is down") || !r.CompletedAt.IsZero() {
		t.Errorf("after a failure the request is %+v, want the reason in it", r)
	}
	f.refuse = nil
	for range 2 { // the second run changes nothing
		if err := f.CarryOut(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if r := f.request(request); r.CompletedAt.IsZero() || r.Error != "" || r.Subject != "191167" {
		t.Errorf("the request is %+v, want it done", r)
	}
	if len(f.mails) != 1 || len(f.mails[0].To) != 2 || len(f.mails[0].Attachments) != 1 {
		t.Fatalf("%d mails went out: %+v; want one to two administrators with the archive", len(f.mails), f.mails)
	}
	files := unpack(t, f.mails[0].Attachments[0].Content)
	for name, want := range map[string][]string{
		"customer.json":      {`"email": "ana@client.example"`, `"ticket-1"`, `"number": "#1001"`, `"id": "` + request + `"`},
		"customer.txt":       {"email: ana@client.example\n", "- ticket-1\n", "number: #1001\n", "quantity: 1\n"},
		"files/a1/photo.jpg": {"a photo"},
	} {
		for _, text := range want {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s does not hold %q:\n%s", name, text, files[name])
			}
		}
	}
	if len(files) != 3 {
		t.Errorf("the archive has %d files, want 3", len(files))
	}
	if n := f.count("SELECT count(*) FROM privacy_requests WHERE details IS NOT NULL"); n != 0 {
		t.Error("what the request said of the person stayed after it was done")
	}
}

func TestShowNobody(t *testing.T) {
	f := open(t)
	request := f.intakeRequest(at("acme", "shop-1"), see(""))
	if err := f.CarryOut(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if len(f.mails) != 1 || !strings.Contains(f.mails[0].Text, "has no data of this person") {
		t.Errorf("the mails are %+v, want one that says that nobody is known", f.mails)
	}
	nobody := f.intakeRequest(at("nobody", "shop-2"), see(""))
	if err := f.CarryOut(t.Context(), nobody); err == nil || !strings.Contains(f.request(nobody).Error, "no administrator") {
		t.Errorf("without an administrator: %v, want it said and tried again", err)
	}
}

// TestLargeArchive: an archive too large for a mail can be downloaded for a while.
func TestLargeArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		f := newFixture(t, d)
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		o := channel.Source{OrganizationID: "acme", ConnectionID: "shop-1", TicketChannel: "storefront", ReceivedAt: time.Now()}
		id := f.ana(o)
		noise := make([]byte, shop.MaxMailed)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		ref, err := f.blob.Put(t.Context(), bytes.NewReader(noise))
		if err != nil {
			t.Fatal(err)
		}
		f.files[id] = []shop.File{{Name: "a1/film.mp4", BlobKey: ref.Key}}
		request := f.intakeRequest(o, see("1"))
		pass(time.Minute)
		if f.request(request).CompletedAt.IsZero() {
			t.Fatalf("the request is not done: %+v", f.request(request))
		}
		m := f.mails[0]
		if len(m.Attachments) != 0 {
			t.Fatal("the archive went along with the mail")
		}
		_, token, ok := strings.Cut(m.Text, "https://help.example"+shop.ExportPath)
		if !ok {
			t.Fatalf("the mail has no link:\n%s", m.Text)
		}
		token, _, _ = strings.Cut(token, "\n")
		r, err := f.OpenExport(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		r.Close()
		if err != nil || unpack(t, content)["files/a1/film.mp4"] != string(noise) {
			t.Errorf("the archive behind the link is not whole: %v", err)
		}
		if _, err := f.OpenExport(t.Context(), token+"x"); problem.Of(err) != problem.NotFound {
			t.Errorf("a link that nobody got: %v, want not found", err)
		}
		var key string
		if err := d.QueryRow(t.Context(), "SELECT blob_key FROM privacy_exports").Scan(&key); err != nil {
			t.Fatal(err)
		}
		pass(shop.LinkLife + time.Hour)
		if _, err := f.OpenExport(t.Context(), token); problem.Of(err) != problem.NotFound {
			t.Errorf("a link whose time is up: %v, want not found", err)
		}
		if _, err := f.blob.Open(t.Context(), key); err != blob.ErrNotFound {
			t.Errorf("the archive whose time is up: %v, want it gone", err)
		}
	})
}

// TestClaimIsNoFormerOwner: an unproven connection does not make an organization
// the former owner of a shop, which gets the requests of a disconnected shop.
func TestClaimIsNoFormerOwner(t *testing.T) {
	f := open(t)
	change := func(id, organization string, proven, gone bool) {
		c := shop.Connection{ID: id, OrganizationID: organization, Channel: "storefront", Address: domain, Enabled: true, Proven: proven}
		f.write(func(ctx context.Context, tx *db.Tx) error { return f.ConnectionChangedTx(ctx, tx, c, gone) })
	}
	want := func(when, owner string) {
		t.Helper()
		got, ok, err := f.FormerOwner(t.Context(), f.db, domain)
		if err != nil || got != owner || ok != (owner != "") {
			t.Errorf("%s: the former owner is %q, %t, %v; want %q", when, got, ok, err, owner)
		}
	}
	change("c1", "stranger", false, false)
	change("c1", "stranger", false, true)
	want("a stranger claimed it", "")
	change("c2", "acme", false, false)
	change("c2", "acme", true, false)
	change("c2", "acme", false, false) // its proof was lost
	change("c2", "acme", false, true)
	want("its owner proved it", "acme")
	change("c3", "stranger", false, false)
	want("a stranger claims it again", "acme")
}

// TestForgetCustomer fails at every redactor once, and checks the remaining data.
func TestForgetCustomer(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	id := f.ana(o)
	f.tickets[id] = []string{"ticket-1"}
	seen := f.intakeRequest(o, see("9999"))
	if err := f.CarryOut(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	other := f.ana(at("acme", "shop-2")) // the same person at another shop of the organization
	if other != id {
		t.Fatal("one person is two customers")
	}
	request := f.intakeRequest(o, redact())
	if again := f.intakeRequest(o, redact()); again != request {
		t.Errorf("the same request again is %s, want %s as long as it waits", again, request)
	}
	f.refuse = errFar
	if err := f.CarryOut(t.Context(), request); err == nil {
		t.Error("a keeper failed, and the request is done")
	}
	f.refuse = nil
	if err := f.CarryOut(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if r := f.request(request); r.CompletedAt.IsZero() || r.Subject != "" {
		t.Errorf("the request is %+v, want it done and about nobody", r)
	}
	if r := f.request(seen); r.Subject != "" {
		t.Errorf("the request before names %q, want nobody", r.Subject)
	}
	if !f.customers[id].redacted {
		t.Error("the desk still knows the customer")
	}
	// The second time, the desk no longer has the customer.
	for i, p := range f.forgotten {
		if p.CustomerID != id || !slices.Equal(p.TicketIDs, []string{"ticket-1"}) || !slices.Contains(p.Contacts, "+4915112345678") ||
			!slices.Equal(p.Names, []string{"191167", "299938"}) || !slices.Equal(p.Places, []string{"shop-1"}) {
			t.Errorf("call %d of the keeper was about %+v, want all that is known of the person", i+1, p)
		}
	}
	if len(f.forgotten) != 2 {
		t.Errorf("the keeper was called %d times, want twice", len(f.forgotten))
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM shop_orders WHERE place = 'shop-1'":          0,
		"SELECT count(*) FROM shop_orders WHERE place = 'shop-2'":          1, // the other shop's, without a customer
		"SELECT count(*) FROM shop_orders WHERE customer_id IS NOT NULL":   0,
		"SELECT count(*) FROM shop_customers":                              0,
		"SELECT count(*) FROM privacy_requests WHERE details IS NOT NULL":  0,
		"SELECT count(*) FROM privacy_requests WHERE request_key = '9999'": 1,
	} {
		if got := f.count(query); got != want {
			t.Errorf("%s = %d, want %d", query, got, want)
		}
	}
	// Older events do not restore the data; newer ones do.
	if result, _ := f.intake(o, channel.Record{ExternalID: "191167", Customer: channel.Party{Email: "ana@client.example"}, UpdatedAt: noon}); result.Outcome != shop.Redacted {
		t.Errorf("old news of the customer is %s, want it not taken", result.Outcome)
	}
	if result, _ := f.intake(o, channel.Record{UpdatedAt: noon, Order: &channel.Order{ExternalID: "299938"}}); result.Outcome != shop.Redacted {
		t.Errorf("old news of the order is %s, want it not taken", result.Outcome)
	}
	if result, _ := f.intake(at("acme", "shop-2"), channel.Record{UpdatedAt: noon, Order: &channel.Order{ExternalID: "299938"}}); result.Outcome == shop.Redacted {
		t.Error("another shop's order with the same id counts as forgotten")
	}
	if result, _ := f.intake(o, channel.Record{ExternalID: "191167", Customer: channel.Party{Email: "ana@client.example"}, UpdatedAt: noon.Add(2 * time.Hour)}); result.Outcome != shop.Recorded {
		t.Errorf("new news of the customer is %s, want it taken", result.Outcome)
	}
}

// TestForgetTheRightOne: the shop's id takes precedence over the address.
func TestForgetTheRightOne(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	id := f.ana(o)
	result, _ := f.intake(o, channel.Record{ExternalID: "2", Customer: channel.Party{ID: "2", Name: "Bob", Email: "bob@client.example"}, UpdatedAt: noon})
	p := redact()
	p.Email = "bob@client.example"
	if err := f.CarryOut(t.Context(), f.intakeRequest(o, p)); err != nil {
		t.Fatal(err)
	}
	if !f.customers[id].redacted || f.customers[result.CustomerID].redacted {
		t.Error("the address came before the shop's id")
	}
}

func TestForgetShop(t *testing.T) {
	f := open(t)
	o := at("acme", "shop-1")
	only := f.ana(o)
	wrote, _ := f.intake(o, channel.Record{ExternalID: "2", Customer: channel.Party{ID: "2", Name: "Bob", Email: "bob@client.example"}, UpdatedAt: noon})
	f.tickets[wrote.CustomerID] = []string{"ticket-1"}
	f.customers["known"] = &customer{name: "Cai", email: "cai@client.example"}
	known, _ := f.intake(o, channel.Record{ExternalID: "3", Customer: channel.Party{ID: "3", Name: "Cai", Email: "cai@client.example"}, UpdatedAt: noon})
	both, _ := f.intake(o, channel.Record{ExternalID: "4", Customer: channel.Party{ID: "4", Email: "dee@client.example"}, UpdatedAt: noon})
	f.intake(at("acme", "shop-2"), channel.Record{ExternalID: "4", Customer: channel.Party{ID: "4", Email: "dee@client.example"}, UpdatedAt: noon})
	for i := range 250 {
		f.intake(o, channel.Record{UpdatedAt: noon, Order: &channel.Order{ExternalID: fmt.Sprint(i), Returns: []channel.Return{{ExternalID: "r"}}}})
	}
	f.intakeRequest(o, see("9999"))
	request := f.intakeRequest(o, channel.PrivacyRequest{Kind: channel.PrivacyRedactShop, Shop: domain})
	if err := f.CarryOut(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	r := f.request(request)
	var outcome struct{ Customers, Orders int }
	if err := json.Unmarshal(r.Outcome, &outcome); err != nil || r.CompletedAt.IsZero() || outcome.Customers != 1 || outcome.Orders != 251 {
		t.Errorf("the request is %+v with %s, %v; want it done with 1 customer and 251 orders", r, r.Outcome, err)
	}
	for id, want := range map[string]bool{only: true, wrote.CustomerID: false, known.CustomerID: false, both.CustomerID: false} {
		if got := f.customers[id].redacted; got != want {
			t.Errorf("%s is redacted: %t, want %t", id, got, want)
		}
	}
	if ids := f.customers[wrote.CustomerID].ids; len(ids) != 0 {
		t.Errorf("who stays is still known by %q", ids)
	}
	for _, table := range []string{"shop_orders", "shop_returns"} {
		if n := f.count("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%s has %d rows, want none", table, n)
		}
	}
	if n := f.count("SELECT count(*) FROM shop_customers WHERE place = 'shop-2'"); n != 1 {
		t.Errorf("the other shop has %d customers, want its own", n)
	}
	if n := f.count("SELECT count(*) FROM privacy_requests WHERE subject IS NOT NULL"); n != 0 {
		t.Errorf("%d requests still name somebody", n)
	}
	if !slices.Equal(f.places, []string{"shop-1"}) || !slices.Equal(f.retired, []string{"shop-1"}) {
		t.Errorf("keepers were told of %q, and %q was switched off; want the shop's connection", f.places, f.retired)
	}
	if result, _ := f.intake(o, channel.Record{UpdatedAt: noon, Order: &channel.Order{ExternalID: "1"}}); result.Outcome != shop.Redacted {
		t.Errorf("old news of the shop is %s, want it not taken", result.Outcome)
	}
	// The shop is connected and removed again.
	o.ReceivedAt = noon.Add(24 * time.Hour)
	if again := f.intakeRequest(o, channel.PrivacyRequest{Kind: channel.PrivacyRedactShop, Shop: domain}); again == request {
		t.Error("a shop that went a second time is not erased again")
	}
}

// TestForgetBothShops: a customer of two shops is redacted with the last of them.
func TestForgetBothShops(t *testing.T) {
	f := open(t)
	first, second := at("acme", "shop-1"), at("acme", "shop-2")
	id := f.ana(first)
	f.intake(second, channel.Record{ExternalID: "9", Customer: channel.Party{ID: "9", Email: "ana@client.example"}, UpdatedAt: noon})
	erase := func(o channel.Source, shopDomain string) {
		t.Helper()
		if err := f.CarryOut(t.Context(), f.intakeRequest(o, channel.PrivacyRequest{Kind: channel.PrivacyRedactShop, Shop: shopDomain})); err != nil {
			t.Fatal(err)
		}
	}
	erase(first, domain)
	if f.customers[id].redacted {
		t.Fatal("the other shop's customer is redacted")
	}
	erase(second, "acme-beds.myshopify.com")
	if !f.customers[id].redacted {
		t.Error("who was known only from shops that are erased is still there")
	}
}
