package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// chatProvider implements the API of the team chat.
type chatProvider struct {
	t *testing.T

	mu    sync.Mutex
	posts []chatPost
}

// chatPost is a message posted to the provider.
type chatPost struct {
	Channel  string `json:"channel"`
	ThreadTS string `json:"thread_ts"`
	Text     string `json:"text"`
	TS       string `json:"ts"`
}

func (p *chatProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer the token":
		io.WriteString(w, `{"ok":false,"error":"invalid_auth"}`)
	case r.URL.Path == "/api/users.info":
		fmt.Fprintf(w, `{"ok":true,"user":{"id":%q,"profile":{"real_name":"Ana of the chat","email":"ana@client.example"}}}`, r.URL.Query().Get("user"))
	case r.Method == http.MethodPost && r.URL.Path == "/api/chat.postMessage":
		var post chatPost
		if err := json.NewDecoder(r.Body).Decode(&post); err != nil {
			p.t.Errorf("%s: %v", r.URL, err)
		}
		p.mu.Lock()
		post.TS = fmt.Sprintf("1795168800.%06d", len(p.posts)+1)
		p.posts = append(p.posts, post)
		p.mu.Unlock()
		fmt.Fprintf(w, `{"ok":true,"channel":%q,"ts":%q}`, post.Channel, post.TS)
	default:
		io.WriteString(w, `{"ok":false,"error":"unknown_method"}`)
	}
}

// TestChat goes from a customer's first message in the team chat to a reply in their
// thread and a reaction to it.
func TestChat(t *testing.T) {
	t.Parallel()
	const secret = "signing secret of the app"
	provider := &chatProvider{t: t}
	api := httptest.NewServer(provider)
	t.Cleanup(api.Close)
	r := &metaRig{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--chat-api-url=" + api.URL}}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, r.flags...)...)
	command(t, nil, append([]string{"channel", "connect", "chat", "--org=acme", "--address=" + demoWorkspace, "--secret=" + secret,
		`--credentials={"bot_token":"the token"}`, "--setting=channels=" + demoChatChannel}, r.flags...)...)
	var key struct{ Key string }
	command(t, &key, append([]string{"key", "create", "--org=acme", "--service=helpdesk", "--environment=live", "--name=Test", "--level=admin"}, r.flags...)...)
	r.key = key.Key
	r.server = start(t, r.flags...)
	trigger := func(args ...string) {
		t.Helper()
		command(t, nil, append([]string{"trigger", "chat", "--base-url=" + r.url, "--chat-secret=" + secret}, args...)...)
	}

	trigger("--text=Not for us", "--to="+demoWorkspace+"/C0ELSE")
	trigger("--text=The scooter beeps")
	id, _ := r.ticket(t, "chat", some)
	var messages struct {
		Data []struct {
			ExternalID string `json:"external_id"`
			Author     struct{ Name string }
		}
	}
	r.api(t, http.MethodGet, "/tickets/"+id+"/messages", nil, &messages)
	first := messages.Data[0]
	if first.Author.Name != "Ana of the chat" || !strings.HasPrefix(first.ExternalID, demoChatChannel+":") {
		t.Fatalf("the message is %+v, want Ana's", first)
	}
	if status, body := r.api(t, http.MethodPost, "/tickets/"+id+"/messages", map[string]any{"kind": "reply", "text": "We are <coming>."}, nil); status != http.StatusCreated {
		t.Fatalf("the reply was answered %d %s", status, body)
	}
	r.ticket(t, "chat", inState("We are <coming>.", "sent"))
	provider.mu.Lock()
	posts := provider.posts
	provider.mu.Unlock()
	if len(posts) != 1 || posts[0].Channel+":"+posts[0].ThreadTS != first.ExternalID || posts[0].Text != "We are &lt;coming&gt;." {
		t.Errorf("posted %+v, want one in the thread %s", posts, first.ExternalID)
	}
	thread := demoWorkspace + "/" + first.ExternalID
	trigger("--event=reply", "--to="+thread, "--text=It stopped.")
	trigger("--event=message_changed", "--to="+thread, "--text=The scooter sings")
	trigger("--event=reaction_added", "--to="+demoWorkspace+"/"+demoChatChannel+":"+posts[0].TS)
	r.ticket(t, "chat", func(list []restMessage) bool {
		return len(list) == 3 && list[0].Text == "The scooter sings" && list[2].Text == "It stopped."
	})
	if err := run(t.Context(), []string{"trigger", "chat", "--base-url=" + r.url, "--chat-secret=" + secret, "--event=reply"}, noEnvironment, nil, io.Discard, t.Output()); err == nil {
		t.Error("a reply to no message was sent")
	}
	r.stop()
}
