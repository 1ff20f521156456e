package app

import (
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
	"github.com/kickstand-dev/kickstand/internal/rest/fleetapi"
)

//go:generate sh -c "go run ../../cmd/kickstand openapi helpdesk --base-url https://kickstand.example >../../docs/api/helpdesk.openapi.json"
//go:generate sh -c "go run ../../cmd/kickstand openapi fleet --base-url https://kickstand.example >../../docs/api/fleet.openapi.json"
//go:generate sh -c "go run ../../cmd/kickstand openapi sandbox --base-url https://kickstand.example >../../docs/api/sandbox.openapi.json"

// apiVersion is the version of the three APIs: the date of the newest entry of
// docs/api/changes.md.
const apiVersion = "2026-11-27"

// OpenAPI returns the OpenAPI document of an API at the addresses of c: of the helpdesk, the
// fleet or the sandbox. It opens no database.
func OpenAPI(c Config, name string) ([]byte, error) {
	live, sandbox, err := c.fleetBases()
	if err != nil {
		return nil, err
	}
	var of rest.Config
	switch name {
	case "helpdesk":
		of, err = describeDesk(&deskapi.API{BaseURL: c.BaseURL})
	case "fleet":
		of, err = describeFleet(&fleetapi.API{Fleet: fleet.Open(fleet.Config{Live: true})}, live)
	case "sandbox":
		of, err = describeFleet(&fleetapi.API{Fleet: fleet.Open(fleet.Config{})}, sandbox)
	default:
		err = fmt.Errorf("there is no API %q", name)
	}
	if err != nil {
		return nil, err
	}
	of.Requests = &requestlog.Log{} // not called: its routes are part of the document
	api, err := rest.New(of)
	if err != nil {
		return nil, err
	}
	return api.OpenAPI()
}
