package rest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// format is the form of an answer.
type format uint8

const (
	formatJSON format = iota
	formatNDJSON
	formatCSV
)

var formatTypes = [...]string{"application/json", "application/x-ndjson", "text/csv"}

// chooseFormat returns the form that a client likes best, by the Accept header.
func (rt *Route) chooseFormat(lines []string) (format, error) {
	if len(lines) == 0 || rt.File {
		return formatJSON, nil // or whatever type the file is of
	}
	offered := formatTypes[:1]
	if rt.Export {
		offered = formatTypes[:]
	}
	best, bestQ := formatJSON, 0.0
	for i, kind := range offered {
		if q := quality(lines, kind); q > bestQ {
			best, bestQ = format(i), q
		}
	}
	if bestQ == 0 {
		return formatJSON, faultf("not_acceptable", "The answer can be %s.", orList(offered))
	}
	return best, nil
}

// quality returns how much a media type is wanted: the most specific range of the
// Accept header that holds it says so (RFC 9110, 12.5.1).
func quality(lines []string, kind string) float64 {
	major, _, _ := strings.Cut(kind, "/")
	best, specific := 0.0, -1
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			r, params, _ := strings.Cut(part, ";")
			r = strings.ToLower(strings.TrimSpace(r))
			s := slices.Index([]string{"*/*", major + "/*", kind}, r)
			if s < 0 || s < specific {
				continue
			}
			q := 1.0
			for p := range strings.SplitSeq(params, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
				if strings.EqualFold(name, "q") {
					f, err := strconv.ParseFloat(value, 64)
					if err != nil || !(0 <= f && f <= 1) {
						f = 0
					}
					q = f
				}
			}
			if s > specific {
				best, specific = q, s
			} else {
				best = max(best, q)
			}
		}
	}
	return best
}

// Transfers are as long as they are; what has a limit is how long one piece may
// take to leave.
const (
	pieceSize = 32 << 10
	pieceTime = time.Minute
)

// piece is where the pieces of an export leave.
type piece struct {
	w  io.Writer
	rc *http.ResponseController
}

func (p piece) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(pieceTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.w.Write(b)
	if err != nil {
		return n, err
	}
	if err := p.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return n, err
	}
	return n, nil
}

// export streams an answer. A failure before the first record is an answer like
// any other; one after it cuts the transfer off, without the final chunk.
func (a *API) export(w http.ResponseWriter, r *Request, got *Response) error {
	out := bufio.NewWriterSize(piece{w, http.NewResponseController(w)}, pieceSize)
	rows := rowWriter{format: r.format, out: out}
	begin := func() error {
		h := w.Header()
		h["Content-Type"] = []string{[...]string{"", "application/x-ndjson", "text/csv; charset=utf-8; header=present"}[r.format]}
		r.begun = true
		w.WriteHeader(http.StatusOK)
		if r.format == formatCSV {
			of := r.route.Output
			if r.route.Rows != nil {
				of = r.route.Rows
			}
			rows.columns = columns(nil, "", of.Members)
			return rows.header()
		}
		return nil
	}
	var err error
	for record, failure := range got.rows {
		if err = failure; err != nil {
			break
		}
		if !r.begun {
			if err = begin(); err != nil || r.http.Method == http.MethodHead {
				break
			}
		}
		if err = rows.write(record); err != nil {
			break
		}
	}
	if !r.begun {
		if err != nil {
			return err
		}
		err = begin()
	}
	if r.http.Method == http.MethodHead {
		return nil
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		if r.http.Context().Err() == nil {
			a.log.ErrorContext(r.http.Context(), "export broken off", "request", r.ID, "path", r.http.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// rowWriter writes records in one of the forms of an export.
type rowWriter struct {
	format  format
	columns []column
	out     *bufio.Writer
}

// column is one of CSV: the way to a member.
type column struct {
	name string
	path []string
}

// columns are those of some members, objects in place of themselves.
func columns(path []string, prefix string, members []Member) []column {
	var out []column
	for _, m := range members {
		if m.WriteOnly {
			continue
		}
		way := append(slices.Clone(path), m.Name)
		if m.Type.kind == kindObject {
			out = append(out, columns(way, prefix+m.Name+".", m.Type.members)...)
			continue
		}
		out = append(out, column{prefix + m.Name, way})
	}
	return out
}

func (o *rowWriter) header() error {
	cells := make([]string, len(o.columns))
	for i, c := range o.columns {
		cells[i] = c.name
	}
	return o.line(cells)
}

func (o *rowWriter) write(record Document) error {
	if o.format == formatNDJSON {
		o.out.Write(record.JSON)
		return o.out.WriteByte('\n') // errors of a bufio.Writer stay
	}
	n, err := parseJSON(record.JSON)
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	cells := make([]string, len(o.columns))
	for i, c := range o.columns {
		at := &n
		for _, part := range c.path {
			at = at.find(part)
		}
		cells[i] = cell(at)
	}
	return o.line(cells)
}

// cell returns what CSV shows of a value.
func cell(n *node) string {
	switch {
	case n == nil || n.kind == 'n':
		return ""
	case n.kind == '"':
		// A spreadsheet would run it.
		if n.text != "" && strings.IndexByte("=+-@\t\r", n.text[0]) >= 0 {
			return "'" + n.text
		}
		return n.text
	}
	return string(n.raw)
}

// line writes a line by RFC 4180.
func (o *rowWriter) line(cells []string) error {
	for i, c := range cells {
		if i > 0 {
			o.out.WriteByte(',')
		}
		if strings.ContainsAny(c, ",\"\r\n") || len(cells) == 1 && c == "" {
			o.out.WriteByte('"')
			o.out.WriteString(strings.ReplaceAll(c, `"`, `""`))
			o.out.WriteByte('"')
		} else {
			o.out.WriteString(c)
		}
	}
	_, err := o.out.WriteString("\r\n") // errors of a bufio.Writer stay
	return err
}
