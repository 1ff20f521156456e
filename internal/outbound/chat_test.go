package outbound_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// workspace is the team chat's API.
type workspace struct {
	mu     sync.Mutex
	posts  []map[string]any // accepted posts
	refuse []string         // response bodies for the next posts; "429" stands for that status
	scope  bool             // lets threads be read
}

func (w *workspace) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		io.WriteString(out, `{"ok":false,"error":"invalid_auth"}`)
	case r.Method == http.MethodPost && r.URL.Path == "/api/chat.postMessage":
		if len(w.refuse) > 0 {
			answer := w.refuse[0]
			w.refuse = w.refuse[1:]
			if answer == "429" {
				out.Header().Set("Retry-After", "30")
				out.WriteHeader(http.StatusTooManyRequests)
				return
			}
			io.WriteString(out, answer)
			return
		}
		var post map[string]any
		if err := json.NewDecoder(r.Body).Decode(&post); err != nil {
			io.WriteString(out, `{"ok":false,"error":"invalid_json"}`)
			return
		}
		post["ts"] = fmt.Sprintf("%d.%06d", time.Now().Unix(), len(w.posts)+1)
		w.posts = append(w.posts, post)
		fmt.Fprintf(out, `{"ok":true,"channel":%q,"ts":%q}`, post["channel"], post["ts"])
	case r.URL.Path == "/api/conversations.replies" && !w.scope:
		io.WriteString(out, `{"ok":false,"error":"missing_scope","needed":"channels:history"}`)
	case r.URL.Path == "/api/conversations.replies":
		query := r.URL.Query()
		messages := []map[string]any{{"ts": query.Get("ts"), "text": "printer is down"}}
		for _, p := range w.posts {
			if p["thread_ts"] == query.Get("ts") && p["channel"] == query.Get("channel") {
				messages = append(messages, p)
			}
		}
		json.NewEncoder(out).Encode(map[string]any{"ok": true, "messages": messages, "has_more": false})
	default:
		out.WriteHeader(http.StatusNotFound)
	}
}

func (w *workspace) texts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, p := range w.posts {
		list = append(list, fmt.Sprint(p["channel"], " ", p["thread_ts"], " ", p["text"]))
	}
	return list
}

// TestChat replies to a thread of the team chat, with a provider that fails in
// several reply options.
func TestChat(t *testing.T) {
	const thread = "C9:946684700.000200"
	losePost := func(r *http.Request, arrived bool) error {
		if arrived && r.Method == http.MethodPost {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		far    *workspace
		lose   func(*http.Request, bool) error
		posted int
		state  channel.ReceiptState
		reason string // part of it
	}{
		{name: "taken", far: new(workspace), posted: 1, state: channel.ReceiptSent},
		{name: "the answer is lost, and the message found", far: &workspace{scope: true}, lose: losePost, posted: 1, state: channel.ReceiptSent},
		{name: "the answer is lost, and the thread may not be read", far: new(workspace), lose: losePost, posted: 1, state: channel.ReceiptFailed, reason: "it may have arrived"},
		{name: "trouble, and it was not taken", far: &workspace{scope: true, refuse: []string{`{"ok":false,"error":"fatal_error"}`}}, posted: 1, state: channel.ReceiptSent},
		{name: "too fast", far: &workspace{refuse: []string{"429", "429"}}, posted: 1, state: channel.ReceiptSent},
		{name: "put out of the channel", far: &workspace{refuse: []string{`{"ok":false,"error":"not_in_channel"}`}}, state: channel.ReceiptFailed,
			reason: "the app is not in the channel any more: invite it again (not_in_channel)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{to: tt.far, lose: tt.lose}
				r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = w })
				c := r.connect("chat", "T1", func(n *connection.New) { n.Credentials = map[string]string{"bot_token": "token"} })
				ticket := r.intake(c, "chat", channel.Event{Message: &channel.Message{
					ExternalID: thread, ThreadKey: thread, From: channel.Party{ID: "U7", Name: "Ana"}, Text: "printer is down",
				}}).TicketID
				r.run()
				m := r.reply(ticket, "Is it <plugged> in?")
				time.Sleep(15 * time.Minute)
				synctest.Wait()
				want := slices.Repeat([]string{"C9 946684700.000200 Is it &lt;plugged&gt; in?"}, tt.posted)
				if got := tt.far.texts(); !slices.Equal(got, want) {
					t.Errorf("the provider took %q, want %q", got, want)
				}
				got := r.message(m)
				if got.Delivery.State != tt.state || !strings.Contains(got.Delivery.Error, tt.reason) || tt.reason == "" && got.Delivery.Error != "" {
					t.Errorf("delivery is %+v, want %s with %q", got.Delivery, tt.state, tt.reason)
				}
				if sent := strings.HasPrefix(got.ExternalID, "C9:"); sent != (tt.state == channel.ReceiptSent) {
					t.Errorf("the message is known as %q", got.ExternalID)
				}
			})
		})
	}
}
