// Package mds serves the data of the fleet for public agencies: the Provider API of the
// Mobility Data Specification 2.0 (Open Mobility Foundation), in the mode micromobility.
//
// Each subaccount with the data enabled is an area. An agency reads it with a JSON Web
// Token that it signs with its own key; the subaccount has the public half. The token
// names the area, so the paths are the same for all of them. Ids are those of the fleet
// as UUIDs: the same 128 bits, so they are stable and lead back to the records.
package mds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Paths of production and sandbox.
const (
	Path        = "/mds/v2/"
	SandboxPath = "/sandbox" + Path
)

const (
	version      = "2.0.0" // of answers
	mediaVersion = "2.0"   // of media types
	jsonType     = "application/vnd.mds+json"
	csvType      = "text/vnd.mds+csv"
)

// pageSize is the number of records of a page; the lists of one hour have no pages.
const pageSize = 1000

// Provider serves the data of one environment. It is safe for concurrent use.
type Provider struct {
	service *fleet.Service
	prefix  string // of paths: "/mds/v2/"
	root    string // URL without a trailing slash
	log     *slog.Logger

	mu      sync.Mutex
	reading map[string]int // answers with telemetry that are being sent, by organization
}

// New returns the Provider API of one environment. origin is the server's URL,
// "https://help.example.com", and prefix the path of the API.
func New(service *fleet.Service, origin, prefix string, log *slog.Logger) *Provider {
	return &Provider{service: service, prefix: prefix, root: origin + strings.TrimSuffix(prefix, "/"), log: log, reading: make(map[string]int)}
}

// call is an authorized request.
type call struct {
	*Provider
	area  *fleet.MDSArea
	query url.Values
}

// fault is an answer other than 200, with the body of an MDS error.
type fault struct {
	status      int
	code        string // "bad_param"
	description string
}

func (f *fault) Error() string { return f.description }

func faultf(status int, code, format string, args ...any) *fault {
	return &fault{status, code, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements [http.Handler] for all paths below the prefix.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept, Authorization")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		p.fail(w, r, faultf(http.StatusMethodNotAllowed, "method_not_allowed", "The data is read with GET."))
		return
	}
	path := strings.TrimPrefix(r.URL.Path, p.prefix)
	mediaType := jsonType
	if strings.HasPrefix(path, "reports/") {
		mediaType = csvType
	}
	area, err := p.authorize(r)
	if err == nil && !accepts(r.Header.Values("Accept"), mediaType) {
		err = faultf(http.StatusNotAcceptable, "not_acceptable", "The header Accept must have %s;version=%s.", mediaType, mediaVersion)
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.fail(w, r, faultf(http.StatusBadRequest, "bad_param", "The query is not well formed."))
		return
	}
	c := &call{p, &area, query}
	if path == "telemetry" {
		if err := c.telemetry(w, r); err != nil {
			p.fail(w, r, err)
		}
		return
	}
	body, err := c.answer(r.Context(), path)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.send(w, r, mediaType, http.StatusOK, body)
}

// answer returns the body of an answer other than that of telemetry.
func (c *call) answer(ctx context.Context, path string) ([]byte, error) {
	var data any
	var err error
	switch {
	case path == "vehicles":
		data, err = c.vehicles(ctx)
	case path == "vehicles/status":
		data, err = c.statuses(ctx)
	case strings.HasPrefix(path, "vehicles/status/"):
		data, err = c.status(ctx, strings.TrimPrefix(path, "vehicles/status/"))
	case strings.HasPrefix(path, "vehicles/"):
		data, err = c.vehicle(ctx, strings.TrimPrefix(path, "vehicles/"))
	case path == "trips":
		data, err = c.trips(ctx)
	case path == "events/historical":
		data, err = c.historical(ctx)
	case path == "events/recent":
		data, err = c.recent(ctx)
	case strings.HasPrefix(path, "reports/"):
		return c.report(ctx, strings.TrimPrefix(path, "reports/"))
	default:
		err = faultf(http.StatusNotFound, "not_found", "There is no such path.")
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode an answer for an agency: %w", err)
	}
	return text, nil
}

func (p *Provider) send(w http.ResponseWriter, r *http.Request, mediaType string, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType+";version="+mediaVersion)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// fail answers with an error.
func (p *Provider) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*fault](err)
	switch {
	case ok:
	case problem.Of(err) == problem.NotFound:
		f = faultf(http.StatusNotFound, "not_found", "There is no such vehicle.")
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		return // the client is gone
	default:
		f = faultf(http.StatusServiceUnavailable, "unavailable", "The data cannot be read right now.")
		if problem.Of(err) != problem.Unavailable { // that is logged by the database
			f = faultf(http.StatusInternalServerError, "internal_error", "The request could not be answered.")
			p.log.ErrorContext(r.Context(), "data for an agency", "path", r.URL.Path, "error", err)
		}
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mds", error="invalid_token"`)
	}
	body, err := json.Marshal(struct {
		Error       string   `json:"error"`
		Description string   `json:"error_description"`
		Details     []string `json:"error_details"`
	}{f.code, f.description, []string{f.description}})
	if err != nil {
		p.log.ErrorContext(r.Context(), "encode an error for an agency", "error", err)
	}
	p.send(w, r, jsonType, f.status, body)
}

// accepts reports whether an Accept header has a media type in the supported version.
// Without a version, an older one is meant, which is not supported.
func accepts(lines []string, mediaType string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err == nil && name == mediaType && params["version"] == mediaVersion {
				return true
			}
		}
	}
	return false
}

const hourLayout = "2006-01-02T15"

// hour returns the hour that a parameter names: "2026-10-25T07", in UTC. Errors: 400 for
// another form; 404 for hours that are not over or before the area existed; 202 while
// the data of the hour may still change.
func (c *call) hour(ctx context.Context, name string) (from, to time.Time, err error) {
	text, err := c.required(name)
	if err != nil {
		return from, to, err
	}
	if from, err = time.Parse(hourLayout, text); err != nil || from.Format(hourLayout) != text { // "T7" is parsed, too
		return from, to, faultf(http.StatusBadRequest, "bad_param", "%s must be an hour in UTC such as 2026-10-25T07.", name)
	}
	to = from.Add(time.Hour)
	if to.After(c.area.Now) || !to.After(c.area.Subaccount.CreatedAt.Std()) {
		return from, to, faultf(http.StatusNotFound, "not_found", "The hour is not in the past, or before operations began.")
	}
	complete, err := c.service.MDSComplete(ctx, c.area, to)
	if err == nil && !complete {
		err = faultf(http.StatusAccepted, "not_available", "The data of this hour is not available yet.")
	}
	return from, to, err
}

// required returns a parameter that must be given once.
func (c *call) required(name string) (string, error) {
	values := c.query[name]
	if len(values) != 1 || values[0] == "" {
		return "", faultf(http.StatusBadRequest, "missing_param", "The parameter %s is required, once.", name)
	}
	return values[0], nil
}

// milliseconds returns a required parameter that is a time.
func (c *call) milliseconds(name string) (time.Time, error) {
	text, err := c.required(name)
	if err != nil {
		return time.Time{}, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<47 {
		return time.Time{}, faultf(http.StatusBadRequest, "bad_param", "%s must be a time in milliseconds since 1970.", name)
	}
	return time.UnixMilli(n).UTC(), nil
}

// links are the links of a page.
type links struct {
	Next *string `json:"next"` // nil on the last page
}

// next returns the links of a page that ends with a record; empty: the last page. The
// other parameters stay.
func (c *call) next(path, cursor string) links {
	if cursor == "" {
		return links{}
	}
	query := url.Values{}
	maps.Copy(query, c.query)
	query.Set("cursor", cursor)
	return links{new(c.root + "/" + path + "?" + query.Encode())}
}
