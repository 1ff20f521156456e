package deskapi

import (
	"iter"

	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// orNull returns nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// changed returns the update from stored metadata to sent, which is merged already.
func changed(stored map[string]string, sent optional.Value[map[string]string]) desk.MetadataUpdate {
	if !sent.Set {
		return nil
	}
	c := make(desk.MetadataUpdate)
	for key := range stored {
		c[key] = nil
	}
	for key, value := range sent.Value {
		c[key] = &value
	}
	return c
}

// paged answers with a page of a list of the desk.
func paged[T any](list []T, next *keyset.Cursor) rest.Response {
	if next == nil {
		return rest.List(list, nil)
	}
	return rest.List(list, next)
}

// exportChunk is the number of records looked up together.
const exportChunk = 200

// inChunks adapts a list of the desk, which yields single records, to a sequence of wire
// records, converted in chunks.
func inChunks[T, W any](each func(fn func(*T) error) error, wire func([]T) ([]W, error)) iter.Seq2[W, error] {
	return rest.Each(func(give func(W) error) error {
		var chunk []T
		flush := func() error {
			list, err := wire(chunk)
			if err != nil {
				return err
			}
			for _, w := range list {
				if err := give(w); err != nil {
					return err
				}
			}
			chunk = chunk[:0]
			return nil
		}
		err := each(func(record *T) error {
			if chunk = append(chunk, *record); len(chunk) < exportChunk {
				return nil
			}
			return flush()
		})
		if err != nil {
			return err
		}
		return flush()
	})
}
