package mailproof

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// answerTime is how long all records of a mail may take together.
	answerTime = 4 * time.Second

	// Answers are reused for a while, since DNS libraries do not show how long they
	// may be. What is not there may have been published a moment ago.
	keepFound   = 5 * time.Minute
	keepMissing = time.Minute
	maxKept     = 4096

	// An organization whose servers did not answer maxSilent times in a row is not
	// asked for silentTime, so that its mail holds up nothing.
	maxSilent  = 3
	silentTime = time.Minute

	maxRecords = 10 // of one name
)

// Lookup returns the TXT records of a name, which has no final dot. It returns a
// [net.DNSError] with IsNotFound where there are none, and must return when ctx
// ends.
type Lookup func(ctx context.Context, name string) ([]string, error)

// Resolver finds the records that checks ask for. It is safe for concurrent use.
type Resolver struct {
	lookup Lookup

	mu     sync.Mutex
	kept   map[string]kept
	silent map[string]silence // by organizational domain
}

type kept struct {
	records []string
	until   time.Time
}

type silence struct {
	times int
	until time.Time // not asked before then
}

// NewResolver returns a resolver over lookup.
func NewResolver(lookup Lookup) *Resolver {
	return &Resolver{lookup: lookup, kept: make(map[string]kept), silent: make(map[string]silence)}
}

// reserved are top-level domains that are not in the DNS (RFC 2606, 6761, 6762,
// 7686; ICANN's "internal").
var reserved = []string{"example", "test", "invalid", "localhost", "local", "internal", "onion"}

// SystemLookup asks the system's resolver, but not for names that cannot exist.
func SystemLookup(ctx context.Context, name string) ([]string, error) {
	if slices.Contains(reserved, name[strings.LastIndexByte(name, '.')+1:]) {
		return nil, &net.DNSError{Err: "reserved", Name: name, IsNotFound: true}
	}
	return net.DefaultResolver.LookupTXT(ctx, name+".") // rooted: no search list
}

// TXT returns the records of names, all at once and within four seconds. An empty
// entry means that there is no record; names for which DNS did not answer are
// missing. The map is never nil.
func (r *Resolver) TXT(ctx context.Context, names []string) map[string][]string {
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	type answer struct {
		name    string
		records []string
		err     error
	}
	answers, found := make(chan answer, len(names)), make(map[string][]string, len(names))
	var asked []string
	for _, name := range names {
		if records, known, ask := r.recall(name); known {
			found[name] = records
			continue
		} else if !ask {
			continue
		}
		asked = append(asked, name)
		go func() {
			records, err := r.lookup(limited, name)
			answers <- answer{name, records, err}
		}()
	}
	for range asked {
		select {
		case a := <-answers:
			if dns, ok := errors.AsType[*net.DNSError](a.err); ok && dns.IsNotFound {
				a.records, a.err = []string{}, nil
			}
			if a.err == nil {
				found[a.name] = a.records[:min(len(a.records), maxRecords)]
			}
		case <-limited.Done():
		}
	}
	if ctx.Err() == nil { // else the silence is ours
		r.remember(asked, found)
	}
	return found
}

// recall returns what is known of a name. ask is false if its servers are silent.
func (r *Resolver) recall(name string) (records []string, known, ask bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.kept[name]; ok && now.Before(k.until) {
		return k.records, true, false
	}
	return nil, false, !now.Before(r.silent[Organization(name)].until)
}

// remember keeps the answers to asked, and counts organizations that gave none.
func (r *Resolver) remember(asked []string, found map[string][]string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) >= maxKept {
		clear(r.kept)
	}
	if len(r.silent) >= maxKept {
		clear(r.silent)
	}
	answered := make(map[string]bool) // by organizational domain
	for _, name := range asked {
		records, ok := found[name]
		answered[Organization(name)] = answered[Organization(name)] || ok
		if size := len(strings.Join(records, "")); !ok || size > 2*maxRecord {
			continue
		}
		keep := keepMissing
		if len(records) > 0 {
			keep = keepFound
		}
		r.kept[name] = kept{records, now.Add(keep)}
	}
	for organization, ok := range answered {
		s := r.silent[organization]
		if s.times++; s.times >= maxSilent {
			s.until = now.Add(silentTime)
		}
		if r.silent[organization] = s; ok {
			delete(r.silent, organization)
		}
	}
}
