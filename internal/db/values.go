package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Time is the stored form of t: microseconds since 1970, NULL for the zero time.
func Time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// IntoTime scans a value stored by [Time]. NULL becomes the zero time.
func IntoTime(t *time.Time) sql.Scanner { return timeScanner{t} }

type timeScanner struct{ t *time.Time }

func (s timeScanner) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.t = time.Time{}
	case int64:
		*s.t = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("stored time is a %T", src)
	}
	return nil
}

// ScanInt64 implements [pgtype.Int64Scanner], which costs less than Scan.
func (s timeScanner) ScanInt64(v pgtype.Int8) error {
	*s.t = time.Time{}
	if v.Valid {
		*s.t = time.UnixMicro(v.Int64).UTC()
	}
	return nil
}

// Text is the stored form of an optional string: NULL for the empty one.
func Text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// IntoText scans a value stored by [Text]. NULL becomes the empty string.
func IntoText(s *string) sql.Scanner { return textScanner{s} }

type textScanner struct{ s *string }

func (s textScanner) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.s = ""
	case string:
		*s.s = v
	case []byte:
		*s.s = string(v)
	default:
		return fmt.Errorf("stored text is a %T", src)
	}
	return nil
}

// ScanText implements [pgtype.TextScanner], which costs less than Scan.
func (s textScanner) ScanText(v pgtype.Text) error {
	*s.s = v.String
	return nil
}

// JSON is the stored form of any value: its JSON as text.
func JSON(v any) driver.Valuer { return jsonValue{v} }

type jsonValue struct{ v any }

func (j jsonValue) Value() (driver.Value, error) {
	b, err := json.Marshal(j.v)
	if err != nil {
		return nil, err
	}
	return string(b), nil
}

// IntoJSON scans a value stored by [JSON] into the value that v points to. NULL leaves it
// unchanged.
func IntoJSON(v any) sql.Scanner { return jsonScanner{v} }

type jsonScanner struct{ v any }

func (s jsonScanner) Scan(src any) error {
	switch t := src.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(t), s.v)
	case []byte:
		return json.Unmarshal(t, s.v)
	default:
		return fmt.Errorf("stored JSON is a %T", src)
	}
}

// ScanText implements [pgtype.TextScanner], which costs less than Scan.
func (s jsonScanner) ScanText(v pgtype.Text) error {
	if !v.Valid {
		return nil
	}
	return json.Unmarshal([]byte(v.String), s.v)
}
