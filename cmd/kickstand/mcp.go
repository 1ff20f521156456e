package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/mcp"
)

type mcpCmd struct {
	KeyFile string `required:"" placeholder:"FILE" help:"File with the API key. Its permissions decide which tools exist."`
	URL     string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Address of the server (default: ${default})."`
	Write   bool   `help:"Include the tools that change something."`
}

func (*mcpCmd) Help() string {
	return `An MCP client starts this command and speaks with it over standard input and output. Clients that
speak HTTP need no command: the server has the same tools at /mcp.

Example:

  kickstand mcp --key-file key.txt --url https://help.example.com`
}

// Run serves the tools until the client ends.
func (c *mcpCmd) Run(ctx context.Context, e *env) error {
	text, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return usageError{fmt.Errorf("--key-file: %w", err)}
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return usageError{errors.New("--key-file must have one API key and nothing else")}
	}
	r := &mcp.Relay{URL: c.URL, Key: key, Write: c.Write, HTTP: http.DefaultTransport}
	return r.Run(ctx, e.in, e.out)
}
