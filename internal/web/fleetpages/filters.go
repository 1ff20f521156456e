package fleetpages

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// filters are [web.Filters] that parse their values.
type filters web.Filters

// parse sets the fields from the URL.
func (f *filters) parse(r *web.Request) {
	query := r.URL.Query()
	for i := range f.Fields {
		f.Fields[i].Optional = true
		if value := strings.TrimSpace(query.Get(f.Fields[i].Name)); value != "" {
			f.Fields[i].Value = value
			f.All = r.URL.Path
		}
	}
}

// get is the value of a field; of a select only one of its options.
func (f *filters) get(name string) string {
	field := f.Fields.Field(name)
	if field == nil {
		return ""
	}
	if field.Type == "select" {
		for _, o := range field.Options {
			if o.Value == field.Value {
				return field.Value
			}
		}
		field.Value = ""
	}
	return field.Value
}

// list is get as a query filter, nil if empty.
func (f *filters) list(name string) []string {
	if value := f.get(name); value != "" {
		return []string{value}
	}
	return nil
}

// fail sets the error of a field.
func (f *filters) fail(name, text string) { f.Fields.Field(name).Error = text }

// ok reports whether no field has an error.
func (f *filters) ok() bool { return len(f.Fields.Wrong()) == 0 }

// integer parses a whole number, nil if empty.
func (f *filters) integer(name string) *int64 {
	value := f.get(name)
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		f.fail(name, "Must be a whole number.")
		return nil
	}
	return &n
}

// days parses two dates as a range from the start of the first to the end of the
// second, in the reader's time zone.
func (f *filters) days(from, to string, zone *time.Location) period.Range {
	read := func(name string, more int) *time.Time {
		value := f.get(name)
		if value == "" {
			return nil
		}
		d, err := time.Parse(time.DateOnly, value)
		if err != nil || d.Year() < 1970 || d.Year() > 9999 {
			f.fail(name, "Must be a date such as 2026-11-21.")
			return nil
		}
		at := period.StartOf(d.Year(), d.Month(), d.Day()+more, zone)
		return &at
	}
	return period.Range{Low: read(from, 0), High: read(to, 1), HighOpen: true}
}

// sort parses a sort key, descending after a minus sign.
func (f *filters) sort() keyset.Sort {
	member, descending := strings.CutPrefix(f.get("sort"), "-")
	return keyset.Sort{Field: member, Descending: descending}
}

// subaccountChoices returns the subaccounts and the field that selects one, nil if
// there is only one.
func (p *pages) subaccountChoices(ctx context.Context, r *web.Request) ([]fleet.Subaccount, web.Fields, error) {
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil || len(subs) < 2 {
		return subs, nil, err
	}
	return subs, web.Fields{{Name: "subaccount", Label: "Subaccount", Type: "select", Options: options(subs, "All", func(s fleet.Subaccount) web.Option {
		return web.Option{Value: s.ID, Label: s.Name}
	})}}, nil
}

// resultCount describes the number of records on a page of a list, which are called one or other.
func resultCount(n int, first bool, next *keyset.Cursor, one, other string) string {
	count := web.Count(n, one, other)
	switch {
	case next != nil && first:
		return "The first " + count + " of more"
	case next != nil || !first:
		return count + " on this page"
	}
	return count
}

// namedLink is a name with a link.
type namedLink struct {
	Path string // empty for a deleted record
	Name string
}
