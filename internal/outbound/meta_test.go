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
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// graph is the API of both messengers.
type graph struct {
	mu     sync.Mutex
	took   []string          // texts
	refuse []string          // codes of the answers to the next calls
	later  func(ours string) // called with our id after a message was accepted
}

func (g *graph) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var m struct {
		Ours    string `json:"biz_opaque_callback_data"`
		Text    struct{ Body string }
		Message struct{ Text, Metadata string }
	}
	if r.Header.Get("Authorization") != "Bearer token" || json.NewDecoder(r.Body).Decode(&m) != nil {
		out.WriteHeader(http.StatusUnauthorized)
		io.WriteString(out, `{"error":{"code":190,"message":"no token"}}`)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refuse) > 0 {
		code := g.refuse[0]
		g.refuse = g.refuse[1:]
		out.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(out, `{"error":{"code":%s,"message":"no"}}`, code)
		return
	}
	ours := m.Ours + strings.TrimPrefix(m.Message.Metadata, "kickstand:")
	g.took = append(g.took, m.Text.Body+m.Message.Text)
	if g.later != nil {
		g.later(ours)
	}
	if m.Message.Text != "" {
		io.WriteString(out, `{"message_id":"m_1"}`)
		return
	}
	io.WriteString(out, `{"messages":[{"id":"wamid.1"}]}`)
}

// TestMessengers sends through a provider without a search, which may report
// messages by our id. No message is sent twice.
func TestMessengers(t *testing.T) {
	const mayHave = "it may have arrived"
	lose := func(_ *http.Request, arrived bool) error {
		if arrived {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	refused := func(*http.Request, bool) error { return io.ErrUnexpectedEOF }
	for _, tt := range []struct {
		name   string
		far    *graph
		lose   func(*http.Request, bool) error
		report channel.ReceiptState // comes 20 seconds after acceptance
		heard  time.Duration        // ago
		took   int
		state  channel.ReceiptState
		reason string // part of it
	}{
		{name: "taken", far: new(graph), took: 1, state: channel.ReceiptSent},
		{name: "taken and reported", far: new(graph), report: channel.ReceiptDelivered, took: 1, state: channel.ReceiptDelivered},
		{name: "the answer is lost", far: new(graph), lose: lose, took: 1, state: channel.ReceiptFailed, reason: mayHave},
		{name: "the answer is lost, and a report comes", far: new(graph), lose: lose, report: channel.ReceiptSent, took: 1, state: channel.ReceiptSent},
		{name: "the answer is lost, and it was read", far: new(graph), lose: lose, report: channel.ReceiptRead, took: 1, state: channel.ReceiptRead},
		{name: "the request is lost", far: new(graph), lose: refused, state: channel.ReceiptQueued, reason: "the provider cannot be reached"},
		{name: "too fast", far: &graph{refuse: []string{"4", "4"}}, took: 1, state: channel.ReceiptSent},
		{name: "the token is no good", far: &graph{refuse: []string{"190"}}, state: channel.ReceiptFailed, reason: "the provider refuses the connection's access token"},
		{name: "the time runs out while it waits", far: &graph{refuse: slices.Repeat([]string{"4"}, 100)}, heard: 24*time.Hour - time.Minute,
			state: channel.ReceiptFailed, reason: "in which the customer could be answered here ended on"},
	} {
		for _, adapter := range []string{"business-messaging", "social-messenger"} {
			t.Run(adapter+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					far := &graph{refuse: slices.Clone(tt.far.refuse)}
					r := rigOn(t, dbtest.NewSQLite(t), func(r *rig) { r.http = &wire{to: far, lose: tt.lose} })
					c := r.connect(adapter, "1065", func(n *connection.New) { n.Credentials = map[string]string{"access_token": "token"} })
					ticketChannel := strings.ReplaceAll(adapter, "-", "_")
					reported := make(chan string, 1)
					far.later = func(ours string) { reported <- ours }
					ticket := r.intake(c, ticketChannel, channel.Event{Message: &channel.Message{
						ExternalID: "in-1", ThreadKey: "9001", From: channel.Party{ID: "9001", Name: "Ana"}, Text: "Hello?", SentAt: time.Now().Add(-tt.heard),
					}}).TicketID
					r.run()
					m := r.reply(ticket, "Yes.")
					if tt.report != "" {
						ours := <-reported
						time.Sleep(20 * time.Second)
						res := r.intake(c, ticketChannel, channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{"their id", ours}, State: tt.report}})
						if res.Outcome != desk.ReceiptApplied {
							t.Errorf("the report came to %+v", res)
						}
					}
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					if got, want := far.took, slices.Repeat([]string{"Yes."}, tt.took); !slices.Equal(got, want) {
						t.Errorf("the provider took %q, want %q", got, want)
					}
					got := r.message(m).Delivery
					if got.State != tt.state || !strings.Contains(got.Error, tt.reason) || tt.reason == "" && got.Error != "" {
						t.Errorf("delivery is %+v, want %s with %q", got, tt.state, tt.reason)
					}
				})
			})
		}
	}
}
