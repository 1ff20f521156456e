package developers

import (
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// actions lists all actions, in the grid's order.
var actions = []apikey.Action{apikey.Read, apikey.Create, apikey.Update, apikey.Delete}

// levels describes each level.
var levels = map[apikey.Level]string{
	"": "No level", apikey.ReadOnly: "Read only", apikey.ReadWrite: "Read and write", apikey.Admin: "Admin",
}

// joinAnd joins words with commas and "and".
func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// capitalize capitalizes the first letter.
func capitalize(word string) string {
	if word == "" {
		return word
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// allowed returns the actions that permissions grant on a resource.
func allowed(c apikey.Catalogue, p apikey.Permissions, resource string) []string {
	var out []string
	for _, a := range actions {
		if c.Allows(p, resource, a) {
			out = append(out, string(a))
		}
	}
	return out
}

// permissionLabels describes permissions as list items: "Read only", or the actions per
// resource.
func permissionLabels(c apikey.Catalogue, p apikey.Permissions) []string {
	if p.Resources.Named == nil {
		if p.Level == "" {
			return []string{"All resources"}
		}
		return []string{levels[p.Level]}
	}
	var out []string
	for _, r := range c.Resources {
		if can := allowed(c, p, r.Name); can != nil {
			out = append(out, capitalize(r.Name)+": "+strings.Join(can, ", "))
		}
	}
	if out == nil {
		return []string{"Nothing"}
	}
	return out
}

// permissionSentence describes permissions as part of a sentence: "read, create and
// update rides; and read vehicles and pricing". It returns "" for no permissions.
func permissionSentence(c apikey.Catalogue, p apikey.Permissions) string {
	type group struct{ does, with []string }
	var groups []group
	for _, r := range c.Resources {
		does := allowed(c, p, r.Name)
		if does == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return slices.Equal(g.does, does) })
		if i < 0 {
			groups, i = append(groups, group{does: does}), len(groups)
		}
		groups[i].with = append(groups[i].with, r.Name)
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = joinAnd(g.does) + " " + joinAnd(g.with)
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], "; ") + "; and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// keySummary describes a key in one or two sentences.
func keySummary(k *kind, p apikey.Permissions, subaccounts []string, addresses []string, limit int64, expires web.Time) string {
	does := permissionSentence(k.Catalogue, p)
	if does == "" {
		return "This key would have no permissions: none of the selected ones is allowed by its level."
	}
	text := "This key can " + does + " in " + k.where
	if k.Catalogue.Subaccounts {
		switch len(subaccounts) {
		case 0:
			text += ", in all subaccounts"
		case 1:
			text += ", in the subaccount " + subaccounts[0]
		default:
			text += ", in the subaccounts " + joinAnd(subaccounts)
		}
	}
	switch {
	case len(addresses) == 0:
		text += ", from any address"
	case len(addresses) > 5:
		text += ", from " + web.Number(int64(len(addresses))) + " addresses and blocks"
	default:
		text += ", from " + joinAnd(addresses)
	}
	text += ", up to " + web.Number(limit) + " requests per minute, "
	if expires.IsZero() {
		text += "until it is revoked."
	} else {
		text += "until " + expires.When() + "."
	}
	if k.Environment == apikey.Live {
		text += " It accesses live data."
	} else {
		text += " It accesses test data only."
	}
	return text
}

// fieldLabel returns the label of a key's field in the audit log.
func fieldLabel(name string) string {
	words := map[string]string{
		"subaccount_scope": "subaccounts", "allowed_ips": "addresses", "rate_limit_per_minute": "limit", "expires_at": "expiry",
		"rotated_from": "rotated from", "replaced_by": "replaced by",
	}
	if w, ok := words[name]; ok {
		return w
	}
	return strings.ReplaceAll(name, "_", " ")
}

// actionLabel returns the label of an audit action on a key.
func actionLabel(a audit.Action) string {
	switch a {
	case apikey.KeyCreated:
		return "created the key"
	case apikey.KeyUpdated:
		return "changed the key"
	case apikey.KeyRevoked:
		return "revoked the key"
	case apikey.KeyExpired:
		return "The key expired"
	case apikey.KeyRotated:
		return "rotated the key"
	case apikey.KeyDeleted:
		return "deleted the key"
	}
	return string(a)
}
