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
)

// Types of bodies that hold many records.
const (
	NDJSON  = "application/x-ndjson" // one record a line
	CSV     = "text/csv"             // with a header row
	GeoJSON = "application/geo+json" // a FeatureCollection; of lists, an export
)

// Import is how a POST takes many records at once, each like the body of one that
// makes a single record (fleet-api.md 4).
type Import struct {
	Types []string // of the body, beside JSON of one record: [NDJSON], [CSV], [GeoJSON]
	// Handle answers with [ImportEach].
	Handle func(ctx context.Context, r *Request) (Response, error)
}

// Bounds of imports.
const (
	maxImport      = 16 << 20 // bytes
	maxImportLines = 10_000
	// maxImportErrors is how much is said to be wrong with the records of one import,
	// beside the first that is with each.
	maxImportErrors = 10_000
)

// Line is one record of an import.
type Line struct {
	N int // from 1; a header row is not counted
	// Subaccount is the one that the record is made in, where records have any:
	// as [Request.DecodeSole] says it of a single one.
	Subaccount string
	// ID and ExternalID name the record that a line of an import with on_conflict=update
	// is about. Empty: none.
	ID, ExternalID string

	text    []byte
	err     error    // for which no record can be made of it
	skipped []string // its read-only members
}

// Existing is the record that a line names, locked in the import's transaction.
type Existing struct {
	ID         string
	Subaccount string
	Current    any // as a GET answers it
	// Change changes the record as a PUT does. Decode is [Request.Update] of the line,
	// and is not called before. Ignored are the members that were not taken.
	Change func(decode func(into any) error) (ignored []string, err error)
}

// importing is the body of an import, cut into lines.
type importing struct {
	kind   string // of the body; empty: it is no import
	lines  [][]byte
	header csvHeader
	apiErr *apiError // of the whole, found with its records
	// updates says that records which lines name are changed.
	updates bool
}

// importType returns the type of a body that is an import, empty when it is none.
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

// unsupported is the refusal of a body for its type.
func (rt *Route) unsupported(detail string) *apiError {
	f := apiErrorf("unsupported_media_type", "%s", detail)
	f.headers = [][2]string{{"Accept", strings.Join(rt.bodyTypes(), ", ")}}
	return f
}

// bodyTypes are those that a body may have.
func (rt *Route) bodyTypes() []string {
	types := []string{"application/json"}
	if rt.Import != nil {
		types = append(types, rt.Import.Types...)
	}
	return types
}

// cut cuts the body of an import into lines, which are read one by one later, so
// that one that is broken harms no other and the memory it takes is that of one.
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
		text = bytes.TrimPrefix(text, []byte("\ufeff")) // spreadsheets write it
		header, rest, fieldErrs := readHeader(text, r.route.Input)
		m.header = header
		if len(fieldErrs) > 0 {
			m.apiErr = invalid(fieldErrs)
			return nil
		}
		for len(rest) > 0 {
			if rest[0] == '\n' || bytes.HasPrefix(rest, []byte("\r\n")) {
				_, rest, _ = bytes.Cut(rest, []byte("\n"))
				continue // an empty line is no record
			}
			after, _, open := csvRow(rest, nil)
			if open {
				m.apiErr = invalid([]fieldError{{Code: "invalid_format", Pointer: fmt.Sprintf("#/%d", len(m.lines)+1), Detail: fmt.Sprintf("A quoted cell of record %d does not end.", len(m.lines)+1)}})
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

// cutFeatures cuts a FeatureCollection into its features (RFC 7946, 3.3).
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
		return apiErrorf("invalid_json", "At byte %d: %s", e.Offset, stopped(e.Error()))
	}
	seen := map[string][]byte{}
	for name, value := range membersOf(r.Body) {
		s := string(textOf(slices.Concat([]byte{'"'}, name, []byte{'"'}), nil))
		if s != "type" && s != "features" {
			continue // others are foreign, and allowed
		}
		if seen[s] != nil {
			return apiErrorf("invalid_json", "The member %q comes twice.", s)
		}
		seen[s] = value
	}
	var fieldErrs []fieldError
	if string(textOf(seen["type"], nil)) != "FeatureCollection" {
		fieldErrs = append(fieldErrs, fieldError{Code: "invalid_value", Pointer: "#/type", Detail: "The body must be a GeoJSON FeatureCollection."})
	}
	if f := seen["features"]; len(f) == 0 || f[0] != '[' {
		fieldErrs = append(fieldErrs, fieldError{Code: "invalid_type", Pointer: "#/features", Detail: "features must be an array."})
	}
	if len(fieldErrs) > 0 {
		r.importing.apiErr = invalid(fieldErrs)
		return nil
	}
	for feature := range itemsOf(seen["features"]) {
		if !add(feature) {
			break
		}
	}
	return nil
}

// decode reads a line as [Request.Decode] reads a body.
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
	var lacks []fieldError
	if r.route.narrows && member(r.route.Input.Members, subaccountMember) != nil {
		if l.Subaccount, lacks, err = r.sole(ctx, scope); err != nil {
			return err
		}
	}
	c := bodyCheck{imports: true}
	text := c.body(r.route.Input.Members, &body, nil)
	l.skipped = c.skipped
	if fieldErrs = appendMissing(c.fieldErrs, lacks); len(fieldErrs) > 0 {
		return invalid(fieldErrs)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the struct of %s does not take what its record does: %w", r.route.ID, err)
	}
	return nil
}

// name notes which record a line is about.
func (l *Line) name(body *jsonNode) []fieldError {
	c := bodyCheck{}
	text := func(member string) string {
		v := body.find(member)
		if v == nil || v.kind == 'n' {
			return ""
		}
		known := ID()
		c.value(point("#", member), member, &known, v, nil)
		return v.text
	}
	id, externalID := text("id"), text("external_id")
	if len(c.fieldErrs) == 0 {
		l.ID, l.ExternalID = id, externalID
	}
	return c.fieldErrs
}

// change changes the record that a line is about, unless it is as the line says.
func (l *Line) change(r *Request, e *Existing) (changed bool, ignored []string, err error) {
	if !r.Covers(e.Subaccount) {
		return false, nil, errOutOfScope()
	}
	update := Permission{r.route.Needs.Resource, apikey.Update}
	if !r.Can(update.Resource, update.Action) {
		return false, nil, r.api.denied(update)
	}
	current, err := encode(e.Current)
	if err != nil {
		return false, nil, err
	}
	stored, err := parseJSON(current)
	if err != nil {
		return false, nil, fmt.Errorf("read the stored record: %w", err)
	}
	body, _, err := r.read(l.text) // it was found to be sound before
	if err != nil {
		return false, nil, err
	}
	c := bodyCheck{put: true, imports: true}
	text := c.body(r.route.Input.Members, &body, &stored)
	l.Subaccount = e.Subaccount
	l.skipped = slices.DeleteFunc(c.skipped, func(name string) bool { return name == "id" }) // which it is named by
	switch {
	case len(c.fieldErrs) > 0:
		return false, nil, invalid(c.fieldErrs)
	case !c.differs:
		return false, nil, nil
	}
	ignored, err = e.Change(func(into any) error {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("the struct of %s does not take what its record does: %w", r.route.ID, err)
		}
		return nil
	})
	return true, ignored, err
}

// read returns the record of a line.
func (r *Request) read(text []byte) (body jsonNode, fieldErrs []fieldError, err error) {
	if r.importing.kind == CSV {
		if text, fieldErrs = r.importing.header.record(text); len(fieldErrs) > 0 {
			return jsonNode{}, fieldErrs, nil
		}
	}
	body, err = parseJSON(text)
	switch {
	case errors.Is(err, errTooMany):
		return jsonNode{}, nil, apiErrorf("body_too_large", "A record may have at most %d values.", maxNodes)
	case err != nil:
		return jsonNode{}, nil, apiErrorf("invalid_json", "%s", sentence(err.Error()))
	case r.importing.kind == GeoJSON:
		body, fieldErrs = unwrap(&body)
	}
	return body, fieldErrs, nil
}

// unwrap returns the record that a feature stands for: its properties are the
// members, its geometry is the member of that name, and so is its id if it is text.
// What else it has means nothing here.
func unwrap(feature *jsonNode) (body jsonNode, fieldErrs []fieldError) {
	body.kind = '{'
	if t := feature.find("type"); t == nil || t.text != "Feature" {
		fieldErrs = append(fieldErrs, fieldError{Code: "invalid_value", Pointer: "#/type", Detail: "Each of the features must be a GeoJSON Feature."})
	}
	switch p := feature.find("properties"); {
	case p == nil || p.kind == 'n':
	case p.kind != '{':
		fieldErrs = append(fieldErrs, fieldError{Code: "invalid_type", Pointer: "#/properties", Detail: "properties must be an object or null."})
	default:
		body.members = p.members
	}
	if g := feature.find("geometry"); g != nil {
		if body.find("geometry") != nil {
			fieldErrs = append(fieldErrs, fieldError{Code: "conflict", Pointer: "#/properties/geometry", Detail: "The geometry is that of the Feature; properties must not have one."})
		}
		body.members = append(slices.Clip(body.members), jsonMember{"geometry", *g})
	}
	if id := feature.find("id"); id != nil && id.kind == '"' && body.find("id") == nil {
		body.members = append(slices.Clip(body.members), jsonMember{"id", *id})
	}
	return body, fieldErrs
}

// ImportEach answers an import. Each line is decoded into a T as [Request.Decode]
// would decode it as a body, but for read-only members, which are skipped. Those that
// are good are given to create, in order and in one transaction, which returns the id of
// the record that it made; a line for which it fails with something the client is to
// blame for leaves nothing behind, and the others go on. With atomic=true they do not:
// the answer is then 422, and nothing was made.
//
// With on_conflict=update, find returns the record that a line names: by its id, where
// none is an error, or else by external_id and subaccount, where nil is none. It is
// changed as by a PUT, with the permission to, unless it is as the line says.
//
// As in [Request.Write], all of it may run more than once, so T is not changed.
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

// importer is what an import does with the line at an index.
type importer struct {
	create func(i int) (id string, err error)
	find   func(i int) (*Existing, error)
}

// imported is what an import did with a line that was good.
type imported struct {
	created, changed bool
	id               string
	ignored          []string
}

// line makes the record of a line, or changes the one that it names.
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

// importIn makes and changes the records of an import, in the caller's transaction.
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

// details are those of the audit log.
func (s *importSummary) details() map[string]any {
	d := map[string]any{"created": s.Created, "failed": s.Failed}
	if s.Updated != nil {
		d["updated"] = *s.Updated
	}
	return d
}

// add counts a line that was good, and writes what came of it.
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
	fmt.Fprintf(out, `{"line":%d,"status":%d,"id":%s`, l.N, status, quote(done.id))
	if len(done.ignored) > 0 {
		names, _ := json.Marshal(done.ignored) // strings do marshal
		fmt.Fprintf(out, `,"ignored":%s`, names)
	}
	out.WriteString("}\n")
}

// importErrors collects what is wrong with the lines of an import.
type importErrors struct {
	lines     int
	fieldErrs []fieldError // of all lines, the first few
	more      int          // fieldErrs that lines have beside their first
}

// add notes why a line fails, and returns as much of it as there is room to tell:
// ten thousand records with a hundred fieldErrs each would be an answer of 100 MB.
func (f *importErrors) add(n int, of *apiError) *apiError {
	f.lines++
	if more := len(of.fieldErrs) - 1; more > 0 {
		told := min(more, maxImportErrors-f.more)
		f.more += told
		if told < more {
			short := *of
			short.fieldErrs = slices.Clone(of.fieldErrs[:1+told])
			of = &short
		}
	}
	at := fmt.Sprintf("#/%d", n)
	fieldErrs := of.fieldErrs
	if len(fieldErrs) == 0 {
		fieldErrs = []fieldError{{Code: of.code, Detail: of.detail, Pointer: "#"}}
	}
	for _, flaw := range fieldErrs[:min(len(fieldErrs), maxFieldErrors-len(f.fieldErrs))] {
		flaw.Pointer = at + strings.TrimPrefix(flaw.Pointer, "#")
		f.fieldErrs = append(f.fieldErrs, flaw)
	}
	return of
}

// toError is the refusal of all because of some.
func (f *importErrors) toError() *apiError {
	verb := "are"
	if f.lines == 1 {
		verb = "is"
	}
	return &apiError{code: "validation_failed", fieldErrs: f.fieldErrs, detail: fmt.Sprintf("%s %s not valid, so none was imported.", count(f.lines, "record"), verb)}
}

// count returns "1 record" and "2 records".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// importParam is the parameter that every import has.
var importParam = Param{Name: "atomic", Kind: BoolParam, Doc: "Of an import: true makes all of its records, or none when one of them is not valid."}

// conflictParam is another one.
var conflictParam = Param{
	Name: "on_conflict", Kind: EnumParam, Values: []string{"update"},
	Doc: "Of an import: update changes the records that are there, found by id or else by external_id and subaccount, as a PUT does; that takes the permission to. " +
		"A record whose id is not there is refused. Without it every record is made anew, and one that is there already is refused.",
}

// importDoc says how a body of a type is read.
var importDoc = map[string]string{
	NDJSON: "One record a line, each an object as the body of a single one. Read-only members are skipped.",
	CSV: "RFC 4180 in UTF-8, with a header row that names members in any order, those of objects with dots (place.lat). " +
		"An empty cell means that the member is absent. Arrays, maps and metadata are JSON. An apostrophe before = + - @, tab or CR, as an export has it, is taken off. Columns of read-only members are skipped. A column that is not a member refuses the whole.",
	GeoJSON: "A FeatureCollection (RFC 7946). The properties of a Feature are the members of a record, its geometry is the member geometry, its id the member id. Read-only members are skipped.",
}
