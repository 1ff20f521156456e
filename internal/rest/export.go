package rest

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// format is the media type of an answer.
type format uint8

const (
	formatJSON format = iota
	formatNDJSON
	formatCSV
	formatGeoJSON
	formatParquet
)

// formats describes the formats by their numbers: media types, the headers Content-Type of exports, and
// the ends of file names.
var formats = [...]struct{ media, contentType, ext string }{
	formatJSON:    {media: "application/json"},
	formatNDJSON:  {NDJSON, NDJSON, "ndjson"},
	formatCSV:     {CSV, "text/csv; charset=utf-8; header=present", "csv"},
	formatGeoJSON: {GeoJSON, GeoJSON, "geojson"},
	formatParquet: {Parquet, Parquet, "parquet"},
}

// chooseFormat returns the client's preferred format, by the Accept header.
func (rt *Route) chooseFormat(lines []string) (format, error) {
	if len(lines) == 0 || rt.File || rt.Stream {
		return formatJSON, nil // or the type of a file
	}
	var offered []string
	best, bestQ := formatJSON, 0.0
	for f, kind := range formats {
		if !rt.offers(format(f)) {
			continue
		}
		offered = append(offered, kind.media)
		if q := quality(lines, kind.media); q > bestQ {
			best, bestQ = format(f), q
		}
	}
	if bestQ == 0 {
		return formatJSON, apiErrorf("not_acceptable", "The answer can be %s.", schema.OrList(offered))
	}
	return best, nil
}

// offers reports whether a successful answer of the route can have a format.
func (rt *Route) offers(f format) bool {
	switch f {
	case formatNDJSON, formatCSV:
		return rt.Export
	case formatGeoJSON:
		return rt.GeoJSON
	case formatParquet:
		return rt.Parquet
	}
	return true
}

// quality returns the weight of a media type: that of the most specific matching range of the
// Accept header (RFC 9110, 12.5.1).
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

// An export may take any time; the time to send one piece is limited.
const (
	pieceSize = 32 << 10
	pieceTime = time.Minute
)

// pieceWriter sends an export in pieces, each within a deadline.
type pieceWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func (p pieceWriter) Write(b []byte) (int, error) {
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

// export streams an answer. An error before the first record is a normal answer; a later one
// aborts the transfer, without the final chunk.
func (a *API) export(w http.ResponseWriter, r *Request, got *Response) error {
	out := bufio.NewWriterSize(pieceWriter{w, http.NewResponseController(w)}, pieceSize)
	of := r.route.Output
	if r.route.Rows != nil {
		of = r.route.Rows
	}
	rows := writerOf(r.format, out, of)
	if got.line {
		rows = &pieceOfFeatureWriter{featureWriter{out: out}}
	}
	begin := func() error {
		if r.http.Method != http.MethodHead {
			if err := a.recordExport(r); err != nil {
				return err
			}
		}
		w.Header()["Content-Type"] = []string{formats[r.format].contentType}
		w.Header()["Content-Disposition"] = []string{`attachment; filename="export.` + formats[r.format].ext + `"`}
		r.answerStarted = true
		r.writeStatus(w, http.StatusOK)
		return rows.Begin()
	}
	var err error
	for record, failure := range got.rows {
		if err = failure; err != nil {
			break
		}
		if !r.answerStarted {
			if err = begin(); err != nil || r.http.Method == http.MethodHead {
				break
			}
		}
		if err = rows.Write(record.JSON); err != nil {
			break
		}
	}
	if !r.answerStarted {
		if err == nil {
			err = begin()
		}
		if !r.answerStarted {
			return err
		}
	}
	if r.http.Method == http.MethodHead {
		return nil
	}
	if err == nil {
		err = rows.End()
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

// Actions in the audit log.
const (
	AuditExported audit.Action = "records.exported"
	AuditImported audit.Action = "records.imported"
)

// recordExport records an export in the audit log before its first byte is sent: an export that
// cannot be recorded must not happen.
func (a *API) recordExport(r *Request) error {
	action := AuditExported
	if r.route.Output == auditRecord {
		action = audit.Exported
	}
	return a.c.Audit.Record(audit.WithSource(r.http.Context(), r.source()), audit.Entry{
		OrganizationID: r.Key.OrganizationID, Action: action, Target: audit.Target{Type: "operation", ID: r.route.ID, Name: r.route.ID},
		Details: map[string]any{"format": formats[r.format].ext},
	})
}

// rowWriter writes records in one of the export formats.
type rowWriter interface {
	Begin() error
	Write(record []byte) error
	End() error
}

func writerOf(f format, out *bufio.Writer, of *schema.Record) rowWriter {
	switch f {
	case formatCSV:
		return schema.NewCSVWriter(out, of)
	case formatGeoJSON:
		return &featureWriter{out: out}
	case formatParquet:
		return schema.NewParquetWriter(out, of)
	default:
		return lineWriter{out}
	}
}

// lineWriter writes NDJSON.
type lineWriter struct{ out *bufio.Writer }

func (o lineWriter) Begin() error { return nil }

func (o lineWriter) Write(record []byte) error {
	o.out.Write(record)
	return o.out.WriteByte('\n') // a bufio.Writer returns its error again
}

func (o lineWriter) End() error { return nil }

// featureWriter writes a FeatureCollection (RFC 7946). A record's geometry and id become the
// feature's, all other fields its properties.
type featureWriter struct {
	out        *bufio.Writer
	more       bool
	properties []byte
}

func (o *featureWriter) Begin() error {
	_, err := o.out.WriteString(`{"type":"FeatureCollection","features":[`)
	return err
}

func (o *featureWriter) Write(record []byte) error {
	id, geometry := []byte(nil), []byte("null")
	o.properties = o.properties[:0]
	for name, value := range schema.MembersOf(record) {
		switch string(name) {
		case "id":
			id = value
		case "geometry":
			geometry = value
		default:
			if len(o.properties) > 0 {
				o.properties = append(o.properties, ',')
			}
			o.properties = append(append(append(append(o.properties, '"'), name...), '"', ':'), value...)
		}
	}
	if o.more {
		o.out.WriteByte(',')
	}
	o.more = true
	o.out.WriteString("\n" + `{"type":"Feature"`)
	if id != nil {
		o.out.WriteString(`,"id":`)
		o.out.Write(id)
	}
	o.out.WriteString(`,"geometry":`)
	o.out.Write(geometry)
	o.out.WriteString(`,"properties":{`)
	o.out.Write(o.properties)
	_, err := o.out.WriteString("}}")
	return err
}

func (o *featureWriter) End() error {
	_, err := o.out.WriteString("\n]}\n")
	return err
}

// pieceOfFeatureWriter writes a FeatureCollection of one feature, which comes in pieces.
type pieceOfFeatureWriter struct{ featureWriter }

func (o *pieceOfFeatureWriter) Write(piece []byte) error {
	_, err := o.out.Write(piece)
	return err
}
