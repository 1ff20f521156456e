package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Relay serves the tools of a server's endpoint over a stream, for clients that start programs.
type Relay struct {
	URL   string // of the server: "https://help.example.com"
	Key   string // API key
	Write bool   // include tools that change something
	HTTP  http.RoundTripper
}

// Run reads the tools that the key may call, once, and serves them until in ends or ctx ends.
// Messages are lines of JSON. The error reports a server that is unreachable or refuses the key.
func (c *Relay) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	remote := &remoteSession{relay: c}
	session, err := remote.open(ctx)
	if err != nil {
		return err
	}
	defer remote.close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("list the tools of %s: %w", c.URL, err)
	}
	server := mcp.NewServer(program, &mcp.ServerOptions{
		Instructions: instructions(c.Write), PageSize: toolsPage, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	for _, t := range tools.Tools {
		server.AddTool(t, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return remote.call(ctx, r.Params.Name, r.Params.Arguments), nil
		})
	}
	err = server.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}})
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve the tools: %w", err)
	}
	return nil
}

// nopCloser is an output that stays open.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// remoteSession is the session with the server. It is opened again after a failure.
type remoteSession struct {
	relay *Relay

	mu      sync.Mutex
	session *mcp.ClientSession // nil: none
}

// open returns the session, a new one if there is none.
func (s *remoteSession) open(ctx context.Context) (*mcp.ClientSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		return s.session, nil
	}
	endpoint := strings.TrimSuffix(s.relay.URL, "/") + Path
	if s.relay.Write {
		endpoint += "?write=true"
	}
	client := mcp.NewClient(program, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, MaxRetries: -1, DisableStandaloneSSE: true,
		HTTPClient: &http.Client{
			Transport: &keyTransport{s.relay.Key, s.relay.HTTP},
			// A redirect would send the key to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	s.session = session
	return session, nil
}

// close ends a session.
func (s *remoteSession) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		s.session.Close()
		s.session = nil
	}
}

// call calls a tool of the server. A failure is a result, so that a model can read it.
func (s *remoteSession) call(ctx context.Context, name string, arguments json.RawMessage) *mcp.CallToolResult {
	session, err := s.open(ctx)
	if err != nil {
		return failure(err.Error())
	}
	p := &mcp.CallToolParams{Name: name}
	if len(arguments) > 0 {
		p.Arguments = arguments
	}
	result, err := session.CallTool(ctx, p)
	if err != nil {
		s.close() // it may be broken
		return failure(err.Error())
	}
	return result
}

// keyTransport adds the API key to each request, and turns problems into errors with their
// text.
type keyTransport struct {
	key  string
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.key)
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		return resp, err
	}
	defer resp.Body.Close()
	var p struct{ Code, Detail string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(&p); err != nil {
		return nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	return nil, fmt.Errorf("the server answers %s: %s", p.Code, p.Detail)
}
