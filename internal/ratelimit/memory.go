package ratelimit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// State is how a key stands.
type State struct {
	Limit     int64     // the limit of the call
	Remaining int64     // acts that still pass in the window, never below 0
	Reset     time.Time // when the window ends, by this process's clock
}

// Memory counts the acts of keys in windows, in this process only. It is safe
// for concurrent use.
type Memory struct {
	window  time.Duration
	maxKeys int

	mu   sync.Mutex
	keys map[string]*list.Element // values are *opened
	age  list.List                // the same, the one that ends first in front
}

// window is a window, which may be over already.
type window struct {
	key  string
	used int64
	ends time.Time // with the reading of the monotonic clock
}

// NewMemory returns windows that last as long as window. It panics unless that
// is positive.
func NewMemory(window time.Duration) *Memory {
	if window <= 0 {
		panic("ratelimit: window must be positive")
	}
	return &Memory{window: window, maxKeys: MaxKeys, keys: make(map[string]*list.Element)}
}

// Acquire reports whether key may act now, with limit acts in a window, and if so
// counts the act. The state is that after the call. Keys are held as they are,
// so they should be short: ids and addresses. The error is always nil.
func (m *Memory) Acquire(_ context.Context, key string, limit int64) (State, bool, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()

	elem := m.keys[key]
	if elem != nil {
		w := elem.Value.(*window)
		if now.Before(w.ends) {
			if w.used >= limit {
				return State{limit, 0, w.ends}, false, nil
			}
			w.used++
			return State{limit, limit - w.used, w.ends}, true, nil
		}
	}
	m.evictExpired(now, elem)
	ends := now.Add(m.window)
	if limit < 1 {
		return State{limit, 0, ends}, false, nil
	}
	if elem != nil {
		w := elem.Value.(*window)
		w.used, w.ends = 1, ends
		m.age.MoveToBack(elem)
	} else {
		if len(m.keys) >= m.maxKeys {
			m.evict(m.age.Front())
		}
		m.keys[key] = m.age.PushBack(&window{key: key, used: 1, ends: ends})
	}
	return State{limit, limit - 1, ends}, true, nil
}

// Peek returns how key stands, without counting anything. A window that nobody
// has opened would end one window from now. The error is always nil.
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

// evictExpired drops windows that are over, at most two and not the one that
// is about to be opened again: as each call adds at most one, that keeps up.
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
