package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// cachedWebhook is the dispatcher's view of a webhook.
type cachedWebhook struct {
	enabled  bool
	url      *url.URL
	form     payload.Form
	secret   *payload.Signer // nil: unsigned
	old      *payload.Signer // secret replaced within [SecretOverlap], or nil
	oldUntil time.Time
	version  int64
	source   event.Source
	ordered  bool
	paced    bool   // the backlog is sent at a rate
	backlog  string // last untried delivery of the backlog to be sent in order; "" without one
}

// kind returns the kind of the webhook's jobs.
func (t *cachedWebhook) kind() string { return kindOf(t.source, t.ordered) }

// Webhooks are cached for a second: reading one per delivery would cost as much as recording the
// attempt. Changes by this process apply at once, those by other processes within a second.
// Suspended and deleted webhooks are safe even so, because their lanes are held.
const (
	cacheTTL   = time.Second
	maxCached  = 4096
	bodyBudget = 8 << 20 // bytes of rendered bodies, see [Service.render]
)

// cached returns the dispatcher's view of a webhook; errDeleted if it does not exist.
func (s *Service) cached(ctx context.Context, id string) (*cachedWebhook, error) {
	return s.cache.Load(id, func() (*cachedWebhook, error) { return s.loadCached(ctx, id) })
}

func (s *Service) loadCached(ctx context.Context, id string) (*cachedWebhook, error) {
	t := new(cachedWebhook)
	var rawURL, events string
	var secret, old []byte
	err := s.db.QueryRow(ctx, `SELECT w.state = 'enabled', w.url, w.events, w.payload_form, w.version, w.ordered, w.drain_rate IS NOT NULL, w.secret, w.old_secret, w.old_secret_until,
		CASE WHEN EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = w.id AND d.state < 2 AND d.state = 0 AND d.id <= w.ordered_until)
			THEN w.ordered_until END
		FROM webhooks w WHERE w.id = $1`, id).
		Scan(&t.enabled, &rawURL, &events, &t.form, &t.version, &t.ordered, &t.paced, &secret, &old, db.IntoTime(&t.oldUntil), db.IntoText(&t.backlog))
	if errors.Is(err, db.ErrNoRows) {
		return nil, errDeleted
	}
	if err != nil {
		return nil, fmt.Errorf("load webhook: %w", err)
	}
	t.source, _ = splitEvents(events)
	if t.url, err = url.Parse(rawURL); err != nil {
		return nil, fmt.Errorf("webhook %s has an unusable URL", id) // err quotes the URL, which may hold a secret
	}
	if t.secret, err = s.openSecret(id, secret); err != nil {
		return nil, err
	}
	if t.old, err = s.openSecret(id, old); err != nil {
		return nil, err
	}
	return t, nil
}

type bodyKey struct {
	eventID string
	form    payload.Form
}

// render stores the body of e in form f, so that an event is rendered once for all receivers, and returns
// its size. start marks when e was read. What cannot be rendered is left to the delivery.
func (s *Service) render(e *event.Event, f payload.Form, start cache.Mark) int {
	key := bodyKey{e.ID, f}
	if body, ok := s.bodies.Get(key); ok {
		return len(body)
	}
	body, err := payload.Render(f, e)
	if err != nil {
		return 0
	}
	s.bodies.Put(key, body, start)
	return len(body)
}

// body returns the body of an event's deliveries; [db.ErrNoRows] if the event has been purged.
func (s *Service) body(ctx context.Context, eventID string, f payload.Form) ([]byte, error) {
	return s.bodies.Load(bodyKey{eventID, f}, func() ([]byte, error) {
		// Without cancellation: watching ctx costs more than the read.
		e, err := event.Find(context.WithoutCancel(ctx), s.db, eventID)
		if err != nil {
			return nil, fmt.Errorf("load event: %w", err)
		}
		return payload.Render(f, &e)
	})
}

// prepareEvents bounds the events that loadBodies reads at once.
const prepareEvents = 64

// loadBodies renders the bodies of several jobs, as far as their webhooks are cached and the bodies
// are not, up to half of the cache: further ones would evict those that the first jobs need.
func (s *Service) loadBodies(ctx context.Context, jobs []*queue.Job) {
	forms := make(map[string]payload.Form) // by event; the others of an event in several forms are rendered later
	for _, j := range jobs {
		t, ok := s.cache.Get(j.Lane)
		if !ok || !t.enabled || t.kind() != j.Kind {
			continue
		}
		id := decodePayload(j.Payload).eventID
		if _, ok := s.bodies.Get(bodyKey{id, t.form}); !ok {
			forms[id] = t.form
		}
	}
	if len(forms) < 2 {
		return
	}
	size := 0
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(forms)), prepareEvents) {
		if size > bodyBudget/2 {
			return
		}
		start := s.bodies.Start()
		events, err := event.FindAll(ctx, s.db, ids)
		if err != nil {
			return // each job loads its own
		}
		for i := range events {
			size += s.render(&events[i], forms[events[i].ID], start)
		}
	}
}

func (s *Service) openSecret(id string, sealed []byte) (*payload.Signer, error) {
	if sealed == nil {
		return nil, nil
	}
	secret, err := s.box.Open(sealPurpose, sealed, id)
	if err != nil {
		return nil, fmt.Errorf("secret of webhook %s: %w", id, err)
	}
	return payload.NewSigner(string(secret)), nil
}
