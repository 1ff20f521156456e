package web_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// linkRecorder records the link of the last file sent.
type linkRecorder struct{ link string }

func (o *linkRecorder) PrepareSend(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	o.link = m.Files[0].URL
	return connectionID, nil
}

// shareFile sends a file by a link, and returns the site and the link.
func shareFile(t *testing.T, d *db.DB) (*web.Site, *url.URL) {
	t.Helper()
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	o := new(linkRecorder)
	s := desk.Open(desk.Config{
		DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log), Blob: files, Box: seal.New(seal.NewKey()), Dispatcher: o, BaseURL: baseURL,
	})
	says, err := s.Compose(t.Context(), "", desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "ä.html", ContentType: "text/html", Data: []byte("<b>x</b>")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		in, err := s.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: "org", ConnectionID: "c", Channel: "sms", Event: channel.Event{Message: &channel.Message{
			ExternalID: "1", ThreadKey: "+4915112345678", From: channel.Party{Phone: "+4915112345678"}, Text: "Hello?",
		}}})
		if err == nil {
			_, err = s.ReplyTx(t.Context(), tx, "org", in.TicketID, desk.Reply{Content: says})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(o.link)
	if err != nil || link.Host != "help.example.com" {
		t.Fatalf("got link %q, %v", o.link, err)
	}
	return web.New(web.Config{Desk: s, Logger: slog.New(slog.DiscardHandler)}), link
}

// TestSharedFile checks that a signed link serves its file as a download without a
// session, and nothing else.
func TestSharedFile(t *testing.T) {
	h, link := shareFile(t, dbtest.New(t))
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", link.RequestURI(), 200},
		{"HEAD", link.RequestURI(), 200},
		{"POST", link.RequestURI(), 405},
		{"GET", link.RequestURI() + "0", 404},
		{"GET", desk.AttachmentPath + "x?" + link.RawQuery, 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.status {
			t.Errorf("%s %s: got %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
		if tt.status != 200 {
			continue
		}
		for name, want := range map[string]string{
			"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename*=utf-8''%C3%A4.html", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "private, no-store", "Content-Length": "8",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("got %s %q, want %q", name, got, want)
			}
		}
		if got := w.Body.String(); tt.method == "GET" && got != "<b>x</b>" {
			t.Errorf("got %q", got)
		}
	}
}

// TestSharedFileExpires checks that a signed link works for seven days, and not after eight.
func TestSharedFileExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, link := shareFile(t, dbtest.NewSQLite(t))
		for _, tt := range []struct {
			wait   time.Duration
			status int
		}{{0, 200}, {7 * 24 * time.Hour, 200}, {24 * time.Hour, 404}} {
			time.Sleep(tt.wait)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", link.RequestURI(), nil))
			if w.Code != tt.status {
				t.Errorf("%s later: got %d, want %d", tt.wait, w.Code, tt.status)
			}
		}
	})
}

// TestFileOnItsWay checks that the link to a file being fetched answers with Retry-After,
// and serves the file later.
func TestFileOnItsWay(t *testing.T) {
	d := dbtest.New(t)
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	var told event.Attachment
	events := new(event.Log)
	events.AfterCommit(func(list []event.Event) {
		for _, e := range list {
			if e.Data.Message != nil {
				told = e.Data.Message.Attachments[0]
			}
		}
	})
	s := desk.Open(desk.Config{
		DB: d, Queue: queue.Open(d, queue.Config{}), Events: events, Blob: files, Box: seal.New(seal.NewKey()), BaseURL: baseURL,
	})
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := s.IngestTx(t.Context(), tx, desk.InboundEvent{
			OrganizationID: "org", Channel: "sms", FetchJobs: []desk.FetchJob{{Lane: "l", Payload: []byte("{}")}},
			Event: channel.Event{Message: &channel.Message{
				ExternalID: "1", ThreadKey: "+4915112345678", From: channel.Party{Phone: "+4915112345678"}, Attachments: []channel.Attachment{{Name: "a.png"}},
			}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h := web.New(web.Config{Desk: s, Logger: slog.New(slog.DiscardHandler)})
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", strings.TrimPrefix(told.URL, baseURL), nil))
		return w
	}
	if w := get(); w.Code != 404 || w.Header().Get("Retry-After") != "10" || !strings.Contains(w.Body.String(), "still being fetched") {
		t.Errorf("before: got %d %v", w.Code, w.Header())
	}
	ref, err := files.Put(t.Context(), strings.NewReader("PNG"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		return s.CompleteFileTx(t.Context(), tx, told.ID, desk.File{Ref: ref, ContentType: "image/png"})
	}); err != nil {
		t.Fatal(err)
	}
	if w := get(); w.Code != 200 || w.Body.String() != "PNG" || w.Header().Get("Content-Type") != "image/png" {
		t.Errorf("then: got %d %q", w.Code, w.Body)
	}
}
