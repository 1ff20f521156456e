package app

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
)

// TestKeyAtTheWrongAddress: a key for another API of the deployment is refused with that
// API's base URL. For unusable keys no URL is shown.
func TestKeyAtTheWrongAddress(t *testing.T) {
	const base = "http://localhost:8080"
	a := deployment(t, base, quiet)
	o := signUp(t, a, "Acme")
	ctx := account.NewContext(t.Context(), account.Identity{UserID: "acme", OrganizationID: o.ID, Role: account.Admin})
	create := func(service apikey.ServiceName, environment apikey.Environment, name string) (apikey.Key, string) {
		k, token, err := a.Keys.Create(ctx, apikey.New{
			OrganizationID: o.ID, Service: service, Environment: environment, Name: name, Permissions: apikey.Permissions{Level: apikey.ReadOnly},
		})
		if err != nil {
			t.Fatal(err)
		}
		return k, token.Reveal()
	}
	_, desk := create(apikey.Helpdesk, apikey.Live, "desk")
	_, fleet := create(apikey.Fleet, apikey.Live, "fleet")
	_, sandbox := create(apikey.Fleet, apikey.Test, "sandbox")
	ended, revoked := create(apikey.Fleet, apikey.Live, "revoked")
	if _, err := a.Keys.Revoke(ctx, o.ID, ended.ID); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, token, code, detail string
	}{
		{"the helpdesk's at the fleet", "/v1/key", desk, "invalid_api_key", "The API key works at " + base + "/api/v1 only."},
		{"the fleet's at the helpdesk", "/api/v1/key", fleet, "invalid_api_key", "The API key works at " + base + "/v1 only."},
		{"the fleet's at the sandbox", "/sandbox/v1/key", fleet, "wrong_environment", "The API key works at " + base + "/v1 only."},
		{"the sandbox's at the fleet", "/v1/key", sandbox, "wrong_environment", "The API key works at " + base + "/sandbox/v1 only."},
		{"the sandbox's at the helpdesk", "/api/v1/key", sandbox, "wrong_environment", "The API key works at " + base + "/sandbox/v1 only."},
		{"a revoked key", "/api/v1/key", revoked, "invalid_api_key", "The API key is not known."},
		{"a key of nobody", "/v1/key", apikey.NewToken(apikey.Live).Reveal(), "invalid_api_key", "The API key is not known."},
		{"a sandbox key of nobody", "/v1/key", apikey.NewToken(apikey.Test).Reveal(), "wrong_environment", "The API key belongs to the other environment."},
	} {
		w := a.get(base+tt.path, tt.token)
		var p struct{ Code, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusUnauthorized || p.Code != tt.code || p.Detail != tt.detail {
			t.Errorf("%s: got %d %s, want %s: %s", tt.name, w.Code, w.Body, tt.code, tt.detail)
		}
	}
}
