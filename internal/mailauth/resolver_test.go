package mailauth_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/mailauth/mailauthtest"
)

func TestResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		z := mailauthtest.Zone{"_dmarc.client.example": {"v=DMARC1; p=none"}}
		r := mailauth.NewResolver(func(ctx context.Context, name string) ([]string, error) {
			asked.Add(1)
			switch {
			case strings.HasSuffix(name, "hangs.example"):
				<-ctx.Done()
				return nil, ctx.Err()
			case strings.HasSuffix(name, "broken.example"):
				return nil, errors.New("server misbehaving")
			}
			return z.Lookup(ctx, name)
		})
		names := []string{"_dmarc.client.example", "s1._domainkey.client.example", "_dmarc.hangs.example", "_dmarc.broken.example"}
		began := time.Now()
		found := r.TXT(t.Context(), names)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %s", took)
		}
		missing, there := found["s1._domainkey.client.example"]
		if len(found) != 2 || len(found["_dmarc.client.example"]) != 1 || !there || len(missing) != 0 || asked.Load() != 4 {
			t.Errorf("found %v after %d questions", found, asked.Load())
		}
		// Answers are cached, time-outs are not.
		if r.TXT(t.Context(), names[:2]); asked.Load() != 4 {
			t.Errorf("asked %d times", asked.Load())
		}
		time.Sleep(61 * time.Second)
		if r.TXT(t.Context(), names[:2]); asked.Load() != 5 { // the missing records
			t.Errorf("asked %d times", asked.Load())
		}
		time.Sleep(5 * time.Minute)
		if r.TXT(t.Context(), names[:1]); asked.Load() != 6 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

// TestHangingDomain: after three time-outs, an organization's mail waits for no lookup of any
// of its names for a minute.
func TestHangingDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := false
		r := mailauth.NewResolver(func(ctx context.Context, name string) ([]string, error) {
			if answers {
				return nil, &net.DNSError{IsNotFound: true}
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		took := func(name string) time.Duration {
			began := time.Now()
			r.TXT(t.Context(), []string{name})
			return time.Since(began)
		}
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		r.TXT(stopped, []string{"x.evil.example"}) // the caller's cancellation does not count
		for i, want := range []time.Duration{4, 4, 4, 0, 0} {
			if got := took(string(rune('a'+i)) + ".evil.example"); got != want*time.Second {
				t.Errorf("time %d took %s", i+1, got)
			}
		}
		if got := took("a.other.example"); got != 4*time.Second {
			t.Errorf("another organization took %s", got)
		}
		time.Sleep(time.Minute)
		answers = true
		if got := took("f.evil.example"); got != 0 {
			t.Errorf("an answer took %s", got)
		}
		answers = false
		for i, want := range []time.Duration{4, 4, 4, 0} {
			if got := took(string(rune('g'+i)) + ".evil.example"); got != want*time.Second {
				t.Errorf("time %d after an answer took %s", i+1, got)
			}
		}
	})
}

func TestSystemLookupOfReservedNames(t *testing.T) {
	for _, name := range []string{"_dmarc.client.example", "a.test", "b.invalid", "localhost"} {
		_, err := mailauth.SystemLookup(t.Context(), name)
		if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}
