package inbound_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
)

const (
	voicePath  = "/api/webhooks/voice"
	telephone  = "+12085550100" // of org-1
	caller     = "+17025550111"
	department = "11"
)

// switchboard is a house with phone calls.
type switchboard struct {
	*house
	calls *call.Service
}

// lateCalls is set after the house that it depends on.
type lateCalls struct{ *call.Service }

func startVoice(t testing.TB, start func(testing.TB, ...func(*house)) *house, media http.RoundTripper) *switchboard {
	t.Helper()
	late := new(lateCalls)
	h := start(t, func(h *house) {
		h.adapters = append(h.adapters, voice.New(voice.Config{}))
		h.calls = late
		h.media = media
	})
	late.Service = call.Open(call.Config{
		DB: h.db, Queue: h.queue,
		Settings: func(ctx context.Context, id string) (map[string]string, error) {
			c, err := h.connections.ByID(ctx, id)
			if c == nil {
				return nil, err
			}
			return c.Settings, err
		},
		Merge: func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error {
			_, err := h.desk.MergeTx(ctx, tx, organizationID, ticketID, into)
			return err
		},
	})
	late.RegisterWorkers(h.Service)
	return &switchboard{h, late.Service}
}

// step returns a call event of the provider.
func step(state string, at int, change ...map[string]any) map[string]any {
	e := map[string]any{
		"call_id": 5780678246121472, "state": state, "direction": "inbound", "event_timestamp": 1764000000000 + at*1000,
		"target":  map[string]any{"id": 11, "type": "department", "name": "Support", "phone": telephone},
		"contact": map[string]any{"name": "Ana", "phone": caller}, "external_number": caller, "internal_number": telephone,
		"date_started": 1764000000000, "date_ended": 1764000041000,
	}
	switch state {
	case "voicemail", "voicemail_uploaded":
		e["voicemail_link"] = "https://dialpad.com/blob/voicemail/1.mp3"
	case "transcription":
		e["transcription_text"] = "The lock does not open."
	}
	if state == "voicemail_uploaded" {
		e["voicemail_recording_id"] = 33
	}
	for _, c := range change {
		maps.Copy(e, c)
	}
	return e
}

// voiceRequest returns the provider's signed request.
func voiceRequest(event map[string]any, secret string) *http.Request {
	b, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	return httptest.NewRequest("POST", voicePath, strings.NewReader(string(voice.SignJWT(b, secret))))
}

// recording serves a recording as the provider does: its API requires the token and redirects
// to a private address.
func recording(t testing.TB) http.RoundTripper {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "dialpad.com" && r.Header.Get("Authorization") == "Bearer token":
			http.Redirect(w, r, "https://storage.googleapis.com"+r.URL.Path+"?signed=1", http.StatusFound)
		case r.Host == "storage.googleapis.com" && r.Header.Get("Authorization") == "":
			fmt.Fprint(w, "ID3\x03 what was said")
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	client := server.Client().Transport.(*http.Transport)
	return transport(func(r *http.Request) (*http.Response, error) {
		there := r.Clone(r.Context())
		there.Host, there.URL.Host = r.URL.Host, server.Listener.Addr().String()
		resp, err := client.RoundTrip(there)
		if resp != nil {
			resp.Request = r
		}
		return resp, err
	})
}

// TestVoicemail: the signed events of a voicemail become a ticket with recording and
// transcription.
func TestVoicemail(t *testing.T) {
	h := startVoice(t, start, recording(t))
	h.connect(t, "voice", telephone, func(n *connection.New) { n.Credentials = map[string]string{"api_token": "token"} })
	secret := secretOf(telephone)
	h.wantAnswer(t, voiceRequest(step("ringing", 1), secret), 200, accepted)
	h.wantAnswer(t, voiceRequest(step("voicemail", 20), secret), 200, accepted)
	h.wantAnswer(t, voiceRequest(step("transcription", 60), secret), 200, accepted)
	h.wantAnswer(t, voiceRequest(step("voicemail_uploaded", 45), secret), 200, accepted)
	h.wantAnswer(t, voiceRequest(step("transcription", 60), secret), 200, duplicate)
	h.wantAnswer(t, voiceRequest(step("hangup", 41), "another secret"), 401, denied)
	h.until(t, event.TicketCreated, 1)

	ticket, messages := h.ticket(t)
	if ticket.Channel != "voice" || ticket.Subject != "Voicemail from Ana (+17025550111)" || ticket.Customer.Phone != caller || ticket.Customer.Name != "Ana" {
		t.Errorf("ticket %s %q of %+v", ticket.Channel, ticket.Subject, ticket.Customer)
	}
	m := messages[0]
	if m.Text != "The lock does not open." || len(m.Attachments) != 1 {
		t.Fatalf("message %q with %+v, want text and recording", m.Text, m.Attachments)
	}
	for h.count(t, "SELECT count(*) FROM jobs WHERE kind = $1", desk.FetchKind) > 0 {
		runtime.Gosched() // the recording is downloaded later
	}
	a, content, err := h.desk.OpenAttachment(t.Context(), "org-1", m.Attachments[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	got := make([]byte, 100)
	n, _ := content.Read(got)
	if a.Name != "voicemail.mp3" || a.ContentType != "audio/mpeg" || string(got[:n]) != "ID3\x03 what was said" {
		t.Errorf("recording %s, %s: %q", a.Name, a.ContentType, got[:n])
	}
	calls, err := h.calls.List(t.Context(), h.db, "org-1", call.Filter{TicketID: ticket.ID})
	if err != nil || len(calls) != 1 || calls[0].Contact.Phone != caller || !slices.Equal(calls[0].Legs, []string{"5780678246121472"}) {
		t.Errorf("calls of the ticket %+v, %v", calls, err)
	}
}

// ticket returns the only ticket of org-1.
func (h *house) ticket(t testing.TB) (desk.Ticket, []desk.Message) {
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

// TestVoicemailParallel delivers each event twenty times at once.
func TestVoicemailParallel(t *testing.T) {
	h := startVoice(t, start, recording(t))
	h.connect(t, "voice", telephone, func(n *connection.New) { n.Credentials = map[string]string{"api_token": "token"} })
	var wg sync.WaitGroup
	var fresh atomic.Int64
	for range 20 {
		for _, e := range []map[string]any{step("voicemail_uploaded", 45), step("transcription", 60), step("hangup", 41)} {
			wg.Go(func() {
				w := h.do(voiceRequest(e, secretOf(telephone)))
				if w.Code != 200 {
					t.Errorf("answered %d %q", w.Code, w.Body)
				}
				if w.Body.String() == accepted {
					fresh.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if fresh.Load() != 3 {
		t.Errorf("%d events accepted, want 3", fresh.Load())
	}
	h.until(t, event.TicketCreated, 1)
	soon := time.Now().Add(time.Minute).UnixMicro()
	for h.count(t, "SELECT count(*) FROM jobs WHERE run_at < $1", soon) > 0 {
		runtime.Gosched() // until the queue is empty
	}
	_, messages := h.ticket(t)
	text, files := "", 0
	for _, m := range messages {
		text += m.Text
		files += len(m.Attachments)
	}
	if strings.Count(text, "The lock") != 1 || files != 1 {
		t.Errorf("the ticket holds %q and %d recordings", text, files)
	}
}

// TestVoicemailAlone: the transcription arrives too late.
func TestVoicemailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &provider{answers: map[string]answerFunc{"https://dialpad.com/blob/voicemail/1.mp3": file("ID3\x03")}}
		h := startVoice(t, startSQLite, far)
		h.connect(t, "voice", telephone)
		h.run(t)
		h.wantAnswer(t, voiceRequest(step("voicemail_uploaded", 45), secretOf(telephone)), 200, accepted)
		time.Sleep(call.TranscriptionWait - time.Second)
		synctest.Wait()
		h.wantTickets(t, "org-1")
		time.Sleep(time.Second)
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"A voicemail (0:41), without a transcription."})
		h.wantAnswer(t, voiceRequest(step("transcription", 600), secretOf(telephone)), 200, accepted)
		synctest.Wait()
		h.wantTickets(t, "org-1", []string{"A voicemail (0:41), without a transcription.", "The lock does not open."})
	})
}

// TestVoiceRouting routes requests that name several of our numbers.
func TestVoiceRouting(t *testing.T) {
	h := startVoice(t, start, recording(t))
	byNumber := h.connect(t, "voice", telephone)
	byID := h.connect(t, "voice", department, func(n *connection.New) { n.OrganizationID = "org-2" })
	for _, tt := range []struct {
		name, secret string
		event        map[string]any
		status       int
		to           string // the connection; empty for none
	}{
		{"the number's secret", secretOf(telephone), step("ringing", 1), 200, byNumber.ID},
		{"the department's secret", secretOf(department), step("ringing", 2), 200, byID.ID},
		{"another department", secretOf(department), step("ringing", 3, map[string]any{"target": map[string]any{"id": 12}, "internal_number": nil}), 401, ""},
		{"another number", secretOf(telephone), step("ringing", 4, map[string]any{"target": nil, "internal_number": "+12085550199"}), 401, ""},
		{"a leg of somebody else, which came in at the department", secretOf(department), step("ringing", 5, map[string]any{
			"target": map[string]any{"id": 77, "phone": "+12085550177"}, "internal_number": "+12085550177", "entry_point_target": map[string]any{"id": 11},
		}), 200, byID.ID},
		{"a text that left, and what became of it", secretOf(department), map[string]any{
			"id": 1, "direction": "outbound", "from_number": "+12085550177", "to_number": []string{caller}, "text": "Hi", "message_status": "sent",
			"target": map[string]any{"id": 11},
		}, 200, byID.ID},
		{"nobody", secretOf(telephone), map[string]any{"call_id": 1, "state": "ringing"}, 401, ""},
	} {
		before := len(h.list(t))
		w := h.do(voiceRequest(tt.event, tt.secret))
		list := h.list(t)
		if w.Code != tt.status || (len(list) > before) != (tt.to != "") {
			t.Errorf("%s: answered %d %q and stored %d", tt.name, w.Code, w.Body, len(list)-before)
			continue
		}
		for _, e := range list[:len(list)-before] {
			if e.ConnectionID != tt.to {
				t.Errorf("%s: for the connection %s, want %s", tt.name, e.ConnectionID, tt.to)
			}
		}
	}
	h.wantAnswer(t, voiceRequest(map[string]any{"event_type": "agent_status", "target": map[string]any{"id": 11}}, secretOf(department)), 200, ignored)
}

// TestVoiceTexts: a customer and an agent exchange texts.
func TestVoiceTexts(t *testing.T) {
	h := startVoice(t, start, recording(t))
	h.connect(t, "voice", telephone)
	send := func(change map[string]any) {
		t.Helper()
		e := map[string]any{"id": 1, "direction": "inbound", "from_number": caller, "to_number": []string{telephone}, "text": "Is 12 free?", "message_status": "pending"}
		maps.Copy(e, change)
		h.wantAnswer(t, voiceRequest(e, secretOf(telephone)), 200, accepted)
	}
	answer := map[string]any{"id": 2, "direction": "outbound", "from_number": telephone, "to_number": []string{caller}, "text": "Yes"}
	send(nil)
	send(answer)
	answer["message_status"] = "success"
	send(answer)
	send(map[string]any{"id": 3, "text": "Great"})
	h.until(t, event.MessageCustomerReply, 1)
	h.wantTickets(t, "org-1", []string{"Is 12 free?", "Yes", "Great"})
	_, messages := h.ticket(t)
	if m := messages[1]; m.Direction != desk.DirectionOutbound || m.Delivery.State != channel.ReceiptDelivered || !m.Details.SentElsewhere {
		t.Errorf("the agent's message %+v", m)
	}
}
