package kickstand

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
)

// Page is a page of a list.
type Page[T any] struct {
	Data       []T    `json:"data"`
	HasMore    bool   `json:"has_more"`
	NextCursor string `json:"next_cursor"`

	cursor string // of this page; the first page has none
	next   func(ctx context.Context, cursor string) (*Page[T], error)
}

// list sends a request for the first page of a list.
func list[T any](ctx context.Context, c *client, r request) (*Page[T], error) {
	page, err := call[Page[T]](ctx, c, r)
	switch {
	case err != nil || page == nil:
		return nil, err
	case page.Data == nil:
		return nil, errors.New("kickstand: the answer is not a list")
	}
	page.next = func(ctx context.Context, cursor string) (*Page[T], error) {
		next := r
		next.params = cursorParams{r.params, cursor}
		page, err := list[T](ctx, c, next)
		if page != nil {
			page.cursor = cursor
		}
		return page, err
	}
	return page, nil
}

// Next returns the next page, with the same filters, or nil after the last.
func (p *Page[T]) Next(ctx context.Context) (*Page[T], error) {
	if !p.HasMore {
		return nil, nil
	}
	if p.NextCursor == "" || p.NextCursor == p.cursor {
		return nil, errors.New("kickstand: the list has more records, but no new cursor")
	}
	return p.next(ctx, p.NextCursor)
}

// All yields the records of this page and of the following pages, which are fetched as the loop
// reaches them. An error ends the loop: a nil error comes with each record.
func (p *Page[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page := p; page != nil; {
			for _, record := range page.Data {
				if !yield(record, nil) {
					return
				}
			}
			next, err := page.Next(ctx)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			page = next
		}
	}
}

// modifyAttempts is the number of updates that a modification sends at most.
const modifyAttempts = 5

// modify reads a record, changes it and writes it back under its ETag.
func modify[T, U any](opts []CallOption, get func([]CallOption) (*T, error), change func(*T) (U, error), update func(U, []CallOption) (*T, error)) (*T, error) {
	for n := 1; ; n++ {
		var etag string
		record, err := get(append(opts[:len(opts):len(opts)], WithIfMatch(""), WithIfNoneMatch(""),
			WithOnResponse(func(r *Response) { etag = r.ETag })))
		if err != nil {
			return nil, err
		}
		if etag == "" {
			return nil, errors.New("kickstand: the record has no ETag, so a change could overwrite others")
		}
		changes, err := change(record)
		if err != nil {
			return nil, err
		}
		updated, err := update(changes, append(opts[:len(opts):len(opts)], WithIfMatch(etag), WithIfNoneMatch(""), WithIdempotencyKey("")))
		var problem *Problem
		if errors.As(err, &problem) && problem.Status == http.StatusPreconditionFailed && n < modifyAttempts {
			continue
		}
		return updated, err
	}
}

// unmarshal decodes a record and copies its text.
func unmarshal(text []byte, record any, raw *json.RawMessage) error {
	*raw = append(json.RawMessage(nil), text...)
	return json.Unmarshal(text, record)
}
