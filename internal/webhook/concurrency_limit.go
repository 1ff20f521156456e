package webhook

import (
	"context"
	"slices"
	"sync"
)

// firstPosts is how many posts to one webhook are under way at once in this
// process before anything is known of its receiver. Every answer allows one
// more, every post without an answer half as many: so a good receiver soon gets
// all the deliveries in hand, and one that hangs holds few connections.
const firstPosts = 4

// concurrencyLimits bound the posts under way, by webhook, while there are deliveries in
// hand.
type concurrencyLimits struct {
	mu   sync.Mutex
	byID map[string]*concurrencyLimit
}

// concurrencyLimit is guarded by the mutex of its windows.
type concurrencyLimit struct {
	id      string
	users   int // deliveries in hand
	limit   int
	posting int
	waiting []chan struct{} // oldest first; closed when the place is given
}

// open returns a webhook's window, for one delivery, which must close it.
func (ws *concurrencyLimits) open(id string) *concurrencyLimit {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil {
		w = &concurrencyLimit{id: id, limit: firstPosts}
		if ws.byID == nil {
			ws.byID = make(map[string]*concurrencyLimit)
		}
		ws.byID[id] = w
	}
	w.users++
	return w
}

// capacity returns how many deliveries to a webhook should be in hand here: as many
// as are posted and as many again to be next. Of a receiver that hangs, few.
func (ws *concurrencyLimits) capacity(id string) int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		return 2 * w.limit
	}
	return 2 * firstPosts
}

func (ws *concurrencyLimits) close(w *concurrencyLimit) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.users--; w.users == 0 {
		delete(ws.byID, w.id)
	}
}

// acquire waits for a place. Its error is the cause of the end of ctx.
func (ws *concurrencyLimits) acquire(ctx context.Context, w *concurrencyLimit) error {
	ws.mu.Lock()
	if w.posting < w.limit { // then nobody waits
		w.posting++
		ws.mu.Unlock()
		return nil
	}
	place := make(chan struct{})
	w.waiting = append(w.waiting, place)
	ws.mu.Unlock()
	select {
	case <-place:
		return nil
	case <-ctx.Done():
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(w.waiting, place); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	} else { // given in this moment
		w.leave()
	}
	return context.Cause(ctx)
}

// release gives a place up after a post that was answered, or was not.
func (ws *concurrencyLimits) release(w *concurrencyLimit, answered bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if answered {
		w.limit = min(w.limit+1, max(w.users, firstPosts))
	} else {
		w.limit = max(w.limit/2, 1)
	}
	w.leave()
}

// cancel gives a place up for which there was nothing to post.
func (ws *concurrencyLimits) cancel(w *concurrencyLimit) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.leave()
}

func (w *concurrencyLimit) leave() {
	w.posting--
	for w.posting < w.limit && len(w.waiting) > 0 {
		close(w.waiting[0])
		w.waiting = slices.Delete(w.waiting, 0, 1)
		w.posting++
	}
}
