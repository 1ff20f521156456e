// Package settings serves the dashboard's pages for the user's own account and, for
// admins, the organization.
//
// Access follows package rpc.
package settings

import (
	"embed"
	"net/http"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/importer"
	"github.com/kickstand-dev/kickstand/internal/push"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
)

//go:embed all:templates
var templates embed.FS

// Config configures [Register].
type Config struct {
	Accounts *account.Service
	Factors  *factor.Service
	Billing  *billing.Service
	Desk     *desk.Service
	Imports  *importer.Service
	DB       *db.DB
	Keys     *apikey.Service
	Webhooks *webhook.Service
	Quotas   *quota.Service
	Push     *push.Service // nil: no Web Push
	Logs     []*audit.Log  // all logs
	// Exports are the URLs from which keys can export the audit log.
	Exports []string
	Server  Server
}

type pages struct {
	*web.Section
	Config
}

// Register adds the pages below /settings to a site.
func Register(s *web.Site, c Config) {
	p := &pages{s.Section(templates), c}
	p.Handle("/settings", web.Route{Get: p.index, WithoutOrganization: true})
	p.Handle("/settings/profile", web.Route{Get: p.profile, Post: p.saveProfile, WithoutOrganization: true, Routine: true})
	p.Handle(preferencesPath, web.Route{Get: p.preferences, Post: p.savePreferences, WithoutOrganization: true, Routine: true})
	p.Handle(browsersPath, web.Route{Post: p.addBrowser, Routine: true})
	p.Handle(browsersPath+"/{id}/remove", web.Route{Post: p.removeBrowser, Routine: true})
	p.Handle("/settings/profile/password", web.Route{Get: p.profile, Post: p.savePassword, WithoutOrganization: true})
	p.Handle(deleteAccountPath, web.Route{Get: p.confirmDeleteAccount, Post: p.deleteAccount, WithoutOrganization: true})
	p.Handle("/settings/sessions", web.Route{Get: p.sessions, Post: p.endSession, WithoutOrganization: true, Routine: true})

	p.Handle(securityPath, web.Route{Get: p.security, WithoutOrganization: true, Enrol: true})
	p.Handle(passkeysPath, web.Route{Post: p.addPasskey, WithoutOrganization: true, Enrol: true})
	p.Handle(passkeysPath+"/{id}", web.Route{Get: p.showPasskeyForm, Post: p.renamePasskey, WithoutOrganization: true, Routine: true})
	p.Handle(passkeysPath+"/{id}/remove", web.Route{Get: p.confirmRemovePasskey, Post: p.removePasskey, WithoutOrganization: true})
	p.Handle(totpPath, web.Route{Get: p.showTOTPForm, Post: p.enableTOTP, WithoutOrganization: true, Enrol: true})
	p.Handle(totpPath+"/remove", web.Route{Get: p.confirmRemoveTOTP, Post: p.removeTOTP, WithoutOrganization: true})
	p.Handle(recoveryPath, web.Route{Get: p.confirmCreateCodes, Post: p.createCodes, WithoutOrganization: true})

	p.Handle("/settings/members", web.Route{Get: p.members})
	p.Handle("/settings/members/{id}", web.Route{Get: p.showRoleForm, Post: p.changeRole, Admin: true})
	p.Handle("/settings/members/{id}/remove", web.Route{Get: p.confirmRemoveMember, Post: p.removeMember, Admin: true})
	p.Handle("/settings/members/{id}/reset-factors", web.Route{Get: p.confirmResetFactors, Post: p.resetFactors, Admin: true})
	p.Handle("/settings/invitations", web.Route{Get: p.showInviteForm, Post: p.invite, Admin: true})
	p.Handle("/settings/invitations/{id}", web.Route{Post: p.changeInvitation, Admin: true})

	p.Handle("/settings/organization", web.Route{Get: p.organization, Post: p.rename, Routine: true})
	p.Handle(brandingPath, web.Route{Get: p.branding, Post: p.saveBranding, Admin: true, Routine: true})
	p.Handle(timeZonePath, web.Route{Post: p.setTimeZone, Admin: true, Routine: true})
	p.Handle("/settings/organization/second-factor", web.Route{Post: p.requireSecondFactor, Admin: true})
	p.Handle(signInPath, web.Route{Get: p.showSignInForm, Post: p.saveSignIn, Admin: true})
	p.Handle("/settings/plan", web.Route{Get: p.plan, Post: p.changePlan, Admin: true, Routine: true})

	p.Handle("/settings/sla", web.Route{Get: p.sla})
	p.Handle("/settings/sla/{priority}", web.Route{Get: p.editPolicy, Post: p.savePolicy, Admin: true, Routine: true})
	p.Handle("/settings/sla/{priority}/delete", web.Route{Get: p.confirmDeleteLevel, Post: p.deletePolicy, Admin: true, Routine: true})

	p.Handle(macrosPath, web.Route{Get: p.macros})
	p.Handle(macrosPath+"/new", web.Route{Get: p.editMacro, Post: p.saveMacro, Routine: true})
	p.Handle(macrosPath+"/{id}", web.Route{Get: p.editMacro, Post: p.saveMacro, Routine: true})
	p.Handle(macrosPath+"/{id}/files/{file}", web.Route{Get: p.macroFile})
	p.Handle(macrosPath+"/{id}/delete", web.Route{Get: p.confirmDeleteMacro, Post: p.deleteMacro, Routine: true})

	p.Handle(importPath, web.Route{Get: p.imports, Post: p.uploadImport, Admin: true, Routine: true})
	p.Handle(importPath+"/{id}", web.Route{Get: p.showImport, Post: p.startImport, Admin: true, Routine: true})
	p.Handle(importPath+"/{id}/undo", web.Route{Get: p.confirmUndoImport, Post: p.undoImport, Admin: true})

	p.registerServer()

	p.Handle(auditPath, web.Route{Get: p.audit, Admin: true})
	p.Handle(verifyPath, web.Route{Post: p.verify, Admin: true, Routine: true})
	p.Handle(exportPath, web.Route{Post: p.export, Admin: true})
}

// page returns a page of the settings; path is its item in the navigation.
func page(r *web.Request, path, title string, body any) web.Page {
	return web.Page{Title: title, At: "/settings", Views: web.SettingsViews(r, path), Body: body}
}

// index shows the profile and, on narrow screens, the list of all pages.
func (p *pages) index(w http.ResponseWriter, r *web.Request) error {
	body, err := p.newProfile(r)
	if err != nil {
		return err
	}
	body.Places = web.SettingsViews(r, "")
	pg := page(r, "/settings/profile", "Settings", body)
	return p.Render(w, r, "profile", pg)
}
