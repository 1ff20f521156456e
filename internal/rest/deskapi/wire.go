package deskapi

import (
	"iter"

	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/google/uuid"
)

// wired returns the records as they are answered.
func wired[T, W any](records []T, wire func(*T) W) []W {
	out := make([]W, len(records))
	for i := range records {
		out[i] = wire(&records[i])
	}
	return out
}

// exported is the sequence of what each calls back with, as it is answered.
func exported[T, W any](each func(fn func(*T) error) error, wire func(*T) (W, error)) iter.Seq2[W, error] {
	return rest.Each(func(give func(W) error) error {
		return each(func(x *T) error {
			w, err := wire(x)
			if err != nil {
				return err
			}
			return give(w)
		})
	})
}

// plain is a wire function that cannot fail, for [exported].
func plain[T, W any](wire func(*T) W) func(*T) (W, error) {
	return func(x *T) (W, error) { return wire(x), nil }
}

// after returns the id that the page before ended with; empty for the first page.
func after(r *rest.Request) (string, error) {
	var id uuid.UUID
	more, err := r.Cursor(&id)
	if err != nil || !more {
		return "", err
	}
	return id.String(), nil
}

// position is what after reads: an id, or nil when there is no more.
func position(id string) any {
	if id == "" {
		return nil
	}
	return id
}
