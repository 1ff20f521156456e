package deskapi_test

import (
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
)

// TestWhatProvidersSay: the API shows edits, reactions and receipts of messages, and errors of
// channels.
func TestWhatProvidersSay(t *testing.T) {
	r := newRig(t)
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	take := func(e channel.Event) (res desk.Result) {
		t.Helper()
		if err := r.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			res, err = r.desk.IngestTx(t.Context(), tx, desk.InboundEvent{OrganizationID: r.ours.ID, Channel: "whatsapp", Event: e})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return res
	}
	in := take(channel.Event{Message: &channel.Message{
		ExternalID: "w.1", ThreadKey: "DE.1", From: channel.Party{ID: "DE.1", Name: "Ana"}, Text: "Yes", Metadata: map[string]string{"payload": "YES"},
	}})
	take(channel.Event{Annotation: &channel.Annotation{ExternalID: "w.1", Kind: channel.Edited, By: channel.Party{ID: "DE.1"}, Text: "No", At: at}})
	path := "/tickets/" + in.TicketID + "/messages/" + in.MessageID
	got := r.get(path)
	for member, want := range map[string]string{
		"text": `"No"`, "original_text": `"Yes"`, "metadata": `{"payload":"YES"}`, "deleted": "false", "redacted": "false",
		"annotations": `[{"at":"2026-11-20T10:00:00.000Z","by":"Ana","kind":"edited","text":"No"}]`,
	} {
		if got := jsonOf(t, got[member]); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	take(channel.Event{Annotation: &channel.Annotation{ExternalID: "w.1", Kind: channel.Deleted, By: channel.Party{ID: "DE.1"}, At: at.Add(time.Second)}})
	if got := r.get(path); jsonOf(t, got["deleted"]) != "true" || got["text"] != nil || got["original_text"] != nil {
		t.Errorf("a deleted message is %v", got)
	}

	made := r.post("/channels", fields{"channel": "sms", "address": "+14155550100"})
	if made["notice"] != nil {
		t.Errorf("a new channel has notice %v", made["notice"])
	}
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := r.connections.IngestConnectionEventTx(t.Context(), tx, channel.Source{OrganizationID: r.ours.ID, ConnectionID: made.text("id"), ReceivedAt: at},
			&channel.ConnectionEvent{Kind: channel.Disconnected, Text: "the app was removed"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	shown := r.get("/channels/" + made.text("id"))
	if got, want := jsonOf(t, shown["notice"]), `{"at":"2026-11-20T10:00:00.000Z","kind":"disconnected","text":"the app was removed"}`; got != want || shown["enabled"] != false {
		t.Errorf("got %v, notice %s, want it off, %s", shown["enabled"], got, want)
	}
}
