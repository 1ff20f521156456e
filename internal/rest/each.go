package rest

import (
	"errors"
	"iter"
)

var errStopped = errors.New("rest: the consumer has stopped")

// Each adapts a callback iteration to a sequence for [Export]: each calls give with one record
// after another and returns the first error of give.
func Each[T any](each func(give func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := each(func(record T) error {
			if !yield(record, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			var none T
			yield(none, err)
		}
	}
}

// All returns a sequence of records in memory.
func All[T any](records []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, record := range records {
			if !yield(record, nil) {
				return
			}
		}
	}
}
