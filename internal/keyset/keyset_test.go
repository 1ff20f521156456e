package keyset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestCheckPage(t *testing.T) {
	for _, c := range []struct {
		name  string
		sort  keyset.Sort
		after *keyset.Cursor
		limit int
		want  string // empty: valid
	}{
		{"the zero values", keyset.Sort{}, nil, 0, ""},
		{"all set", keyset.Sort{Field: "name"}, &keyset.Cursor{Value: "a", ID: "1"}, 10, ""},
		{"another field", keyset.Sort{Field: "color"}, nil, 0, "invalid: sort must be one of id, name"},
		{"negative limit", keyset.Sort{}, nil, -1, "invalid: limit must be from 1 to 10"},
		{"high limit", keyset.Sort{}, nil, 11, "invalid: limit must be from 1 to 10"},
		{"NUL in a value", keyset.Sort{}, &keyset.Cursor{Value: "\x00"}, 0, "invalid: cursor must not contain NUL characters"},
		{"NUL in an id", keyset.Sort{}, &keyset.Cursor{ID: "\x00"}, 0, "invalid: cursor must not contain NUL characters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v problem.Validation
			keyset.CheckPage(&v, c.sort, c.after, c.limit, 10, "id", "name")
			got := ""
			if err := v.Err(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCheckValues(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		want   string // empty: valid
	}{
		"none":     {nil, ""},
		"most":     {make([]string, keyset.MaxValues), ""},
		"too many": {make([]string, keyset.MaxValues+1), "invalid: color must have at most 100 values"},
		"NUL":      {[]string{"red", "\x00"}, "invalid: color must not contain NUL characters"},
	} {
		var v problem.Validation
		keyset.CheckValues(&v, "color", c.values)
		got := ""
		if err := v.Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestStatement(t *testing.T) {
	st := keyset.Statement{Args: []any{"first"}}
	st.Addf("SELECT id FROM t WHERE a = $1 AND b = %s", st.Arg(int64(2)))
	st.Addf(" AND c IN (%s)", keyset.Placeholders(&st, []string{"x", "y"}))
	if got, want := st.String(), "SELECT id FROM t WHERE a = $1 AND b = $2 AND c IN ($3, $4)"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if want := []any{"first", int64(2), "x", "y"}; !slices.Equal(st.Args, want) {
		t.Errorf("arguments are %v, want %v", st.Args, want)
	}
}

// numbers is a list of 1 to 7 in pages of three.
func numbers(after int) ([]int, int, error) {
	var rows []int
	for n := after + 1; n <= min(after+4, 7); n++ {
		rows = append(rows, n)
	}
	page, next := keyset.TrimPage(rows, 3, func(last *int) int { return *last })
	return page, next, nil
}

func TestEachPage(t *testing.T) {
	var got []int
	add := func(n *int) error { got = append(got, *n); return nil }
	if err := keyset.EachPage("numbers", add, numbers); err != nil || !slices.Equal(got, []int{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got %v, %v", got, err)
	}

	full := errors.New("full")
	err := keyset.EachPage("numbers", func(n *int) error {
		if *n == 5 {
			return full
		}
		return nil
	}, numbers)
	if err != full {
		t.Errorf("an error of fn became %v", err)
	}

	err = keyset.EachPage("numbers", add, func(int) ([]int, int, error) { return nil, 0, full })
	if !errors.Is(err, full) || !strings.HasPrefix(err.Error(), "export numbers: ") {
		t.Errorf("an error of a page became %v", err)
	}
}

// All statements of a snapshot see the same rows, and on PostgreSQL have its planner.
func TestSnapshot(t *testing.T) {
	d := dbtest.New(t)
	plan := func(q db.Querier) string {
		t.Helper()
		var mode string
		if err := q.QueryRow(t.Context(), "SELECT current_setting('plan_cache_mode')").Scan(&mode); err != nil {
			t.Fatal(err)
		}
		return mode
	}
	for _, planner := range []keyset.Planner{keyset.ByIndexes, keyset.ByValues} {
		err := keyset.Snapshot(t.Context(), d, d, planner, func(q db.Querier) error {
			if _, ok := q.(*db.Tx); !ok {
				t.Errorf("fn got a %T", q)
			}
			return keyset.Snapshot(t.Context(), d, q, planner, func(inner db.Querier) error {
				if inner != q {
					t.Error("the snapshot of a transaction is another one")
				}
				if !d.Postgres() {
					return nil
				}
				if got, want := plan(q) == "force_custom_plan", planner == keyset.ByValues; got != want {
					t.Errorf("custom plans are %v, want %v", got, want)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestExportTimeLimit(t *testing.T) {
	d := dbtest.New(t)
	err := keyset.Export(t.Context(), d, func(ctx context.Context, tx *db.Tx) error {
		end, ok := ctx.Deadline()
		if left := time.Until(end); !ok || left > keyset.MaxExport || left < keyset.MaxExport-time.Minute {
			t.Errorf("the export ends in %v", left)
		}
		var one int
		return tx.QueryRow(ctx, "SELECT 1").Scan(&one)
	})
	if err != nil {
		t.Error(err)
	}
}
