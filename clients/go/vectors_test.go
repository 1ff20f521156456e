//go:build go1.25

package kickstand_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kickstand "github.com/kickstand-dev/kickstand/clients/go"
)

// operation is a method of a group, and the names of its path parameters.
type operation struct {
	group, method string
	path          []string
}

// object is a JSON object.
type object = map[string]any

type vector struct {
	Name, Client string
	Key          any
	Options      struct {
		MaxRetries   *int     `json:"max_retries"`
		MaxRetryWait *float64 `json:"max_retry_wait"`
	}
	Random    float64
	Now       int64
	Call      vectorCall
	Exchanges []exchange
	Waits     []float64
	Result    any
	Raw       object
	Observed  object
	Yielded   []any
	Error     object
}

type vectorCall struct {
	Operation, Mode string
	Path            map[string]string
	Query           object
	Body            any
	Records         []any
	Append          struct{ Tags string }
	Options         struct {
		IdempotencyKey string `json:"idempotency_key"`
		MaxRetries     *int   `json:"max_retries"`
		IfMatch        string `json:"if_match"`
		IfNoneMatch    string `json:"if_none_match"`
		Subaccount     string
		RequestID      string `json:"request_id"`
	}
}

type exchange struct {
	Request struct {
		Method, Path                   string
		Query                          object
		Headers                        map[string]string
		Present, Absent, Same, Differs []string
		Body                           any
		Lines                          []any
	}
	Response struct {
		Status  int
		Headers map[string]string
		Body    any
		Text    string
		Base64  string
	}
	Failure string
}

func readVectors[T any](t *testing.T, name string) []T {
	t.Helper()
	text, err := os.ReadFile("../vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// keyOf returns the key of a vector.
func keyOf(key any) string {
	if text, ok := key.(object); ok {
		return text["text"].(string)
	}
	return "sk_" + key.(string) + "_" + strings.Repeat("k", 32)
}

func TestExchanges(t *testing.T) {
	vectors := readVectors[vector](t, "exchanges.json")
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { runVector(t, &v) }) })
	}
}

// runVector makes a call in a bubble. The clock there starts in the past.
func runVector(t *testing.T, v *vector) {
	if v.Now > 0 {
		time.Sleep(time.Until(time.Unix(v.Now, 0)))
	}
	server := &fakeServer{t: t, v: v, key: keyOf(v.Key)}
	o := kickstand.Options{Key: server.key, BaseURL: "https://kickstand.example", HTTPClient: &http.Client{Transport: server}}
	o.SetRandom(func() float64 { return v.Random })
	if n := v.Options.MaxRetries; n != nil {
		o.MaxRetries = *n
		if *n == 0 {
			o.MaxRetries = -1
		}
	}
	if w := v.Options.MaxRetryWait; w != nil {
		o.MaxRetryWait = time.Duration(*w * float64(time.Second))
	}
	c := &caller{v: v}
	result, err := c.call(t, o)
	server.check()
	if v.Error != nil {
		checkError(t, v, err)
	} else if err != nil {
		t.Fatalf("error %v", err)
	} else {
		same(t, "result", v.Result, result)
	}
	if v.Yielded != nil {
		same(t, "yielded", any(v.Yielded), asJSON(t, c.yielded))
	}
	if v.Raw != nil {
		same(t, "raw", v.Raw, asJSON(t, c.raw))
	}
	if v.Observed != nil {
		checkObserved(t, v.Observed, c.observed)
	}
}

// fakeServer plays the exchanges of a vector.
type fakeServer struct {
	t     *testing.T
	v     *vector
	key   string
	seen  []http.Header
	ended time.Time // the last attempt
	waits []float64
}

func (s *fakeServer) check() {
	if len(s.seen) != len(s.v.Exchanges) {
		s.t.Errorf("%d requests, expected %d", len(s.seen), len(s.v.Exchanges))
	}
	var waits []float64
	for _, w := range s.waits {
		if w > 0 {
			waits = append(waits, w)
		}
	}
	if len(waits) != len(s.v.Waits) {
		s.t.Fatalf("waits %v, expected %v", waits, s.v.Waits)
	}
	for i, w := range s.v.Waits {
		if math.Abs(w-waits[i]) > 0.001 {
			s.t.Errorf("waits %v, expected %v", waits, s.v.Waits)
		}
	}
}

func (s *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(s.seen)
	if n >= len(s.v.Exchanges) {
		s.seen = append(s.seen, r.Header)
		return nil, errors.New("an unexpected request")
	}
	if n > 0 {
		s.waits = append(s.waits, time.Since(s.ended).Seconds())
	}
	e := &s.v.Exchanges[n]
	s.checkRequest(r, e)
	s.seen = append(s.seen, r.Header.Clone())
	defer func() { s.ended = time.Now() }()
	switch e.Failure {
	case "connect", "reset":
		return nil, errors.New(e.Failure)
	case "timeout":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp := &http.Response{StatusCode: e.Response.Status, Header: http.Header{}, ContentLength: -1, Request: r}
	for name, value := range e.Response.Headers {
		resp.Header.Set(name, value)
	}
	body := []byte(e.Response.Text)
	if e.Response.Body != nil {
		body, _ = json.Marshal(e.Response.Body)
	}
	if e.Response.Base64 != "" {
		body, _ = base64.StdEncoding.DecodeString(e.Response.Base64)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if e.Failure == "cut" {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), brokenReader{}))
	}
	return resp, nil
}

// brokenReader is a connection that breaks.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (s *fakeServer) checkRequest(r *http.Request, e *exchange) {
	t, want := s.t, e.Request
	t.Helper()
	if r.Method != want.Method || r.URL.EscapedPath() != want.Path || r.URL.Host != "kickstand.example" {
		t.Errorf("request %s %s, expected %s %s", r.Method, r.URL, want.Method, want.Path)
	}
	query := object{}
	for name, values := range r.URL.Query() {
		query[name] = values[0]
		if len(values) > 1 || strings.HasSuffix(name, "[]") {
			query[name] = values
		}
	}
	if want.Query == nil {
		want.Query = object{}
	}
	for name, value := range want.Query {
		if _, one := value.(string); one && strings.HasSuffix(name, "[]") {
			want.Query[name] = []any{value}
		}
	}
	exact(t, "query", want.Query, query)
	if got := r.Header.Get("Authorization"); got != "Bearer "+s.key {
		t.Errorf("Authorization %q", got)
	}
	if got := r.Header.Get("User-Agent"); !strings.HasPrefix(got, "kickstand-") {
		t.Errorf("User-Agent %q", got)
	}
	if write := r.Method != "GET"; write != (r.Header.Get("Idempotency-Key") != "") {
		t.Errorf("%s with Idempotency-Key %q", r.Method, r.Header.Get("Idempotency-Key"))
	}
	for name, value := range want.Headers {
		if got := r.Header.Get(name); got != value {
			t.Errorf("header %s is %q, expected %q", name, got, value)
		}
	}
	for _, name := range want.Present {
		if r.Header.Get(name) == "" {
			t.Errorf("no header %s", name)
		}
	}
	for _, name := range want.Absent {
		if got := r.Header.Get(name); got != "" {
			t.Errorf("header %s is %q", name, got)
		}
	}
	for _, name := range want.Same {
		if got := r.Header.Get(name); len(s.seen) > 0 && got != s.seen[0].Get(name) {
			t.Errorf("header %s is %q, at first %q", name, got, s.seen[0].Get(name))
		}
	}
	for _, name := range want.Differs {
		for _, h := range s.seen {
			if h.Get(name) == r.Header.Get(name) {
				t.Errorf("header %s is %q again", name, h.Get(name))
			}
		}
	}
	s.checkBody(r, e)
}

func (s *fakeServer) checkBody(r *http.Request, e *exchange) {
	s.t.Helper()
	var text []byte
	if r.Body != nil {
		var err error
		if text, err = io.ReadAll(r.Body); err != nil {
			s.t.Error(err)
		}
		r.Body.Close()
	}
	switch {
	case e.Request.Lines != nil:
		var lines []any
		for line := range strings.Lines(string(text)) {
			var one any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				s.t.Error(err)
			}
			lines = append(lines, one)
		}
		exact(s.t, "lines", e.Request.Lines, lines)
	case e.Request.Body != nil:
		var body any
		if err := json.Unmarshal(text, &body); err != nil {
			s.t.Error(err)
		}
		exact(s.t, "body", e.Request.Body, body)
	case len(text) > 0:
		s.t.Errorf("a body: %s", text)
	}
}

// exact requires equal JSON.
func exact(t *testing.T, part string, want, got any) {
	t.Helper()
	if want, got := asJSON(t, want), asJSON(t, got); !reflect.DeepEqual(want, got) {
		t.Errorf("%s %v, expected %v", part, got, want)
	}
}

// same requires that the result has the members that are expected.
func same(t *testing.T, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case object:
		object, ok := got.(object)
		if !ok {
			t.Errorf("%s is %v, expected %v", at, got, want)
		}
		for name := range want {
			same(t, at+"."+name, want[name], object[name])
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			t.Errorf("%s is %v, expected %v", at, got, want)
			return
		}
		for i := range want {
			same(t, fmt.Sprintf("%s[%d]", at, i), want[i], list[i])
		}
	default:
		if !reflect.DeepEqual(want, got) && !sameTime(want, got) {
			t.Errorf("%s is %v, expected %v", at, got, want)
		}
	}
}

// sameTime reports whether two values are one time.
func sameTime(a, b any) bool {
	x, err := time.Parse(time.RFC3339, fmt.Sprint(a))
	y, err2 := time.Parse(time.RFC3339, fmt.Sprint(b))
	return err == nil && err2 == nil && x.Equal(y)
}

// asJSON returns a value as decoded JSON.
func asJSON(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func checkError(t *testing.T, v *vector, err error) {
	t.Helper()
	var problem *kickstand.Problem
	var connection *kickstand.ConnectionError
	var timeout *kickstand.TimeoutError
	kind := "argument"
	switch {
	case err == nil:
		t.Fatal("no error")
	case errors.As(err, &problem):
		kind = "problem"
	case errors.As(err, &connection):
		kind = "connection"
	case errors.As(err, &timeout):
		kind = "timeout"
	case len(v.Exchanges) > 0:
		kind = "answer"
	}
	if kind != v.Error["kind"] {
		t.Fatalf("an error of kind %s: %v, expected %v", kind, err, v.Error)
	}
	if problem == nil {
		return
	}
	got := asJSON(t, problem).(object)
	got["message"] = err.Error()
	if problem.RetryAfter != nil {
		got["retry_after"] = problem.RetryAfter.Seconds()
	}
	if problem.Errors == nil {
		got["errors"] = []any{}
	}
	if raw := problem.Raw(); raw != nil {
		got["members"] = asJSON(t, raw)
	} else {
		got["members"] = object{}
	}
	delete(v.Error, "kind")
	same(t, "error", v.Error, got)
}

func checkObserved(t *testing.T, want object, got *kickstand.Response) {
	t.Helper()
	if got == nil {
		t.Fatal("nothing was observed")
	}
	same(t, "observed", want, asJSON(t, object{
		"status": got.Status, "etag": got.ETag, "request_id": got.RequestID, "replayed": got.Replayed,
		"rate_limit": object{"limit": got.RateLimit.Limit, "remaining": got.RateLimit.Remaining, "reset": got.RateLimit.Reset.Unix()},
	}))
}

func TestConfigurations(t *testing.T) {
	type configuration struct {
		Name    string
		Key     any
		BaseURL string `json:"base_url"`
		Options struct {
			AllowHTTP bool `json:"allow_http"`
		}
		Result map[string]string
		Error  object
	}
	for _, v := range readVectors[configuration](t, "configurations.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Setenv("KICKSTAND_KEY", "")
			t.Setenv("KICKSTAND_URL", "")
			seen := addresses{}
			o := kickstand.Options{Key: keyOf(v.Key), BaseURL: v.BaseURL, AllowHTTP: v.Options.AllowHTTP, MaxRetries: -1, HTTPClient: &http.Client{Transport: seen}}
			desk, err := kickstand.NewHelpdesk(o)
			fleet, err2 := kickstand.NewFleet(o)
			if v.Error != nil {
				if err == nil || err2 == nil {
					t.Fatal("accepted")
				}
				if o.Key != "" && strings.Contains(err.Error()+err2.Error(), o.Key) {
					t.Fatalf("the error has the key: %v", err)
				}
				return
			}
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			desk.APIKey.Get(t.Context())
			fleet.APIKey.Get(t.Context())
			for _, base := range v.Result {
				if !seen[base+"/key"] {
					t.Errorf("%v was not requested: %v", base, seen)
				}
			}
		})
	}
}

// addresses is a transport that records URLs.
type addresses map[string]bool

func (a addresses) RoundTrip(r *http.Request) (*http.Response, error) {
	a[r.URL.String()] = true
	return nil, errors.New("no connection")
}

// values replaces the objects of the vectors by values of the language.
func values(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case object:
		if at, ok := v["$time"]; ok {
			return at
		}
		if file, ok := v["$attachment"].(object); ok {
			content, err := base64.StdEncoding.DecodeString(file["base64"].(string))
			if err != nil {
				t.Fatal(err)
			}
			return asJSON(t, kickstand.Attachment(file["name"].(string), file["content_type"].(string), content))
		}
		for name := range v {
			v[name] = values(t, v[name])
		}
	case []any:
		for i := range v {
			v[i] = values(t, v[i])
		}
	}
	return v
}

// caller makes the call of a vector.
type caller struct {
	v        *vector
	yielded  []any
	raw      json.RawMessage
	observed *kickstand.Response
}

func (c *caller) call(t *testing.T, o kickstand.Options) (any, error) {
	desk, err := kickstand.NewHelpdesk(o)
	if err != nil {
		return nil, err
	}
	fleet, err := kickstand.NewFleet(o)
	if err != nil {
		return nil, err
	}
	of := reflect.ValueOf(desk).Elem()
	if c.v.Client == "fleet" {
		of = reflect.ValueOf(fleet).Elem()
	}
	op, ok := operations[c.v.Client][c.v.Call.Operation]
	if !ok {
		t.Fatalf("no operation %s", c.v.Call.Operation)
	}
	name := op.method
	rest := strings.TrimPrefix(op.method, "List")
	switch c.v.Call.Mode {
	case "export":
		name = "Export" + rest
	case "export_csv":
		name = "ExportCSV" + rest
	case "import":
		name = "Import"
	case "modify":
		name = "Modify"
	}
	method := of.FieldByName(op.group).MethodByName(name)
	if !method.IsValid() {
		t.Fatalf("%s has no method %s", op.group, name)
	}
	return c.result(t, method.Call(c.arguments(t, op, method.Type())))
}

// arguments returns the arguments of a method by its types.
func (c *caller) arguments(t *testing.T, op operation, method reflect.Type) []reflect.Value {
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	ids := op.path
	for i := 1; i < method.NumIn()-1; i++ {
		in := method.In(i)
		value := reflect.New(in)
		switch {
		case in.Kind() == reflect.String:
			value.Elem().SetString(c.v.Call.Path[ids[0]])
			ids = ids[1:]
		case in.Kind() == reflect.Func && c.v.Call.Mode == "modify":
			change := func(r *kickstand.Ticket) (kickstand.TicketUpdate, error) {
				return kickstand.TicketUpdate{Tags: kickstand.Some(append(r.Tags, c.v.Call.Append.Tags))}, nil
			}
			value.Elem().Set(reflect.ValueOf(change))
		case in.Kind() == reflect.Func:
			value.Elem().Set(sequence(t, in, c.v.Call.Records))
		case strings.HasSuffix(in.Name(), "Params"):
			c.fillParams(t, value.Elem())
		default:
			decode(t, values(t, c.v.Call.Body), value.Interface())
		}
		args = append(args, value.Elem())
	}
	for _, o := range c.options() {
		args = append(args, reflect.ValueOf(o))
	}
	return args
}

// sequence returns an iter.Seq of records.
func sequence(t *testing.T, of reflect.Type, records []any) reflect.Value {
	return reflect.MakeFunc(of, func(args []reflect.Value) []reflect.Value {
		for _, r := range records {
			record := reflect.New(args[0].Type().In(0))
			decode(t, values(t, r), record.Interface())
			if !args[0].Call([]reflect.Value{record.Elem()})[0].Bool() {
				break
			}
		}
		return nil
	})
}

func decode(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatal(err)
	}
}

func (c *caller) fillParams(t *testing.T, params reflect.Value) {
	t.Helper()
	names := map[string]reflect.Value{}
	for i := range params.NumField() {
		tag := params.Type().Field(i).Tag.Get("query")
		names[strings.NewReplacer("[", "_", "]", "").Replace(tag)] = params.Field(i)
	}
	for name, value := range c.v.Call.Query {
		if name == "expand" {
			continue
		}
		field, ok := names[name]
		if !ok {
			t.Fatalf("no parameter %s", name)
		}
		decode(t, values(t, value), field.Addr().Interface())
	}
}

func (c *caller) options() []kickstand.CallOption {
	in := c.v.Call.Options
	list := []kickstand.CallOption{
		kickstand.WithIdempotencyKey(in.IdempotencyKey), kickstand.WithIfMatch(in.IfMatch), kickstand.WithIfNoneMatch(in.IfNoneMatch),
		kickstand.WithSubaccount(in.Subaccount), kickstand.WithRequestID(in.RequestID),
		kickstand.WithOnResponse(func(r *kickstand.Response) { c.observed = r }),
	}
	if in.MaxRetries != nil {
		list = append(list, kickstand.WithMaxRetries(*in.MaxRetries))
	}
	if names, ok := c.v.Call.Query["expand"].([]any); ok {
		var expand []string
		for _, n := range names {
			expand = append(expand, n.(string))
		}
		list = append(list, kickstand.WithExpand(expand...))
	}
	return list
}

// result consumes the results of a method.
func (c *caller) result(t *testing.T, out []reflect.Value) (any, error) {
	if len(out) == 1 && out[0].Kind() == reflect.Func {
		err := c.collect(out[0])
		return asJSON(t, c.yielded), err
	}
	if err, ok := out[len(out)-1].Interface().(error); ok {
		return nil, err
	}
	if len(out) == 1 || out[0].IsNil() {
		return nil, nil
	}
	switch got := out[0].Interface().(type) {
	case *kickstand.File:
		defer got.Close()
		content, err := io.ReadAll(got)
		if c.v.Call.Mode == "file" {
			return object{"base64": base64.StdEncoding.EncodeToString(content)}, err
		}
		return string(content), err
	case *kickstand.Import:
		for line, err := range got.Lines() {
			if err != nil {
				return nil, err
			}
			one := asJSON(t, line).(object)
			if line.Problem != nil {
				one["problem"] = asJSON(t, line.Problem.Raw())
			}
			c.yielded = append(c.yielded, one)
		}
		return asJSON(t, object{"lines": c.yielded, "summary": got.Summary()}), nil
	case interface{ Raw() json.RawMessage }:
		c.raw = got.Raw()
		return asJSON(t, got), nil
	}
	return c.pages(t, out[0])
}

// pages consumes a page, and the following ones if the vector says so.
func (c *caller) pages(t *testing.T, page reflect.Value) (any, error) {
	ctx := reflect.ValueOf(t.Context())
	switch c.v.Call.Mode {
	case "iterate":
		err := c.collect(page.MethodByName("All").Call([]reflect.Value{ctx})[0])
		return asJSON(t, c.yielded), err
	case "pages":
		var all []any
		for !page.IsNil() {
			all = append(all, asJSON(t, page.Elem().FieldByName("Data").Interface()))
			out := page.MethodByName("Next").Call([]reflect.Value{ctx})
			if err, ok := out[1].Interface().(error); ok {
				return nil, err
			}
			page = out[0]
		}
		return all, nil
	}
	one := asJSON(t, page.Interface()).(object)
	if one["next_cursor"] == "" {
		one["next_cursor"] = nil
	}
	return one, nil
}

// collect runs an iter.Seq2 of records and errors.
func (c *caller) collect(seq reflect.Value) error {
	var failed error
	yield := reflect.MakeFunc(seq.Type().In(0), func(args []reflect.Value) []reflect.Value {
		if err, ok := args[1].Interface().(error); ok {
			failed = err
		} else {
			c.yielded = append(c.yielded, args[0].Interface())
		}
		return []reflect.Value{reflect.ValueOf(true)}
	})
	seq.Call([]reflect.Value{yield})
	return failed
}

// An end of the caller's context ends a wait at once, with the context's error.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desk, err := kickstand.NewHelpdesk(kickstand.Options{
			Key: "sk_test_" + strings.Repeat("k", 32), BaseURL: "https://kickstand.example", MaxRetries: 9,
			HTTPClient: &http.Client{Transport: addresses{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := desk.APIKey.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The key is not in any form of the options.
func TestOptionsHideKey(t *testing.T) {
	o := kickstand.Options{Key: "sk_test_" + strings.Repeat("k", 32), BaseURL: "https://kickstand.example"}
	for _, s := range []string{fmt.Sprint(o), fmt.Sprintf("%+v %#v %s", o, o, &o)} {
		if strings.Contains(s, "kkkk") {
			t.Errorf("the key is in %s", s)
		}
	}
}

// Everything that a release has is still there.
func TestShapes(t *testing.T) {
	text, err := os.ReadFile("../vectors/shapes.json")
	if err != nil {
		t.Fatal(err)
	}
	var shapes map[string]struct {
		Operations []string
		Records    map[string][]string
		Enums      map[string][]string
	}
	if err := json.Unmarshal(text, &shapes); err != nil {
		t.Fatal(err)
	}
	if len(shapes) != 2 {
		t.Fatalf("%d APIs", len(shapes))
	}
	for api, shape := range shapes {
		for _, id := range shape.Operations {
			if _, ok := operations[api][id]; !ok {
				t.Errorf("no operation %s", id)
			}
		}
		for name, members := range shape.Records {
			record, ok := records[name]
			if !ok {
				t.Errorf("no record %s", name)
				continue
			}
			has := map[string]bool{}
			for i := range reflect.TypeOf(record).NumField() {
				tag, _, _ := strings.Cut(reflect.TypeOf(record).Field(i).Tag.Get("json"), ",")
				has[tag] = true
			}
			for _, m := range members {
				if !has[m] {
					t.Errorf("no member %s.%s", name, m)
				}
			}
		}
		for name, want := range shape.Enums {
			has := strings.Join(enums[name], "\n") + "\n"
			for _, v := range want {
				if !strings.Contains("\n"+has, "\n"+v+"\n") {
					t.Errorf("no value %s of %s", v, name)
				}
			}
		}
	}
}

// A redirect's URL is not requested, even if the given client follows redirects.
func TestGivenClientStaysAsItIs(t *testing.T) {
	given := &http.Client{Transport: addresses{}}
	if _, err := kickstand.NewFleet(kickstand.Options{Key: "sk_test_x", BaseURL: "https://kickstand.example", HTTPClient: given}); err != nil {
		t.Fatal(err)
	}
	if given.CheckRedirect != nil {
		t.Error("the given client was changed")
	}
}
