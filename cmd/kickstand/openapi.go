package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/app"
)

type openAPICmd struct {
	API string `arg:"" enum:"helpdesk,fleet,sandbox" help:"The API: helpdesk, fleet or sandbox."`
}

func (*openAPICmd) Help() string {
	return `The server serves the same document, on one line, at openapi.json below the base URL of the API.

Example: the document of a server with another address:

  kickstand openapi helpdesk --base-url https://help.example.com > helpdesk.openapi.json`
}

func (c *openAPICmd) Run(e *env) error {
	a, err := e.settings()
	if err != nil {
		return err
	}
	text, err := app.OpenAPI(a, c.API)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, b.String())
	return err
}
