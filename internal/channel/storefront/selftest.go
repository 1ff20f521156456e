package storefront

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var _ channel.Sampler = Adapter{}

// Sample implements [channel.Sampler]: a changed customer.
func (Adapter) Sample(s channel.Sample) *channel.Request {
	body, _ := json.Marshal(map[string]any{"id": 1, "email": "test@example.com", "first_name": "Test", "updated_at": s.At}) // they do not fail
	r := s.NewRequest("application/json", body)
	r.Header.Set(TopicHeader, CustomersUpdate)
	r.Header.Set(ShopHeader, s.Address)
	r.Header.Set(WebhookIDHeader, uuid.NewString())
	r.Header.Set(EventIDHeader, uuid.NewString())
	r.Header.Set(SignatureHeader, Sign(body, s.Secret))
	return r
}
