package developers

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

const keysPath = "/settings/keys"

// kind is a service in one of its environments. Each key belongs to one.
type kind struct {
	Name        string // in addresses
	Label       string
	Service     apikey.ServiceName
	Environment apikey.Environment
	Catalogue   apikey.Catalogue
	API         string
	where       string // its records
	fleet       *Fleet // nil: the helpdesk
}

// kinds returns all kinds.
func (p *pages) kinds() []kind {
	desk, _ := p.Keys.Catalogue(apikey.Helpdesk)
	rides, _ := p.Keys.Catalogue(apikey.Fleet)
	return []kind{
		{"helpdesk", "Helpdesk", apikey.Helpdesk, apikey.Live, desk, p.DeskAPI, "the helpdesk", nil},
		{"fleet", "Fleet", apikey.Fleet, apikey.Live, rides, p.Fleet.API, "the fleet", &p.Fleet},
		{"sandbox", "Fleet sandbox", apikey.Fleet, apikey.Test, rides, p.Sandbox.API, "the fleet's sandbox", &p.Sandbox},
	}
}

// kindNamed returns the kind name, or the first if there is none.
func (p *pages) kindNamed(name string) *kind {
	all := p.kinds()
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return &all[0]
}

func (p *pages) keyKind(k *apikey.Key) *kind {
	all := p.kinds()
	for i := range all {
		if all[i].Service == k.Service && all[i].Environment == k.Environment {
			return &all[i]
		}
	}
	return &all[0]
}

// Badge distinguishes live keys from test keys.
func (k *kind) Badge() web.Badge {
	if k.Environment == apikey.Test {
		return web.Badge{Text: "Test", Tone: web.Warning}
	}
	return web.Badge{Text: "Live", Tone: web.Accent}
}

// Prefix returns the prefix of its keys.
func (k *kind) Prefix() string { return "sk_" + string(k.Environment) + "_…" }

// subaccounts returns the subaccounts that its keys can be bound to.
func (p *pages) subaccounts(r *web.Request, k *kind) ([]fleet.Subaccount, error) {
	if k.fleet == nil {
		return nil, nil
	}
	o := fleet.Organization{ID: r.OrganizationID, Name: r.Organization.Name}
	if err := k.fleet.Provision(r.Context(), o); err != nil {
		return nil, fmt.Errorf("open the fleet: %w", err)
	}
	return k.fleet.Subaccounts(r.Context(), k.fleet.DB, r.OrganizationID)
}

// keyRow is a key in the list.
type keyRow struct {
	apikey.Key
	Kind                          *kind
	State                         web.Badge
	Permissions                   []string
	Used, Expires, Created, Ended web.Time
	Active                        bool
	By, EndedBy, Addresses, Cap   string
}

// expiryWarning is the time before a key's expiry at which its badge warns.
const expiryWarning = 14 * 24 * time.Hour

func (p *pages) row(r *web.Request, k apikey.Key) keyRow {
	kd := p.keyKind(&k)
	row := keyRow{
		Key: k, Kind: kd, Permissions: permissionLabels(kd.Catalogue, k.Permissions),
		Used: r.Time(k.LastUsedAt), Expires: r.Time(k.ExpiresAt), Created: r.Time(k.CreatedAt), Ended: r.Time(k.RevokedAt),
		By: actor(k.CreatedBy), EndedBy: actor(k.RevokedBy), Addresses: joinAnd(k.AllowedIPs.Strings()),
	}
	if k.RateLimit != 0 {
		row.Cap = web.Number(k.RateLimit)
	}
	switch k.Status(r.Now) {
	case apikey.Revoked:
		row.State = web.Badge{Text: "Revoked", Tone: web.Bad}
	case apikey.Expired:
		row.State = web.Badge{Text: "Expired", Tone: web.Bad}
	default:
		row.Active = true
		row.State = web.Badge{Text: "Active", Tone: web.Good}
		if !k.ExpiresAt.IsZero() && k.ExpiresAt.Sub(r.Now) < expiryWarning {
			row.State = web.Badge{Text: "Expires soon", Tone: web.Warning}
		}
	}
	return row
}

// actor returns the name of an actor.
func actor(a audit.Actor) string {
	switch {
	case a.Email != "":
		return a.Email
	case a.Type == audit.Key:
		return "an API key"
	case a.Type == audit.System || a.Type == audit.Operator:
		return "the operator"
	}
	return "somebody"
}

// keyList is the body of the list of keys.
type keyList struct {
	Kinds []kind
	Kind  *kind
	Rows  []keyRow
	Empty web.Empty
}

// keys lists the keys of one kind.
func (p *pages) keys(w http.ResponseWriter, r *web.Request) error {
	k := p.kindNamed(r.URL.Query().Get("of"))
	list, err := p.Keys.List(r.Context(), r.OrganizationID, k.Service, k.Environment)
	if err != nil {
		return err
	}
	slices.Reverse(list)
	// Active keys first.
	slices.SortStableFunc(list, func(a, b apikey.Key) int {
		works := func(k apikey.Key) int { return map[bool]int{true: 0, false: 1}[k.Status(r.Now) == apikey.Active] }
		return works(a) - works(b)
	})
	body := keyList{Kinds: p.kinds(), Kind: k, Empty: web.Empty{
		Text: "No API keys for " + k.where + " yet. A key lets your systems use the API with the permissions you choose.",
		Path: keysPath + "/new?of=" + k.Name, Label: "Create key",
	}}
	for _, key := range list {
		body.Rows = append(body.Rows, p.row(r, key))
	}
	return p.Render(w, r, "keys", page(r, keysPath, "API keys", body))
}

// find returns the key in the request's path.
func (p *pages) find(r *web.Request) (apikey.Key, error) {
	return p.Keys.Find(r.Context(), r.OrganizationID, r.PathValue("id"))
}

// keyPage is the body of a key's page.
type keyPage struct {
	keyRow
	Summary     string
	Subaccounts []string
	Limit       string
	From, To    *apikey.Key // its predecessor and successor by rotation
	History     []keyEvent
	More        bool        // the audit log has more
	Clients     []keyClient // of a rotated key, after the rotation
	Requests    keyRequests
}

// keyEvent is an audit entry of a key.
type keyEvent struct {
	At      web.Time
	Actor   string // empty: the system
	Action  string
	IP      string
	Changes []keyChange
}

type keyChange struct{ Field, From, To string }

// key shows a key, its permissions and its history.
func (p *pages) key(w http.ResponseWriter, r *web.Request) error {
	k, err := p.find(r)
	if err != nil {
		return err
	}
	body := keyPage{keyRow: p.row(r, k)}
	limit, err := p.Keys.Limit(r.Context(), &k)
	if err != nil {
		return err
	}
	body.Limit = web.Number(limit)
	if body.Subaccounts, err = p.names(r, body.Kind, k.Scope); err != nil {
		return err
	}
	body.Summary = keySummary(body.Kind, k.Permissions, body.Subaccounts, k.AllowedIPs.Strings(), limit, r.Time(k.ExpiresAt))
	if !body.Active {
		body.Summary = "It is no longer valid. " + strings.Replace(body.Summary, "This key can", "While it did, it could", 1)
		body.Summary, _, _ = strings.Cut(body.Summary, ", until ")
		body.Summary += "."
	}
	for id, other := range map[string]**apikey.Key{k.RotatedFrom: &body.From, k.ReplacedBy: &body.To} {
		if id == "" {
			continue
		}
		found, err := p.Keys.Find(r.Context(), r.OrganizationID, id)
		if problem.Of(err) == problem.NotFound {
			continue // deleted
		}
		if err != nil {
			return err
		}
		*other = &found
	}
	if body.To != nil {
		if body.Clients, err = p.remainingClients(r, &k, body.To); err != nil {
			return err
		}
	}
	if body.Requests, err = p.keyRequests(r, &k, body.Kind); err != nil {
		return err
	}
	const most = 30
	log, err := audit.List(r.Context(), []*audit.Log{p.Audit}, r.OrganizationID, audit.Query{TargetID: k.ID, Limit: most})
	if err != nil {
		return err
	}
	for _, e := range log.Entries {
		body.History = append(body.History, newKeyEvent(r, e))
	}
	body.More = log.Next != ""
	return p.Render(w, r, "key", page(r, keysPath, k.Name, body))
}

func newKeyEvent(r *web.Request, e audit.Entry) keyEvent {
	out := keyEvent{At: r.Time(e.At), Action: actionLabel(e.Action), IP: e.Source.IP()}
	if e.Action != apikey.KeyExpired {
		out.Actor = actor(e.Source.Actor)
	}
	if e.Action == apikey.KeyUpdated || e.Action == apikey.KeyRotated {
		for _, name := range slices.Sorted(maps.Keys(e.Changes)) {
			c := e.Changes[name]
			out.Changes = append(out.Changes, keyChange{fieldLabel(name), value(c.From), value(c.To)})
		}
	}
	return out
}

// value formats a setting of an audit entry.
func value(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return v
	case []any:
		if len(v) == 0 {
			return "any"
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// names returns the names of a scope's subaccounts; nil for all.
func (p *pages) names(r *web.Request, k *kind, s apikey.Scope) ([]string, error) {
	if s.Mode == apikey.AllSubaccounts {
		return nil, nil
	}
	list, err := p.subaccounts(r, k)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, id := range s.SubaccountIDs {
		name := id
		for _, sub := range list {
			if sub.ID == id && sub.Name != "" {
				name = sub.Name
			}
		}
		out = append(out, name)
	}
	return out, nil
}

// renderSecret renders the page that shows a new key once.
func (p *pages) renderSecret(w http.ResponseWriter, r *web.Request, title string, k apikey.Key, t apikey.Token, lines ...string) error {
	kd := p.keyKind(&k)
	limit, err := p.Keys.Limit(r.Context(), &k)
	if err != nil {
		return err
	}
	names, err := p.names(r, kd, k.Scope)
	if err != nil {
		return err
	}
	var reference string
	if k.Environment == apikey.Test {
		reference = p.SandboxReference
	}
	pg := page(r, keysPath, title, createdPage{
		Reference: reference, Name: k.Name,
		Secret:  web.Secret{Label: "API key", Value: t.Reveal(), Note: "Anyone with the key has its permissions. Store it securely; later only its last 8 characters are shown."},
		Code:    web.Code{Label: "Try it", Text: fmt.Sprintf("KEY='%s'\ncurl -sS %s/key -H \"Authorization: Bearer $KEY\"", t.Reveal(), kd.API)},
		Summary: keySummary(kd, k.Permissions, names, k.AllowedIPs.Strings(), limit, r.Time(k.ExpiresAt)),
		Path:    keysPath + "/" + k.ID, Label: "Open key " + k.Name, Lines: lines,
	})
	pg.Status, pg.Scripts = http.StatusCreated, []string{"developers.js"}
	pg.Secret = true
	return p.Render(w, r, "created", pg)
}

// confirmKey renders the confirmation c of an action on a key and, for a POST, runs do.
// do is nil for a GET.
func (p *pages) confirmKey(w http.ResponseWriter, r *web.Request, title string, c func(k *apikey.Key) web.Confirm, do func(k *apikey.Key) error) error {
	k, err := p.find(r)
	if err != nil {
		return err
	}
	ask := c(&k)
	ask.Cancel = keysPath + "/" + k.ID
	if do == nil {
		return p.Confirm(w, r, title, page(r, keysPath, title, nil), ask)
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	if !p.Confirmed(form, ask) {
		return p.Confirm(w, r, title, page(r, keysPath, title, nil), ask)
	}
	return do(&k)
}

func rotation(k *apikey.Key) web.Confirm {
	return web.Confirm{
		Text:  fmt.Sprintf("This creates a second key with the settings of “%s”, shown once. The old key stays valid until you revoke it: deploy the new key, check that the old one is no longer used, and revoke it.", k.Name),
		Label: "Create second key",
		Safe:  true,
	}
}

func revocation(k *apikey.Key) web.Confirm {
	return web.Confirm{
		Text:  fmt.Sprintf("The key “%s” (…%s) stops working immediately and permanently. It stays in the list.", k.Name, k.PartialKey),
		Label: "Revoke key",
	}
}

func deletion(k *apikey.Key) web.Confirm {
	return web.Confirm{
		Text:  fmt.Sprintf("The key “%s” (…%s) is removed from the list and, if active, stops working immediately. Its audit entries remain.", k.Name, k.PartialKey),
		Type:  k.Name,
		Label: "Delete key",
	}
}

func (p *pages) confirmRotateKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Rotate key", rotation, nil)
}

// rotateKey creates the successor of a key. A repeated form creates none: the service
// refuses to rotate a key with an active successor.
func (p *pages) rotateKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Rotate key", rotation, func(old *apikey.Key) error {
		k, t, err := p.Keys.Rotate(r.Context(), r.OrganizationID, old.ID)
		if problem.Of(err) == problem.Conflict && old.ReplacedBy != "" {
			return p.Redirect(w, keysPath+"/"+old.ReplacedBy, web.Notice{Text: "The key was already rotated. This is its replacement, which was shown then.", Bad: true})
		}
		if err != nil {
			return err
		}
		return p.renderSecret(w, r, "Second key", k, t, fmt.Sprintf("The key “%s” (…%s) is still valid. Revoke it once it is no longer used.", old.Name, old.PartialKey))
	})
}

func (p *pages) confirmRevokeKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Revoke key", revocation, nil)
}

func (p *pages) revokeKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Revoke key", revocation, func(k *apikey.Key) error {
		if _, err := p.Keys.Revoke(r.Context(), r.OrganizationID, k.ID); err != nil {
			return err
		}
		return p.Redirect(w, keysPath+"/"+k.ID, web.Notice{Text: "Key revoked."})
	})
}

func (p *pages) confirmDeleteKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Delete key", deletion, nil)
}

func (p *pages) deleteKey(w http.ResponseWriter, r *web.Request) error {
	return p.confirmKey(w, r, "Delete key", deletion, func(k *apikey.Key) error {
		if err := p.Keys.Delete(r.Context(), r.OrganizationID, k.ID); err != nil {
			return err
		}
		return p.Redirect(w, keysPath+"?of="+url.QueryEscape(p.keyKind(k).Name), web.Notice{Text: "Key deleted."})
	})
}
