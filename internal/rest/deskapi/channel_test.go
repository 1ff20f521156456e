package deskapi_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/rest/resttest"
)

func TestChannels(t *testing.T) {
	r := newRig(t)
	made := r.post("/channels", fields{"channel": "sms", "address": "+14155550100", "credentials": fields{"auth_token": "credential-of-ours"}, "settings": fields{"greeting": "Hello"}})
	generated := made.text("generated_secret")
	if len(generated) < 20 || made["name"] != "+14155550100" || made["enabled"] != true || made["webhook_url"] != origin+"/api/webhooks/sms?c="+made.text("id") ||
		jsonOf(t, made["credential_names"]) != `["auth_token"]` || jsonOf(t, made["settings"]) != `{"greeting":"Hello"}` {
		t.Errorf("made %v", made)
	}
	at := "/channels/" + made.text("id")
	c, err := r.connections.FindOf(t.Context(), r.db, r.ours.ID, made.text("id"))
	if err != nil || len(c.Secrets(c.CreatedAt)) != 1 || c.Secrets(c.CreatedAt)[0] != generated || c.CredentialValues()["auth_token"] != "credential-of-ours" {
		t.Errorf("stored %v, %v", c, err)
	}
	got := r.get(at)
	if got["generated_secret"] != nil {
		t.Errorf("the secret is shown again: %v", got)
	}
	got["generated_secret"] = generated
	if jsonOf(t, got) != jsonOf(t, made) {
		t.Errorf("got %v, want %v", got, made)
	}
	// A PUT may repeat the body of the GET as well as of the POST, with its ETag.
	created := r.Do("POST", "/channels", `{"channel": "email-raw", "address": "Support@a.example", "name": "Support", "enabled": false, "secrets": null}`)
	var second fields
	created.JSON(&second)
	at2 := "/channels/" + second.text("id")
	if created.Status != 201 || second["enabled"] != false || second["name"] != "Support" {
		t.Errorf("made %d %s", created.Status, created.Body)
	}
	refused(t, "another's ETag", r.Do("PUT", at2, `{}`, "If-Match: "+r.Get(at).Header.Get("Etag")), 412, "precondition_failed")
	back := send(t, r.Client, "PUT", at2, created.Body, 200, "If-Match: "+created.Header.Get("Etag"))
	if back["generated_secret"] != nil || back["name"] != "Support" {
		t.Errorf("sent back, it became %v", back)
	}
	refused(t, "the ETag before", r.Do("DELETE", at2, "", "If-Match: "+created.Header.Get("Etag")), 412, "precondition_failed")
	send(t, r.Client, "PUT", at2, jsonOf(t, r.get(at2)), 200, "If-Match: "+r.Get(at2).Header.Get("Etag"))

	changed := send(t, r.Client, "PUT", at, `{"name": null, "enabled": false, "settings": {}, "credentials": {"key_id": "x", "key_secret": "credential-of-ours"}, "secrets": ["a new secret"]}`, 200)
	if changed["enabled"] != false || jsonOf(t, changed["credential_names"]) != `["key_id","key_secret"]` || jsonOf(t, changed["settings"]) != `{}` || changed["name"] != "+14155550100" {
		t.Errorf("changed to %v", changed)
	}
	if c, err = r.connections.FindOf(t.Context(), r.db, r.ours.ID, made.text("id")); err != nil || strings.Join(c.Secrets(c.UpdatedAt), " ") != "a new secret "+generated {
		t.Errorf("the secrets are %v, %v", c.Secrets(c.UpdatedAt), err)
	}
	for _, c := range []struct {
		what, body string
		pointers   []string
	}{
		{"nothing", `{}`, []string{"#/channel required", "#/address required"}},
		{"no such channel", `{"channel": "pigeon", "address": "loft"}`, []string{"#/channel invalid_value"}},
		{"all wrong", `{"channel": "sms", "address": 1, "secrets": ["short"], "credentials": {"a": 1}, "settings": [], "webhook_url": "x"}`,
			[]string{"#/address invalid_type", "#/secrets/0 too_short", "#/credentials/a invalid_type", "#/settings invalid_type", "#/webhook_url read_only"}},
		{"no address", `{"channel": "email-raw", "address": "call me"}`, []string{"#/address invalid_format"}},
	} {
		refused(t, c.what, r.Do("POST", "/channels", c.body), 422, "validation_failed", c.pointers...)
	}
	taken := r.Do("POST", "/channels", `{"channel": "sms", "address": "+1 (415) 555-0100"}`)
	refused(t, "a taken address", taken, 409, "already_exists")
	if taken.Problem().Member != "address" {
		t.Errorf("the member is %q, want address", taken.Problem().Member)
	}
	// The answer does not reveal that another organization has an address.
	theirs := send(t, r.other(), "POST", "/channels", `{"channel": "sms", "address": "+14155550100"}`, 201)
	if a := r.other().Do("DELETE", "/channels/"+theirs.text("id"), ""); a.Status != 204 {
		t.Errorf("deleting theirs got %d %s", a.Status, a.Body)
	}
	for _, body := range []string{`{"channel": "email-raw"}`, `{"address": "+14155550101"}`, `{"id": "x"}`} {
		if p := r.Do("PUT", at, body).Problem(); p.Code != "validation_failed" || p.Errors[0].Code != "read_only" {
			t.Errorf("%s: got %v", body, p)
		}
	}
	refused(t, "no secret at all", r.Do("PUT", at, `{"secrets": []}`), 422, "validation_failed", "#/secrets too_short")
	for _, c := range [][3]string{{"GET", at, ""}, {"PUT", at, "{}"}, {"DELETE", at, ""}, {"POST", at + "/rotate", ""}} {
		refused(t, "their "+c[0], r.other().Do(c[0], c[1], c[2]), 404, "not_found")
	}

	// Rotation.
	rotated := send(t, r.Client, "POST", at+"/rotate", "", 200, "Idempotency-Key: rotate")
	again := send(t, r.Client, "POST", at+"/rotate", "", 200, "Idempotency-Key: rotate")
	if rotated.text("generated_secret") == "" || again["generated_secret"] != rotated["generated_secret"] {
		t.Errorf("rotated to %v, and again to %v", rotated, again)
	}
	if given := send(t, r.Client, "POST", at+"/rotate", `{"secret": "one of my own", "overlap_seconds": 0}`, 200); given["generated_secret"] != nil {
		t.Errorf("shown back: %v", given)
	}
	if c, err = r.connections.FindOf(t.Context(), r.db, r.ours.ID, made.text("id")); err != nil || strings.Join(c.Secrets(c.UpdatedAt), " ") != "one of my own" {
		t.Errorf("the secrets are %v, %v", c.Secrets(c.UpdatedAt), err)
	}
	refused(t, "a bad secret", r.Do("POST", at+"/rotate", `{"secret": "short", "overlap_seconds": -1}`), 422, "validation_failed", "#/secret too_short", "#/overlap_seconds too_small")

	if list := r.get("/channels?limit=1").list("data"); len(list) != 1 || list[0]["id"] != second["id"] {
		t.Errorf("the newest is %v", list)
	}
	if csv := r.Get("/channels", "Accept: text/csv"); strings.Count(csv.Body, "\r\n") != 3 {
		t.Errorf("as CSV: %q", csv.Body)
	}
	if list := send(t, r.other(), "GET", "/channels", "", 200).list("data"); len(list) != 0 {
		t.Errorf("they see %v", list)
	}
	if a := r.Do("DELETE", at, "", "If-Match: "+r.Get(at).Header.Get("Etag")); a.Status != 204 {
		t.Errorf("deleting got %d %s", a.Status, a.Body)
	}
	refused(t, "a deleted one", r.Get(at), 404, "not_found")
	send(t, r.other(), "POST", "/channels", `{"channel": "sms", "address": "+14155550100"}`, 201)
}

// texted posts an inbound SMS, signed like the provider's, or an unreadable one.
func (r *rig) texted(secret, to, sid, text string) {
	r.Helper()
	form := url.Values{"To": {to}, "From": {"+14155550111"}, "MessageSid": {sid}, "Body": {text}}
	req := httptest.NewRequest("POST", origin+"/api/webhooks/sms?token=in-the-url", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer in-the-header")
	req.Header.Set("X-Sms-Signature", sms.Sign(origin+"/api/webhooks/sms?token=in-the-url", form, secret))
	mux := http.NewServeMux()
	r.inbound.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req)
	if w.Code != 200 {
		r.Fatalf("the SMS was answered %d %s", w.Code, w.Body)
	}
}

// TestAddressWithoutKeyIsRefused: a custom API address is accepted only with an API key on the
// connection, so that the deployment's key is never sent there.
func TestAddressWithoutKeyIsRefused(t *testing.T) {
	r := newRig(t)
	const bare, whole = `{"delivery_api_url": "https://evil.example"}`, `{"delivery_api_url": "https://api.example", "delivery_api_key": "re_ours"}`
	connect := func(credentials string) string {
		return `{"channel": "email-raw", "address": "help@a.example", "credentials": ` + credentials + `}`
	}
	refused(t, "connecting", r.Do("POST", "/channels", connect(bare)), 422, "validation_failed", "#/credentials/delivery_api_key required")
	if list := r.get("/channels").list("data"); len(list) != 0 {
		t.Errorf("connected %v", list)
	}
	at := "/channels/" + send(t, r.Client, "POST", "/channels", connect(whole), 201).text("id")
	refused(t, "changing", r.Do("PUT", at, `{"credentials": `+bare+`}`), 422, "validation_failed", "#/credentials/delivery_api_key required")
	refused(t, "an empty key", r.Do("PUT", at, `{"credentials": {"delivery_api_url": "https://evil.example", "delivery_api_key": ""}}`),
		422, "validation_failed", "#/credentials/delivery_api_key required")
	if got := r.get(at); jsonOf(t, got["credential_names"]) != `["delivery_api_key","delivery_api_url"]` {
		t.Errorf("left with %v", got["credential_names"])
	}
	send(t, r.Client, "PUT", at, `{"credentials": {"delivery_api_key": "re_ours"}}`, 200)
}

func TestInboundEvents(t *testing.T) {
	r := newRig(t)
	made := r.post("/channels", fields{"channel": "sms", "address": "+14155550100"})
	secret := made.text("generated_secret")
	for _, sid := range []string{"SM1", "SM2", "SM3"} {
		r.texted(secret, "+14155550100", sid, "Hello "+sid)
	}
	all := r.get("/inbound-events").list("data")
	if len(all) != 3 || all[0]["key"] != "SM3" || all[0]["state"] != "accepted" || all[0]["channel"] != "sms" || all[0]["channel_id"] != made["id"] || all[0]["result"] != nil {
		t.Fatalf("got %v", all)
	}
	at := "/inbound-events/" + all[2].text("id")
	if got := r.get(at); jsonOf(t, got) != jsonOf(t, all[2]) {
		t.Errorf("got %v, want %v", got, all[2])
	}
	raw := r.Get(at + "/raw")
	var f struct {
		URL     string
		Headers http.Header
		Body    string
	}
	raw.JSON(&f)
	body, err := base64.StdEncoding.DecodeString(f.Body)
	if err != nil || !strings.Contains(string(body), "Body=Hello+SM1") || f.Headers.Get("X-Sms-Signature") == "" || !strings.Contains(f.URL, "/api/webhooks/sms") {
		t.Errorf("raw, it is %s: %q, %v", raw.Body, body, err)
	}
	if strings.Contains(raw.Body, "in-the-url") || strings.Contains(raw.Body, "in-the-header") {
		t.Errorf("credentials are shown: %s", raw.Body)
	}
	for _, c := range []struct {
		query string
		want  int
	}{
		{"?state=accepted,dead", 3}, {"?state=processed", 0}, {"?channel=sms", 3}, {"?channel=email-raw", 0},
		{"?channel_id=" + made.text("id"), 3}, {"?channel_id=" + nobody, 0}, {"?limit=2", 2},
	} {
		if got := r.get("/inbound-events" + c.query).list("data"); len(got) != c.want {
			t.Errorf("%s: got %d events, want %d", c.query, len(got), c.want)
		}
	}
	page := r.get("/inbound-events?limit=2")
	last := r.get("/inbound-events" + resttest.Query("limit", "2", "cursor", page.text("next_cursor")))
	if list := last.list("data"); len(list) != 1 || list[0]["id"] != all[2]["id"] || last["has_more"] != false || page["has_more"] != true {
		t.Errorf("the last page is %v", last)
	}
	if lines := r.Get("/inbound-events?channel=sms", "Accept: application/x-ndjson"); strings.Count(lines.Body, "\n") != 3 {
		t.Errorf("exported: %q", lines.Body)
	}
	refused(t, "an unknown state", r.Get("/inbound-events?state=lost"), 400, "invalid_parameter")

	refused(t, "one that waits", r.Do("POST", at+"/replay", ""), 409, "invalid_transition")
	err = r.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "DELETE FROM jobs WHERE id = $1", all[2].text("id")); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE inbound_events SET state = 'dead', error = 'a fault' WHERE id = $1", all[2].text("id"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if dead := r.get("/inbound-events?state=dead").list("data"); len(dead) != 1 || dead[0]["error"] != "a fault" {
		t.Errorf("dead: %v", dead)
	}
	again := send(t, r.Client, "POST", at+"/replay", "", 200, "Idempotency-Key: again")
	twice := send(t, r.Client, "POST", at+"/replay", "", 200, "Idempotency-Key: again")
	if again["state"] != string(inbound.Accepted) || again["error"] != nil || jsonOf(t, twice) != jsonOf(t, again) {
		t.Errorf("replayed, it is %v and then %v", again, twice)
	}
	for _, c := range [][2]string{{"GET", at}, {"GET", at + "/raw"}, {"POST", at + "/replay"}} {
		refused(t, "their "+c[0]+" "+c[1], r.other().Do(c[0], c[1], ""), 404, "not_found")
		refused(t, "none: "+c[0], r.Do(c[0], strings.Replace(c[1], all[2].text("id"), nobody, 1), ""), 404, "not_found")
	}
	if list := send(t, r.other(), "GET", "/inbound-events", "", 200).list("data"); len(list) != 0 {
		t.Errorf("they see %v", list)
	}
}

func TestSLAPolicies(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	get := func(path string) fields { return send(t, admin, "GET", path, "", 200) }
	body := `{"first_response_minutes": 30, "business_hours": {"time_zone": "Europe/Berlin", "weekly": {"mon": [{"from": "13:00", "to": "17:00"}, {"from": "09:00", "to": "12:00"}]}, "holidays": ["2026-12-25"]}}`
	made := send(t, admin, "PUT", "/sla-policies/high", body, 200, "Idempotency-Key: high")
	if again := send(t, admin, "PUT", "/sla-policies/high", body, 200, "Idempotency-Key: high"); jsonOf(t, again) != jsonOf(t, made) {
		t.Errorf("again: %v, want %v", again, made)
	}
	want := `{"holidays":["2026-12-25"],"time_zone":"Europe/Berlin","weekly":{"fri":[],"mon":[{"from":"09:00","to":"12:00"},{"from":"13:00","to":"17:00"}],"sat":[],"sun":[],"thu":[],"tue":[],"wed":[]}}`
	if made["first_response_minutes"] != 30.0 || made["resolution_minutes"] != nil || jsonOf(t, made["business_hours"]) != want {
		t.Errorf("made %s", jsonOf(t, made))
	}
	if got := get("/sla-policies/high"); jsonOf(t, got) != jsonOf(t, made) {
		t.Errorf("got %v, want %v", got, made)
	}
	tag := admin.Get("/sla-policies/high").Header.Get("Etag")
	changed := send(t, admin, "PUT", "/sla-policies/high", `{"resolution_minutes": 480, "business_hours": null}`, 200, "If-Match: "+tag)
	if changed["first_response_minutes"] != 30.0 || changed["resolution_minutes"] != 480.0 || changed["business_hours"] != nil || changed["created_at"] != made["created_at"] {
		t.Errorf("changed to %v", changed)
	}
	send(t, admin, "PUT", "/sla-policies/high", jsonOf(t, get("/sla-policies/high")), 200)
	for _, method := range []string{"PUT", "DELETE"} {
		sent := ""
		if method == "PUT" {
			sent = `{"resolution_minutes": 1}`
		}
		refused(t, method+" of an old one", admin.Do(method, "/sla-policies/high", sent, "If-Match: "+tag), 412, "precondition_failed")
	}
	refused(t, "a new one with If-Match", admin.Do("PUT", "/sla-policies/low", `{"resolution_minutes": 1}`, "If-Match: "+tag), 412, "precondition_failed")
	send(t, admin, "PUT", "/sla-policies/low", `{"resolution_minutes": 1440}`, 200)
	send(t, admin, "PUT", "/sla-policies/urgent", `{"resolution_minutes": 60}`, 200)
	order := func(query string) string {
		var names []string
		for _, p := range get("/sla-policies" + query).list("data") {
			names = append(names, p.text("priority"))
		}
		return strings.Join(names, " ")
	}
	if got := order("") + ", " + order("?sort=-priority&limit=1"); got != "low high urgent, urgent" {
		t.Errorf("the lists are %q", got)
	}
	if csv := admin.Get("/sla-policies", "Accept: text/csv"); !strings.HasPrefix(csv.Body, "object,priority,first_response_minutes,resolution_minutes,business_hours.time_zone,business_hours.weekly.mon") {
		t.Errorf("as CSV: %q", csv.Body)
	}
	for _, c := range []struct {
		what, body string
		pointers   []string
	}{
		{"nothing promised", `{}`, []string{"#/first_response_minutes required"}},
		{"bounds", `{"first_response_minutes": 0, "resolution_minutes": 525601}`, []string{"#/first_response_minutes too_small", "#/resolution_minutes too_large"}},
		{"read-only", `{"priority": "low", "resolution_minutes": 5}`, []string{"#/priority read_only"}},
		{"no hours", `{"resolution_minutes": 5, "business_hours": {"time_zone": "Mars/Olympus", "weekly": {}}}`, []string{"#/business_hours/time_zone invalid_value", "#/business_hours/weekly invalid_value"}},
		{"bad hours", `{"resolution_minutes": 5, "business_hours": {"weekly": {"mon": [{"from": "09:00"}], "day": []}, "holidays": ["Christmas"]}}`,
			[]string{"#/business_hours/weekly/mon/0/to required", "#/business_hours/weekly/day unknown_field", "#/business_hours/holidays/0 invalid_format", "#/business_hours/time_zone required"}},
	} {
		refused(t, c.what, admin.Do("PUT", "/sla-policies/normal", c.body), 422, "validation_failed", c.pointers...)
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		sent := ""
		if method == "PUT" {
			sent = `{"resolution_minutes": 1}`
		} else {
			refused(t, method+" of none", admin.Do(method, "/sla-policies/normal", sent), 404, "not_found")
		}
		refused(t, method+" of no priority", admin.Do(method, "/sla-policies/sudden", sent), 404, "not_found")
	}
	theirs := r.As(r.key(r.theirs, apikey.Permissions{Level: apikey.Admin}))
	refused(t, "theirs", theirs.Get("/sla-policies/high"), 404, "not_found")
	refused(t, "theirs", theirs.Do("DELETE", "/sla-policies/high", ""), 404, "not_found")
	refused(t, "without settings", r.Get("/sla-policies"), 403, "permission_denied")
	if a := admin.Do("DELETE", "/sla-policies/high", ""); a.Status != 204 {
		t.Errorf("deleting got %d %s", a.Status, a.Body)
	}
	if got := order(""); got != "low urgent" {
		t.Errorf("left are %q", got)
	}
}

func TestAuditLog(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	k, _ := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	r.makeKey(apikey.New{OrganizationID: r.ours.ID, Service: apikey.Fleet, Environment: apikey.Live, Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	if _, err := r.keys.Revoke(t.Context(), r.ours.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	get := func(path string) fields { return send(t, admin, "GET", path, "", 200) }
	all := get("/settings/audit-log").list("data")
	if len(all) != 4 || all[0]["action"] != "api_key.revoked" || all[1]["action"] != "api_key.created" {
		t.Fatalf("got %v", all)
	}
	newest := all[0]
	if target := fields(newest["target"].(map[string]any)); target["id"] != k.ID || target["partial_key"] != k.PartialKey || newest["actor"].(map[string]any)["type"] != "system" || newest["ip"] != nil {
		t.Errorf("the newest is %v", newest)
	}
	if list := get("/settings/audit-log?action=api_key.created&target_id=" + k.ID).list("data"); len(list) != 1 || list[0]["id"] != all[1]["id"] {
		t.Errorf("filtered: %v, want %v", list, all[1]["id"])
	}
	page := get("/settings/audit-log?limit=3")
	if last := get("/settings/audit-log" + resttest.Query("limit", "3", "cursor", page.text("next_cursor"))).list("data"); len(last) != 1 || last[0]["id"] != all[3]["id"] {
		t.Errorf("the last page is %v", last)
	}
	if lines := admin.Get("/settings/audit-log", "Accept: application/x-ndjson"); strings.Count(lines.Body, "\n") != 4 {
		t.Errorf("exported: %q", lines.Body)
	}
	refused(t, "without settings", r.Get("/settings/audit-log"), 403, "permission_denied")
	theirs := r.As(r.key(r.theirs, apikey.Permissions{Level: apikey.Admin}))
	if list := send(t, theirs, "GET", "/settings/audit-log", "", 200).list("data"); len(list) != 1 || list[0]["id"] == all[3]["id"] {
		t.Errorf("they see %v", list)
	}
}
