package desk

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MetadataUpdate is a change of a record's metadata (fleet-api.md 0) by key: nil
// removes a key, absent keys stay.
type MetadataUpdate map[string]*string

// Bounds of metadata, the last two in characters.
const (
	maxKeys     = 50
	maxMetaKey  = 40
	maxValue    = 500
	maxExternal = 128
)

func (c MetadataUpdate) check(v *problem.Validation) {
	for key, value := range c {
		path := "metadata." + key
		if n := utf8.RuneCountInString(key); n == 0 || n > maxMetaKey {
			v.AddCode("too_long", "metadata", "has a key that is not 1 to %d characters long", maxMetaKey)
			continue
		}
		v.Text("metadata", key)
		if value != nil {
			v.Length(path, *value, 0, maxValue)
		}
	}
}

// apply changes to and returns the change; nil if there is none. Error: Invalid for
// too many keys.
func (c MetadataUpdate) apply(to *map[string]string) (*event.Change, error) {
	after := maps.Clone(*to)
	if after == nil {
		after = make(map[string]string)
	}
	for key, value := range c {
		if value == nil {
			delete(after, key)
		} else {
			after[key] = *value
		}
	}
	if maps.Equal(*to, after) {
		return nil, nil
	}
	if len(after) > maxKeys {
		var v problem.Validation
		v.AddCode("too_long", "metadata", "must have at most %d keys", maxKeys)
		return nil, v.Err()
	}
	before := *to
	if before == nil {
		before = map[string]string{}
	}
	*to = after
	return &event.Change{From: before, To: after}, nil
}

// metadataJSON is the stored form.
func metadataJSON(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	return db.JSON(m)
}

func checkExternalID(v *problem.Validation, id string) {
	v.Line("external_id", id, 0, maxExternal)
}

func externalIDTaken(kind string) *problem.Error {
	e := problem.New(problem.Conflict, "another %s has this external_id", kind)
	e.Code, e.Details = "already_exists", map[string]any{"member": "external_id"}
	return e
}

// orNil returns s, or nil for an empty string, as in events.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// boundMetadata returns a channel's metadata cut to the bounds of a record's.
func boundMetadata(all map[string]string) map[string]string {
	var few map[string]string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if short := line(key, maxMetaKey); short != "" && len(few) < maxKeys {
			if few == nil {
				few = make(map[string]string)
			}
			few[short] = truncate(clean(all[key]), maxValue)
		}
	}
	return few
}

// truncate shortens text to max characters.
func truncate(text string, max int) string {
	if r := []rune(text); len(r) > max {
		return string(r[:max-1]) + "…"
	}
	return text
}
