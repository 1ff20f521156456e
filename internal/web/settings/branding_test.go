package settings_test

import (
	"bytes"
	"html/template"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestBranding: an admin sets a color that can be read, and invitations to the organization, and to no other, have it.
func TestBranding(t *testing.T) {
	const path = "/settings/organization/branding"
	h := newHarness(t)
	agent, admin := h.SignIn(h.Agent), h.SignIn(h.Admin)
	agent.WantRefused(agent.Get(path), http.StatusForbidden)
	agent.WantRefused(agent.Post(path, url.Values{"accent": {"#5b21b6"}}), http.StatusForbidden)
	d := admin.WantRefused(admin.Post(path, url.Values{"accent": {"#ffcc00"}}), http.StatusUnprocessableEntity)
	if !strings.Contains(d.Alert(), "The nearest color with enough is #") || webtest.Attr(d.Field("accent"), "value") != "#ffcc00" {
		t.Errorf("got alert %q", d.Alert())
	}
	if _, notice := admin.Follow(admin.Post(path, url.Values{"accent": {"#5B21B6"}})); notice != "Branding saved. Undo" {
		t.Errorf("got notice %q", notice)
	}
	admin.Page("/settings/organization").Want("#5b21b6")

	by := account.Identity{UserID: h.Admin.ID, OrganizationID: h.Organization.ID, Role: account.Admin, User: h.Admin}
	if _, err := h.Accounts.Invite(t.Context(), by, account.NewInvitation{Email: "new@example.com", Role: account.Agent}); err != nil {
		t.Fatal(err)
	}
	letter := h.Mails[len(h.Mails)-1]
	if !strings.Contains(letter.HTML, "background:#5b21b6;") {
		t.Errorf("the invitation has another color: %s", letter.HTML)
	}
	_, token, _ := strings.Cut(letter.Text, "/invitation?token=")
	token, _, _ = strings.Cut(token, "\n")
	w := admin.Get("/invitation?token=" + token)
	if !strings.Contains(w.Body.String(), `<link rel="stylesheet" href="/brand/5b21b6.css">`) {
		t.Errorf("the page of the invitation lacks the style sheet: %s", w.Body)
	}
	w = admin.Get("/brand/5b21b6.css")
	if !strings.HasPrefix(w.Body.String(), ":root{--accent:light-dark(#5b21b6,#") || w.Header().Get("Content-Type") != "text/css; charset=utf-8" ||
		!strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %v %s", w.Header(), w.Body)
	}
	for _, wrong := range []string{"ffcc00.css", "5B21B6.css", "5b21b6", "55b.css", "%7D.css", ".css"} { // not readable, or another address of the same
		if w := admin.Get("/brand/" + wrong); w.Code != http.StatusNotFound {
			t.Errorf("/brand/%s: got %d", wrong, w.Code)
		}
	}
}

// logoFile returns a PNG of one color.
func logoFile(t *testing.T, c color.Color) web.File {
	t.Helper()
	p := image.NewNRGBA(image.Rect(0, 0, 200, 60))
	draw.Draw(p, p.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return web.File{Name: "logo.png", ContentType: "image/png", Data: b.Bytes()}
}

// TestLogo: a logo is previewed, saved, shown to invited people, and served to anybody who has its address.
func TestLogo(t *testing.T) {
	const path = "/settings/organization/branding"
	h := newHarness(t)
	admin := h.SignIn(h.Admin)
	organization := func() account.Organization {
		t.Helper()
		o, err := h.Accounts.Organization(t.Context(), h.Organization.ID)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	file := logoFile(t, color.NRGBA{20, 40, 160, 255})

	svg := web.File{Name: "logo.svg", ContentType: "image/png", Data: []byte("<svg xmlns='http://www.w3.org/2000/svg'/>")}
	if d := admin.WantRefused(admin.PostFiles(path, nil, svg), http.StatusUnprocessableEntity); !strings.Contains(d.Alert(), "Logo must be a PNG, JPEG or WebP") {
		t.Errorf("an SVG: got %q", d.Alert())
	}
	large := web.File{Name: "logo.png", ContentType: "image/png", Data: make([]byte, account.MaxLogoFile+1)}
	if d := admin.WantRefused(admin.PostFiles(path, nil, large), http.StatusUnprocessableEntity); !strings.Contains(d.Alert(), "Logo must be at most 1 MB") {
		t.Errorf("a large file: got %q", d.Alert())
	}
	if d := admin.WantRefused(admin.Post(path, url.Values{"replyLogo": {"on"}}), http.StatusUnprocessableEntity); !strings.Contains(d.Alert(), "needs a logo") {
		t.Errorf("below replies without a logo: got %q", d.Alert())
	}
	w := admin.PostFiles(path, url.Values{"accent": {"#5b21b6"}, "do": {"preview"}}, file)
	preview := webtest.Parse(t, w.Body.String())
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `<img src="data:image/png;base64,`) || organization().Logo != "" {
		t.Fatalf("the preview: got %d, logo %q, %s", w.Code, organization().Logo, w.Body)
	}
	picture := webtest.Attr(preview.Field("picture"), "value")
	if _, notice := admin.Follow(admin.Post(path, url.Values{"accent": {"#5b21b6"}, "picture": {picture}, "replyLogo": {"on"}})); notice != "Branding saved. Undo" {
		t.Errorf("got notice %q", notice)
	}
	saved := organization()
	if saved.Logo == "" || saved.Accent != "#5b21b6" || !saved.ReplyLogo {
		t.Fatalf("saved %+v", saved)
	}

	by := account.Identity{UserID: h.Admin.ID, OrganizationID: h.Organization.ID, Role: account.Admin, User: h.Admin}
	if _, err := h.Accounts.Invite(t.Context(), by, account.NewInvitation{Email: "new@example.com", Role: account.Agent}); err != nil {
		t.Fatal(err)
	}
	letter := h.Mails[len(h.Mails)-1]
	if want := `<img src="` + webtest.BaseURL + saved.Logo.Path() + `" alt="` + template.HTMLEscapeString(mail.PlainName(h.Organization.Name, "")) + `" width="100" height="30"`; !strings.Contains(letter.HTML, want) {
		t.Errorf("the invitation lacks %s: %s", want, letter.HTML)
	}
	_, token, _ := strings.Cut(letter.Text, "/invitation?token=")
	token, _, _ = strings.Cut(token, "\n")
	if w := admin.Get("/invitation?token=" + token); !strings.Contains(w.Body.String(), `<img src="`+saved.Logo.Path()+`" alt="`+template.HTMLEscapeString(h.Organization.Name)+`" width="100" height="30">`) {
		t.Errorf("the page of the invitation lacks the logo: %s", w.Body)
	}
	w = h.SignIn(account.User{}).Get(saved.Logo.Path())
	got, err := png.Decode(w.Body)
	if err != nil || got.Bounds().Dx() != 200 || w.Header().Get("Content-Type") != "image/png" || w.Header().Get("X-Content-Type-Options") != "nosniff" ||
		w.Header().Get("Content-Security-Policy") != "default-src 'none'; sandbox" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("the logo: %v %v", err, w.Header())
	}
	if w := admin.Get("/brand/" + strings.Repeat("0", 64) + "-200x60.png"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown logo: got %d", w.Code)
	}

	// Another organization cannot use it by its name.
	other, err := h.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Accounts.SetBranding(t.Context(), other.ID, account.Branding{Logo: saved.Logo}); err == nil || !strings.Contains(err.Error(), "no longer stored") {
		t.Errorf("another organization uses the logo: %v", err)
	}

	if _, notice := admin.Follow(admin.Post(path, url.Values{"accent": {"#5b21b6"}, "present": {string(saved.Logo)}, "remove": {"on"}})); notice != "Branding saved. Undo" || organization().Logo != "" {
		t.Errorf("removed: %q, %q", notice, organization().Logo)
	}
	admin.Follow(admin.Post(path, url.Values{"accent": {"#5b21b6"}, "present": {string(saved.Logo)}, "replyLogo": {"on"}})) // Undo
	if now := organization(); now.Logo != saved.Logo || !now.ReplyLogo {
		t.Errorf("undone: %+v", now)
	}
	// Former logos remain for earlier mails, a bounded number of them.
	for shade := range uint8(12) {
		admin.Follow(admin.PostFiles(path, nil, logoFile(t, color.NRGBA{shade, 0, 0, 255})))
	}
	var stored int
	if err := h.DB.QueryRow(t.Context(), "SELECT count(*) FROM organization_logos").Scan(&stored); err != nil || stored != 10 {
		t.Errorf("%d logos are stored, %v", stored, err)
	}
	// The present one remains, also if the clock was ahead before.
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE organization_logos SET created_at = created_at + 86400000000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	admin.Follow(admin.PostFiles(path, nil, logoFile(t, color.NRGBA{99, 0, 0, 255})))
	if w := admin.Get(organization().Logo.Path()); w.Code != http.StatusOK {
		t.Errorf("the present logo: got %d", w.Code)
	}
}
