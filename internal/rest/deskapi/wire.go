package deskapi

import (
	"iter"

	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/google/uuid"
)

// wired converts records to wire format.
func wired[T, W any](records []T, wire func(*T) W) []W {
	out := make([]W, len(records))
	for i := range records {
		out[i] = wire(&records[i])
	}
	return out
}

// exported returns the records of each as a sequence in wire format.
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

// plain adapts a wire function without errors to [exported].
func plain[T, W any](wire func(*T) W) func(*T) (W, error) {
	return func(x *T) (W, error) { return wire(x), nil }
}

// after returns the last id of the previous page; empty on the first page.
func after(r *rest.Request) (string, error) {
	var id uuid.UUID
	more, err := r.Cursor(&id)
	if err != nil || !more {
		return "", err
	}
	return id.String(), nil
}

// position returns the cursor position for after: an id, or nil at the end.
func position(id string) any {
	if id == "" {
		return nil
	}
	return id
}
