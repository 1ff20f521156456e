package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rpc"
)

// itemInput has a field of every kind.
type itemInput struct {
	Name    string            `json:"name"`
	Events  []string          `json:"events"`
	Note    *string           `json:"note"`
	Count   int               `json:"count,omitempty"`
	Size    uint8             `json:"size,omitempty"`
	Ratio   float64           `json:"ratio,omitempty"`
	Enabled *bool             `json:"enabled,omitempty"`
	Due     time.Time         `json:"due,omitzero"`
	Owner   *owner            `json:"owner,omitempty"`
	Parts   []owner           `json:"parts,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Extra   json.RawMessage   `json:"extra,omitempty"`
	Data    []byte            `json:"data,omitempty"`
	Hidden  string            `json:"-"`
	address
}

type owner struct {
	Email string `json:"email"`
	Age   int    `json:"age,omitempty"`
}

type address struct {
	City string `json:"city,omitempty"`
}

func (in itemInput) Check(v *problem.Validation) {
	v.Length("name", in.Name, 1, 10)
	if len(in.Events) == 0 {
		v.Add("events", "must not be empty")
	}
	if in.Owner != nil && in.Owner.Email == "" {
		v.Add("owner.email", "must not be empty")
	}
}

type noteInput struct {
	Text string `json:"text,omitempty"`
}

type userKey struct{}

// fixture returns a router with a procedure for every feature of the envelope. "Cookie:
// user=ROLE" signs in; user=broken makes authentication fail.
func fixture(log *slog.Logger, authentications *int) *rpc.Router {
	fail := func(err error) func(context.Context, rpc.None) (any, error) {
		return func(context.Context, rpc.None) (any, error) { return nil, err }
	}
	whoami := func(ctx context.Context, _ rpc.None) (any, error) {
		return map[string]any{"role": ctx.Value(userKey{})}, nil
	}
	procedures := []rpc.Procedure{
		rpc.Query("note.get", rpc.Public, func(_ context.Context, in noteInput) (noteInput, error) { return in, nil }),
		rpc.Mutation("note.set", rpc.Public, func(_ context.Context, in noteInput) (noteInput, error) { return in, nil }),
		rpc.Mutation("note.clear", rpc.Public, func(context.Context, rpc.None) (bool, error) { return true, nil }),
		rpc.Mutation("item.set", rpc.Public, func(_ context.Context, in itemInput) (itemInput, error) { return in, nil }),
		rpc.Query("who.public", rpc.Public, whoami),
		rpc.Query("who.session", rpc.Session, whoami),
		rpc.Query("who.member", rpc.Member, whoami),
		rpc.Query("who.admin", rpc.Admin, whoami),
		rpc.Mutation("who.enter", rpc.Public, func(ctx context.Context, _ rpc.None) (string, error) {
			rpc.SetCookie(ctx, &http.Cookie{Name: "user", Value: "agent", Path: "/", HttpOnly: true})
			return rpc.Request(ctx).UserAgent(), nil
		}),
		rpc.Mutation("who.leave", rpc.Session, func(ctx context.Context, _ rpc.None) (bool, error) {
			rpc.SetCookie(ctx, &http.Cookie{Name: "user", Path: "/", MaxAge: -1})
			return true, nil
		}),
		rpc.Query("fail.limited", rpc.Public, fail(&problem.Error{
			Kind:       problem.RateLimited,
			Message:    "too many sign-in attempts, try again in 42 seconds",
			RetryAfter: 41*time.Second + time.Millisecond,
		})),
		rpc.Query("fail.wrapped", rpc.Public, fail(fmt.Errorf("load: %w", problem.New(problem.NotFound, "no such thing")))),
		rpc.Query("fail.fault", rpc.Public, fail(errors.New("password=hunter2"))),
		rpc.Query("fail.kind", rpc.Public, fail(problem.New(problem.Internal, "password=hunter2"))),
		rpc.Query("fail.panic", rpc.Public, func(context.Context, rpc.None) (any, error) { panic("password=hunter2") }),
		rpc.Query("fail.output", rpc.Public, func(context.Context, rpc.None) (any, error) { return []any{1, func() {}}, nil }),
		rpc.Query("fail.context", rpc.Public, func(ctx context.Context, _ rpc.None) (any, error) {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("query: %w", err)
			}
			return "alive", nil
		}),
	}
	for kind, name := range kinds {
		procedures = append(procedures, rpc.Query("fail."+name, rpc.Public, fail(problem.New(kind, "it is so"))))
	}
	return rpc.New(rpc.Config{
		Procedures: procedures,
		Authenticate: func(w http.ResponseWriter, r *http.Request) (context.Context, error) {
			if authentications != nil {
				*authentications++
			}
			c, err := r.Cookie("user")
			if err != nil {
				return r.Context(), nil
			}
			switch c.Value {
			case "broken":
				return nil, problem.New(problem.Unavailable, "sessions cannot be read")
			case "panic":
				panic("no sessions today")
			case "stale":
				http.SetCookie(w, &http.Cookie{Name: "user", Value: "agent", Path: "/"})
				http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1", Path: "/"})
				return context.WithValue(r.Context(), userKey{}, "agent"), nil
			}
			return context.WithValue(r.Context(), userKey{}, c.Value), nil
		},
		Authorize: func(ctx context.Context, need rpc.Auth) error {
			role, ok := ctx.Value(userKey{}).(string)
			switch {
			case !ok:
				return problem.New(problem.Unauthorized, "sign in first")
			case need >= rpc.Member && role == "newcomer":
				return problem.New(problem.Forbidden, "complete your signup first")
			case need == rpc.Admin && role != "admin":
				return problem.New(problem.Forbidden, "only for admins")
			}
			return nil
		},
		Logger: log,
	})
}

var kinds = map[problem.Kind]string{
	problem.Invalid: "invalid", problem.Unparseable: "unparseable", problem.Unauthorized: "unauthorized",
	problem.Forbidden: "forbidden", problem.NotFound: "notfound", problem.MethodNotAllowed: "method",
	problem.Conflict: "conflict", problem.Precondition: "precondition", problem.TooLarge: "toolarge",
	problem.UnsupportedMedia: "media", problem.RateLimited: "rate", problem.Unavailable: "unavailable",
}

// TestWire runs the scripts in testdata: text archives with one exchange per file. A file
// is a request (a line with method and target, headers, an empty line, the body), a line
// "=>", and the expected response (the status, headers, an empty line, the body). A POST
// is of type application/json unless the script sets another; a header without value is
// not sent, or must be absent in the response.
func TestWire(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("got %d scripts, error %v", len(scripts), err)
	}
	for _, script := range scripts {
		archive, err := txtar.ParseFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			t.Run(strings.TrimSuffix(filepath.Base(script), ".txt")+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				exchange(t, string(f.Data))
			})
		}
	}
}

func exchange(t *testing.T, script string) {
	t.Helper()
	request, want, ok := strings.Cut(script, "\n=>\n")
	if !ok {
		t.Fatal(`no line "=>"`)
	}
	line, header, body := message(t, request)
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.URL.RawQuery = query
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	w := httptest.NewRecorder()
	fixture(nil, nil).ServeHTTP(w, r)

	status, header, body := message(t, want)
	if got := strconv.Itoa(w.Code); got != status {
		t.Errorf("got status %s, want %s", got, status)
	}
	for name, value := range header {
		if got := strings.Join(w.Header().Values(name), " & "); got != value {
			t.Errorf("got %s %q, want %q", name, got, value)
		}
	}
	if got := w.Body.String(); got != body {
		t.Errorf("got body\n%s\nwant\n%s", got, body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("got type %q of the answer", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("got Cache-Control %q", got)
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("got Content-Length %s of %d bytes", got, w.Body.Len())
	}
}

// message splits half of a script into first line, headers and body.
func message(t *testing.T, text string) (first string, header map[string]string, body string) {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	header = make(map[string]string)
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("not a header: %q", line)
		}
		header[name] = strings.TrimSpace(value)
	}
	return lines[0], header, strings.TrimSuffix(body, "\n")
}

// wireAnswer is an envelope, result or error.
type wireAnswer struct {
	Result *struct {
		Data struct{ JSON json.RawMessage }
	}
	Error *struct {
		JSON struct {
			Message string
			Code    int
			Data    struct {
				Code       string
				HTTPStatus int
				Path       string
				Issues     []problem.Issue
			}
		}
	}
}

func post(target, contentType string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, body)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func refusal(t *testing.T, w *httptest.ResponseRecorder) (status int, code string) {
	t.Helper()
	var got wireAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error == nil {
		t.Fatalf("got %s, want an error (%v)", w.Body, err)
	}
	if got.Error.JSON.Data.HTTPStatus != w.Code {
		t.Errorf("got httpStatus %d in an answer of status %d", got.Error.JSON.Data.HTTPStatus, w.Code)
	}
	return w.Code, got.Error.JSON.Data.Code
}

// TestMemoryOfWaitingCalls: a waiting call, such as one that hashes a password, does not
// retain its request body.
func TestMemoryOfWaitingCalls(t *testing.T) {
	const calls, size = 16, 1_000_000
	for _, query := range []string{"", "?batch=1"} {
		entered, leave := make(chan struct{}), make(chan struct{})
		rt := rpc.New(rpc.Config{Procedures: []rpc.Procedure{
			rpc.Mutation("note.hold", rpc.Public, func(context.Context, noteInput) (bool, error) {
				entered <- struct{}{}
				<-leave
				return true, nil
			}),
		}})
		before, after := `{"json":{"text":"a","pad":"`, `"}}`
		if query != "" {
			before, after = `{"0":`+before, after+`}`
		}
		pad := strings.Repeat("a", size)
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC() // the second empties the pools
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		idle := heap()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				r := httptest.NewRequest("POST", rpc.Prefix+"note.hold"+query,
					io.MultiReader(strings.NewReader(before), strings.NewReader(pad), strings.NewReader(after)))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				rt.ServeHTTP(w, r)
				if w.Code != 200 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		}
		for range calls {
			<-entered
		}
		if got := (heap() - idle) / calls; got > size/4 {
			t.Errorf("%q: got %d bytes held for each call that waits, want few of the %d that were sent", query, got, size)
		}
		close(leave)
		wg.Wait()
	}
}

// Inputs that a script cannot express: too large, or not text.
func TestInputBounds(t *testing.T) {
	const limit = 1 << 20
	sized := func(n int) string {
		const around = len(`{"json":{"text":""}}`)
		return `{"json":{"text":"` + strings.Repeat("x", n-around) + `"}}`
	}
	query := func(raw string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/api/trpc/note.get", nil)
		r.URL.RawQuery = raw
		return r
	}
	unknownLength := struct{ io.Reader }{strings.NewReader(sized(limit + 1))}
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		code   string
	}{
		{"body at the limit", post("/api/trpc/note.set", "application/json", strings.NewReader(sized(limit))), 200, ""},
		{"body over the limit", post("/api/trpc/note.set", "application/json", strings.NewReader(sized(limit+1))), 413, "PAYLOAD_TOO_LARGE"},
		{"chunked body over the limit", post("/api/trpc/note.set", "application/json", unknownLength), 413, "PAYLOAD_TOO_LARGE"},
		{"query at the limit", query("input=" + sized(rpc.MaxQuery-len("input="))), 200, ""},
		{"query over the limit", query("input=" + sized(rpc.MaxQuery+1-len("input="))), 413, "PAYLOAD_TOO_LARGE"},
		{"body not UTF-8", post("/api/trpc/note.set", "application/json", strings.NewReader("{\"json\":{\"text\":\"\xff\"}}")), 400, "PARSE_ERROR"},
		{"query not UTF-8", query(`input={"json":{"text":"%ff"}}`), 400, "PARSE_ERROR"},
		{"query not percent-encoding", query(`input={"json":{"text":"%f"}}`), 400, "PARSE_ERROR"},
		{"nested too deep", post("/api/trpc/note.set", "application/json", strings.NewReader(strings.Repeat("[", 20_000))), 400, "PARSE_ERROR"},
		{"body over the limit for nobody", post("/api/trpc/none", "application/json", strings.NewReader(sized(limit+1))), 404, "NOT_FOUND"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			fixture(nil, nil).ServeHTTP(w, tt.r)
			if tt.status == 200 {
				if w.Code != 200 {
					t.Fatalf("got %d %s, want 200", w.Code, w.Body)
				}
				return
			}
			if status, code := refusal(t, w); status != tt.status || code != tt.code {
				t.Errorf("got %d %s, want %d %s", status, code, tt.status, tt.code)
			}
		})
	}
}

// A small request cannot cause a huge response.
func TestIssuesAreBounded(t *testing.T) {
	body := `{"json":{"name":"a","events":[1` + strings.Repeat(",1", 100_000) + `]}}`
	w := httptest.NewRecorder()
	fixture(nil, nil).ServeHTTP(w, post("/api/trpc/item.set", "application/json", strings.NewReader(body)))
	var got wireAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error == nil {
		t.Fatalf("got %.200s, want an error (%v)", w.Body, err)
	}
	if n := len(got.Error.JSON.Data.Issues); n != 100 {
		t.Errorf("got %d issues, want 100", n)
	}
}

// A batch is refused call by call, but the answer to one of very many calls is short.
func TestRefusedBatchIsBounded(t *testing.T) {
	for calls, many := range map[int]bool{21: true, 1000: true, 1001: false, 20000: false} {
		w := httptest.NewRecorder()
		path := "/api/trpc/a" + strings.Repeat(",a", calls-1)
		fixture(nil, nil).ServeHTTP(w, httptest.NewRequest("GET", path+"?batch=1", nil))
		if w.Code != 400 {
			t.Errorf("%d calls: got status %d, want 400", calls, w.Code)
		}
		var each []wireAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &each); (err == nil) != many || many && len(each) != calls {
			t.Errorf("%d calls: got %d errors (%v)", calls, len(each), err)
		}
		if size := w.Body.Len(); size > 200_000 {
			t.Errorf("%d calls: got %d bytes", calls, size)
		}
	}
}

// The response to an internal error has only an id; the log has id and reason, once.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		path  string
		want  string // in the log
		stack bool
	}{
		{"fail.fault", `"error":"password=hunter2"`, false},
		{"fail.kind", `"error":"internal: password=hunter2"`, false},
		{"fail.panic", `"error":"panic: password=hunter2"`, true},
		{"fail.output", `"error":"encode output: json: unsupported type: func()"`, false},
	} {
		t.Run(tt.path, func(t *testing.T) {
			var log bytes.Buffer
			w := httptest.NewRecorder()
			fixture(slog.New(slog.NewJSONHandler(&log, nil)), nil).ServeHTTP(w, httptest.NewRequest("GET", "/api/trpc/"+tt.path, nil))
			if status, code := refusal(t, w); status != 500 || code != "INTERNAL_SERVER_ERROR" {
				t.Errorf("got %d %s, want 500 INTERNAL_SERVER_ERROR", status, code)
			}
			if strings.Contains(w.Body.String(), "hunter2") || strings.Contains(w.Body.String(), "result") {
				t.Errorf("got %s, want nothing of the cause or of a result", w.Body)
			}
			var line struct{ Level, ID, Procedure, Stack string }
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("got log %s, want one line (%v)", &log, err)
			}
			if line.Level != "ERROR" || line.Procedure != tt.path || !strings.Contains(log.String(), tt.want) {
				t.Errorf("got log %s, want an error of %s with %s", &log, tt.path, tt.want)
			}
			if got := strings.Contains(line.Stack, "rpc_test.fixture"); got != tt.stack {
				t.Errorf("got stack %q, want one: %t", line.Stack, tt.stack)
			}
			if want := `"message":"internal error (id ` + line.ID + `)"`; len(line.ID) < 10 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %s, want %s", w.Body, want)
			}
		})
	}
}

// A panic in one call of a batch fails only that call.
func TestFaultInBatch(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/api/trpc/fail.panic,fail.output,note.get?batch=1", nil)
	fixture(nil, nil).ServeHTTP(w, r)
	var got []wireAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 3 {
		t.Fatalf("got %s, want three answers (%v)", w.Body, err)
	}
	if w.Code != 207 || got[0].Error == nil || got[1].Error == nil || got[2].Result == nil {
		t.Errorf("got %d %s, want 207 and two errors, one result", w.Code, w.Body)
	}
}

// The response and the log depend on whether client or server ended the request.
func TestInterrupted(t *testing.T) {
	ended := func(cause error) *http.Request {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return httptest.NewRequestWithContext(ctx, "GET", "/api/trpc/fail.context", nil)
	}
	panicking := ended(nil)
	panicking.URL.Path = "/api/trpc/fail.panic"
	truncated := post("/api/trpc/note.set", "application/json", io.MultiReader(strings.NewReader(`{"json":`), broken{}))
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		code   string
		level  string
	}{
		{"client gone", ended(nil), 499, "CLIENT_CLOSED_REQUEST", "INFO"},
		{"client gone while sending", truncated, 499, "CLIENT_CLOSED_REQUEST", "INFO"},
		{"server going", ended(errors.New("terminated")), 503, "SERVICE_UNAVAILABLE", "DEBUG"},
		{"client gone, panic", panicking, 500, "INTERNAL_SERVER_ERROR", "ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			w := httptest.NewRecorder()
			fixture(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil).ServeHTTP(w, tt.r)
			if status, code := refusal(t, w); status != tt.status || code != tt.code {
				t.Errorf("got %d %s, want %d %s", status, code, tt.status, tt.code)
			}
			var line struct{ Level string }
			if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Level != tt.level {
				t.Errorf("got log %s, want one line of level %s (%v)", &log, tt.level, err)
			}
		})
	}
}

// broken is the body of a disconnected sender.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAuthenticationIsLazyAndOnce(t *testing.T) {
	for _, tt := range []struct {
		path string
		want int
	}{
		{"who.public", 0},
		{"who.session", 1},
		{"who.session,who.public,who.member,who.admin?batch=1", 1},
		{"who.public,note.get?batch=1", 0},
		{"who.unknown,note.set?batch=1", 0},
	} {
		var got int
		fixture(nil, &got).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/trpc/"+tt.path, nil))
		if got != tt.want {
			t.Errorf("%s: got %d authentications, want %d", tt.path, got, tt.want)
		}
	}
}

func TestPanicInAuthenticate(t *testing.T) {
	r := httptest.NewRequest("GET", "/api/trpc/who.session,who.session,who.public?batch=1", nil)
	r.Header.Set("Cookie", "user=panic")
	w := httptest.NewRecorder()
	fixture(nil, nil).ServeHTTP(w, r)
	var got []wireAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 3 {
		t.Fatalf("got %s, want three answers (%v)", w.Body, err)
	}
	if w.Code != 207 || got[0].Error == nil || got[1].Error == nil || got[2].Result == nil {
		t.Errorf("got %d %s, want 207 and two errors, one result", w.Code, w.Body)
	}
}

// Every type of field is decoded without loss.
func TestDecodeEverything(t *testing.T) {
	var got itemInput
	h := rpc.New(rpc.Config{Procedures: []rpc.Procedure{
		rpc.Mutation("item.set", rpc.Public, func(_ context.Context, in itemInput) (bool, error) {
			got = in
			return true, nil
		}),
	}})
	const body = `{"json":{"name":"a","events":["x","y"],"note":"n","count":-3,"size":255,"ratio":0.5,"enabled":false,
		"due":"2026-01-02T03:04:05Z","owner":{"email":"o@x"},"parts":[{"email":"p@x","age":2}],"labels":{"k":"v"},
		"extra":{"b":[1, null]},"data":"aGk=","city":"Ulm"}}`
	w := httptest.NewRecorder()
	h.ServeHTTP(w, post("/api/trpc/item.set", "application/json", strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	want := `{"name":"a","events":["x","y"],"note":"n","count":-3,"size":255,"ratio":0.5,"enabled":false,` +
		`"due":"2026-01-02T03:04:05Z","owner":{"email":"o@x"},"parts":[{"email":"p@x","age":2}],"labels":{"k":"v"},` +
		`"extra":{"b":[1,null]},"data":"aGk=","city":"Ulm"}`
	if out, err := json.Marshal(got); err != nil || string(out) != want {
		t.Errorf("got  %s (%v)\nwant %s", out, err, want)
	}
}

// Undecodable input types panic at start-up, not in a request.
func TestPanicsAtConstruction(t *testing.T) {
	type recursive struct {
		Next *recursive `json:"next"`
	}
	type base struct {
		B string `json:"name"`
	}
	type twice struct {
		A string `json:"name"`
		base
	}
	ok := rpc.Query("a", rpc.Public, func(context.Context, rpc.None) (int, error) { return 1, nil })
	session := rpc.Query("b", rpc.Session, func(context.Context, rpc.None) (int, error) { return 1, nil })
	for name, f := range map[string]func(){
		"not a struct":   func() { accept[string]() },
		"a channel":      func() { accept[struct{ C chan int }]() },
		"an array":       func() { accept[struct{ A [2]int }]() },
		"integer keys":   func() { accept[struct{ M map[int]string }]() },
		"recursive":      func() { accept[recursive]() },
		"same name":      func() { accept[twice]() },
		"same procedure": func() { rpc.New(rpc.Config{Procedures: []rpc.Procedure{ok, ok}}) },
		"no sessions":    func() { rpc.New(rpc.Config{Procedures: []rpc.Procedure{session}}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			f()
		})
	}
}

func accept[In any]() {
	rpc.Query("x", rpc.Public, func(context.Context, In) (int, error) { return 1, nil })
}

// checkAnswer fails t unless w is an envelope in JSON, without an internal error, with
// the statuses of the response.
func checkAnswer(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code >= 500 {
		t.Errorf("got status %d: %s", w.Code, w.Body)
	}
	body := w.Body.Bytes()
	answers := make([]wireAnswer, 1)
	var err error
	if bytes.HasPrefix(body, []byte("[")) {
		err = json.Unmarshal(body, &answers)
	} else {
		err = json.Unmarshal(body, &answers[0])
	}
	if err != nil {
		t.Fatalf("got %q: %v", body, err)
	}
	statuses := make(map[int]bool)
	for _, a := range answers {
		switch {
		case a.Result != nil && a.Error == nil && json.Valid(a.Result.Data.JSON):
			statuses[200] = true
		case a.Result == nil && a.Error != nil && a.Error.JSON.Code < 0 && a.Error.JSON.Message != "":
			statuses[a.Error.JSON.Data.HTTPStatus] = true
		default:
			t.Errorf("got %q, want a result or an error", body)
		}
	}
	if want := slices.Collect(maps.Keys(statuses)); len(want) == 1 && w.Code != want[0] || len(want) > 1 && w.Code != 207 {
		t.Errorf("got status %d of %v", w.Code, want)
	}
}

func FuzzBody(f *testing.F) {
	f.Add("item.set", "", "application/json", []byte(`{"json":{"name":"a","events":["x"],"owner":{"email":1},"labels":{"k":null}},"meta":{}}`))
	f.Add("item.set,note.set", "batch=1", "application/json", []byte(`{"0":{"json":{"name":"a","events":[null]}},"1":{"json":null}}`))
	f.Add("note.set", "", "", []byte(``))
	f.Add("note.set", "", "text/plain", []byte(`{"json":{"text":"\u0000"}}`))
	f.Add("note.clear", "", "application/json; charset=utf-8", []byte("{\"json\":\"\xff\"} x"))
	f.Add("item.set", "", "application/json", []byte(`{"json":{"due":"x","data":"?","size":256,"extra":[[[]]],"parts":[{},3]}}`))
	h := fixture(nil, nil)
	f.Fuzz(func(t *testing.T, path, query, contentType string, body []byte) {
		if strings.Contains(path, "fail.") {
			t.Skip()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{
			Method: http.MethodPost,
			URL:    &url.URL{Path: "/api/trpc/" + path, RawQuery: query},
			Header: http.Header{"Content-Type": {contentType}},
			Body:   io.NopCloser(bytes.NewReader(body)),
		})
		checkAnswer(t, w)
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("note.get", `input={"json":{"text":"a;b"}}`)
	f.Add("note.get", `input=%7B%22json%22%3Anull%2C%22meta%22%3A%7B%22values%22%3A%5B%22undefined%22%5D%7D%7D`)
	f.Add("note.get,who.session,note.set,", `batch=1&input={"0":{"json":{"text":"x"}},"1":3}`)
	f.Add("note.get,note.get", `batch=1&input=[]&input=%zz`)
	f.Add(strings.Repeat("note.get,", 21), `batch=1`)
	h := fixture(nil, nil)
	f.Fuzz(func(t *testing.T, path, query string) {
		if strings.Contains(path, "fail.") {
			t.Skip()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Path: "/api/trpc/" + path, RawQuery: query},
			Header: http.Header{},
			Body:   http.NoBody,
		})
		checkAnswer(t, w)
	})
}

// user has the size of the result of auth.getUser.
type user struct {
	ID             string         `json:"id"`
	Email          string         `json:"email"`
	Name           string         `json:"name"`
	AvatarURL      string         `json:"avatar_url"`
	OrganizationID string         `json:"organization_id"`
	Role           string         `json:"role"`
	Preferences    map[string]any `json:"preferences"`
	CreatedAt      time.Time      `json:"created_at"`
	UpdatedAt      time.Time      `json:"updated_at"`
}

var someone = user{
	ID: "0190a8f0-0000-7000-8000-000000000001", Email: "ada@example.com", Name: "Ada", Role: "admin",
	OrganizationID: "0190a8f0-0000-7000-8000-000000000002", Preferences: map[string]any{"theme": "dark"},
	CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
}

// BenchmarkEnvelope compares a query with a handler that only writes the same body. Both
// include the recorder's cost.
func BenchmarkEnvelope(b *testing.B) {
	run := func(b *testing.B, h http.Handler) {
		r := httptest.NewRequest("GET", "/api/trpc/auth.getUser", nil)
		r.Header.Set("Cookie", "user=admin")
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 200 {
				b.Fatal(w.Body)
			}
		}
	}
	type data struct {
		JSON user `json:"json"`
	}
	type result struct {
		Data data `json:"data"`
	}
	type envelope struct {
		Result result `json:"result"`
	}
	b.Run("bare", func(b *testing.B) {
		run(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			body, err := json.Marshal(envelope{result{data{someone}}})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = w.Write(body)
		}))
	})
	b.Run("rpc", func(b *testing.B) {
		run(b, rpc.New(rpc.Config{
			Procedures: []rpc.Procedure{
				rpc.Query("auth.getUser", rpc.Session, func(context.Context, rpc.None) (user, error) { return someone, nil }),
			},
			Authenticate: func(_ http.ResponseWriter, r *http.Request) (context.Context, error) { return r.Context(), nil },
			Authorize:    func(context.Context, rpc.Auth) error { return nil },
		}))
	})
}
