package settings

import (
	"cmp"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const brandingPath = organizationPath + "/branding"

// branding is the body of the page.
type branding struct {
	Logo    account.Logo // the present one
	Picture string       // a logo that is not saved, a PNG in base64; empty: none

	// The preview, on light and dark pages.
	Accents       [2]account.Accent
	Shown         template.URL // the logo; empty: none
	Width, Height int          // of the logo
}

// defaultAccent is Kickstand's color.
const defaultAccent account.Accent = "#4f46e5"

func brandingFields(b account.Branding) web.Fields {
	checked := ""
	if b.ReplyLogo {
		checked = "on"
	}
	return web.Fields{
		{Name: "accent", Label: "Color", Type: "text", Optional: true, Most: 7, Value: b.Accent, Placeholder: "#5b21b6", Focus: true,
			Help: "Of buttons and links. Empty: the color of Kickstand."},
		{Name: "logo", Label: "Logo", Type: "file", Optional: true,
			Help: "PNG, JPEG or WebP of at most 1 MB, shown in up to 200 × 60 pixels, and on white where pages and mails are dark. Its alternative text is the name of the organization."},
		{Name: "replyLogo", Label: "Logo below replies by e-mail", Type: "checkbox", Value: checked},
	}
}

func (p *pages) branding(w http.ResponseWriter, r *web.Request) error {
	b := account.Branding{Accent: string(r.Organization.Accent), Logo: r.Organization.Logo, ReplyLogo: r.Organization.ReplyLogo}
	return p.showBranding(w, r, b, brandingFields(b), 0)
}

// showBranding shows the form, with a preview of b.
func (p *pages) showBranding(w http.ResponseWriter, r *web.Request, b account.Branding, fs web.Fields, status int) error {
	body := branding{Logo: r.Organization.Logo}
	logo := b.Logo
	if body.Shown = template.URL(logo.Path()); b.File != nil {
		name, content, err := p.Accounts.NewLogo(b.File)
		if err != nil {
			return err
		}
		logo, body.Picture = name, base64.StdEncoding.EncodeToString(content)
		body.Shown = template.URL("data:image/png;base64," + body.Picture)
	}
	body.Width, body.Height = logo.Size()
	accent, err := account.ParseAccent(b.Accent)
	if err != nil {
		accent = r.Organization.Accent
	}
	accent = cmp.Or(accent, defaultAccent)
	body.Accents = [2]account.Accent{accent, accent.Dark()}
	pg := page(r, organizationPath, "Branding", body)
	pg.Fields, pg.Status, pg.Sheets = fs, status, []string{"branding.css"}
	return p.Render(w, r, "branding", pg)
}

// saveBranding saves or previews the branding. A previewed logo comes back with the form.
func (p *pages) saveBranding(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Upload(w, r, account.MaxLogoFile)
	if !ok {
		return nil
	}
	b := account.Branding{Accent: form.Get("accent"), Logo: account.Logo(form.Get("present")), ReplyLogo: form.Get("replyLogo") != ""}
	switch {
	case len(form.Files) > 0:
		b.File = form.Files[0].Data
	case form.Get("remove") != "":
		b.Logo = ""
	case form.Get("picture") != "":
		file, err := base64.StdEncoding.DecodeString(form.Get("picture"))
		if err != nil {
			return problem.New(problem.Invalid, "The logo of the preview is unreadable.")
		}
		b.File = file
	}
	fs := brandingFields(b)
	var o account.Organization
	var err error
	switch {
	case form.TooLarge:
		var v problem.Validation
		v.Add("logo", "must be at most %d MB", account.MaxLogoFile>>20)
		err = v.Err()
	case form.Get("do") == "preview":
		if err = p.Accounts.CheckBranding(b); err == nil {
			return p.showBranding(w, r, b, fs, 0)
		}
	default:
		o, err = p.Accounts.SetBranding(r.Context(), r.OrganizationID, b)
	}
	if status := fs.Answer(w, err); status != 0 {
		if refused, ok := errors.AsType[*problem.Error](err); ok && refused.Kind == problem.Invalid && fs.Field("logo").Error != "" {
			b.File, b.Logo = nil, r.Organization.Logo
		}
		return p.showBranding(w, r, b, fs, status)
	}
	if err != nil {
		return err
	}
	n := web.Notice{Text: "Branding saved."}
	if before := r.Organization; o.Accent != before.Accent || o.Logo != before.Logo || o.ReplyLogo != before.ReplyLogo {
		n.Undo, n.Fields = brandingPath, map[string]string{"accent": string(before.Accent), "present": string(before.Logo)}
		if before.ReplyLogo {
			n.Fields["replyLogo"] = "on"
		}
	}
	return p.Redirect(w, brandingPath, n)
}
