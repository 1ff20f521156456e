package fleetpages

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// agencyFields are the fields of an agency.
func agencyFields(a *fleet.MDSAgency) web.Fields {
	return web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 256, Value: a.Name},
		{Name: "id", Label: "Id", Type: "text", Most: 64, Value: a.ID, Help: "The claim iss of its tokens, such as berlin."},
		{Name: "public_key", Label: "Public key", Type: "textarea", Rows: 6, Most: 10_000, Value: a.PublicKey, Help: "PEM, without other text; RSA of 2048 to 8192 bits, or ECDSA P-256."},
	}
}

// agency creates or updates an agency that may read the data of a subaccount.
func (p *pages) agency(w http.ResponseWriter, r *web.Request) error {
	s, err := p.Fleet.Subaccount(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	id, title := r.PathValue("agency"), "New agency"
	is := func(a fleet.MDSAgency) bool { return a.ID == id }
	var a fleet.MDSAgency
	if id != "" {
		if a, err = element(r, s.MDS.Agencies, is, "agency"); err != nil {
			return err
		}
		title = "Edit agency"
	}
	back := p.base + "/subaccounts/" + s.ID
	stored := func(s *fleet.Subaccount) web.Fields { return elementFields(s.MDS.Agencies, is, agencyFields) }
	fields, t := agencyFields(&a), new(formInput)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.Form(w, r); !ok {
			return nil
		}
		n := fleet.MDSAgency{ID: t.text("id"), Name: t.text("name"), PublicKey: strings.TrimSpace(t.Get("public_key"))}
		saved, err := p.changeSubaccount(r, fields, stored, t, s.ID, func(now *fleet.Subaccount) (fleet.SubaccountChange, string, error) {
			list, at, err := replaceOrAppend(now.MDS.Agencies, n, id, is)
			m := now.MDS
			m.Agencies = list
			return fleet.SubaccountChange{MDS: optional.Of(m)}, "mds.agencies." + strconv.Itoa(at), err
		})
		if err != nil {
			return err
		}
		if saved {
			return p.Redirect(w, back, web.Notice{Text: "Agency saved."})
		}
	}
	return p.showForm(w, r, p.page(r, "/subaccounts", title, nil), fields, form{
		Intro: "The agency signs its tokens with the private half of this key. aud is " + s.ID + ", and provider_id the provider id.", Was: t.opened(id, fields), Label: "Save", Cancel: back,
	})
}

// deleteAgency deletes an agency; its tokens end with it.
func (p *pages) deleteAgency(w http.ResponseWriter, r *web.Request) error {
	return p.removeFromSubaccount(w, r, "agency", func(s *fleet.Subaccount) (string, fleet.SubaccountChange) {
		i := slices.IndexFunc(s.MDS.Agencies, func(a fleet.MDSAgency) bool { return a.ID == r.PathValue("agency") })
		if i < 0 {
			return "", fleet.SubaccountChange{}
		}
		m := s.MDS
		name := m.Agencies[i].Name
		m.Agencies = slices.Delete(slices.Clone(m.Agencies), i, i+1)
		return name, fleet.SubaccountChange{MDS: optional.Of(m)}
	})
}
