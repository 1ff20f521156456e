package payments

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Sampler     = Connect{}
	_ channel.SecretMaker = Connect{}
)

// MayBeProviders implements [channel.SecretMaker].
func (Connect) MayBeProviders(secret string) bool { return strings.HasPrefix(secret, "whsec_") }

// Sample implements [channel.Sampler]: a changed customer.
func (Connect) Sample(s channel.Sample) *channel.Request {
	body, _ := json.Marshal(map[string]any{ // strings and numbers do not fail
		"id": "evt_" + uuid.NewString(), "object": "event", "type": "customer.updated", "created": s.At.Unix(), "livemode": true, "account": s.Address,
		"data": map[string]any{"object": map[string]any{"id": "cus_test", "object": "customer", "name": "Test", "email": "test@example.com", "created": s.At.Unix()}},
	})
	r := s.NewRequest("application/json; charset=utf-8", body)
	r.Header.Set(SignatureHeader, Sign(body, s.At, s.Secret))
	return r
}
