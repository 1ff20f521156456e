package rest

import (
	"errors"
	"iter"
)

var errStopped = errors.New("rest: nobody reads on")

// Each is the sequence, for [Export], of what each gives: it calls give with one
// record after the other, and ends with the error that give returns, if any.
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

// All is the sequence of records that are there already.
func All[T any](records []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, record := range records {
			if !yield(record, nil) {
				return
			}
		}
	}
}
