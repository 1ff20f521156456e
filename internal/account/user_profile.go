package account

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Limits of a profile, in bytes.
const (
	maxAvatarURL   = 2048
	maxPreferences = 16 << 10
)

// Profile is the input of auth.updateProfile; nil fields stay as they are.
type Profile struct {
	Name        *string         `json:"name"`
	AvatarURL   *string         `json:"avatar_url"` // empty: remove it
	Preferences json.RawMessage `json:"preferences,omitempty"`
}

// Check implements [problem.Checker].
func (p Profile) Check(v *problem.Validation) {
	if p.Name != nil {
		v.Line("name", strings.TrimSpace(*p.Name), 1, 255)
	}
	if p.AvatarURL != nil && *p.AvatarURL != "" && !webAddress(*p.AvatarURL) {
		v.Add("avatar_url", "must be an http or https URL of at most %d bytes", maxAvatarURL)
	}
	switch {
	case p.Preferences == nil:
	case !utf8.Valid(p.Preferences): // JSON must be UTF-8, and json.Valid does not check it
		v.Add("preferences", "must be valid UTF-8")
	case !json.Valid(p.Preferences) || bytes.TrimSpace(p.Preferences)[0] != '{':
		v.Add("preferences", "must be an object")
	case len(p.Preferences) > maxPreferences:
		v.Add("preferences", "must have at most %d bytes", maxPreferences)
	}
}

// webAddress reports whether s is a URL that a browser may load.
func webAddress(s string) bool {
	if len(s) > maxAvatarURL || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
}

// UpdateProfile updates the profile fields that are set. Preferences are replaced as a
// whole.
func (s *Service) UpdateProfile(ctx context.Context, userID string, p Profile) (User, error) {
	if err := problem.Check(p); err != nil {
		return User{}, err
	}
	var u User
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if u, err = lockUser(ctx, tx, userID); err != nil {
			return err
		}
		before := u
		if p.Name != nil {
			u.Name = strings.TrimSpace(*p.Name)
		}
		if p.AvatarURL != nil {
			u.AvatarURL = *p.AvatarURL
		}
		if p.Preferences != nil {
			u.Preferences = bytes.TrimSpace(p.Preferences)
		}
		u.UpdatedAt = tx.Now
		if err := tx.Queue(ctx, "UPDATE users SET name = $2, avatar_url = $3, preferences = $4, updated_at = $5 WHERE id = $1",
			u.ID, u.Name, db.Text(u.AvatarURL), string(u.Preferences), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("update user: %w", err)
		}
		return s.recordProfileTx(ctx, tx, u, before)
	})
	if err != nil {
		return User{}, err
	}
	return u, nil
}

// recordProfileTx records a changed profile. Preferences concern the pages only and are
// left out.
func (s *Service) recordProfileTx(ctx context.Context, tx *db.Tx, u, before User) error {
	changes := map[string]audit.Change{}
	if u.Name != before.Name {
		changes["name"] = audit.Change{From: before.Name, To: u.Name}
	}
	if u.AvatarURL != before.AvatarURL {
		changes["avatar_url"] = audit.Change{From: before.AvatarURL != "", To: u.AvatarURL != ""} // a URL may hold a secret
	}
	if len(changes) == 0 {
		return nil
	}
	return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: u.OrganizationID, Action: AuditProfileUpdated, Target: userTarget(u), Changes: changes})
}
