package schema

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"
)

// parquetGroupRows and parquetGroupBytes bound a row group, which a writer holds in memory: its rows,
// and the size of the JSON that they come from.
const (
	parquetGroupRows  = 10_000
	parquetGroupBytes = 16 << 20
)

// ParquetWriter writes records as a Parquet file with the columns of the CSV. Any column may be null.
// Integers are INT64, numbers DOUBLE, times TIMESTAMP in UTC with milliseconds, dates DATE, and arrays
// and maps JSON. It holds at most one row group in memory.
type ParquetWriter struct {
	out     *parquet.GenericWriter[any]
	columns []csvColumn
	types   []*Type // by cell
	cells   [][]byte
	row     parquet.Row
	group   int // bytes of JSON in the row group
}

// NewParquetWriter returns a writer of all fields that answers contain.
func NewParquetWriter(out io.Writer, of *Record) *ParquetWriter {
	var header []string
	o := &ParquetWriter{columns: csvColumns(of.Members, "", false, &header)}
	o.cells, o.types = make([][]byte, len(header)), make([]*Type, len(header))
	o.place(o.columns)
	fields := make(parquet.Group, len(header))
	for i, name := range header {
		fields[name] = parquet.Optional(o.types[i].parquetNode())
	}
	o.out = parquet.NewGenericWriter[any](out, parquet.NewSchema(of.SchemaName(), parquetColumns{fields, header}),
		parquet.Compression(&snappy.Codec{}), parquet.MaxRowsPerRowGroup(parquetGroupRows))
	return o
}

// parquetColumns is a group in the order of names; the package sorts by name.
type parquetColumns struct {
	parquet.Group
	names []string
}

// Fields implements [parquet.Node].
func (g parquetColumns) Fields() []parquet.Field {
	fields := g.Group.Fields()
	ordered := make([]parquet.Field, len(fields))
	for _, f := range fields {
		ordered[slices.Index(g.names, f.Name())] = f
	}
	return ordered
}

// place notes the types of the cells.
func (o *ParquetWriter) place(columns []csvColumn) {
	for i := range columns {
		if c := &columns[i]; c.cell >= 0 {
			o.types[c.cell] = c.typ
		} else {
			o.place(c.sub)
		}
	}
}

// isTime reports whether values are times, in UTC or with another offset.
func (t *Type) isTime() bool {
	return t.kind == kindTime || t.kind == kindString && t.format == "date-time"
}

func (t *Type) parquetNode() parquet.Node {
	switch {
	case t.isTime():
		return parquet.Timestamp(parquet.Millisecond)
	case t.kind == kindDate:
		return parquet.Date()
	case t.kind == kindInt:
		return parquet.Int(64)
	case t.kind == kindNumber:
		return parquet.Leaf(parquet.DoubleType)
	case t.kind == kindBool:
		return parquet.Leaf(parquet.BooleanType)
	case t.kind == kindEnum:
		return parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	case t.kind == kindString:
		return parquet.String()
	}
	return parquet.JSON()
}

// Begin does nothing: the file begins with its first row group.
func (o *ParquetWriter) Begin() error { return nil }

// Write writes the row of a record, given as the JSON of an answer.
func (o *ParquetWriter) Write(record []byte) error {
	if err := fillRow(o.columns, record, o.cells); err != nil {
		return err
	}
	o.row = o.row[:0]
	for i, text := range o.cells {
		value, defined := parquet.NullValue(), 0
		if len(text) > 0 && text[0] != 'n' {
			var err error
			if value, err = o.types[i].parquetValue(text); err != nil {
				return fmt.Errorf("column %d of a Parquet file: %w", i, err)
			}
			defined = 1
		}
		o.row = append(o.row, value.Level(0, defined, i))
	}
	if _, err := o.out.WriteRows([]parquet.Row{o.row}); err != nil {
		return err
	}
	if o.group += len(record); o.group < parquetGroupBytes {
		return nil
	}
	o.group = 0
	return o.out.Flush()
}

// parquetValue returns the value of JSON text other than null.
func (t *Type) parquetValue(text []byte) (parquet.Value, error) {
	if text[0] == '"' && t.kind < kindArray {
		text = TextOf(text, nil)
	}
	switch {
	case t.isTime():
		at, err := time.Parse(time.RFC3339Nano, string(text))
		return parquet.Int64Value(at.UnixMilli()), err
	case t.kind == kindDate:
		day, err := time.Parse(time.DateOnly, string(text))
		return parquet.Int32Value(int32(day.Unix() / (24 * 60 * 60))), err
	case t.kind == kindInt:
		n, err := strconv.ParseInt(string(text), 10, 64)
		return parquet.Int64Value(n), err
	case t.kind == kindNumber:
		n, err := strconv.ParseFloat(string(text), 64)
		return parquet.DoubleValue(n), err
	case t.kind == kindBool:
		return parquet.BooleanValue(text[0] == 't'), nil
	}
	return parquet.ByteArrayValue(text), nil
}

// End writes the last row group and the footer. Readers refuse a file without one.
func (o *ParquetWriter) End() error { return o.out.Close() }
