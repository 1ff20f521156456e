package deskapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// wantQuota checks the fields of a refusal by a quota.
func wantQuota(t *testing.T, what, body, name string, limit, used int) {
	t.Helper()
	var p struct {
		Quota       string
		Limit, Used int
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Quota != name || p.Limit != limit || p.Used != used {
		t.Errorf("%s: got %s, %v, want quota %s, limit %d, used %d", what, body, err, name, limit, used)
	}
}

// TestMessageQuota: beyond the messages of a day, what a key writes is 429 with the seconds to the
// next day, and what customers send is a ticket. A retry with the same Idempotency-Key later
// succeeds.
func TestMessageQuota(t *testing.T) {
	r := newRig(t, func(r *rig) { r.limits = quota.Limits{quota.Messages: 2} })
	other := r.As(r.key(r.theirs, apikey.Permissions{Level: apikey.Admin}))
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id") + "/messages"
	r.post(path, fields{"kind": "reply", "text": "On its way."})
	body := `{"kind":"reply","text":"There."}`
	for range 2 {
		a := r.Do("POST", path, body, "Idempotency-Key: a")
		refused(t, "a reply", a, 429, "daily_quota_exceeded")
		wantQuota(t, "a reply", a.Body, "messages", 2, 2)
		if wait, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 24*60*60 {
			t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
	}
	refused(t, "a ticket", r.Do("POST", "/tickets", `{"subject":"s","text":"t","customer":{"email":"bo@example.com"}}`), 429, "daily_quota_exceeded")
	r.post("/tickets", fields{"subject": "without a message", "customer": fields{"email": "bo@example.com"}})
	r.post(path, fields{"kind": "note", "text": "They wait."})
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := r.desk.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: r.ours.ID, Channel: "sms", Event: channel.Event{Message: &channel.Message{
			ExternalID: "1", ThreadKey: "+14155550111", From: channel.Party{Phone: "+14155550111"}, Text: "Help!",
		}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.get(path)["data"].([]any)); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	send(t, other, "POST", "/tickets", `{"subject":"s","text":"t","customer":{"email":"bo@example.com"}}`, 201)

	if err := r.db.Write(t.Context(), func(tx *db.Tx) error { // the next day
		_, err := tx.Exec(t.Context(), "UPDATE quotas SET day = day - 1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	send(t, r.Client, "POST", path, body, 201, "Idempotency-Key: a")
}

// TestStorageAndWebhookQuotas: a file or a webhook too many is 403, which says of what there is too
// much.
func TestStorageAndWebhookQuotas(t *testing.T) {
	r := newRig(t, func(r *rig) { r.limits = quota.Limits{quota.Storage: 1000, quota.Webhooks: 1} })
	path := "/tickets/" + r.ticket("Flat tyre", "alex@example.com").text("id") + "/messages"
	file := func(bytesOf int) fields {
		return fields{"kind": "note", "text": "see", "attachments": []fields{{
			"name": "a.bin", "content_type": "application/octet-stream", "content": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), bytesOf)),
		}}}
	}
	r.post(path, file(990))
	a := r.Do("POST", path, jsonOf(t, file(11)))
	refused(t, "a file", a, 403, "quota_exceeded")
	wantQuota(t, "a file", a.Body, "storage", 1000, 990)
	if a.Header.Get("Www-Authenticate") != "" || a.Header.Get("Retry-After") != "" {
		t.Errorf("a file: got headers %v", a.Header)
	}
	r.post(path, file(10))

	hook := fields{"url": "https://receiver.example.com/", "events": []string{"*"}}
	id := r.post("/webhooks", hook).text("id")
	a = r.Do("POST", "/webhooks", jsonOf(t, hook))
	refused(t, "a webhook", a, 403, "quota_exceeded")
	wantQuota(t, "a webhook", a.Body, "webhooks", 1, 1)
	send(t, r.Client, "DELETE", "/webhooks/"+id, "", 204)
	r.post("/webhooks", hook)
}
