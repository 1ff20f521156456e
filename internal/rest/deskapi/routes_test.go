package deskapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"

	"github.com/google/uuid"
)

// tenant is an organization with a key for everything, which creates the records to test routes
// on.
type tenant struct {
	*rig
	*resttest.Client
	t testing.TB // current test
}

func (r *rig) tenant(o account.Organization) tenant {
	r.Helper()
	return tenant{r, r.As(r.key(o, apikey.Permissions{Level: apikey.Admin})), r.TB}
}

func (p tenant) created(path, body string) fields {
	p.t.Helper()
	return send(p.t, p.Client, "POST", path, body, 201)
}

func (p tenant) ticket() fields {
	return p.created("/tickets", `{"subject":"Flat tyre","text":"It is flat.","customer":{"email":"alex@example.com"}}`)
}

// app creates a channel of the kind api.
func (p tenant) app() string {
	return "/channels/" + p.created("/channels", `{"channel":"api","address":"app-`+uuid.NewString()+`"}`).text("id")
}

const appMessage = `{"external_id":"m-1","conversation":"order-1001","user":{"id":"u-7"},"text":"Where is it?"}`

func (p tenant) webhook() string {
	return "/webhooks/" + p.created("/webhooks", `{"url":"http://127.0.0.1:1/","events":["*"]}`).text("id")
}

// samples create a record and return its path, by the path of its list. For other lists the
// POST creates one.
var samples = map[string]func(p tenant) string{
	"/tickets/{id}": func(p tenant) string { return "/tickets/" + p.ticket().text("id") },
	"/tickets/{id}/messages/{message_id}": func(p tenant) string {
		t := "/tickets/" + p.ticket().text("id")
		return t + "/messages/" + p.created(t+"/messages", `{"kind":"note","text":"Seen"}`).text("id")
	},
	"/tickets/{id}/unmerge": func(p tenant) string {
		t := "/tickets/" + p.ticket().text("id")
		send(p.t, p.Client, "POST", t+"/merge", `{"into":"`+p.ticket().text("id")+`"}`, 200)
		return t + "/unmerge"
	},
	"/customers/{id}/unmerge": func(p tenant) string {
		c := "/customers/" + p.created("/customers", `{"name":"Alex"}`).text("id")
		send(p.t, p.Client, "POST", c+"/merge", `{"into":"`+p.created("/customers", `{"name":"Sam"}`).text("id")+`"}`, 200)
		return c + "/unmerge"
	},
	"/tickets/{id}/followers/{member_id}": func(p tenant) string {
		path := "/tickets/" + p.ticket().text("id") + "/followers/" + p.grace.ID
		send(p.t, p.Client, "PUT", path, "", 200)
		return path
	},
	"/members/{member_id}": func(p tenant) string { return "/members/" + p.grace.ID },
	"/members/{member_id}/notices/{notice_id}": func(p tenant) string {
		send(p.t, p.Client, "PUT", "/tickets/"+p.ticket().text("id"), `{"assignee_id":"`+p.grace.ID+`"}`, 200)
		path := "/members/" + p.grace.ID + "/notices"
		return path + "/" + send(p.t, p.Client, "GET", path, "", 200).list("data")[0].text("id")
	},
	"/macros/{id}/attachments/{attachment_id}": func(p tenant) string {
		m := p.created("/macros", `{"name":"`+uuid.NewString()+`","text":"x","attachments":[{"name":"a.txt","content":"aGVsbG8="}]}`)
		return "/macros/" + m.text("id") + "/attachments/" + m.list("attachments")[0].text("id")
	},
	"/attachments/{id}": func(p tenant) string {
		m := p.created("/tickets/"+p.ticket().text("id")+"/messages", `{"kind":"reply","text":"","attachments":[{"name":"a.txt","content":"aGVsbG8="}]}`)
		return strings.TrimPrefix(m["attachments"].([]any)[0].(map[string]any)["url"].(string), origin+"/api/v1")
	},
	"/messages/{id}": func(p tenant) string {
		at := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
		return "/messages/" + p.created("/tickets/"+p.ticket().text("id")+"/messages", `{"kind":"reply","text":"Later","send_at":"`+at+`"}`).text("id")
	},
	"/webhooks/{id}": tenant.webhook,
	"/webhooks/{id}/deliveries/{delivery_id}": func(p tenant) string {
		w := p.webhook()
		send(p.t, p.Client, "POST", w+"/test", "", 200)
		list := send(p.t, p.Client, "GET", w+"/deliveries", "", 200)
		return w + "/deliveries/" + list["data"].([]any)[0].(map[string]any)["id"].(string)
	},
	"/channels/{id}": func(p tenant) string {
		return "/channels/" + p.created("/channels", `{"channel":"sms","address":"+1415555`+randomDigits()+`"}`).text("id")
	},
	"/channels/{id}/messages":   func(p tenant) string { return p.app() + "/messages" },
	"/channels/{id}/receipts":   func(p tenant) string { return p.app() + "/receipts" },
	"/channels/{id}/identities": func(p tenant) string { return p.app() + "/identities" },
	"/channels/{id}/typing": func(p tenant) string {
		app := p.app()
		p.created(app+"/messages", appMessage)
		return app + "/typing"
	},
	"/channels/{id}/identities/{user_id}": func(p tenant) string {
		app := p.app()
		send(p.t, p.Client, "POST", app+"/identities", `{"user_id":"u-7"}`, 200)
		return app + "/identities/u-7"
	},
	"/events/{id}": func(p tenant) string {
		p.ticket()
		list := send(p.t, p.Client, "GET", "/events", "", 200)
		return "/events/" + list["data"].([]any)[0].(map[string]any)["id"].(string)
	},
	"/inbound-events/{id}": func(p tenant) string {
		address := "support-" + uuid.NewString() + "@a.example"
		c := p.created("/channels", `{"channel":"email-raw","address":"`+address+`","secrets":["a secret of the tests"]}`)
		req := httptest.NewRequest("POST", origin+"/api/webhooks/inbound-email?style=raw", strings.NewReader(
			"From: alex@example.com\r\nTo: "+address+"\r\nSubject: Hello\r\nMessage-ID: <"+c.text("id")+"@example.com>\r\n\r\nHello\r\n"))
		req.Header.Set("Content-Type", "message/rfc822")
		req.Header.Set("X-Envelope-To", address)
		req.Header.Set("Authorization", "Bearer a secret of the tests")
		w := httptest.NewRecorder()
		p.mux.ServeHTTP(w, req)
		if w.Code != 200 {
			p.t.Fatalf("a mail is answered %d %s", w.Code, w.Body)
		}
		list := send(p.t, p.Client, "GET", "/inbound-events", "", 200)
		return "/inbound-events/" + list["data"].([]any)[0].(map[string]any)["id"].(string)
	},
	"/sla-policies/{priority}": func(p tenant) string {
		send(p.t, p.Client, "PUT", "/sla-policies/high", `{"first_response_minutes":60}`, 200)
		return "/sla-policies/high"
	},
}

func randomDigits() string {
	id := uuid.New()
	digits := make([]byte, 4)
	for i := range digits {
		digits[i] = '0' + id[i]%10
	}
	return string(digits)
}

// sample returns the path of a route on a new record.
func (p tenant) sample(rt *rest.Route) string {
	p.t.Helper()
	prefix := rt.Path
	for strings.Contains(prefix, "{") {
		if of := samples[prefix]; of != nil {
			return of(p) + strings.TrimPrefix(rt.Path, prefix)
		}
		prefix = prefix[:strings.LastIndex(prefix, "/")]
	}
	if prefix == rt.Path {
		return rt.Path
	}
	i := slices.IndexFunc(p.routes, func(o rest.Route) bool { return o.Method == "POST" && o.Path == prefix })
	if i < 0 || strings.Count(rt.Path, "{") > 1 {
		p.t.Fatalf("%s %s: add a sample", rt.Method, rt.Path)
	}
	id := p.created(prefix, p.body(&p.routes[i], prefix)).text("id")
	return prefix + "/" + id + rt.Path[strings.Index(rt.Path, "}")+1:]
}

// bodies are bodies that the OpenAPI document does not describe sufficiently; others are
// derived from its required fields.
var bodies = map[string]func(p tenant, path string) string{
	"createTicket": func(tenant, string) string { return `{"subject":"S","customer":{"email":"sam@example.com"}}` },
	"mergeTicket":  func(p tenant, _ string) string { return `{"into":"` + p.ticket().text("id") + `"}` },
	"mergeCustomer": func(p tenant, _ string) string {
		return `{"into":"` + p.created("/customers", `{"name":"Sam"}`).text("id") + `"}`
	},
	"splitTicket": func(p tenant, path string) string {
		m := p.created(strings.TrimSuffix(path, "/split")+"/messages", `{"kind":"note","text":"Seen"}`)
		return `{"message_ids":["` + m.text("id") + `"]}`
	},
	"createMacro": func(tenant, string) string {
		return `{"name":"` + uuid.NewString() + `","text":"Hello {{customer.first_name|there}}"}`
	},
	"addMacroAttachment":   func(tenant, string) string { return `{"name":"a.txt","content":"aGVsbG8="}` },
	"applyMacro":           func(p tenant, _ string) string { return `{"ticket_id":"` + p.ticket().text("id") + `"}` },
	"createWebhook":        func(tenant, string) string { return `{"url":"http://127.0.0.1:1/","events":["ticket.created"]}` },
	"createChannel":        func(tenant, string) string { return `{"channel":"sms","address":"+1415556` + randomDigits() + `"}` },
	"proveChannel":         func(tenant, string) string { return `{"way":"text"}` },
	"setSLAPolicy":         func(tenant, string) string { return `{"first_response_minutes":30}` },
	"createChannelMessage": func(tenant, string) string { return appMessage },
	"reportChannelReceipt": func(tenant, string) string {
		return `{"user_id":"u-7","conversation":"order-1001","state":"read"}`
	},
	"reportChannelTyping": func(tenant, string) string { return `{"user_id":"u-7","conversation":"order-1001"}` },
	"identifyChannelUser": func(tenant, string) string { return `{"user_id":"u-7","name":"Ana Client"}` },
	"replayDeliveries": func(tenant, string) string {
		return `{"from":"2026-01-01T00:00:00Z","to":"` + time.Now().UTC().Add(time.Hour).Format(time.RFC3339) + `"}`
	},
}

// queries are required queries of routes.
var queries = map[string]string{
	"search":             "?q=flat",
	"getTicketAnalytics": "?from=2026-01-01T00:00:00Z&to=2026-01-08T00:00:00Z",
}

// stuck are the error codes of routes that refuse samples because of their state.
var stuck = map[string]string{
	"replayDelivery":     "invalid_transition", // of a test delivery
	"replayInboundEvent": "invalid_transition", // of a waiting event
}

// body returns a valid body of the route.
func (p tenant) body(rt *rest.Route, path string) string {
	p.t.Helper()
	if of := bodies[rt.ID]; of != nil {
		return of(p, path)
	}
	if rt.Input == nil {
		return ""
	}
	return jsonOf(p.t, p.required(rt))
}

// required returns an object with the required fields of a body, by the document.
func (p tenant) required(rt *rest.Route) fields {
	p.t.Helper()
	type schema struct {
		Type       any
		Enum       []any
		Examples   []any
		Required   []string
		Properties map[string]schema
	}
	var doc struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(resttest.OpenAPI(p.t, p.api), &doc); err != nil {
		p.t.Fatal(err)
	}
	as := "_create"
	if rt.Method == "PUT" {
		as = "_update"
	}
	s := doc.Components.Schemas[rt.Input.Name+as]
	body := fields{}
	for _, name := range s.Required {
		switch of := s.Properties[name]; {
		case len(of.Examples) > 0:
			body[name] = of.Examples[0]
		case len(of.Enum) > 0:
			body[name] = of.Enum[0]
		case of.Type == "string":
			body[name] = "x"
		default:
			p.t.Fatalf("%s: add a body", rt.ID)
		}
	}
	return body
}

// TestRoutes tries every route with every kind of key.
func TestRoutes(t *testing.T) {
	r := newRig(t)
	us := r.tenant(r.ours)
	them := r.tenant(r.theirs)
	all := allResources()
	without := func(resource string) map[string][]apikey.Action {
		m := allResources()
		delete(m, resource)
		return m
	}
	level := func(l apikey.Level) string { return r.key(r.ours, apikey.Permissions{Level: l}) }
	keys := map[string]string{
		"read_only": level(apikey.ReadOnly), "read_write": level(apikey.ReadWrite), "admin": level(apikey.Admin),
		"all":                      r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{All: true}}),
		"every box":                r.key(r.ours, apikey.Permissions{Resources: apikey.Grants{Named: all}}),
		"read_only with every box": r.key(r.ours, apikey.Permissions{Level: apikey.ReadOnly, Resources: apikey.Grants{Named: all}}),
	}
	for resource := range all {
		keys["no "+resource] = r.key(r.ours, apikey.Permissions{Level: apikey.ReadWrite, Resources: apikey.Grants{Named: without(resource)}})
	}
	may := func(key string, p rest.Permission) bool {
		switch {
		case p == rest.Permission{}:
			return true
		case p.Resource == "settings":
			return key == "admin"
		case strings.HasPrefix(key, "read_only"):
			return p.Action == apikey.Read
		}
		return key != "no "+p.Resource
	}

	revoked, revokedToken := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.Admin}})
	if _, err := r.keys.Revoke(t.Context(), r.ours.ID, revoked.ID); err != nil {
		t.Fatal(err)
	}
	expired := r.expiredKey()
	_, fleet := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Service: apikey.Fleet, Environment: apikey.Live, Permissions: apikey.Permissions{Level: apikey.Admin}})
	_, sandbox := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Service: apikey.Fleet, Environment: apikey.Test, Permissions: apikey.Permissions{Level: apikey.Admin}})
	_, elsewhere := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.Admin}, AllowedIPs: []string{"198.51.100.7"}})
	mistyped := []byte(keys["admin"])
	mistyped[12] ^= 1
	// An address with this many failures would be refused.
	failures := 0
	from := func() string {
		failures++
		return "X-Forwarded-For: 203.0.113." + strconv.Itoa(1+failures/50)
	}

	for i := range r.routes {
		rt := &r.routes[i]
		t.Run(rt.ID, func(t *testing.T) {
			us, them := us, them
			us.t, them.t = t, t
			path := us.sample(rt) + queries[rt.ID]
			call := func(token, path, body string, headers ...string) resttest.Answer {
				return r.As(token).Do(rt.Method, path, body, headers...)
			}
			for _, test := range []struct {
				name, token string
				status      int
				code        string
			}{
				{"no key", "", 401, "missing_credentials"},
				{"a mistyped key", string(mistyped), 401, "invalid_api_key"},
				{"a revoked key", revokedToken, 401, "api_key_revoked"},
				{"an expired key", expired, 401, "api_key_expired"},
				{"a key of the fleet", fleet, 401, "invalid_api_key"},
				{"a key of the sandbox", sandbox, 401, "wrong_environment"},
				{"a refused address", elsewhere, 403, "ip_not_allowed"},
			} {
				refused(t, test.name, call(test.token, path, "", from()), test.status, test.code)
			}

			// A missing record distinguishes allowed keys from refused ones without a change.
			nowhere := rt.Path
			for strings.Contains(nowhere, "{") {
				a, b := strings.Index(nowhere, "{"), strings.Index(nowhere, "}")
				nowhere = nowhere[:a] + uuid.NewString() + nowhere[b+1:]
			}
			for name, token := range keys {
				a := call(token, nowhere, "{}")
				if may(name, rt.Needs) {
					if a.Status == 401 || a.Status == 403 || a.Status >= 500 {
						t.Errorf("key %s: got %d %s", name, a.Status, a.Body)
					}
					continue
				}
				refused(t, "key "+name, a, 403, "permission_denied")
				if got := a.Problem().Required; got != rt.Needs.String() {
					t.Errorf("key %s: required is %q, want %q", name, got, rt.Needs)
				}
			}
			for _, e := range rt.Expand {
				refused(t, "expanding "+e.Name, call(keys["no "+e.Needs.Resource], nowhere+"?expand[]="+e.Name, ""), 403, "permission_denied")
			}

			// A record of another organization is not found for any body.
			if strings.Contains(rt.Path, "id}") {
				body := us.body(rt, path)
				before := us.Do("GET", r.readable(rt, path), "")
				refused(t, "another's key", call(them.Token, path, body), 404, "not_found")
				refused(t, "what is not there", call(us.Token, nowhere, body), 404, "not_found")
				if rt.Input != nil {
					refused(t, "another's key with a bad body", call(them.Token, path, `{"nonsense":1}`), 404, "not_found")
				}
				if after := us.Do("GET", r.readable(rt, path), ""); after.Body != before.Body {
					t.Errorf("another's key changed\n%s to\n%s", before.Body, after.Body)
				}
			}

			a := call(us.Token, path, us.body(rt, path))
			if code := a.Code(); a.Status == 409 && code == stuck[rt.ID] {
				return
			}
			if a.Status != success(rt) {
				t.Fatalf("%s %s: got %d %s, want %d", rt.Method, path, a.Status, a.Body, success(rt))
			}
			switch {
			case rt.List:
				if !strings.Contains(a.Body, `"object":"list"`) {
					t.Errorf("a list is %s", a.Body)
				}
				if a := call(us.Token, path, "", "Accept: text/csv"); rt.Export && (a.Status != 200 || !strings.Contains(a.Body, "object,")) {
					t.Errorf("as CSV: %d %s", a.Status, a.Body)
				}
				refused(t, "a cursor of another list", call(us.Token, path+sep(path)+"cursor=AAAAAAAAAAAxMg", ""), 400, "invalid_cursor")
			case strings.HasPrefix(rt.ID, "create"):
				if a.Header.Get("Location") == "" || a.Header.Get("Etag") == "" {
					t.Errorf("made without Location or ETag: %v", a.Header)
				}
			}
			if rt.Method == "GET" {
				refused(t, "an unknown parameter", call(us.Token, path+sep(path)+"colour=red", ""), 400, "invalid_parameter")
			} else {
				refused(t, "a bad Idempotency-Key", call(us.Token, path, us.bodyOr(rt, path), "Idempotency-Key: a b"), 400, "invalid_idempotency_key")
			}
			if rt.Input != nil {
				refused(t, "an unknown member", call(us.Token, us.sample(rt), `{"nonsense":1}`), 422, "validation_failed")
				refused(t, "no JSON", call(us.Token, path, `{`), 400, "invalid_json")
				refused(t, "no JSON type", call(us.Token, path, `{}`, "Content-Type: text/plain"), 415, "unsupported_media_type")
			}
			if !rt.File {
				refused(t, "a picture", call(us.Token, path, "", "Accept: image/png"), 406, "not_acceptable")
			}
		})
	}
}

// bodyOr returns a body even if the record is deleted.
func (p tenant) bodyOr(rt *rest.Route, path string) string {
	if rt.ID == "splitTicket" {
		return `{"message_ids":["x"]}`
	}
	return p.body(rt, path)
}

func sep(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

func success(rt *rest.Route) int {
	switch {
	case rt.Status != 0:
		return rt.Status
	case rt.File || rt.Method != "POST" && rt.Output != nil:
		return 200
	case rt.Output == nil:
		return 204
	}
	return 201
}

// readable returns the GET of the record of a path.
func (r *rig) readable(rt *rest.Route, path string) string {
	r.Helper()
	prefix := rt.Path
	for strings.Contains(prefix, "{") {
		if slices.ContainsFunc(r.routes, func(o rest.Route) bool { return o.Method == "GET" && o.Path == prefix }) {
			return path
		}
		prefix, path = prefix[:strings.LastIndex(prefix, "/")], path[:strings.LastIndex(path, "/")]
	}
	r.Fatalf("%s: nothing of it can be read", rt.ID)
	return ""
}
