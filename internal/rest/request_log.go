package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/telemetry"

	"github.com/google/uuid"
)

// maxLoggedPath bounds the path in the request log, in bytes.
const maxLoggedPath = 300

// writeStatus writes the status of the answer.
func (r *Request) writeStatus(w http.ResponseWriter, status int) {
	r.status = status
	w.WriteHeader(status)
}

// codeOf returns the code of a problem.
func codeOf(body []byte) string {
	var p struct{ Code string }
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.Code
}

// logRequest describes a request to telemetry, and records it if its key is known.
func (a *API) logRequest(r *Request) {
	k := r.Key
	if k == nil {
		k = r.refused
	}
	info := telemetry.RequestFrom(r.http.Context())
	if k != nil {
		info.SetClient(k.OrganizationID, k.ID)
	}
	route := ""
	if r.route != nil {
		route = a.c.Base + r.route.Path
	}
	info.SetRoute(r.surface, route)
	if k == nil || a.c.Requests == nil {
		return
	}
	if r.refusal.Rule == requestlog.Resource {
		a.findRule(k, &r.refusal)
	}
	took := time.Since(r.start)
	a.c.Requests.Record(requestlog.Request{
		RequestID: r.ID, Key: requestlog.Key{ID: k.ID, OrganizationID: k.OrganizationID, Service: string(k.Service), Environment: string(k.Environment)},
		At: a.c.DB.Now().Add(-took), Duration: took, Method: r.http.Method, Path: r.loggedPath(), Status: r.status, Code: r.code, Address: r.IP, Refusal: r.refusal,
	})
}

// findRule finds the part of a key's permissions that denies a permission. It is the level if
// another one alone would allow it.
func (a *API) findRule(k *apikey.Key, f *requestlog.Refusal) {
	c, _ := a.c.Keys.Catalogue(k.Service)
	resource, action, _ := strings.Cut(f.Needed, ".")
	if c.Allows(k.Permissions, resource, apikey.Action(action)) {
		*f = requestlog.Refusal{} // refused by a service for another reason
		return
	}
	for _, level := range []apikey.Level{apikey.ReadOnly, apikey.ReadWrite, apikey.Admin} {
		if c.Allows(apikey.Permissions{Level: level, Resources: k.Resources}, resource, apikey.Action(action)) {
			*f = requestlog.Refusal{Rule: requestlog.Level, Needed: string(level)}
			return
		}
	}
}

// loggedPath returns the path with the query as the log shows it: a value that may be personal
// is replaced by *.
func (r *Request) loggedPath() string {
	u := r.http.URL
	path := u.EscapedPath()
	if u.RawQuery == "" {
		if len(r.http.RequestURI) > maxLoggedPath {
			return strings.Clone(clipPath(path)) // do not retain the whole line
		}
		return path
	}
	raw := r.query.raw
	if raw == nil {
		raw, _ = url.ParseQuery(u.RawQuery)
	}
	var b strings.Builder
	b.WriteString(clipPath(path))
	separator := byte('?')
	names := make([]string, 0, len(raw))
	for name := range raw {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if b.Len() > maxLoggedPath {
			break
		}
		value := "*"
		if given := strings.Join(raw[name], ","); r.route != nil && len(given) <= maxLoggedPath && r.route.isSafe(name, given) {
			value = url.QueryEscape(given)
		}
		b.WriteByte(separator)
		b.WriteString(url.QueryEscape(schema.Clip(name)) + "=" + value)
		separator = '&'
	}
	return b.String()
}

func clipPath(path string) string { return path[:min(len(path), maxLoggedPath)] }

// isSafe reports whether a parameter has a valid value of a kind that is not free text, an id
// or a place.
func (rt *Route) isSafe(name, value string) bool {
	switch name {
	case "limit":
		_, err := strconv.Atoi(value)
		return err == nil
	case "sort":
		return slices.Contains(rt.Sort, strings.TrimPrefix(value, "-"))
	case "expand[]":
		return len(rt.expansions(url.Values{name: {value}})) > 0
	}
	base, _, _ := strings.Cut(name, "[")
	i := slices.IndexFunc(rt.Query, func(p Param) bool { return p.Name == base })
	if i < 0 {
		return false
	}
	p := &rt.Query[i]
	switch p.Kind {
	case EnumParam, EnumsParam, IntParam, BoolParam, TimeParam, IntRange, TimeRange:
		_, wrong := paramKinds[p.Kind].parse(p, name, value)
		return wrong == ""
	}
	return false
}

var requestRecord = &schema.Record{Name: "request", Doc: "A request with an API key. Bodies are not recorded.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("request")},
	{Name: "request_id", Type: schema.Text(), Doc: "X-Request-Id of the answer.", Example: exampleID("request")},
	{Name: "at", Type: schema.Timestamp(), Doc: "Its start."},
	{Name: "method", Type: schema.Text(), Example: "GET"},
	{Name: "path", Type: schema.Text(), Doc: "With the query. Values that may be personal, such as search texts and ids, are replaced by *.", Example: "/api/v1/tickets?status=open"},
	{Name: "status", Type: schema.Integer(), Doc: "Of the answer; 499: the client closed the connection."},
	{Name: "code", Type: schema.Text(), Nullable: true, Doc: "Of the problem."},
	{Name: "duration_ms", Type: schema.Number(), Doc: "Precise to a microsecond."},
	{Name: "key", Type: schema.Object(
		schema.Member{Name: "id", Type: schema.ID()},
		schema.Member{Name: "name", Type: schema.Text(), Example: "Reports"},
		schema.Member{Name: "partial_key", Type: schema.Text(), Doc: "Its last 8 characters.", Example: "k3Zq9xYb"},
	)},
	{Name: "address", Type: schema.Text(), Nullable: true, Doc: "Of the client; null if a proxy does not report it."},
	{Name: "refused_by", Nullable: true, Doc: "The rule of the key that refused it; null if none did.", Type: schema.Object(
		schema.Member{Name: "rule", Type: schema.Enum(ruleNames()...)},
		schema.Member{Name: "needed", Type: schema.Text(), Nullable: true, Doc: "A value that the rule would have accepted: a level, a permission, a subaccount's id or all, an address, a number of requests, a base URL.", Example: "tickets.create"},
	)},
}}

func ruleNames() []string {
	var names []string
	for _, r := range requestlog.Rules() {
		names = append(names, string(r))
	}
	return names
}

type wireRequest struct {
	ID         string         `json:"id"`
	Object     string         `json:"object"`
	RequestID  string         `json:"request_id"`
	At         rfc3339.Time   `json:"at"`
	Method     string         `json:"method"`
	Path       string         `json:"path"`
	Status     int            `json:"status"`
	Code       *string        `json:"code"`
	DurationMS float64        `json:"duration_ms"`
	Key        wireLogKey     `json:"key"`
	Address    *string        `json:"address"`
	RefusedBy  *wireRefusedBy `json:"refused_by"`
}

type wireLogKey struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	PartialKey string `json:"partial_key"`
}

type wireRefusedBy struct {
	Rule   requestlog.Rule `json:"rule"`
	Needed *string         `json:"needed"`
}

func wireOfRequest(r *requestlog.Request) wireRequest {
	w := wireRequest{
		ID: r.ID, Object: "request", RequestID: r.RequestID, At: rfc3339.Time(r.At), Method: r.Method, Path: r.Path, Status: r.Status,
		DurationMS: float64(r.Duration.Microseconds()) / 1000, Key: wireLogKey{r.Key.ID, r.Key.Name, r.Key.PartialKey},
	}
	if r.Code != "" {
		w.Code = &r.Code
	}
	if r.Address.IsValid() {
		w.Address = new(r.Address.String())
	}
	if r.Refusal.Rule != "" {
		w.RefusedBy = &wireRefusedBy{Rule: r.Refusal.Rule}
		if r.Refusal.Needed != "" {
			w.RefusedBy.Needed = &r.Refusal.Needed
		}
	}
	return w
}

// requestRoutes returns the routes of the request log.
func (a *API) requestRoutes() []Route {
	const which = " With the permission settings.read and, in the fleet, all subaccounts, they are those of all keys of this API; otherwise those of the calling key."
	return []Route{
		{
			Method: "GET", Path: "/requests", ID: "listRequests", Tag: "API key", Summary: "List recent requests",
			Doc: "The last requests of API keys, newest first: per key at most 500 that succeeded and 500 that failed, for 7 days unless the operator has set another retention. A request appears some seconds after its answer." + which,
			Query: []Param{
				{Name: "key_id", Kind: StringParam, Doc: "Of this key."},
				{Name: "failed", Kind: BoolParam, Doc: "true: only those with a status of 400 or higher."},
				{Name: "code", Kind: StringParam, Doc: "With this problem code.", Example: "permission_denied"},
			},
			Output: requestRecord, List: true, Handle: a.listRequests,
		},
		{
			Method: "GET", Path: "/requests/{id}", ID: "getRequest", Tag: "API key", Summary: "Read a recent request",
			Doc:    "By its id, or by the X-Request-Id of its answer; the newest if several have it." + which,
			Output: requestRecord, Codes: []string{"not_found"},
			Handle: func(ctx context.Context, r *Request) (Response, error) {
				got, err := a.c.Requests.Find(ctx, r.Key.OrganizationID, r.Path("id"), r.requestQuery())
				if err != nil {
					return Response{}, err
				}
				return OK(wireOfRequest(&got)), nil
			},
		},
	}
}

// requestQuery selects the requests that the key may read.
func (r *Request) requestQuery() requestlog.Query {
	q := requestlog.Query{Service: string(r.Key.Service), Environment: string(r.Key.Environment)}
	if !r.Can("settings", apikey.Read) || r.Key.Scope.Mode != apikey.AllSubaccounts {
		q.KeyID = r.Key.ID
	}
	return q
}

func (a *API) listRequests(ctx context.Context, r *Request) (Response, error) {
	q := r.requestQuery()
	if id := r.String("key_id"); id != "" {
		if q.KeyID != "" && q.KeyID != id {
			return List([]wireRequest{}, nil), nil
		}
		q.KeyID = id
	}
	q.Failed, _ = r.Bool("failed")
	q.Code = r.String("code")
	var after uuid.UUID
	if more, err := r.Cursor(&after); err != nil {
		return Response{}, err
	} else if more {
		q.Before = after.String()
	}
	q.Limit = r.Limit() + 1
	found, err := a.c.Requests.List(ctx, r.Key.OrganizationID, q)
	if err != nil {
		return Response{}, err
	}
	list := make([]wireRequest, 0, len(found))
	for i := range found[:min(len(found), r.Limit())] {
		list = append(list, wireOfRequest(&found[i]))
	}
	if len(found) < q.Limit {
		return List(list, nil), nil
	}
	return List(list, list[len(list)-1].ID), nil
}
