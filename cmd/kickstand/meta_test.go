package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// graphProvider implements the API of both messengers.
type graphProvider struct {
	t *testing.T

	mu   sync.Mutex
	sent []graphMessage
}

// graphMessage is a message sent to the provider.
type graphMessage struct {
	path, authorization string
	id                  string // provider's id
	body                struct {
		To        string
		Recipient any
		Type      string
		Ours      string `json:"biz_opaque_callback_data"`
		Text      struct{ Body string }
		Image     struct{ Link, Caption string }
		Message   struct{ Text, Metadata string }
	}
}

func (p *graphProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer the token" {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":{"message":"Invalid OAuth access token","code":190}}`)
		return
	}
	if r.Method == http.MethodGet {
		io.WriteString(w, `{"first_name":"Ana","last_name":"Client"}`)
		return
	}
	m := graphMessage{path: r.URL.Path, authorization: r.Header.Get("Authorization")}
	if err := json.NewDecoder(r.Body).Decode(&m.body); err != nil {
		p.t.Errorf("%s: %v", r.URL, err)
	}
	p.mu.Lock()
	m.id = fmt.Sprintf("sent-%d", len(p.sent)+1)
	p.sent = append(p.sent, m)
	p.mu.Unlock()
	if m.body.Message.Text != "" {
		json.NewEncoder(w).Encode(map[string]any{"recipient_id": demoPersonID, "message_id": m.id})
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"messaging_product": "whatsapp", "messages": []any{map[string]any{"id": m.id}}})
}

// last returns the newest message once there are n.
func (p *graphProvider) last(n int) graphMessage {
	p.t.Helper()
	for range poll(p.t, 30*time.Second) {
		p.mu.Lock()
		list := p.sent
		p.mu.Unlock()
		if len(list) >= n {
			return list[len(list)-1]
		}
	}
	p.t.Fatalf("the provider has not got %d messages", n)
	return graphMessage{}
}

// metaRig is a server with messengers connected to a test provider.
type metaRig struct {
	*server
	provider *graphProvider
	flags    []string
	key      string
}

const metaSecret = "the app's secret"

func startMeta(t *testing.T) *metaRig {
	t.Helper()
	rig := &metaRig{provider: &graphProvider{t: t}}
	api := httptest.NewServer(rig.provider)
	t.Cleanup(api.Close)
	rig.flags = []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--business-messaging-api-url=" + api.URL, "--social-messenger-api-url=" + api.URL}
	command(t, nil, append([]string{"org", "create", "--name=Acme", "--plan=business", "--fleet-rate-limit=1000000"}, rig.flags...)...)
	for channel, address := range map[string]string{"business-messaging": demoNumberID, "social-messenger": demoPageID} {
		command(t, nil, append([]string{"channel", "connect", channel, "--org=acme", "--address=" + address, "--secret=" + metaSecret,
			`--credentials={"access_token":"the token","verify_token":"any words"}`}, rig.flags...)...)
	}
	var key struct{ Key string }
	command(t, &key, append([]string{"key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Test", "--level=admin"}, rig.flags...)...)
	rig.key = key.Key
	rig.server = start(t, rig.flags...)
	return rig
}

// trigger posts a notification.
func (r *metaRig) trigger(t *testing.T, channel string, args ...string) {
	t.Helper()
	command(t, nil, append([]string{"trigger", channel, "--base-url=" + r.url, "--" + channel + "-secret=" + metaSecret}, args...)...)
}

// api calls the REST API and decodes the response.
func (r *metaRig) api(t *testing.T, method, path string, input, output any) (status int, body string) {
	t.Helper()
	var content bytes.Buffer
	if input != nil {
		if err := json.NewEncoder(&content).Encode(input); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequest(method, r.url+"/api/v1"+path, &content)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", "application/json")
	status, body = send(t, http.DefaultClient, req)
	if output != nil {
		if err := json.Unmarshal([]byte(body), output); err != nil || status != http.StatusOK {
			t.Fatalf("%s %s answered %d %s: %v", method, path, status, body, err)
		}
	}
	return status, body
}

// restMessage is a message in the REST API.
type restMessage struct {
	ID        string
	Direction string
	Kind      string
	Text      string
	Delivery  struct{ State, Error string }
}

// ticket waits for the only ticket of a channel until its messages satisfy want.
func (r *metaRig) ticket(t *testing.T, channel string, want func([]restMessage) bool) (id string, messages []restMessage) {
	t.Helper()
	for range poll(t, 30*time.Second) {
		var tickets struct{ Data []struct{ ID string } }
		r.api(t, http.MethodGet, "/tickets?channel="+channel, nil, &tickets)
		if len(tickets.Data) != 1 {
			continue
		}
		id = tickets.Data[0].ID
		var list struct{ Data []restMessage }
		r.api(t, http.MethodGet, "/tickets/"+id+"/messages", nil, &list)
		if messages = list.Data; want(messages) {
			return id, messages
		}
	}
	t.Fatalf("the ticket of %s is %q with %+v", channel, id, messages)
	return "", nil
}

// inState returns a condition on the state of an outbound message.
func inState(text, state string) func([]restMessage) bool {
	return func(list []restMessage) bool {
		for _, m := range list {
			if m.Text == text && m.Direction == "outbound" && m.Delivery.State == state {
				return true
			}
		}
		return false
	}
}

func some(list []restMessage) bool { return len(list) > 0 }

// TestBusinessMessaging goes from the provider's handshake to a reply that was read.
func TestBusinessMessaging(t *testing.T) {
	t.Parallel()
	r := startMeta(t)
	const channel, medium = "business-messaging", "business_messaging"
	for query, want := range map[string]string{
		"hub.mode=subscribe&hub.verify_token=any+words&hub.challenge=42": "200 42",
		"hub.mode=subscribe&hub.verify_token=other&hub.challenge=42":     `403 {"error":"the verify token is wrong"}` + "\n",
	} {
		req, err := http.NewRequest(http.MethodGet, r.url+"/api/webhooks/"+channel+"?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := send(t, http.DefaultClient, req); fmt.Sprint(status, " ", body) != want {
			t.Errorf("handshake %s: %d %q, want %q", query, status, body, want)
		}
	}

	r.trigger(t, channel, "--text=The scooter beeps")
	id, messages := r.ticket(t, medium, some)
	if len(messages) != 1 || messages[0].Text != "The scooter beeps" {
		t.Fatalf("messages %+v, want what was written", messages)
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "We are coming."}, nil); status != http.StatusCreated {
		t.Fatalf("the reply was answered %d %s", status, body)
	}
	sent := r.provider.last(1)
	if sent.path != "/v25.0/"+demoNumberID+"/messages" || sent.body.To != strings.TrimPrefix(demoCaller, "+") || sent.body.Text.Body != "We are coming." {
		t.Errorf("sent %+v, want the reply to %s", sent, demoCaller)
	}
	r.ticket(t, medium, inState("We are coming.", "sent"))
	// By the provider's id and by ours; a late status does not move the state back.
	r.trigger(t, channel, "--event=delivered", "--text="+sent.id)
	r.ticket(t, medium, inState("We are coming.", "delivered"))
	r.trigger(t, channel, "--event=read", "--text="+sent.body.Ours)
	r.ticket(t, medium, inState("We are coming.", "read"))
	r.trigger(t, channel, "--event=sent", "--text="+sent.id)
	r.trigger(t, channel, "--event=failed", "--text="+sent.id)
	r.trigger(t, channel, "--event=location", "--text=Here")
	_, messages = r.ticket(t, medium, func(list []restMessage) bool { return len(list) >= 3 })
	if !inState("We are coming.", "read")(messages) {
		t.Errorf("messages %+v, want the reply read as before", messages)
	}

	// A file is sent as a link that the provider can fetch.
	png := []byte("\x89PNG\r\n\x1a\n and more")
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{
		"kind": "reply", "text": "Look", "attachments": []any{map[string]any{"name": "map.png", "content_type": "image/png", "content": png}},
	}, nil); status != http.StatusCreated {
		t.Fatalf("the reply with a file was answered %d %s", status, body)
	}
	sent = r.provider.last(2)
	if sent.body.Type != "image" || sent.body.Image.Caption != "Look" {
		t.Errorf("sent %+v, want the picture", sent)
	}
	resp, err := http.Get(sent.body.Image.Link)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, png) || resp.Header.Get("Content-Type") != "image/png" {
		t.Errorf("the link gives %d %q of %s (%v), want the picture", resp.StatusCode, got, resp.Header.Get("Content-Type"), err)
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{
		"kind": "reply", "text": "Zip", "attachments": []any{map[string]any{"name": "a.zip", "content_type": "application/zip", "content": []byte("PK")}},
	}, nil); status != http.StatusUnprocessableEntity || !strings.Contains(body, "annot be sent on this channel") {
		t.Errorf("a file that the channel does not take was answered %d %s", status, body)
	}

	// Another customer wrote yesterday.
	old := fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":%q},
		"messages":[{"from_user_id":"US.7","id":"wamid.old","timestamp":"%d","type":"text","text":{"body":"Yesterday"}}]}}]}]}`, demoNumberID, time.Now().Add(-25*time.Hour).Unix())
	req, err := http.NewRequest(http.MethodPost, r.url+"/api/webhooks/"+channel, strings.NewReader(old))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(meta.SignatureHeader, meta.Sign([]byte(old), metaSecret))
	if status, body := send(t, http.DefaultClient, req); status != http.StatusOK {
		t.Fatalf("answered %d %s", status, body)
	}
	var late struct {
		Data []struct{ ID, Subject string }
	}
	for range poll(t, 30*time.Second) {
		r.api(t, http.MethodGet, "/tickets?channel="+medium+"&q=Yesterday", nil, &late)
		if len(late.Data) == 1 {
			break
		}
	}
	if len(late.Data) != 1 {
		t.Fatalf("tickets %+v, want yesterday's", late.Data)
	}
	status, body := r.api(t, http.MethodPost, "/tickets/"+late.Data[0].ID+"/messages", map[string]any{"kind": "reply", "text": "Too late"}, nil)
	if status < 400 || status >= 500 || !strings.Contains(body, "24 hours in which the customer could be answered here ended on") {
		t.Errorf("a reply too late was answered %d %s, want a refusal that says so", status, body)
	}
	if sent := r.provider.last(2); sent.id != "sent-2" {
		t.Errorf("sent %+v after the window closed", sent)
	}
}

// TestSocialMessenger goes from a pressed button to a reply that was read, with its echo,
// and a reply that the provider refuses.
func TestSocialMessenger(t *testing.T) {
	t.Parallel()
	r := startMeta(t)
	const channel, medium = "social-messenger", "social_messenger"
	r.trigger(t, channel, "--event=postback", "--text=Unlock it")
	id, messages := r.ticket(t, medium, some)
	if len(messages) != 1 || messages[0].Text != "Unlock it" {
		t.Fatalf("messages %+v, want what was pressed", messages)
	}
	var ticket struct{ Customer struct{ Name string } }
	r.api(t, http.MethodGet, "/tickets/"+id, nil, &ticket)
	if ticket.Customer.Name != "Ana Client" {
		t.Errorf("the customer is %q, want Ana Client", ticket.Customer.Name)
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "Done."}, nil); status != http.StatusCreated {
		t.Fatalf("the reply was answered %d %s", status, body)
	}
	sent := r.provider.last(1)
	if sent.path != "/v25.0/"+demoPageID+"/messages" || sent.body.Message.Text != "Done." || !strings.HasPrefix(sent.body.Message.Metadata, "kickstand:") {
		t.Errorf("sent %+v, want the reply with our id", sent)
	}
	r.ticket(t, medium, inState("Done.", "sent"))
	echo := fmt.Sprintf(`{"object":"page","entry":[{"id":%q,"messaging":[{"sender":{"id":%[1]q},"recipient":{"id":%q},"timestamp":%d,
		"message":{"mid":%q,"is_echo":true,"app_id":7,"text":"Done.","metadata":%q}}]}]}`, demoPageID, demoPersonID, time.Now().UnixMilli(), sent.id, sent.body.Message.Metadata)
	req, err := http.NewRequest(http.MethodPost, r.url+"/api/webhooks/"+channel, strings.NewReader(echo))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(meta.SignatureHeader, meta.Sign([]byte(echo), metaSecret))
	if status, body := send(t, http.DefaultClient, req); status != http.StatusOK {
		t.Fatalf("the echo was answered %d %s", status, body)
	}
	r.trigger(t, channel, "--event=read")
	r.ticket(t, medium, inState("Done.", "read"))
	// A message written in the page's inbox is an agent's, and is not sent again.
	r.trigger(t, channel, "--event=echo", "--text=I called you.")
	_, messages = r.ticket(t, medium, inState("I called you.", "sent"))
	var texts []string
	for _, m := range messages {
		if m.Kind == "reply" {
			texts = append(texts, m.Direction+" "+m.Text)
		}
	}
	if got, want := strings.Join(texts, "; "), "inbound Unlock it; outbound Done.; outbound I called you."; got != want {
		t.Errorf("messages %q, want %q", got, want)
	}
	if last := r.provider.last(1); last.id != "sent-1" {
		t.Errorf("%s was sent, too", last.id)
	}
}
