package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolRig is a server with keys for tools.
type toolRig struct {
	*server
	flags         []string
	admin, scoped string
	ticket        string
}

func startTools(t *testing.T) *toolRig {
	t.Helper()
	r := &toolRig{flags: []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t)}}
	command(t, nil, append([]string{"org", "create", "--name=Acme"}, r.flags...)...)
	r.admin = r.key(t, "helpdesk", "live", "--level=admin")
	r.scoped = r.key(t, "helpdesk", "live", `--resources={"tickets":["read"],"messages":["read","create"]}`)
	r.server = start(t, r.flags...)
	var made struct{ ID string }
	r.post(t, "/api/v1/tickets", `{"subject":"The lock is stuck","text":"Help","customer":{"email":"ana@client.example"}}`, &made)
	r.ticket = made.ID
	return r
}

func (r *toolRig) key(t *testing.T, service, environment string, more ...string) string {
	t.Helper()
	var made struct{ Key string }
	args := []string{"key", "create", "--org=acme", "--service=" + service, "--environment=" + environment, "--name=" + service + environment + strings.Join(more, "")}
	command(t, &made, slices.Concat(args, more, r.flags)...)
	return made.Key
}

func (r *toolRig) post(t *testing.T, path, body string, into any) {
	t.Helper()
	resp := r.send(t, http.MethodPost, path, body, "Authorization: Bearer "+r.admin)
	if resp.status != http.StatusCreated {
		t.Fatalf("%s: got %d %s", path, resp.status, resp.body)
	}
	if err := json.Unmarshal([]byte(resp.body), into); err != nil {
		t.Fatal(err)
	}
}

type reply struct {
	status int
	body   string
}

func (r *toolRig) send(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, string(text)}
}

// withKey adds an API key to requests.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP connects the SDK's client to the endpoint.
func (r *toolRig) overHTTP(t *testing.T, key, query string) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{Endpoint: r.url + "/mcp" + query, HTTPClient: &http.Client{Transport: withKey(key)}})
}

// overStdio connects the SDK's client to the command.
func (r *toolRig) overStdio(t *testing.T, key string, flags ...string) *mcp.ClientSession {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, toProgram := io.Pipe()
	fromProgram, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(context.Background(), append([]string{"mcp", "--key-file=" + file, "--url=" + r.url}, flags...), noEnvironment, in, out, t.Output())
		out.Close()
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	return connect(t, &mcp.IOTransport{Reader: fromProgram, Writer: toProgram})
}

func connect(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// toolNames returns the names of the listed tools.
func toolNames(t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// use calls a tool and decodes its structured result. It returns false for an error.
func use(t *testing.T, s *mcp.ClientSession, name string, arguments map[string]any, into any) bool {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text, err := json.Marshal(result.StructuredContent)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s answers %s: %v", name, text, err)
	}
	return !result.IsError
}

// TestTools: a client with a scoped key lists, reads and answers tickets, over HTTP and over
// the command, and is refused other actions. Each call is in the audit log and the request log.
func TestTools(t *testing.T) {
	t.Parallel()
	r := startTools(t)
	for name, s := range map[string]*mcp.ClientSession{"http": r.overHTTP(t, r.scoped, "?write=true"), "stdio": r.overStdio(t, r.scoped, "--write")} {
		t.Run(name, func(t *testing.T) {
			want := []string{"create_channel_message", "create_message", "delete_message", "get_key", "get_macro", "get_message", "get_reply", "get_request", "get_ticket", "get_view",
				"list_conversations", "list_followers", "list_macros", "list_members", "list_messages", "list_pending_messages", "list_requests", "list_tickets", "list_timeline", "list_views",
				"report_channel_receipt", "report_channel_typing", "search"}
			if got := toolNames(t, s); !slices.Equal(got, want) {
				t.Errorf("got tools %v, want %v", got, want)
			}
			var list struct {
				Data []struct{ ID, Subject string }
			}
			if !use(t, s, "list_tickets", map[string]any{"status": "open", "limit": 5}, &list) || len(list.Data) != 1 || list.Data[0].Subject != "The lock is stuck" {
				t.Fatalf("got %+v", list)
			}
			var ticket struct{ Status string }
			if !use(t, s, "get_ticket", map[string]any{"id": r.ticket}, &ticket) || ticket.Status != "open" {
				t.Errorf("got %+v", ticket)
			}
			var message struct{ ID, Text string }
			arguments := map[string]any{"id": r.ticket, "idempotency_key": name, "body": map[string]any{"kind": "reply", "text": "We are coming, by " + name}}
			if !use(t, s, "create_message", arguments, &message) || message.Text != "We are coming, by "+name {
				t.Fatalf("got %+v", message)
			}
			first := message.ID
			if use(t, s, "create_message", arguments, &message); message.ID != first {
				t.Error("a retry with the same key made another message")
			}
			var problem struct {
				Code   string
				Errors []struct{ Pointer string }
			}
			if use(t, s, "create_message", map[string]any{"id": r.ticket, "body": map[string]any{"txt": "?"}}, &problem) || problem.Code != "validation_failed" || len(problem.Errors) == 0 {
				t.Errorf("an invalid body: got %+v", problem)
			}
		})
	}
	var log struct {
		Data []struct {
			Actor     struct{ ID string }
			Target    struct{ Name string }
			UserAgent string `json:"user_agent"`
		}
	}
	got := r.send(t, http.MethodGet, "/api/v1/settings/audit-log?action=tool.called&limit=100", "", "Authorization: Bearer "+r.admin, "Accept: application/json")
	if err := json.Unmarshal([]byte(got.body), &log); err != nil || len(log.Data) != 10 || log.Data[9].Target.Name != "listTickets" || log.Data[9].Actor.ID == "" {
		t.Errorf("the audit log has %d calls: %s", len(log.Data), got.body)
	}
	var export bytes.Buffer
	if err := run(t.Context(), append([]string{"audit", "export", "--org=acme"}, r.flags...), noEnvironment, nil, &export, t.Output()); err != nil || strings.Count(export.String(), `"surface":"mcp"`) != 10 {
		t.Errorf("%d entries have the surface mcp, %v", strings.Count(export.String(), `"surface":"mcp"`), err)
	}
}

// TestToolsRefused: the endpoint refuses everything that the API refuses, and no more is listed
// than the key may do.
func TestToolsRefused(t *testing.T) {
	t.Parallel()
	r := startTools(t)
	message := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	bearer := "Authorization: Bearer " + r.scoped
	for _, tt := range []struct {
		what, method, body string
		headers            []string
		status             int
		want               string
	}{
		{"nothing wrong", "POST", message, []string{bearer}, 200, "list_tickets"},
		{"no key", "POST", message, nil, 401, "missing_credentials"},
		{"an unknown key", "POST", message, []string{"Authorization: Bearer sk_live_x"}, 401, "invalid_api_key"},
		{"another site", "POST", message, []string{bearer, "Origin: https://evil.example"}, 403, "another site"},
		{"a stream", "GET", "", []string{bearer}, 405, "no streams"},
		{"a batch", "POST", strings.Repeat(" ", 100) + "[" + message + "]", []string{bearer}, 400, "batches"},
		{"a large message", "POST", `{"a":"` + strings.Repeat("x", 1<<21) + `"}`, []string{bearer}, 413, "at most"},
		{"no JSON", "POST", "{", []string{bearer}, 400, "malformed"},
	} {
		if got := r.send(t, tt.method, "/mcp", tt.body, tt.headers...); got.status != tt.status || !strings.Contains(got.body, tt.want) {
			t.Errorf("%s: got %d %.200s, want %d %s", tt.what, got.status, got.body, tt.status, tt.want)
		}
	}

	// Without write, nothing that changes exists.
	reader := r.overHTTP(t, r.admin, "")
	list, err := reader.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is listed", tool.Name)
		}
	}
	if len(list.Tools) < 20 {
		t.Errorf("an admin key has only %d tools", len(list.Tools))
	}
	if _, err := reader.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_ticket", Arguments: map[string]any{"id": r.ticket}}); err == nil || !strings.Contains(err.Error(), "delete_ticket") {
		t.Errorf("delete_ticket without write: %v", err)
	}

	// A tool that is not listed for the key is refused by the API.
	writer := r.overHTTP(t, r.scoped, "?write=true")
	var problem struct{ Code, Required string }
	if use(t, writer, "delete_ticket", map[string]any{"id": r.ticket}, &problem) || problem.Code != "permission_denied" || problem.Required != "tickets.delete" {
		t.Errorf("delete_ticket: got %+v", problem)
	}
	if got := r.send(t, http.MethodGet, "/api/v1/tickets/"+r.ticket, "", "Authorization: Bearer "+r.admin, "Accept: application/json"); got.status != 200 {
		t.Errorf("the ticket is gone: %d", got.status)
	}

	r.stop() // writes refusals
	var export bytes.Buffer
	if err := run(t.Context(), append([]string{"audit", "export", "--org=acme"}, r.flags...), noEnvironment, nil, &export, t.Output()); err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(export.String()) {
		var entry struct {
			Action, Outcome string
			Target          struct{ Name string }
			Details         struct{ Code string }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		found = found || entry.Action == "tool.called" && entry.Outcome == "refused" && entry.Target.Name == "deleteTicket" && entry.Details.Code == "permission_denied"
	}
	if !found {
		t.Errorf("the refused call is not in the audit log:\n%s", &export)
	}

	// The server has written its request log before it ended.
	r.server = start(t, r.flags...)
	var requests struct {
		Data []struct {
			Method    string
			RefusedBy struct{ Rule, Needed string } `json:"refused_by"`
		}
	}
	got := r.send(t, http.MethodGet, "/api/v1/requests?code=permission_denied", "", "Authorization: Bearer "+r.admin, "Accept: application/json")
	if err := json.Unmarshal([]byte(got.body), &requests); err != nil || len(requests.Data) != 1 || requests.Data[0].Method != "DELETE" || requests.Data[0].RefusedBy.Needed != "tickets.delete" {
		t.Errorf("the request log has %s, %v", got.body, err)
	}
}

// TestToolsByKey: the key selects the API, and its limit holds.
func TestToolsByKey(t *testing.T) {
	t.Parallel()
	r := startTools(t)
	live := toolNames(t, r.overHTTP(t, r.key(t, "fleet", "live", "--level=admin"), "?write=true"))
	sandbox := toolNames(t, r.overHTTP(t, r.key(t, "fleet", "test", "--level=admin"), "?write=true"))
	for name, want := range map[string][2]bool{"list_rides": {true, true}, "list_tickets": {}, "reset_sandbox": {false, true}} {
		if got := [2]bool{slices.Contains(live, name), slices.Contains(sandbox, name)}; got != want {
			t.Errorf("%s: got live and sandbox %v, want %v", name, got, want)
		}
	}
	limited := r.key(t, "helpdesk", "live", "--level=read_only", "--rate-limit=2")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	var last reply
	for range 3 {
		last = r.send(t, http.MethodPost, "/mcp", ping, "Authorization: Bearer "+limited)
	}
	if last.status != http.StatusTooManyRequests {
		t.Errorf("the third message of a key with two requests a minute: got %d %s", last.status, last.body)
	}
}

// TestToolsCommandRefused: the command says why it cannot start.
func TestToolsCommandRefused(t *testing.T) {
	t.Parallel()
	r := startTools(t)
	file := filepath.Join(t.TempDir(), "key")
	try := func(content string) error {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return run(t.Context(), []string{"mcp", "--key-file=" + file, "--url=" + r.url}, noEnvironment, strings.NewReader(""), io.Discard, t.Output())
	}
	for content, want := range map[string]string{
		"sk_live_x": "invalid_api_key", "": "one API key", "two keys": "one API key",
	} {
		err := try(content)
		if _, usage := errors.AsType[usageError](err); err == nil || !strings.Contains(err.Error(), want) || usage != (want == "one API key") {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if err := try(r.scoped); err != nil {
		t.Errorf("an empty input: %v", err)
	}
}
