package deskapi_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// TestSecretsStayIn stores secrets in every field for them and searches all readable answers.
func TestSecretsStayIn(t *testing.T) {
	r := newRig(t)
	admin := r.admin()
	rc := newReceiver(t)
	planted := map[string]string{}
	plant := func(what string) string {
		planted[what] = rand.Text()
		return planted[what]
	}
	hook := r.post("/webhooks", fields{"url": rc.URL, "events": []string{"*"}, "secret": plant("the webhook's")})
	send(t, r.Client, "PUT", "/webhooks/"+hook.text("id"), jsonOf(t, fields{"secret": plant("the webhook's new")}), 200)
	channel := r.post("/channels", fields{
		"channel": "sms", "address": "+14155550100", "secrets": []string{plant("the channel's")}, "credentials": fields{"auth_token": plant("a credential")},
	})
	send(t, r.Client, "PUT", "/channels/"+channel.text("id"), jsonOf(t, fields{"secrets": []string{plant("the channel's new")}, "credentials": fields{"auth_token": plant("a new credential")}}), 200)
	send(t, r.Client, "POST", "/channels/"+channel.text("id")+"/rotate", jsonOf(t, fields{"secret": plant("the rotated")}), 200)
	made := r.post("/channels", fields{"channel": "email-raw", "address": "support@a.example"})
	planted["a generated one"] = made.text("generated_secret")
	rotated := send(t, r.Client, "POST", "/channels/"+made.text("id")+"/rotate", "", 200)
	planted["a generated one, rotated"] = rotated.text("generated_secret")
	r.texted(planted["the rotated"], "+14155550100", "SM1", "Hello")
	k, token := r.makeKey(apikey.New{OrganizationID: r.ours.ID, Permissions: apikey.Permissions{Level: apikey.ReadOnly}})
	planted["an API key"], planted["what an SMS's caller showed"] = token, "in-the-header"
	if _, err := r.keys.Revoke(t.Context(), r.ours.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	r.emit(event.TicketCreated, ticket1, 1)
	send(t, r.Client, "POST", "/webhooks/"+hook.text("id")+"/test", "", 200)
	if err := r.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-rc.got // of the test delivery
	<-rc.got
	r.queue.Stop(t.Context())

	first := func(path string) string {
		t.Helper()
		list := send(t, admin, "GET", path, "", 200).list("data")
		if len(list) == 0 {
			t.Fatalf("%s is empty", path)
		}
		return path + "/" + list[len(list)-1].text("id")
	}
	deliveries := "/webhooks/" + hook.text("id") + "/deliveries"
	paths := []string{
		"/webhooks", first("/webhooks"), deliveries, first(deliveries), "/webhooks/" + hook.text("id") + "/upcoming",
		"/channels", first("/channels"), "/channels/" + made.text("id"), "/events", first("/events"),
		"/inbound-events", first("/inbound-events"), first("/inbound-events") + "/raw", "/settings/audit-log", "/key", "/openapi.json",
	}
	for _, path := range paths {
		for _, kind := range []string{"application/json", "text/csv", "application/x-ndjson"} {
			a := admin.Get(path, "Accept: "+kind)
			if a.Status == 406 {
				continue
			}
			if a.Status != 200 {
				t.Errorf("%s as %s: got %d", path, kind, a.Status)
			}
			for what, secret := range planted {
				if secret == "" || strings.Contains(a.Body, secret) {
					t.Errorf("%s as %s shows %s secret", path, kind, what)
				}
			}
		}
	}
	// Error answers do not contain them either.
	for _, c := range [][3]string{
		{"POST", "/webhooks", `{"url": "https://93.184.215.14/", "events": ["*"], "secret": "whsec_%` + planted["a credential"] + `"}`},
		{"POST", "/channels", `{"channel": "sms", "address": "+14155550100", "secrets": ["` + planted["a credential"] + strings.Repeat("x", 1100) + `"]}`},
		{"POST", "/channels/" + made.text("id") + "/rotate", `{"secret": ["` + planted["a credential"] + `"]}`},
	} {
		if a := r.Do(c[0], c[1], c[2]); a.Status != 422 || strings.Contains(a.Body, planted["a credential"]) {
			t.Errorf("%s %s: got %d %s", c[0], c[1], a.Status, a.Body)
		}
	}
}
