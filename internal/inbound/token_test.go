package inbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// TestUsedToken: a signature that does not cover the body is good for one body.
func TestUsedToken(t *testing.T) {
	h := start(t, withParcels(tokened{newParcels("parcels")}), func(h *house) {
		h.secrets = map[string][]string{"parcels": {"the deployment's"}}
	})
	h.connect(t, "parcels", "a")
	h.connect(t, "parcels", "b", ofOrg2, func(n *connection.New) { n.Secrets = []string{secretOf("a")} })
	genuine, forged := to("a", "1", "genuine").bytes(), to("a", "2", "forged").bytes()
	h.wantAnswer(t, tokenRequest(parcelPath, genuine, "t1", secretOf("a")), 200, accepted)
	h.wantAnswer(t, tokenRequest(parcelPath, genuine, "t1", secretOf("a")), 200, duplicate)
	before := h.rows(t)
	h.wantAnswer(t, tokenRequest(parcelPath, forged, "t1", secretOf("a")), 401, denied)
	h.wantAnswer(t, tokenRequest(parcelPath, []byte("{"), "t1", secretOf("a")), 401, denied)
	otherwise := tokenRequest(parcelPath, genuine, "t1", secretOf("a"))
	otherwise.Header.Del("Content-Type")
	h.wantAnswer(t, otherwise, 401, denied)
	h.wantUntouched(t, before)
	if c := h.Counts()[1]; c.Channel != "parcels" || c.Refused != 3 || c.Accepted != 1 || c.Duplicate != 1 {
		t.Errorf("counts %+v, want 3 refused", c)
	}

	// Also where nothing was stored, or what cannot be read.
	nobody := parcel{To: []string{"a"}, Parts: nil}.bytes()
	h.wantAnswer(t, tokenRequest(parcelPath, nobody, "t2", secretOf("a")), 200, ignored)
	h.wantAnswer(t, tokenRequest(parcelPath, nobody, "t2", secretOf("a")), 200, ignored)
	h.wantAnswer(t, tokenRequest(parcelPath, forged, "t2", secretOf("a")), 401, denied)
	if w := h.do(tokenRequest(parcelPath, []byte("{"), "t3", "the deployment's")); w.Code != 400 {
		t.Errorf("answered %d %s, want 400", w.Code, w.Body)
	}
	h.wantAnswer(t, tokenRequest(parcelPath, to("x", "3", "").bytes(), "t3", "the deployment's"), 401, denied)
	if n := len(h.list(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	// A token says nothing of another connection's.
	h.wantAnswer(t, tokenRequest(parcelPath, to("b", "1", "").bytes(), "t1", secretOf("a")), 200, accepted)
}

// TestTokenAtOnce: of several requests with one token, however close, one body is
// taken.
func TestTokenAtOnce(t *testing.T) {
	h := start(t, withParcels(tokened{newParcels("parcels")}))
	h.connect(t, "parcels", "a")
	var mu sync.Mutex
	answers := make(map[int]int)
	var wg sync.WaitGroup
	for i := range 20 {
		body := to("a", string(rune('A'+i)), "").bytes()
		wg.Go(func() {
			w := h.do(tokenRequest(parcelPath, body, "t1", secretOf("a")))
			mu.Lock()
			defer mu.Unlock()
			answers[w.Code]++
		})
	}
	wg.Wait()
	if n := len(h.list(t)); answers[200] != 1 || answers[401] != 19 || n != 1 {
		t.Errorf("answers %v and %d events, want one accepted", answers, n)
	}
}

// TestTokenAfterFailure: what we could not store passes when it is sent again, also
// if the provider makes it anew.
func TestTokenAfterFailure(t *testing.T) {
	broken := &brokenOnce{err: errors.New("no room")}
	h := start(t, withParcels(tokened{newParcels("parcels")}), func(h *house) {
		h.store = func(s blob.Store) blob.Store { broken.Store = s; return broken }
	})
	h.connect(t, "parcels", "a")
	large := to("a", "1", string(make([]byte, 40<<10))).bytes()
	if w := h.do(tokenRequest(parcelPath, large, "t1", secretOf("a"))); w.Code != http.StatusServiceUnavailable {
		t.Fatalf("answered %d %s, want 503", w.Code, w.Body)
	}
	h.wantAnswer(t, tokenRequest(parcelPath, append(large, ' '), "t1", secretOf("a")), 200, accepted)
	h.wantAnswer(t, tokenRequest(parcelPath, large, "t1", secretOf("a")), 401, denied)
	// What was put on the shelf for a refused request is gone again.
	if n := h.files(t); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
}

// brokenOnce is a store that fails the first time.
type brokenOnce struct {
	blob.Store
	mu  sync.Mutex
	err error
}

func (b *brokenOnce) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	b.mu.Lock()
	err := b.err
	b.err = nil
	b.mu.Unlock()
	if err != nil {
		return blob.Ref{}, err
	}
	return b.Store.Put(ctx, r)
}

// TestTokensForgotten: a token is remembered as long as its signature is fresh, and
// not much longer.
func TestTokensForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, withParcels(tokened{newParcels("parcels")}))
		h.connect(t, "parcels", "a")
		for i := range 700 {
			h.wantAnswer(t, tokenRequest(parcelPath, parcel{To: []string{"a"}}.bytes(), string(rune(0x4e00+i)), secretOf("a")), 200, ignored)
		}
		purge := func() int {
			if _, err := h.Purge(t.Context(), time.Now().Add(-inbound.Kept)); err != nil {
				t.Fatal(err)
			}
			return h.count(t, "SELECT count(*) FROM inbound_tokens")
		}
		time.Sleep(time.Hour)
		if n := purge(); n != 700 {
			t.Errorf("%d tokens are left after an hour, want 700", n)
		}
		time.Sleep(20 * time.Minute)
		if n := purge(); n != 0 {
			t.Errorf("%d tokens are left, want none", n)
		}
	})
}
