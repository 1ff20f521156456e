package meta

import (
	"encoding/json"
	"strconv"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Sampler = (*Business)(nil)
	_ channel.Sampler = (*Messenger)(nil)
)

// Sample implements [channel.Sampler].
func (*Business) Sample(s channel.Sample) *channel.Request {
	return sample(&s, "whatsapp_business_account", map[string]any{"id": s.Address, "changes": []any{map[string]any{"field": "messages", "value": map[string]any{
		"messaging_product": "whatsapp", "metadata": map[string]any{"display_phone_number": "14155550101", "phone_number_id": s.Address},
		"contacts": []any{map[string]any{"wa_id": "14155550100", "profile": map[string]any{"name": "Test"}}},
		"messages": []any{map[string]any{
			"from": "14155550100", "id": "wamid." + uuid.NewString(), "timestamp": strconv.FormatInt(s.At.Unix(), 10), "type": "text", "text": map[string]any{"body": "Test"},
		}},
	}}}})
}

// Sample implements [channel.Sampler].
func (*Messenger) Sample(s channel.Sample) *channel.Request {
	now := s.At.UnixMilli()
	return sample(&s, "page", map[string]any{"id": s.Address, "time": now, "messaging": []any{map[string]any{
		"sender": map[string]any{"id": "7114562358661234"}, "recipient": map[string]any{"id": s.Address}, "timestamp": now,
		"message": map[string]any{"mid": "m_" + uuid.NewString(), "text": "Test"},
	}}})
}

func sample(s *channel.Sample, object string, entry map[string]any) *channel.Request {
	body, _ := json.Marshal(map[string]any{"object": object, "entry": []any{entry}}) // strings and numbers do not fail
	r := s.NewRequest("application/json", body)
	r.Header.Set(SignatureHeader, Sign(body, s.Secret))
	return r
}
