package settings

import (
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const brandingPath = organizationPath + "/branding"

// branding is the body of the page: the color on light and dark pages; empty for Kickstand's.
type branding struct{ Light, Dark account.Accent }

func brandingFields(value string) web.Fields {
	return web.Fields{{Name: "accent", Label: "Color", Type: "text", Optional: true, Most: 7, Value: value, Placeholder: "#5b21b6", Focus: true,
		Help: "Buttons and links of invitations have it, in the mail and on its page. Empty: the color of Kickstand."}}
}

func (p *pages) branding(w http.ResponseWriter, r *web.Request) error {
	return p.showBranding(w, r, brandingFields(string(r.Organization.Accent)), 0)
}

func (p *pages) showBranding(w http.ResponseWriter, r *web.Request, fs web.Fields, status int) error {
	pg := page(r, organizationPath, "Branding", branding{r.Organization.Accent, r.Organization.Accent.Dark()})
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "branding", pg)
}

func (p *pages) saveBranding(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	fs := brandingFields(form.Get("accent"))
	o, err := p.Accounts.SetAccent(r.Context(), r.OrganizationID, form.Get("accent"))
	if status := fs.Answer(w, err); status != 0 {
		return p.showBranding(w, r, fs, status)
	}
	if err != nil {
		return err
	}
	n := web.Notice{Text: "Color saved."}
	if o.Accent != r.Organization.Accent {
		n.Undo, n.Fields = brandingPath, map[string]string{"accent": string(r.Organization.Accent)}
	}
	return p.Redirect(w, brandingPath, n)
}
