package web

import "strings"

// ServerPath is the page of the deployment's settings, for operators.
const ServerPath = "/settings/server"

// SettingsViews returns the settings pages for the sidebar, with the one at or above path
// marked. Pages for admins follow the rules of package rpc.
func SettingsViews(r *Request, path string) []NavItem {
	views := []NavItem{
		{Path: "/settings/profile", Label: "Profile"},
		{Path: "/settings/preferences", Label: "Preferences"},
		{Path: SecurityPath, Label: "Security"},
		{Path: "/settings/sessions", Label: "Sessions"},
	}
	if r.OrganizationID != "" {
		views = append(views,
			NavItem{Path: "/settings/members", Label: "Members"},
			NavItem{Path: "/settings/organization", Label: "Organization"},
			NavItem{Path: "/settings/sla", Label: "Service levels"},
			NavItem{Path: "/settings/macros", Label: "Macros"},
		)
	}
	if r.Admin() {
		views = append(views,
			NavItem{Path: "/settings/plan", Label: "Plan"},
			NavItem{Path: "/settings/channels", Label: "Channels"},
			NavItem{Path: "/settings/inbound", Label: "Inbound events"},
			NavItem{Path: "/settings/webhooks", Label: "Webhooks"},
			NavItem{Path: "/settings/keys", Label: "API keys"},
			NavItem{Path: "/settings/import", Label: "Import"},
			NavItem{Path: "/settings/audit", Label: "Audit log"},
		)
	}
	if r.Operator() {
		views = append(views, NavItem{Path: ServerPath, Label: "Server"})
	}
	for i := range views {
		e := &views[i]
		e.Present = path == e.Path || strings.HasPrefix(path, e.Path+"/")
	}
	return views
}
