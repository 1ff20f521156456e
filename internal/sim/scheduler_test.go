package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// scheduler decides the order of everything that nodes do to the outside. A goroutine that is
// about to use the database, the network or files parks; the scheduler waits until all
// goroutines are parked or wait for time, and releases one, chosen at random by the seed. So
// one goroutine at a time runs, and the order is a function of the seed.
type scheduler struct {
	rng     *rand.Rand
	mu      sync.Mutex
	parked  []*step
	arrived chan struct{} // capacity 1
	plan    []action      // what is done from the outside, by time
	steps   int
	now     time.Time // of the last step
	atOnce  []string  // steps at that time
	trace   uint64
	log     func(format string, args ...any) // nil: silent
	// after is called after each step, while everything waits.
	after func()
}

// maxAtOnce bounds the steps without the passage of time: more are a busy loop.
const maxAtOnce = 20_000

// step is something that waits to be done by a node.
type step struct {
	node *node
	name string
	free chan struct{}
}

// action is an event from the outside: a request, a crash.
type action struct {
	at   time.Time
	name string
	do   func()
}

func newScheduler(seed uint64) *scheduler {
	return &scheduler{rng: rand.New(rand.NewPCG(seed, 1)), arrived: make(chan struct{}, 1)}
}

// park waits until the scheduler chooses the caller.
func (s *scheduler) park(n *node, name string) {
	p := &step{n, name, make(chan struct{})}
	s.mu.Lock()
	s.parked = append(s.parked, p)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	<-p.free
}

// at plans an action.
func (s *scheduler) at(t time.Time, name string, do func()) {
	a := action{t, name, do}
	i, _ := slices.BinarySearchFunc(s.plan, a, func(x, y action) int {
		if x.at.After(y.at) {
			return 1
		}
		return -1
	})
	s.plan = slices.Insert(s.plan, i, a)
}

func (s *scheduler) in(d time.Duration, name string, do func()) { s.at(time.Now().Add(d), name, do) }

// run releases steps and does actions until the time comes, or until is true.
func (s *scheduler) run(end time.Time, until func() bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		synctest.Wait()
		if s.after != nil {
			s.after()
		}
		if until != nil && until() {
			return
		}
		now := time.Now()
		due := len(s.plan) > 0 && !s.plan[0].at.After(now)
		chosen := s.choose(due)
		switch {
		case chosen != nil:
			s.note(chosen.node.name, chosen.name)
			close(chosen.free)
			continue
		case due:
			a := s.plan[0]
			s.plan = s.plan[1:]
			s.note("", a.name)
			a.do()
			continue
		case !now.Before(end):
			return
		}
		next := end
		if len(s.plan) > 0 && s.plan[0].at.Before(end) {
			next = s.plan[0].at
		}
		timer.Reset(next.Sub(now))
		select {
		case <-s.arrived:
		case <-timer.C:
		}
	}
}

// choose removes a parked step of a node that runs. It returns nil if there is none or, at
// random, in favour of a due action.
func (s *scheduler) choose(due bool) *step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []int
	for i, p := range s.parked {
		if !p.node.paused || p.node.dead {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 || due && s.rng.IntN(len(ready)+1) == 0 {
		return nil
	}
	i := ready[s.rng.IntN(len(ready))]
	p := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	return p
}

// note adds a step to the trace, which two runs of a seed have in common.
func (s *scheduler) note(node, name string) {
	s.steps++
	now := time.Now()
	if !now.Equal(s.now) {
		s.now, s.atOnce = now, s.atOnce[:0]
	}
	if s.atOnce = append(s.atOnce, node+" "+name); len(s.atOnce) > maxAtOnce {
		panic(fmt.Sprintf("a busy loop at %s: %q", now.Format("02 15:04:05.000000"), s.atOnce[maxAtOnce-60:]))
	}
	h := fnv.New64a()
	fmt.Fprint(h, s.trace, node, name, time.Now().UnixNano())
	s.trace = h.Sum64()
	if s.log != nil {
		s.log("%s %-4s %s", time.Now().Format("02 15:04:05.000000"), node, name)
	}
}

// chance reports true with probability p. Call it only while everything else waits.
func (s *scheduler) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// between returns a duration from a to b, short ones more often.
func (s *scheduler) between(a, b time.Duration) time.Duration {
	x := s.rng.Float64()
	return a + time.Duration(x*x*float64(b-a))
}
