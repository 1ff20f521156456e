package developers_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

const keysPath = "/settings/keys"

var tokens = regexp.MustCompile(`sk_(live|test)_[0-9A-Za-z]{38}`)

// form returns the initial values of a page's form.
func form(d webtest.Document) url.Values {
	out := url.Values{}
	for _, in := range d.All("input") {
		checked := webtest.Attr(in, "type") != "checkbox" || webtest.Has(in, "checked")
		if name := webtest.Attr(in, "name"); name != "" && checked {
			value := webtest.Attr(in, "value")
			if value == "" && webtest.Attr(in, "type") == "checkbox" {
				value = "on"
			}
			out.Add(name, value)
		}
	}
	for _, in := range d.All("textarea") {
		out.Add(webtest.Attr(in, "name"), strings.TrimPrefix(webtest.Text(in), "\n"))
	}
	for _, s := range d.All("select") {
		value := ""
		for i, o := range slices.Collect(s.ChildNodes()) {
			if o.Data == "option" && (i <= 1 || webtest.Has(o, "selected")) {
				value = webtest.Attr(o, "value")
			}
		}
		out.Add(webtest.Attr(s, "name"), value)
	}
	return out
}

// set returns f with some fields set.
func set(f url.Values, typed ...string) url.Values {
	for i := 0; i < len(typed); i += 2 {
		f.Del(typed[i])
	}
	for i := 0; i < len(typed); i += 2 {
		f.Add(typed[i], typed[i+1])
	}
	return f
}

// keysOf returns the keys of a service.
func (h *harness) keysOf(s apikey.ServiceName) []apikey.Key {
	h.t.Helper()
	list, err := h.keys.List(h.t.Context(), h.Organization.ID, s, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// opens reports whether a token authenticates.
func (h *harness) opens(token string, s apikey.ServiceName, e apikey.Environment) bool {
	_, err := h.keys.Authenticate(h.t.Context(), apikey.Request{Token: token, Service: s, Environment: e, IP: netip.MustParseAddr("192.0.2.1")})
	return err == nil
}

func TestKeyLife(t *testing.T) {
	h := newHarness(t)
	b := h.admin
	b.Page(keysPath+"?of=fleet").Want("No API keys for the fleet yet.", "Create key", "Fleet sandbox")
	d := b.Page(keysPath + "/new?of=fleet")
	d.Want("This key can read rides, vehicles, pricing and zones in the fleet, in all subaccounts, from any address, up to 300 requests per minute, until it is revoked. It accesses live data.")
	if got := webtest.Attr(d.Field("rate_limit_per_minute"), "placeholder"); got != "300" {
		t.Errorf("got placeholder %q", got)
	}
	var boxes []string
	for _, in := range d.WithAttr("name", "may") {
		boxes = append(boxes, webtest.Attr(in, "value"))
	}
	if got, want := strings.Join(boxes, " "), "rides:read rides:create rides:update vehicles:read vehicles:create vehicles:update vehicles:delete pricing:read pricing:update"; got != want {
		t.Errorf("got boxes %s, want %s", got, want)
	}
	typed := set(form(d), "name", strings.TrimSuffix(hostile, "\u202eRTL "), "level", "", "resources", "some", "may", "rides:read", "may", "rides:create", "may", "vehicles:read",
		"subaccount_scope", "some", "subaccount", h.sub, "allowed_ips", "192.0.2.1\n198.51.100.0/24", "rate_limit_per_minute", "20", "expires_at", "30")
	w := b.Post(keysPath+"/new?of=fleet", typed)
	d = b.WantRefused(w, http.StatusCreated)
	d.Want("It is shown only once.", `read and create rides; and read vehicles in the fleet, in the subaccount Lisboa <b>"&"</b>, from 192.0.2.1 and 198.51.100.0/24, up to 20 requests per minute`, "curl -sS https://api.example.com/v1/key")
	found := tokens.FindAllString(w.Body.String(), -1)
	if len(found) != 2 || found[0] != found[1] || !h.opens(found[0], apikey.Fleet, apikey.Live) {
		t.Fatalf("got tokens %q", found)
	}
	token := found[0]
	for name, values := range w.Header() {
		if strings.Contains(strings.Join(values, " "), token) {
			t.Errorf("the key is in the header %s", name)
		}
	}
	list := h.keysOf(apikey.Fleet)
	if len(list) != 1 || list[0].Scope.Mode != apikey.SingleSubaccount || list[0].CreatedBy.Email != h.Admin.Email {
		t.Fatalf("made %+v", list)
	}
	path := keysPath + "/" + list[0].ID

	// A reload creates no second key, and the key is not shown again.
	d, notice := b.Follow(b.Post(keysPath+"/new?of=fleet", typed))
	if len(h.keysOf(apikey.Fleet)) != 1 || !strings.Contains(notice, "already exists") {
		t.Errorf("again: %d keys, notice %q", len(h.keysOf(apikey.Fleet)), notice)
	}
	for _, p := range []string{path, keysPath + "?of=fleet", path + "/edit"} {
		w := b.Get(p)
		if tokens.MatchString(w.Body.String()) || w.Code != http.StatusOK {
			t.Errorf("%s: got %d, with a key: %v", p, w.Code, tokens.MatchString(w.Body.String()))
		}
	}
	d.Want("…"+token[38:], "Rides: read, create", h.Admin.Email+" created the key", "from 192.0.2.1", "Lisboa")
	b.Page(keysPath+"?of=fleet").Want("…"+token[38:], "Rides: read, create", "Vehicles: read", "Live", "Active", "never")
	b.Page(keysPath + "?of=sandbox").Want("No API keys for the fleet's sandbox yet.")

	// Updates apply from the next request.
	d = b.Page(path + "/edit")
	if len(d.WithAttr("name", "expires_at")) != 0 || len(d.WithAttr("name", "subaccount_scope")) != 0 {
		t.Error("what never changes can be changed")
	}
	d, notice = b.Follow(b.Post(path+"/edit", set(form(d), "name", "Export", "level", "read_only", "allowed_ips", "", "rate_limit_per_minute", "")))
	if notice != "Key updated, with effect from its next request." {
		t.Errorf("got notice %q", notice)
	}
	d.Want("This key can read rides and vehicles in the fleet", "300 requests per minute (plan limit)", "changed the key", "limit: 20 to nothing")

	// Rotation creates one successor.
	w = b.Post(path+"/rotate", nil)
	b.WantRefused(w, http.StatusCreated).Want("Second key", "is still valid. Revoke it once it is no longer used.")
	second := tokens.FindString(w.Body.String())
	if !h.opens(second, apikey.Fleet, apikey.Live) || !h.opens(token, apikey.Fleet, apikey.Live) {
		t.Error("one of the two does not work")
	}
	d, notice = b.Follow(b.Post(path+"/rotate", nil))
	if len(h.keysOf(apikey.Fleet)) != 2 || !strings.Contains(notice, "already rotated") {
		t.Errorf("again: %d keys, notice %q", len(h.keysOf(apikey.Fleet)), notice)
	}
	d.Want("Export (2)", "Replaces")
	b.Page(path).Want("was rotated: Export (2) replaces it.")

	// Revocation is immediate; deletion requires the name.
	b.Page(path + "/revoke").Want("stops working immediately and permanently")
	d, _ = b.Follow(b.Post(path+"/revoke", nil))
	d.Want("Revoked", "It is no longer valid.")
	if h.opens(token, apikey.Fleet, apikey.Live) {
		t.Error("the revoked key works")
	}
	b.WantRefused(b.Post(path+"/revoke", nil), http.StatusConflict)
	b.WantRefused(b.Get(path+"/edit"), http.StatusConflict)
	b.WantRefused(b.Post(path+"/delete", url.Values{"confirm": {"Expor"}}), http.StatusUnprocessableEntity).Want("Type Export to confirm")
	if _, notice = b.Follow(b.Post(path+"/delete", url.Values{"confirm": {"Export"}})); notice != "Key deleted." {
		t.Errorf("got notice %q", notice)
	}
	b.WantRefused(b.Get(path), http.StatusNotFound)
	if list := h.keysOf(apikey.Fleet); len(list) != 1 || list[0].Name != "Export (2)" {
		t.Errorf("left: %+v", list)
	}
}

func TestKeyForms(t *testing.T) {
	h := newHarness(t)
	b := h.admin
	// Each kind offers its own checkboxes.
	for of, want := range map[string]string{
		"helpdesk": "This key can read tickets and analytics in the helpdesk, from any address",
		"sandbox":  "It accesses test data only.", "nonsense": "in the helpdesk",
	} {
		b.Page(keysPath + "/new?of=" + of).Want(want)
	}
	blank := func(of string) url.Values { return set(form(b.Page(keysPath+"/new?of="+of)), "name", "Trial") }
	for name, c := range map[string]struct {
		of    string
		typed []string
		field string
		says  string
	}{
		"no name":       {"fleet", []string{"name", " "}, "name", "Name must not be empty."},
		"no boxes":      {"fleet", []string{"resources", "some"}, "resources", "Resources must be chosen: tick at least one box."},
		"no subaccount": {"fleet", []string{"subaccount_scope", "some"}, "subaccount_scope", "Subaccounts must be chosen: tick at least one."},
		"another's":     {"fleet", []string{"subaccount_scope", "some", "subaccount", "sub_1"}, "subaccount_scope", "Subaccounts has one that is not there any more."},
		"an address":    {"fleet", []string{"allowed_ips", "192.0.2.1, 10.0.0.300"}, "allowed_ips", `Allowed addresses cannot have "10.0.0.300"`},
		"a limit":       {"fleet", []string{"rate_limit_per_minute", "301"}, "rate_limit_per_minute", "Requests per minute must be from 1 to 300, the plan's limit."},
		"no number":     {"fleet", []string{"rate_limit_per_minute", "many"}, "rate_limit_per_minute", "Requests per minute must be a number from 1 to 300."},
		"zero":          {"helpdesk", []string{"rate_limit_per_minute", "0"}, "rate_limit_per_minute", "must be a number from 1 to 300."},
		"no day":        {"helpdesk", []string{"expires_at", "day"}, "day", "Last day must be chosen."},
		"the past":      {"helpdesk", []string{"expires_at", "day", "day", "2020-02-30"}, "day", "Last day must be a date"},
		"a box that is not there": {"fleet", []string{"resources", "some", "may", "zones:read", "may", "rides:delete"}, "resources",
			`Resources cannot name "zones"`},
	} {
		t.Run(name, func(t *testing.T) {
			typed := set(blank(c.of), c.typed...)
			d := b.WantRefused(b.Post(keysPath+"/new?of="+c.of, typed), http.StatusUnprocessableEntity)
			d.T = t
			if got := strings.Join(d.DescribedBy(c.field), " "); !strings.Contains(got, c.says) {
				t.Errorf("got %q beside the field, want %q", got, c.says)
			}
			if got := webtest.Attr(d.Field("name"), "value"); got != typed.Get("name") {
				t.Errorf("got name %q back, want %q", got, typed.Get("name"))
			}
		})
	}
	if n := len(h.keysOf("")); n != 0 {
		t.Fatalf("%d keys were made", n)
	}
	// A key without any permission is refused.
	b.WantRefused(b.Post(keysPath+"/new?of=fleet", set(blank("fleet"), "level", "read_only", "resources", "some", "may", "vehicles:delete", "expires_at", "day")), http.StatusUnprocessableEntity).
		Want("This key would have no permissions")

	// A duplicate name is refused at the field, and the form's id stays.
	b.WantRefused(b.Post(keysPath+"/new", blank("helpdesk")), http.StatusCreated)
	typed := blank("helpdesk")
	d := b.WantRefused(b.Post(keysPath+"/new", typed), http.StatusUnprocessableEntity)
	if got := strings.Join(d.DescribedBy("name"), " "); !strings.Contains(got, `There is a key named "Trial" already.`) {
		t.Errorf("got %q", got)
	}
	if d.Field("id"); webtest.Attr(d.Field("id"), "value") != typed.Get("id") {
		t.Error("the form became another's")
	}
	b.WantRefused(b.Post(keysPath+"/new", set(typed, "name", "Other", "id", "<nonsense>")), http.StatusCreated)

	// The summary follows the form.
	w := b.Get(keysPath + "/summary?of=fleet&level=&resources=some&may=pricing:update&allowed_ips=" + url.QueryEscape("<b>"))
	if got := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(got, "This key can update pricing in the fleet") || strings.Contains(got, "<b>") || strings.Contains(got, "<main") {
		t.Errorf("got %d %s", w.Code, got)
	}
	key := h.keysOf(apikey.Helpdesk)[0]
	if got := b.Get(keysPath + "/summary?level=admin&resources=every&key=" + key.ID).Body.String(); !strings.Contains(got, "and read and update settings in the helpdesk") {
		t.Errorf("got %s", got)
	}
}

// TestKeysForAdmins checks that agents and other organizations can neither read nor
// change keys.
func TestKeysForAdmins(t *testing.T) {
	h := newHarness(t)
	mine := form(h.admin.Page(keysPath + "/new"))
	h.admin.WantRefused(h.admin.Post(keysPath+"/new", set(mine, "name", "Mine")), http.StatusCreated)
	id := h.keysOf("")[0].ID
	paths := []string{"", "/new", "/summary", "/" + id, "/" + id + "/edit", "/" + id + "/rotate", "/" + id + "/revoke", "/" + id + "/delete"}
	agent := h.SignIn(h.Agent)
	other := h.SignIn(h.NewUser(h.elsewhere, "eve@example.com", "Eve", "admin"))
	for _, p := range paths {
		agent.WantRefused(agent.Get(keysPath+p), http.StatusForbidden)
		if strings.HasPrefix(p, "/"+id) {
			other.WantRefused(other.Get(keysPath+p), http.StatusNotFound)
		}
		if p != "" && p != "/summary" && p != "/"+id {
			agent.WantRefused(agent.Post(keysPath+p, url.Values{"confirm": {"Mine"}}), http.StatusForbidden)
			if p != "/new" {
				other.WantRefused(other.Post(keysPath+p, url.Values{"confirm": {"Mine"}}), http.StatusNotFound)
			}
		}
	}
	other.Page(keysPath).Want("No API keys for the helpdesk yet.")
	// A form with the id of another organization's key creates nothing and reveals
	// nothing.
	other.WantRefused(other.Post(keysPath+"/new", set(form(other.Page(keysPath+"/new")), "name", "Theirs", "id", id)), http.StatusUnprocessableEntity)
	if list := h.keysOf(""); len(list) != 1 || list[0].Name != "Mine" || !list[0].RevokedAt.IsZero() {
		t.Errorf("got %+v", list)
	}
}
