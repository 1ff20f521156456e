package account

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Preferences are the members of a user's preferences that the dashboard reads. The
// stored object may have others, of other clients.
type Preferences struct {
	TimeZone    string // IANA name; empty: the browser's
	DateForm    string // one of DateForms
	Clock       string // one of Clocks
	Theme       string // one of Themes
	Density     string // one of Densities
	UndoSend    int    // seconds in which a reply can be undone, one of UndoTimes
	DefaultView string // path of the list that the inbox opens; empty: all open tickets
	AfterSend   string // one of AfterSends
	Signature   string // Markdown, below replies by mail; empty: none
}

// Values of preferences. The first one is the default.
var (
	DateForms  = []string{"2 Jan 2006", "02.01.2006", "01/02/2006", "2006-01-02"} // layouts of package time
	Clocks     = []string{Clock24, Clock12}
	Themes     = []string{ThemeSystem, "light", "dark"}
	Densities  = []string{DensityComfortable, "compact"}
	AfterSends = []string{"stay", AfterSendNext}
	UndoTimes  = []int{0, 5, 10, 20, 30} // seconds; the default is 10
)

// MaxSignature bounds a signature in characters.
const MaxSignature = 2000

// Values that the dashboard compares.
const (
	Clock24            = "24h"
	Clock12            = "12h"
	ThemeSystem        = "system"
	DensityComfortable = "comfortable"
	AfterSendNext      = "next"
)

// DefaultPreferences returns the preferences of a user who has set none.
func DefaultPreferences() Preferences {
	return Preferences{DateForm: DateForms[0], Clock: Clocks[0], Theme: Themes[0], Density: Densities[0], UndoSend: 10, AfterSend: AfterSends[0]}
}

// preference is a member of the stored object: the field that it sets and the field's check.
type preference struct {
	name  string
	field any // *string or *int
	check func(v *problem.Validation, path string)
}

// members returns the members that p consists of.
func (p *Preferences) members() []preference {
	oneOf := func(value *string, values []string) func(*problem.Validation, string) {
		return func(v *problem.Validation, path string) {
			if !slices.Contains(values, *value) {
				v.Add(path, "must be one of %q", values)
			}
		}
	}
	return []preference{
		{"time_zone", &p.TimeZone, p.checkTimeZone},
		{"date_form", &p.DateForm, oneOf(&p.DateForm, DateForms)},
		{"clock", &p.Clock, oneOf(&p.Clock, Clocks)},
		{"theme", &p.Theme, oneOf(&p.Theme, Themes)},
		{"density", &p.Density, oneOf(&p.Density, Densities)},
		{"undo_send_seconds", &p.UndoSend, p.checkUndoSend},
		{"default_view", &p.DefaultView, p.checkDefaultView},
		{"after_send", &p.AfterSend, oneOf(&p.AfterSend, AfterSends)},
		{"signature", &p.Signature, func(v *problem.Validation, path string) { v.Length(path, p.Signature, 0, MaxSignature) }},
	}
}

func (p *Preferences) checkTimeZone(v *problem.Validation, path string) {
	if p.TimeZone == "" {
		return
	}
	if _, err := period.Location(p.TimeZone); err != nil {
		v.Add(path, "%s", err)
	}
}

func (p *Preferences) checkUndoSend(v *problem.Validation, path string) {
	if !slices.Contains(UndoTimes, p.UndoSend) {
		v.Add(path, "must be one of %v", UndoTimes)
	}
}

var viewPath = regexp.MustCompile(`^/inbox/[a-z0-9][a-z0-9_/-]{0,99}$`)

func (p *Preferences) checkDefaultView(v *problem.Validation, path string) {
	if p.DefaultView != "" && !viewPath.MatchString(p.DefaultView) {
		v.Add(path, "must be the path of a list below /inbox")
	}
}

// Check implements [problem.Checker].
func (p Preferences) Check(v *problem.Validation) {
	for _, m := range p.members() {
		m.check(v, m.name)
	}
}

// ReadPreferences reads the stored object of a user. Members that are missing or invalid
// have their defaults.
func ReadPreferences(object json.RawMessage) Preferences {
	p := DefaultPreferences()
	stored := map[string]json.RawMessage{}
	if len(object) <= len("{}") || json.Unmarshal(object, &stored) != nil {
		return p
	}
	standard := DefaultPreferences()
	defaults := standard.members()
	for i, m := range p.members() {
		value, ok := stored[m.name]
		if !ok {
			continue
		}
		var v problem.Validation
		err := json.Unmarshal(value, m.field)
		if m.check(&v, m.name); err == nil && v.Err() == nil {
			continue
		}
		switch field := m.field.(type) {
		case *string:
			*field = *defaults[i].field.(*string)
		case *int:
			*field = *defaults[i].field.(*int)
		}
	}
	return p
}

// SetPreferences stores p in the user's preferences. Other members of the object stay as
// they are. Errors: Invalid; TooLarge if they leave no room.
func (s *Service) SetPreferences(ctx context.Context, userID string, p Preferences) (User, error) {
	if err := problem.Check(p); err != nil {
		return User{}, err
	}
	var u User
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if u, err = lockUser(ctx, tx, userID); err != nil {
			return err
		}
		if u.Preferences, err = p.writeInto(u.Preferences); err != nil {
			return err
		}
		if len(u.Preferences) > maxPreferences {
			return problem.New(problem.TooLarge, "the preferences of other clients leave no room for these")
		}
		u.UpdatedAt = tx.Now
		if err := tx.Queue(ctx, "UPDATE users SET preferences = $2, updated_at = $3 WHERE id = $1", u.ID, string(u.Preferences), u.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("update preferences: %w", err)
		}
		return nil
	})
	if err != nil {
		return User{}, err
	}
	return u, nil
}

// writeInto returns the object with the members of p after its other members, which stay
// byte for byte. It replaces an object that is not valid.
func (p *Preferences) writeInto(object json.RawMessage) (json.RawMessage, error) {
	known := p.members()
	out := bytes.NewBufferString("{")
	add := func(name, value []byte) {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	if json.Valid(object) && object[0] == '{' {
		in := json.NewDecoder(bytes.NewReader(object))
		if _, err := in.Token(); err != nil {
			return nil, err
		}
		for in.More() {
			begin := in.InputOffset()
			name, err := in.Token()
			if err != nil {
				return nil, err
			}
			rawName := bytes.TrimLeft(object[begin:in.InputOffset()], ", \t\r\n")
			var value json.RawMessage
			if err := in.Decode(&value); err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(known, func(m preference) bool { return m.name == name }) {
				add(rawName, value)
			}
		}
	}
	for _, m := range known {
		value, err := json.Marshal(m.field)
		if err != nil {
			return nil, err
		}
		add([]byte(`"`+m.name+`"`), value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
