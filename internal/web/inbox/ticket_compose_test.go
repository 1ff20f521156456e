package inbox_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mailauth"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// preview posts the composer's text, and returns the document.
func preview(t *testing.T, b *webtest.Browser, form url.Values, files ...web.File) string {
	t.Helper()
	form.Set("do", "preview")
	w := b.PostFiles("/tickets/1/write", form, files...)
	if policy := w.Header().Get("Content-Security-Policy"); w.Code != http.StatusOK || !strings.Contains(policy, "default-src 'none'; img-src data:;") || !strings.Contains(policy, "sandbox") {
		t.Errorf("the preview is %d with the policy %q", w.Code, policy)
	}
	_, body, _ := strings.Cut(w.Body.String(), `<body dir="auto">`)
	return strings.TrimSpace(strings.Split(body, "</body>")[0])
}

func TestPreview(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1")
	b := h.SignIn(h.Agent)
	h.Prefer(h.Agent, `{"signature":"{{agent.first_name}}"}`)
	form := reply("reply", "*Hi* "+evil+" ![map](attachment:map.png) ![spy](https://spy.example/x.png)", "conversation", r.ConversationID)
	got := preview(t, b, form, web.File{Name: "map.png", ContentType: "image/png", Data: []byte("png")})
	for _, want := range []string{
		"<em>Hi</em>", "&lt;script&gt;", `<img src="data:image/png;base64,` + base64.StdEncoding.EncodeToString([]byte("png")) + `" alt="map">`,
		`<img data-remote-src="https://spy.example/x.png" alt="spy">`, "<div>-- </div>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the preview %q has nothing of %q", got, want)
		}
	}
	if strings.Contains(got, "<script") || strings.Contains(got, "{{") {
		t.Errorf("the preview is %q", got)
	}
	if len(h.messages(r.TicketID)) != 1 {
		t.Error("the preview was sent")
	}
	for text, want := range map[string]string{
		"":                           "There is nothing written yet.",
		"Hello {{customer.name}}":    "The text still has {{customer.name}}. Write the value in its place.",
		strings.Repeat("x", 100_001): "The text must have at most 100000 characters.",
	} {
		if got := preview(t, b, reply("reply", text, "conversation", r.ConversationID)); !strings.Contains(got, want) {
			t.Errorf("the preview of %.30q is %q, want %q", text, got, want)
		}
	}
}

func TestPreviewOfText(t *testing.T) {
	h := newHarness(t)
	r := h.text("+14155550111", "SM1", "Hello?")
	if got := preview(t, h.SignIn(h.Agent), reply("reply", "*Hi*\n<b>", "conversation", r.ConversationID)); !strings.Contains(got, "*Hi*\n&lt;b&gt;") {
		t.Errorf("the preview is %q", got)
	}
}

// strong returns the strong texts of rendered replies.
func strong(d webtest.Document) string {
	var texts []string
	for _, part := range d.WithAttr("class", "text md") {
		for n := range part.Descendants() {
			if n.Data == "strong" {
				texts = append(texts, webtest.Text(n))
			}
		}
	}
	return strings.Join(texts, " ")
}

func TestRenderedReply(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1")
	b := h.SignIn(h.Agent)
	picture := web.File{Name: "map.png", ContentType: "image/png", Data: []byte("png")}
	d, _ := b.Follow(b.PostFiles("/tickets/1/write", reply("reply", "**Here** ![map](attachment:map.png) "+evil, "conversation", r.ConversationID), picture))
	m := h.messages(r.TicketID)[1]
	if got := strong(d); got != "Here" {
		t.Errorf("the reply has the strong texts %q", got)
	}
	if imgs := d.All("img"); len(imgs) != 1 || webtest.Attr(imgs[0], "src") != "/attachments/"+m.Attachments[0].ID {
		t.Errorf("the page shows the pictures %v, want one inline", imgs)
	}
	// One with remote images stays in a frame, which does not load them.
	d, _ = b.Follow(b.Post("/tickets/1/write", reply("reply", "![x](https://spy.example/x.png)", "conversation", r.ConversationID)))
	if len(d.All("img")) != 1 || len(d.All("iframe")) != 1 {
		t.Errorf("%d pictures, %d frames", len(d.All("img")), len(d.All("iframe")))
	}
	// A held reply is rendered, too.
	h.Prefer(h.Agent, "{}")
	d, _ = b.Follow(b.Post("/tickets/1/write", reply("reply", "**There**", "conversation", r.ConversationID)))
	if got := strong(d); got != "Here There" {
		t.Errorf("the page has the strong texts %q", got)
	}
}

func TestCopies(t *testing.T) {
	h := newHarness(t)
	r := h.mail("ana@example.com", "m1", func(m *channel.Message) {
		m.Cc = []channel.Party{{Name: "Bob", Email: "bob@example.com"}}
		m.Mail.Proof = mailauth.Result{Verdict: mailauth.Proven, Reason: "DKIM"}
	})
	b := h.SignIn(h.Agent)
	copies, shown, bcc := "copies."+r.ConversationID, "shown."+r.ConversationID, "bcc."+r.ConversationID
	d := b.Page("/tickets/1")
	if got := webtest.Attr(d.Field(copies), "value"); got != "bob@example.com" || got != webtest.Attr(d.Field(shown), "value") {
		t.Fatalf("the copies are %q", got)
	}
	refused := b.WantRefused(b.Post("/tickets/1/write", reply("reply", "Yes.", "conversation", r.ConversationID, copies, "carol", shown, "bob@example.com", bcc, "law@example.com")), http.StatusUnprocessableEntity)
	if !strings.Contains(refused.Alert(), "An address under Cc or Bcc must be") {
		t.Errorf("got %q", refused.Alert())
	}
	if webtest.Attr(refused.Field(copies), "value") != "carol" || webtest.Attr(refused.Field(bcc), "value") != "law@example.com" || webtest.Attr(refused.Field(shown), "value") != "bob@example.com" {
		t.Error("the refused form does not have its addresses")
	}
	b.Follow(b.Post("/tickets/1/write", reply("reply", "Yes.", "conversation", r.ConversationID,
		copies, `"Doe, Carol" <carol@example.com>; dan@example.com`, shown, "bob@example.com", bcc, " law@example.com ")))
	m := h.messages(r.TicketID)[1]
	var got []string
	for _, list := range [][]desk.Address{m.Details.To, m.Details.Cc, m.Details.Bcc} {
		for _, a := range list {
			got = append(got, a.Email)
		}
	}
	if want := "ana@example.com carol@example.com dan@example.com law@example.com"; strings.Join(got, " ") != want {
		t.Errorf("it goes to %q, want %q", got, want)
	}
	d = b.Page("/tickets/1")
	if got := webtest.Attr(d.Field(copies), "value"); got != "carol@example.com, dan@example.com" {
		t.Errorf("the next copies are %q", got)
	}
	if !strings.Contains(webtest.Text(d.All("body")[0]), "law@example.com") {
		t.Error("the message does not name its blind copy")
	}
	// A text has none.
	h.text("+14155550111", "SM1", "Hello?")
	if d := b.Page("/tickets/2"); strings.Contains(webtest.Text(d.All("form")[0]), "Bcc") {
		t.Error("a text has copies")
	}
}

// limited is a dispatcher of a channel with limits.
type limited struct{ dispatcher }

func (d limited) PrepareSend(ctx context.Context, q db.Querier, organizationID, connectionID, ticketChannel string, m *channel.Outgoing) (string, error) {
	m.Limits = channel.Limits{Text: 1600, Parts: true, Files: "no files"}
	return d.dispatcher.PrepareSend(ctx, q, organizationID, connectionID, ticketChannel, m)
}

func TestComposerLimits(t *testing.T) {
	h := newHarnessWith(t, limited{})
	h.text("+14155550111", "SM1", "Hello?")
	d := h.SignIn(h.Agent).Page("/tickets/1")
	d.Want("At most 1,600 characters; long ones are charged as several; no files.")
	if got := d.Field("conversation"); webtest.Attr(got, "data-most") != "1600" || !webtest.Has(got, "data-parts") {
		t.Errorf("the conversation is %v", got.Attr)
	}
}
