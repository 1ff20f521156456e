package deskapi_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"

	"github.com/kickstand-dev/kickstand/internal/rfc3339"

	"github.com/google/uuid"
)

// runQueue runs the queue until the end of the test.
func (r *rig) runQueue() {
	r.Helper()
	if err := r.queue.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.queue.Stop(context.Background()) })
}

// TestReply follows a reply from the request to the customer's mail server.
func TestReply(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{})
	carrier, err := mail.OpenSMTP(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(r *rig) { r.mail = carrier })
	c, _, err := r.connections.Connect(t.Context(), connection.New{OrganizationID: r.ours.ID, Channel: "email-raw", Address: "support@a.example", ByOperator: true})
	if err != nil {
		t.Fatal(err)
	}
	in := r.mails(c, "From: Alex <alex@example.com>\nTo: support@a.example\nSubject: Flat tyre\nMessage-ID: <1@example.com>\n\nIt is flat.\n")
	path := "/tickets/" + in.TicketID + "/messages"
	r.emitted()
	made := r.post(path, fields{
		"kind": "reply", "text": "On its way.", "attachments": []fields{{"name": "map.txt", "content_type": "text/plain", "content": "aGVsbG8="}},
	})
	if got := jsonOf(t, made["delivery"]); got != `{"error":null,"state":"queued"}` {
		t.Errorf("delivery is %s", got)
	}
	if got, want := r.emitted(), []string{"conversation.created", "message.created", "message.agent_reply"}; !slices.Equal(got, want) {
		t.Errorf("emitted %q, want %q", got, want)
	}
	r.runQueue()
	at := path + "/" + made.text("id")
	for end := time.Now().Add(30 * time.Second); jsonOf(t, r.get(at)["delivery"]) != `{"error":null,"state":"sent"}`; {
		if time.Now().After(end) {
			t.Fatalf("delivery is %v", r.get(at)["delivery"])
		}
	}
	got := server.Received(t)
	if len(got) != 1 || got[0].To[0] != "alex@example.com" || !strings.Contains(got[0].Text, "On its way.") {
		t.Errorf("the server got %+v", got)
	}

	// A ticket may start with a message to the customer.
	began := r.post("/tickets", fields{"subject": "Your bike", "channel": "email", "text": "It is ready.", "customer": fields{"email": "sam@example.com"}})
	first := r.get("/tickets/" + began.text("id") + "/messages")["data"].([]any)[0].(map[string]any)
	if first["direction"] != "outbound" || first["delivery"] == nil {
		t.Errorf("the first message is %v", first)
	}
}

func TestMessages(t *testing.T) {
	r := newRig(t)
	ticket := r.ticket("Flat tyre", "alex@example.com")
	path := "/tickets/" + ticket.text("id") + "/messages"
	r.emitted()
	note := r.post(path, fields{"kind": "note", "text": "Seen", "html": "<p>Seen<script>x</script></p>"})
	if got := r.emitted(); len(got) > 0 {
		t.Errorf("a note emits %q", got)
	}
	if note["delivery"] != nil || note["conversation_id"] != nil || note.text("html") != "<p>Seen</p>" || note.text("direction") != "outbound" {
		t.Errorf("a note is %v", note)
	}
	reply := r.post(path, fields{"kind": "reply", "text": "", "html": "<p>Hello <b>you</b></p>"})
	if reply["delivery"] != nil || reply.text("text") != "Hello you" || reply.text("placed_by") != "written" {
		t.Errorf("a reply to the API is %v", reply)
	}
	if got := r.Get(path + "/" + reply.text("id")); got.Body != jsonOfReply(r, path, reply.text("id")) {
		t.Errorf("read %s", got.Body)
	}
	for query, want := range map[string]int{
		"": 3, "?kind=note": 1, "?kind=reply": 2, "?direction=inbound": 1, "?kind=note,reply&direction=outbound": 2,
		"?created_at[gte]=2100-01-01T00:00:00Z": 0, "?sort=-created_at": 3, "?limit=2": 2,
	} {
		if got := r.get(path + query)["data"].([]any); len(got) != want {
			t.Errorf("%s lists %d, want %d", query, len(got), want)
		}
	}
	if got := r.get(path + "?sort=-created_at")["data"].([]any)[2].(map[string]any)["text"]; got != "Text of Flat tyre" {
		t.Errorf("the oldest is %v", got)
	}
	conversations := r.get("/tickets/" + ticket.text("id") + "/conversations")["data"].([]any)
	if len(conversations) != 1 || conversations[0].(map[string]any)["id"] != reply.text("conversation_id") {
		t.Errorf("conversations are %v", conversations)
	}

	elsewhere := r.ticket("Other", "sam@example.com")
	foreign := r.get("/tickets/" + elsewhere.text("id") + "/conversations")["data"].([]any)[0].(map[string]any)["id"].(string)
	big := base64.StdEncoding.EncodeToString(make([]byte, 13<<20))
	for _, test := range []struct {
		name, path, body string
		status           int
		code             string
		flaws            []string
	}{
		{"nothing", path, `{}`, 422, "validation_failed", []string{"#/kind required", "#/text required"}},
		{"no words", path, `{"kind":"reply","text":""}`, 422, "validation_failed", []string{"#/text required"}},
		{"no words in a note", path, `{"kind":"note","text":""}`, 422, "validation_failed", []string{"#/text required"}},
		{"no base64", path, `{"kind":"note","text":"t","attachments":[{"name":"a","content":"???"}]}`, 422, "validation_failed", []string{"#/attachments/0/content invalid_format"}},
		{"no name", path, `{"kind":"note","text":"t","attachments":[{"content":""}]}`, 422, "validation_failed", []string{"#/attachments/0/name required"}},
		{"a name of two lines", path, `{"kind":"note","text":"t","attachments":[{"name":"a\nb","content":""}]}`, 422, "validation_failed", []string{"#/attachments/0/name invalid_format"}},
		{"a conversation of another ticket", path, `{"kind":"reply","text":"t","conversation_id":"` + foreign + `"}`, 422, "validation_failed", []string{"#/conversation_id not_found"}},
		{"a note in a conversation", path, `{"kind":"note","text":"t","conversation_id":"` + foreign + `"}`, 422, "validation_failed", []string{"#/conversation_id conflict"}},
		{"files that are too large", path, `{"kind":"note","text":"t","attachments":[{"name":"a","content":"` + big + `"},{"name":"b","content":"` + big + `"}]}`, 413, "body_too_large", nil},
		{"a body that is too large", path, `{"kind":"note","text":"` + big + big + big + `"}`, 413, "body_too_large", nil},
		{"no ticket", "/tickets/" + uuid.NewString() + "/messages", `{}`, 404, "not_found", nil},
	} {
		refused(t, test.name, r.Do("POST", test.path, test.body), test.status, test.code, test.flaws...)
	}
	refused(t, "a message of another ticket", r.Get("/tickets/"+elsewhere.text("id")+"/messages/"+note.text("id")), 404, "not_found")
	if got := r.get(path)["data"].([]any); len(got) != 3 {
		t.Errorf("there are %d messages", len(got))
	}
	// Messages may have larger bodies than other requests.
	r.post(path, fields{"kind": "note", "text": "big", "attachments": []fields{{"name": "a", "content": base64.StdEncoding.EncodeToString(make([]byte, 1<<20))}}})
}

// jsonOfReply returns a message as in the list.
func jsonOfReply(r *rig, path, id string) string {
	a := r.Get(path + "?kind=reply&direction=outbound")
	from := strings.Index(a.Body, `{"id":"`+id)
	return a.Body[from:strings.LastIndex(a.Body, `],"has_more"`)]
}

func TestAttachment(t *testing.T) {
	r := newRig(t)
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id") + "/messages"
	content := strings.Repeat("<script>alert(1)</script>", 4000)
	m := r.post(path, fields{"kind": "note", "text": "Look", "attachments": []fields{
		{"name": "für dich.html", "content_type": "text/html; charset=utf-8", "content": base64.StdEncoding.EncodeToString([]byte(content))},
		{"name": "picture.png", "content_type": "image/png", "content": base64.StdEncoding.EncodeToString([]byte("PNG"))},
	}})
	files := m["attachments"].([]any)
	for i, want := range []struct{ name, kind, disposition, body string }{
		{"für dich.html", "application/octet-stream", "attachment; filename*=utf-8''f%C3%BCr%20dich.html", content},
		{"picture.png", "image/png", "attachment; filename=picture.png", "PNG"},
	} {
		f := files[i].(map[string]any)
		if f["name"] != want.name || f["size"] != float64(len(want.body)) {
			t.Errorf("file %d is %v", i, f)
		}
		at := strings.TrimPrefix(f["url"].(string), origin)
		a := r.Get(at, "Accept: image/*")
		if a.Status != 200 || a.Body != want.body || a.Header.Get("Content-Type") != want.kind || a.Header.Get("Content-Disposition") != want.disposition ||
			a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("file %d is answered %d %v with %d bytes", i, a.Status, a.Header, len(a.Body))
		}
		if head := r.Do("HEAD", at, ""); head.Status != 200 || head.Body != "" || head.Header.Get("Content-Length") != a.Header.Get("Content-Length") {
			t.Errorf("HEAD of file %d is answered %d %v", i, head.Status, head.Header)
		}
	}
}

// TestRecipientChanged: the API shows the address that a mail asks replies to go to, and
// accepts the choice.
func TestRecipientChanged(t *testing.T) {
	carrier, err := mail.OpenSMTP(mailtest.NewServer(t, mailtest.ServerConfig{}).URL)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(r *rig) { r.mail = carrier })
	c, _, err := r.connections.Connect(t.Context(), connection.New{OrganizationID: r.ours.ID, Channel: "email-raw", Address: "support@a.example", ByOperator: true})
	if err != nil {
		t.Fatal(err)
	}
	in := r.mails(c, "From: Alex <alex@example.com>\nReply-To: eve@example.org\nTo: support@a.example\nSubject: Flat tyre\nMessage-ID: <1@example.com>\n\nIt is flat.\n")
	path := "/tickets/" + in.TicketID + "/messages"
	first := r.get(path)["data"].([]any)[0].(map[string]any)
	if got, want := jsonOf(t, first["authentication"]), `{"domain":"example.com","reason":"there is no DKIM signature of example.com, and no trusted server reports SPF","verdict":"unproven"}`; got != want {
		t.Errorf("authentication is %s", got)
	}
	if got, want := jsonOf(t, first["recipient_changed"]), `{"from":"alex@example.com","reason":"the mail requests replies there (Reply-To) and does not prove its sender: there is no DKIM signature of example.com, and no trusted server reports SPF","to":"eve@example.org"}`; got != want || first["to"] != nil || jsonOf(t, first["cc"]) != "[]" {
		t.Errorf("recipient_changed is %s, to %v, cc %v", got, first["to"], first["cc"])
	}
	refused(t, "somebody else", r.Do("POST", path, `{"kind":"reply","text":"t","to":"mallory@example.net"}`), 422, "validation_failed", "#/to invalid_value")
	refused(t, "copies for nobody", r.Do("POST", path, `{"kind":"reply","text":"t","cc":["nobody"],"bcc":["a@example.net","b"]}`), 422, "validation_failed", "#/cc/0 invalid_format", "#/bcc/1 invalid_format")
	refused(t, "a forward", r.Do("POST", path, `{"kind":"forward","text":"t"}`), 422, "validation_failed", "#/kind invalid_value")
	refused(t, "a note", r.Do("POST", path, `{"kind":"note","text":"t","to":"eve@example.org","cc":["eve@example.org"],"bcc":["eve@example.org"]}`), 422, "validation_failed", "#/to conflict", "#/cc conflict", "#/bcc conflict")
	if got := r.post(path, fields{"kind": "reply", "text": "t"}); got["to"] != "alex@example.com" {
		t.Errorf("unless said, a reply goes to %v", got["to"])
	}
	for _, body := range []fields{{"kind": "reply", "text": "t", "to": "eve@example.org"}, {"kind": "reply", "text": "t"}} {
		if got := r.post(path, body); got["to"] != "eve@example.org" || got["authentication"] != nil || got["recipient_changed"] != nil || jsonOf(t, got["cc"]) != `["alex@example.com"]` {
			t.Errorf("after the choice a reply is %v", got)
		}
	}
}

// TestCrossedReply: a reply that has not seen a newer one is refused with details of that, and
// nothing is stored; a retry of an accepted one succeeds.
func TestCrossedReply(t *testing.T) {
	r := newRig(t)
	other := r.As(r.key(r.ours, apikey.Permissions{Level: apikey.Admin}))
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id") + "/messages"
	seen := r.get(path)["data"].([]any)[0].(map[string]any)["id"].(string)
	body := `{"kind":"reply","text":"On its way.","seen_message_id":"` + seen + `"}`

	first := send(t, other, "POST", path, body, 201, "Idempotency-Key: a")
	for range 2 {
		refused(t, "a crossing reply", r.Do("POST", path, body, "Idempotency-Key: b"), 409, "crossed_reply")
	}
	var p struct{ Message fields }
	r.Do("POST", path, body).JSON(&p)
	if by, _ := p.Message["author"].(map[string]any); p.Message["id"] != first["id"] || p.Message["created_at"] != first["created_at"] ||
		jsonOf(t, by) != jsonOf(t, first["author"]) || len(p.Message) != 3 {
		t.Errorf("it crossed %v, want %v", p.Message, first)
	}
	if n := len(r.get(path)["data"].([]any)); n != 2 {
		t.Errorf("there are %d messages after refused replies", n)
	}
	r.post(path, fields{"kind": "reply", "text": "Here.", "seen_message_id": seen, "force": true})
	r.post(path, fields{"kind": "reply", "text": "Here.", "seen_message_id": nil})
	// By now two replies are newer than the one that this author has seen.
	if again := send(t, other, "POST", path, body, 201, "Idempotency-Key: a"); again["id"] != first["id"] {
		t.Errorf("a retry was answered %v, want %v", again["id"], first["id"])
	}
	refused(t, "what the key has not seen", other.Do("POST", path, `{"kind":"reply","text":"t","seen_message_id":"`+first.text("id")+`"}`), 409, "crossed_reply")
	refused(t, "another ticket's message", r.Do("POST", path, `{"kind":"reply","text":"t","seen_message_id":"`+uuid.NewString()+`"}`), 422, "validation_failed", "#/seen_message_id not_found")
	refused(t, "a note", r.Do("POST", path, `{"kind":"note","text":"t","seen_message_id":"`+seen+`","force":true}`), 422, "validation_failed", "#/seen_message_id conflict", "#/force conflict")
}

// TestScheduledMessage: a scheduled reply can be read and undone until it leaves.
func TestScheduledMessage(t *testing.T) {
	r := newRig(t)
	ticket := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id")
	at := time.Now().UTC().Add(time.Hour).Format(rfc3339.Layout)
	m := r.post(ticket+"/messages", fields{"kind": "reply", "text": "Later.", "send_at": at})
	delivery, _ := m["delivery"].(map[string]any)
	if m["send_at"] != at || delivery["state"] != "scheduled" || m["sent_at"] != nil {
		t.Errorf("got %v, %v", m["send_at"], delivery)
	}
	if got := r.get(ticket + "/messages/" + m.text("id")); jsonOf(t, got) != jsonOf(t, m) {
		t.Errorf("read again it is\n%v, want\n%v", got, m)
	}
	if messages, pending := r.get(ticket+"/messages").list("data"), r.get(ticket+"/pending-messages").list("data"); len(messages) != 1 || len(pending) != 1 || pending[0]["id"] != m["id"] {
		t.Errorf("there are %d messages and %d pending ones", len(messages), len(pending))
	}
	send(t, r.Client, "DELETE", "/messages/"+m.text("id"), "", 204)
	refused(t, "undone twice", r.Do("DELETE", "/messages/"+m.text("id"), ""), 404, "not_found")
	refused(t, "reading what was undone", r.Do("GET", ticket+"/messages/"+m.text("id"), ""), 404, "not_found")
	sent := r.post(ticket+"/messages", fields{"kind": "reply", "text": "Now.", "send_at": nil})
	refused(t, "undoing what was sent", r.Do("DELETE", "/messages/"+sent.text("id"), ""), 409, "invalid_transition")
	refused(t, "a past time", r.Do("POST", ticket+"/messages", `{"kind":"reply","text":"t","send_at":"2026-01-01T00:00:00Z"}`), 422, "validation_failed", "#/send_at invalid_value")
	refused(t, "a note", r.Do("POST", ticket+"/messages", `{"kind":"note","text":"t","send_at":"`+at+`"}`), 422, "validation_failed", "#/send_at conflict")
}

// TestSnoozedTicket: a snooze is a time, or the customer's answer, and null opens the ticket.
func TestSnoozedTicket(t *testing.T) {
	r := newRig(t)
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id")
	at := time.Now().UTC().Add(time.Hour).Format(rfc3339.Layout)
	for _, test := range []struct{ body, until, status string }{
		{`{"snoozed_until":"` + at + `"}`, at, "on_hold"},
		{`{"snoozed_until":"reply"}`, "reply", "on_hold"},
		{`{"snoozed_until":null}`, "", "open"},
		{`{"snoozed_until":"reply"}`, "reply", "pending"},
		{`{"status":"resolved"}`, "", "resolved"},
	} {
		if got := send(t, r.Client, "PUT", path, test.body, 200); got.text("snoozed_until") != test.until || got.text("status") != test.status {
			t.Errorf("%s: got %q and %s, want %q and %s", test.body, got.text("snoozed_until"), got.text("status"), test.until, test.status)
		}
	}
	refused(t, "a resolved ticket", r.Do("PUT", path, `{"snoozed_until":"reply"}`), 409, "invalid_transition")
	refused(t, "a word", r.Do("PUT", path, `{"snoozed_until":"tomorrow"}`), 422, "validation_failed", "#/snoozed_until invalid_format")
	refused(t, "a past time", r.Do("PUT", path, `{"status":"open","snoozed_until":"2026-01-01T00:00:00Z"}`), 422, "validation_failed")
}

// TestAttachmentStates: a file fetched after its message is null until it is stored, and so is
// an unavailable one.
func TestAttachmentStates(t *testing.T) {
	r := newRig(t)
	var in desk.Result
	promise := desk.FetchJob{Lane: "l", Payload: []byte("{}")}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		in, err = r.desk.IngestTx(t.Context(), tx, desk.InboundEvent{
			OrganizationID: r.ours.ID, Channel: "sms", FetchJobs: []desk.FetchJob{promise, promise, promise},
			Event: channel.Event{Message: &channel.Message{
				ExternalID: "1", ThreadKey: "+14155550111", From: channel.Party{Phone: "+14155550111"}, Text: "Look!",
				Attachments: []channel.Attachment{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	path := "/tickets/" + in.TicketID + "/messages/" + in.MessageID
	files := func() (ids, states []string) {
		for _, v := range r.get(path)["attachments"].([]any) {
			f := v.(map[string]any)
			ids = append(ids, f["id"].(string))
			states = append(states, f["state"].(string)+" "+jsonOf(t, f["size"])+" "+strings.TrimPrefix(jsonOf(t, f["url"]), `"`+origin))
		}
		return ids, states
	}
	ids, states := files()
	if want := slices.Repeat([]string{"pending null null"}, 3); !slices.Equal(states, want) {
		t.Errorf("files %q, want %q", states, want)
	}
	a := r.Get("/attachments/" + ids[0])
	refused(t, "a pending file", a, 404, "not_found")
	if a.Header.Get("Retry-After") != "10" {
		t.Errorf("got Retry-After %q", a.Header.Get("Retry-After"))
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := r.desk.CompleteFileTx(t.Context(), tx, ids[1], desk.File{Ref: blob.Ref{Key: strings.Repeat("a", 64), Size: 5}}); err != nil {
			return err
		}
		return r.desk.FailFileTx(t.Context(), tx, ids[2], "gone")
	}); err != nil {
		t.Fatal(err)
	}
	_, states = files()
	if want := []string{"pending null null", `stored 5 /api/v1/attachments/` + ids[1] + `"`, "failed null null"}; !slices.Equal(states, want) {
		t.Errorf("files %q, want %q", states, want)
	}
}
