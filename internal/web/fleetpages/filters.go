package fleetpages

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// filters are the form above a list. Its template is "filters". They are read from
// the address, so a list can be kept and sent to somebody.
type filters struct {
	Fields web.Fields
	All    string // the list without them; empty when there are none
	Label  string // of the button; empty for that of a list
}

// parse fills the fields from the address.
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

// get is what is asked for; of a select only one of its options.
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

// list is get as the values of a query: none when nothing is asked for.
func (f *filters) list(name string) []string {
	if value := f.get(name); value != "" {
		return []string{value}
	}
	return nil
}

// fail says beside a field what is wrong with it.
func (f *filters) fail(name, text string) { f.Fields.Field(name).Error = text }

// ok reports whether nothing is.
func (f *filters) ok() bool { return len(f.Fields.Wrong()) == 0 }

// integer reads a whole number; nil when there is none.
func (f *filters) integer(name string) *int64 {
	value := f.get(name)
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		f.fail(name, "This is no whole number.")
		return nil
	}
	return &n
}

// days reads two dates as a time from the beginning of the one to the end of the
// other, where the reader is.
func (f *filters) days(from, to string, zone *time.Location) period.Range {
	read := func(name string, more int) *time.Time {
		value := f.get(name)
		if value == "" {
			return nil
		}
		d, err := time.Parse(time.DateOnly, value)
		if err != nil || d.Year() < 1970 || d.Year() > 9999 {
			f.fail(name, "This is no date such as 2026-11-21.")
			return nil
		}
		at := period.StartOf(d.Year(), d.Month(), d.Day()+more, zone)
		return &at
	}
	return period.Range{Low: read(from, 0), High: read(to, 1), HighOpen: true}
}

// sort reads an order: the name of a member, after a minus for the other way round.
func (f *filters) sort() fleet.Sort {
	member, descending := strings.CutPrefix(f.get("sort"), "-")
	return fleet.Sort{Member: member, Descending: descending}
}

// subaccountChoices returns the subaccounts, and the field that chooses one; none where there
// is only one.
func (p *pages) subaccountChoices(ctx context.Context, r *web.Request) ([]fleet.Subaccount, web.Fields, error) {
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil || len(subs) < 2 {
		return subs, nil, err
	}
	return subs, web.Fields{{Name: "area", Label: "Area", Type: "select", Options: options(subs, "All", func(s fleet.Subaccount) web.Option {
		return web.Option{Value: s.ID, Label: s.Name}
	})}}, nil
}

// resultCount says how many records a page of a list has.
func resultCount(n int, first bool, next *fleet.Cursor, what string) string {
	switch {
	case next != nil && first:
		return "The first " + pluralize(int64(n), what) + " of more"
	case next != nil || !first:
		return pluralize(int64(n), what) + " on this page"
	}
	return pluralize(int64(n), what)
}

// namedLink is something that a page leads to.
type namedLink struct {
	Path string // empty for what is no more
	Name string
}
