package fleetpages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fleet"
)

func TestRiders(t *testing.T) {
	y := newYard(t)
	y.admin.Page("/fleet/riders").Want("No riders yet", "kickstand fleet import --org ", "--environment live")
	l := furnish(y)
	done, open := l.ride(fleet.Completed), l.ride(fleet.Active)
	first, second := string(done.CustomerID), string(open.CustomerID)
	y.agent.Page("/fleet/riders").Want("2 riders.", "Zoë 1 <b>", "Zoe1@example.com", "Active ride")
	for query, want := range map[string]string{
		"": second + first, "search=zoe1@example.com": first, "search=%2B49309018-220": second, "search=Zo%C3%AB+2": second, "search=Zo": second + first, "search=zoe+2": second, "search=490901820": "", "search=0182-20": second, "search=182": second + first, "search=example+zoe1": first, "search=zz": "",
		"search=" + first: first, "search=cus_nothing": "", "status=blocked": "", "status=active": second + first, "sort=name": first + second, "search=" + strings.Repeat("x", 3000): "",
		"search=%40": "",
	} {
		d := y.agent.Page("/fleet/riders?" + query)
		if got := ids(d); got != want {
			t.Errorf("%.40s: got %s, want %s", query, got, want)
		}
		if want == "" {
			d.Want("No riders match these filters.")
		}
	}
	// A ticket of a customer with the same address.
	err := y.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := y.desk.CreateCustomerTx(t.Context(), tx, y.Organization.ID, desk.NewCustomer{Name: hostile, Emails: []string{"zoe1@EXAMPLE.com"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	y.agent.Page("/fleet/riders/"+first).Want("€1.00 in 1 ride.", "In the helpdesk: "+hostile, "No tickets.")
	y.agent.Page("/fleet/riders/"+second).Want("Open ride", "1 ride.")
	y.agent.WantRefused(y.agent.Get("/sandbox/fleet/riders/"+first), http.StatusNotFound)
	y.agent.Page("/sandbox/fleet/riders").Want("30 riders.")
}

func TestRiderForms(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	const path = "/fleet/riders/new"
	y.agent.WantRefused(y.agent.Get(path), http.StatusForbidden)
	form := url.Values{"subaccount_id": {l.sub.ID}, "name": {"Ada " + hostile}, "email": {"nowhere"}, "phone": {"12"}, "birth_date": {"2999-01-01"}, "driver_license_status": {"lost"}}
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("E-mail must be an e-mail address", "Phone must be a telephone number", "Date of birth must be in the past", "Driver's license must be one of", "Ada "+hostile[:8])
	form = url.Values{"subaccount_id": {l.sub.ID}, "name": {"Ada " + hostile}, "email": {"ada@example.com"}, "phone": {"+49 30 901820"}, "driver_license_status": {"verified"}, "marketing_consent": {"on"}, "external_id": {"e1"}}
	d, _ := y.admin.Follow(y.admin.Post(path, form))
	d.Want("Ada "+hostile, "+4930901820", "Verified", "Marketing consent")
	y.admin.WantRefused(y.admin.Post(path, form), http.StatusUnprocessableEntity).Want("External id is already in use")

	c := l.rider()
	at := "/fleet/riders/" + c.ID
	y.admin.Page(at + "/edit")
	y.agent.WantRefused(y.agent.Get(at+"/edit"), http.StatusForbidden)
	y.admin.WantRefused(y.admin.Post(at+"/edit", url.Values{"driver_license_status": {"none"}, "language": {"not a language"}}), http.StatusUnprocessableEntity).Want("Language must be")
	d, _ = y.admin.Follow(y.admin.Post(at+"/edit", url.Values{"name": {"Zoë"}, "driver_license_status": {"none"}, "metadata": {"tier: gold"}}))
	d.Want("gold")
	if now, err := l.Customer(t.Context(), l.db, l.organization.ID, c.ID); err != nil || now.Email != "" || now.Phone != "" {
		t.Errorf("got %+v, %v", now, err)
	}

	y.agent.Page(at + "/block")
	y.agent.WantRefused(y.agent.Post(at+"/block", url.Values{"block_reason": {strings.Repeat("x", 501)}}), http.StatusUnprocessableEntity)
	d, _ = y.agent.Follow(y.agent.Post(at+"/block", url.Values{"block_reason": {"Left it in the river " + hostile}}))
	d.Want("Blocked", "Left it in the river", "Unblock")
	log := audittest.List(t, l.log, y.Organization.ID, audit.Query{TargetID: c.ID})
	if len(log) != 1 || log[0].Action != "customer.blocked" || strings.Contains(string(log[0].Target.Name), "Zoë") {
		t.Errorf("got %+v", log)
	}
	y.admin.Page(at).Want("Audit log", "Blocked by "+y.Agent.Email)
	d, _ = y.agent.Follow(y.agent.Post(at+"/block", url.Values{"status": {"active"}}))
	d.Want("Active")

	y.agent.WantRefused(y.agent.Post(at+"/anonymise", url.Values{"confirm": {"anonymise"}}), http.StatusForbidden)
	y.admin.WantRefused(y.admin.Post(at+"/anonymise", url.Values{"confirm": {"Zoë"}}), http.StatusUnprocessableEntity)
	d, _ = y.admin.Follow(y.admin.Post(at+"/anonymise", url.Values{"confirm": {"anonymise"}}))
	d.Want("Anonymised rider")
	for _, path := range []string{"/edit", "/block", "/anonymise"} {
		y.admin.WantRefused(y.admin.Get(at+path), http.StatusConflict)
	}
	if len(links(d, at)) != 0 {
		t.Errorf("got %v for somebody who is anonymised", links(d, at))
	}
	riding := "/fleet/riders/" + string(l.ride(fleet.Active).CustomerID) + "/anonymise"
	y.admin.WantRefused(y.admin.Post(riding, url.Values{"confirm": {"anonymise"}}), http.StatusUnprocessableEntity).Want("open ride")
}
