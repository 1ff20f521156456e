package push_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/push"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/golang-jwt/jwt/v5"
)

const org = "0190c0de-0000-7000-8000-00000000000a"

// browser is a browser that has subscribed: its private key and its secret.
type browser struct {
	private *ecdh.PrivateKey
	auth    []byte
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{key, make([]byte, 16)}
	rand.Read(b.auth)
	return b
}

var base64url = base64.RawURLEncoding

func (b *browser) target(endpoint string) push.Target {
	return push.Target{Endpoint: endpoint, P256DH: base64url.EncodeToString(b.private.PublicKey().Bytes()), Auth: base64url.EncodeToString(b.auth)}
}

// decrypt decrypts a message by RFC 8291 and RFC 8188.
func (b *browser) decrypt(message []byte) ([]byte, error) {
	if len(message) < 21 || len(message) < 21+int(message[20]) {
		return nil, errors.New("the header is short")
	}
	salt, size, sender := message[:16], binary.BigEndian.Uint32(message[16:20]), message[21:21+int(message[20])]
	record := message[21+len(sender):]
	if len(record) > int(size) {
		return nil, fmt.Errorf("the record has %d bytes, more than %d", len(record), size)
	}
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	secret, err := b.private.ECDH(public)
	if err != nil {
		return nil, err
	}
	derive := func(secret, salt []byte, info string, n int) []byte {
		key, err := hkdf.Key(sha256.New, secret, salt, info, n)
		if err != nil {
			panic(err)
		}
		return key
	}
	ikm := derive(secret, b.auth, "WebPush: info\x00"+string(b.private.PublicKey().Bytes())+string(sender), 32)
	block, err := aes.NewCipher(derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, derive(ikm, salt, "Content-Encoding: nonce\x00", 12), record, nil)
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutSuffix(strings.TrimRight(string(plain), "\x00"), "\x02")
	if !ok {
		return nil, errors.New("the padding has no delimiter")
	}
	return []byte(text), nil
}

// TestVector decrypts the example of RFC 8291, appendix A.
func TestVector(t *testing.T) {
	decode := func(text string) []byte {
		b, err := base64url.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key, err := ecdh.P256().NewPrivateKey(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{key, decode("BTBZMqHH6r4Tts7J_aSIgg")}
	text, err := b.decrypt(decode("DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"))
	if err != nil || string(text) != "When I grow up, I want to be a watermelon" {
		t.Errorf("got %q, %v", text, err)
	}
}

// vendor is a push service in this process.
type vendor struct {
	mu     sync.Mutex
	status int
	header http.Header
	got    []*http.Request
	bodies [][]byte
}

func (v *vendor) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.got, v.bodies = append(v.got, r), append(v.bodies, body)
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), v.header)
	w.WriteHeader(v.status)
	response := w.Result()
	response.Request = r
	return response, nil
}

func (v *vendor) answers(status int, header http.Header) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status, v.header = status, header
}

// requests returns the number of requests since its last call.
func (v *vendor) requests() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.got)
	v.got, v.bodies = nil, nil
	return n
}

// rig is a service with members and their sessions.
type rig struct {
	*testing.T
	db     *db.DB
	queue  *queue.Queue
	box    *seal.Box
	vendor *vendor
	push   *push.Service
	ended  map[string]bool // sessions
	read   map[string]bool // notices
}

func newRig(t *testing.T, d *db.DB, change ...func(*push.Config)) *rig {
	t.Helper()
	r := &rig{T: t, db: d, queue: queue.Open(d, queue.Config{}), box: seal.New(seal.NewKey()), vendor: &vendor{status: http.StatusCreated}, ended: map[string]bool{}, read: map[string]bool{}}
	c := push.Config{
		DB: d, Queue: r.queue, Box: r.box, Transport: r.vendor, Contact: "ops@desk.example",
		Member: func(_ context.Context, session string) (string, string, bool, error) {
			user, _, _ := strings.Cut(session, " ")
			return org, user, !r.ended[session], nil
		},
		Message: func(_ context.Context, o, user, notice string) (push.Message, bool, error) {
			return push.Message{Title: "#6 " + strings.Repeat("ü", 300), Body: notice + " for " + user, URL: "https://desk.example/tickets/6", Tag: "ticket-6"}, o == org && !r.read[notice], nil
		},
	}
	for _, f := range change {
		f(&c)
	}
	r.push = push.Open(c)
	return r
}

// onClock runs a test on virtual time, with a queue that runs.
func onClock(t *testing.T, test func(t *testing.T, r *rig), change ...func(*push.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dbtest.NewSQLite(t), change...)
		if err := r.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer r.queue.Stop(context.Background())
		test(t, r)
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) exec(statement string, args ...any) {
	r.Helper()
	if err := r.db.Write(r.Context(), func(tx *db.Tx) error { _, err := tx.Exec(r.Context(), statement, args...); return err }); err != nil {
		r.Fatal(err)
	}
}

// session opens a session of a user, whom it creates.
func (r *rig) session(user, name string) push.Subscriber {
	r.Helper()
	id := user + " " + name
	r.exec("INSERT INTO users (id, email, email_key, name, preferences, created_at, updated_at) VALUES ($1, $1, $1, $1, '{}', 0, 0) ON CONFLICT DO NOTHING", user)
	r.exec("INSERT INTO sessions (id, user_id, ip, user_agent, created_at, used_at) VALUES ($1, $2, '', '', 0, 0)", id, user)
	return push.Subscriber{OrganizationID: org, UserID: user, SessionID: id, Browser: name}
}

func (r *rig) subscribe(by push.Subscriber, to push.Target) {
	r.Helper()
	if err := r.push.Subscribe(r.Context(), by, to); err != nil {
		r.Fatal(err)
	}
}

// browsers lists a user's browsers.
func (r *rig) browsers(user string) string {
	r.Helper()
	list, err := r.push.Subscriptions(r.Context(), r.db, org, user)
	if err != nil {
		r.Fatal(err)
	}
	var names []string
	for _, b := range list {
		names = append(names, b.Browser)
	}
	return strings.Join(names, ", ")
}

func (r *rig) notify(user, notice string) {
	r.Helper()
	if err := r.db.Write(r.Context(), func(tx *db.Tx) error { return r.push.NotifyTx(r.Context(), tx, org, user, notice) }); err != nil {
		r.Fatal(err)
	}
}

func TestSend(t *testing.T) {
	onClock(t, func(t *testing.T, r *rig) {
		b := newBrowser(t)
		r.subscribe(r.session("grace", "Firefox"), b.target("https://push.example/secret/1"))
		r.notify("linus", "n0")
		r.notify("grace", "n1")
		pass(time.Second)
		if len(r.vendor.got) != 1 {
			t.Fatalf("%d requests", len(r.vendor.got))
		}
		req, body := r.vendor.got[0], r.vendor.bodies[0]
		if req.Method != "POST" || req.URL.String() != "https://push.example/secret/1" || req.Header.Get("Ttl") != "43200" ||
			req.Header.Get("Topic") != "ticket-6" || req.Header.Get("Content-Encoding") != "aes128gcm" || req.Header.Get("Urgency") != "normal" || len(body) != 2048 {
			t.Errorf("got %s %s with %v and %d bytes", req.Method, req.URL, req.Header, len(body))
		}
		text, err := b.decrypt(body)
		if err != nil {
			t.Fatal(err)
		}
		var m push.Message
		if err := json.Unmarshal(text, &m); err != nil || m.Body != "n1 for grace" || m.URL != "https://desk.example/tickets/6" || m.Tag != "ticket-6" || m.Title != "#6 "+strings.Repeat("ü", 146)+"…" {
			t.Errorf("the browser shows %s, %v", text, err)
		}
		if _, err := newBrowser(t).decrypt(body); err == nil {
			t.Error("another browser can read it")
		}
		r.checkJWT(req.Header.Get("Authorization"))
		list, err := r.push.Subscriptions(t.Context(), r.db, org, "grace")
		if err != nil || len(list) != 1 || list[0].SentAt.IsZero() || list[0].Service != "push.example" {
			t.Errorf("the browser is %+v, %v", list, err)
		}

		// Read meanwhile, or the session has ended: nothing is sent.
		r.vendor.requests()
		r.read["n2"] = true
		r.notify("grace", "n2")
		pass(time.Second)
		r.ended["grace Firefox"] = true
		r.notify("grace", "n3")
		pass(time.Hour)
		if n := r.vendor.requests(); n != 0 {
			t.Errorf("%d requests for a notice that was read, and in a session that has ended", n)
		}
	})
}

// checkJWT checks the proof of who sends, by RFC 8292.
func (r *rig) checkJWT(authorization string) {
	r.Helper()
	token, key, ok := strings.Cut(strings.TrimPrefix(authorization, "vapid t="), ", k=")
	public, err := r.push.PublicKey(r.Context())
	if err != nil || !ok || key != public {
		r.Fatalf("the key is %q, want %q, %v", key, public, err)
	}
	point, err := base64url.DecodeString(key)
	if err != nil {
		r.Fatal(err)
	}
	verify, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		r.Fatal(err)
	}
	claims := jwt.MapClaims{}
	if _, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return verify, nil }, jwt.WithValidMethods([]string{"ES256"}), jwt.WithExpirationRequired(), jwt.WithAudience("https://push.example")); err != nil {
		r.Errorf("the proof: %v", err)
	}
	until, err := claims.GetExpirationTime()
	if err != nil || time.Until(until.Time) > 24*time.Hour || claims["sub"] != "mailto:ops@desk.example" {
		r.Errorf("the claims are %v, %v", claims, err)
	}
}

func TestAnswers(t *testing.T) {
	onClock(t, func(t *testing.T, r *rig) {
		by, b := r.session("grace", "Firefox"), newBrowser(t)
		r.subscribe(by, b.target("https://push.example/1"))
		for _, test := range []struct {
			status   int
			header   http.Header
			pass     time.Duration
			requests int
		}{
			{200, nil, 3 * time.Hour, 1},
			{301, http.Header{"Location": {"https://push.example/2"}}, 3 * time.Hour, 1},
			{403, nil, 3 * time.Hour, 1},
			{413, nil, 3 * time.Hour, 1},
			{500, nil, 4 * time.Second, 1},
			{503, nil, 3 * time.Hour, 7 + 6}, // also the one before
			{429, http.Header{"Retry-After": {"600"}}, 9 * time.Minute, 1},
			{429, nil, 3 * time.Hour, 7 + 6},
		} {
			r.vendor.answers(test.status, test.header)
			r.notify("grace", "n")
			pass(test.pass)
			if n := r.vendor.requests(); n != test.requests {
				t.Errorf("%d: %d requests in %v, want %d", test.status, n, test.pass, test.requests)
			}
		}
		if got := r.browsers("grace"); got != "Firefox" {
			t.Errorf("the browsers are %q", got)
		}
		for _, status := range []int{404, 410} {
			r.subscribe(by, b.target("https://push.example/1"))
			r.vendor.answers(status, nil)
			r.notify("grace", "n")
			r.notify("grace", "n")
			pass(3 * time.Hour)
			if n, left := r.vendor.requests(), r.browsers("grace"); n != 1 || left != "" {
				t.Errorf("%d: %d requests, left is %q", status, n, left)
			}
		}
	})
}

// TestPrivateAddresses: endpoints are public, also after the resolution of their names.
func TestPrivateAddresses(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	by, b := r.session("grace", "Firefox"), newBrowser(t)
	for _, endpoint := range []string{"", "http://push.example/1", "https://127.0.0.1/1", "https://localhost/1", "https://10.0.0.1/", "https://user:x@push.example/", "https://push/", "file:///etc/passwd", "https://push.example/" + strings.Repeat("x", 2048)} {
		if err := r.push.Subscribe(t.Context(), by, b.target(endpoint)); problem.Of(err) != problem.Invalid {
			t.Errorf("%.40s: %v", endpoint, err)
		}
	}
	for what, to := range map[string]push.Target{
		"no key":         {Endpoint: "https://push.example/", Auth: b.target("").Auth},
		"a point beside": {Endpoint: "https://push.example/", P256DH: base64url.EncodeToString(append([]byte{4}, make([]byte, 64)...)), Auth: b.target("").Auth},
		"a short secret": {Endpoint: "https://push.example/", P256DH: b.target("").P256DH, Auth: "AAAA"},
	} {
		if err := r.push.Subscribe(t.Context(), by, to); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := r.browsers("grace"); got != "" {
		t.Errorf("refused ones left %q", got)
	}

	// A name that leads into the private network.
	reached := make(chan struct{}, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	defer server.Close()
	guarded := newRig(t, dbtest.New(t), func(c *push.Config) { c.AllowPrivate, c.Transport = true, netguard.NewTransport(netguard.Guard{}) })
	guarded.subscribe(guarded.session("grace", "Firefox"), b.target(strings.Replace(server.URL, "127.0.0.1", "localhost", 1)))
	if err := guarded.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer guarded.queue.Stop(context.Background())
	guarded.notify("grace", "n")
	for n := 1; n > 0; {
		if err := guarded.db.QueryRow(t.Context(), "SELECT count(*) FROM jobs").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if t.Context().Err() != nil {
			t.Fatal("the job stays")
		}
	}
	if len(reached) > 0 {
		t.Error("a private address was reached")
	}
}

func TestSubscriptions(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	b := newBrowser(t)
	var first push.Subscriber
	for i := range push.MaxBrowsers {
		by := r.session("grace", fmt.Sprint("B", i))
		if i == 0 {
			first = by
		}
		r.subscribe(by, b.target(fmt.Sprint("https://push.example/", i)))
	}
	if err := r.push.Subscribe(t.Context(), r.session("grace", "B10"), b.target("https://push.example/10")); problem.Of(err) != problem.Precondition {
		t.Errorf("one browser too many: %v", err)
	}
	first.Browser = "C0"
	r.subscribe(first, b.target("https://push.example/20")) // replaces its own
	if got := r.browsers("grace"); got != "B1, B2, B3, B4, B5, B6, B7, B8, B9, C0" {
		t.Errorf("the browsers are %s", got)
	}
	// Another user of the browser takes the endpoint over.
	r.subscribe(r.session("linus", "L"), b.target("https://push.example/1"))
	if got := r.browsers("grace") + "; " + r.browsers("linus"); got != "B2, B3, B4, B5, B6, B7, B8, B9, C0; L" {
		t.Errorf("the browsers are %s", got)
	}
	list, err := r.push.Subscriptions(t.Context(), r.db, org, "grace")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.push.Unsubscribe(t.Context(), "linus", list[0].ID); problem.Of(err) != problem.NotFound {
		t.Errorf("another's browser: %v", err)
	}
	if err := r.push.Unsubscribe(t.Context(), "grace", list[0].ID); err != nil {
		t.Error(err)
	}
	// With a session its subscription ends.
	r.exec("DELETE FROM sessions WHERE id IN ('grace B3', 'grace B4')")
	if got := r.browsers("grace"); got != "B5, B6, B7, B8, B9, C0" {
		t.Errorf("the browsers are %s", got)
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error { return r.push.DeleteMemberTx(t.Context(), tx, org, "grace") }); err != nil {
		t.Fatal(err)
	}
	if got := r.browsers("grace") + "; " + r.browsers("linus"); got != "; L" {
		t.Errorf("after grace has left: %s", got)
	}
	var text string
	if err := r.db.QueryRow(t.Context(), "SELECT service FROM push_subscriptions WHERE user_id = 'linus'").Scan(&text); err != nil || text != "push.example" {
		t.Errorf("stored is %q, %v", text, err)
	}
}

// TestKeyPair: a deployment has one key pair, sealed, that is never replaced.
func TestKeyPair(t *testing.T) {
	r := newRig(t, dbtest.New(t))
	var list sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			other := push.Open(push.Config{DB: r.db, Queue: queue.Open(r.db, queue.Config{}), Box: r.box, Transport: r.vendor})
			key, err := other.PublicKey(t.Context())
			if err != nil {
				t.Error(err)
			}
			list.Store(key, true)
		})
	}
	all.Wait()
	n := 0
	list.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("8 processes have %d keys", n)
	}
	var sealed []byte
	read := func() (public string) {
		if err := r.db.QueryRow(t.Context(), "SELECT public_key, private_key FROM push_keys").Scan(&public, &sealed); err != nil {
			t.Fatal(err)
		}
		return public
	}
	before := read()
	if private, err := r.box.Open("vapid key", sealed, "vapid"); err != nil || len(private) != 43 {
		t.Errorf("the private key has %d characters, %v", len(private), err)
	}
	lost := push.Open(push.Config{DB: r.db, Queue: queue.Open(r.db, queue.Config{}), Box: seal.New(seal.NewKey()), Transport: r.vendor})
	if _, err := lost.PublicKey(t.Context()); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("with another secret key: %v", err)
	}
	if after := read(); after != before {
		t.Error("the key was replaced")
	}
}
