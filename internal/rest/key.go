package rest

import (
	"context"
	"math"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// keyRecord describes the API key of the request.
var keyRecord = &schema.Record{Name: "api_key", Doc: "An API key, without its value.", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "object", Type: schema.Enum("api_key")},
	{Name: "name", Type: schema.Text(), Doc: "Its name in the dashboard.", Example: "Reports"},
	{Name: "environment", Type: schema.Enum("live", "test"), Doc: "Production or sandbox."},
	{Name: "partial_key", Type: schema.Text(), Doc: "The last 8 characters of the key.", Example: "k3Zq9xYb"},
	{Name: "level", Type: schema.Enum("read_only", "read_write", "admin"), Nullable: true, Doc: "The permission level, if one is set."},
	{Name: "resources", Type: schema.JSON(), Nullable: true, Doc: `The permissions by resource: "all", an object of actions by resource, or null when none are set.`, Example: map[string]any{"tickets": []string{"read", "create"}}},
	{Name: "subaccount_scope", Doc: "The subaccounts it reaches.", Type: schema.Object(
		schema.Member{Name: "mode", Type: schema.Enum("all", "selected", "single")},
		schema.Member{Name: "subaccount_ids", Type: schema.Array(schema.ID(), math.MaxInt32), Sometimes: true},
	)},
	{Name: "allowed_ips", Type: schema.Array(schema.Text(), apikey.MaxAllowedIPs), Doc: "Addresses and blocks from which it works; none: any."},
	{Name: "rate_limit_per_minute", Type: schema.Integer(), Doc: "Current limit, in requests per minute."},
	{Name: "status", Type: schema.Enum("active", "revoked", "expired")},
	{Name: "expires_at", Type: schema.Timestamp(), Nullable: true, Doc: "Time of expiry."},
	{Name: "last_used_at", Type: schema.Timestamp(), Nullable: true, Doc: "To the minute."},
	{Name: "rotated_from", Type: schema.ID(), Nullable: true, Doc: "The key that this one replaces."},
	{Name: "replaced_by", Type: schema.ID(), Nullable: true, Doc: "The key that replaces this one. Switch to it before expires_at."},
	{Name: "created_at", Type: schema.Timestamp()},
	{Name: "updated_at", Type: schema.Timestamp()},
}}

type wireKey struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Name        string             `json:"name"`
	Environment apikey.Environment `json:"environment"`
	PartialKey  string             `json:"partial_key"`
	Level       *apikey.Level      `json:"level"`
	Resources   apikey.Grants      `json:"resources"`
	Scope       apikey.Scope       `json:"subaccount_scope"`
	AllowedIPs  []string           `json:"allowed_ips"`
	RateLimit   int64              `json:"rate_limit_per_minute"`
	Status      apikey.Status      `json:"status"`
	ExpiresAt   rfc3339.Time       `json:"expires_at"`
	LastUsedAt  rfc3339.Time       `json:"last_used_at"`
	RotatedFrom *string            `json:"rotated_from"`
	ReplacedBy  *string            `json:"replaced_by"`
	CreatedAt   rfc3339.Time       `json:"created_at"`
	UpdatedAt   rfc3339.Time       `json:"updated_at"`
}

// keyRoute returns the route that describes the API key in use.
func (a *API) keyRoute() Route {
	return Route{
		Method: "GET", Path: "/key", ID: "getKey", Tag: "API key", Summary: "Read the calling key",
		Doc:    "The key of this very request, without its value. Any valid key may.",
		Output: keyRecord,
		Handle: func(ctx context.Context, r *Request) (Response, error) {
			k := r.Key
			limit, err := a.c.Keys.Limit(ctx, k)
			if err != nil {
				return Response{}, err
			}
			wire := wireKey{
				ID: k.ID, Object: "api_key", Name: k.Name, Environment: k.Environment, PartialKey: k.PartialKey,
				Resources: k.Resources, Scope: k.Scope, AllowedIPs: k.AllowedIPs.Strings(), RateLimit: limit, Status: k.Status(a.c.DB.Now()),
				ExpiresAt: rfc3339.Time(k.ExpiresAt), LastUsedAt: rfc3339.Time(k.LastUsedAt), CreatedAt: rfc3339.Time(k.CreatedAt), UpdatedAt: rfc3339.Time(k.UpdatedAt),
			}
			if k.Level != "" {
				wire.Level = &k.Level
			}
			if k.RotatedFrom != "" {
				wire.RotatedFrom = &k.RotatedFrom
			}
			if k.ReplacedBy != "" {
				wire.ReplacedBy = &k.ReplacedBy
			}
			if wire.AllowedIPs == nil {
				wire.AllowedIPs = []string{}
			}
			return OK(wire), nil
		},
	}
}
