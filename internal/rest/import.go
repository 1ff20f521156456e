package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Media types of bodies with many records.
const (
	NDJSON  = "application/x-ndjson" // one record per line
	CSV     = "text/csv"             // with a header row
	Parquet = "application/vnd.apache.parquet"
	GeoJSON = "application/geo+json" // a FeatureCollection; of lists, only for export
)

// Import lets a POST create many records at once, each like the body of a single create
// (fleet-api.md 4).
type Import struct {
	Types []string // accepted besides JSON of one record: [NDJSON], [CSV], [GeoJSON]
	// Handle returns the result of [ImportEach].
	Handle func(ctx context.Context, r *Request) (Response, error)
}

// Bounds of imports.
const (
	maxImport      = 16 << 20 // bytes
	maxImportLines = 10_000
	// maxImportErrors bounds the listed errors of an import, besides the first of each record.
	maxImportErrors = 10_000
)

// Line is one record of an import.
type Line struct {
	N int // from 1; a header row is not counted
	// Subaccount is the subaccount of the new record, where the service has any, as in
	// [Request.DecodeSole].
	Subaccount string
	// ID and ExternalID identify the existing record of a line of an import with
	// on_conflict=update. Empty: none.
	ID, ExternalID string

	text    []byte
	err     error    // the line is not a readable record
	skipped []string // read-only fields
}

// Existing is the record identified by a line, locked in the import's transaction.
type Existing struct {
	ID         string
	Subaccount string
	Current    any // as a GET answers it
	// Change updates the record as a PUT does. decode is [Request.Update] for the line; it is
	// called by Change only. ignored lists fields that were not applied.
	Change func(decode func(into any) error) (ignored []string, err error)
}

// importing is the body of an import, split into lines.
type importing struct {
	kind   string // media type of the body; empty: no import
	lines  [][]byte
	header schema.CSVHeader
	apiErr *apiError // error of the whole body
	// updates is set if lines may update existing records.
	updates bool
}

// importType returns the media type of a body that is an import, empty for others.
func (rt *Route) importType(h http.Header) (string, error) {
	if rt.Import == nil {
		return "", nil
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || !slices.Contains(rt.Import.Types, kind) {
		return "", nil
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "us-ascii") {
		return "", rt.unsupported("The body must be UTF-8.")
	}
	if kind == CSV && strings.EqualFold(params["header"], "absent") {
		return "", rt.unsupported("CSV must have a header row.")
	}
	return kind, nil
}

// unsupported returns the refusal of a body's media type.
func (rt *Route) unsupported(detail string) *apiError {
	f := apiErrorf("unsupported_media_type", "%s", detail)
	f.headers = [][2]string{{"Accept", strings.Join(rt.bodyTypes(), ", ")}}
	return f
}

// bodyTypes returns the accepted media types of the body.
func (rt *Route) bodyTypes() []string {
	types := []string{"application/json"}
	if rt.Reports {
		types = append(types, NDJSON)
	}
	if rt.Import != nil {
		types = append(types, rt.Import.Types...)
	}
	return types
}

// cut splits the body of an import into lines. They are parsed one by one later, so that a
// malformed line affects no other and only one record is in memory.
func (r *Request) cut() *apiError {
	m, text := &r.importing, r.Body
	add := func(line []byte) bool {
		m.lines = append(m.lines, line)
		return len(m.lines) <= maxImportLines
	}
	switch m.kind {
	case NDJSON:
		text = bytes.TrimRight(text, "\r\n")
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if !add(bytes.TrimSuffix(line, []byte("\r"))) {
				break
			}
		}
	case CSV:
		text = bytes.TrimPrefix(text, []byte("\ufeff")) // spreadsheets write a byte order mark
		header, rest, fieldErrs := schema.ReadCSVHeader(text, r.route.Input)
		m.header = header
		if len(fieldErrs) > 0 {
			m.apiErr = invalid(fieldErrs)
			return nil
		}
		for len(rest) > 0 {
			if rest[0] == '\n' || bytes.HasPrefix(rest, []byte("\r\n")) {
				_, rest, _ = bytes.Cut(rest, []byte("\n"))
				continue // skip empty lines
			}
			after, _, open := schema.CSVRow(rest, nil)
			if open {
				m.apiErr = invalid([]schema.FieldError{{Code: "invalid_format", Pointer: fmt.Sprintf("#/%d", len(m.lines)+1), Detail: fmt.Sprintf("A quoted cell of record %d does not end.", len(m.lines)+1)}})
				return nil
			}
			if !add(rest[:len(rest)-len(after)]) {
				break
			}
			rest = after
		}
	case GeoJSON:
		if f := r.cutFeatures(add); f != nil {
			return f
		}
	}
	if len(m.lines) > maxImportLines {
		return apiErrorf("body_too_large", "An import may have at most %d records.", maxImportLines)
	}
	return nil
}

// cutFeatures splits a FeatureCollection into its features (RFC 7946, 3.3).
func (r *Request) cutFeatures(add func([]byte) bool) *apiError {
	if !utf8.Valid(r.Body) {
		return apiErrorf("invalid_json", "The text is not UTF-8.")
	}
	if !json.Valid(r.Body) {
		var whole json.RawMessage
		e, _ := errors.AsType[*json.SyntaxError](json.Unmarshal(r.Body, &whole))
		if e == nil {
			return apiErrorf("invalid_json", "The text is not JSON.")
		}
		return apiErrorf("invalid_json", "At byte %d: %s", e.Offset, schema.EndSentence(e.Error()))
	}
	seen := map[string][]byte{}
	for name, value := range schema.MembersOf(r.Body) {
		s := string(schema.TextOf(slices.Concat([]byte{'"'}, name, []byte{'"'}), nil))
		if s != "type" && s != "features" {
			continue // foreign members are allowed
		}
		if seen[s] != nil {
			return apiErrorf("invalid_json", "The field %q is duplicate.", s)
		}
		seen[s] = value
	}
	var fieldErrs []schema.FieldError
	if string(schema.TextOf(seen["type"], nil)) != "FeatureCollection" {
		fieldErrs = append(fieldErrs, schema.FieldError{Code: "invalid_value", Pointer: "#/type", Detail: "The body must be a GeoJSON FeatureCollection."})
	}
	if f := seen["features"]; len(f) == 0 || f[0] != '[' {
		fieldErrs = append(fieldErrs, schema.FieldError{Code: "invalid_type", Pointer: "#/features", Detail: "features must be an array."})
	}
	if len(fieldErrs) > 0 {
		r.importing.apiErr = invalid(fieldErrs)
		return nil
	}
	for feature := range schema.ItemsOf(seen["features"]) {
		if !add(feature) {
			break
		}
	}
	return nil
}

// Skip counts a member as read-only, because only the service sets it.
func (l *Line) Skip(name string) {
	if !slices.Contains(l.skipped, name) { // the transaction may run again
		l.skipped = append(l.skipped, name)
	}
}

// decode decodes a line like [Request.Decode].
func (l *Line) decode(ctx context.Context, r *Request, into any) error {
	body, fieldErrs, err := r.read(l.text)
	if err != nil {
		return err
	}
	if len(fieldErrs) > 0 {
		return invalid(fieldErrs)
	}
	if r.importing.updates {
		if fieldErrs := l.name(&body); len(fieldErrs) > 0 {
			return invalid(fieldErrs)
		}
	}
	scope, err := r.narrow(ctx, r.namedIn(&body))
	if err != nil {
		return err
	}
	var lacks []schema.FieldError
	if r.route.narrows && r.route.Input.Has(subaccountMember) {
		if l.Subaccount, lacks, err = r.sole(ctx, scope); err != nil {
			return err
		}
	}
	c := schema.Check{Import: true}
	text := c.Body(r.route.Input.Members, &body, nil)
	l.skipped = c.Skipped
	if fieldErrs = appendMissing(c.Errors, lacks); len(fieldErrs) > 0 {
		return invalid(fieldErrs)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the struct of %s does not match its record: %w", r.route.ID, err)
	}
	return nil
}

// name sets the identifiers of a line's existing record.
func (l *Line) name(body *schema.Node) []schema.FieldError {
	var c schema.Check
	text := func(member string) string {
		v := body.Find(member)
		if v == nil || v.Kind == 'n' {
			return ""
		}
		known := schema.ID()
		c.Value(schema.Pointer("#", member), member, &known, v, nil)
		return v.Text
	}
	id, externalID := text("id"), text("external_id")
	if len(c.Errors) == 0 {
		l.ID, l.ExternalID = id, externalID
	}
	return c.Errors
}

// change updates the record identified by a line, unless it is equal already.
func (l *Line) change(r *Request, e *Existing) (changed bool, ignored []string, err error) {
	if !r.Covers(e.Subaccount) {
		return false, nil, errOutOfScope("")
	}
	update := Permission{r.route.Needs.Resource, apikey.Update}
	if !r.Can(update.Resource, update.Action) {
		return false, nil, r.api.denied(update)
	}
	current, err := encode(e.Current)
	if err != nil {
		return false, nil, err
	}
	stored, err := schema.Parse(current)
	if err != nil {
		return false, nil, fmt.Errorf("read the stored record: %w", err)
	}
	body, _, err := r.read(l.text) // parsed without error before
	if err != nil {
		return false, nil, err
	}
	c := schema.Check{Put: true, Import: true}
	text := c.Body(r.route.Input.Members, &body, &stored)
	l.Subaccount = e.Subaccount
	l.skipped = slices.DeleteFunc(c.Skipped, func(name string) bool { return name == "id" }) // its identifier
	switch {
	case len(c.Errors) > 0:
		return false, nil, invalid(c.Errors)
	case !c.Differs:
		return false, nil, nil
	}
	ignored, err = e.Change(func(into any) error {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("the struct of %s does not match its record: %w", r.route.ID, err)
		}
		return nil
	})
	return true, ignored, err
}

// read parses the record of a line.
func (r *Request) read(text []byte) (body schema.Node, fieldErrs []schema.FieldError, err error) {
	if r.importing.kind == CSV {
		if text, fieldErrs = r.importing.header.Record(text); len(fieldErrs) > 0 {
			return schema.Node{}, fieldErrs, nil
		}
	}
	body, err = schema.Parse(text)
	switch {
	case errors.Is(err, schema.ErrTooMany):
		return schema.Node{}, nil, apiErrorf("body_too_large", "A record may have at most %d values.", schema.MaxNodes)
	case err != nil:
		return schema.Node{}, nil, apiErrorf("invalid_json", "%s", sentence(err.Error()))
	case r.importing.kind == GeoJSON:
		body, fieldErrs = unwrap(&body)
	}
	return body, fieldErrs, nil
}

// unwrap returns the record of a feature: its properties are the fields, plus geometry, and id
// if it is a string. Other members are ignored.
func unwrap(feature *schema.Node) (body schema.Node, fieldErrs []schema.FieldError) {
	body.Kind = '{'
	if t := feature.Find("type"); t == nil || t.Text != "Feature" {
		fieldErrs = append(fieldErrs, schema.FieldError{Code: "invalid_value", Pointer: "#/type", Detail: "Each of the features must be a GeoJSON Feature."})
	}
	switch p := feature.Find("properties"); {
	case p == nil || p.Kind == 'n':
	case p.Kind != '{':
		fieldErrs = append(fieldErrs, schema.FieldError{Code: "invalid_type", Pointer: "#/properties", Detail: "properties must be an object or null."})
	default:
		body.Members = p.Members
	}
	if g := feature.Find("geometry"); g != nil {
		if body.Find("geometry") != nil {
			fieldErrs = append(fieldErrs, schema.FieldError{Code: "conflict", Pointer: "#/properties/geometry", Detail: "The geometry is that of the Feature; properties must not have one."})
		}
		body.Members = append(slices.Clip(body.Members), schema.NodeMember{Name: "geometry", Value: *g})
	}
	if id := feature.Find("id"); id != nil && id.Kind == '"' && body.Find("id") == nil {
		body.Members = append(slices.Clip(body.Members), schema.NodeMember{Name: "id", Value: *id})
	}
	return body, fieldErrs
}

// ImportEach runs an import. It decodes each line into a T like [Request.Decode], skipping
// read-only fields. It calls create for the valid ones, in order and in one transaction; create
// returns the id of the new record. If create returns a client error, that line is rolled back
// and the rest continues. With atomic=true any error makes the answer 422 and nothing is
// created.
//
// With on_conflict=update, find returns the record identified by a line: by its id, which must
// exist, or by external_id and subaccount, or nil. It is updated as by a PUT, given the
// permission to, unless it is equal already.
//
// As in [Request.Write], the callbacks may run more than once and must not change the T.
func ImportEach[T any](ctx context.Context, r *Request, create func(tx *db.Tx, l *Line, in *T) (id string, err error), find func(tx *db.Tx, l *Line) (*Existing, error)) (Response, error) {
	if r.importing.apiErr != nil {
		return Response{}, r.importing.apiErr
	}
	r.importing.updates = r.String(conflictParam.Name) == "update"
	lines, ins := make([]Line, len(r.importing.lines)), make([]T, len(r.importing.lines))
	atomic, _ := r.Bool("atomic")
	var refusal importErrors
	for i := range lines {
		l := &lines[i]
		l.N, l.text = i+1, r.importing.lines[i]
		l.err = l.decode(ctx, r, &ins[i])
		if l.err == nil {
			continue
		}
		f := toAPIError(l.err, r.route.Input)
		if errorCodes[f.code].status >= 500 {
			return Response{}, l.err
		}
		if l.ID == "" && l.ExternalID == "" {
			l.err = refusal.add(l.N, f)
		}
	}
	if atomic && refusal.lines > 0 {
		return Response{}, refusal.toError()
	}
	return r.Write(ctx, func(tx *db.Tx) (Response, error) {
		return r.importIn(ctx, tx, lines, atomic, importer{
			create: func(i int) (string, error) { return create(tx, &lines[i], &ins[i]) },
			find:   func(i int) (*Existing, error) { return find(tx, &lines[i]) },
		})
	})
}

// importer applies the line at an index.
type importer struct {
	create func(i int) (id string, err error)
	find   func(i int) (*Existing, error)
}

// imported is the result of a valid line.
type imported struct {
	created, changed bool
	id               string
	ignored          []string
}

// line creates the record of a line, or updates the one that it identifies.
func (m importer) line(r *Request, l *Line) (done imported, err error) {
	if l.ID != "" || l.ExternalID != "" {
		e, err := m.find(l.N - 1)
		if err != nil {
			return done, err
		}
		if e != nil {
			done.id = e.ID
			done.changed, done.ignored, err = l.change(r, e)
			return done, err
		}
	}
	if l.err != nil {
		return done, l.err
	}
	done.created = true
	done.id, err = m.create(l.N - 1)
	return done, err
}

// importIn applies the lines of an import in the caller's transaction.
func (r *Request) importIn(ctx context.Context, tx *db.Tx, lines []Line, atomic bool, m importer) (Response, error) {
	var out bytes.Buffer
	var refusal importErrors
	var about []string
	sums := importSummary{Skipped: map[string]int{}}
	if r.importing.updates {
		sums.Updated, sums.Unchanged = new(int), new(int)
	}
	for i := range lines {
		l := &lines[i]
		var done imported
		err := tx.Try(ctx, func() (err error) {
			done, err = m.line(r, l)
			return err
		})
		for _, name := range l.skipped {
			sums.Skipped[name]++
		}
		if err == nil {
			sums.add(&out, l, done)
			if l.Subaccount != "" && !slices.Contains(about, l.Subaccount) {
				about = append(about, l.Subaccount)
			}
			continue
		}
		f := toAPIError(err, r.route.Input)
		if errorCodes[f.code].status >= 500 {
			return Response{}, err
		}
		status, body := r.api.document(refusal.add(l.N, f), r.ID)
		fmt.Fprintf(&out, `{"line":%d,"status":%d,"problem":%s}`+"\n", l.N, status, body)
	}
	if atomic && refusal.lines > 0 {
		return Response{}, refusal.toError()
	}
	sums.Failed = refusal.lines
	if err := r.api.c.Audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: r.Key.OrganizationID, Action: AuditImported, Target: audit.Target{Type: "operation", ID: r.route.ID, Name: r.route.ID},
		Details: sums.details(),
	}); err != nil {
		return Response{}, err
	}
	text, err := json.Marshal(map[string]any{"summary": &sums})
	if err != nil {
		return Response{}, err
	}
	out.Write(append(text, '\n'))
	return Response{status: http.StatusOK, encoded: true, body: out.Bytes()}.In(about...), nil
}

// importSummary is the summary of an import.
type importSummary struct {
	Created   int            `json:"created"`
	Updated   *int           `json:"updated,omitempty"`   // nil: records are not updated
	Unchanged *int           `json:"unchanged,omitempty"` // likewise
	Failed    int            `json:"failed"`
	Skipped   map[string]int `json:"skipped,omitempty"` // read-only members, and in how many records
}

// details returns the summary for the audit log.
func (s *importSummary) details() map[string]any {
	d := map[string]any{"created": s.Created, "failed": s.Failed}
	if s.Updated != nil {
		d["updated"] = *s.Updated
	}
	return d
}

// add counts a valid line and writes its result.
func (s *importSummary) add(out *bytes.Buffer, l *Line, done imported) {
	status := http.StatusOK
	switch {
	case done.created:
		status = http.StatusCreated
		s.Created++
	case done.changed:
		*s.Updated++
	default:
		*s.Unchanged++
	}
	fmt.Fprintf(out, `{"line":%d,"status":%d,"id":%s`, l.N, status, schema.Quote(done.id))
	if len(done.ignored) > 0 {
		names, _ := json.Marshal(done.ignored) // strings always marshal
		fmt.Fprintf(out, `,"ignored":%s`, names)
	}
	out.WriteString("}\n")
}

// importErrors collects the errors of an import.
type importErrors struct {
	lines     int
	fieldErrs []schema.FieldError // of all lines, bounded
	more      int                 // errors of lines beyond their first
}

// add records the error of a line and returns it, shortened to the remaining room: ten thousand
// records with a hundred errors each would be an answer of 100 MB.
func (f *importErrors) add(n int, of *apiError) *apiError {
	f.lines++
	if more := len(of.fieldErrs) - 1; more > 0 {
		listed := min(more, maxImportErrors-f.more)
		f.more += listed
		if listed < more {
			short := *of
			short.fieldErrs = slices.Clone(of.fieldErrs[:1+listed])
			of = &short
		}
	}
	at := fmt.Sprintf("#/%d", n)
	fieldErrs := of.fieldErrs
	if len(fieldErrs) == 0 {
		fieldErrs = []schema.FieldError{{Code: of.code, Detail: of.detail, Pointer: "#"}}
	}
	for _, flaw := range fieldErrs[:min(len(fieldErrs), schema.MaxFieldErrors-len(f.fieldErrs))] {
		flaw.Pointer = at + strings.TrimPrefix(flaw.Pointer, "#")
		f.fieldErrs = append(f.fieldErrs, flaw)
	}
	return of
}

// toError returns the refusal of an atomic import.
func (f *importErrors) toError() *apiError {
	verb := "are"
	if f.lines == 1 {
		verb = "is"
	}
	return &apiError{code: "validation_failed", fieldErrs: f.fieldErrs, detail: fmt.Sprintf("%s %s not valid, so none was imported.", schema.Count(f.lines, "record"), verb)}
}

// importParam is a query parameter of every import.
var importParam = Param{Name: "atomic", Kind: BoolParam, Doc: "Of an import: true makes all of its records, or none when one of them is not valid."}

// conflictParam is the query parameter of imports that can update.
var conflictParam = Param{
	Name: "on_conflict", Kind: EnumParam, Values: []string{"update"},
	Doc: "Of an import: update changes the records that are there, found by id or else by external_id and subaccount, as a PUT does; that takes the permission to. " +
		"A record with an unknown id is refused. Without it every record is created, and an existing one is refused.",
}

// importDoc describes the format of an import by media type.
var importDoc = map[string]string{
	NDJSON: "One record per line, each an object like the body of a single create. Read-only fields are skipped.",
	CSV: "RFC 4180 in UTF-8, with a header row of field names in any order, nested ones with dots (place.lat). " +
		"An empty cell means that the field is absent. Arrays, maps and metadata are JSON. An apostrophe before = + - @, tab or CR, as added by an export, is removed. Columns of read-only fields are skipped. An unknown column refuses the whole import.",
	GeoJSON: "A FeatureCollection (RFC 7946). The properties of a Feature are the fields of a record, its geometry the field geometry, its id the field id. Read-only fields are skipped.",
}
