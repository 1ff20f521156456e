package deskapi

import (
	"cmp"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/rest"
)

// whole answers pages of a short, bounded list that the service returns completely. Ids sort by
// creation, which is the only order.
func whole[T any](r *rest.Request, records []T, id func(T) string) (rest.Response, error) {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b T) int {
		if r.Sort().Descending {
			a, b = b, a
		}
		return cmp.Compare(id(a), id(b))
	})
	if r.Exporting() {
		return rest.Export(rest.All(records)), nil
	}
	var after string
	more, err := r.Cursor(&after)
	if err != nil {
		return rest.Response{}, err
	}
	if more {
		records = slices.DeleteFunc(records, func(x T) bool {
			if r.Sort().Descending {
				return id(x) >= after
			}
			return id(x) <= after
		})
	}
	if len(records) <= r.Limit() {
		return rest.List(records, nil), nil
	}
	records = records[:r.Limit()]
	return rest.List(records, id(records[len(records)-1])), nil
}
