package shop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

// shopAPI is a shop's API for subscriptions.
type shopAPI struct {
	t *testing.T

	mu     sync.Mutex
	subs   map[string][2]string // id to topic and address
	next   int
	calls  []string // performed operations, in order
	paths  map[string]bool
	status int
	// refuse answers a call instead of the API; empty: not.
	refuse func(operation, topic string) string
}

func newShopAPI(t *testing.T) *shopAPI {
	return &shopAPI{t: t, subs: map[string][2]string{}, paths: map[string]bool{}, status: http.StatusOK, refuse: func(string, string) string { return "" }}
}

// handle answers one call.
func (a *shopAPI) handle(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var call struct {
		Query     string `json:"query"`
		Variables struct {
			ID     string            `json:"id"`
			Topic  string            `json:"topic"`
			Topics []string          `json:"topics"`
			Sub    map[string]string `json:"sub"`
			After  *string           `json:"after"`
		} `json:"variables"`
	}
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, err
	}
	if r.Header.Get("X-Shopify-Access-Token") != "shpat_token" {
		a.t.Errorf("a call has the token %q", r.Header.Get("X-Shopify-Access-Token"))
	}
	a.paths[r.URL.String()] = true
	answer := func(text string) (*http.Response, error) {
		return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(text)))}, nil
	}
	v := call.Variables
	address := v.Sub["uri"] + v.Sub["callbackUrl"]
	old := !strings.Contains(r.URL.Path, "2026-")
	if len(v.Sub) > 0 && (old == (v.Sub["uri"] != "") || v.Sub["format"] != "JSON") {
		a.t.Errorf("version %s was given %v", r.URL.Path, v.Sub)
	}
	operation := "list"
	for _, name := range []string{"Create", "Update", "Delete"} {
		if strings.Contains(call.Query, "webhookSubscription"+name) {
			operation = strings.ToLower(name)
		}
	}
	if refused := a.refuse(operation, v.Topic); refused != "" || a.status != http.StatusOK {
		return answer(refused)
	}
	switch operation {
	case "create":
		a.next++
		a.subs[strconv.Itoa(a.next)] = [2]string{v.Topic, address}
		a.calls = append(a.calls, "create "+v.Topic)
		return answer(`{"data":{"webhookSubscriptionCreate":{"webhookSubscription":{"id":"1"},"userErrors":[]}}}`)
	case "update":
		a.subs[v.ID] = [2]string{a.subs[v.ID][0], address}
		a.calls = append(a.calls, "update "+a.subs[v.ID][0])
		return answer(`{"data":{"webhookSubscriptionUpdate":{"webhookSubscription":{"id":"1"},"userErrors":[]}}}`)
	case "delete":
		a.calls = append(a.calls, "delete "+a.subs[v.ID][0])
		delete(a.subs, v.ID)
		return answer(`{"data":{"webhookSubscriptionDelete":{"deletedWebhookSubscriptionId":"1","userErrors":[]}}}`)
	}
	// Two to a page.
	ids := slices.Sorted(maps.Keys(a.subs))
	if v.After != nil {
		i, _ := slices.BinarySearch(ids, *v.After)
		ids = ids[i+1:]
	}
	more := len(ids) > 2
	ids = ids[:min(2, len(ids))]
	nodes := []map[string]any{}
	for _, id := range ids {
		if !slices.Contains(v.Topics, a.subs[id][0]) {
			continue
		}
		node := map[string]any{"id": id, "topic": a.subs[id][0]}
		if old {
			node["endpoint"] = map[string]string{"callbackUrl": a.subs[id][1]}
		} else {
			node["uri"] = a.subs[id][1]
		}
		nodes = append(nodes, node)
	}
	end := ""
	if len(ids) > 0 {
		end = ids[len(ids)-1]
	}
	text, err := json.Marshal(map[string]any{"data": map[string]any{"webhookSubscriptions": map[string]any{
		"nodes": nodes, "pageInfo": map[string]any{"hasNextPage": more, "endCursor": end},
	}}})
	if err != nil {
		return nil, err
	}
	return answer(string(text))
}

// done returns the operations since the last call.
func (a *shopAPI) done() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.calls
	a.calls = nil
	return list
}

var allTopics = []string{"ORDERS_CREATE", "ORDERS_UPDATED", "CUSTOMERS_CREATE", "CUSTOMERS_UPDATE", "APP_UNINSTALLED"}

func each(what string, topics []string) []string {
	var list []string
	for _, t := range topics {
		list = append(list, what+" "+t)
	}
	return list
}

// pass advances the clock of a bubble and waits for due jobs.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// subscribing runs a test in a bubble, with a connection and a shop.
func subscribing(t *testing.T, fn func(t *testing.T, f *fixture, a *shopAPI, change func(gone bool, edit func(*shop.Connection)))) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.NewSQLite(t))
		if err := f.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.queue.Stop(context.Background())
		a := newShopAPI(t)
		f.far = a.handle
		c := shop.Connection{ID: "shop-1", OrganizationID: "acme", Channel: "storefront", Address: domain, Enabled: true, Credentials: map[string]string{"access_token": "shpat_token"}}
		fn(t, f, a, func(gone bool, edit func(*shop.Connection)) {
			edit(&c)
			f.mu.Lock()
			f.connections[c.ID] = c
			if gone {
				delete(f.connections, c.ID)
			}
			f.mu.Unlock()
			f.write(func(ctx context.Context, tx *db.Tx) error { return f.ConnectionChangedTx(ctx, tx, c, gone) })
			pass(time.Minute)
		})
	})
}

func TestSubscriptions(t *testing.T) {
	subscribing(t, func(t *testing.T, f *fixture, a *shopAPI, change func(bool, func(*shop.Connection))) {
		const want = "https://help.example/api/webhooks/storefront?c=shop-1"
		check := func(what string, done []string, subs int) {
			t.Helper()
			if got := a.done(); !slices.Equal(got, done) {
				t.Errorf("%s: the shop was asked to %q, want %q", what, got, done)
			}
			if len(a.subs) != subs {
				t.Errorf("%s: the shop has %d subscriptions, want %d: %v", what, len(a.subs), subs, a.subs)
			}
		}
		// Subscriptions of other apps, and earlier ones of ours.
		a.subs["a1"] = [2]string{"ORDERS_CREATE", "https://elsewhere.example/hook"}
		a.subs["a2"] = [2]string{"ORDERS_CREATE", "https://help.example/api/webhooks/storefront?c=gone"}
		a.subs["a3"] = [2]string{"ORDERS_CREATE", want}
		a.subs["a4"] = [2]string{"ORDERS_UPDATED", "https://help.example/api/webhooks/storefront"}
		a.subs["a5"] = [2]string{"ORDERS_UPDATED", "https://help.example/api/webhooks/storefront-test"}
		change(false, func(*shop.Connection) {})
		check("connected", []string{"delete ORDERS_CREATE", "update ORDERS_UPDATED", "create CUSTOMERS_CREATE", "create CUSTOMERS_UPDATE", "create APP_UNINSTALLED"}, 7)
		for id, sub := range a.subs {
			if id != "a1" && id != "a5" && sub[1] != want {
				t.Errorf("%s posts to %s, want %s", sub[0], sub[1], want)
			}
		}
		if !a.paths["https://"+domain+"/admin/api/2026-10/graphql.json"] || len(a.paths) != 1 {
			t.Errorf("called %v, want the shop's own API", a.paths)
		}

		change(false, func(*shop.Connection) {})
		check("nothing changed", nil, 7)

		delete(a.subs, "a3") // the shop drops failing subscriptions
		pass(shop.Recheck)
		check("a day later", []string{"create ORDERS_CREATE"}, 7)
		pass(shop.Recheck)
		check("two days later", nil, 7)

		change(false, func(c *shop.Connection) { c.Enabled = false })
		check("switched off", each("delete", allTopics), 2)
		pass(2 * shop.Recheck)
		check("it stays off", nil, 2)
		change(false, func(c *shop.Connection) { c.Enabled = true; c.Settings = map[string]string{"api_version": "2024-07"} })
		check("switched on, with an old version", each("create", allTopics), 7)
		change(true, func(*shop.Connection) {})
		check("removed", each("delete", allTopics), 2)
		if n := f.count("SELECT count(*) FROM jobs"); n != 0 {
			t.Errorf("%d jobs are left of a connection that is gone", n)
		}
	})
}

func TestSubscriptionsRefused(t *testing.T) {
	const throttled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":110,"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":10,"restoreRate":50}}}}`
	const deniedText = `{"errors":[{"message":"Access denied for webhookSubscriptionCreate field.","extensions":{"code":"ACCESS_DENIED"}}]}`
	for _, tt := range []struct {
		name   string
		edit   func(a *shopAPI)
		subs   int    // after a minute
		notice string // part of it; empty: none
	}{
		{"an address that is taken", func(a *shopAPI) {
			a.refuse = func(operation, topic string) string {
				if operation == "create" {
					return `{"data":{"webhookSubscriptionCreate":{"webhookSubscription":null,"userErrors":[{"field":["webhookSubscription","callbackUrl"],"message":"Address for this topic has already been taken"}]}}}`
				}
				return ""
			}
		}, 0, ""},
		{"an address that is not allowed", func(a *shopAPI) {
			a.refuse = func(operation, topic string) string {
				if topic == "ORDERS_CREATE" {
					return `{"data":{"webhookSubscriptionCreate":{"webhookSubscription":null,"userErrors":[{"field":null,"message":"Address is not allowed"}]}}}`
				}
				return ""
			}
		}, 4, "refuses to let us subscribe to orders/create: Address is not allowed."},
		{"no approval of protected data", func(a *shopAPI) {
			a.refuse = func(operation, topic string) string {
				if strings.HasPrefix(topic, "ORDERS") || strings.HasPrefix(topic, "CUSTOMERS") {
					return deniedText
				}
				return ""
			}
		}, 1, "protected customer data"},
		{"throttled once", func(a *shopAPI) {
			n := 0
			a.refuse = func(string, string) string {
				if n++; n == 3 {
					return throttled
				}
				return ""
			}
		}, 5, ""},
		{"a token that is no good", func(a *shopAPI) { a.status = http.StatusUnauthorized }, 0, "refuses our access token"},
		{"too many requests", func(a *shopAPI) { a.status = http.StatusTooManyRequests }, 0, ""},
		{"a failure", func(a *shopAPI) { a.status = http.StatusBadGateway }, 0, "cannot be reached: it answered with status 502"},
		{"no JSON", func(a *shopAPI) { a.refuse = func(string, string) string { return "<html>" } }, 0, "its response cannot be decoded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subscribing(t, func(t *testing.T, f *fixture, a *shopAPI, change func(bool, func(*shop.Connection))) {
				tt.edit(a)
				change(false, func(*shop.Connection) {})
				if len(a.subs) != tt.subs {
					t.Errorf("the shop has %d subscriptions, want %d", len(a.subs), tt.subs)
				}
				if got := f.notices["shop-1"]; !strings.Contains(got, tt.notice) || tt.notice == "" && got != "" {
					t.Errorf("the notice is %q, want %q in it", got, tt.notice)
				}
				sub, err := f.Subscriptions(t.Context(), f.db, "shop-1")
				if err != nil || sub.Problem != f.notices["shop-1"] {
					t.Errorf("Subscriptions() = %+v, %v, want the notice", sub, err)
				}
				if strings.Contains(sub.Problem, "shpat_token") {
					t.Errorf("the notice holds the token: %s", sub.Problem)
				}
				// The next success clears the problem.
				a.mu.Lock()
				a.status, a.refuse = http.StatusOK, func(string, string) string { return "" }
				a.mu.Unlock()
				pass(shop.Recheck)
				if len(a.subs) != 5 || f.notices["shop-1"] != "" {
					t.Errorf("a day later the shop has %d subscriptions, and the notice is %q", len(a.subs), f.notices["shop-1"])
				}
			})
		})
	}
}

// TestUnreachable: an unreachable shop is shown as such, and ending its
// subscriptions is given up in the end.
func TestUnreachable(t *testing.T) {
	subscribing(t, func(t *testing.T, f *fixture, a *shopAPI, change func(bool, func(*shop.Connection))) {
		f.far = func(*http.Request) (*http.Response, error) { return nil, errFar }
		change(false, func(*shop.Connection) {})
		if got := f.notices["shop-1"]; !strings.Contains(got, "the far side is down") {
			t.Errorf("the notice is %q", got)
		}
		change(true, func(*shop.Connection) {})
		pass(8 * 24 * time.Hour)
		if n := f.count("SELECT count(*) FROM jobs"); n != 0 {
			t.Errorf("%d jobs are left after a week", n)
		}
	})
}

// TestNoToken: without a token there are no calls.
func TestNoToken(t *testing.T) {
	subscribing(t, func(t *testing.T, f *fixture, a *shopAPI, change func(bool, func(*shop.Connection))) {
		change(false, func(c *shop.Connection) { c.Credentials = nil })
		change(true, func(c *shop.Connection) {})
		if n := f.count("SELECT count(*) FROM jobs"); n != 0 || len(a.paths) != 0 {
			t.Errorf("%d jobs are left, and %v was called; want nothing", n, a.paths)
		}
	})
}
