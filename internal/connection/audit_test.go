package connection_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestAudited makes every change of a connection: each has an entry without secrets, and an
// update without changes has none.
func TestAudited(t *testing.T) {
	d := dbtest.New(t)
	s, log := open(d, newBox(t)), audittest.Open(d)
	s.SetAuditLog(log)
	const planted = "planted-" + "secret-"
	c := connect(t, s, connection.New{
		OrganizationID: "o1", Channel: "sms", Address: "+14155550100", Secrets: []string{planted + "1"},
		Credentials: map[string]string{"auth_token": planted + "2"}, Settings: map[string]string{"token": planted + "3"},
	})
	change := func(fn func(ctx context.Context, tx *db.Tx) error) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return fn(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
	}
	update := func(with connection.Change) {
		t.Helper()
		change(func(ctx context.Context, tx *db.Tx) error {
			_, err := s.UpdateTx(ctx, tx, "o1", c.ID, with)
			return err
		})
	}
	update(connection.Change{Name: new("Hotline"), Enabled: new(false)})
	update(connection.Change{Name: new("Hotline"), Enabled: new(false)}) // no change
	update(connection.Change{Secrets: []string{planted + "4"}, Credentials: map[string]string{"sid": planted + "5"}, Settings: map[string]string{"token": planted + "6"}})
	change(func(ctx context.Context, tx *db.Tx) error {
		_, err := s.RotateTx(ctx, tx, "o1", c.ID, planted+"7", 0)
		return err
	})
	change(func(ctx context.Context, tx *db.Tx) error { return s.DeleteTx(ctx, tx, "o1", c.ID) })

	var got []string
	for _, e := range audittest.List(t, log, "o1", audit.Query{Group: "channel", TargetID: c.ID}) {
		changes, _ := json.Marshal(e.Changes)
		details, _ := json.Marshal(e.Details)
		got = append(got, e.Action+" "+e.Target.Name+" "+string(changes)+" "+string(details))
	}
	slices.Reverse(got)
	want := []string{
		`channel.connected +14155550100 {} {"channel":"sms"}`,
		`channel.proven +14155550100 {} {"channel":"sms","method":"operator"}`,
		`channel.updated +14155550100 {"enabled":{"from":true,"to":false},"name":{"from":"+14155550100","to":"Hotline"}} {"channel":"sms"}`,
		`channel.updated +14155550100 {} {"channel":"sms","credentials_changed":["auth_token","sid"],"secrets_replaced":true,"settings_changed":["token"]}`,
		`channel.secret_rotated +14155550100 {} {"channel":"sms"}`,
		`channel.disconnected +14155550100 {} {"channel":"sms"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(strings.Join(got, ""), planted) {
		t.Error("the log has a secret")
	}
}
