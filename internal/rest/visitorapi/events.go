package visitorapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	maxStreamLife = 30 * time.Minute
	userStreams   = 5
	allStreams    = 2000 // of an organization
)

// streams counts open event streams by user and organization.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// enter counts a stream; the caller calls leave when it ends. ok is false at a limit.
func (s *streams) enter(v *visitor) (leave func(), ok bool) {
	user, organization := v.connection.ID+" "+v.user.ID, v.connection.OrganizationID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user] >= userStreams || s.open[organization] >= allStreams {
		return nil, false
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	s.open[user]++
	s.open[organization]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range []string{user, organization} {
			if s.open[key]--; s.open[key] == 0 {
				delete(s.open, key)
			}
		}
	}, true
}

// visitorTopic is published when a visitor writes.
func visitorTopic(v *visitor) string { return "visitor:" + v.connection.ID + "/" + v.user.ID }

// AgentTopic is the topic of an agent's typing in a conversation.
func AgentTopic(conversationID string) string { return "agent-typing:" + conversationID }

// events streams server-sent events about the visitor's conversations: "changed" when one has new
// messages, which the client then lists since its cursor, and "typing" while an agent writes. A
// stream that begins or may have missed a change reports all conversations as changed. It ends with
// the token.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, v *visitor) error {
	leave, ok := h.streams.enter(v)
	if !ok {
		e := problem.New(problem.RateLimited, "too many event streams are open")
		e.RetryAfter = time.Minute
		return e
	}
	defer leave()
	s := stream{Handler: h, out: live.NewStream(w), v: v, sub: h.Live.Subscribe(v.connection.OrganizationID)}
	defer s.sub.Close()
	if err := s.load(r.Context()); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	s.run(r)
	return nil
}

// stream is an open event stream.
type stream struct {
	*Handler
	out *live.Stream
	v   *visitor
	sub *live.Subscription

	conversations map[string]string   // the app's ids, by the topic of a conversation of ours
	tickets       map[string][]string // the app's ids, by the topic of a ticket
}

// load reads the visitor's conversations.
func (s *stream) load(ctx context.Context) error {
	list, err := s.Desk.AppThreads(ctx, s.DB, s.v.connection.ID, s.v.user.ID)
	if err != nil {
		return err
	}
	s.conversations, s.tickets = make(map[string]string), make(map[string][]string)
	for _, t := range list {
		_, id := api.SplitThreadKey(t.Key)
		s.conversations[AgentTopic(t.ConversationID)] = id
		s.tickets["ticket:"+t.TicketID] = append(s.tickets["ticket:"+t.TicketID], id)
	}
	return nil
}

// admitted reports whether the token is still valid: the secret may have been replaced, or the channel
// disabled. It reads the channel from the database: a cached one may be older than the change that
// another process has announced.
func (s *stream) admitted(r *http.Request) bool {
	c, err := s.Connections.Find(r.Context(), s.v.connection.ID)
	if err != nil || !c.Enabled {
		return false
	}
	now := s.DB.Now()
	_, err = api.ParseToken(bearer(r), c.ID, c.Secrets(now), now)
	return err == nil
}

// run sends events until the stream ends.
func (s *stream) run(r *http.Request) {
	// The token may have been revoked before the subscription.
	if !s.admitted(r) || !s.out.Send("retry: 2000\n\n"+s.allChanged()) {
		return
	}
	beat, end := time.NewTicker(live.Heartbeat), time.NewTimer(min(maxStreamLife, s.v.expires.Sub(s.DB.Now())))
	defer beat.Stop()
	defer end.Stop()
	for {
		text := ""
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-beat.C:
			if !s.admitted(r) { // the announcement of a change may be lost
				return
			}
			text = ": still here\n\n"
		case _, ok := <-s.sub.Ready():
			if !ok {
				return
			}
			topics := s.sub.Drain()
			if s.concerns(topics) && !s.admitted(r) {
				return
			}
			text = s.react(r.Context(), topics)
		}
		if text != "" && !s.out.Send(text) {
			return
		}
	}
}

// concerns reports whether the channel may have changed.
func (s *stream) concerns(topics []string) bool {
	return slices.ContainsFunc(topics, func(topic string) bool {
		return topic == "channel:"+s.v.connection.ID || topic == "channel:*" || topic == live.Everything
	})
}

// react returns the events of published topics.
func (s *stream) react(ctx context.Context, topics []string) string {
	var b strings.Builder
	all, reload := false, false
	changed := make(map[string]bool)
	for _, topic := range topics {
		switch id, typing := s.conversations[topic]; {
		case typing:
			b.WriteString(event("typing", id))
		case topic == live.Everything, topic == "ticket:*", topic == "agent-typing:*":
			all = true
		case topic == visitorTopic(s.v):
			all = true
		default:
			for _, id := range s.tickets[topic] {
				changed[id], reload = true, true
			}
		}
	}
	if all || reload {
		if err := s.load(ctx); err != nil {
			return b.String() // the next change reports again
		}
	}
	if all {
		return b.String() + s.allChanged()
	}
	for id := range changed {
		b.WriteString(event("changed", id))
	}
	return b.String()
}

// allChanged returns an event for each conversation.
func (s *stream) allChanged() string {
	var b strings.Builder
	for _, id := range s.conversations {
		b.WriteString(event("changed", id))
	}
	return b.String()
}

func event(name, conversation string) string {
	data, _ := json.Marshal(map[string]string{"conversation": conversation}) // strings do not fail
	return "event: " + name + "\ndata: " + string(data) + "\n\n"
}
