package web

import "strings"

// SettingsViews is what the rail has below Settings for who asks, with the place
// marked that path is, or is below. What only admins may look at is there for
// admins only, by the rules of package rpc.
func SettingsViews(r *Request, path string) []Entry {
	views := []Entry{
		{Path: "/settings/profile", Label: "Profile"},
		{Path: SecurityPath, Label: "Security"},
		{Path: "/settings/sessions", Label: "Sessions"},
	}
	if r.OrganizationID != "" {
		views = append(views,
			Entry{Path: "/settings/members", Label: "Members"},
			Entry{Path: "/settings/organization", Label: "Organization"},
			Entry{Path: "/settings/sla", Label: "Service levels"},
		)
	}
	if r.Admin() {
		views = append(views,
			Entry{Path: "/settings/plan", Label: "Plan"},
			Entry{Path: "/settings/channels", Label: "Channels"},
			Entry{Path: "/settings/inbound", Label: "Inbound events"},
			Entry{Path: "/settings/webhooks", Label: "Webhooks"},
			Entry{Path: "/settings/keys", Label: "API keys"},
			Entry{Path: "/settings/audit", Label: "Audit log"},
		)
	}
	for i := range views {
		e := &views[i]
		e.Present = path == e.Path || strings.HasPrefix(path, e.Path+"/")
	}
	return views
}
