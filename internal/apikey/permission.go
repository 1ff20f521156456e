package apikey

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Action is an operation on a resource. None implies another.
type Action string

// The actions.
const (
	Read   Action = "read"
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// Resource is a kind of record that keys may reach, with its actions.
type Resource struct {
	Name    string
	Actions []Action
	// Unnamed resources cannot be named in a map: a level or "all" grants them.
	Unnamed bool
	// Settings are granted by [Admin] only, never by a map.
	Settings bool
}

// named reports whether a map may name the resource.
func (r Resource) named() bool { return !r.Unnamed && !r.Settings }

// Catalogue declares the resources and environments of a service.
type Catalogue struct {
	Resources   []Resource
	Test        bool // has a sandbox and test keys
	Subaccounts bool // keys can be limited to subaccounts
}

func (c Catalogue) find(resource string) (Resource, bool) {
	for _, r := range c.Resources {
		if r.Name == resource {
			return r, true
		}
	}
	return Resource{}, false
}

// Grantable reports whether permissions by resource can include a resource.
func (c Catalogue) Grantable(resource string) bool {
	r, ok := c.find(resource)
	return ok && r.named()
}

// Level is a permission level; empty when none is set.
type Level string

// The levels.
const (
	ReadOnly  Level = "read_only"
	ReadWrite Level = "read_write"
	Admin     Level = "admin"
)

// Grants are the resources that a key may reach: all, or the named ones with the actions
// on each. If Named is nil and All is not set, nothing is specified, which is null in
// JSON. An empty map grants nothing.
type Grants struct {
	All   bool
	Named map[string][]Action
}

// Set reports whether grants are specified.
func (g Grants) Set() bool { return g.All || g.Named != nil }

// MarshalJSON implements [json.Marshaler]: "all", an object or null.
func (g Grants) MarshalJSON() ([]byte, error) {
	if g.All {
		return []byte(`"all"`), nil
	}
	return json.Marshal(g.Named)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (g *Grants) UnmarshalJSON(text []byte) error {
	*g = Grants{}
	var word string
	if json.Unmarshal(text, &word) == nil && word != "" {
		if word != "all" {
			return errGrants
		}
		g.All = true
		return nil
	}
	if json.Unmarshal(text, &g.Named) != nil || word != "" || string(text) == `""` {
		return errGrants
	}
	return nil
}

var errGrants = errors.New(`must be "all" or an object of actions by resource, such as {"tickets":["read","create"]}`)

// Permissions are a key's level and grants.
type Permissions struct {
	Level     Level
	Resources Grants
}

// Allows reports whether permissions allow an action (fleet-api.md 3.2): every part that
// is set must allow it, and at least one must be set. Unknown resources and actions are
// denied.
func (c Catalogue) Allows(p Permissions, resource string, action Action) bool {
	r, ok := c.find(resource)
	switch {
	case !ok || !slices.Contains(r.Actions, action):
		return false
	case p.Level == "" && !p.Resources.Set():
		return false
	case r.Settings:
		return p.Level == Admin && p.Resources.Named == nil
	case p.Level == ReadOnly && action != Read:
		return false
	case p.Resources.Named != nil && !(r.named() && slices.Contains(p.Resources.Named[resource], action)):
		return false
	}
	return true
}

// check records issues of permissions, and sorts the actions of each resource in the
// catalogue's order.
func (c Catalogue) check(v *problem.Validation, p *Permissions) {
	if p.Level != "" && p.Level != ReadOnly && p.Level != ReadWrite && p.Level != Admin {
		v.Add("level", "must be read_only, read_write or admin")
	}
	if p.Level == "" && !p.Resources.Set() {
		v.Add("level", "or resources is required: the key has no permissions")
	}
	if p.Resources.All {
		p.Resources.Named = nil
		return
	}
	if p.Resources.Named == nil {
		return
	}
	ordered := make(map[string][]Action, len(p.Resources.Named))
	var names []string
	for _, r := range c.Resources {
		if r.named() {
			names = append(names, r.Name)
		}
		if actions, given := p.Resources.Named[r.Name]; given && r.named() {
			ordered[r.Name] = []Action{}
			for _, a := range r.Actions {
				if slices.Contains(actions, a) {
					ordered[r.Name] = append(ordered[r.Name], a)
				}
			}
			for _, a := range actions {
				if !slices.Contains(r.Actions, a) {
					v.Add("resources."+r.Name, "has no action %.40q; it has %s", a, joined(r.Actions))
				}
			}
		}
	}
	var unknown []string
	for name := range p.Resources.Named {
		if _, ok := ordered[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown[:min(len(unknown), 20)] {
		v.Add("resources", "cannot name %.40q; it may name %s", name, strings.Join(names, ", "))
	}
	p.Resources.Named = ordered
}

func joined(actions []Action) string {
	words := make([]string, len(actions))
	for i, a := range actions {
		words[i] = string(a)
	}
	return strings.Join(words, ", ")
}
