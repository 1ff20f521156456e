package fleetpages

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/tariff"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// form is the body of a page with one form. Its template is "form".
type form struct {
	Intro  string
	Groups []group
	// Was has hidden fields from the opening of the form: the mark of [formInput.openedWith], and the
	// original values of fields that may change concurrently, see [formInput.changed]. Without any, it is
	// [onceField].
	Was    web.Fields
	Label  string // of the button
	Danger bool   // style of the button
	Cancel string // link to cancel
	// More is the label of a button that adds rows to the form. Empty: none.
	More string
	// Examples are prices by the form, with a button that computes them. Nil: none.
	Examples *priceExamples
}

// group is a group of fields.
type group struct {
	Legend string // empty for none
	Help   string
	Row    bool // side by side
	Fields web.Fields
}

// part is the number of fields of a group.
type part struct {
	Legend string
	Help   string
	Take   int
	Row    bool
}

// layout divides fields into groups in order; the last one takes the rest. Groups
// share the fields, so that errors set later show in both.
func layout(fields web.Fields, parts ...part) []group {
	var list []group
	for i, g := range parts {
		n := g.Take
		if i == len(parts)-1 {
			n = len(fields)
		}
		list = append(list, group{Legend: g.Legend, Help: g.Help, Row: g.Row, Fields: fields[:n:n]})
		fields = fields[n:]
	}
	return list
}

// showForm renders a form, with status 422 if a field has an error.
func (p *pages) showForm(w http.ResponseWriter, r *web.Request, page web.Page, fields web.Fields, f form) error {
	if f.Groups == nil {
		f.Groups = []group{{Fields: fields}}
	}
	if len(f.Was) == 0 {
		f.Was = onceField()
	}
	page.Fields, page.Body = fields, f
	if len(fields.Wrong()) > 0 {
		page.Status = http.StatusUnprocessableEntity
	}
	return p.Render(w, r, "form", page)
}

// onceField is the hidden field by which a form is saved once: a browser that got no answer may send it
// again. The forms of stored records have their mark instead: sent again, they change nothing.
func onceField() web.Fields { return web.Fields{{Name: "form", Value: rand.Text()}} }

// opened returns the hidden fields of the form of a stored record or, without an id, of a new one.
func (t *formInput) opened(id string, fields web.Fields) web.Fields {
	if id == "" {
		return onceField()
	}
	return t.openedWith(fields)
}

// once returns a Conflict if the form was saved before with the same values.
func (p *pages) once(ctx context.Context, tx *db.Tx, r *web.Request, t *formInput) error {
	if p.Once == nil || !t.Has("was.form") {
		return nil
	}
	digest := sha256.Sum256([]byte(r.URL.Path + "?" + t.Encode()))
	return p.Once(ctx, tx, r.OrganizationID, hex.EncodeToString(digest[:]))
}

// refused sets the errors of fields from err and reports whether err is a
// validation or uniqueness error.
func refused(fields web.Fields, err error) bool {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || len(fields) == 0 {
		return false
	}
	if member, _ := e.Details["member"].(string); e.Code == "already_exists" && fields.Field(member) != nil {
		e = &problem.Error{Kind: problem.Invalid, Issues: []problem.Issue{{Path: member, Message: "is already in use"}}}
	}
	switch {
	case e.Kind == problem.Conflict, e.Kind == problem.Precondition:
		fields[0].FormError = web.Sentence(e.Message)
		fields.Focus()
		return true
	case e.Kind == problem.Invalid && len(e.Issues) > 0:
		var ofFields []problem.Issue
		for _, issue := range e.Issues {
			at := nearest(fields, issue.Path)
			issue.Message = withLabels(fields, issue) + inLine(fields.Field(at), issue.Path)
			issue.Path = at
			switch {
			case fields.Field(issue.Path) != nil:
				ofFields = append(ofFields, issue)
			case fields[0].FormError == "":
				fields[0].FormError = formError(issue)
			}
		}
		if len(ofFields) == 0 {
			fields.Focus()
			return true
		}
		e = &problem.Error{Kind: e.Kind, Issues: ofFields}
	}
	return fields.Refused(e)
}

// Errors of forms as a whole.
const (
	missingRules = "A zone with custom rules needs at least one rule."
	tooExpensive = "These prices are too high: the longest ride would cost more than can be charged."
)

// formError describes an issue that no field of the form has.
func formError(issue problem.Issue) string {
	switch {
	case issue.Path == "rules" && issue.Code == "required":
		return missingRules
	case issue.Path == "" && issue.Code == "too_large":
		return tooExpensive
	}
	return label(strings.TrimSpace(strings.ReplaceAll(issue.Path, ".", " ")+" "+issue.Message) + ".")
}

// memberName matches names of members in messages.
var memberName = regexp.MustCompile(`\b(start|[a-z]+(_[a-z]+)+)\b`)

// withLabels returns the message of an issue with the labels of fields instead of their names.
func withLabels(fields web.Fields, issue problem.Issue) string {
	siblings := issue.Path[:strings.LastIndexByte(issue.Path, '.')+1]
	return memberName.ReplaceAllStringFunc(issue.Message, func(name string) string {
		for _, full := range []string{siblings + name, name} {
			if f := fields.Field(full); f != nil {
				return "“" + f.Label + "”"
			}
		}
		return name
	})
}

// nearest returns the field of an issue: of its path or the closest prefix.
func nearest(fields web.Fields, path string) string {
	for at := path; at != ""; {
		if fields.Field(at) != nil {
			return at
		}
		i := strings.LastIndexByte(at, '.')
		at = at[:max(0, i)]
	}
	return path
}

// inLine names the line of a text that an issue is about. Empty: the field is no text of lines, or the issue
// is about all of it.
func inLine(f *web.Field, path string) string {
	if f == nil || path == f.Name {
		return ""
	}
	switch line := strings.TrimPrefix(path, f.Name+"."); f.Name {
	case "metadata":
		return " in “" + line + "”"
	case "checklist":
		if _, row, ok := rowOf(path); ok {
			return fmt.Sprintf(" in line %d", lineNumber(f.Value, row))
		}
	}
	return ""
}

// lineNumber returns the number of the line with an item of [web.Lines], which leaves out empty ones.
func lineNumber(text string, item int) int {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.TrimSpace(line) == "" {
			continue
		}
		if item--; item < 0 {
			break
		}
	}
	return number
}

// formInput parses the values of a form and records parse errors.
type formInput struct {
	url.Values
	v problem.Validation

	// used has the rows of the form that are in the record, in its order, by list. Lists without any have
	// the same rows in both.
	used map[string][]int

	// The fields of the record that others have changed, and the labels of those that this form
	// replaces. Nil: nobody has changed it.
	stored   web.Fields
	replaced []string
}

// storedMark differs between different values of a record's fields.
func storedMark(stored web.Fields) string {
	h := sha256.New()
	for _, f := range stored {
		if f.Value != "" { // an empty field, such as that of a new vehicle type, is as good as none
			_, _ = fmt.Fprintf(h, "%q %q\n", f.Name, web.LineFeeds(f.Value))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// openedWith is the hidden field by which [formInput.checkStored] recognizes changes by others.
// fields are those of the record until the form is submitted. A form that is shown again has the
// mark that it was opened with, unless it reports such a change.
func (t *formInput) openedWith(fields web.Fields) web.Fields {
	mark := t.Get("was.stored")
	switch {
	case t.stored != nil:
		mark = storedMark(t.stored)
	case t.Values == nil:
		mark = storedMark(fields)
	}
	return web.Fields{{Name: "stored", Value: mark}}
}

var errChangedByOthers = errors.New("others have changed the record of the form")

// checkStored returns [errChangedByOthers] for an update of a record that others have changed since
// the form was opened, unless the update changes nothing. Call it with the fields of the record
// before and after the update, in the transaction, which the error ends.
func (t *formInput) checkStored(before, after web.Fields) error {
	t.stored, t.replaced = nil, nil
	if mark := t.Get("was.stored"); mark == "" || mark == storedMark(before) {
		return nil
	}
	for _, f := range slices.Concat(before, after) { // rows of either
		label := labelInRow(f)
		if web.LineFeeds(valueOf(before, f.Name)) != web.LineFeeds(valueOf(after, f.Name)) && !slices.Contains(t.replaced, label) {
			t.replaced = append(t.replaced, label)
		}
	}
	if len(t.replaced) == 0 {
		return nil
	}
	t.stored = before
	return errChangedByOthers
}

// labelInRow is the label of a field, with its list, if several have that label, and the number of its row.
func labelInRow(f web.Field) string {
	list, row, ok := rowOf(f.Name)
	if !ok {
		return f.Label
	}
	kind := map[string]string{"per_min_pricing": "price by time, ", "per_km_pricing": "price by distance, "}[list]
	return fmt.Sprintf("%s (%sno. %d)", f.Label, kind, row+1)
}

// rowOf returns the list and the row of a field such as rules.1.maximum_speed_kph.
func rowOf(name string) (list string, row int, ok bool) {
	list, rest, _ := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, ".")
	row, err := strconv.Atoi(number)
	return list, row, err == nil
}

// fill sets fields to the submitted values, except for rows that were not submitted. A choice that is no
// option any more becomes one, since a browser would submit the first option in its place.
func fill(fields web.Fields, values url.Values) {
	rows := make(map[string]int) // submitted ones by list
	for name := range values {
		if list, row, ok := rowOf(name); ok {
			rows[list] = max(rows[list], row+1)
		}
	}
	for i := range fields {
		f := &fields[i]
		if list, row, ok := rowOf(f.Name); ok && row >= rows[list] {
			continue
		}
		fields[i : i+1].Fill(values)
		if f.Type == "select" && f.Value != "" && !slices.ContainsFunc(f.Options, func(o web.Option) bool { return o.Value == f.Value }) {
			f.Options = append(slices.Clip(f.Options), web.Option{Value: f.Value, Label: "As chosen before"})
		}
	}
}

// valueOf is the value of a field, empty if there is none.
func valueOf(fields web.Fields, name string) string {
	if f := fields.Field(name); f != nil {
		return f.Value
	}
	return ""
}

// changed reports whether a field differs from its original value.
func (t *formInput) changed(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return t.text(name) != t.text("was."+name) })
}

// text is a value without surrounding spaces.
func (t *formInput) text(name string) string { return strings.TrimSpace(t.Get(name)) }

// on reports whether a checkbox is checked.
func (t *formInput) on(name string) bool { return t.Get(name) != "" }

// maxRows is the number of rows that are read of a list. Records have at most 100, so one more is refused
// instead of dropped.
const maxRows = 101

// rows counts the submitted rows of a list by a member that each has.
func (t *formInput) rows(list, member string) int {
	n := 0
	for n < maxRows && t.Has(list+"."+strconv.Itoa(n)+"."+member) {
		n++
	}
	return n
}

// use adds a row to the record.
func (t *formInput) use(list string, row int) {
	if t.used == nil {
		t.used = make(map[string][]int)
	}
	t.used[list] = append(t.used[list], row)
}

// inRows returns an error with the issues of lists at the rows of the form.
func (t *formInput) inRows(err error) error {
	return withPaths(err, func(path string) string {
		list, n, ok := rowOf(path)
		if rows := t.used[list]; ok && n < len(rows) {
			return strings.Replace(path, "."+strconv.Itoa(n), "."+strconv.Itoa(rows[n]), 1)
		}
		return path
	})
}

// withPaths returns an error with other paths of its issues.
func withPaths(err error, other func(path string) string) error {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	moved := *e
	moved.Issues = slices.Clone(e.Issues)
	for i := range moved.Issues {
		moved.Issues[i].Path = other(moved.Issues[i].Path)
	}
	return &moved
}

// grouped is a whole number with commas between its thousands. Other commas are decimal ones.
var grouped = regexp.MustCompile(`^-?[1-9][0-9]{0,2}(,[0-9]{3})+$`)

// optional parses a whole number, nil if empty.
func (t *formInput) optional(name string) *int64 {
	text := t.text(name)
	if text == "" {
		return nil
	}
	if grouped.MatchString(text) {
		text = strings.ReplaceAll(text, ",", "")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.v.AddCode("invalid_value", name, "must be a whole number")
		return nil
	}
	return &n
}

// integer parses a whole number, 0 if empty.
func (t *formInput) integer(name string) int64 {
	if n := t.optional(name); n != nil {
		return *n
	}
	return 0
}

// amount parses an amount of a currency, nil if empty.
func (t *formInput) amount(name, currency string) *int64 {
	text := t.text(name)
	if text == "" {
		return nil
	}
	n, ok := parseAmount(text, currency)
	if !ok {
		t.v.AddCode("invalid_value", name, "must be an amount such as %s", plain(150, currency))
		return nil
	}
	return &n
}

// position parses the fields name.lat and name.lng, nil if both are empty.
func (t *formInput) position(name string) *geo.Position {
	lat, lng := t.degrees(name+".lat"), t.degrees(name+".lng")
	switch {
	case lat == nil && lng == nil:
		return nil
	case lat == nil && !t.v.Has(name+".lat"):
		t.v.AddCode("required", name+".lat", "is required with a longitude")
	case lng == nil && !t.v.Has(name+".lng"):
		t.v.AddCode("required", name+".lng", "is required with a latitude")
	case lat != nil && lng != nil:
		return &geo.Position{Lat: *lat, Lng: *lng}
	}
	return nil
}

func (t *formInput) degrees(name string) *float64 {
	text := t.text(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != n || n < -180 || n > 180 {
		t.v.AddCode("invalid_value", name, "must be degrees, such as 52.520008")
		return nil
	}
	return &n
}

// metadata parses lines of a name, a colon and a value, as [metadataLine] shows them. Lines of stored metadata
// are as they are stored, even if their names contain a colon.
func (t *formInput) metadata(stored map[string]string) map[string]string {
	names := make(map[string]string, len(stored)) // by line
	for name, value := range stored {
		names[strings.TrimSpace(metadataLine(name, value))] = name
	}
	m := map[string]string{}
	for _, line := range web.Lines(t.Get("metadata")) {
		was, unedited := names[line]
		line = strings.ReplaceAll(line, lineBreak, "\n")
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		for was := range stored { // an edited value of a name with a colon
			if rest, found := strings.CutPrefix(line, was+":"); found && len(was) > len(name) {
				name, value = was, strings.TrimSpace(rest)
			}
		}
		if unedited {
			name, value, ok = was, stored[was], true
		}
		switch _, twice := m[name]; {
		case !ok:
			t.v.AddCode("invalid_format", "metadata", "must be lines such as depot: north")
			return nil
		case twice:
			t.v.AddCode("invalid_value", "metadata", "has two lines of “%s”", name)
			return nil
		}
		m[name] = value
	}
	return m
}

// lineBreak is shown for a line break in metadata.
const lineBreak = "⏎"

func metadataLine(name, value string) string {
	return strings.ReplaceAll(web.LineFeeds(name+": "+value), "\n", lineBreak)
}

// metadataField edits a record's metadata.
func metadataField(m map[string]string) web.Field {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(metadataLine(name, m[name]) + "\n")
	}
	return web.Field{Name: "metadata", Label: "Metadata", Type: "textarea", Rows: 3, Optional: true, Value: strings.TrimSuffix(b.String(), "\n"), Help: "Your own, a line each: depot: north"}
}

// changedMetadata is the change of a field of [metadataField], against the locked record. An unedited one
// changes nothing, even if names or values have characters that the field cannot show.
func (t *formInput) changedMetadata(stored map[string]string) (optional.Value[map[string]string], error) {
	if t.Get("metadata") == web.LineFeeds(metadataField(stored).Value) {
		return optional.Value[map[string]string]{}, nil
	}
	m := t.metadata(stored)
	return optional.Of(m), t.v.Err()
}

// elementFields returns the fields of an element of a list of a record; none if there is no such
// element.
func elementFields[E any](list []E, is func(E) bool, fields func(*E) web.Fields) web.Fields {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return fields(&list[i])
	}
	return nil
}

// positionFields are the fields of [formInput.position].
func positionFields(name string, at *geo.Position, help string) web.Fields {
	lat, lng := "", ""
	if at != nil {
		lat, lng = strconv.FormatFloat(at.Lat, 'f', -1, 64), strconv.FormatFloat(at.Lng, 'f', -1, 64)
	}
	return web.Fields{
		{Name: name + ".lat", Label: "Latitude", Type: "text", Mode: "decimal", Optional: true, Value: lat, Help: help, Placeholder: "52.520008"},
		{Name: name + ".lng", Label: "Longitude", Type: "text", Mode: "decimal", Optional: true, Value: lng, Placeholder: "13.404954"},
	}
}

// externalField edits the external id.
func externalField(id fleet.NullString) web.Field {
	return web.Field{Name: "external_id", Label: "External id", Type: "text", Optional: true, Most: 128, Value: string(id), Help: "The id in your own system."}
}

// optionalInteger formats a number, empty for nil.
func optionalInteger(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// checked is the value of a checkbox.
func checked(on bool) string {
	if on {
		return "on"
	}
	return ""
}

// plain formats an amount for a field: "12.50".
func plain(amount int64, currency string) string {
	digits, _ := tariff.MinorDigits(currency)
	text, sign := strconv.FormatInt(amount, 10), ""
	if amount < 0 {
		text, sign = text[1:], "-"
	}
	for len(text) <= digits {
		text = "0" + text
	}
	if digits == 0 {
		return sign + text
	}
	return sign + text[:len(text)-digits] + "." + text[len(text)-digits:]
}

// plainOr is plain for an optional amount.
func plainOr(amount *int64, currency string) string {
	if amount == nil {
		return ""
	}
	return plain(*amount, currency)
}

// parseAmount parses an amount with a point or comma before the minor unit, whose
// digits may be incomplete.
func parseAmount(text, currency string) (int64, bool) {
	digits, ok := tariff.MinorDigits(currency)
	if !ok {
		return 0, false
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "−", "-"))
	sign := int64(1)
	if rest, minus := strings.CutPrefix(text, "-"); minus {
		sign, text = -1, rest
	} else {
		text = strings.TrimPrefix(text, "+")
	}
	units, minor, pointed := strings.Cut(strings.ReplaceAll(text, ",", "."), ".")
	isDigits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !isDigits(units) || pointed && (!isDigits(minor) || len(minor) > digits) {
		return 0, false
	}
	n, err := strconv.ParseInt(units+minor+strings.Repeat("0", digits-len(minor)), 10, 64)
	return sign * n, err == nil
}

// options returns the options of a select from records, after an empty one labeled
// none unless that is empty.
func options[T any](list []T, none string, option func(T) web.Option) []web.Option {
	var all []web.Option
	if none != "" {
		all = append(all, web.Option{Label: none})
	}
	for _, x := range list {
		all = append(all, option(x))
	}
	return all
}

// confirmed asks for confirmation of a permanent change. If it returns false, it
// has rendered the page.
func (p *pages) confirmed(w http.ResponseWriter, r *web.Request, page web.Page, c web.Confirm) (bool, error) {
	if r.Method == http.MethodPost {
		values, ok := p.Form(w, r)
		if !ok {
			return false, nil
		}
		if p.Confirmed(values, c) {
			return true, nil
		}
	}
	return false, p.Confirm(w, r, page.Title, page, c)
}

// change runs a change. If fields are invalid, it sets their errors and returns
// false. The error is Conflict if a form with [onceField] was saved before.
func (p *pages) change(r *web.Request, fields web.Fields, t *formInput, fn func(ctx context.Context, tx *db.Tx) error) (bool, error) {
	err := t.v.Err()
	var saved error
	if err == nil {
		err = t.inRows(p.write(r, func(ctx context.Context, tx *db.Tx) error {
			if saved = p.once(ctx, tx, r, t); saved != nil {
				return saved
			}
			return fn(ctx, tx)
		}))
	}
	if saved != nil {
		return false, saved
	}
	if err == nil {
		return true, nil
	}
	fill(fields, t.Values)
	if errors.Is(err, errChangedByOthers) {
		fields[0].FormError = "This was changed since the form was opened. Nothing was saved. Save again to replace what is stored in: " + strings.Join(t.replaced, "; ") + "."
		return false, nil
	}
	if refused(fields, err) {
		return false, nil
	}
	return false, err
}
