package webhook

import (
	"context"
	"slices"
	"sync"
)

// firstPosts is the initial concurrency limit of a webhook's posts in this process. Every
// answer raises the limit by one, every post without an answer halves it: a good receiver soon
// gets all claimed deliveries at once, and a hanging one holds few connections.
const firstPosts = 4

// concurrencyLimits holds the AIMD limits of webhooks with claimed deliveries.
type concurrencyLimits struct {
	mu   sync.Mutex
	byID map[string]*concurrencyLimit
}

// concurrencyLimit is the limit of one webhook, guarded by the mutex of its concurrencyLimits.
type concurrencyLimit struct {
	id      string
	users   int // claimed deliveries
	limit   int
	posting int
	waiting []chan struct{} // oldest first; closed when a slot is assigned
}

// open returns the limit of a webhook for one delivery, which must close it.
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

// capacity returns how many deliveries of a webhook to claim: those being posted and as many
// again. For a hanging receiver that is few.
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

// acquire waits for a slot. Its error is the cause of the end of ctx.
func (ws *concurrencyLimits) acquire(ctx context.Context, w *concurrencyLimit) error {
	ws.mu.Lock()
	if w.posting < w.limit { // so none waits
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
	} else { // assigned meanwhile
		w.leave()
	}
	return context.Cause(ctx)
}

// release frees a slot after a post, and adapts the limit to its result.
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

// cancel frees a slot without a post.
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
