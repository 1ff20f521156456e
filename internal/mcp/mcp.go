// Package mcp serves the operations of the REST APIs as tools of the Model Context Protocol, to
// assistants that act with an API key.
//
// A tool is an operation of the OpenAPI document: its name, input and description come from
// there. A call becomes a request of that operation, which [rest.API] serves like any other: the
// key's permissions, subaccounts, addresses and limits apply, the request log and the audit log
// have it. A tool can do nothing that the REST API would refuse.
//
// The key selects the API: the helpdesk's, the fleet's or the sandbox's. Its permissions select
// the listed tools. Tools that change something exist only if the URL has write=true.
//
// There are no sessions: each POST is one message, answered in its response. A message counts
// once in the key's rate limit.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/rest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is the path of the endpoint.
const Path = "/mcp"

const (
	maxMessage = 1<<20 + 16<<10 // a JSON body of an API, and the message around it
	maxAnswer  = 8 << 20        // of an operation
	toolsPage  = 1000           // more than an API has
)

// program names this program and its version to clients.
var program = func() *mcp.Implementation {
	p := &mcp.Implementation{Name: "kickstand", Title: "Kickstand", Version: "devel"}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		p.Version = info.Main.Version
	}
	return p
}()

// Config configures a [Handler].
type Config struct {
	Keys    *apikey.Service
	APIs    map[apikey.API]*rest.API
	Default apikey.API // refuses requests without a known key
	Log     *slog.Logger
}

// Handler serves [Path]. It is safe for concurrent use.
type Handler struct {
	c         Config
	protocol  http.Handler
	endpoints map[endpointKey]func() (*endpoint, error)
}

// endpointKey selects an endpoint.
type endpointKey struct {
	api   apikey.API
	write bool
}

// endpoint is an API with its tools.
type endpoint struct {
	api    *rest.API
	keys   *apikey.Service
	tools  map[string]*tool
	server *mcp.Server
}

// caller is the client of a message.
type caller struct {
	endpoint *endpoint
	key      *apikey.Key
	http     *http.Request
}

type callerKey struct{}

// New returns the handler. Tools are read from the APIs' documents on first use.
func New(c Config) *Handler {
	h := &Handler{c: c, endpoints: map[endpointKey]func() (*endpoint, error){}}
	for at, api := range c.APIs {
		for _, write := range []bool{false, true} {
			h.endpoints[endpointKey{at, write}] = sync.OnceValues(func() (*endpoint, error) { return newEndpoint(c, api, write) })
		}
	}
	h.protocol = mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		return r.Context().Value(callerKey{}).(*caller).endpoint.server
	}, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxMessage, Logger: c.Log, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // the program checks Host, and runs behind proxies on the same machine
	})
	return h
}

func newEndpoint(c Config, api *rest.API, write bool) (*endpoint, error) {
	text, err := api.OpenAPI()
	if err != nil {
		return nil, err
	}
	all, err := readTools(text)
	if err != nil {
		return nil, err
	}
	e := &endpoint{api: api, keys: c.Keys, tools: map[string]*tool{}}
	e.server = mcp.NewServer(program, &mcp.ServerOptions{
		Instructions: instructions(write), Logger: c.Log, PageSize: toolsPage,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" }, // they depend on the key
	})
	for _, t := range all {
		if t.Annotations.ReadOnlyHint || write {
			e.tools[t.Name] = t
			e.server.AddTool(t.Tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return e.call(ctx, t, r.Params.Arguments), nil
			})
		}
	}
	e.server.AddReceivingMiddleware(e.hideTools)
	return e, nil
}

func instructions(write bool) string {
	text := "Tools are the operations of Kickstand's REST API. Lists have pages: pass next_cursor as cursor, with the same filters. Errors are problem documents with a code and a detail."
	if !write {
		text += " All tools only read. The user can allow changes with write=true in the URL of this server."
	}
	return text
}

// hideTools removes the tools from lists that the key may not call.
func (e *endpoint) hideTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
			k := ctx.Value(callerKey{}).(*caller).key
			list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return !e.tools[t.Name].allowed(e.keys, k) })
		}
		return result, err
	}
}

// call runs a tool. Refusals and wrong arguments are results, so that a model can read them.
func (e *endpoint) call(ctx context.Context, t *tool, arguments json.RawMessage) *mcp.CallToolResult {
	c := ctx.Value(callerKey{}).(*caller)
	r, err := t.request(c.http, e.api.Base(), arguments)
	if err != nil {
		return failure(err.Error())
	}
	w := &answer{header: http.Header{}}
	e.api.ServeAdmitted(w, r.WithContext(audit.WithSource(r.Context(), audit.Source{Surface: audit.MCP})), c.key)
	switch {
	case w.tooLarge:
		return failure(fmt.Sprintf("The answer is larger than %d MiB. Ask for fewer records.", maxAnswer>>20))
	case w.body.Len() == 0 && w.status < 300:
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Done."}}}
	case w.body.Len() == 0:
		return failure(fmt.Sprintf("The answer is %d without content.", w.status))
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: w.body.String()}},
		StructuredContent: json.RawMessage(w.body.Bytes()), IsError: w.status >= 400,
	}
}

func failure(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	if hr.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST a message. The server has no streams.", http.StatusMethodNotAllowed)
		return
	}
	at := h.c.Default
	if scheme, token, _ := strings.Cut(hr.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		k, ok := h.c.Keys.Identify(hr.Context(), strings.TrimSpace(token))
		if ok && h.c.APIs[apikey.API{Service: k.Service, Environment: k.Environment}] != nil {
			at = apikey.API{Service: k.Service, Environment: k.Environment}
		}
	}
	key := h.c.APIs[at].Admit(w, hr)
	if key == nil {
		return
	}
	if !readMessage(w, hr) {
		return
	}
	e, err := h.endpoints[endpointKey{at, hr.URL.Query().Get("write") == "true"}]()
	if err != nil {
		h.c.Log.ErrorContext(hr.Context(), "tools", "error", err)
		http.Error(w, "The tools are unavailable.", http.StatusInternalServerError)
		return
	}
	h.protocol.ServeHTTP(w, hr.WithContext(context.WithValue(hr.Context(), callerKey{}, &caller{e, key, hr})))
}

// readMessage reads the body within its limit and refuses batches, which would count as one
// request. It returns false if it has answered.
func readMessage(w http.ResponseWriter, hr *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxMessage))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, fmt.Sprintf("A message has at most %d bytes.", maxMessage), http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, "The message could not be read.", http.StatusBadRequest)
		return false
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		http.Error(w, "Send one message per request; batches are not supported.", http.StatusBadRequest)
		return false
	}
	hr.Body = readCloser{bytes.NewReader(body)}
	return true
}

// answer collects the answer of an operation.
type answer struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > maxAnswer {
		a.tooLarge = true
		return 0, errors.New("the answer is too large")
	}
	return a.body.Write(p)
}
