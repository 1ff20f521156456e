package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// cachedWebhook is the dispatcher's view of a webhook.
type cachedWebhook struct {
	enabled  bool
	url      *url.URL
	form     Form
	secret   *signer // nil: unsigned
	old      *signer // secret replaced within [SecretOverlap], or nil
	oldUntil time.Time
	version  int64
	ordered  bool
	paced    bool   // the backlog is sent at a rate
	backlog  string // last untried delivery of the backlog to be sent in order; "" without one
	loaded   time.Time
}

// webhookCache caches webhooks for a second: reading one per delivery would cost as much as
// recording the attempt. Changes by this process apply at once, those by other processes within
// a second. Suspended and deleted webhooks are safe even so, because their lanes are held.
type webhookCache struct {
	mu      sync.Mutex
	byID    map[string]*cachedWebhook
	changes uint64 // counts evictions, so that a stale read is not cached
}

const (
	targetAge  = time.Second
	maxTargets = 4096
)

func (ts *webhookCache) evict(id string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.byID, id)
	ts.changes++
}

// cached returns the dispatcher's view of a webhook; errDeleted if it does not exist.
func (s *Service) cached(ctx context.Context, id string) (*cachedWebhook, error) {
	ts := &s.cache
	ts.mu.Lock()
	t, changes := ts.byID[id], ts.changes
	ts.mu.Unlock()
	if t != nil && time.Since(t.loaded) < targetAge {
		return t, nil
	}
	t, err := s.loadCached(ctx, id)
	if err != nil {
		return nil, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.changes == changes {
		if ts.byID == nil || len(ts.byID) >= maxTargets {
			ts.byID = make(map[string]*cachedWebhook)
		}
		ts.byID[id] = t
	}
	return t, nil
}

func (s *Service) loadCached(ctx context.Context, id string) (*cachedWebhook, error) {
	t := &cachedWebhook{loaded: time.Now()}
	var rawURL string
	var secret, old []byte
	err := s.db.QueryRow(ctx, `SELECT w.state = 'enabled', w.url, w.payload_form, w.version, w.ordered, w.drain_rate IS NOT NULL, w.secret, w.old_secret, w.old_secret_until,
		CASE WHEN EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = w.id AND d.state < 2 AND d.state = 0 AND d.id <= w.ordered_until)
			THEN w.ordered_until END
		FROM webhooks w WHERE w.id = $1`, id).
		Scan(&t.enabled, &rawURL, &t.form, &t.version, &t.ordered, &t.paced, &secret, &old, db.IntoTime(&t.oldUntil), db.IntoText(&t.backlog))
	if errors.Is(err, db.ErrNoRows) {
		return nil, errDeleted
	}
	if err != nil {
		return nil, fmt.Errorf("load webhook: %w", err)
	}
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

func (s *Service) openSecret(id string, sealed []byte) (*signer, error) {
	if sealed == nil {
		return nil, nil
	}
	secret, err := s.box.Open(sealPurpose, sealed, id)
	if err != nil {
		return nil, fmt.Errorf("secret of webhook %s: %w", id, err)
	}
	return newSigner(string(secret)), nil
}
