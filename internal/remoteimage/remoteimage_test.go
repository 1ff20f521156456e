package remoteimage_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/remoteimage"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

const (
	address = "https://sender.example/open.png?who=4711"
	png     = "\x89PNG\r\n\x1a\n and more"
)

// far is the sender's server: responses by address, and the requests.
type far struct {
	answers map[string]func(*http.Request) (*http.Response, error)
	mu      sync.Mutex
	asked   []*http.Request
}

func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	if answer := f.answers[r.URL.String()]; answer != nil {
		return answer(r)
	}
	return nil, errors.New("no such host")
}

func (f *far) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func respond(status int, body io.Reader, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1, Request: r}
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

func bytesOf(content string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return respond(200, strings.NewReader(content), header...)(r)
	}
}

type house struct {
	testing.TB
	db       *db.DB
	desk     *desk.Service
	queue    *queue.Queue
	pictures *remoteimage.Service
	message  desk.Message
	blobs    blob.Store
	box      *seal.Box
}

// receive returns a house with a mail that links to pictures.
func receive(t testing.TB, d *db.DB, transport http.RoundTripper, addresses ...string) *house {
	t.Helper()
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	h := &house{TB: t, db: d, blobs: blobs, box: seal.New(seal.NewKey()), queue: queue.Open(d, queue.Config{})}
	h.desk = desk.Open(desk.Config{DB: d, Queue: h.queue, Events: new(event.Log), Blob: blobs, BaseURL: "https://help.example"})
	h.pictures = h.another(transport)
	var markup strings.Builder
	markup.WriteString("<p>Hi</p>")
	for _, a := range addresses {
		markup.WriteString(`<img src="` + a + `">`)
	}
	m := &channel.Message{ExternalID: "1", ThreadKey: "ana", From: channel.Party{ID: "ana"}, Text: "Hi", HTML: safehtml.NewSanitizer().Sanitize(markup.String())}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		r, err := h.desk.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: "org", Channel: "chat", Event: channel.Event{Message: m}})
		h.message.TicketID, h.message.ID = r.TicketID, r.MessageID
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if h.message, err = h.desk.Message(t.Context(), d, "org", h.message.TicketID, h.message.ID); err != nil {
		t.Fatal(err)
	}
	return h
}

// another is the service of a second process.
func (h *house) another(transport http.RoundTripper) *remoteimage.Service {
	return remoteimage.New(remoteimage.Config{DB: h.db, Desk: h.desk, Blob: h.blobs, Box: h.box, Transport: transport, Logger: slog.New(slog.DiscardHandler)})
}

// open returns the content and the type of a picture.
func (h *house) open(ctx context.Context, s *remoteimage.Service, address string) (string, error) {
	id, signature := s.Link(h.message.ID, address)
	p, content, err := s.Open(ctx, &h.message, id, signature)
	if err != nil {
		return "", err
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	if int64(len(all)) != p.Size {
		h.Errorf("%d bytes, said to be %d", len(all), p.Size)
	}
	return p.ContentType + " " + string(all), err
}

// TestOnce: a picture is fetched once for all readers and processes, and its host
// learns nothing of them.
func TestOnce(t *testing.T) {
	f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: bytesOf(png, "Content-Type", "text/html", "Set-Cookie", "id=1")}}
	h := receive(t, dbtest.New(t), f, address)
	other := h.another(f)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if got, err := h.open(t.Context(), []*remoteimage.Service{h.pictures, other}[i%2], address); err != nil || got != "image/png "+png {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if n := f.times(); n != 1 {
		t.Fatalf("asked %d times, want once", n)
	}
	want := http.Header{"Accept": {"image/png, image/jpeg, image/gif, image/webp"}, "User-Agent": {"Mozilla/5.0 (compatible; Kickstand)"}}
	if got := f.asked[0].Header; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// TestRefusals: a response that is no picture, too large, slow, or not from a
// public address is not served, and not fetched again if the result would be the
// same.
func TestRefusals(t *testing.T) {
	const evil = "https://sender.example/evil"
	redirect := func(to string) func(*http.Request) (*http.Response, error) {
		return respond(302, http.NoBody, "Location", to)
	}
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	drip := func(r *http.Request) (*http.Response, error) {
		from, to := io.Pipe()
		go func() {
			io.WriteString(to, png)
			<-r.Context().Done()
			to.CloseWithError(r.Context().Err())
		}()
		return respond(200, from)(r)
	}
	private := func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("dial: %w", &netguard.AddressError{Why: "private"})
	}
	huge := bytes.Repeat([]byte(png), 5<<20/len(png)+1)
	// Reading past the bound fails, and so does any read of a body announced as too large.
	endless := func(r *http.Request) (*http.Response, error) {
		return respond(200, io.MultiReader(bytes.NewReader(huge), iotest.ErrReader(errors.New("read too far"))))(r)
	}
	announced := func(r *http.Request) (*http.Response, error) {
		resp, err := respond(200, iotest.ErrReader(errors.New("read")))(r)
		resp.ContentLength = 5<<20 + 1
		return resp, err
	}
	for _, tt := range []struct {
		name    string
		address string
		answer  func(*http.Request) (*http.Response, error)
		asked   int // after two tries
		takes   time.Duration
	}{
		{"an SVG", evil, bytesOf(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, "Content-Type", "image/svg+xml"), 1, 0},
		{"an SVG called PNG", evil, bytesOf(`<?xml version="1.0"?><svg/>`, "Content-Type", "image/png"), 1, 0},
		{"a page", evil, bytesOf("<!DOCTYPE html><script>alert(1)</script>", "Content-Type", "image/png"), 1, 0},
		{"text", evil, bytesOf("hello", "Content-Type", "image/gif"), 1, 0},
		{"a document", evil, bytesOf("%PDF-1.7"), 1, 0},
		{"nothing", evil, bytesOf(""), 1, 0},
		{"too large", evil, func(r *http.Request) (*http.Response, error) { return respond(200, bytes.NewReader(huge))(r) }, 1, 0},
		{"endless", evil, endless, 1, 0},
		{"announced as too large", evil, announced, 1, 0},
		{"gone", evil, respond(410, http.NoBody), 1, 0},
		{"out of order", evil, func(r *http.Request) (*http.Response, error) { return respond(503, http.NoBody)(r) }, 2, 0},
		{"slow to answer", evil, hang, 2, 20 * time.Second},
		{"slow to end", evil, drip, 2, 20 * time.Second},
		{"a private address", evil, private, 1, 0},
		{"redirected in a circle", evil, redirect(evil), 4, 0},
		{"redirected to another port", evil, redirect("https://sender.example:8443/"), 1, 0},
		{"redirected to a file", evil, redirect("file:///etc/passwd"), 1, 0},
		{"redirected with a password", evil, redirect("https://a:b@sender.example/"), 1, 0},
		{"another port", "https://sender.example:22/x", bytesOf(png), 0, 0},
		{"a password", "https://a:b@sender.example/x", bytesOf(png), 0, 0},
		{"a mail address", "mailto:a@sender.example", bytesOf(png), 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &far{answers: map[string]func(*http.Request) (*http.Response, error){tt.address: tt.answer}}
				h := receive(t, dbtest.NewSQLite(t), f, tt.address)
				began := time.Now()
				for range 2 {
					if _, err := h.open(t.Context(), h.pictures, tt.address); problem.Of(err) != problem.NotFound {
						t.Errorf("got %v, want that it is not found", err)
					}
				}
				if n, took := f.times(), time.Since(began); n != tt.asked || took != tt.takes {
					t.Errorf("asked %d times in %v, want %d in %v", n, took, tt.asked, tt.takes)
				}
			})
		})
	}
}

// TestPrivateAddresses: the real guard refuses private addresses, also after
// redirects.
func TestPrivateAddresses(t *testing.T) {
	guarded := netguard.NewTransport(netguard.Guard{})
	defer guarded.CloseIdleConnections()
	inside := []string{"http://127.0.0.1/a.png", "http://[::1]/a.png", "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "https://[::ffff:192.168.0.1]/", "http://localhost/", "http://0.0.0.0/"}
	h := receive(t, dbtest.New(t), guarded, inside...)
	for _, a := range inside {
		if _, err := h.open(t.Context(), h.pictures, a); problem.Of(err) != problem.NotFound {
			t.Errorf("%s: got %v", a, err)
		}
		id, _ := h.pictures.Link(h.message.ID, a)
		if p, err := h.desk.Picture(t.Context(), h.db, h.message.ID, id); err != nil || p.Error != "its address is not public" {
			t.Errorf("%s: %+v, %v", a, p, err)
		}
	}
	// A redirect goes through the same transport.
	f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: respond(302, http.NoBody, "Location", inside[0])}}
	h = receive(t, dbtest.New(t), transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() == address {
			return f.RoundTrip(r)
		}
		return guarded.RoundTrip(r)
	}), address)
	if _, err := h.open(t.Context(), h.pictures, address); problem.Of(err) != problem.NotFound {
		t.Errorf("redirected: got %v", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSignature: a link is valid for one picture of one message.
func TestSignature(t *testing.T) {
	const second = "https://sender.example/2.png"
	f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: bytesOf(png), second: bytesOf(png), "https://elsewhere.example/": bytesOf(png)}}
	h := receive(t, dbtest.New(t), f, address)
	id, signature := h.pictures.Link(h.message.ID, address)
	foreign, foreignSignature := h.pictures.Link(h.message.ID, "https://elsewhere.example/") // not in the message
	otherID, otherSignature := h.pictures.Link("another message", address)
	stranger := remoteimage.New(remoteimage.Config{Box: seal.New(seal.NewKey())})
	_, forged := stranger.Link(h.message.ID, address)
	raw, _ := hex.DecodeString(signature)
	raw[0] ^= 1
	for _, tt := range [][2]string{
		{id, ""}, {id, "zz"}, {id, forged}, {id, hex.EncodeToString(raw)}, {id, signature[:30]}, {foreign, foreignSignature}, {otherID, otherSignature}, {foreign, signature}, {address, signature},
	} {
		if _, _, err := h.pictures.Open(t.Context(), &h.message, tt[0], tt[1]); problem.Of(err) != problem.NotFound {
			t.Errorf("%v: got %v", tt, err)
		}
	}
	if n := f.times(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// TestErased: a message's pictures are deleted with it.
func TestErased(t *testing.T) {
	f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: bytesOf(png)}}
	d := dbtest.New(t)
	h := receive(t, d, f, address)
	if _, err := h.open(t.Context(), h.pictures, address); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return h.desk.DeleteTx(t.Context(), tx, "org", h.message.TicketID) }); err != nil {
		t.Fatal(err)
	}
	id, _ := h.pictures.Link(h.message.ID, address)
	if _, err := h.desk.Picture(t.Context(), d, h.message.ID, id); !errors.Is(err, db.ErrNoRows) {
		t.Errorf("got %v, want nothing", err)
	}
}

// TestTakenBack: deleting a message at its provider deletes its files.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: bytesOf(png)}}
		h := receive(t, dbtest.NewSQLite(t), f, address)
		if _, err := h.open(t.Context(), h.pictures, address); err != nil {
			t.Fatal(err)
		}
		id, _ := h.pictures.Link(h.message.ID, address)
		p, err := h.desk.Picture(t.Context(), h.db, h.message.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := h.desk.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: "org", Channel: "chat", Event: channel.Event{Annotation: &channel.Annotation{
				ExternalID: "1", Kind: channel.Deleted, By: channel.Party{ID: "ana"}, At: time.Now(),
			}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := h.queue.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer h.queue.Stop(context.Background())
		synctest.Wait()
		if _, err := h.blobs.Open(t.Context(), p.BlobKey); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("the file is still there: %v", err)
		}
	})
}

// TestAbandoned: the claim of a process that died keeps other processes away for a
// minute.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answers: map[string]func(*http.Request) (*http.Response, error){address: bytesOf(png)}}
		h := receive(t, dbtest.NewSQLite(t), f, address)
		id, _ := h.pictures.Link(h.message.ID, address)
		if err := h.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := h.desk.ClaimPictureTx(t.Context(), tx, h.message.ID, id)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.open(t.Context(), h.pictures, address); problem.Of(err) != problem.Unavailable || f.times() != 0 {
			t.Errorf("got %v, want to wait", err)
		}
		time.Sleep(time.Minute)
		if _, err := h.open(t.Context(), h.pictures, address); err != nil {
			t.Error(err)
		}
	})
}
