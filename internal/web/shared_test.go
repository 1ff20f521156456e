package web_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"testing"

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

// outgoing keeps the link of the last file that leaves.
type outgoing struct{ link string }

func (o *outgoing) Admit(_ context.Context, _ db.Querier, _, connectionID, _ string, m *channel.Outgoing) (string, error) {
	o.link = m.Files[0].URL
	return connectionID, nil
}

// TestSharedFile: whoever has a link to a file gets it to be saved, without signing
// in, and nothing else.
func TestSharedFile(t *testing.T) {
	d := dbtest.New(t)
	files, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	o := new(outgoing)
	s := desk.Open(desk.Config{
		DB: d, Queue: queue.Open(d, queue.Config{}), Events: new(event.Log), Blob: files, Box: seal.New(seal.NewKey()), Dispatcher: o, BaseURL: baseURL,
	})
	says, err := s.Compose(t.Context(), desk.Draft{Text: "See!", Attachments: []channel.Attachment{{Name: "ä.html", ContentType: "text/html", Data: []byte("<b>x</b>")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		in, err := s.Intake(t.Context(), tx, desk.Inbound{OrganizationID: "org", ConnectionID: "c", Channel: "sms", Event: channel.Event{Message: &channel.Message{
			ExternalID: "1", ThreadKey: "+4915112345678", From: channel.Party{Phone: "+4915112345678"}, Text: "Hello?",
		}}})
		if err == nil {
			_, err = s.Reply(t.Context(), tx, "org", in.TicketID, desk.Reply{Says: says})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(o.link)
	if err != nil || link.Host != "help.example.com" {
		t.Fatalf("got link %q, %v", o.link, err)
	}
	h := web.New(web.Config{Desk: s, Logger: slog.New(slog.DiscardHandler)})
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
