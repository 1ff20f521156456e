package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// demoReceiptDelay is how long the stand-in takes to deliver a message.
const demoReceiptDelay = 1500 * time.Millisecond

// demoProviders stands in for the APIs of the providers: it accepts messages as they do, shows them,
// and reports their delivery by signed requests. It serves on the loopback interface only.
type demoProviders struct {
	url    string
	show   func(channel, to, text string)
	report func(ctx context.Context, channel string, t *triggerCmd, event string) error
	log    *slog.Logger

	mu   sync.Mutex
	sent []demoSent // newest last
}

// demoSent is a message that the stand-in accepted.
type demoSent struct {
	ID, Channel, To, Text, Thread, Key string
	At                                 time.Time
}

// maxDemoSent bounds the messages that searches find.
const maxDemoSent = 1000

// newProviders returns a stand-in that shows what is sent beside the command's output.
func (e *env) newProviders() *demoProviders {
	return &demoProviders{log: e.logger(), show: func(channel, to, text string) {
		if !e.JSON {
			fmt.Fprintf(e.out, "%s  %s to %s: %s\n", time.Now().Format(time.TimeOnly), channel, to, strings.Join(strings.Fields(text), " "))
		}
	}}
}

// serve serves the APIs until ctx ends. It returns when it accepts requests.
func (p *demoProviders) serve(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.url = "http://" + ln.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2010-04-01/Accounts/{account}/Messages.json", p.sendSMS)
	mux.HandleFunc("GET /2010-04-01/Accounts/{account}/Messages.json", p.listSMS)
	mux.HandleFunc("POST /api/v2/sms", p.sendVoiceSMS)
	mux.HandleFunc("POST /api/chat.postMessage", p.postChat)
	mux.HandleFunc("GET /api/conversations.replies", p.listChat)
	mux.HandleFunc("GET /api/users.info", p.chatUser)
	mux.HandleFunc("POST /{version}/{from}/messages", p.sendMeta)
	mux.HandleFunc("POST /app", p.sendApp)
	mux.HandleFunc("GET /2010-04-01/Accounts/{account}", p.smsAccount)
	mux.HandleFunc("GET /api/v2/company", p.voiceCompany)
	mux.HandleFunc("GET /api/auth.test", p.chatIdentity)
	mux.HandleFunc("GET /{version}/{id}", p.metaObject)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go server.Serve(ln) // ends with an error when it is closed
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

// accept records and shows a message.
func (p *demoProviders) accept(m demoSent) {
	m.At = time.Now()
	p.mu.Lock()
	p.sent = append(p.sent, m)
	if len(p.sent) > maxDemoSent {
		p.sent = p.sent[len(p.sent)-maxDemoSent:]
	}
	p.mu.Unlock()
	p.show(m.Channel, m.To, m.Text)
}

// receipt reports events of a message, one after the other.
func (p *demoProviders) receipt(ctx context.Context, m demoSent, t triggerCmd, events ...string) {
	ctx = context.WithoutCancel(ctx)
	go func() {
		ticker := time.NewTicker(demoReceiptDelay)
		defer ticker.Stop()
		for _, event := range events {
			<-ticker.C
			if err := p.report(ctx, m.Channel, &t, event); err != nil {
				p.log.Warn("the demo's provider could not report a delivery", "channel", m.Channel, "error", err)
				return
			}
		}
	}()
}

func respondJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // to a client on this machine
}

func (p *demoProviders) sendSMS(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	m := demoSent{ID: "SM" + randomHex(16), Channel: "sms", To: r.PostFormValue("To"), Text: r.PostFormValue("Body")}
	p.accept(m)
	respondJSON(w, http.StatusCreated, map[string]any{"sid": m.ID, "status": "queued", "direction": "outbound-api", "from": r.PostFormValue("From"), "to": m.To, "body": m.Text})
	p.receipt(r.Context(), m, triggerCmd{From: r.PostFormValue("From"), To: m.To, Text: m.ID}, "delivered")
}

func (p *demoProviders) listSMS(w http.ResponseWriter, r *http.Request) {
	messages := []any{}
	for _, m := range p.newest("sms") {
		if m.To == r.URL.Query().Get("To") {
			messages = append(messages, map[string]any{
				"sid": m.ID, "body": m.Text, "direction": "outbound-api", "from": r.URL.Query().Get("From"), "to": m.To,
				"num_media": "0", "status": "delivered", "date_created": m.At.UTC().Format(time.RFC1123Z),
			})
		}
	}
	respondJSON(w, http.StatusOK, map[string]any{"messages": messages})
}

// newest returns the messages of a channel, newest first.
func (p *demoProviders) newest(channel string) []demoSent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []demoSent
	for i := len(p.sent) - 1; i >= 0; i-- {
		if p.sent[i].Channel == channel {
			list = append(list, p.sent[i])
		}
	}
	return list
}

// decode reads the JSON body of a call.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		err = d.Decode(into)
	}
	if err != nil {
		http.Error(w, "malformed JSON", http.StatusBadRequest)
	}
	return err == nil
}

func (p *demoProviders) sendVoiceSMS(w http.ResponseWriter, r *http.Request) {
	var call struct {
		To   []string `json:"to_numbers"`
		Text string   `json:"text"`
	}
	if !decode(w, r, &call) || len(call.To) == 0 {
		return
	}
	id := voiceID()
	m := demoSent{ID: strconv.FormatInt(id, 10), Channel: "voice", To: call.To[0], Text: call.Text}
	p.accept(m)
	respondJSON(w, http.StatusOK, map[string]any{"id": id, "message_status": "pending", "direction": "outbound", "to_numbers": call.To, "text": call.Text})
	p.receipt(r.Context(), m, triggerCmd{From: m.To, To: demoTelephone, Text: m.ID}, "sms-delivered")
}

func (p *demoProviders) postChat(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Channel  string `json:"channel"`
		Thread   string `json:"thread_ts"`
		Text     string `json:"text"`
		Metadata struct {
			Payload struct {
				ID string `json:"id"`
			} `json:"event_payload"`
		} `json:"metadata"`
	}
	if !decode(w, r, &call) {
		return
	}
	now := time.Now()
	m := demoSent{ID: fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000), Channel: "chat", To: call.Channel, Text: call.Text, Thread: call.Thread, Key: call.Metadata.Payload.ID}
	p.accept(m)
	respondJSON(w, http.StatusOK, map[string]any{"ok": true, "channel": call.Channel, "ts": m.ID})
}

func (p *demoProviders) listChat(w http.ResponseWriter, r *http.Request) {
	messages := []any{}
	for _, m := range p.newest("chat") {
		if m.To == r.URL.Query().Get("channel") && m.Thread == r.URL.Query().Get("ts") {
			messages = append(messages, map[string]any{"ts": m.ID, "text": m.Text, "metadata": map[string]any{
				"event_type": "kickstand_message", "event_payload": map[string]any{"id": m.Key},
			}})
		}
	}
	respondJSON(w, http.StatusOK, map[string]any{"ok": true, "messages": messages, "has_more": false})
}

func (p *demoProviders) chatUser(w http.ResponseWriter, r *http.Request) {
	respondJSON(w, http.StatusOK, map[string]any{"ok": true, "user": map[string]any{
		"name": "ana", "profile": map[string]any{"real_name": "Ana Client", "display_name": "Ana", "email": "ana@client.example"},
	}})
}

// sendMeta takes messages of business messaging and of the social messenger.
func (p *demoProviders) sendMeta(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Product   string          `json:"messaging_product"`
		To        string          `json:"to"`
		Recipient json.RawMessage `json:"recipient"` // a text or an object
		Text      struct {
			Body string `json:"body"`
		} `json:"text"`
		Message struct {
			Text string `json:"text"`
		} `json:"message"`
	}
	if !decode(w, r, &call) {
		return
	}
	if call.Product == "" {
		var to struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(call.Recipient, &to); err != nil {
			http.Error(w, "the recipient must be an object", http.StatusBadRequest)
			return
		}
		m := demoSent{ID: "m_" + randomHex(16), Channel: "social-messenger", To: to.ID, Text: call.Message.Text}
		p.accept(m)
		respondJSON(w, http.StatusOK, map[string]any{"recipient_id": to.ID, "message_id": m.ID})
		p.receipt(r.Context(), m, triggerCmd{From: m.To, To: r.PathValue("from")}, "delivery", "read")
		return
	}
	var user string
	json.Unmarshal(call.Recipient, &user) // absent for a number
	to := firstNonEmpty(user, "+"+strings.TrimPrefix(call.To, "+"))
	m := demoSent{ID: "wamid." + randomHex(16), Channel: "business-messaging", To: to, Text: call.Text.Body}
	p.accept(m)
	respondJSON(w, http.StatusOK, map[string]any{
		"messaging_product": "whatsapp", "contacts": []any{map[string]any{"input": call.To, "wa_id": call.To}}, "messages": []any{map[string]any{"id": m.ID}},
	})
	p.receipt(r.Context(), m, triggerCmd{From: m.To, To: r.PathValue("from"), Text: m.ID}, "sent", "delivered", "read")
}

// sendApp takes events of the app's channel.
func (p *demoProviders) sendApp(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type         string `json:"type"`
		User         string `json:"user_id"`
		Conversation string `json:"conversation"`
		Message      struct {
			ID   string `json:"id"`
			Text string `json:"text"`
		} `json:"message"`
	}
	if !decode(w, r, &call) {
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if call.Type != "message.created" {
		return
	}
	m := demoSent{ID: call.Message.ID, Channel: "api", To: call.User, Text: call.Message.Text, Thread: call.Conversation}
	p.accept(m)
	p.receipt(r.Context(), m, triggerCmd{Text: m.ID}, "delivered", "read")
}

// The test calls of the channels.

func (p *demoProviders) smsAccount(w http.ResponseWriter, r *http.Request) {
	respondJSON(w, http.StatusOK, map[string]any{"sid": strings.TrimSuffix(r.PathValue("account"), ".json"), "status": "active"})
}

func (p *demoProviders) voiceCompany(w http.ResponseWriter, _ *http.Request) {
	respondJSON(w, http.StatusOK, map[string]any{"id": 1, "name": demoOrg})
}

func (p *demoProviders) chatIdentity(w http.ResponseWriter, _ *http.Request) {
	respondJSON(w, http.StatusOK, map[string]any{"ok": true, "team_id": demoWorkspace, "bot_id": "B0KICKSTAND"})
}

func (p *demoProviders) metaObject(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "me" {
		respondJSON(w, http.StatusOK, map[string]any{"id": demoPageID, "category": "Rental"})
		return
	}
	respondJSON(w, http.StatusOK, map[string]any{"id": r.PathValue("id"), "display_phone_number": demoNumber})
}

// RoundTrip answers for the servers of the notification service of the marketplace, so that nothing
// leaves this machine.
func (p *demoProviders) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Body: http.NoBody}, nil
}
