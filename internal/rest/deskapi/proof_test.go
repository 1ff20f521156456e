package deskapi_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

// EnqueueMailTx implements [connection.Mailer].
func (r *rig) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() { r.sent = append(r.sent, m.To[0].Address+": "+m.Text) })
	return nil
}

// LookupTXT returns the test's DNS records.
func (r *rig) LookupTXT(context.Context, string) ([]string, error) { return r.records, nil }

// TestConnectedElsewhereIsNotRevealed: connecting an address of another organization answers
// the same as a free one.
func TestConnectedElsewhereIsNotRevealed(t *testing.T) {
	r := newRig(t)
	const held = "held@acme.example"
	if _, _, err := r.connections.Connect(t.Context(), connection.New{OrganizationID: r.ours.ID, Channel: "email-raw", Address: held, ByOperator: true}); err != nil {
		t.Fatal(err)
	}
	send(t, r.Client, "POST", "/channels", `{"channel":"email-raw","address":"claimed@acme.example"}`, 201)
	them := r.other()
	same := func(body, address string) string {
		body = strings.ReplaceAll(body, address, "ADDRESS")
		return regexp.MustCompile(`"(id|channel_id|created_at|updated_at|generated_secret|webhook_url|name|value|instance|request_id)":"[^"]*"`).ReplaceAllString(body, "")
	}
	var free []string
	for _, address := range []string{"free@a.example", held, "claimed@acme.example"} {
		made := them.Do("POST", "/channels", `{"channel":"email-raw","address":"`+address+`"}`)
		if made.Status != 201 {
			t.Fatalf("%s: got %d %s", address, made.Status, made.Body)
		}
		id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(made.Body)[1]
		at := "/channels/" + id
		answers := []string{same(made.Body, address), same(them.Get(at).Body, address), same(them.Get(at+"/proof").Body, address)}
		for _, body := range []string{`{"way":"dns"}`, `{"code":"12345678"}`, `{"way":"mail"}`, `{"code":"12345678"}`, `{"way":"provider"}`} {
			a := them.Do("POST", at+"/proof", body)
			answers = append(answers, same(regexp.MustCompile(`"(sent_at|expires_at)":"[^"]*"|value kickstand-proof-\w+|_kickstand-challenge\.[a-z.]+`).ReplaceAllString(a.Body, ""), address))
		}
		if free == nil {
			free = answers
			continue
		}
		for i := range answers {
			if answers[i] != free[i] {
				t.Errorf("%s: answer %d is\n%s\nand for a free address\n%s", address, i, answers[i], free[i])
			}
		}
	}
}

// TestChannelProof: an address is proven by a code or a DNS record, and every answer shows it.
func TestChannelProof(t *testing.T) {
	r := newRig(t)
	made := send(t, r.Client, "POST", "/channels", `{"channel":"email-raw","address":"help@acme.example"}`, 201)
	at := "/channels/" + made.text("id")
	proof := func(of any) map[string]any { return of.(map[string]any) }
	if p := proof(made["proof"]); p["state"] != "pending" || p["method"] != nil || jsonOf(t, p["needed_for"]) != `["receive","send"]` || jsonOf(t, p["ways"]) != `["mail","dns"]` ||
		proof(p["dns_record"])["name"] != "_kickstand-challenge.acme.example" {
		t.Errorf("made %v", p)
	}
	for _, c := range []struct {
		what, body, code string
		pointers         []string
	}{
		{"neither", `{}`, "validation_failed", []string{"#/way required"}},
		{"both", `{"way":"mail","code":"1"}`, "validation_failed", []string{"#/way required"}},
		{"no such way", `{"way":"pigeon"}`, "validation_failed", []string{"#/way invalid_value"}},
		{"nothing to answer", `{"code":"12345678"}`, "validation_failed", []string{"#/code invalid_value"}},
	} {
		refused(t, c.what, r.Do("POST", at+"/proof", c.body), 422, c.code, c.pointers...)
	}
	refused(t, "a way of others", r.Do("POST", at+"/proof", `{"way":"text"}`), 409, "invalid_transition")
	refused(t, "no record", r.Do("POST", at+"/proof", `{"way":"dns"}`), 409, "invalid_transition")
	refused(t, "theirs", r.other().Do("POST", at+"/proof", `{"way":"mail"}`), 404, "not_found")

	began := send(t, r.Client, "POST", at+"/proof", `{"way":"mail"}`, 200, "Idempotency-Key: once")
	if ch := proof(began["challenge"]); ch["way"] != "mail" || ch["tries_left"] != 5.0 || ch["publish"] != nil {
		t.Errorf("the challenge is %v", ch)
	}
	send(t, r.Client, "POST", at+"/proof", `{"way":"mail"}`, 200, "Idempotency-Key: once")
	if len(r.sent) != 1 || !strings.HasPrefix(r.sent[0], "help@acme.example: ") {
		t.Fatalf("sent %q", r.sent)
	}
	if strings.Contains(jsonOf(t, began), "kickstand-proof-"+regexp.MustCompile(`Reference: kickstand-proof-(\w+)`).FindStringSubmatch(r.sent[0])[1]) {
		t.Error("the answer shows the token of the mail")
	}
	limited := r.Do("POST", at+"/proof", `{"way":"mail"}`)
	refused(t, "within the minute", limited, 429, "rate_limited")
	code := regexp.MustCompile(`\d{4} \d{4}`).FindString(r.sent[0])
	wrong := "0000 0000"
	if wrong == code {
		wrong = "0000 0001"
	}
	refused(t, "a wrong code", r.Do("POST", at+"/proof", `{"code":"`+wrong+`"}`), 422, "validation_failed", "#/code invalid_value")
	if left := proof(r.get(at + "/proof")["challenge"])["tries_left"]; left != 4.0 {
		t.Errorf("after a wrong code there are %v tries left, want 4", left)
	}
	if got := send(t, r.Client, "POST", at+"/proof", `{"code":"`+code+`"}`, 200); got["state"] != "proven" || got["method"] != "mail" || got["challenge"] != nil || got["proven_at"] == nil {
		t.Errorf("proven: %v", got)
	}
	shown := r.get(at)
	if p := proof(shown["proof"]); p["state"] != "proven" || jsonOf(t, p["needed_for"]) != "[]" || shown["webhook_url"] != origin+"/api/webhooks/inbound-email" {
		t.Errorf("shown as %v", shown)
	}
	refused(t, "again", r.Do("POST", at+"/proof", `{"way":"mail"}`), 409, "invalid_transition")

	second := send(t, r.Client, "POST", "/channels", `{"channel":"email-raw","address":"sales@acme.example"}`, 201)
	r.records = []string{proof(proof(second["proof"])["dns_record"])["value"].(string)}
	if got := send(t, r.Client, "POST", "/channels/"+second.text("id")+"/proof", `{"way":"dns"}`, 200); got["method"] != "dns" {
		t.Errorf("proven: %v", got)
	}
}

// TestPendingSendsNothing: no message is sent from an unproven address; a reply is refused with
// the reason and not stored. Replies from before a lost proof wait, and are sent once it is
// restored.
func TestPendingSendsNothing(t *testing.T) {
	server := mailtest.NewServer(t, mailtest.ServerConfig{})
	carrier, err := mail.OpenSMTP(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(r *rig) { r.mail = carrier })
	send(t, r.Client, "POST", "/channels", `{"channel":"email-raw","address":"help@acme.example"}`, 201)
	list, err := r.connections.List(t.Context(), r.ours.ID)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	c := list[0]
	in := r.mails(c, "From: Alex <alex@example.com>\nTo: help@acme.example\nSubject: Flat tyre\nMessage-ID: <1@example.com>\n\nIt is flat.\n")
	path := "/tickets/" + in.TicketID + "/messages"
	a := r.Do("POST", path, `{"kind":"reply","text":"Too early."}`)
	refused(t, "a reply", a, 409, "invalid_transition")
	if !strings.Contains(a.Problem().Detail, "help@acme.example is not proven yet") {
		t.Errorf("refused with %s", a.Body)
	}
	a = r.Do("POST", "/tickets", `{"subject":"Hello","text":"Too early.","channel":"email","customer":{"email":"ana@client.example"}}`)
	refused(t, "a first message", a, 409, "invalid_transition")
	if n := len(r.get(path).list("data")); n != 1 {
		t.Errorf("the ticket has %d messages, want 1", n)
	}
	change := func(proven bool) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			if proven {
				_, err = r.connections.ProveTx(t.Context(), tx, c.ID)
			} else {
				_, err = r.connections.RevokeProofTx(t.Context(), tx, c.ID)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(true)
	made := r.post(path, fields{"kind": "reply", "text": "On its way."})
	change(false)
	r.runQueue()
	at := path + "/" + made.text("id")
	want := `{"error":"help@acme.example is not proven yet, so nothing can be sent from it: an admin can prove it under Settings, Channels","state":"queued"}`
	for end := time.Now().Add(30 * time.Second); jsonOf(t, r.get(at)["delivery"]) != want; {
		if time.Now().After(end) {
			t.Fatalf("delivery is %s", jsonOf(t, r.get(at)["delivery"]))
		}
	}
	if got := server.Received(t); len(got) != 0 {
		t.Errorf("the server got %+v", got)
	}
}
