package ops

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
)

// A line is a row in the form that is the same on both engines, and that backups store: a JSON
// array with the values of the columns. Bytes are in base64; so is a text that is not valid
// UTF-8, in an object {"base64": …}.

// appendLine appends the line of a row.
func appendLine(line []byte, columns []db.Column, values []any) ([]byte, error) {
	line = append(line, '[')
	for i, c := range columns {
		if i > 0 {
			line = append(line, ',')
		}
		var err error
		if line, err = appendValue(line, c.Type, values[i]); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return append(line, ']'), nil
}

func appendValue(line []byte, t db.Type, value any) ([]byte, error) {
	if value == nil {
		return append(line, "null"...), nil
	}
	switch t {
	case db.TextType:
		text, ok := value.(string)
		if b, isBytes := value.([]byte); isBytes {
			text, ok = string(b), true
		}
		if !ok {
			break
		}
		if !utf8.ValidString(text) {
			line = append(line, `{"base64":"`...)
			line = base64.StdEncoding.AppendEncode(line, []byte(text))
			return append(line, `"}`...), nil
		}
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text); err != nil {
			return nil, err
		}
		return append(line, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...), nil
	case db.IntegerType:
		switch n := value.(type) {
		case int64:
			return strconv.AppendInt(line, n, 10), nil
		case int32: // PostgreSQL's INTEGER
			return strconv.AppendInt(line, int64(n), 10), nil
		}
	case db.FloatType:
		switch n := value.(type) {
		case float64:
			return strconv.AppendFloat(line, n, 'g', -1, 64), nil
		case int64:
			return strconv.AppendFloat(line, float64(n), 'g', -1, 64), nil
		}
	case db.BooleanType:
		switch b := value.(type) {
		case bool:
			return strconv.AppendBool(line, b), nil
		case int64:
			return strconv.AppendBool(line, b != 0), nil
		}
	case db.BytesType:
		b, ok := value.([]byte)
		if text, isText := value.(string); isText {
			b, ok = []byte(text), true
		}
		if ok {
			line = append(line, '"')
			line = base64.StdEncoding.AppendEncode(line, b)
			return append(line, '"'), nil
		}
	}
	return nil, fmt.Errorf("a value of type %T cannot be copied as %s", value, t)
}

// parseLine returns the values of a line, as arguments of a statement.
func parseLine(line []byte, columns []db.Column) ([]any, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return nil, fmt.Errorf("a row is not JSON: %w", err)
	}
	if len(raw) != len(columns) {
		return nil, fmt.Errorf("a row has %d values, want %d", len(raw), len(columns))
	}
	values := make([]any, len(raw))
	for i, c := range columns {
		var err error
		if values[i], err = parseValue(raw[i], c.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return values, nil
}

func parseValue(raw json.RawMessage, t db.Type) (any, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	switch t {
	case db.TextType:
		if raw[0] == '{' {
			var encoded struct{ Base64 []byte }
			err := json.Unmarshal(raw, &encoded)
			return string(encoded.Base64), err
		}
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case db.IntegerType:
		return strconv.ParseInt(string(raw), 10, 64)
	case db.FloatType:
		return strconv.ParseFloat(string(raw), 64)
	case db.BooleanType:
		return strconv.ParseBool(string(raw))
	case db.BytesType:
		b := []byte{}
		err := json.Unmarshal(raw, &b)
		return b, err
	}
	return nil, fmt.Errorf("values of type %s cannot be copied", t)
}

// keyColumns returns the columns of a table's key, in its order.
func keyColumns(t db.Table) []db.Column {
	var list []db.Column
	for _, name := range t.Key {
		i := slices.IndexFunc(t.Columns, func(c db.Column) bool { return c.Name == name })
		list = append(list, t.Columns[i])
	}
	return list
}

// keyOf returns the line of the key of a row.
func keyOf(t db.Table, values []any) (string, error) {
	var key []any
	for _, name := range t.Key {
		key = append(key, values[slices.IndexFunc(t.Columns, func(c db.Column) bool { return c.Name == name })])
	}
	line, err := appendLine(nil, keyColumns(t), key)
	return string(line), err
}

// pageRows is the number of rows that a statement reads.
const pageRows = 2000

// lines reads the rows of a table in the order of its key, after the given one (in the form of a
// line; empty: all), in pages. A line is valid until the next.
func lines(ctx context.Context, q db.Querier, t db.Table, after string) iter.Seq2[[]byte, error] {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = db.Quote(c.Name)
	}
	keys := make([]string, len(t.Key))
	places := make([]string, len(t.Key))
	for i, name := range t.Key {
		keys[i], places[i] = db.Quote(name), fmt.Sprintf("$%d", i+1)
	}
	first := fmt.Sprintf("SELECT %s FROM %s", strings.Join(names, ", "), db.Quote(t.Name))
	order := fmt.Sprintf(" ORDER BY %s LIMIT %d", strings.Join(keys, ", "), pageRows)
	next := fmt.Sprintf("%s WHERE (%s) > (%s)%s", first, strings.Join(keys, ", "), strings.Join(places, ", "), order)
	return func(yield func([]byte, error) bool) {
		fail := func(err error) { yield(nil, fmt.Errorf("read %s: %w", t.Name, err)) }
		var line []byte
		for {
			query, args := first+order, []any(nil)
			if after != "" {
				var err error
				if args, err = parseLine([]byte(after), keyColumns(t)); err != nil {
					fail(err)
					return
				}
				query = next
			}
			n, more, err := page(ctx, q, t, query, args, &line, &after, yield)
			if err != nil {
				fail(err)
				return
			}
			if !more || n < pageRows {
				return
			}
		}
	}
}

// page yields the rows of one statement. It sets last to the key of the last row.
func page(ctx context.Context, q db.Querier, t db.Table, query string, args []any, line *[]byte, last *string, yield func([]byte, error) bool) (n int, more bool, err error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return 0, false, err
	}
	defer rows.Close()
	values := make([]any, len(t.Columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return n, false, err
		}
		if *line, err = appendLine((*line)[:0], t.Columns, values); err != nil {
			return n, false, err
		}
		if n++; n == pageRows {
			if *last, err = keyOf(t, values); err != nil {
				return n, false, err
			}
		}
		if !yield(*line, nil) {
			return n, false, rows.Close()
		}
	}
	return n, true, rows.Err()
}
