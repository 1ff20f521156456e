package db

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"zombiezen.com/go/sqlite"
)

// bind binds an argument: a basic type, a type or a pointer of such a kind, a [driver.Valuer],
// or a slice for "= ANY", which becomes JSON. A [time.Time] is refused, like by PostgreSQL for
// BIGINT columns; use [Time].
func (s *sqliteStmt) bind(n int, arg any) error {
	switch v := arg.(type) {
	case nil:
		s.BindNull(n)
	case string:
		s.large = s.large || len(v) >= largeArguments
		s.BindText(n, v)
	case int64:
		s.BindInt64(n, v)
	case int:
		s.BindInt64(n, int64(v))
	case bool:
		s.BindBool(n, v)
	case float64:
		s.BindFloat(n, v)
	case []byte:
		if v == nil {
			s.BindNull(n)
			return nil
		}
		s.large = s.large || len(v) >= largeArguments
		s.BindBytes(n, v)
	case []string:
		return s.bindList(n, v, len(v) == 0)
	case []int64:
		return s.bindList(n, v, len(v) == 0)
	case time.Time:
		return errors.New("a time must be stored by db.Time")
	case driver.Valuer:
		if r := reflect.ValueOf(arg); r.Kind() == reflect.Pointer && r.IsNil() {
			s.BindNull(n)
			return nil
		}
		value, err := v.Value()
		if err != nil {
			return err
		}
		return s.bind(n, value)
	default:
		return s.bindKind(n, reflect.ValueOf(arg))
	}
	return nil
}

func (s *sqliteStmt) bindList(n int, list any, empty bool) error {
	if empty {
		s.BindText(n, "[]")
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	s.BindText(n, string(text))
	return nil
}

// bindKind binds a value by its kind.
func (s *sqliteStmt) bindKind(n int, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		return s.bind(n, v.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.BindInt64(n, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return fmt.Errorf("%d is too large", v.Uint())
		}
		s.BindInt64(n, int64(v.Uint()))
	case reflect.Bool:
		s.BindBool(n, v.Bool())
	case reflect.Float32, reflect.Float64:
		s.BindFloat(n, v.Float())
	case reflect.Pointer:
		if v.IsNil() {
			s.BindNull(n)
			return nil
		}
		return s.bind(n, v.Elem().Interface())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return s.bind(n, v.Bytes())
		}
		return s.bindList(n, v.Interface(), v.Len() == 0)
	default:
		return fmt.Errorf("a %s cannot be stored", v.Type())
	}
	return nil
}

// scan implements [cursor].
func (s *sqliteStmt) scan(dest []any) error {
	if s.ahead || s.ended {
		return errNoRow
	}
	if n := s.ColumnCount(); n != len(dest) {
		return fmt.Errorf("the row has %d columns, got %d destinations", n, len(dest))
	}
	for i, d := range dest {
		if err := s.scanColumn(i, d); err != nil {
			return fmt.Errorf("column %d (%s): %w", i, s.ColumnName(i), err)
		}
	}
	return nil
}

var errNull = errors.New("NULL has no place in the destination")

func (s *sqliteStmt) scanColumn(i int, dest any) error {
	kind := s.ColumnType(i)
	switch d := dest.(type) {
	case *string:
		if kind == sqlite.TypeNull {
			return errNull
		}
		*d = s.ColumnText(i)
	case *int64:
		return s.scanInt(i, kind, d)
	case *int:
		var n int64
		err := s.scanInt(i, kind, &n)
		*d = int(n)
		return err
	case *bool:
		return s.scanBool(i, kind, d)
	case *float64:
		return s.scanFloat(i, kind, d)
	case *[]byte:
		*d = s.columnBytes(i, kind)
	case *sql.NullInt64:
		if d.Valid = kind != sqlite.TypeNull; !d.Valid {
			d.Int64 = 0
			return nil
		}
		return s.scanInt(i, kind, &d.Int64)
	case *sql.RawBytes: // valid until the next row, so its memory is used again
		if *d == nil {
			*d = sql.RawBytes{}
		}
		*d = s.appendBytes((*d)[:0], i, kind)
	case *any:
		*d = s.columnValue(i, kind)
	case timeScanner:
		if kind == sqlite.TypeNull {
			*d.t = time.Time{}
			return nil
		}
		var n int64
		err := s.scanInt(i, kind, &n)
		*d.t = time.UnixMicro(n).UTC()
		return err
	case textScanner:
		*d.s = s.ColumnText(i) // empty for NULL
	case jsonScanner:
		if kind == sqlite.TypeNull {
			return nil
		}
		return json.Unmarshal(s.columnBytes(i, kind), d.v)
	case sql.Scanner:
		return d.Scan(s.columnValue(i, kind))
	default:
		return s.scanKind(i, kind, reflect.ValueOf(dest))
	}
	return nil
}

func (s *sqliteStmt) scanInt(i int, kind sqlite.ColumnType, d *int64) (err error) {
	switch kind {
	case sqlite.TypeInteger:
		*d = s.ColumnInt64(i)
	case sqlite.TypeNull:
		return errNull
	default:
		*d, err = strconv.ParseInt(s.ColumnText(i), 10, 64)
	}
	return err
}

func (s *sqliteStmt) scanFloat(i int, kind sqlite.ColumnType, d *float64) (err error) {
	switch kind {
	case sqlite.TypeInteger, sqlite.TypeFloat:
		*d = s.ColumnFloat(i)
	case sqlite.TypeNull:
		return errNull
	default:
		*d, err = strconv.ParseFloat(s.ColumnText(i), 64)
	}
	return err
}

func (s *sqliteStmt) scanBool(i int, kind sqlite.ColumnType, d *bool) error {
	if kind == sqlite.TypeNull {
		return errNull
	}
	if n := s.ColumnInt64(i); kind != sqlite.TypeInteger || n < 0 || n > 1 {
		return fmt.Errorf("%q is no boolean", s.ColumnText(i))
	}
	*d = s.ColumnInt64(i) == 1
	return nil
}

// columnBytes returns a copy of a text or blob, nil for NULL.
func (s *sqliteStmt) columnBytes(i int, kind sqlite.ColumnType) []byte {
	return s.appendBytes([]byte{}, i, kind)
}

// appendBytes appends a text or blob to b. For NULL it returns nil.
func (s *sqliteStmt) appendBytes(b []byte, i int, kind sqlite.ColumnType) []byte {
	switch kind {
	case sqlite.TypeNull:
		return nil
	case sqlite.TypeInteger, sqlite.TypeFloat:
		return append(b, s.ColumnText(i)...)
	}
	n := s.ColumnLen(i)
	if cap(b)-len(b) < n { // no more than needed: most callers retain it
		b = append(make([]byte, 0, len(b)+n), b...)
	}
	s.ColumnBytes(i, b[len(b):len(b)+n])
	return b[:len(b)+n]
}

// columnValue returns a value as a string, an int64, a float64, a []byte or nil.
func (s *sqliteStmt) columnValue(i int, kind sqlite.ColumnType) any {
	switch kind {
	case sqlite.TypeInteger:
		return s.ColumnInt64(i)
	case sqlite.TypeFloat:
		return s.ColumnFloat(i)
	case sqlite.TypeText:
		return s.ColumnText(i)
	case sqlite.TypeBlob:
		return s.columnBytes(i, kind)
	default:
		return nil
	}
}

// scanKind scans into a pointer to a type of a basic kind, or to a pointer, which NULL sets to
// nil.
func (s *sqliteStmt) scanKind(i int, kind sqlite.ColumnType, dest reflect.Value) error {
	if dest.Kind() != reflect.Pointer || dest.IsNil() {
		return fmt.Errorf("the destination is a %s, not a pointer", dest.Type())
	}
	switch v := dest.Elem(); v.Kind() {
	case reflect.Pointer:
		if kind == sqlite.TypeNull {
			v.SetZero()
			return nil
		}
		target := reflect.New(v.Type().Elem())
		if err := s.scanColumn(i, target.Interface()); err != nil {
			return err
		}
		v.Set(target)
	case reflect.String:
		if kind == sqlite.TypeNull {
			return errNull
		}
		v.SetString(s.ColumnText(i))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var n int64
		if err := s.scanInt(i, kind, &n); err != nil {
			return err
		}
		if v.OverflowInt(n) {
			return fmt.Errorf("%d does not fit into %s", n, v.Type())
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var n int64
		if err := s.scanInt(i, kind, &n); err != nil {
			return err
		}
		if n < 0 || v.OverflowUint(uint64(n)) {
			return fmt.Errorf("%d does not fit into %s", n, v.Type())
		}
		v.SetUint(uint64(n))
	case reflect.Bool:
		var b bool
		if err := s.scanBool(i, kind, &b); err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Float32, reflect.Float64:
		var f float64
		if err := s.scanFloat(i, kind, &f); err != nil {
			return err
		}
		v.SetFloat(f)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return fmt.Errorf("the destination is a %s", dest.Type())
		}
		v.SetBytes(s.columnBytes(i, kind))
	default:
		return fmt.Errorf("the destination is a %s", dest.Type())
	}
	return nil
}
