package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	// maxStreamLife is the maximum duration of a stream; the browser then opens another.
	maxStreamLife = 30 * time.Minute
	// streamRetry is the Retry-After of a client over its limit.
	streamRetry = time.Minute
)

// liveEvents streams changes in the caller's organization as server-sent events (HTML,
// section 9.2). An event has topics of package live, one per line, and a live mark as its
// id. A client that sends the last mark it has, of a page or an earlier stream, is told
// whether it missed any.
//
// A stream ends as soon as its session ends or its permissions change: other processes
// announce both, and a timer covers the session's absolute end. Streams are limited per
// session, user and network; beyond that the response is 429. HEAD has the status that
// GET would have.
func (s *Site) liveEvents(w http.ResponseWriter, r *http.Request) {
	id, ok := s.identifyListener(w, r)
	if !ok {
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if id.OrganizationID == "" || s.live == nil {
		w.WriteHeader(http.StatusNoContent) // 204 stops a browser from reconnecting
		return
	}
	leave, ok := s.streams.enter(streamOwner{id.SessionID, id.UserID, account.Network(s.gate.Client(r).IP)})
	if !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(streamRetry/time.Second)))
		http.Error(w, "Too many live connections are open. Close some pages of this site.", http.StatusTooManyRequests)
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	n := eventStream{site: s, out: live.NewStream(w), id: id,
		sub: s.live.Subscribe(id.OrganizationID), session: s.live.Subscribe(account.SessionsTopic(id.UserID))}
	defer n.sub.Close()
	defer n.session.Close()
	n.run(r)
}

// EventStreams returns the number of open event streams.
func (s *Site) EventStreams() int { return s.streams.total() }

// eventStream is an open stream.
type eventStream struct {
	site    *Site
	out     *live.Stream
	id      account.Identity
	sub     *live.Subscription // to the organization's changes
	session *live.Subscription // to changes of the user's sessions
}

// run sends events until the stream ends.
func (n *eventStream) run(r *http.Request) {
	// The session may have ended before the subscription.
	until, ok := n.check(r.Context())
	if !ok {
		return
	}
	hub, organization := n.site.live, n.id.OrganizationID
	// The mark is read before the events, so that no event falls between.
	mark := hub.Version(organization)
	first := "retry: 2000\nid: " + mark + "\n"
	if since := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("since")); since != "" && since != mark {
		first += "data: " + live.Everything + "\n"
	}
	if !n.out.Send(first + "\n") {
		return
	}
	beat, end := time.NewTicker(live.Heartbeat), time.NewTimer(min(maxStreamLife, until.Sub(n.site.accounts.Now())))
	defer beat.Stop()
	defer end.Stop()
	for {
		var text string
		check := false
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-beat.C: // the announcement of the session's end may be lost
			check, text = true, ": still here\n\n"
		case _, ok := <-n.session.Ready():
			if !ok {
				return
			}
			n.session.Drain()
			check = true
		case _, ok := <-n.sub.Ready():
			if !ok {
				return
			}
			mark, topics := hub.Version(organization), n.sub.Drain()
			if len(topics) == 0 {
				continue
			}
			// A changed organization policy may end sessions.
			check = slices.Contains(topics, "organization") || slices.Contains(topics, live.Everything)
			text = "id: " + mark + "\ndata: " + strings.Join(topics, "\ndata: ") + "\n\n"
		}
		if check {
			if _, ok := n.check(r.Context()); !ok {
				return
			}
		}
		if text != "" && !n.out.Send(text) {
			return
		}
	}
}

// check reports whether the session still grants the same permissions, and when it ends.
func (n *eventStream) check(ctx context.Context) (until time.Time, ok bool) {
	now, until, err := n.site.accounts.CheckSession(ctx, n.id.SessionID)
	return until, err == nil && now.Restricted() == nil && now.OrganizationID == n.id.OrganizationID && now.Role == n.id.Role
}

// identifyListener returns the caller of a stream. Without a session it writes the
// response and ok is false.
func (s *Site) identifyListener(w http.ResponseWriter, r *http.Request) (id account.Identity, ok bool) {
	ctx, err := s.gate.Authenticate(w, r)
	switch {
	case problem.Of(err) == problem.Unauthorized, code(err) == account.SecondFactorSetupRequired:
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "Sign in first.", http.StatusUnauthorized)
		return account.Identity{}, false
	case err != nil:
		http.Error(w, "Not available right now.", http.StatusServiceUnavailable)
		return account.Identity{}, false
	}
	return account.FromContext(ctx)
}
