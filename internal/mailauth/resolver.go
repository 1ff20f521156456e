package mailauth

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
)

const (
	// answerTime bounds the lookups for one mail.
	answerTime = 4 * time.Second

	// Answers are cached for a fixed time, since DNS libraries do not expose TTLs. A missing
	// record may have been published a moment ago.
	keepFound   = 5 * time.Minute
	keepMissing = time.Minute
	maxKept     = 4096

	// The servers of an organization that time out maxSilent times in a row are skipped for
	// silentTime, so that its mail delays no other.
	maxSilent  = 3
	silentTime = time.Minute

	maxRecords = 10 // per name
)

// Lookup returns the TXT records of a name without a final dot, or a [net.DNSError] with
// IsNotFound. It must return when ctx ends.
type Lookup func(ctx context.Context, name string) ([]string, error)

// Resolver looks up and caches TXT records. It is safe for concurrent use.
type Resolver struct {
	lookup Lookup

	found   *cache.Cache[string, []string]
	missing *cache.Cache[string, struct{}]

	mu      sync.Mutex                     // for changes of skipped
	skipped *cache.Cache[string, timeouts] // by organizational domain
}

type timeouts struct {
	times int
	until time.Time // skipped until then
}

// NewResolver returns a resolver over lookup.
func NewResolver(lookup Lookup) *Resolver {
	return &Resolver{
		lookup: lookup, found: cache.New[string, []string](maxKept, keepFound), missing: cache.New[string, struct{}](maxKept, keepMissing),
		skipped: cache.New[string, timeouts](maxKept, 0),
	}
}

// reserved lists top-level domains outside the DNS (RFC 2606, 6761, 6762, 7686; ICANN's
// "internal").
var reserved = []string{"example", "test", "invalid", "localhost", "local", "internal", "onion"}

// SystemLookup uses the system's resolver, but skips names that cannot exist.
func SystemLookup(ctx context.Context, name string) ([]string, error) {
	if slices.Contains(reserved, name[strings.LastIndexByte(name, '.')+1:]) {
		return nil, &net.DNSError{Err: "reserved", Name: name, IsNotFound: true}
	}
	return net.DefaultResolver.LookupTXT(ctx, name+".") // rooted: no search list
}

// TXT looks up names concurrently, within four seconds. An empty entry means no record; names
// with a failed lookup are missing. The map is never nil.
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
		if records, known, ask := r.cached(name); known {
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
	if ctx.Err() == nil { // else the caller gave up
		r.store(asked, found)
	}
	return found
}

// cached returns a cached result. ask is false if the name's servers are skipped.
func (r *Resolver) cached(name string) (records []string, known, ask bool) {
	if records, ok := r.found.Get(name); ok {
		return records, true, false
	}
	if _, ok := r.missing.Get(name); ok {
		return []string{}, true, false
	}
	skipped, _ := r.skipped.Get(Organization(name))
	return nil, false, !time.Now().Before(skipped.until)
}

// store caches answers and counts organizations without any.
func (r *Resolver) store(asked []string, found map[string][]string) {
	answered := make(map[string]bool) // by organizational domain
	for _, name := range asked {
		records, ok := found[name]
		answered[Organization(name)] = answered[Organization(name)] || ok
		switch size := len(strings.Join(records, "")); {
		case !ok || size > 2*maxRecord:
		case len(records) == 0:
			r.missing.Put(name, struct{}{}, r.missing.Start())
		default:
			r.found.Put(name, records, r.found.Start())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for organization, ok := range answered {
		if ok {
			r.skipped.Delete(organization)
			continue
		}
		s, _ := r.skipped.Get(organization)
		if s.times++; s.times >= maxSilent {
			s.until = time.Now().Add(silentTime)
		}
		r.skipped.Put(organization, s, r.skipped.Start())
	}
}
