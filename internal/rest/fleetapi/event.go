package fleetapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// EventsTopic is published after each event of a fleet.
const EventsTopic = "fleet-events"

const (
	maxStreamLife = 30 * time.Minute
	maxStreams    = 20 // of a key in this process
	streamBatch   = 100
)

// openStreams counts the open streams by key.
type openStreams struct {
	mu    sync.Mutex
	byKey map[string]int
}

// enter counts a stream; leave must be called at its end. ok is false at the limit.
func (o *openStreams) enter(keyID string) (leave func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byKey[keyID] >= maxStreams {
		return nil, false
	}
	if o.byKey == nil {
		o.byKey = make(map[string]int)
	}
	o.byKey[keyID]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.byKey[keyID]--; o.byKey[keyID] == 0 {
			delete(o.byKey, keyID)
		}
	}, true
}

func (a *API) eventRoutes() []rest.Route {
	names := make([]string, len(event.FleetNames))
	for i, name := range event.FleetNames {
		names[i] = string(name)
	}
	return []rest.Route{{
		Method: "GET", Path: "/events", ID: "streamEvents", Tag: "Events", Summary: "Stream events",
		Needs:  needs("rides", apikey.Read),
		Query:  []rest.Param{{Name: "event", Kind: rest.EnumsParam, Values: names, Doc: "Only these events."}},
		Stream: true, Handle: a.streamEvents,
	}}
}

// eventStream is an open stream of one request.
type eventStream struct {
	api   *API
	r     *rest.Request
	names []string // empty: all
	after int64    // sequence of the last event sent or passed
	gap   bool     // events before it are not stored any more
}

// streamEvents streams the events that a key may read, from now on, or after the one of the header
// Last-Event-ID.
func (a *API) streamEvents(ctx context.Context, r *rest.Request) (rest.Response, error) {
	first, last, err := a.Fleet.OpenStream(ctx, r.Key.OrganizationID)
	if err != nil {
		return rest.Response{}, err
	}
	s := &eventStream{api: a, r: r, names: r.Strings("event"), after: last}
	if id := r.LastEventID(); id != "" {
		if s.after, err = strconv.ParseInt(id, 10, 64); err != nil || s.after < 0 {
			return rest.Response{}, rest.BadParameter("Last-Event-ID", "Must be the id of an event of this stream.")
		}
		if s.after < first || s.after > last {
			s.after, s.gap = first, true
		}
	}
	return rest.Stream(s.run), nil
}

// run sends events until the stream ends.
func (s *eventStream) run(ctx context.Context, send func(text string) bool) {
	leave, ok := s.api.streams.enter(s.r.Key.ID)
	if !ok {
		send("retry: 60000\n\n")
		return
	}
	defer leave()
	sub := s.api.Live.Subscribe(s.r.Key.OrganizationID)
	defer sub.Close()
	// The id comes first: a client that gets no event resumes here, too.
	start := fmt.Sprintf("retry: 2000\nid: %d\n\n", s.after)
	if s.gap {
		start = fmt.Sprintf("retry: 2000\n\nid: %d\nevent: gap\ndata: {}\n\n", s.after)
	}
	if !send(start) {
		return
	}
	beat, end := time.NewTicker(live.Heartbeat), time.NewTimer(maxStreamLife)
	defer beat.Stop()
	defer end.Stop()
	for {
		if !s.sendNew(ctx, send) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-beat.C:
			if !s.valid(ctx) || !send(": still here\n\n") {
				return
			}
		case _, ok := <-sub.Ready():
			if !ok {
				return
			}
			sub.Drain()
		}
	}
}

// valid reports whether the key of the stream is as it was when the stream began.
func (s *eventStream) valid(ctx context.Context) bool {
	k, err := s.api.Keys.Find(ctx, s.r.Key.OrganizationID, s.r.Key.ID)
	return err == nil && k.Status(s.api.DB.Now()) == apikey.Active && k.UpdatedAt.Equal(s.r.Key.UpdatedAt)
}

// sendNew sends all new events and reports whether the stream can go on.
func (s *eventStream) sendNew(ctx context.Context, send func(text string) bool) bool {
	for {
		list, err := s.api.Fleet.EventsAfter(ctx, s.api.DB, s.r.Key.OrganizationID, s.after, streamBatch)
		if err != nil {
			return false // the client resumes
		}
		var b strings.Builder
		shown := true
		for i := range list {
			s.after = list[i].Sequence
			if shown = s.shows(&list[i]); shown {
				if err := s.write(&b, &list[i]); err != nil {
					return false
				}
			}
		}
		if !shown { // a client resumes after it, not where the events may be deleted
			fmt.Fprintf(&b, "id: %d\n\n", s.after)
		}
		// The key is read after the events: one that was revoked before they happened gets none.
		if b.Len() > 0 && (!s.valid(ctx) || !send(b.String())) {
			return false
		}
		if len(list) < streamBatch {
			return true
		}
	}
}

// shows reports whether the stream has an event: its key may read the record, and it is asked for.
func (s *eventStream) shows(e *fleet.Event) bool {
	_, kind := kindOf(e.Name)
	return s.r.Can(kind.resource, apikey.Read) && s.r.Covers(e.SubaccountID) &&
		(len(s.names) == 0 || slices.Contains(s.names, string(e.Name)))
}

// write writes an event with the body of its deliveries to webhooks.
func (s *eventStream) write(b *strings.Builder, e *fleet.Event) error {
	body, err := payload.Render(payload.Nested, &event.Event{ID: e.ID, Name: e.Name, At: e.At, Data: event.Data{Fleet: json.RawMessage(e.Data)}})
	if err == nil {
		fmt.Fprintf(b, "id: %d\nevent: %s\ndata: %s\n\n", e.Sequence, e.Name, body)
	}
	return err
}
