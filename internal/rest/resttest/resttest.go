// Package resttest tests an API over an in-memory network. Independent libraries validate every
// successful request and every answer against the OpenAPI document, and every answer is checked
// for the common conventions. All tests of routes share it, so that no test can omit the
// checks.
package resttest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/netguard/netguardtest"
	"github.com/kickstand-dev/kickstand/internal/rest"
)

// Peer is the address of a [Client]. APIs under test trust it as a proxy if they accept
// X-Forwarded-For.
const Peer = "192.0.2.1"

// Client calls an API. It is safe for concurrent use.
type Client struct {
	Origin string // of request URLs: "http://api.example.com"
	Base   string // below it: "/api/v1"
	Token  string // sent as Authorization: Bearer, unless empty

	t        testing.TB
	http     *http.Client
	document *document
}

// OpenAPI returns the document of an API.
func OpenAPI(t testing.TB, api *rest.API) []byte {
	t.Helper()
	text, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// New returns a client of an API at base, served until the end of the test. It also validates
// the document.
func New(t testing.TB, api *rest.API, base string) *Client {
	t.Helper()
	doc := read.document(t, OpenAPI(t, api))
	l := netguardtest.NewListener()
	srv := &http.Server{
		Handler:  api.Wrap(http.NotFoundHandler()),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	done := make(chan struct{})
	go func() { srv.Serve(l); close(done) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx, Peer+":40000") }
	transport := &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
		<-done
	})
	return &Client{
		Origin: "http://api.example.com", Base: base, t: t, document: doc,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// As returns a client with another key.
func (c *Client) As(token string) *Client {
	other := *c
	other.Token = token
	return &other
}

// Answer is the response to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // of reading the body: the transfer was aborted

	t testing.TB
}

// JSON decodes the answer into v.
func (a Answer) JSON(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.Body), v); err != nil {
		a.t.Fatalf("answer %d %q: %v", a.Status, a.Body, err)
	}
}

// Problem is the body of an error answer.
type Problem struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
	RequestID                           string `json:"request_id"`
	Required, Policy, Member            string
	Errors                              []struct{ Code, Detail, Pointer, Parameter, Header string }
}

// Problem returns the answer as a problem; zero for other answers.
func (a Answer) Problem() Problem {
	a.t.Helper()
	var p Problem
	if a.Body != "" && a.Header.Get("Content-Type") == "application/problem+json" {
		a.JSON(&p)
	}
	return p
}

// Code returns the problem's code, empty for other answers.
func (a Answer) Code() string { return a.Problem().Code }

// Get is Do without a body.
func (c *Client) Get(path string, headers ...string) Answer {
	c.t.Helper()
	return c.Do("GET", path, "", headers...)
}

// Do sends a request to a path below the base; a path that starts with the base is used as it
// is. A body is JSON unless a header sets another type. Headers have the form "If-Match: *".
func (c *Client) Do(method, path, body string, headers ...string) Answer {
	c.t.Helper()
	if !strings.HasPrefix(path, c.Base) {
		path = c.Base + path
	}
	request := func() *http.Request {
		req, err := http.NewRequestWithContext(c.t.Context(), method, c.Origin+path, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if c.Token != "" {
			req.Header.Set("Authorization", "Bearer "+c.Token)
		}
		own := map[string]bool{}
		for _, line := range headers {
			name, value, _ := strings.Cut(line, ":")
			name = http.CanonicalHeaderKey(name)
			if !own[name] {
				req.Header.Del(name)
				own[name] = true
			}
			if value = strings.TrimSpace(value); value != "" || name != "Content-Type" {
				req.Header.Add(name, value)
			}
		}
		return req
	}
	resp, err := c.http.Do(request())
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text), Err: err, t: c.t}
	c.check(request(), a)
	return a
}

// check validates an answer by the conventions and the document.
func (c *Client) check(req *http.Request, a Answer) {
	c.t.Helper()
	what := req.Method + " " + req.URL.RequestURI()
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "X-Request-Id"} {
		if len(a.Header.Values(name)) != 1 {
			c.t.Errorf("%s: answer %d has %d times the header %s", what, a.Status, len(a.Header.Values(name)), name)
		}
	}
	if a.Status >= 400 && req.Method != "HEAD" {
		p := a.Problem()
		// A replayed answer has the id of the first request.
		fresh := p.RequestID == a.Header.Get("X-Request-Id")
		if p.Code == "" || p.Status != a.Status || fresh == (a.Header.Get("Idempotent-Replayed") != "") || p.Instance != "urn:request:"+p.RequestID ||
			p.Title == "" || p.Detail == "" || !strings.HasSuffix(p.Type, "/problems/"+p.Code) {
			c.t.Errorf("%s: answer %d is no problem as it should be: %s", what, a.Status, a.Body)
		}
	}
	if (a.Status == 401) != (strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer realm=") && a.Status != 403) {
		c.t.Errorf("%s: answer %d has WWW-Authenticate %q", what, a.Status, a.Header.Get("WWW-Authenticate"))
	}
	if wait := a.Header.Get("Retry-After"); (a.Status == 429 || a.Status == 503) && wait == "" {
		c.t.Errorf("%s: answer %d has no Retry-After", what, a.Status)
	}
	if code := a.Code(); req.Method == "HEAD" || req.Method == "OPTIONS" || a.Status == 304 || code == "route_not_found" || code == "method_not_allowed" ||
		strings.HasSuffix(req.URL.Path, "/openapi.json") || a.Err != nil {
		return // not described by the document
	}
	route, err := c.document.find(req)
	if err != nil {
		if a.Status < 400 { // refusals may precede routing
			c.t.Errorf("%s: succeeded, but is not in the document: %v", what, err)
		}
		return
	}
	if a.Status < 400 {
		// Refused requests may violate the document.
		if err := route.checkRequest(req); err != nil {
			c.t.Errorf("%s: succeeded, but does not follow the document: %v", what, err)
		}
	}
	if kind := mediaType(a.Header); req.Method == "POST" && kind == rest.NDJSON {
		c.checkImport(what, a)
		if err := route.checkImport(mediaType(req.Header), a.Body); err != nil {
			c.t.Errorf("%s: the answer to the import does not follow the document: %v\n%s", what, err, a.Body)
		}
		return
	} else if kind == rest.GeoJSON {
		c.checkFeatures(what, a)
	}
	if err := route.checkAnswer(req, a); err != nil {
		c.t.Errorf("%s: answer %d does not follow the document: %v\n%s", what, a.Status, err, a.Body)
	}
}

// checkImport validates the answer to an import: a line for each record, in order, and the
// summary at the end.
func (c *Client) checkImport(what string, a Answer) {
	c.t.Helper()
	n, created, found, failed, ended := 0, 0, 0, 0, false
	for text := range strings.Lines(a.Body) {
		var line struct {
			Line, Status int
			ID           string
			Problem      *Problem
			Summary      *struct{ Created, Updated, Unchanged, Failed int }
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || ended {
			c.t.Errorf("%s: the answer to an import has the line %s: %v", what, text, err)
			return
		}
		n++
		switch {
		case line.Summary != nil:
			ended = line.Summary.Created == created && line.Summary.Updated+line.Summary.Unchanged == found && line.Summary.Failed == failed
		case line.Line == n && line.Status == 201 && line.ID != "" && line.Problem == nil:
			created++
		case line.Line == n && line.Status == 200 && line.ID != "" && line.Problem == nil:
			found++
		case line.Line == n && line.Problem != nil && line.Problem.Status == line.Status && line.Problem.Code != "" && line.Problem.Title != "" && line.Problem.Detail != "" &&
			strings.HasSuffix(line.Problem.Type, "/problems/"+line.Problem.Code) && line.Problem.Instance == "urn:request:"+line.Problem.RequestID:
			failed++
		default:
			c.t.Errorf("%s: line %d of the answer to an import is %s", what, n, text)
		}
	}
	if !ended {
		c.t.Errorf("%s: the answer to an import does not end with its sums, %d and %d: %s", what, created, failed, a.Body)
	}
}

// checkFeatures validates a GeoJSON export by RFC 7946.
func (c *Client) checkFeatures(what string, a Answer) {
	c.t.Helper()
	if a.Body == "" { // HEAD
		return
	}
	var got struct {
		Type     string
		Features []struct {
			Type       string
			Geometry   *struct{ Type string }
			Properties map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || got.Type != "FeatureCollection" || got.Features == nil {
		c.t.Errorf("%s: no FeatureCollection: %v", what, err)
	}
	for i, f := range got.Features {
		if f.Type != "Feature" || f.Properties == nil || f.Geometry != nil && f.Geometry.Type == "" {
			c.t.Errorf("%s: feature %d is none: %+v", what, i, f)
		}
	}
}

// CheckWebhook validates a body that the service sends by the document's webhook with a name.
func (c *Client) CheckWebhook(name string, body []byte) {
	c.t.Helper()
	if err := c.document.validate("#/webhooks/"+escape(name)+"/post/requestBody/content/application~1json/schema", body); err != nil {
		c.t.Errorf("the body of %s does not follow the document: %v\n%s", name, err, body)
	}
}

// Query returns a URL query: Query("limit", "5", "status", "open").
func Query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}
