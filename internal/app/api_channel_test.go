package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/rest/visitorapi"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// appRig is a running server with an organization, a channel of the kind api, and its app.
type appRig struct {
	*App
	t            *testing.T
	base         string
	organization account.Organization
	connection   connection.Connection
	secret, key  string

	mu    sync.Mutex
	posts []appPost // requests to the app
	fail  int       // status of the app's answers; 0: 204
}

type appPost struct {
	header http.Header
	body   map[string]any
	raw    []byte
}

const pageOrigin = "https://www.example.com"

func openAppRig(t *testing.T, webhook bool) *appRig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &appRig{t: t, base: "http://" + ln.Addr().String()}
	far := httptest.NewServer(http.HandlerFunc(r.receive))
	t.Cleanup(far.Close)
	r.App, err = Open(t.Context(), Config{
		BaseURL: r.base, Data: t.TempDir(), DatabaseURL: dbtest.URL(t), MailFrom: "no-reply@help.example", RetryTimeScale: 0.001,
		AllowPrivateReceivers: true, Web: true, Worker: true, StopTimeout: 10 * time.Second,
	}, quiet)
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
		r.Close()
	})
	<-ready
	r.organization = signUp(t, r.App, "Ours")
	credentials := map[string]string{}
	if webhook {
		credentials["webhook_url"] = far.URL + "/kickstand"
	}
	r.connection, r.secret = r.connect(r.organization, credentials)
	r.key = r.fullKey(r.organization)
	return r
}

func (r *appRig) connect(o account.Organization, credentials map[string]string) (connection.Connection, string) {
	r.t.Helper()
	c, secrets, err := r.Connections.Connect(r.t.Context(), connection.New{
		OrganizationID: o.ID, Channel: "api", Address: "app", Credentials: credentials, Settings: map[string]string{"origins": pageOrigin}, ByOperator: true,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return c, secrets[0]
}

func (r *appRig) fullKey(o account.Organization) string {
	r.t.Helper()
	_, token, err := r.Keys.Create(r.t.Context(), apikey.New{
		OrganizationID: o.ID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: o.Slug, Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return token.Reveal()
}

// receive is the app's endpoint.
func (r *appRig) receive(w http.ResponseWriter, q *http.Request) {
	raw, err := io.ReadAll(q.Body)
	if err != nil {
		return // the sender gave up: a report of typing is not waited for
	}
	p := appPost{header: q.Header.Clone(), raw: raw}
	if err := json.Unmarshal(raw, &p.body); err != nil {
		r.t.Errorf("the app got %s", raw)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, p)
	if r.fail != 0 {
		w.WriteHeader(r.fail)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *appRig) answerWith(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = status
}

// got returns the app's requests of a type.
func (r *appRig) got(kind string) []appPost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.posts), func(p appPost) bool { return p.body["type"] != kind })
}

// until waits for a condition.
func (r *appRig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("timeout: %s", what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatal("the test ended")
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) text(name string) string { s, _ := a.body[name].(string); return s }

func (r *appRig) do(method, path, token, contentType, body string, header ...string) answer {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		q.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &a.body); err != nil {
			r.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
		}
	}
	return a
}

// rest sends a request to the REST API of the channel.
func (r *appRig) rest(method, path, body string) answer {
	r.t.Helper()
	return r.do(method, "/api/v1/channels/"+r.connection.ID+path, r.key, "application/json", body)
}

// visitor sends a request of a user to the visitors' API.
func (r *appRig) visitor(user, method, path, body string, header ...string) answer {
	r.t.Helper()
	return r.do(method, visitorapi.Base+"/"+r.connection.ID+path, r.token(user), "application/json", body, header...)
}

func (r *appRig) token(user string) string {
	return api.SignToken(api.User{ID: user, Name: "Name of " + user}, r.connection.ID, r.secret, r.DB.Now().Add(time.Hour))
}

func (r *appRig) messages(ticketID string) []desk.Message {
	r.t.Helper()
	list, err := r.Desk.Messages(r.t.Context(), r.DB, r.organization.ID, ticketID)
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

func (r *appRig) reply(ticketID, text string) desk.Message {
	r.t.Helper()
	says, err := r.Desk.Compose(r.t.Context(), r.organization.ID, desk.Draft{Text: text})
	if err != nil {
		r.t.Fatal(err)
	}
	var m desk.Message
	err = r.DB.Write(r.t.Context(), func(tx *db.Tx) error {
		m, err = r.Desk.ReplyTx(r.t.Context(), tx, r.organization.ID, ticketID, desk.Reply{By: desk.Actor{ID: "u", Name: "Kim"}, Content: says})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *appRig) state(m desk.Message) desk.Delivery {
	r.t.Helper()
	list := r.messages(m.TicketID)
	i := slices.IndexFunc(list, func(l desk.Message) bool { return l.ID == m.ID })
	return list[i].Delivery
}

const firstMessage = `{"external_id":"m-1","conversation":"order-1001","user":{"id":"u-7","name":"Ana Client","email":"ana@client.example"},"subject":"My order","text":"Where is it?",
	"files":[{"name":"a.txt","content_type":"text/plain","content":"aGVsbG8="},{"name":"b.txt","url":"https://files.invalid/b.txt"}],"metadata":{"page":"/orders"}}`

// TestAppMessages: messages by the REST API are stored once, place themselves by the app's ids, and
// replies come back signed, once acknowledged, with receipts.
func TestAppMessages(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, true)
	first := r.rest("POST", "/messages", firstMessage)
	if first.status != 201 || first.body["duplicate"] != false || first.text("external_id") != "m-1" {
		t.Fatalf("the first message: %+v", first)
	}
	ticket := first.text("ticket_id")
	again := r.rest("POST", "/messages", firstMessage)
	if again.status != 201 || again.body["duplicate"] != true || again.text("id") != first.text("id") || again.text("ticket_id") != ticket {
		t.Fatalf("a repeated message: %+v", again)
	}
	next := r.rest("POST", "/messages", `{"external_id":"m-2","conversation":"order-1001","user":{"id":"u-7"},"text":"Hello?"}`)
	other := r.rest("POST", "/messages", `{"external_id":"m-3","conversation":"order-1002","user":{"id":"u-7"},"text":"Another one"}`)
	stranger := r.rest("POST", "/messages", `{"external_id":"m-1","conversation":"order-1001","user":{"id":"u-8"},"text":"The same ids of another user"}`)
	if next.text("ticket_id") != ticket || other.text("ticket_id") == ticket || stranger.text("ticket_id") == ticket || stranger.body["duplicate"] != false {
		t.Errorf("tickets: %v, %v, %v, %v", ticket, next.body, other.body, stranger.body)
	}
	list := r.messages(ticket)
	if len(list) != 2 || list[0].Text != "Where is it?" || len(list[0].Attachments) != 2 || list[0].Attachments[0].Size != 5 || list[0].Details.Metadata["page"] != "/orders" {
		t.Fatalf("messages: %+v", list)
	}
	if f := list[0].Attachments[1]; f.Name != "b.txt" || !f.Pending && f.Error == "" {
		t.Errorf("the file behind a link: %+v, want it to be fetched", f)
	}

	r.answerWith(http.StatusServiceUnavailable)
	m := r.reply(ticket, "It is on its way.")
	r.until("a first attempt", func() bool { return len(r.got("message.created")) > 0 })
	r.answerWith(0)
	r.until("the reply is sent", func() bool { return r.state(m).State == "sent" })
	posts := r.got("message.created")
	if len(posts) < 2 {
		t.Errorf("%d posts, want a repetition", len(posts))
	}
	for _, p := range posts {
		if err := payload.VerifyStandard(p.header, p.raw, r.secret, r.DB.Now()); err != nil || p.header.Get("Webhook-Id") != m.ID {
			t.Errorf("post %v: %v", p.header, err)
		}
		message, _ := p.body["message"].(map[string]any)
		if p.body["user_id"] != "u-7" || p.body["conversation"] != "order-1001" || message["id"] != m.ID || message["text"] != "It is on its way." {
			t.Errorf("post: %s", p.raw)
		}
	}
	for _, tt := range []struct {
		body    string
		applied bool
		state   string
	}{
		{`{"message_id":"` + m.ID + `","state":"delivered"}`, true, "delivered"},
		{`{"user_id":"u-8","conversation":"order-1001","state":"read"}`, false, "delivered"},
		{`{"user_id":"u-7","conversation":"order-1001","state":"read"}`, true, "read"},
		{`{"message_id":"` + m.ID + `","state":"failed","error":"late"}`, true, "read"},
		{`{"message_id":"0198c0de-0000-7000-8000-000000000001","state":"read"}`, false, "read"},
	} {
		if got := r.rest("POST", "/receipts", tt.body); got.status != 200 || got.body["applied"] != tt.applied || string(r.state(m).State) != tt.state {
			t.Errorf("receipt %s: %+v, state %v, want applied %t, %s", tt.body, got, r.state(m), tt.applied, tt.state)
		}
	}

	r.answerWith(http.StatusGone)
	refused := r.reply(ticket, "Are you there?")
	r.until("a refused reply", func() bool { return r.state(refused).State == "failed" })
	if why := r.state(refused).Error; !strings.Contains(why, "410") {
		t.Errorf("the reason is %q", why)
	}
	r.answerWith(0)
	failed := r.reply(ticket, "Once more")
	r.until("the reply is sent", func() bool { return r.state(failed).State == "sent" })
	if got := r.rest("POST", "/receipts", `{"message_id":"`+failed.ID+`","state":"failed","error":"the app was deleted"}`); got.body["applied"] != true || r.state(failed).Error != "the app was deleted" {
		t.Errorf("a failed receipt: %+v, %+v", got, r.state(failed))
	}
}

// TestAppRefusals: requests that are not valid change nothing, and channels of strangers and of
// other kinds do not exist here.
func TestAppRefusals(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	theirs := signUp(t, r.App, "Theirs")
	foreign, _ := r.connect(theirs, nil) // of the same name
	text, _, err := r.Connections.Connect(t.Context(), connection.New{OrganizationID: r.organization.ID, Channel: "sms", Address: "+14155550100"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) string { return "/api/v1/channels/" + id }
	for _, tt := range []struct {
		name, path, body string
		status           int
		code             string
	}{
		{"a stranger's channel", at(foreign.ID) + "/messages", firstMessage, 404, "not_found"},
		{"another kind", at(text.ID) + "/messages", firstMessage, 409, "invalid_transition"},
		{"no text", at(r.connection.ID) + "/messages", `{"external_id":"m","conversation":"c","user":{"id":"u"}}`, 422, "validation_failed"},
		{"no user", at(r.connection.ID) + "/messages", `{"external_id":"m","conversation":"c","text":"x"}`, 422, "validation_failed"},
		{"an id with a slash", at(r.connection.ID) + "/messages", `{"external_id":"m","conversation":"c","user":{"id":"a/b"},"text":"x"}`, 422, "validation_failed"},
		{"a private URL", at(r.connection.ID) + "/messages", `{"external_id":"m","conversation":"c","user":{"id":"u"},"files":[{"name":"a","url":"https://127.0.0.1/"}]}`, 422, "validation_failed"},
		{"a state of ours", at(r.connection.ID) + "/receipts", `{"message_id":"0198c0de-0000-7000-8000-000000000001","state":"queued"}`, 422, "validation_failed"},
		{"a receipt of nothing", at(r.connection.ID) + "/receipts", `{"state":"read"}`, 422, "validation_failed"},
		{"typing in no conversation", at(r.connection.ID) + "/typing", `{"user_id":"u","conversation":"c"}`, 404, "not_found"},
		{"an identity without a user", at(r.connection.ID) + "/identities", `{"name":"x"}`, 422, "validation_failed"},
		{"an address that is none", at(r.connection.ID) + "/identities", `{"user_id":"u","email":"x"}`, 422, "validation_failed"},
	} {
		if got := r.do("POST", tt.path, r.key, "application/json", tt.body); got.status != tt.status || got.text("code") != tt.code {
			t.Errorf("%s: %d %v, want %d %s", tt.name, got.status, got.body, tt.status, tt.code)
		}
	}
	var n int
	if err := r.DB.QueryRow(t.Context(), "SELECT count(*) FROM tickets").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tickets, %v, want none", n, err)
	}
}

// TestAppIdentities: a user's customer is created, changed, and joined by address.
func TestAppIdentities(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	first := r.rest("POST", "/identities", `{"user_id":"u-7","name":"Ana","email":"ana@client.example","metadata":{"plan":"pro"}}`)
	if first.status != 200 || first.text("name") != "Ana" {
		t.Fatalf("a new identity: %+v", first)
	}
	second := r.rest("POST", "/identities", `{"user_id":"u-7","name":"Ana Client","phone":"+1 415 555 0123"}`)
	if second.text("customer_id") != first.text("customer_id") || second.text("name") != "Ana Client" || fmt.Sprint(second.body["phones"], second.body["metadata"]) != "[+14155550123] map[plan:pro]" {
		t.Errorf("a changed identity: %+v", second)
	}
	joined := r.rest("POST", "/identities", `{"user_id":"u-7b","email":"ANA@client.example"}`)
	if joined.text("customer_id") != first.text("customer_id") {
		t.Errorf("the same address: %+v", joined)
	}
	read := r.rest("GET", "/identities/u-7b", "")
	if read.status != 200 || read.text("customer_id") != first.text("customer_id") {
		t.Errorf("read: %+v", read)
	}
	if none := r.rest("GET", "/identities/u-9", ""); none.status != 404 {
		t.Errorf("an unknown user: %+v", none)
	}
	m := r.rest("POST", "/messages", `{"external_id":"m","conversation":"c","user":{"id":"u-7"},"text":"Hello"}`)
	if got := r.messages(m.text("ticket_id")); got[0].Author.ID != first.text("customer_id") {
		t.Errorf("the message is by %+v", got[0].Author)
	}
}

// TestSignedAppRequests: the endpoint takes messages and receipts that are signed with the channel's
// secret, and each once.
func TestSignedAppRequests(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	post := func(id, body, secret string) answer {
		h := http.Header{}
		api.Sign(h, id, r.DB.Now(), []byte(body), secret)
		return r.do("POST", "/api/webhooks/api?c="+r.connection.ID, "", "application/json", body,
			"Webhook-Id", h.Get("Webhook-Id"), "Webhook-Timestamp", h.Get("Webhook-Timestamp"), "Webhook-Signature", h.Get("Webhook-Signature"))
	}
	body := `{"type":"message","message":{"external_id":"m-1","conversation":"c-1","user":{"id":"u-7"},"text":"Hello"}}`
	for _, tt := range []struct {
		name, id, body, secret string
		status                 int
		outcome                string
	}{
		{"another secret", "e0", body, "a secret of another app's channel", 401, ""},
		{"a message", "e1", body, r.secret, 200, "accepted"},
		{"the same message", "e2", body, r.secret, 200, "duplicate"},
		{"a test", "e3", `{"type":"test"}`, r.secret, 200, "ignored"},
		{"no event", "e4", `{"type":"order"}`, r.secret, 400, ""},
	} {
		if got := post(tt.id, tt.body, tt.secret); got.status != tt.status || got.text("status") != tt.outcome {
			t.Errorf("%s: %d %v, want %d %s", tt.name, got.status, got.body, tt.status, tt.outcome)
		}
	}
	var ticketID string
	r.until("the ticket", func() bool {
		return r.DB.QueryRow(t.Context(), "SELECT id FROM tickets").Scan(&ticketID) == nil
	})
	m := r.reply(ticketID, "Hello")
	r.until("the reply waits to be fetched", func() bool { return r.state(m).State == "sent" })
	if got := post("e5", `{"type":"receipt","receipt":{"message_id":"`+m.ID+`","state":"delivered"}}`, r.secret); got.status != 200 {
		t.Errorf("a receipt: %+v", got)
	}
	r.until("the receipt", func() bool { return r.state(m).State == "delivered" })
}

// TestVisitorMessages: a visitor writes with files and reads replies, once and in order.
func TestVisitorMessages(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	const path = "/conversations/contact"
	if got := r.visitor("u-7", "GET", path+"/messages", ""); got.status != 404 {
		t.Errorf("before the first message: %+v", got)
	}
	first := r.visitor("u-7", "POST", path+"/messages", `{"external_id":"m-1","text":"Hello","subject":"A question","user":{"id":"u-8"},"conversation":"x"}`)
	again := r.visitor("u-7", "POST", path+"/messages", `{"external_id":"m-1","text":"Hello"}`)
	if first.status != 201 || again.status != 200 || again.body["duplicate"] != true || again.text("id") != first.text("id") {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	w.WriteField("external_id", "m-2")
	w.WriteField("text", "With a file")
	part, _ := w.CreateFormFile("files", "a.txt")
	part.Write([]byte("hello"))
	w.Close()
	if got := r.do("POST", visitorapi.Base+"/"+r.connection.ID+path+"/messages", r.token("u-7"), w.FormDataContentType(), form.String()); got.status != 201 {
		t.Fatalf("with a file: %+v", got)
	}
	var ticketID string
	if err := r.DB.QueryRow(t.Context(), "SELECT ticket_id FROM messages WHERE id = $1", first.text("id")).Scan(&ticketID); err != nil {
		t.Fatal(err)
	}
	if list := r.messages(ticketID); len(list) != 2 || list[0].Author.Name != "Name of u-7" {
		t.Errorf("messages: %+v", list)
	}
	page := r.visitor("u-7", "GET", path+"/messages?limit=1", "")
	if page.body["has_more"] != true {
		t.Errorf("a page: %+v", page.body)
	}
	err := r.DB.Write(t.Context(), func(tx *db.Tx) error {
		says, err := r.Desk.Compose(t.Context(), r.organization.ID, desk.Draft{Text: "Not for visitors", Note: true})
		if err == nil {
			_, err = r.Desk.AddNoteTx(t.Context(), tx, r.organization.ID, ticketID, desk.Actor{ID: "u", Name: "Kim"}, says)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := r.reply(ticketID, "Hello, Ana")
	r.until("the reply waits", func() bool { return r.state(m).State == "sent" })
	rest := r.visitor("u-7", "GET", path+"/messages?after="+page.text("cursor"), "")
	data, _ := rest.body["data"].([]any)
	if len(data) != 2 || rest.body["has_more"] != false {
		t.Fatalf("since the cursor: %+v", rest.body)
	}
	file := data[0].(map[string]any)["files"].([]any)[0].(map[string]any)
	if link, _ := file["url"].(string); !strings.HasPrefix(link, r.base+"/attachments/") {
		t.Errorf("the file is %v", file)
	} else if resp, err := http.Get(link); err != nil || resp.StatusCode != 200 {
		t.Errorf("the file's link: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	author := data[1].(map[string]any)["author"].(map[string]any)
	if author["type"] != "agent" || author["name"] != "Kim" {
		t.Errorf("the reply is by %v", author)
	}
	if got := r.visitor("u-7", "POST", path+"/read", ""); got.status != 204 || r.state(m).State != "read" {
		t.Errorf("read: %+v, %+v", got, r.state(m))
	}
	list := r.visitor("u-7", "GET", "/conversations", "")
	if data, _ := list.body["data"].([]any); len(data) != 1 || data[0].(map[string]any)["id"] != "contact" || data[0].(map[string]any)["subject"] != "A question" {
		t.Errorf("conversations: %+v", list.body)
	}
	for _, tt := range []struct{ query, code string }{{"?limit=0", "invalid_parameter"}, {"?limit=x", "invalid_parameter"}, {"?after=x", "invalid_cursor"}} {
		if got := r.visitor("u-7", "GET", path+"/messages"+tt.query, ""); got.status != 400 || got.text("code") != tt.code {
			t.Errorf("%s: %+v, want 400 %s", tt.query, got, tt.code)
		}
	}
	for _, body := range []string{"", "{", `{"external_id":"m-9"}`, `{"text":"x"}`, `{"external_id":"a/b","text":"x"}`} {
		if got := r.visitor("u-7", "POST", path+"/messages", body); got.status != 400 && got.status != 422 {
			t.Errorf("body %q: %+v", body, got)
		}
	}
	if got := r.visitor("u-7", "POST", path+"/messages", `{"external_id":"m-9","text":"`+strings.Repeat("x", 600<<10)+`"}`); got.status != 413 {
		t.Errorf("a large body: %d", got.status)
	}
}

// TestVisitorsAreStrangers: a token reaches the conversations of its user on its channel only, and
// pages only from allowed origins.
func TestVisitorsAreStrangers(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	r.visitor("u-7", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"A secret"}`)
	r.visitor("u-70", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"Of a user with a longer id"}`)
	for _, user := range []string{"u-8", "u", "u-"} {
		for _, tt := range []struct{ method, path string }{
			{"GET", "/conversations/c/messages"}, {"POST", "/conversations/c/read"}, {"POST", "/conversations/c/typing"}, {"GET", "/conversations/u-7%2Fc/messages"},
		} {
			if got := r.visitor(user, tt.method, tt.path, ""); got.status != 404 {
				t.Errorf("%s %s of %s: %+v, want 404", tt.method, tt.path, user, got)
			}
		}
		if got := r.visitor(user, "GET", "/conversations", ""); len(got.body["data"].([]any)) != 0 {
			t.Errorf("conversations of %s: %+v", user, got.body)
		}
	}
	if got := r.visitor("u-7", "GET", "/conversations", ""); len(got.body["data"].([]any)) != 1 {
		t.Errorf("conversations of u-7: %+v", got.body)
	}
	// The ids of another user's message change nothing.
	if got := r.visitor("u-8", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"Mine"}`); got.status != 201 {
		t.Errorf("the same ids: %+v", got)
	}

	theirs := signUp(t, r.App, "Theirs")
	other, otherSecret := r.connect(theirs, nil)
	in := time.Hour
	sign := func(audience, secret string, life time.Duration) string {
		return api.SignToken(api.User{ID: "u-7"}, audience, secret, r.DB.Now().Add(life))
	}
	at := func(id string) string { return visitorapi.Base + "/" + id + "/conversations" }
	for _, tt := range []struct {
		name, path, token string
		status            int
	}{
		{"their token at theirs", at(other.ID), sign(other.ID, otherSecret, in), 200},
		{"their token here", at(r.connection.ID), sign(other.ID, otherSecret, in), 401},
		{"their secret for ours", at(r.connection.ID), sign(r.connection.ID, otherSecret, in), 401},
		{"our token there", at(other.ID), sign(r.connection.ID, r.secret, in), 401},
		{"an API key", at(r.connection.ID), r.key, 401},
		{"no token", at(r.connection.ID), "", 401},
		{"expired", at(r.connection.ID), sign(r.connection.ID, r.secret, -2*time.Minute), 401},
		{"too long", at(r.connection.ID), sign(r.connection.ID, r.secret, 48*time.Hour), 401},
		{"no such channel", at("0198c0de-0000-7000-8000-000000000001"), sign(r.connection.ID, r.secret, in), 401},
		{"a token in the query", at(r.connection.ID) + "?token=" + sign(r.connection.ID, r.secret, in), "", 401},
	} {
		if got := r.do("GET", tt.path, tt.token, "", ""); got.status != tt.status || tt.status == 401 && got.text("code") != "invalid_visitor_token" {
			t.Errorf("%s: %+v, want %d", tt.name, got, tt.status)
		}
	}

	for _, tt := range []struct {
		method, origin string
		status         int
		allowed        string
	}{
		{"OPTIONS", pageOrigin, 204, pageOrigin}, {"GET", pageOrigin, 200, pageOrigin}, {"GET", "", 200, ""},
		{"OPTIONS", "https://evil.example", 403, ""}, {"GET", "https://evil.example", 403, ""}, {"GET", "null", 403, ""},
		{"GET", pageOrigin + ".evil.example", 403, ""}, {"GET", "http://www.example.com", 403, ""},
	} {
		header := []string{}
		if tt.origin != "" {
			header = []string{"Origin", tt.origin}
		}
		token := r.token("u-7")
		if tt.method == "OPTIONS" {
			token = ""
		}
		got := r.do(tt.method, at(r.connection.ID), token, "", "", header...)
		if got.status != tt.status || got.header.Get("Access-Control-Allow-Origin") != tt.allowed || got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s from %q: %+v, want %d", tt.method, tt.origin, got, tt.status)
		}
	}

	if err := r.Connections.SetEnabled(t.Context(), r.organization.ID, r.connection.ID, false); err != nil {
		t.Fatal(err)
	}
	if got := r.visitor("u-7", "GET", "/conversations", ""); got.status != 401 {
		t.Errorf("a disabled channel: %+v", got)
	}
}

// TestVisitorLimits: a user has two requests a second, and strangers cannot guess tokens for long.
func TestVisitorLimits(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	for range 120 {
		if got := r.visitor("u-7", "GET", "/conversations", ""); got.status != 200 {
			t.Fatalf("a request: %+v", got)
		}
	}
	if got := r.visitor("u-7", "GET", "/conversations", ""); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("request 121: %+v", got)
	}
	for i := range 61 {
		got := r.do("GET", visitorapi.Base+"/"+r.connection.ID+"/conversations", "x.y.z", "", "")
		if want := map[bool]int{true: 401, false: 429}[i < 60]; got.status != want {
			t.Fatalf("guess %d: %+v, want %d", i+1, got, want)
		}
	}
	if got := r.visitor("u-8", "GET", "/conversations", ""); got.status != 200 {
		t.Errorf("another user at the same address: %+v", got)
	}
}

// TestVisitorEvents: an event stream reports replies, an agent's typing, and conversations of another
// device; the visitor's typing is shown to agents.
func TestVisitorEvents(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, true)
	r.visitor("u-7", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"Hello"}`)
	var ticketID string
	if err := r.DB.QueryRow(t.Context(), "SELECT id FROM tickets").Scan(&ticketID); err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(t.Context(), "GET", r.base+visitorapi.Base+"/"+r.connection.ID+"/events?token="+r.token("u-7"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Origin", pageOrigin)
	resp, err := http.DefaultClient.Do(q)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Access-Control-Allow-Origin") != pageOrigin {
		t.Fatalf("the stream: %+v, %v", resp, err)
	}
	defer resp.Body.Close()
	lines := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	expect := func(name, conversation string) {
		t.Helper()
		event := ""
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatal("the stream has ended")
				}
				if after, is := strings.CutPrefix(line, "event: "); is {
					event = after
				}
				if line == `data: {"conversation":"`+conversation+`"}` && event == name {
					return
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no event %s of %s", name, conversation)
			}
		}
	}
	expect("changed", "c")
	r.reply(ticketID, "Hello, Ana")
	expect("changed", "c")
	r.visitor("u-7", "POST", "/conversations/d/messages", `{"external_id":"m-2","text":"From another device"}`)
	expect("changed", "d")

	ticket, err := r.Desk.Ticket(t.Context(), r.DB, r.organization.ID, ticketID)
	if err != nil {
		t.Fatal(err)
	}
	r.reportAgentTyping(t.Context(), &ticket, "Kim")
	expect("typing", "c")
	if got := r.got("agent.typing"); len(got) != 1 || got[0].body["agent"] != "Kim" || got[0].body["conversation"] != "c" || payload.VerifyStandard(got[0].header, got[0].raw, r.secret, r.DB.Now()) != nil {
		t.Errorf("typing at the app: %+v", got)
	}
	if r.live.Typing(r.organization.ID, ticketID) {
		t.Error("the customer types already")
	}
	if got := r.visitor("u-7", "POST", "/conversations/c/typing", ""); got.status != 204 || !r.live.Typing(r.organization.ID, ticketID) {
		t.Errorf("typing: %+v", got)
	}
	r.visitor("u-7", "POST", "/conversations/c/messages", `{"external_id":"m-3","text":"Written"}`)
	if r.live.Typing(r.organization.ID, ticketID) {
		t.Error("the customer types after the message")
	}
}
