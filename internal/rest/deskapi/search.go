package deskapi

import (
	"context"
	"html"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/search"
)

var searchRecord = &schema.Record{Name: "search_result", Doc: "A record that matches a search.", Members: []schema.Member{
	{Name: "id", Type: schema.Text(), Doc: "Id of the record; of an order, the shop's."},
	{Name: "object", Type: schema.Enum("search_result")},
	{Name: "type", Type: schema.Enum(words(search.Types)...)},
	{Name: "title", Type: schema.Text(), Example: "#42 Where is my bicycle?"},
	{Name: "highlight", Type: schema.Text(), Nullable: true, Doc: "Where it matches, as HTML: matching words are in mark elements, everything else is escaped.", Example: "The <mark>lock</mark> of bike 4711 does not open."},
	{Name: "url", Type: schema.Text(), Nullable: true, Doc: "URL of its page in the dashboard.", Example: "https://help.example.com/tickets/42"},
	{Name: "score", Type: schema.Number(), Doc: "From 0 to 1: 1 for an identifier, less for words.", Example: 0.6},
}}

type searchResult struct {
	ID        string      `json:"id"`
	Object    string      `json:"object"`
	Type      search.Type `json:"type"`
	Title     string      `json:"title"`
	Highlight *string     `json:"highlight"`
	URL       *string     `json:"url"`
	Score     float64     `json:"score"`
}

func (a *API) searchRoutes() []rest.Route {
	return []rest.Route{{
		Method: "GET", Path: "/search", ID: "search", Tag: "Search", Summary: "Search records of all kinds",
		Doc: "At most ten results of each type, the likeliest first. Messages are found in the ten newest matching tickets; orders by their number, vehicles by code, device or external id, rides by id or external id. " +
			"Types that the key may not read are left out; orders, vehicles and rides need customers.read.",
		Needs: needs("tickets", apikey.Read), Codes: []string{"range_too_large"},
		Query: []rest.Param{
			{Name: "q", Kind: rest.StringParam, Doc: "Words and filters as in the list of tickets; `#6` for a number; names, addresses and phone numbers in any form.", Example: "Max Weber", Required: true, Max: search.MaxText},
			{Name: "types", Kind: rest.EnumsParam, Values: words(search.Types)},
		},
		Output: searchRecord, List: true, Handle: a.search,
	}}
}

// searchNeeds are the resources that a key must be able to read for types beside tickets.
var searchNeeds = map[search.Type]string{
	search.Message: "messages", search.Customer: "customers", search.Order: "customers", search.Vehicle: "customers", search.Ride: "customers",
}

func (a *API) search(ctx context.Context, r *rest.Request) (rest.Response, error) {
	types := rest.Typed[search.Type](r.Strings("types"))
	if len(types) == 0 {
		types = search.Types
	}
	var hidden []search.Type
	for t, resource := range searchNeeds {
		if !r.Can(resource, apikey.Read) {
			hidden = append(hidden, t)
		}
	}
	if !slices.ContainsFunc(types, func(t search.Type) bool { return !slices.Contains(hidden, t) }) {
		return rest.List([]searchResult{}, nil), nil
	}
	found, err := a.Search.Find(ctx, r.Key.OrganizationID, search.Query{Text: r.String("q"), Types: types, Hidden: hidden})
	if err != nil {
		return rest.Response{}, asSearchError(err)
	}
	found = found[:min(len(found), r.Limit())]
	list := make([]searchResult, len(found))
	for i := range found {
		f := &found[i]
		list[i] = searchResult{ID: f.ID, Object: "search_result", Type: f.Type, Title: f.Title, Highlight: highlight(f.Excerpt), Score: f.Score}
		if f.Path != "" {
			list[i].URL = new(a.BaseURL + f.Path)
		}
	}
	return rest.List(list, nil), nil
}

// highlight returns an excerpt as HTML; nil if it is empty.
func highlight(spans []desk.Span) *string {
	var b strings.Builder
	for _, s := range spans {
		if s.Hit {
			b.WriteString("<mark>" + html.EscapeString(s.Text) + "</mark>")
		} else {
			b.WriteString(html.EscapeString(s.Text))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return new(b.String())
}
