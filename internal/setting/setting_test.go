package setting_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/audit/audittest"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/seal"
	"github.com/kickstand-dev/kickstand/internal/setting"
)

// TestValuesAreSealed: the database has no readable value, and another secret key finds an error instead of none.
func TestValuesAreSealed(t *testing.T) {
	d := dbtest.New(t)
	const secret = "smtp://desk:hunter2@mail.example.com"
	s := setting.Open(d, seal.New(seal.NewKey()), audittest.Open(d))
	if err := s.Save(t.Context(), map[string]string{setting.SMTPURL: secret, setting.SignUp: "invited"}); err != nil {
		t.Fatal(err)
	}
	var stored []byte
	if err := d.QueryRow(t.Context(), "SELECT value FROM server_settings WHERE name = $1", setting.SMTPURL).Scan(&stored); err != nil || bytes.Contains(stored, []byte("hunter2")) {
		t.Errorf("stored %q, %v", stored, err)
	}
	var changes string
	if err := d.QueryRow(t.Context(), "SELECT changes FROM audit_entries WHERE target_id = $1", setting.SMTPURL).Scan(&changes); err != nil || bytes.Contains([]byte(changes), []byte("hunter2")) {
		t.Errorf("recorded %s, %v", changes, err)
	}
	values, err := s.Values(t.Context())
	if err != nil || values[setting.SMTPURL].Text != secret || values[setting.SMTPURL].ChangedAt.IsZero() || len(values) != 2 {
		t.Errorf("got %v, %v", values, err)
	}
	if _, err := setting.Open(d, seal.New(seal.NewKey()), nil).Values(t.Context()); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("with another key: %v", err)
	}
}

// TestOverlay: the page shows below a flag, a variable and the file, and above the default.
func TestOverlay(t *testing.T) {
	values := map[string]setting.Value{setting.SMTPURL: {Text: "smtp://desk:hunter2@mail.example.com?tls=required"}, "base-url": {Text: "x"}}
	for source, want := range map[setting.Source]string{
		setting.Flag: "own", setting.Variable: "own", setting.File: "own", setting.Default: "smtp://********@mail.example.com?********",
	} {
		list := []setting.Setting{{Name: setting.SMTPURL, Value: "own", Source: source}, {Name: "base-url", Value: "own"}}
		got := setting.Overlay(list, values)
		if got[0].Value != want || got[1].Value != "own" || list[0].Value != "own" {
			t.Errorf("%s: got %+v", source, got)
		}
	}
}
