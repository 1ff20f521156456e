package web

import "strings"

// SettingsViews is what the rail has below Settings for who asks, with the place
// marked that path is, or is below. What only admins may look at is there for
// admins only, by the rules of package rpc.
func SettingsViews(r *Request, path string) []NavItem {
	views := []NavItem{
		{Path: "/settings/profile", Label: "Profile"},
		{Path: SecurityPath, Label: "Security"},
		{Path: "/settings/sessions", Label: "Sessions"},
	}
	if r.OrganizationID != "" {
		views = append(views,
			NavItem{Path: "/settings/members", Label: "Members"},
			NavItem{Path: "/settings/organization", Label: "Organization"},
			NavItem{Path: "/settings/sla", Label: "Service levels"},
		)
	}
	if r.Admin() {
		views = append(views,
			NavItem{Path: "/settings/plan", Label: "Plan"},
			NavItem{Path: "/settings/channels", Label: "Channels"},
			NavItem{Path: "/settings/inbound", Label: "Inbound events"},
			NavItem{Path: "/settings/webhooks", Label: "Webhooks"},
			NavItem{Path: "/settings/keys", Label: "API keys"},
			NavItem{Path: "/settings/audit", Label: "Audit log"},
		)
	}
	for i := range views {
		e := &views[i]
		e.Present = path == e.Path || strings.HasPrefix(path, e.Path+"/")
	}
	return views
}
