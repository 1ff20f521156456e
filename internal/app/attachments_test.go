package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// get requests a path with an API key; none if token is empty.
func (a *App) get(address, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", address, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w
}

// readingKey creates an API key with read access to some resources.
func (a *App) readingKey(t *testing.T, o account.Organization, resources ...string) string {
	t.Helper()
	grants := map[string][]apikey.Action{}
	for _, r := range resources {
		grants[r] = []apikey.Action{apikey.Read}
	}
	_, token, err := a.Keys.Create(t.Context(), apikey.New{
		OrganizationID: o.ID, Service: apikey.Helpdesk, Environment: apikey.Live, Name: o.Slug + strings.Join(resources, " "),
		Permissions: apikey.Permissions{Resources: apikey.Grants{Named: grants}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

// TestAttachmentURLOfPayloads: the URL of a file in an event is a signed link, and works
// without its signature for an API key that may read messages. A file that could not be
// fetched has neither URL nor size.
func TestAttachmentURLOfPayloads(t *testing.T) {
	a := deployment(t, "http://localhost:8080", quiet)
	ours, theirs := signUp(t, a, "Ours"), signUp(t, a, "Theirs")
	message := &channel.Message{
		ExternalID: "<1@client.example>", From: channel.Party{Email: "ana@client.example"}, Subject: "Broken", HTML: `<p>See <img src="cid:a"></p>`,
		Attachments: []channel.Attachment{
			{Name: "a.png", ContentType: "image/png", ContentID: "a", Inline: true, Data: []byte("a picture")},
			{Name: "b.png", ContentType: "image/png", URL: "https://media.example/b", Error: "the host did not answer"},
		},
		Mail: &channel.Mail{},
	}
	files, err := a.Desk.StoreFiles(t.Context(), message)
	if err != nil {
		t.Fatal(err)
	}
	var in desk.Result
	err = a.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		in, err = a.Desk.IngestTx(t.Context(), tx, desk.InboundEvent{
			OrganizationID: ours.ID, Channel: "email", Event: channel.Event{Message: message}, Files: files,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	key := a.readingKey(t, ours, "events", "messages")

	type file struct {
		Size *int64  `json:"size"`
		URL  *string `json:"url"`
	}
	type record struct {
		Text, HTML  *string
		Attachments []file
	}
	w := a.get("http://localhost:8080/api/v1/events?event=message.created,conversation.created", key)
	var events struct {
		Data []struct{ Data struct{ Message record } }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &events); err != nil || len(events.Data) == 0 {
		t.Fatalf("events: %d %s, %v", w.Code, w.Body, err)
	}
	w = a.get("http://localhost:8080/api/v1/tickets/"+in.TicketID+"/messages", key)
	var messages struct{ Data []record }
	if err := json.Unmarshal(w.Body.Bytes(), &messages); err != nil || len(messages.Data) != 1 {
		t.Fatalf("messages: %d %s, %v", w.Code, w.Body, err)
	}
	for name, m := range map[string]record{"event": events.Data[0].Data.Message, "REST API": messages.Data[0]} {
		if m.Text != nil || len(m.Attachments) != 2 {
			t.Fatalf("%s: text %v, %d attachments, want null and 2", name, m.Text, len(m.Attachments))
		}
		if f := m.Attachments[0]; f.Size == nil || *f.Size != 9 || f.URL == nil {
			t.Fatalf("%s: the first file has size %v and URL %v", name, f.Size, f.URL)
		}
		if f := m.Attachments[1]; f.Size != nil || f.URL != nil {
			t.Errorf("%s: the file that was not fetched has size %v and URL %v, want null", name, f.Size, f.URL)
		}
	}

	m := events.Data[0].Data.Message
	link, err := url.Parse(*m.Attachments[0].URL)
	if err != nil || !link.Query().Has("sig") {
		t.Fatalf("the event has the link %s, %v", *m.Attachments[0].URL, err)
	}
	if want := strings.ReplaceAll(link.String(), "&", "&amp;"); !strings.Contains(*m.HTML, want) {
		t.Errorf("the event's HTML %s does not have %s", *m.HTML, want)
	}
	plain := *link
	plain.RawQuery = ""
	for _, tt := range []struct {
		name, address, token string
		status               int
	}{
		{"the signed link", link.String(), "", http.StatusOK},
		{"a forged signature", plain.String() + "?until=" + link.Query().Get("until") + "&sig=" + strings.Repeat("0", 32), "", http.StatusNotFound},
		{"no signature", plain.String(), "", http.StatusUnauthorized},
		{"an API key", plain.String(), key, http.StatusOK},
		{"the API's own address", *messages.Data[0].Attachments[0].URL, key, http.StatusOK},
		{"a key that may not read messages", plain.String(), a.readingKey(t, ours, "events"), http.StatusForbidden},
		{"a key of another organization", plain.String(), a.readingKey(t, theirs, "messages"), http.StatusNotFound},
		{"no key of ours", plain.String(), "x", http.StatusUnauthorized},
	} {
		w := a.get(tt.address, tt.token)
		if w.Code != tt.status || (w.Body.String() == "a picture") != (tt.status == http.StatusOK) {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
}
