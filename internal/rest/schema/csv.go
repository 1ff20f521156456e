package schema

import (
	"bufio"
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// csvColumn maps a field to a CSV column. Objects have no column themselves; their fields have,
// with dotted names.
type csvColumn struct {
	name string
	typ  *Type
	only bool // read-only: imports skip it, whatever the cell holds
	cell int  // of the row; -1: an object
	sub  []csvColumn
}

// csvColumns returns the columns of members, and appends their names to header.
func csvColumns(members []Member, prefix string, secrets bool, header *[]string) []csvColumn {
	var out []csvColumn
	for i := range members {
		m := &members[i]
		if m.WriteOnly && !secrets {
			continue
		}
		s := csvColumn{name: m.Name, typ: &m.Type, cell: -1, only: m.Access == ReadOnly}
		if m.Type.kind == kindObject {
			s.sub = csvColumns(m.Type.members, prefix+m.Name+".", secrets, header)
		} else {
			s.cell = len(*header)
			*header = append(*header, prefix+m.Name)
		}
		out = append(out, s)
	}
	return out
}

// fillRow replaces the cells of a row by the values of a record.
func fillRow(columns []csvColumn, record []byte, cells [][]byte) error {
	if len(record) == 0 || record[0] != '{' {
		return errors.New("the record is no object")
	}
	clear(cells)
	fill(columns, record, cells)
	return nil
}

// fill writes the values of an object into their cells.
func fill(columns []csvColumn, text []byte, cells [][]byte) {
	next := 0 // records usually have their fields in the declared order
	for name, value := range MembersOf(text) {
		i := next
		if i >= len(columns) || columns[i].name != string(name) {
			for i = 0; i < len(columns) && columns[i].name != string(name); i++ {
			}
			if i == len(columns) {
				continue
			}
		}
		next = i + 1
		if s := &columns[i]; s.cell >= 0 {
			cells[s.cell] = value
		} else if len(value) > 0 && value[0] == '{' {
			fill(s.sub, value, cells)
		}
	}
}

// CSVWriter writes records as rows.
type CSVWriter struct {
	out     *bufio.Writer
	header  []string
	columns []csvColumn
	cells   [][]byte
	row     []byte // of the current row
	text    []byte // of a cell with escapes
}

// NewCSVWriter returns a writer of all fields that answers contain.
func NewCSVWriter(out *bufio.Writer, of *Record) *CSVWriter {
	o := &CSVWriter{out: out}
	o.columns = csvColumns(of.Members, "", false, &o.header)
	o.cells = make([][]byte, len(o.header))
	return o
}

// Begin writes the header row.
func (o *CSVWriter) Begin() error {
	o.row = o.row[:0]
	for i, name := range o.header {
		o.cell(i, []byte(name), false)
	}
	return o.endRow()
}

// Write writes the row of a record, given as the JSON of an answer.
func (o *CSVWriter) Write(record []byte) error {
	if err := fillRow(o.columns, record, o.cells); err != nil {
		return err
	}
	o.row = o.row[:0]
	for i, value := range o.cells {
		switch {
		case len(value) == 0 || value[0] == 'n':
			o.cell(i, nil, false)
		case value[0] != '"':
			o.cell(i, value, false)
		default:
			o.text = slices.Grow(o.text[:0], len(value)) // decoded text is never longer
			text := TextOf(value, o.text)
			o.cell(i, text, len(text) > 0 && isFormula(text[0]))
		}
	}
	return o.endRow()
}

// cell writes a cell by RFC 4180. A formula gets a leading apostrophe, because spreadsheets
// would run it.
func (o *CSVWriter) cell(i int, text []byte, formula bool) {
	if i > 0 {
		o.row = append(o.row, ',')
	}
	special := len(text) == 0 && len(o.cells) == 1
	for _, c := range text {
		if c == ',' || c == '"' || c == '\r' || c == '\n' {
			special = true
			break
		}
	}
	if special {
		o.row = append(o.row, '"')
	}
	if formula {
		o.row = append(o.row, '\'')
	}
	if !special {
		o.row = append(o.row, text...)
		return
	}
	for n := bytes.IndexByte(text, '"'); n >= 0; n = bytes.IndexByte(text, '"') {
		o.row = append(append(o.row, text[:n+1]...), '"')
		text = text[n+1:]
	}
	o.row = append(append(o.row, text...), '"')
}

func (o *CSVWriter) endRow() error {
	o.row = append(o.row, '\r', '\n')
	_, err := o.out.Write(o.row)
	return err
}

// End does nothing: CSV has no end.
func (o *CSVWriter) End() error { return nil }

// isFormula reports whether spreadsheets treat text with this first byte as a formula.
func isFormula(c byte) bool { return strings.IndexByte("=+-@\t\r", c) >= 0 }

// CSVRow reads one row and returns the remaining text. It passes each cell to yield, which may
// be nil. malformed: a quote is misplaced, and the rest of the row was skipped. open: a quoted
// cell does not end.
func CSVRow(text []byte, yield func(cell string)) (rest []byte, malformed, open bool) {
	give := func(cell []byte, quoted bool) {
		switch {
		case yield == nil:
		case quoted:
			yield(strings.ReplaceAll(string(cell), `""`, `"`))
		default:
			yield(string(cell))
		}
	}
	for {
		if len(text) > 0 && text[0] == '"' {
			end := 1
			for {
				n := bytes.IndexByte(text[end:], '"')
				if n < 0 {
					return nil, malformed, true
				}
				end += n + 1
				if end == len(text) || text[end] != '"' {
					break
				}
				end++
			}
			give(text[1:end-1], true)
			text = text[end:]
			switch {
			case len(text) == 0:
				return nil, malformed, false
			case text[0] == ',':
				text = text[1:]
				continue
			case text[0] == '\n':
				return text[1:], malformed, false
			case bytes.HasPrefix(text, []byte("\r\n")):
				return text[2:], malformed, false
			}
			malformed = true
			_, text, _ = bytes.Cut(text, []byte("\n"))
			return text, malformed, false
		}
		end := bytes.IndexAny(text, ",\n")
		cell, last := text, true
		if end >= 0 {
			cell, last = text[:end], text[end] == '\n'
			text = text[end+1:]
		} else {
			text = nil
		}
		if last {
			cell = bytes.TrimSuffix(cell, []byte("\r"))
		}
		malformed = malformed || bytes.IndexByte(cell, '"') >= 0
		give(cell, false)
		if last {
			return text, malformed, false
		}
	}
}

// CSVHeader holds the columns of an import.
type CSVHeader struct {
	columns []csvColumn
	width   int
}

// maxColumns bounds the columns of a header row.
const maxColumns = 1000

// ReadCSVHeader reads the header row; columns may be in any order.
func ReadCSVHeader(text []byte, of *Record) (h CSVHeader, rest []byte, fieldErrs []FieldError) {
	var known, names []string
	h.columns = csvColumns(of.Members, "", true, &known)
	add := func(code, name, detail string) {
		if len(fieldErrs) < MaxFieldErrors {
			fieldErrs = append(fieldErrs, FieldError{Code: code, Pointer: Pointer("#", Clip(name)), Detail: detail})
		}
	}
	rest, malformed, open := CSVRow(text, func(cell string) {
		if h.width++; h.width <= maxColumns {
			names = append(names, cell)
		}
	})
	if malformed || open || h.width > maxColumns {
		return h, rest, []FieldError{{Code: "invalid_format", Pointer: "#", Detail: "The header row is not CSV by RFC 4180, or has too many columns."}}
	}
	at := make(map[string]int, len(names))
	for i, name := range names {
		if _, twice := at[name]; twice {
			add("conflict", name, "The column "+Clip(name)+" is duplicate.")
		}
		at[name] = i
	}
	placeColumns(h.columns, "", at)
	for _, name := range names {
		if _, left := at[name]; left {
			add("unknown_field", name, "Unknown column "+Clip(name)+".")
			delete(at, name)
		}
	}
	return h, rest, fieldErrs
}

// placeColumns assigns cell indexes from at, and removes the assigned names from it.
func placeColumns(columns []csvColumn, prefix string, at map[string]int) {
	for i := range columns {
		s := &columns[i]
		name := prefix + s.name
		if s.sub != nil || s.typ.kind == kindObject {
			placeColumns(s.sub, name+".", at)
			continue
		}
		column, ok := at[name]
		if !ok {
			column = -1
		}
		s.cell = column
		delete(at, name)
	}
}

// Record returns the JSON of a row. Cells are read by the type of their field; an invalid cell
// becomes a string, which the body check then refuses.
func (h *CSVHeader) Record(text []byte) (record []byte, fieldErrs []FieldError) {
	cells := make([]string, 0, h.width)
	n := 0
	_, malformed, _ := CSVRow(text, func(cell string) {
		if n++; n <= h.width {
			cells = append(cells, cell)
		}
	})
	switch {
	case malformed:
		return nil, []FieldError{{Code: "invalid_format", Pointer: "#", Detail: "The row is not CSV by RFC 4180: a quote stands where none may."}}
	case n != h.width:
		return nil, []FieldError{{Code: "invalid_format", Pointer: "#", Detail: "The row has " + Count(n, "cell") + ", the header row " + Count(h.width, "cell") + "."}}
	}
	var b bytes.Buffer
	writeCells(&b, "#", h.columns, cells, &fieldErrs)
	return b.Bytes(), fieldErrs
}

// writeCells writes an object from cells, and reports whether it has any field.
func writeCells(b *bytes.Buffer, pointer string, columns []csvColumn, cells []string, fieldErrs *[]FieldError) bool {
	begin := b.Len()
	b.WriteByte('{')
	some := false
	for i := range columns {
		s := &columns[i]
		object := s.typ.kind == kindObject
		if !object && (s.cell < 0 || cells[s.cell] == "") {
			continue
		}
		undo := b.Len()
		if some {
			b.WriteByte(',')
		}
		b.Write(Quote(s.name))
		b.WriteByte(':')
		switch {
		case !object && s.only:
			b.Write(Quote(strings.ToValidUTF8(cells[s.cell], "\ufffd")))
		case !object:
			b.Write(s.typ.read(Pointer(pointer, s.name), s.name, cells[s.cell], fieldErrs))
		case !writeCells(b, Pointer(pointer, s.name), s.sub, cells, fieldErrs):
			b.Truncate(undo)
			continue
		}
		some = true
	}
	if !some && begin > 0 {
		b.Truncate(begin)
		return false
	}
	b.WriteByte('}')
	return some
}

// read returns the JSON of a cell.
func (t *Type) read(pointer, name, cell string, fieldErrs *[]FieldError) []byte {
	wrong := func(detail string) []byte {
		if len(*fieldErrs) < MaxFieldErrors {
			*fieldErrs = append(*fieldErrs, FieldError{Code: "invalid_format", Pointer: pointer, Detail: detail})
		}
		return []byte("null")
	}
	if !utf8.ValidString(cell) {
		return wrong(name + " is not UTF-8.")
	}
	switch t.kind {
	case kindInt, kindNumber:
		p := parser{text: []byte(cell)}
		if _, err := p.number(); err == nil && p.at == len(cell) {
			return []byte(cell)
		}
	case kindBool:
		if word := strings.ToLower(cell); word == "true" || word == "false" { // spreadsheets write TRUE
			return []byte(word)
		}
	case kindArray, kindMap, kindMetadata, kindAny:
		if _, err := Parse([]byte(cell)); err != nil {
			return wrong(name + " must be JSON: " + err.Error() + ".")
		}
		return []byte(cell)
	}
	if len(cell) > 1 && cell[0] == '\'' && isFormula(cell[1]) {
		cell = cell[1:] // added by an export
	}
	return Quote(cell)
}
