package fleetpages

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// perPage is how many records a list shows at once.
const perPage = 40

// with returns the address of the page with some parameters set, in pairs of name
// and value; an empty value takes one away. The rest stays, but for where a list
// was: another list begins at its beginning.
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

// after returns where the page of a list that is asked for begins; nil for the
// first one. What is no such place is the beginning.
func after(r *web.Request) *fleet.Cursor {
	text, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("after"))
	var c fleet.Cursor
	if err != nil || len(text) == 0 || json.Unmarshal(text, &c) != nil || c.ID == "" {
		return nil
	}
	return &c
}

// pager leads from a page of a list to the next one, and back to the first.
func pager(r *web.Request, next *fleet.Cursor) (web.Pager, error) {
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

// decode reads the documents of a list.
func decode[T any](docs []fleet.Record) ([]T, error) {
	list := make([]T, len(docs))
	for i := range docs {
		if err := json.Unmarshal(docs[i].JSON, &list[i]); err != nil {
			return nil, fmt.Errorf("read a record of a list: %w", err)
		}
	}
	return list, nil
}
