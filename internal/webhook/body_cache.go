package webhook

import (
	"context"
	"fmt"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/event"
)

// bodyCache caches rendered bodies, so that an event is rendered once for all receivers and not
// read back right after it was written. It holds the newest few thousand in two halves: when
// the young half is full it replaces the old one.
type bodyCache struct {
	mu         sync.Mutex
	young, old map[bodyKey][]byte
	size       int // bytes in young
}

type bodyKey struct {
	eventID string
	form    Form
}

const (
	halfSize = 4 << 20  // bytes
	maxBody  = 64 << 10 // longer bodies are not cached
)

// rendered returns the body of e in form f, cached. The caller must not change it.
func (b *bodyCache) rendered(e *event.Event, f Form) ([]byte, error) {
	key := bodyKey{e.ID, f}
	if body := b.get(key); body != nil {
		return body, nil
	}
	body, err := render(f, e)
	if err == nil && len(body) <= maxBody {
		b.put(key, body)
	}
	return body, err
}

func (b *bodyCache) get(key bodyKey) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if body := b.young[key]; body != nil {
		return body
	}
	return b.old[key]
}

func (b *bodyCache) put(key bodyKey, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.young == nil || b.size+len(body) > halfSize {
		b.young, b.old, b.size = make(map[bodyKey][]byte), b.young, 0
	}
	b.young[key] = body
	b.size += len(body)
}

// body returns the body of an event's deliveries; [db.ErrNoRows] if the event has been purged.
func (s *Service) body(ctx context.Context, eventID string, f Form) ([]byte, error) {
	if body := s.bodies.get(bodyKey{eventID, f}); body != nil {
		return body, nil
	}
	// Without cancellation: watching ctx costs more than the read.
	e, err := event.Find(context.WithoutCancel(ctx), s.db, eventID)
	if err != nil {
		return nil, fmt.Errorf("load event: %w", err)
	}
	return s.bodies.rendered(&e, f)
}
