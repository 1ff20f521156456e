package inbound_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// TestUsedToken: a signature that does not cover the body is valid for one body.
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

	// Also if nothing is stored, or the request is unreadable.
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
	// A token is separate per connection.
	h.wantAnswer(t, tokenRequest(parcelPath, to("b", "1", "").bytes(), "t1", secretOf("a")), 200, accepted)
}

// TestSameMailWithAnotherBoundary: a style A provider that repeats a mail uses new boundaries.
// It is the same mail; a mail with other parts under the same signature is not.
func TestSameMailWithAnotherBoundary(t *testing.T) {
	const support = "support@acme.example"
	h := start(t, func(h *house) { h.adapters = []channel.Adapter{email.NewForm(email.Config{})} })
	h.connect(t, "email-form", support)
	timestamp, signature := email.SignForm("token-1", time.Now(), secretOf(support))
	request := func(boundary, text, file string) *http.Request {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		if err := w.SetBoundary(boundary); err != nil {
			t.Fatal(err)
		}
		for _, f := range [][2]string{
			{"recipient", support}, {"sender", "ana@client.example"}, {"from", "ana@client.example"}, {"subject", "Help"}, {"body-plain", text},
			{"Message-Id", "<m1@client.example>"}, {"attachment-count", "1"}, {"timestamp", timestamp}, {"token", "token-1"}, {"signature", signature},
		} {
			if err := w.WriteField(f[0], f[1]); err != nil {
				t.Fatal(err)
			}
		}
		part, err := w.CreateFormFile("attachment-1", file)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, "a picture")
		w.Close()
		r := httptest.NewRequest("POST", mailPath, &b)
		r.Header.Set("Content-Type", w.FormDataContentType())
		return r
	}
	h.wantAnswer(t, request("first", "hello", "a.png"), 200, accepted)
	h.wantAnswer(t, request("second", "hello", "a.png"), 200, duplicate)
	before := h.rows(t)
	h.wantAnswer(t, request("second", "hello!", "a.png"), 401, denied)
	h.wantAnswer(t, request("second", "hello", "b.png"), 401, denied)
	h.wantAnswer(t, request("first", "hello", "b.png"), 401, denied)
	h.wantUntouched(t, before)
}

// TestSignedMailIsReadOnce: a style B signature covers the bytes of a mail but not the
// boundary. A sender of a text that contains the parts of another mail cannot have the signed
// bytes read that way: not with another boundary, not as pairs, not by observing the request.
func TestSignedMailIsReadOnce(t *testing.T) {
	const eve, victim = "parse@evil.example", "parse@acme.example"
	for _, seen := range []bool{false, true} {
		h := start(t, func(h *house) {
			h.adapters = []channel.Adapter{email.NewParsed(email.Config{})}
			h.secrets = map[string][]string{"email-parse": {publicKeyOf("the deployment's")}}
		})
		h.connect(t, "email-parse", victim, func(n *connection.New) { n.Secrets = []string{publicKeyOf("another")} })
		h.connect(t, "email-parse", eve, ofOrg2, func(n *connection.New) { n.Secrets = []string{publicKeyOf("the deployment's")} })
		part := func(boundary, name, value string) string {
			return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
		}
		inner := part("evb", "envelope", `{"to":["`+victim+`"],"from":"vic@acme.example"}`) +
			part("evb", "headers", "Message-ID: <2@acme.example>\nFrom: Vic <vic@acme.example>") + part("evb", "SPF", "pass") +
			part("evb", "from", "vic@acme.example") + part("evb", "to", victim) + part("evb", "text", "Pay to my account") + "--evb--\r\n" +
			`&envelope={"to":["` + victim + `"],"from":"vic@acme.example"}&from=vic@acme.example&`
		body := part("sg", "text", inner) + part("sg", "from", "eve@evil.example") + part("sg", "to", eve) +
			part("sg", "headers", "Message-ID: <1@evil.example>\nFrom: Eve <eve@evil.example>") +
			part("sg", "envelope", `{"to":["`+eve+`"],"from":"eve@evil.example"}`) + "--sg--\r\n"
		signature, timestamp, err := email.SignParse([]byte(body), time.Now(), privateKeyOf("the deployment's"))
		if err != nil {
			t.Fatal(err)
		}
		request := func(contentType string) *http.Request {
			r := httptest.NewRequest("POST", mailPath, strings.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			r.Header.Set(email.ParseSignatureHeader, signature)
			r.Header.Set(email.ParseTimestampHeader, timestamp)
			return r
		}
		if seen {
			h.wantAnswer(t, request("multipart/form-data; boundary=sg"), 200, accepted)
			for _, e := range h.list(t) {
				raw, err := h.Find(t.Context(), e.ID)
				if err != nil {
					t.Fatal(err)
				}
				if got := raw.Header.Get(email.ParseSignatureHeader); got == signature {
					t.Error("the stored event shows the signature")
				}
			}
		}
		for _, contentType := range []string{"multipart/form-data; boundary=evb", "application/x-www-form-urlencoded", `multipart/form-data; boundary="sg "`, "multipart/form-data; boundary=SG"} {
			if w := h.do(request(contentType)); w.Code < 400 {
				t.Errorf("%s, seen %t: answered %d %s", contentType, seen, w.Code, w.Body)
			}
		}
		for _, e := range h.list(t) {
			if e.OrganizationID == "org-1" {
				t.Errorf("seen %t: the victim got %+v", seen, e)
			}
		}
		if seen {
			h.wantAnswer(t, request("multipart/form-data; boundary=sg"), 200, duplicate)
		}
	}
}

// TestTokenAtOnce: of several concurrent requests with one token, one body is accepted.
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

// TestTokenAfterFailure: a request that we failed to store passes when it is repeated, also if
// the provider rebuilds it.
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
	// The stored body of a refused request is deleted.
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

// TestTokensForgotten: a token is retained while its signature is valid, and not much longer.
func TestTokensForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, withParcels(tokened{newParcels("parcels")}))
		h.connect(t, "parcels", "a")
		for i := range 700 {
			h.wantAnswer(t, tokenRequest(parcelPath, parcel{To: []string{"a"}}.bytes(), string(rune(0x4e00+i)), secretOf("a")), 200, ignored)
		}
		purge := func() int {
			if _, err := h.Purge(t.Context(), time.Now().Add(-30*24*time.Hour)); err != nil {
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
