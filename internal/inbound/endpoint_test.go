package inbound_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

func TestFirstMessagesAtOnce(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			h.wantAnswer(t, smsRequest(text(fmt.Sprintf("SM%d", i), theirs, fmt.Sprint(i)), secretOf(ours)), 200, twiml)
		})
	}
	wg.Wait()
	// In the order of acceptance: that in which the requests were stored.
	want, err := db.All(t.Context(), h.db, func(row db.Row) (n string, err error) {
		err = row.Scan(&n)
		return strings.TrimPrefix(n, "SM"), err
	}, "SELECT e.external_key FROM jobs j JOIN inbound_events e ON e.id = j.id ORDER BY j.seq")
	if err != nil {
		t.Fatal(err)
	}
	h.until(t, event.MessageCreated, 64)
	tickets := h.tickets(t, "org-1")
	if len(tickets) != 1 || len(tickets[0]) != 64 {
		t.Fatalf("%d tickets: %q, want one with 64 messages", len(tickets), tickets)
	}
	if n := h.count(t, "SELECT count(*) FROM customers"); n != 1 {
		t.Errorf("%d customers, want 1", n)
	}
	if !slices.Equal(tickets[0], want) {
		t.Errorf("messages %q, want in the order of acceptance %q", tickets[0], want)
	}
}

func mustList(t testing.TB, h *house, f inbound.Filter) []*inbound.StoredEvent {
	t.Helper()
	list, err := h.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestOneAfterTheOther(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	var want [2][]string
	for i := range 40 {
		// Two alternating senders.
		sender := i % 2
		h.wantAnswer(t, smsRequest(text(fmt.Sprintf("SM%d", i), theirs+strconv.Itoa(sender), fmt.Sprint(i)), secretOf(ours)), 200, twiml)
		want[sender] = append(want[sender], fmt.Sprint(i))
	}
	h.until(t, event.MessageCreated, 40)
	got := h.tickets(t, "org-1")
	slices.SortFunc(got, func(a, b []string) int { return len(a[0]) - len(b[0]) + strings.Compare(a[0], b[0]) })
	if !slices.EqualFunc(got, want[:], slices.Equal) {
		t.Errorf("tickets %q, want %q", got, want)
	}
}

func TestSameRequestAtOnce(t *testing.T) {
	h := start(t)
	h.connect(t, "email-raw", "help@acme.example")
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", "once")
	var mu sync.Mutex
	answers := make(map[string]int)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			w := h.do(mailRequest(mail, secretOf("help@acme.example"), "help@acme.example"))
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(w.Code, " ", w.Body)]++
		})
	}
	wg.Wait()
	accepted, duplicate := "200 {\"status\":\"accepted\"}\n", "200 {\"status\":\"duplicate\"}\n"
	if answers[accepted] != 1 || answers[duplicate] != 19 {
		t.Errorf("answers %v, want 1 accepted and 19 duplicate", answers)
	}
	h.until(t, event.MessageCreated, 1)
	h.wantTickets(t, "org-1", []string{"once"})
	h.wantAnswer(t, mailRequest(mail, secretOf("help@acme.example"), "help@acme.example"), 200, `{"status":"duplicate"}`+"\n")
	if n := h.count(t, "SELECT count(*) FROM inbound_events"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	want := []inbound.Count{{Channel: "email-raw", Accepted: 1, Duplicate: 20}, {Channel: "sms"}}
	if got := h.Counts(); !slices.Equal(got, want) {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestUnverified(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {""}} })
	const other = "+14155550102"
	h.connect(t, "sms", ours)
	h.connect(t, "sms", other, func(n *connection.New) { n.OrganizationID = "org-2" })
	h.connect(t, "email-raw", "help@acme.example")
	off := h.connect(t, "sms", "+14155550103")
	if err := h.connections.SetEnabled(t.Context(), "org-1", off.ID, false); err != nil {
		t.Fatal(err)
	}

	hello := text("SM1", theirs, "hello")
	to := func(address string) url.Values {
		form := text("SM1", theirs, "hello")
		form.Set("To", address)
		return form
	}
	header := func(r *http.Request, name, value string) *http.Request {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
		return r
	}
	altered := smsRequest(hello, secretOf(ours))
	altered.Body = http.NoBody
	altered.ContentLength = 0
	elsewhere := smsRequest(hello, secretOf(ours))
	elsewhere.RequestURI = smsPath + "?x=1"
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", "once")
	stale := mailRequest(mail, secretOf("help@acme.example"), "help@acme.example")
	signature, timestamp := email.SignRaw([]byte(mail), time.Now().Add(-6*time.Minute), secretOf("help@acme.example"))
	stale.Header.Set("X-Webhook-Signature", signature)
	stale.Header.Set("X-Webhook-Timestamp", timestamp)
	bearer := func(token string) *http.Request {
		r := httptest.NewRequest("POST", mailPath, strings.NewReader(mail))
		r.Header.Set("Content-Type", "message/rfc822")
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	unsigned := func(path, contentType, body string) *http.Request {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return r
	}

	before := h.rows(t)
	for _, tt := range []struct {
		name string
		r    *http.Request
	}{
		{"missing", header(smsRequest(hello, secretOf(ours)), "X-Twilio-Signature", "")},
		{"wrong secret", smsRequest(hello, "not the secret")},
		{"not base64", header(smsRequest(hello, secretOf(ours)), "X-Twilio-Signature", "???")},
		{"too short", header(smsRequest(hello, secretOf(ours)), "X-Twilio-Signature", "AAAA")},
		{"empty secret", smsRequest(hello, "")},
		{"body taken away", altered},
		{"another address called", elsewhere},
		{"another connection's secret", smsRequest(hello, secretOf(other))},
		{"own secret for another's address", smsRequest(to(other), secretOf(ours))},
		{"address that nobody has", smsRequest(to("+14155559999"), secretOf(ours))},
		{"no address", smsRequest(url.Values{"MessageSid": {"SM1"}, "Body": {"x"}}, secretOf(ours))},
		{"switched off", smsRequest(to("+14155550103"), secretOf("+14155550103"))},
		{"not a form", unsigned(smsPath, "application/x-www-form-urlencoded", "%zz")},
		{"nothing", unsigned(smsPath, "application/x-www-form-urlencoded", "")},
		{"mail, stale", stale},
		{"mail, wrong secret", mailRequest(mail, "not the secret", "help@acme.example")},
		{"mail, secret of a number", mailRequest(mail, secretOf(ours), "help@acme.example")},
		{"mail, to nobody", mailRequest(mail, secretOf("help@acme.example"), "nobody@acme.example")},
		{"mail, wrong token", bearer("not the secret")},
		{"mail, empty token", bearer("")},
		{"mail, unknown style", func() *http.Request {
			r := httptest.NewRequest("POST", mailPath+"?style=form", strings.NewReader(mail))
			r.Header = mailRequest(mail, secretOf("help@acme.example"), "help@acme.example").Header
			return r
		}()},
		{"mail, of no style", unsigned(mailPath, "application/json", `{"hello":"there"}`)},
		{"mail, broken JSON", unsigned(mailPath, "application/json", `{"raw":`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := h.do(tt.r)
			if w.Code != 401 || w.Body.String() != denied {
				t.Errorf("answered %d %q, want 401 %q", w.Code, w.Body, denied)
			}
			want := http.Header{
				"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(denied))}, "Cache-Control": {"no-store"},
				"Www-Authenticate": {`Basic realm="inbound"`}, "X-Content-Type-Options": {"nosniff"},
			}
			if fmt.Sprint(w.Header()) != fmt.Sprint(want) {
				t.Errorf("header %v, want %v", w.Header(), want)
			}
			h.wantUntouched(t, before)
		})
	}
	if n := h.files(t); n != 0 {
		t.Errorf("%d files, want none", n)
	}
	counts := h.Counts()
	if counts[0].Refused+counts[1].Refused != 23 || counts[1].Accepted != 0 {
		t.Errorf("counts %+v, want 23 refused in all", counts)
	}
	// A flood of forgeries is one entry per channel and network, with its source.
	for _, channel := range []string{"sms", "email-raw"} {
		want := "msg=security event=inbound.refused address=192.0.2.1 request_id="
		if n := strings.Count(h.logged(), "target="+channel); n != 1 || !strings.Contains(h.logged(), want) {
			t.Errorf("refusals on %s are logged %d times, want once with %q:\n%s", channel, n, want, h.logged())
		}
	}
	// The same request with a signature is accepted.
	h.wantAnswer(t, smsRequest(hello, secretOf(ours)), 200, twiml)
}

func TestForms(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	h.connect(t, "email-raw", "help@acme.example")
	before := h.rows(t)
	chunked := func(path, contentType string, size int64) *http.Request {
		r := httptest.NewRequest("POST", path, endless(size))
		r.Header.Set("Content-Type", contentType)
		// The body is read only if the signature is well-formed.
		r.Header.Set("X-Sms-Signature", base64.StdEncoding.EncodeToString(make([]byte, 20)))
		r.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
		r.ContentLength = -1
		return r
	}
	known := func(path, contentType string, size int64) *http.Request {
		r := chunked(path, contentType, size)
		r.ContentLength = size
		return r
	}
	const form, mail = "application/x-www-form-urlencoded", "message/rfc822"
	const smsLimit, mailLimit = 1 << 20, 35 << 20
	short := known(smsPath, form, 1000)
	short.ContentLength = 2000
	shortLarge := known(mailPath, mail, 100_000)
	shortLarge.ContentLength = 200_000
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		body   string
		allow  string
	}{
		{"GET", httptest.NewRequest("GET", smsPath, nil), 405, `{"error":"only POST is allowed"}`, "POST"},
		{"HEAD", httptest.NewRequest("HEAD", mailPath, nil), 405, `{"error":"only POST is allowed"}`, "POST"},
		{"PUT", httptest.NewRequest("PUT", smsPath, nil), 405, `{"error":"only POST is allowed"}`, "POST"},
		{"text instead of a form", known(smsPath, "text/plain", 10), 415, `{"error":"the content type text/plain is not supported"}`, ""},
		{"form instead of a form with files", known(smsPath, "multipart/form-data; boundary=x", 10), 415, `{"error":"the content type multipart/form-data is not supported"}`, ""},
		{"picture instead of mail", known(mailPath, "image/png", 10), 415, `{"error":"the content type image/png is not supported"}`, ""},
		{"unreadable type", known(mailPath, "image/", 10), 415, `{"error":"the content type given is not supported"}`, ""},
		{"text, as long as may be", known(smsPath, form, smsLimit), 401, strings.TrimSpace(denied), ""},
		{"text, too long", known(smsPath, form, smsLimit+1), 413, `{"error":"the body must not be larger than 1048576 bytes"}`, ""},
		{"text, too long by far", known(smsPath, form, 1<<40), 413, `{"error":"the body must not be larger than 1048576 bytes"}`, ""},
		{"text in chunks, as long as may be", chunked(smsPath, form, smsLimit), 401, strings.TrimSpace(denied), ""},
		{"text in chunks, too long", chunked(smsPath, form, smsLimit+1), 413, `{"error":"the body must not be larger than 1048576 bytes"}`, ""},
		{"mail, as long as may be", known(mailPath, mail, mailLimit), 401, strings.TrimSpace(denied), ""},
		{"mail, too long", known(mailPath, mail, mailLimit+1), 413, `{"error":"the body must not be larger than 36700160 bytes"}`, ""},
		{"mail in chunks, as long as may be", chunked(mailPath, mail, mailLimit), 401, strings.TrimSpace(denied), ""},
		{"mail in chunks, too long", chunked(mailPath, mail, mailLimit+1), 413, `{"error":"the body must not be larger than 36700160 bytes"}`, ""},
		{"cut off", short, 400, `{"error":"the body is incomplete"}`, ""},
		{"cut off, large", shortLarge, 400, `{"error":"the body is incomplete"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := h.do(tt.r)
			if w.Code != tt.status || strings.TrimSpace(w.Body.String()) != tt.body || w.Header().Get("Allow") != tt.allow {
				t.Errorf("answered %d %q, Allow %q; want %d %q, %q", w.Code, w.Body, w.Header().Get("Allow"), tt.status, tt.body, tt.allow)
			}
			h.wantUntouched(t, before)
		})
	}
}

// TestOverTheWire sends requests that no Go client would send.
func TestOverTheWire(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	srv := httptest.NewServer(h.mux)
	defer srv.Close()
	form := text("SM1", theirs, "hello")
	head := "Host: x\r\nContent-Type: application/x-www-form-urlencoded\r\nX-Sms-Signature: " + sms.Sign(baseURL+smsPath, form, secretOf(ours)) + "\r\n"
	body := form.Encode()
	before := h.rows(t)
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"cut off", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Content-Length: " + strconv.Itoa(len(body)+1) + "\r\n\r\n" + body, 400},
		{"chunk cut off", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s", len(body)+1, body), 400},
		{"last chunk missing", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(body), body), 400},
		{"chunk of no size", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body, 400},
		{"too long, told before", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Content-Length: 99999999\r\n\r\n", 413},
		{"absolute address", "POST http://evil.example" + smsPath + " HTTP/1.1\r\n" + head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body, 200},
		{"chunks", "POST " + smsPath + " HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(tt.request)); err != nil {
				t.Fatal(err)
			}
			if tt.status != 200 { // else the server would assume a lost connection
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.status {
				t.Errorf("answered %s, want %d", resp.Status, tt.status)
			}
			if tt.status != 200 {
				h.wantUntouched(t, before)
			}
		})
	}
	if n := h.count(t, "SELECT count(*) FROM inbound_events"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestUnreadable(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	h.connect(t, "email-raw", "help@acme.example")
	nobody := text("", "", "no id and no sender")
	const answer = `{"error":"the request is signed but cannot be read: a message needs MessageSid and From"}` + "\n"
	for range 3 {
		h.wantAnswer(t, smsRequest(nobody, secretOf(ours)), 400, answer)
	}
	h.wantAnswer(t, mailRequest(" \r\n", secretOf("help@acme.example"), "help@acme.example"), 401, denied) // names no recipient with a matching secret

	list := h.list(t, inbound.Rejected)
	if len(list) != 1 {
		t.Fatalf("%d rejected events, want 1", len(list))
	}
	e, err := h.Find(t.Context(), list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if e.OrganizationID != "org-1" || e.ConnectionID == "" || e.Kind != "unreadable" || string(e.Body) != nobody.Encode() ||
		e.Error != "a message needs MessageSid and From" || e.VerifiedBy != "connection, secret 1" {
		t.Errorf("rejected event %+v", e)
	}
	if n := h.count(t, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs, want none", n)
	}
	if c := h.Counts()[1]; c.Rejected != 3 || c.Accepted != 0 {
		t.Errorf("counts %+v, want 3 rejected", c)
	}
}

func TestUnreadableByDeployment(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"email-raw": {"the deployment's"}} })
	sole := "org-9"
	h.fallback.Store(&sole)
	h.wantAnswer(t, mailRequest(" \r\n", "the deployment's"), 400, `{"error":"the request is signed but cannot be read: there is no message"}`+"\n")
	list := h.list(t, inbound.Rejected)
	if len(list) != 1 || list[0].OrganizationID != "org-9" || list[0].ConnectionID != "" || list[0].VerifiedBy != "deployment, secret 1" {
		t.Errorf("rejected events %+v", list)
	}
}

func TestSeveralSecrets(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"sms": {"deployment new", "deployment old"}} })
	h.connect(t, "sms", ours, func(n *connection.New) { n.Secrets = []string{"connection new", "connection old"} })
	for i, tt := range []struct{ secret, by string }{
		{"connection new", "connection, secret 1"}, {"connection old", "connection, secret 2"},
		{"deployment new", "deployment, secret 1"}, {"deployment old", "deployment, secret 2"},
	} {
		h.wantAnswer(t, smsRequest(text(fmt.Sprintf("SM%d", i), theirs, tt.secret), tt.secret), 200, twiml)
		if e := h.list(t, inbound.Accepted)[0]; e.VerifiedBy != tt.by || e.OrganizationID != "org-1" || e.ConnectionID == "" {
			t.Errorf("event %+v, want verified by %q", e, tt.by)
		}
	}
	h.wantAnswer(t, smsRequest(text("SM9", theirs, "x"), "connection older"), 401, denied)
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t)
		c := h.connect(t, "sms", ours)
		n := 0
		post := func(secret string, status int) {
			t.Helper()
			n++
			if w := h.do(smsRequest(text(fmt.Sprintf("SM%d", n), theirs, "x"), secret)); w.Code != status {
				t.Errorf("secret %q: answered %d, want %d", secret, w.Code, status)
			}
		}
		post(secretOf(ours), 200)
		made, err := h.connections.Rotate(t.Context(), "org-1", c.ID, "", 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		post(secretOf(ours), 200)
		post(made, 200)
		time.Sleep(24*time.Hour + time.Second)
		post(secretOf(ours), 401)
		post(made, 200)
	})
}

func TestUnrouted(t *testing.T) {
	h := start(t, func(h *house) {
		h.secrets = map[string][]string{"sms": {"the deployment's"}, "email-raw": {"the deployment's"}}
	})
	h.connect(t, "sms", "+14155550102")
	other := h.connect(t, "sms", "+14155550103")
	if err := h.connections.SetEnabled(t.Context(), "org-1", other.ID, false); err != nil {
		t.Fatal(err)
	}
	// The number has no connection, and there are several organizations.
	for range 2 {
		h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), "the deployment's"), 200, twiml)
	}
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", "hello")
	for range 2 {
		h.wantAnswer(t, mailRequest(mail, "the deployment's", "help@acme.example"), 200, `{"status":"ignored"}`+"\n")
	}
	list := h.list(t, inbound.Unrouted)
	if len(list) != 2 || list[1].Address != ours || list[0].Address != "help@acme.example" {
		t.Fatalf("unrouted events %+v, want one for each address", list)
	}
	for _, e := range list {
		if e.OrganizationID != "" || e.ConnectionID != "" || e.VerifiedBy != "deployment, secret 1" {
			t.Errorf("unrouted event %+v", e)
		}
	}
	if n := h.count(t, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs, want none", n)
	}

	// The default organization receives events for unconnected numbers, but not those of a
	// disabled connection.
	sole := "org-2"
	h.fallback.Store(&sole)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "to the only one"), "the deployment's"), 200, twiml)
	off := text("SM3", theirs, "switched off")
	off.Set("To", "+14155550103")
	h.wantAnswer(t, smsRequest(off, "the deployment's"), 200, twiml)
	if list := h.list(t, inbound.Unrouted); len(list) != 3 || list[0].Address != "+14155550103" {
		t.Errorf("unrouted events %+v, want one more", list)
	}
	h.until(t, event.MessageCreated, 1)
	h.wantTickets(t, "org-2", []string{"to the only one"})
	h.wantTickets(t, "org-1")
}

func TestIgnored(t *testing.T) {
	h := start(t)
	h.connect(t, "sms", ours)
	h.connect(t, "email-raw", "help@acme.example")
	before := h.rows(t)
	status := url.Values{"MessageSid": {"SM1"}, "MessageStatus": {"pondering"}, "From": {ours}, "To": {theirs}}
	h.wantAnswer(t, smsRequest(status, secretOf(ours)), 200, twiml)
	h.wantUntouched(t, before)
	if c := h.Counts()[1]; c.Ignored != 1 {
		t.Errorf("counts %+v, want 1 ignored", c)
	}
}

func TestMessagingService(t *testing.T) {
	h := start(t)
	c := h.connect(t, "sms", "MG123")
	form := text("SM1", theirs, "through the service")
	form.Set("MessagingServiceSid", "MG123")
	h.wantAnswer(t, smsRequest(form, secretOf("MG123")), 200, twiml)
	// A connection of the number itself takes precedence.
	number := h.connect(t, "sms", ours, func(n *connection.New) { n.OrganizationID = "org-2" })
	form.Set("MessageSid", "SM2")
	h.wantAnswer(t, smsRequest(form, secretOf(ours)), 200, twiml)
	// And an event verified by the service's secret does not reach the number's connection.
	form.Set("MessageSid", "SM3")
	h.wantAnswer(t, smsRequest(form, secretOf("MG123")), 200, twiml)
	list := h.list(t, inbound.Accepted)
	if len(list) != 3 || list[2].ConnectionID != c.ID || list[1].ConnectionID != number.ID || list[0].ConnectionID != c.ID {
		t.Errorf("events %+v, want the connections %s, %s, %s", list, c.ID, number.ID, c.ID)
	}
}

func TestMailToTwo(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"email-raw": {"the deployment's"}} })
	h.connect(t, "email-raw", "help@acme.example")
	h.connect(t, "email-raw", "help@other.example", func(n *connection.New) { n.OrganizationID = "org-2" })
	to := []string{"Help+now@acme.example", "help@other.example", "nobody@else.example"}
	mail := func(id string) string {
		return mailText(id, "ana@client.example", "help@acme.example, help@other.example", id)
	}
	// Two of three recipients are connected.
	for _, want := range []string{"accepted", "duplicate"} {
		h.wantAnswer(t, mailRequest(mail("m1@client.example"), "the deployment's", to...), 200, `{"status":"`+want+`"}`+"\n")
	}
	// A connection's secret verifies only for its own address.
	h.wantAnswer(t, mailRequest(mail("m2@client.example"), secretOf("help@acme.example"), to...), 200, `{"status":"accepted"}`+"\n")
	// The delivery to the second address is not a duplicate.
	h.wantAnswer(t, mailRequest(mail("m2@client.example"), secretOf("help@other.example"), to...), 200, `{"status":"accepted"}`+"\n")

	h.until(t, event.MessageCreated, 4)
	h.wantTickets(t, "org-1", []string{"m1@client.example"}, []string{"m2@client.example"})
	h.wantTickets(t, "org-2", []string{"m1@client.example"}, []string{"m2@client.example"})
	if list := h.list(t, inbound.Unrouted); len(list) != 1 || list[0].Address != "nobody@else.example" {
		t.Errorf("unrouted events %+v, want one", list)
	}
}

func TestGuessedRecipients(t *testing.T) {
	h := start(t, func(h *house) { h.secrets = map[string][]string{"email-raw": {"the deployment's"}} })
	sole := "org-1"
	h.fallback.Store(&sole)
	h.connect(t, "email-raw", "help@acme.example")
	// Without an envelope, the recipients come from the headers: bob has no connection,
	// although ana addressed him.
	h.wantAnswer(t, mailRequest(mailText("m1@client.example", "ana@client.example", "bob@client.example, help@acme.example", "one"), "the deployment's"), 200, `{"status":"accepted"}`+"\n")
	// If none of them is connected, it is still one mail.
	h.wantAnswer(t, mailRequest(mailText("m2@client.example", "ana@client.example", "x@acme.example, y@acme.example", "two"), "the deployment's"), 200, `{"status":"accepted"}`+"\n")
	list := h.list(t, inbound.Accepted)
	if len(list) != 2 || list[1].Address != "help@acme.example" || list[1].ConnectionID == "" || list[0].Address != "x@acme.example" || list[0].ConnectionID != "" {
		t.Errorf("events %+v, want one for help@acme.example and one for x@acme.example", list)
	}
}

func TestCredentialsAreNotStored(t *testing.T) {
	h := start(t)
	const token = "hunter2-hunter2"
	h.connect(t, "email-raw", "help@acme.example", func(n *connection.New) { n.Secrets = []string{token} })
	mail := mailText("m1@client.example", "ana@client.example", "help@acme.example", "hello")
	r := httptest.NewRequest("POST", mailPath+"?from=ana%40client.example&Token="+token+"&a=1;api_key="+token+"&to=help@acme.example", strings.NewReader(mail))
	for name, value := range map[string]string{
		"Content-Type": "message/rfc822", "Authorization": "Bearer " + token, "Proxy-Authorization": token, "Cookie": "session=" + token,
		"X-Mailbox-Token": token, "X-Api-Key": token, "X-Auth-Secret": token, "Key": token,
		"User-Agent": "converter/1", "X-Odd": "caf\xe9", "I-Provider-Idempotency-Token": "again",
	} {
		r.Header.Set(name, value)
	}
	h.wantAnswer(t, r, 200, `{"status":"accepted"}`+"\n")
	e, err := h.Find(t.Context(), h.list(t, inbound.Accepted)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	const hidden = "(not stored)"
	want := http.Header{
		"Content-Type": {"message/rfc822"}, "Authorization": {hidden}, "Proxy-Authorization": {hidden}, "Cookie": {hidden},
		"X-Mailbox-Token": {hidden}, "X-Api-Key": {hidden}, "X-Auth-Secret": {hidden}, "Key": {hidden},
		"User-Agent": {"converter/1"}, "X-Odd": {"caf\uFFFD"}, "I-Provider-Idempotency-Token": {"again"},
	}
	if fmt.Sprint(e.Header) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", e.Header, want)
	}
	if want := baseURL + mailPath + "?from=ana%40client.example&Token=%28not+stored%29&a=1;api_key=%28not+stored%29&to=help@acme.example"; e.URL != want {
		t.Errorf("URL %s, want %s", e.URL, want)
	}
	// Nowhere.
	var found int
	for _, column := range []string{"url", "headers", "external_key", "sender", "address", "verified_by"} {
		found += h.count(t, "SELECT count(*) FROM inbound_events WHERE "+column+" LIKE $1", "%hunter2%")
	}
	if found != 0 || bytes.Contains(e.Body, []byte(token)) || strings.Contains(h.logged(), token) {
		t.Errorf("the token is stored or logged:\n%s", h.logged())
	}
	h.until(t, event.MessageCreated, 1)
	h.wantTickets(t, "org-1", []string{"hello"})
}

// TestDeploymentSecretIsStoredNowhere: a proxy copies the URL with the deployment's token into
// its own headers. The organization that receives the mail does not see the token.
func TestDeploymentSecretIsStoredNowhere(t *testing.T) {
	const token = "hunter2+hunter2/7"
	h := start(t, func(h *house) {
		h.adapters = []channel.Adapter{email.NewJSON(email.Config{})}
		h.secrets = map[string][]string{"email-json": {token}}
	})
	h.fallback.Store(new("org-1"))
	uri := mailPath + "?x=" + url.QueryEscape(token) + "&token=" + url.QueryEscape(token)
	r := httptest.NewRequest("POST", uri, strings.NewReader(`{"From":"ana@client.example","To":"help@acme.example","OriginalRecipient":"help@acme.example",
		"Subject":"Help","MessageID":"g1","TextBody":"hello","HtmlBody":"","MailboxHash":"","Headers":[]}`))
	r.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"X-Forwarded-Uri", "X-Original-Url", "Referer"} {
		r.Header.Set(name, "https://help.example"+uri)
	}
	r.Header.Set("X-Plain", token)
	h.wantAnswer(t, r, 200, accepted)
	e, err := h.Find(t.Context(), h.list(t, inbound.Accepted)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if shown := e.URL + fmt.Sprint(e.Header); strings.Contains(shown, "hunter2") || !strings.Contains(shown, "(not stored)") {
		t.Errorf("stored %s", shown)
	}
}

func TestAutoReply(t *testing.T) {
	const reply = `<?xml version="1.0" encoding="UTF-8"?><Response><Message>We&#39;ll be back &lt;soon&gt;.</Message></Response>`
	h := start(t)
	c := h.connect(t, "sms", ours, func(n *connection.New) { n.Settings = map[string]string{"auto_reply": "We'll be back <soon>."} })
	// The first message, a repetition, and a second one before the first is processed.
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, reply)
	h.wantAnswer(t, smsRequest(text("SM1", theirs, "hello"), secretOf(ours)), 200, twiml)
	h.wantAnswer(t, smsRequest(text("SM2", theirs, "still there?"), secretOf(ours)), 200, twiml)
	// A sender of STOP gets no answer, then or later.
	h.wantAnswer(t, smsRequest(text("SM3", theirs+"2", " Stop. "), secretOf(ours)), 200, twiml)
	// A delivery report is not a contact.
	h.wantAnswer(t, smsRequest(url.Values{"MessageSid": {"SM4"}, "MessageStatus": {"sent"}, "From": {ours}, "To": {theirs + "3"}}, secretOf(ours)), 200, twiml)
	// Many concurrent first messages get one answer.
	var mu sync.Mutex
	replies := 0
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			w := h.do(smsRequest(text(fmt.Sprintf("SM9%d", i), theirs+"9", "all at once"), secretOf(ours)))
			mu.Lock()
			defer mu.Unlock()
			if w.Body.String() == reply {
				replies++
			}
		})
	}
	wg.Wait()
	if replies != 1 {
		t.Errorf("%d replies to 16 first messages, want 1", replies)
	}
	h.until(t, event.MessageCreated, 19)
	// A sender with an existing thread gets no answer.
	h.exec(t, "DELETE FROM inbound_greetings WHERE connection_id = $1", c.ID)
	h.wantAnswer(t, smsRequest(text("SM5", theirs, "me again"), secretOf(ours)), 200, twiml)
	// Another connection has its own first messages.
	h.connect(t, "sms", "+14155550102", func(n *connection.New) { n.Settings = map[string]string{"auto_reply": "We'll be back <soon>."} })
	form := text("SM6", theirs, "another shop")
	form.Set("To", "+14155550102")
	h.wantAnswer(t, smsRequest(form, secretOf("+14155550102")), 200, reply)
}

// dispatcher accepts every message.
type dispatcher struct{}

func (dispatcher) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	m.MessageID = m.ID + "@client.example"
	return connectionID, nil
}

// TestAcknowledgement answers the first mail of a ticket with the connection's text, but not an
// automatic mail.
func TestAcknowledgement(t *testing.T) {
	h := start(t, func(h *house) { h.dispatcher = dispatcher{} })
	const to = "help@acme.example"
	h.connect(t, "email-raw", to, func(n *connection.New) { n.Settings = map[string]string{"auto_reply": "We have it."} })
	for i, mail := range []string{
		mailText("1@client.example", "ana@client.example", to, "Hello"),
		"In-Reply-To: <1@client.example>\r\n" + mailText("2@client.example", "ana@client.example", to, "Hello?"),
		"Auto-Submitted: auto-generated\r\n" + mailText("3@client.example", "robot@client.example", to, "Beep"),
		"List-Id: <l.client.example>\r\n" + mailText("4@client.example", "bob@client.example", to, "Hello"),
	} {
		if w := h.do(mailRequest(mail, secretOf(to), to)); w.Code != http.StatusOK {
			t.Fatalf("mail %d is answered %d", i+1, w.Code)
		}
	}
	h.until(t, event.MessageCreated, 5)
	list, err := db.All(t.Context(), h.db, func(row db.Row) (s string, err error) { err = row.Scan(&s); return s, err },
		"SELECT author_type || ' ' || delivery_state || ' ' || body FROM messages WHERE direction = 'outbound'")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"system queued We have it."}; !slices.Equal(list, want) {
		t.Errorf("outbound messages are %q, want %q", list, want)
	}
}
