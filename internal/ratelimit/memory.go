package ratelimit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// State is the state of a key's window.
type State struct {
	Limit     int64     // the limit of the call
	Remaining int64     // requests left in the window, at least 0
	Reset     time.Time // end of the window, by this process's clock
}

// Memory counts in fixed windows per key, in this process only. It is safe for concurrent use.
type Memory struct {
	window  time.Duration
	maxKeys int

	mu   sync.Mutex
	keys map[string]*list.Element // values are *window
	age  list.List                // the same, the earliest end first
}

// window is a window that may have ended.
type window struct {
	key  string
	used int64
	ends time.Time // with a monotonic clock reading
}

// NewMemory returns windows of the given length. It panics unless that is positive.
func NewMemory(window time.Duration) *Memory {
	if window <= 0 {
		panic("ratelimit: window must be positive")
	}
	return &Memory{window: window, maxKeys: MaxKeys, keys: make(map[string]*list.Element)}
}

// Acquire counts one action of key if fewer than limit are counted in the window, and reports
// whether it did. The state is that after the call. Keys are stored as they are and should be
// short: ids and addresses. The error is always nil.
func (m *Memory) Acquire(ctx context.Context, key string, limit int64) (State, bool, error) {
	s, granted, err := m.AcquireUpTo(ctx, key, limit, 1)
	return s, granted == 1, err
}

// AcquireUpTo counts up to n actions of key, as many as limit leaves in the window, and returns their
// number. The state is that after the call. The error is always nil.
func (m *Memory) AcquireUpTo(_ context.Context, key string, limit, n int64) (State, int64, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()

	elem := m.keys[key]
	if elem != nil {
		w := elem.Value.(*window)
		if now.Before(w.ends) {
			granted := max(0, min(n, limit-w.used))
			w.used += granted
			return State{limit, max(0, limit-w.used), w.ends}, granted, nil
		}
	}
	m.evictExpired(now, elem)
	ends := now.Add(m.window)
	granted := max(0, min(n, limit))
	if granted == 0 {
		return State{limit, max(0, limit), ends}, 0, nil
	}
	if elem != nil {
		w := elem.Value.(*window)
		w.used, w.ends = granted, ends
		m.age.MoveToBack(elem)
	} else {
		if len(m.keys) >= m.maxKeys {
			m.evict(m.age.Front())
		}
		m.keys[key] = m.age.PushBack(&window{key: key, used: granted, ends: ends})
	}
	return State{limit, limit - granted, ends}, granted, nil
}

// Peek returns the state of key without counting. A key without a window has one that ends a
// full length from now. The error is always nil.
func (m *Memory) Peek(_ context.Context, key string, limit int64) (State, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if elem := m.keys[key]; elem != nil {
		if w := elem.Value.(*window); now.Before(w.ends) {
			return State{limit, max(0, limit-w.used), w.ends}, nil
		}
	}
	return State{limit, max(0, limit), now.Add(m.window)}, nil
}

// evictExpired evicts expired windows, at most two and not the one about to be reopened: each
// call adds at most one, so that suffices.
func (m *Memory) evictExpired(now time.Time, keep *list.Element) {
	for range 2 {
		front := m.age.Front()
		if front == nil || front == keep || now.Before(front.Value.(*window).ends) {
			return
		}
		m.evict(front)
	}
}

func (m *Memory) evict(elem *list.Element) {
	m.age.Remove(elem)
	delete(m.keys, elem.Value.(*window).key)
}
