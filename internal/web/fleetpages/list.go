package fleetpages

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// perPage is the page size of lists.
const perPage = 40

// with returns the page's URL with parameters set, in pairs of name and value; an
// empty value removes one. The cursor is removed, since the list changes.
func with(r *web.Request, pairs ...string) string {
	query := r.URL.Query()
	query.Del("after")
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			query.Del(pairs[i])
		} else {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return web.Address(r.URL.Path, query)
}

// after returns the cursor of the request; nil for the first page or an invalid
// cursor.
func after(r *web.Request) *keyset.Cursor {
	text, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("after"))
	var c keyset.Cursor
	if err != nil || len(text) == 0 || json.Unmarshal(text, &c) != nil || c.ID == "" {
		return nil
	}
	return &c
}

// pager links to the next page and back to the first.
func pager(r *web.Request, next *keyset.Cursor) (web.Pager, error) {
	var p web.Pager
	if r.URL.Query().Get("after") != "" {
		p.Newer = with(r)
	}
	if next != nil {
		text, err := json.Marshal(next)
		if err != nil {
			return p, fmt.Errorf("the place in a list: %w", err)
		}
		p.Older = with(r, "after", base64.RawURLEncoding.EncodeToString(text))
	}
	return p, nil
}

// decode decodes the records of a list.
func decode[T any](docs []fleet.Record) ([]T, error) {
	list := make([]T, len(docs))
	for i := range docs {
		if err := json.Unmarshal(docs[i].JSON, &list[i]); err != nil {
			return nil, fmt.Errorf("read a record of a list: %w", err)
		}
	}
	return list, nil
}
