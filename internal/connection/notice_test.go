package connection_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// office has two admins and records mails to them.
type office struct {
	mu    sync.Mutex // transactions may commit concurrently
	mails []mail.Message
}

func (*office) AdminAddresses(context.Context, db.Querier, string) ([]mail.Address, error) {
	return []mail.Address{{Address: "a@office.example"}, {Address: "b@office.example"}}, nil
}

func (o *office) EnqueueMailTx(_ context.Context, tx *db.Tx, m mail.Message) error {
	tx.AfterCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mails = append(o.mails, m)
	})
	return nil
}

func TestNews(t *testing.T) {
	d := dbtest.New(t)
	s, o := open(d, seal.New(seal.NewKey())), new(office)
	s.EnableAdminMail(o, o, "https://desk.example")
	c := connect(t, s, connection.New{OrganizationID: "org", Channel: "sms", Address: "+14155550100"})
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	origin := channel.Source{OrganizationID: "org", ConnectionID: c.ID, ReceivedAt: at}
	news := func(o channel.Source, n channel.ConnectionEvent) connection.EventResult {
		t.Helper()
		var r any
		if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			r, err = s.IngestConnectionEventTx(t.Context(), tx, o, &n)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return r.(connection.EventResult)
	}
	got := func() connection.Connection {
		t.Helper()
		c, err := s.Find(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	mails := func(want int) {
		t.Helper()
		if len(o.mails) != want {
			t.Errorf("got %d mails, want %d", len(o.mails), want)
		}
		o.mails = nil
	}

	for _, tt := range []struct {
		text, want string
		mails      int
	}{
		{"the quality is low", "noticed", 2},
		{"the quality is low", "duplicate", 0},
		{"the quality is very low", "noticed", 0}, // within the same day
	} {
		if r := news(origin, channel.ConnectionEvent{Kind: channel.Noticed, Text: tt.text}); r.Outcome != tt.want {
			t.Errorf("%s: got %+v, want %s", tt.text, r, tt.want)
		}
		mails(tt.mails)
	}
	if c := got(); !c.Enabled || c.Notice == nil || *c.Notice != (connection.Notice{Kind: channel.Noticed, Text: "the quality is very low", At: at}) {
		t.Errorf("got %+v, %+v", c, c.Notice)
	}
	if _, err := s.List(t.Context(), "org"); err != nil {
		t.Fatal(err)
	}

	gone := channel.ConnectionEvent{Kind: channel.Disconnected, Text: "the app was removed"}
	if r := news(origin, gone); r.Outcome != "disconnected" {
		t.Errorf("got %+v", r)
	}
	if len(o.mails) > 0 && !strings.Contains(o.mails[0].Text, "the app was removed") {
		t.Errorf("got mail %q", o.mails[0].Text)
	}
	mails(2)
	for _, n := range []channel.ConnectionEvent{gone, {Kind: channel.Noticed, Text: "and more"}} {
		if r := news(origin, n); r.Outcome != "duplicate" {
			t.Errorf("afterwards: got %+v", r)
		}
	}
	mails(0)
	if c := got(); c.Enabled || c.Notice == nil || c.Notice.Text != gone.Text {
		t.Errorf("got %+v, %+v", c, c.Notice)
	}

	if err := s.SetEnabled(t.Context(), "org", c.ID, true); err != nil {
		t.Fatal(err)
	}
	if r := news(origin, gone); r.Outcome != "recorded" {
		t.Errorf("from before it was switched on: got %+v", r)
	}
	if c := got(); !c.Enabled || c.Notice != nil {
		t.Errorf("got %+v, %+v, want it on", c, c.Notice)
	}
	origin.ReceivedAt = time.Now()
	if r := news(origin, gone); r.Outcome != "disconnected" {
		t.Errorf("again: got %+v", r)
	}
	mails(2)
	if r := news(channel.Source{OrganizationID: "other", ConnectionID: c.ID}, gone); r.Outcome != "recorded" {
		t.Errorf("another organization's: got %+v", r)
	}
	if r := news(channel.Source{OrganizationID: "org"}, gone); r.Outcome != "recorded" {
		t.Errorf("of nothing: got %+v", r)
	}
}

func TestNotice(t *testing.T) {
	d := dbtest.New(t)
	s := open(d, seal.New(seal.NewKey()))
	c := connect(t, s, connection.New{OrganizationID: "org", Channel: "sms", Address: "+14155550100", Credentials: map[string]string{"token": "x"}})
	in := func(fn func(tx *db.Tx) error) error { return d.Write(t.Context(), fn) }
	for _, text := range []string{"no permission", ""} {
		if err := in(func(tx *db.Tx) error { return s.NoticeTx(t.Context(), tx, "org", c.ID, text) }); err != nil {
			t.Fatal(err)
		}
		got, err := s.Find(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if shown := got.Notice != nil && got.Notice.Text == text; shown != (text != "") || !got.Enabled {
			t.Errorf("got %+v, want %q", got.Notice, text)
		}
	}
	if err := in(func(tx *db.Tx) error { return s.NoticeTx(t.Context(), tx, "other", c.ID, "x") }); problem.Of(err) != problem.NotFound {
		t.Errorf("got %v, want not found", err)
	}
	for _, org := range []string{"other", "org"} {
		if err := in(func(tx *db.Tx) error { return s.RetireTx(t.Context(), tx, org, c.ID) }); err != nil {
			t.Fatal(err)
		}
		got, err := s.Find(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if retired := !got.Enabled && len(got.CredentialValues()) == 0; retired != (org == "org") {
			t.Errorf("%s: got %+v", org, got)
		}
	}
}
