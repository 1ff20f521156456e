package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	// newsBeat is how often a quiet stream says that it is there, and asks
	// whether its session still is.
	newsBeat = 20 * time.Second
	// newsLife is how long one stream lasts; the browser opens another.
	newsLife = 30 * time.Minute
)

// news streams what has changed in the organization of who asks, as server-sent
// events (HTML, section 9.2): each has the topics of package live, one to a line,
// and the mark of the news as its id. Who names the mark that they know, of a page
// or of the stream before, hears whether something was told since. It ends with the
// session.
func (s *Site) news(w http.ResponseWriter, r *http.Request) {
	id, ok := s.listener(w, r)
	if !ok {
		return
	}
	if id.OrganizationID == "" || s.live == nil {
		w.WriteHeader(http.StatusNoContent) // which has a browser not ask again
		return
	}
	sub := s.live.Subscribe(id.OrganizationID)
	defer sub.Close()

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(text string) bool {
		// The server's limit is for answers that end.
		if err := out.SetWriteDeadline(time.Now().Add(newsBeat)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	// The mark is taken before the news, so that none is between the two.
	mark := s.live.Mark(id.OrganizationID)
	begin := "retry: 2000\nid: " + mark + "\n"
	if since := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("since")); since != "" && since != mark {
		begin += "data: " + live.Everything + "\n"
	}
	if !send(begin + "\n") {
		return
	}
	beat, end := time.NewTicker(newsBeat), time.NewTimer(newsLife)
	defer beat.Stop()
	defer end.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-beat.C:
			if now, ok := s.listener(nil, r); !ok || now.OrganizationID != id.OrganizationID || !send(": still here\n\n") {
				return
			}
		case _, ok := <-sub.News():
			if !ok {
				return
			}
			mark, topics := s.live.Mark(id.OrganizationID), sub.Take()
			if len(topics) > 0 && !send("id: "+mark+"\ndata: "+strings.Join(topics, "\ndata: ")+"\n\n") {
				return
			}
		}
	}
}

// listener returns who asks for news. Without a session there is none, and the
// answer says so; w is nil when the answer has begun, and then nothing is
// refreshed.
func (s *Site) listener(w http.ResponseWriter, r *http.Request) (account.Identity, bool) {
	if w == nil {
		access := ""
		if c, err := r.Cookie(browser.AccessCookie); err == nil {
			access = c.Value
		}
		id, _, err := s.accounts.Authenticate(r.Context(), access, "", s.gate.Client(r))
		return id, err == nil
	}
	ctx, err := s.gate.Authenticate(w, r)
	switch {
	case problem.Of(err) == problem.Unauthorized:
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "Sign in first.", http.StatusUnauthorized)
		return account.Identity{}, false
	case err != nil:
		http.Error(w, "Not available right now.", http.StatusServiceUnavailable)
		return account.Identity{}, false
	}
	id, _ := account.FromContext(ctx)
	return id, true
}
