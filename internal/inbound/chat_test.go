package inbound_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

const chatPath = "/api/webhooks/chat"

// chatRequest returns a signed request of the provider.
func chatRequest(path, body, secret string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	signature, timestamp := chat.Sign([]byte(body), time.Now(), secret)
	r.Header.Set("X-Slack-Signature", signature)
	r.Header.Set("X-Slack-Request-Timestamp", timestamp)
	return r
}

// chatEvent returns an event of a workspace; members are name, value pairs.
func chatEvent(workspace, id string, members ...any) string {
	event := map[string]any{"type": "message", "channel": "C9", "channel_type": "channel", "user": "U7"}
	for i := 0; i < len(members); i += 2 {
		event[members[i].(string)] = members[i+1]
	}
	body, err := json.Marshal(map[string]any{
		"type": "event_callback", "team_id": workspace, "api_app_id": "A1", "event_id": id, "event_time": time.Now().Unix(),
		"authorizations": []any{map[string]any{"team_id": workspace, "user_id": "UBOT", "is_bot": true}}, "event": event,
	})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// chatHouse returns a house with a team chat; its API knows U7 and U8.
func chatHouse(t *testing.T, change ...func(*house)) (*house, *provider) {
	const page = "<!DOCTYPE html><html><title>Sign in</title>"
	p := &provider{answers: map[string]answerFunc{
		"https://slack.com/api/users.info?user=U7":   file(`{"ok":true,"user":{"id":"U7","profile":{"real_name":"Ana Client","email":"ana@client.example"}}}`),
		"https://slack.com/api/users.info?user=U8":   file(`{"ok":true,"user":{"id":"U8","profile":{"real_name":"Bea Client","email":"bea@client.example"}}}`),
		"https://slack.com/api/users.info?user=UBOT": file(`{"ok":false,"error":"user_not_found"}`),
		"https://files.slack.com/a.png":              file(png, "Content-Type", "image/png"),
		"https://files.slack.com/b.png":              file(page, "Content-Type", "text/html"),
	}}
	h := startSQLite(t, append([]func(*house){func(h *house) {
		h.adapters = []channel.Adapter{chat.New(chat.Config{})}
		h.api, h.media = p, p
		h.secrets = map[string][]string{"chat": {"the deployment's secret"}}
	}}, change...)...)
	return h, p
}

func withBotToken(n *connection.New) { n.Credentials = map[string]string{"bot_token": "token"} }

// thread returns the only ticket and its messages.
func (h *house) thread(t testing.TB) (desk.Ticket, []desk.Message) {
	t.Helper()
	list, _, err := h.desk.FindTickets(t.Context(), h.db, "org-1", desk.TicketQuery{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d tickets, %v, want one", len(list), err)
	}
	messages, err := h.desk.Messages(t.Context(), h.db, "org-1", list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return list[0], messages
}

// TestChatThread: a thread of the team chat is one ticket, with the messages of all its members
// and their edits.
func TestChatThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := chatHouse(t)
		h.connect(t, "chat", "T1", withBotToken)
		secret := secretOf("T1")
		post := func(id string, members ...any) {
			t.Helper()
			h.wantAnswer(t, chatRequest(chatPath, chatEvent("T1", id, members...), secret), 200, accepted)
		}
		const root, reply = "946684700.000100", "946684701.000200"
		// Two events announce the same text, in either order.
		post("Ev1", "type", "app_mention", "text", "<@UBOT> printer is down", "ts", root)
		post("Ev2", "text", "<@UBOT> printer is down", "ts", root)
		post("Ev3", "user", "U8", "text", "here too", "ts", reply, "thread_ts", root, "files", []any{
			map[string]any{"id": "F1", "name": "a.png", "mimetype": "image/png", "url_private_download": "https://files.slack.com/a.png"},
			map[string]any{"id": "F2", "name": "b.png", "mimetype": "image/png", "url_private_download": "https://files.slack.com/b.png"},
		}, "subtype", "file_share")
		h.run(t)
		h.settled(t)
		post("Ev4", "subtype", "message_changed", "ts", "946684702.000300",
			"message", map[string]any{"user": "U8", "text": "here too, <@U7>", "ts": reply, "thread_ts": root},
			"previous_message", map[string]any{"user": "U8", "text": "here too", "ts": reply, "thread_ts": root})
		post("Ev5", "type", "reaction_added", "reaction", "eyes", "event_ts", "946684703.000400",
			"item", map[string]any{"type": "message", "channel": "C9", "ts": reply})
		post("Ev6", "subtype", "message_deleted", "ts", "946684704.000500", "deleted_ts", root,
			"previous_message", map[string]any{"user": "U7", "text": "printer is down", "ts": root})
		h.settled(t)

		ticket, messages := h.thread(t)
		if ticket.Customer.Name != "Ana Client" || ticket.Customer.Email != "ana@client.example" || ticket.Channel != "chat" {
			t.Errorf("the ticket is %+v, want Ana's", ticket.Customer)
		}
		if len(messages) != 2 {
			t.Fatalf("%d messages, want 2: %+v", len(messages), messages)
		}
		first, second := messages[0], messages[1]
		if !first.Details.Deleted || first.ExternalID != "C9:"+root {
			t.Errorf("the first message is %+v, want it deleted", first)
		}
		if second.Author.Name != "Bea Client" || second.Text != "here too, @Ana Client" || second.Details.OriginalText != "here too" {
			t.Errorf("the second message is %q by %s, before %q; want Bea's, edited", second.Text, second.Author.Name, second.Details.OriginalText)
		}
		var happened []string // the provider does not say in which thread a reaction is, so its position varies
		for _, a := range second.Details.Annotations {
			happened = append(happened, fmt.Sprintf("%s by %s: %s", a.Kind, a.By, a.Text))
		}
		slices.Sort(happened)
		if want := []string{"edited by Bea Client: here too, @Ana Client", "reacted by Ana Client: :eyes:"}; !slices.Equal(happened, want) {
			t.Errorf("annotations %q, want %q", happened, want)
		}
		if a := second.Attachments; len(a) != 2 || a[0].Error != "" || !strings.Contains(a[1].Error, "files:read") {
			t.Errorf("attachments %+v, want a file and a hint", a)
		}
		for _, asked := range p.asked {
			if !strings.Contains(asked, " Bearer token") {
				t.Errorf("asked without the token: %s", asked)
			}
		}
	})
}

// TestChatCopies: many concurrent copies of an event are one message.
func TestChatCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := chatHouse(t)
		h.connect(t, "chat", "T1", withBotToken)
		h.run(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for i := range 20 {
			wg.Go(func() {
				r := chatRequest(chatPath, chatEvent("T1", "Ev1", "text", "hi", "ts", "946684700.000100"), secretOf("T1"))
				r.Header.Set("X-Slack-Retry-Num", fmt.Sprint(i)) // a retry is processed like a first attempt
				w := h.do(r)
				mu.Lock()
				defer mu.Unlock()
				answers[fmt.Sprintf("%d %s", w.Code, w.Body)]++
			})
		}
		wg.Wait()
		h.settled(t)
		if answers["200 "+accepted] != 1 || answers["200 "+duplicate] != 19 {
			t.Errorf("answers %v, want one accepted and 19 duplicates", answers)
		}
		h.wantTickets(t, "org-1", []string{"hi"})
	})
}

// TestChatGreeting: the signed url_verification challenge is answered with its value.
func TestChatGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := chatHouse(t)
		c := h.connect(t, "chat", "T1")
		before := h.rows(t)
		const greeting = `{"token":"x","type":"url_verification","challenge":"3eZbrw1aBm2r"}`
		for _, tt := range []struct {
			path, secret string
			status       int
			body         string
		}{
			{chatPath, "the deployment's secret", 200, "3eZbrw1aBm2r"},
			{chatPath + "?c=" + c.ID, secretOf("T1"), 200, "3eZbrw1aBm2r"},
			{chatPath + "?c=" + c.ID, "the deployment's secret", 200, "3eZbrw1aBm2r"},
			{chatPath, secretOf("T1"), 401, denied},
			{chatPath, "another", 401, denied},
			{chatPath + "?c=nobody", secretOf("T1"), 401, denied},
		} {
			w := h.do(chatRequest(tt.path, greeting, tt.secret))
			if w.Code != tt.status || w.Body.String() != tt.body || tt.status == 200 && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Errorf("%s with %q: answered %d %q as %s, want %d %q", tt.path, tt.secret, w.Code, w.Body, w.Header().Get("Content-Type"), tt.status, tt.body)
			}
		}
		r := chatRequest(chatPath, greeting, "the deployment's secret")
		r.Header.Del("X-Slack-Signature")
		h.wantAnswer(t, r, 401, denied)
		h.wantUntouched(t, before)
	})
}

// TestChatTenants: the secret of one workspace has no effect in another, and a connection
// receives only the events it selects.
func TestChatTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := chatHouse(t)
		h.connect(t, "chat", "T1", func(n *connection.New) { n.Settings = map[string]string{"channels": "C9, C10"} })
		h.connect(t, "chat", "T2", func(n *connection.New) { n.OrganizationID = "org-2" })
		h.connect(t, "chat", "E1", func(n *connection.New) { n.OrganizationID = "org-3" })
		say := func(workspace, id string, members ...any) string {
			return chatEvent(workspace, id, append([]any{"text", id, "ts", "946684700.000100"}, members...)...)
		}
		inEnterprise := strings.Replace(say("T5", "Ev8"), `"is_bot"`, `"enterprise_id":"E1","is_bot"`, 1)
		shared := strings.Replace(say("T1", "Ev9", "channel", "C10"), `"team_id":"T1","type"`, `"team_id":"T2","type"`, 1) // the author belongs to T2
		for _, tt := range []struct {
			name, body, secret string
			status             int
			answer             string
		}{
			{"its own", say("T1", "Ev1"), secretOf("T1"), 200, accepted},
			{"another's secret", say("T2", "Ev2"), secretOf("T1"), 401, denied},
			{"a workspace that nobody connected", say("T3", "Ev3"), secretOf("T1"), 401, denied},
			{"another's", say("T2", "Ev4"), secretOf("T2"), 200, accepted},
			{"the deployment's app", say("T2", "Ev5", "ts", "946684700.000200"), "the deployment's secret", 200, accepted},
			{"a channel that is not wanted", say("T1", "Ev6", "channel", "C8"), secretOf("T1"), 200, ignored},
			{"a direct message", say("T1", "Ev7", "channel", "D8"), secretOf("T1"), 200, accepted},
			{"in an enterprise", inEnterprise, secretOf("E1"), 200, accepted},
			{"in a channel that two share", shared, secretOf("T1"), 200, accepted},
			{"the same, by the writer's workspace", strings.Replace(shared, "Ev9", "Ev10", 1), secretOf("T2"), 401, denied},
			{"a program", say("T1", "Ev11", "bot_id", "B1"), secretOf("T1"), 200, ignored},
		} {
			w := h.do(chatRequest(chatPath, tt.body, tt.secret))
			if w.Code != tt.status || w.Body.String() != tt.answer {
				t.Errorf("%s: answered %d %q, want %d %q", tt.name, w.Code, w.Body, tt.status, tt.answer)
			}
		}
		h.run(t)
		h.settled(t)
		for org, want := range map[string]string{"org-1": "Ev1 Ev7 Ev9", "org-2": "Ev4 Ev5", "org-3": "Ev8"} {
			var got []string
			for _, texts := range h.tickets(t, org) {
				got = append(got, texts...)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("tickets of %s: %q, want %s", org, got, want)
			}
		}
	})
}

// gazette records connection events.
type gazette struct{ recorder }

// TestChatNews: an event that ends a connection reaches the connection domain.
func TestChatNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(gazette)
		h, _ := chatHouse(t, func(h *house) { h.news = g })
		h.connect(t, "chat", "T1")
		for i, body := range []string{
			chatEvent("T1", "Ev1", "type", "app_uninstalled"),
			chatEvent("T1", "Ev2", "type", "tokens_revoked", "tokens", map[string]any{"bot": []string{"UBOT"}}),
			chatEvent("T1", "Ev3", "type", "tokens_revoked", "tokens", map[string]any{"oauth": []string{"U7"}}),
			`{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":946684800}`,
		} {
			w := h.do(chatRequest(chatPath, body, secretOf("T1")))
			if w.Code != 200 || w.Body.String() != accepted {
				t.Errorf("news %d: answered %d %q", i+1, w.Code, w.Body)
			}
		}
		h.run(t)
		h.settled(t)
		var got []string
		for _, s := range g.taken {
			got = append(got, strings.Join(strings.Fields(s)[:2], " "))
		}
		slices.Sort(got)
		if want := []string{"news disconnected", "news disconnected", "news noticed", "news noticed"}; !slices.Equal(got, want) {
			t.Errorf("told of %q, want %q", got, want)
		}
		for _, e := range h.list(t) {
			if e.State != inbound.Processed {
				t.Errorf("the event %s is %s: %s", e.Kind, e.State, e.Error)
			}
		}
	})
}

// TestChatProviderDown: without the author's name, the text still arrives.
func TestChatProviderDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := chatHouse(t, func(h *house) {
			h.api = transport(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		})
		h.connect(t, "chat", "T1", withBotToken)
		h.wantAnswer(t, chatRequest(chatPath, chatEvent("T1", "Ev1", "text", "hi", "ts", "946684700.000100"), secretOf("T1")), 200, accepted)
		h.run(t)
		h.settled(t)
		h.wantTickets(t, "org-1", []string{"hi"})
	})
}
