package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// Response is the answer of a handler: [OK], [Created], [WithStatus], [NoContent], [List], [Export],
// [File] or [Stream].
type Response struct {
	status   int // 0: the route's
	record   any
	location string // below the base
	page     *page
	rows     iter.Seq2[Document, error]
	line     bool // rows are the pieces of one feature
	file     *fileContent
	stream   func(ctx context.Context, send func(text string) bool)
	about    string // subaccounts, separated by spaces

	// Encoded form.
	encoded  bool
	body     []byte
	tag      string
	replayed bool
}

// page is one page of a list.
type page struct {
	data   any // slice of records
	after  any // position after the page; nil: last page
	url    string
	cursor string // of after
}

// OK answers with one record.
func OK(record any) Response { return Response{record: record} }

// Created answers with a new record and its path below the base, "/tickets/…".
func Created(location string, record any) Response {
	return Response{status: http.StatusCreated, record: record, location: location}
}

// WithStatus answers with a record and a non-default status: 202.
func WithStatus(status int, record any) Response { return Response{status: status, record: record} }

// NoContent answers 204 without a body.
func NoContent() Response { return Response{status: http.StatusNoContent} }

// In returns the answer as one about records of these subaccounts: a retry under the same
// Idempotency-Key gets it only with an API key that covers them all.
func (a Response) In(subaccountIDs ...string) Response {
	a.about = strings.Join(subaccountIDs, " ")
	return a
}

// List answers with one page. next is the position after its last record, passed to
// [Request.Cursor] of the next request: any JSON value, or nil on the last page.
func List[T any](records []T, next any) Response {
	if records == nil {
		records = []T{}
	}
	return Response{page: &page{data: records, after: next}}
}

// Export answers with all records of a list, streamed in order. An error aborts the transfer,
// so that the client detects the failure.
func Export[T any](records iter.Seq2[T, error]) Response {
	if documents, ok := any(records).(iter.Seq2[Document, error]); ok {
		return Response{rows: documents}
	}
	return Response{rows: func(yield func(Document, error) bool) {
		var b bytes.Buffer
		for record, err := range records {
			b.Reset()
			if err == nil {
				err = encodeTo(&b, record)
			}
			if !yield(Document{JSON: b.Bytes()}, err) {
				return
			}
		}
	}}
}

// ExportLine answers a request for GeoJSON ([Request.ExportingGeoJSON]) with one LineString, whose
// points, each a longitude and a latitude, are sent as they are read. Without two of them there is
// no feature. properties is called after the last point and returns a record. An error aborts
// the transfer, as in [Export].
func ExportLine(id string, points iter.Seq2[[2]float64, error], properties func() any) Response {
	return Response{line: true, rows: func(yield func(Document, error) bool) {
		var b bytes.Buffer
		write := func(before string, v any) (err error) {
			b.WriteString(before)
			return encodeTo(&b, v)
		}
		give := func(err error) bool {
			goOn := yield(Document{JSON: b.Bytes()}, err) && err == nil
			b.Reset()
			return goOn
		}
		count := 0
		for point, err := range points {
			before := ","
			if count == 0 && err == nil {
				err = write("\n"+`{"type":"Feature","id":`, id)
				before = `,"geometry":{"type":"LineString","coordinates":[`
			}
			if err == nil {
				err = write(before, point)
			}
			if count++; (count > 1 || err != nil) && !give(err) {
				return
			}
		}
		if count > 1 {
			err := write(`]},"properties":`, properties())
			b.WriteByte('}')
			give(err)
		}
	}}
}

// encode returns the JSON of a record in an answer.
func encode(v any) ([]byte, error) {
	if d, ok := v.(Document); ok {
		return d.JSON, nil
	}
	var b bytes.Buffer
	if err := encodeTo(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func encodeTo(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	b.Truncate(b.Len() - 1) // the line's end
	return nil
}

// etag returns a strong entity tag: a hash of the content.
func etag(text []byte) string {
	sum := sha256.Sum256(text)
	var b [18]byte
	b[0], b[17] = '"', '"'
	base64.RawURLEncoding.Encode(b[1:17], sum[:12])
	return string(b[:])
}

// finish encodes an answer, once.
func (r *Request) finish(a *Response) error {
	if a.encoded || a.rows != nil || a.file != nil || a.stream != nil {
		return nil
	}
	if a.status == 0 {
		a.status = r.route.success()
	}
	var err error
	switch {
	case a.page != nil:
		p := a.page
		p.url = r.http.URL.Path
		if p.after != nil {
			if p.cursor, err = r.query.encodeCursor(r.listKey(), p.after); err != nil {
				return err
			}
		}
		a.body, err = p.encode()
	case a.record != nil:
		a.body, err = encode(a.record)
		if err == nil && len(r.query.expand) == 0 {
			a.tag = tagOf(a.record, a.body)
		}
	}
	a.encoded = err == nil
	return err
}

// encode returns the JSON of the page.
func (p *page) encode() ([]byte, error) {
	documents, ready := p.data.([]Document)
	size := 256 + len(p.cursor)
	for _, d := range documents {
		size += len(d.JSON) + 1
	}
	var b bytes.Buffer
	b.Grow(size)
	b.WriteString(`{"object":"list","url":`)
	if err := encodeTo(&b, p.url); err != nil {
		return nil, err
	}
	b.WriteString(`,"data":`)
	if ready {
		b.WriteByte('[')
		for i, d := range documents {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(d.JSON)
		}
		b.WriteByte(']')
	} else if err := encodeTo(&b, p.data); err != nil {
		return nil, err
	}
	if p.cursor == "" {
		b.WriteString(`,"has_more":false,"next_cursor":null}`)
	} else {
		b.WriteString(`,"has_more":true,"next_cursor":"` + p.cursor + `"}`) // base64
	}
	return b.Bytes(), nil
}

// only returns the fields shown to a key without read permission.
func only(body []byte) []byte {
	var record struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	if err := json.Unmarshal(body, &record); err != nil {
		return []byte("{}")
	}
	text, err := json.Marshal(record)
	if err != nil {
		return []byte("{}") // strings always marshal
	}
	return text
}

// answer writes a finished answer.
func (a *API) answer(w http.ResponseWriter, r *Request, got *Response) {
	h := w.Header()
	if got.location != "" {
		h["Location"] = []string{a.c.Base + got.location}
	}
	if got.tag != "" {
		h["Etag"] = []string{got.tag}
	}
	if got.replayed {
		h["Idempotent-Replayed"] = []string{"true"}
	}
	safe := r.http.Method == http.MethodGet || r.http.Method == http.MethodHead
	if safe && got.tag != "" {
		if lines := r.http.Header["If-None-Match"]; len(lines) > 0 && anyTag(lines, got.tag, true) {
			r.writeStatus(w, http.StatusNotModified)
			return
		}
	}
	if got.page != nil && got.page.cursor != "" {
		h["Link"] = []string{"<" + a.c.Origin + r.query.next(got.page.url, got.page.cursor) + `>; rel="next"`}
	}
	body := got.body
	imported := r.importing.kind != "" && got.status == http.StatusOK
	if !safe && !imported && !r.route.Reports && len(body) > 0 && r.route.Output != nil && r.route.Needs.Resource != "" && got.status < 300 && !r.Can(r.route.Needs.Resource, apikey.Read) {
		body = only(body)
	}
	if len(body) > 0 {
		kind := "application/json"
		switch {
		case imported:
			kind = NDJSON
		case got.status >= 400: // a stored answer
			kind = "application/problem+json"
			r.code = codeOf(body)
		}
		h["Content-Type"] = []string{kind}
		h["Content-Disposition"] = attached
	}
	a.send(w, r, got.status, body)
}

// attached makes browsers save an answer under a fixed name, regardless of the URL (against
// reflected file download). The exception is openapi.json.
var attached = []string{Disposition}

// Disposition is the Content-Disposition of JSON answers; files have others.
const Disposition = `attachment; filename="api.json"`

// send writes a complete answer.
func (a *API) send(w http.ResponseWriter, r *Request, status int, body []byte) {
	if status != http.StatusNoContent {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	r.writeStatus(w, status)
	if r.http.Method != http.MethodHead {
		w.Write(body) // a lost client is not an error here
	}
}
