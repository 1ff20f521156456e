// Package setting has the settings of the server as operators see them, and stores those that they
// change on a page.
//
// A setting has the first value of: a flag, a variable, the configuration file, the page, the
// default. So a value that the deployment fixes cannot be changed on the page.
package setting

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Source is where the value of a setting comes from.
type Source string

// The sources, from the strongest to the weakest.
const (
	Flag     Source = "flag"
	Variable Source = "variable"
	File     Source = "file"
	Page     Source = "page"
	Default  Source = "default"
)

// The settings that a page can change.
const (
	SMTPURL     = "smtp-url"
	DeliveryKey = "email-delivery-api-key"
	MailFrom    = "mail-from"
	SignUp      = "sign-up"
	SignInBrand = "sign-in-brand"
	Retention   = "retention"
)

// Changeable are the settings that a page can change.
var Changeable = []string{SMTPURL, DeliveryKey, MailFrom, SignUp, SignInBrand, Retention}

// Setting is a setting with its effective value.
type Setting struct {
	Name   string // of the flag, without dashes: base-url
	Area   string // of the page: "Mail"
	Help   string // as --help prints it
	Value  string // secrets are masked; empty: none
	Source Source
	// By is the flag, variable or file that has the value, or the command whose default it is; empty
	// for the page and the server's default.
	By        string
	ChangedAt time.Time // on the page; zero: another source
}

// Fixed reports whether the deployment fixes the value, so that the page cannot change it.
func (s Setting) Fixed() bool { return s.Source == Flag || s.Source == Variable || s.Source == File }

// Changeable reports whether the page can change the value.
func (s Setting) Changeable() bool { return slices.Contains(Changeable, s.Name) && !s.Fixed() }

// mask replaces a secret.
const mask = "********"

// Mask returns a mask that shows only whether a secret is set.
func Mask(secret string) string {
	if secret == "" {
		return ""
	}
	return mask
}

// MaskURL masks user, password and query, which may have keys. It masks text that is not clearly a
// URL completely: after an unencoded character in a password the rest of it may be anywhere.
func MaskURL(raw string) string {
	if raw == "" || strings.HasPrefix(raw, "sqlite:") || strings.HasPrefix(raw, "file:") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Fragment != "" || strings.Contains(u.Path+u.RawQuery, "@") {
		return mask
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += mask + "@"
	}
	shown += u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		shown += "?" + mask
	}
	return shown
}

// Show returns the value of a changeable setting with its secrets masked.
func Show(name, value string) string {
	switch name {
	case SMTPURL:
		return MaskURL(value)
	case DeliveryKey:
		return Mask(value)
	}
	return value
}

// Value is a value of the page.
type Value struct {
	Text      string
	ChangedAt time.Time
}

// Store stores the values of the page. It is safe for concurrent use.
type Store struct {
	db    *db.DB
	box   *seal.Box
	audit *audit.Log
}

// Open returns a store.
func Open(d *db.DB, box *seal.Box, log *audit.Log) *Store { return &Store{d, box, log} }

const purpose = "server setting" // of the encryption

// Changed is recorded in the deployment's chain of the audit log for each changed value.
const Changed audit.Action = "server_setting.updated"

// Values returns the values of the page by the names of their settings. Settings that this version
// does not know are left out.
func (s *Store) Values(ctx context.Context) (map[string]Value, error) { return s.values(ctx, s.db) }

func (s *Store) values(ctx context.Context, q db.Querier) (map[string]Value, error) {
	type row struct {
		name   string
		sealed []byte
		at     int64
	}
	rows, err := db.All(ctx, q, func(r db.Row) (v row, err error) {
		return v, r.Scan(&v.name, &v.sealed, &v.at)
	}, "SELECT name, value, changed_at FROM server_settings")
	if err != nil {
		return nil, fmt.Errorf("read the settings of the page: %w", err)
	}
	values := make(map[string]Value)
	for _, r := range rows {
		if !slices.Contains(Changeable, r.name) {
			continue
		}
		text, err := s.box.Open(purpose, r.sealed, r.name)
		if err != nil {
			return nil, fmt.Errorf("read the setting %s of the page: %w", r.name, err)
		}
		values[r.name] = Value{string(text), time.UnixMicro(r.at).UTC()}
	}
	return values, nil
}

// Save stores values by the names of their settings, all or none; an empty one deletes the value of
// the page. The caller has checked them. Each change is recorded in the audit log, without secrets.
func (s *Store) Save(ctx context.Context, values map[string]string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		before, err := s.values(ctx, tx)
		if err != nil {
			return err
		}
		for _, name := range Changeable {
			value, given := values[name]
			if !given || value == before[name].Text {
				continue
			}
			if err := s.saveTx(ctx, tx, name, before[name].Text, value); err != nil {
				return fmt.Errorf("save the setting %s: %w", name, err)
			}
		}
		return nil
	})
}

func (s *Store) saveTx(ctx context.Context, tx *db.Tx, name, before, value string) (err error) {
	if value == "" {
		_, err = tx.Exec(ctx, "DELETE FROM server_settings WHERE name = $1", name)
	} else {
		_, err = tx.Exec(ctx, `INSERT INTO server_settings (name, value, changed_at) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at`,
			name, s.box.Seal(purpose, []byte(value), name), tx.Now.UnixMicro())
	}
	if err != nil {
		return err
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{
		Action: Changed, Target: audit.Target{Type: "server_setting", ID: name, Name: name},
		Changes: map[string]audit.Change{"value": {From: shown(name, before), To: shown(name, value)}},
	})
}

// shown returns a value for the audit log; nil: none.
func shown(name, value string) any {
	if value == "" {
		return nil
	}
	return Show(name, value)
}

// Error is a refused value.
type Error struct {
	Name string // of the setting
	Err  error
}

func (e *Error) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Overlay returns settings with the values of the page where the deployment fixes none.
func Overlay(list []Setting, values map[string]Value) []Setting {
	list = slices.Clone(list)
	for i := range list {
		s := &list[i]
		if v, ok := values[s.Name]; ok && s.Changeable() {
			s.Value, s.Source, s.ChangedAt = Show(s.Name, v.Text), Page, v.ChangedAt
		}
	}
	return list
}
