package queue

import (
	"container/heap"
	"math/rand/v2"
	"unicode/utf8"
)

const (
	// surveyTenants and surveyLanes bound one step of a survey: so many tenants with ready jobs,
	// and so many lanes of each.
	surveyTenants = 64
	surveyLanes   = 16
	// maxTenants bounds the tenants with listed lanes during a survey.
	maxTenants = 256
	// ownLanes is the number of lanes that a tenant can list however many others list.
	ownLanes = 64
)

// tenant is the state of a tenant with listed lanes, running jobs, or lanes to walk.
type tenant struct {
	name    string
	listed  []string // lanes that may have work and have room, oldest first
	running int
	turn    uint64 // when it was last served
	away    bool   // at the last claim another process served it

	// A survey reads a tenant's first lanes; a walk reads the rest.
	walking bool
	again   bool   // walk again afterwards
	start   string // where the walk began
	cursor  string // where it continues
	wrapped bool   // it continues before its start
}

// begin begins a walk in the middle. Processes that walk a backlog at the same time read different
// lanes this way.
func (t *tenant) begin(start string) {
	t.start, t.cursor, t.wrapped, t.again = start, start, start == "", false
}

// advance continues a walk after a page of lanes. It reports whether the walk has ended.
func (t *tenant) advance(found []foundLane, full bool) (ended bool) {
	switch last := len(found) - 1; {
	case full && (!t.wrapped || t.start == "" || found[last].lane < t.start):
		t.cursor = found[last].lane // read once more: the engines have no common "next" string
	case !t.wrapped:
		t.cursor, t.wrapped = "", true
	default:
		return true
	}
	return false
}

// middle returns a random string between two lanes, or an empty one.
func middle(first, last string) string {
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	if n >= len(first) || n >= len(last) || first[n] >= utf8.RuneSelf || last[n] >= utf8.RuneSelf || first[n] >= last[n] {
		return ""
	}
	return first[:n] + string(rune(first[n]+rand.N(last[n]-first[n]))) + string('0'+rand.N('z'-'0'+1))
}

// laneList lists lanes by tenant. Tenants with the fewest running jobs are served first, and in
// turns, so that a tenant with many lanes delays no other. The runner's mutex guards it.
type laneList struct {
	tenants map[string]*tenant
	size    int // listed lanes of all tenants
	waiting int // tenants with listed lanes
	walking int // tenants with walking set
	turn    uint64
}

func (l *laneList) tenant(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		if l.tenants == nil {
			l.tenants = make(map[string]*tenant)
		}
		l.tenants[name] = t
	}
	return t
}

// removeIdle removes a tenant without state.
func (l *laneList) removeIdle(t *tenant) {
	if len(t.listed) == 0 && t.running == 0 && !t.walking {
		delete(l.tenants, t.name)
	}
}

// full reports whether a tenant may not list another lane.
func (l *laneList) full(name string) bool {
	if l.size < maxListed {
		return false
	}
	t := l.tenants[name]
	return t != nil && len(t.listed) >= ownLanes
}

func (l *laneList) add(name, lane string) {
	t := l.tenant(name)
	if len(t.listed) == 0 {
		l.waiting++
	}
	t.listed = append(t.listed, lane)
	l.size++
}

// run counts running jobs of a tenant.
func (l *laneList) run(name string, n int) {
	t := l.tenant(name)
	t.running += n
	l.removeIdle(t)
}

func (l *laneList) setWalking(t *tenant, walking bool) {
	if t.walking != walking {
		t.walking = walking
		if walking {
			l.walking++
		} else {
			l.walking--
		}
	}
	l.removeIdle(t)
}

// nextWalk returns a tenant whose walk should continue: few of its lanes are listed.
func (l *laneList) nextWalk() *tenant {
	if l.walking == 0 {
		return nil
	}
	var next *tenant
	for _, t := range l.tenants {
		if t.walking && len(t.listed) < claimLanes && !l.full(t.name) && (next == nil || len(t.listed) < len(next.listed)) {
			next = t
		}
	}
	return next
}

// serve removes lanes from the list in turns of the tenants, as long as more is true: so many
// lanes in each turn. claim gets a lane and how many tenants share the capacity; it returns the
// number of jobs to claim from it.
//
// Of tenants that are away it serves one lane each, and only if probe is set or no other tenant has
// lanes: otherwise many such tenants would take all places of claims that get nothing.
func (l *laneList) serve(perTurn int, probe bool, more func() bool, claim func(lane string, share int) int) {
	if l.size == 0 {
		return
	}
	turns := l.turns(probe)
	if len(turns) == 0 {
		turns = l.turns(true)
	}
	heap.Init(&turns)
	examined := make(map[*tenant]int, len(turns))
	for len(turns) > 0 && more() {
		next := turns[0]
		t := next.tenant
		for lanes := 0; lanes < perTurn && (lanes == 0 || !t.away) && examined[t] < len(t.listed) && more(); lanes++ {
			n := claim(t.listed[examined[t]], len(turns))
			examined[t]++
			if n > 0 {
				next.running += n
				l.turn++
				t.turn = l.turn
			}
		}
		if t.away || examined[t] == len(t.listed) {
			heap.Pop(&turns)
		} else {
			heap.Fix(&turns, 0)
		}
	}
	for t, n := range examined {
		t.listed = t.listed[:copy(t.listed, t.listed[n:])]
		l.size -= n
		if len(t.listed) == 0 {
			l.waiting--
			l.removeIdle(t)
		}
	}
}

// turns returns the tenants with listed lanes, with those that are away if asked for.
func (l *laneList) turns(away bool) turns {
	list := make(turns, 0, l.waiting)
	for _, t := range l.tenants {
		if len(t.listed) > 0 && (away || !t.away) {
			list = append(list, &turn{tenant: t, running: t.running})
		}
	}
	return list
}

// turn is a tenant's share of a claim.
type turn struct {
	*tenant
	running int // including the claimed jobs
}

// turns is a heap of the tenants to serve.
type turns []*turn

func (s turns) Len() int { return len(s) }
func (s turns) Less(i, j int) bool {
	if s[i].running != s[j].running {
		return s[i].running < s[j].running
	}
	return s[i].turn < s[j].turn
}
func (s turns) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *turns) Push(x any)   { *s = append(*s, x.(*turn)) }
func (s *turns) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}
