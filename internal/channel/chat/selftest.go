package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var _ channel.Sampler = (*Adapter)(nil)

// Sample implements [channel.Sampler]: a message in the first of the selected channels.
func (*Adapter) Sample(s channel.Sample) *channel.Request {
	place, _, _ := strings.Cut(s.Setting["channels"], ",")
	if place = strings.TrimSpace(place); place == "" {
		place = "C0TEST"
	}
	ts := fmt.Sprintf("%d.000100", s.At.Unix())
	body, _ := json.Marshal(map[string]any{ // strings and numbers do not fail
		"type": "event_callback", "team_id": s.Address, "api_app_id": "A0TEST", "event_id": "Ev" + uuid.NewString(), "event_time": s.At.Unix(),
		"event": map[string]any{"type": "message", "channel": place, "channel_type": "channel", "user": "U0TEST", "text": "Test", "ts": ts, "event_ts": ts},
	})
	r := s.NewRequest("application/json", body)
	signature, timestamp := Sign(body, s.At, s.Secret)
	r.Header.Set(SignatureHeader, signature)
	r.Header.Set(TimestampHeader, timestamp)
	return r
}
