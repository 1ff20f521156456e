package settings

import (
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const signInPath = organizationPath + "/sign-in"

// Values of the field "provider" beside the policies of package account.
const (
	providerOff     = "off"
	providerAll     = "all"
	providerDomains = "domains"
)

func signInFields(p account.ProviderPolicy) web.Fields {
	choice, domains := providerDomains, strings.Join(p.Domains(), ", ")
	switch p {
	case account.ProviderOptional:
		choice = providerOff
	case account.ProviderForEveryone:
		choice = providerAll
	}
	return web.Fields{
		{Name: "provider", Label: "Required for", Type: "select", Value: choice, Focus: true, Options: []web.Option{
			{Value: providerOff, Label: "Nobody: all methods are allowed"},
			{Value: providerAll, Label: "All members"},
			{Value: providerDomains, Label: "Members with addresses in these domains"},
		}},
		{Name: "domains", Label: "Domains", Type: "text", Optional: true, Most: 1000, Value: domains, Placeholder: "example.com, example.org",
			Help: "Separated by commas. A subdomain is a domain of its own."},
	}
}

// signInPolicy parses the form.
func signInPolicy(choice, domains string) (account.ProviderPolicy, error) {
	if choice == providerDomains {
		choice = "domain:" + domains
	}
	return account.ParseProviderPolicy(choice)
}

func (p *pages) showSignInForm(w http.ResponseWriter, r *web.Request) error {
	if !p.Accounts.HasProvider() {
		return problem.New(problem.NotFound, "there is no identity provider")
	}
	return p.renderSignIn(w, r, signInFields(r.Organization.ProviderOnly), 0)
}

func (p *pages) renderSignIn(w http.ResponseWriter, r *web.Request, fs web.Fields, status int) error {
	pg := page(r, organizationPath, "Sign-in policy", nil)
	pg.Fields, pg.Status = fs, status
	return p.Render(w, r, "signin", pg)
}

func (p *pages) saveSignIn(w http.ResponseWriter, r *web.Request) error {
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	fs := signInFields(account.ProviderOptional)
	fs.Fill(form)
	policy, err := signInPolicy(form.Get("provider"), form.Get("domains"))
	if err != nil {
		fs.Field("domains").Error = "Domains must be mail domains such as example.com, separated by commas."
		return p.renderSignIn(w, r, fs, http.StatusUnprocessableEntity)
	}
	if _, err := p.Accounts.RequireProvider(r.Context(), r.Identity, policy); err != nil {
		if status := fs.Answer(w, err); status != 0 {
			return p.renderSignIn(w, r, fs, status)
		}
		return err
	}
	return p.Redirect(w, organizationPath, web.Notice{Text: "Sign-in policy saved."})
}
