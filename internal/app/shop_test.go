package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/shop"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

// running is a serving program with a shop's API and a webhook receiver.
type running struct {
	*App
	t    *testing.T
	data string
	base string
	seq  int

	mu            sync.Mutex
	subscriptions map[string]string // URL by topic
}

const (
	shopSecret   = "secret of the shop's app"
	mailSecret   = "secret of the mail converter"
	textSecret   = "secret of the text provider"
	sharedSecret = "secret of the deployment"
)

func serveApp(t *testing.T) *running {
	t.Helper()
	r := &running{t: t, data: t.TempDir(), subscriptions: map[string]string{}}
	api := httptest.NewServer(http.HandlerFunc(r.graphQL))
	t.Cleanup(api.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.base = "http://" + ln.Addr().String()
	r.App, err = Open(t.Context(), Config{
		BaseURL: r.base, Data: r.data, DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example",
		AccessLifetime: time.Hour, RefreshLifetime: time.Hour, RetryTimeScale: 1,
		APIURLs:               map[string]string{"storefront": api.URL + "/{shop}"},
		Secrets:               map[string][]string{"storefront": {sharedSecret}, "storefront-privacy": {sharedSecret}, "email-raw": {mailSecret}, "sms": {textSecret}},
		AllowPrivateReceivers: true, Web: true, Worker: true, StopTimeout: 10 * time.Second,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- r.Serve(ctx, ln, func() error { close(ready); return nil }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return r
}

// graphQL implements the part of a shop's API that subscriptions need.
func (r *running) graphQL(w http.ResponseWriter, req *http.Request) {
	var call struct {
		Query     string
		Variables struct {
			ID, Topic string
			Sub       struct{ URI string }
		}
	}
	if err := json.NewDecoder(req.Body).Decode(&call); err != nil || req.Header.Get("X-Shopify-Access-Token") != "shpat_token" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch v := call.Variables; {
	case strings.Contains(call.Query, "SubscriptionCreate"):
		r.subscriptions[v.Topic] = v.Sub.URI
		fmt.Fprint(w, `{"data":{"webhookSubscriptionCreate":{"userErrors":[]}}}`)
	case strings.Contains(call.Query, "SubscriptionDelete"):
		delete(r.subscriptions, v.ID)
		fmt.Fprint(w, `{"data":{"webhookSubscriptionDelete":{"userErrors":[]}}}`)
	default:
		nodes := []map[string]string{}
		for topic, uri := range r.subscriptions {
			nodes = append(nodes, map[string]string{"id": topic, "topic": topic, "uri": uri})
		}
		json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"webhookSubscriptions": map[string]any{"nodes": nodes, "pageInfo": map[string]any{}}}})
	}
}

// until polls for the result of background work.
func (r *running) until(what string, done func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(60 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// idle waits until all inbound events and deliveries are processed.
func (r *running) idle() {
	r.t.Helper()
	r.until("the queue is empty but for what is due later", func() bool {
		return r.count("SELECT count(*) FROM jobs WHERE run_at <= $1 AND kind <> $2", time.Now().UnixMicro(), "shop-subscriptions") == 0 &&
			r.count("SELECT count(*) FROM search_pending") == 0
	})
}

func (r *running) count(query string, args ...any) int {
	r.t.Helper()
	var n int
	if err := r.DB.QueryRow(r.t.Context(), query, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// send posts a request and returns its response.
func (r *running) send(method, address string, header http.Header, body []byte) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, address, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// notify posts a shop's webhook and checks the response.
func (r *running) notify(address, topic, domain, secret string, body any, status int, word string) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.seq++
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(storefront.TopicHeader, topic)
	header.Set(storefront.ShopHeader, domain)
	header.Set(storefront.WebhookIDHeader, fmt.Sprint("delivery-", r.seq))
	header.Set(storefront.SignatureHeader, storefront.Sign(text, secret))
	got, answer := r.send("POST", r.base+address, header, text)
	if want := fmt.Sprintf(`{"status":%q}`, word); got != status || status == 200 && answer != want {
		r.t.Fatalf("%s was answered %d %s, want %d %s", topic, got, answer, status, want)
	}
}

// organization creates an organization with an admin, and returns its id.
func (r *running) organization(name string) string {
	r.t.Helper()
	o, err := r.Accounts.CreateOrganization(r.t.Context(), account.NewOrganization{Name: name, Plan: account.Free})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Accounts.CreateUser(r.t.Context(), account.NewUser{Email: "admin@" + o.Slug + ".example", Password: "correct horse battery", Organization: o.Slug, Role: account.Admin}); err != nil {
		r.t.Fatal(err)
	}
	return o.ID
}

func (r *running) connect(n connection.New) connection.Connection {
	r.t.Helper()
	n.ByOperator = true
	c, _, err := r.Connections.Connect(r.t.Context(), n)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

const (
	acmeShop  = "acme-lamps.myshopify.com"
	otherShop = "other-lamps.myshopify.com"
)

func anaOrder(updated string, status string) map[string]any {
	return map[string]any{
		"id": json.Number("820982911946154508"), "name": "#77001", "email": "ana@client.example", "created_at": "2026-11-20T10:00:00Z", "updated_at": updated,
		"financial_status": status, "fulfillment_status": nil, "currency": "USD", "total_price": "42.00",
		"order_status_url": "https://" + acmeShop + "/1/orders/x", "line_items": []any{map[string]any{"id": 1, "title": "Lamp", "quantity": 1, "price": "42.00"}},
		"customer": map[string]any{"id": json.Number("115310627314723954"), "email": "ana@client.example", "first_name": "Anastasia", "last_name": "Qwertz", "phone": "+4915112345678"},
	}
}

// TestShop follows a shop from its connection to its removal, with a customer on several
// channels, and searches every table and file for her data after her redaction.
func TestShop(t *testing.T) {
	r := serveApp(t)
	acme, other := r.organization("Acme"), r.organization("Other")
	theShop := r.connect(connection.New{
		OrganizationID: acme, Channel: "storefront", Address: "https://ACME-Lamps.myshopify.com/admin", Secrets: []string{shopSecret},
		Credentials: map[string]string{"access_token": "shpat_token", "api_secret": "the app's api secret"},
	})
	r.connect(connection.New{OrganizationID: other, Channel: "storefront", Address: otherShop, Secrets: []string{"another secret"}})
	r.connect(connection.New{OrganizationID: acme, Channel: "email-raw", Address: "support@acme.example", Secrets: []string{mailSecret}})
	r.connect(connection.New{OrganizationID: acme, Channel: "sms", Address: "+14155550100", Secrets: []string{textSecret}})
	r.until("the shop has subscriptions", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.subscriptions) == 5 && r.subscriptions["ORDERS_CREATE"] == r.base+"/api/webhooks/storefront?c="+theShop.ID
	})

	// A receiver that echoes the request in its response.
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { io.Copy(w, req.Body) }))
	t.Cleanup(receiver.Close)
	if _, err := r.Webhooks.Create(t.Context(), acme, webhook.New{URL: receiver.URL + "/", Events: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	// Another organization's customer with the same address.
	var theirs desk.Customer
	if err := r.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		theirs, err = r.Desk.CreateCustomerTx(t.Context(), tx, other, desk.NewCustomer{Name: "Ana", Emails: []string{"ana@client.example"}})
		return err
	}); err != nil {
		t.Fatal(err)
	}

	hook := storefront.Path + "?c=" + theShop.ID
	r.notify(hook, storefront.OrdersUpdated, acmeShop, shopSecret, anaOrder("2026-11-20T11:00:00Z", "paid"), 200, "accepted")
	r.notify(hook, storefront.OrdersCreate, acmeShop, shopSecret, anaOrder("2026-11-20T10:00:00Z", "pending"), 200, "accepted")
	r.notify(hook, "products/update", acmeShop, shopSecret, map[string]any{"id": 1}, 200, "ignored")
	// For another domain, signed with a secret that others may know.
	r.notify(storefront.Path, storefront.OrdersCreate, otherShop, sharedSecret, anaOrder("2026-11-20T10:00:00Z", "paid"), 401, "")
	r.notify(storefront.Path, storefront.CustomersUpdate, acmeShop, sharedSecret, anaOrder("2026-11-20T10:00:00Z", "paid"), 401, "")
	r.notify(hook, storefront.OrdersCreate, acmeShop, "another secret", anaOrder("2026-11-20T10:00:00Z", "paid"), 401, "")
	r.idle()

	find := func(organizationID string) string {
		t.Helper()
		id, err := r.Desk.CustomerByContact(t.Context(), r.DB, organizationID, channel.Party{Email: "ana@client.example"})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ana := find(acme)
	orders, err := r.Shop.Orders(t.Context(), r.DB, acme, ana)
	if err != nil || len(orders) != 1 || orders[0].Status != "paid, not fulfilled" || ana == "" || ana == theirs.ID {
		t.Fatalf("Orders(%q) = %+v, %v, want the newest state of one", ana, orders, err)
	}
	if n := r.count("SELECT count(*) FROM tickets"); n != 0 {
		t.Errorf("orders gave rise to %d tickets", n)
	}

	// She writes by mail with a file, and by SMS.
	raw := []byte("From: Anastasia Qwertz <ana@client.example>\r\nTo: support@acme.example\r\nSubject: My xylophone order\r\nMessage-ID: <m1@client.example>\r\n" +
		"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nMy zeppelin is broken.\r\n" +
		"--b\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=\"qwertz-photo.txt\"\r\n\r\n" + strings.Repeat("the kaleidoscope ", 4000) + "\r\n--b--\r\n")
	signature, stamp := email.SignRaw(raw, time.Now(), mailSecret)
	if status, answer := r.send("POST", r.base+"/api/webhooks/inbound-email?style=raw", http.Header{
		"Content-Type": {"message/rfc822"}, "X-Envelope-From": {"ana@client.example"}, "X-Envelope-To": {"support@acme.example"},
		"X-Webhook-Signature": {signature}, "X-Webhook-Timestamp": {stamp},
	}, raw); status != 200 {
		t.Fatalf("her mail was answered %d %s", status, answer)
	}
	form := url.Values{"MessageSid": {"SM1"}, "From": {"+4915112345678"}, "To": {"+14155550100"}, "Body": {"Where is my zeppelin?"}, "NumMedia": {"0"}}
	if status, answer := r.send("POST", r.base+"/api/webhooks/sms", http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "X-Sms-Signature": {sms.Sign(r.base+"/api/webhooks/sms", form, textSecret)},
	}, []byte(form.Encode())); status != 200 {
		t.Fatalf("her text was answered %d %s", status, answer)
	}
	r.idle()

	needles := []string{"ana@client.example", "anastasia", "qwertz", "4915112345678", "zeppelin", "xylophone", "kaleidoscope", "115310627314723954", "820982911946154508", "77001"}
	found := r.search(needles, other)
	for _, n := range needles {
		if len(found[n]) == 0 {
			t.Errorf("%q is nowhere to begin with: the search is wrong", n)
		}
	}

	// The merchant requests her data.
	customer := map[string]any{"id": json.Number("115310627314723954"), "email": "ana@client.example", "phone": "+4915112345678"}
	see := map[string]any{"shop_id": 1, "shop_domain": acmeShop, "customer": customer, "orders_requested": []any{json.Number("820982911946154508")}, "data_request": map[string]any{"id": 9999}}
	privacy := storefront.NewPrivacy().Info().Path
	r.notify(privacy, string(channel.PrivacyDataRequest), acmeShop, shopSecret, see, 401, "") // the webhooks' secret is not valid here
	r.notify(privacy, string(channel.PrivacyDataRequest), acmeShop, "the app's api secret", see, 200, "accepted")
	r.notify(privacy, string(channel.PrivacyDataRequest), acmeShop, "the app's api secret", see, 200, "duplicate")
	requests := func(f shop.Filter) []*shop.Request {
		t.Helper()
		list, err := r.Shop.Requests(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	allDone := func(n int) func() bool {
		return func() bool {
			list := requests(shop.Filter{OrganizationID: acme})
			return len(list) == n && !slices.ContainsFunc(list, func(q *shop.Request) bool { return q.CompletedAt.IsZero() })
		}
	}
	r.until("the data went to the merchant", allDone(1))
	letters, err := r.mailbox.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(letters, func(m mail.Stored) bool { return strings.Contains(m.Subject, "Data of a customer") }); i < 0 || !strings.Contains(fmt.Sprint(letters[i].To), "admin@acme.example") {
		t.Errorf("the mails are %+v, want one with the data to Acme's administrator", letters)
	}

	// A second record of hers is merged into the first, and a third one was for a while.
	for i, record := range []string{"second.record", "third.record"} {
		if err := r.DB.Write(t.Context(), func(tx *db.Tx) error {
			c, err := r.Desk.CreateCustomerTx(t.Context(), tx, acme, desk.NewCustomer{Name: record, Emails: []string{record + "@client.example"}})
			if err != nil {
				return err
			}
			if _, err = r.Desk.MergeCustomersTx(t.Context(), tx, acme, c.ID, find(acme)); err != nil || i == 0 {
				return err
			}
			if _, err = r.Desk.UnmergeCustomerTx(t.Context(), tx, acme, c.ID); err != nil {
				return err
			}
			return r.Desk.DeleteCustomerTx(t.Context(), tx, acme, c.ID)
		}); err != nil {
			t.Fatal(err)
		}
	}
	needles = append(needles, "second.record")
	r.idle()

	// The merchant requests her redaction.
	forget := map[string]any{"shop_id": 1, "shop_domain": acmeShop, "customer": customer, "orders_to_redact": []any{json.Number("820982911946154508")}}
	r.notify(privacy, string(channel.PrivacyRedactCustomer), otherShop, sharedSecret, forget, 401, "")
	r.notify(privacy, string(channel.PrivacyRedactShop), acmeShop, sharedSecret, forget, 401, "")
	r.notify(privacy, string(channel.PrivacyRedactCustomer), acmeShop, "the app's api secret", forget, 200, "accepted")
	r.until("she is forgotten", allDone(2))
	r.idle()
	for n, places := range r.search(needles, other) {
		t.Errorf("%q is still in %q", n, places)
	}
	if c, err := r.Desk.Customer(t.Context(), r.DB, other, theirs.ID); err != nil || !slices.Equal(c.Emails, []string{"ana@client.example"}) {
		t.Errorf("the other organization's customer is %+v, %v, want them as they were", c, err)
	}
	if n := r.count("SELECT count(*) FROM tickets WHERE organization_id = $1", acme); n != 2 {
		t.Errorf("%d tickets are left, want both, empty", n)
	}
	r.notify(hook, storefront.OrdersUpdated, acmeShop, shopSecret, anaOrder("2026-11-20T11:00:00Z", "paid"), 200, "accepted") // another delivery of an old event
	r.idle()
	if id := find(acme); id != "" {
		t.Error("old news brought her back")
	}

	// The app is removed, and two days later the shop's redaction is requested.
	bob := map[string]any{"id": json.Number("2"), "email": "bob@client.example", "first_name": "Bob", "last_name": "", "phone": nil, "verified_email": true,
		"updated_at": time.Now().UTC().Format(time.RFC3339)}
	r.notify(hook, storefront.CustomersCreate, acmeShop, shopSecret, bob, 200, "accepted")
	r.idle()
	if n := r.count("SELECT count(*) FROM customers WHERE email = $1", "bob@client.example"); n != 1 {
		t.Fatalf("there are %d customers Bob, want 1", n)
	}
	r.notify(hook, storefront.AppUninstalled, acmeShop, shopSecret, map[string]any{"id": 1, "myshopify_domain": acmeShop, "name": "Acme"}, 200, "accepted")
	r.until("the connection is off", func() bool {
		return r.count("SELECT count(*) FROM connections WHERE id = $1 AND enabled", theShop.ID) == 0
	})
	r.notify(hook, storefront.OrdersUpdated, acmeShop, shopSecret, anaOrder("2026-11-22T11:00:00Z", "paid"), 401, "")
	r.notify(privacy, string(channel.PrivacyRedactShop), acmeShop, "the app's api secret", map[string]any{"shop_id": 1, "shop_domain": acmeShop}, 200, "accepted")
	r.until("the shop is forgotten", allDone(3))
	r.idle()
	for n, places := range r.search([]string{"bob@client.example"}, other) {
		t.Errorf("%q is still in %q", n, places)
	}
	// An unconnected shop belongs to the default organization.
	r.notify(privacy, string(channel.PrivacyRedactShop), "nobody.myshopify.com", sharedSecret, map[string]any{"shop_id": 2, "shop_domain": "nobody.myshopify.com"}, 200, "accepted")
	// The other shop's connection is removed, and its redaction comes later.
	for _, c := range mustList(t, r, other) {
		if err := r.DB.Write(t.Context(), func(tx *db.Tx) error { return r.Connections.DeleteTx(t.Context(), tx, other, c.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	r.notify(privacy, string(channel.PrivacyRedactShop), otherShop, sharedSecret, map[string]any{"shop_id": 3, "shop_domain": otherShop}, 200, "accepted")
	r.until("the other shop is forgotten", func() bool {
		list := requests(shop.Filter{OrganizationID: other})
		return len(list) == 1 && !list[0].CompletedAt.IsZero()
	})
}

func mustList(t *testing.T, r *running, organizationID string) []connection.Connection {
	t.Helper()
	list, err := r.Connections.List(t.Context(), organizationID)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// search searches every column of every table and every file of the blob store for texts,
// and returns where each is found. It skips rows of one organization.
func (r *running) search(needles []string, except string) map[string][]string {
	r.t.Helper()
	found := map[string][]string{}
	look := func(where, text string) {
		text = strings.ToLower(text)
		for _, n := range needles {
			if strings.Contains(text, n) && !slices.Contains(found[n], where) {
				found[n] = append(found[n], where)
			}
		}
	}
	list := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if r.DB.Postgres() {
		list = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	tables, err := db.All(r.t.Context(), r.DB, func(row db.Row) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, list)
	if err != nil || len(tables) < 30 {
		r.t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		if strings.HasPrefix(table, "ticket_words") {
			continue // a search index without text; its documents are searched
		}
		rows, err := r.DB.Query(r.t.Context(), "SELECT * FROM "+table)
		if err != nil {
			r.t.Fatal(err)
		}
		columns := rows.Columns()
		if err != nil {
			r.t.Fatal(err)
		}
		for rows.Next() {
			values := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				r.t.Fatal(err)
			}
			var texts []string
			for _, v := range values {
				if b, ok := v.([]byte); ok {
					v = string(b)
				}
				texts = append(texts, fmt.Sprint(v))
			}
			if !slices.Contains(texts, except) {
				look(table, strings.Join(texts, "\n"))
			}
		}
		if err := rows.Err(); err != nil {
			r.t.Fatal(err)
		}
		rows.Close()
	}
	err = filepath.WalkDir(filepath.Join(r.data, "attachments"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		look("the blob store", string(content))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}
