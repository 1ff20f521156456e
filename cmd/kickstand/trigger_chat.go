package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/chat"
)

// The demo's workspace, channel and user.
const (
	demoWorkspace   = "T0KICKSTAND"
	demoChatChannel = "C0HELP"
	demoChatUser    = "U0ANA"
)

func chatTrigger() trigger {
	return trigger{
		name: "chat", secret: "chat-secret",
		events: []string{
			"message", "reply", "app_mention", "message_changed", "message_deleted", "reaction_added", "reaction_removed",
			"app_uninstalled", "url_verification",
		},
		request: (*triggerCmd).chat,
	}
}

var errNoChatMessage = usageError{errors.New("--to must name the message too, as WORKSPACE/CHANNEL:TIME; CHANNEL:TIME is its external_id")}

// chat builds an event of the team chat. --to is the workspace, or where needed
// WORKSPACE/CHANNEL or, for a message, WORKSPACE/CHANNEL:TIME.
func (t *triggerCmd) chat(s triggerRequest) (*http.Request, error) {
	workspace, rest, _ := strings.Cut(firstNonEmpty(t.To, demoWorkspace), "/")
	place, about, _ := strings.Cut(firstNonEmpty(rest, demoChatChannel), ":")
	user, now := firstNonEmpty(t.From, demoChatUser), time.Now()
	ts := fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000)
	text := firstNonEmpty(t.Text, "Hello, the scooter at the station does not unlock.")
	message := func(ts string) map[string]any {
		return map[string]any{
			"type": "message", "channel": place, "channel_type": "channel", "user": user, "text": text, "ts": ts, "event_ts": ts,
			"user_profile": map[string]any{"real_name": "Ana Client", "display_name": "ana"},
		}
	}
	event := message(ts)
	switch s.event {
	case "app_mention":
		event["type"] = s.event
	case "reply":
		event["thread_ts"] = about
	case "message_changed", "message_deleted":
		before := message(about)
		before["text"] = "what it was before"
		event = map[string]any{"type": "message", "subtype": s.event, "channel": place, "ts": ts, "event_ts": ts, "previous_message": before}
		if s.event == "message_changed" {
			after := message(about)
			after["edited"] = map[string]any{"user": user, "ts": ts}
			event["message"] = after
		} else {
			event["deleted_ts"] = about
		}
	case "reaction_added", "reaction_removed":
		event = map[string]any{
			"type": s.event, "user": user, "reaction": firstNonEmpty(t.Text, "thumbsup"), "event_ts": ts,
			"item": map[string]any{"type": "message", "channel": place, "ts": about},
		}
	case "app_uninstalled":
		event = map[string]any{"type": s.event}
	}
	switch s.event {
	case "reply", "message_changed", "message_deleted", "reaction_added", "reaction_removed":
		if about == "" {
			return nil, errNoChatMessage
		}
	}
	envelope := map[string]any{
		"type": "event_callback", "team_id": workspace, "api_app_id": "A0KICKSTAND", "event_id": "Ev" + randomHex(8), "event_time": now.Unix(),
		"authorizations": []any{map[string]any{"team_id": workspace, "user_id": "U0KICKSTAND", "is_bot": true}}, "event": event,
	}
	if s.event == "url_verification" {
		envelope = map[string]any{"type": s.event, "challenge": firstNonEmpty(t.Text, randomHex(16))}
	}
	body, err := json.Marshal(envelope)
	if err != nil {
		return nil, err
	}
	req, err := s.post("/api/webhooks/chat", "application/json", body)
	if err != nil {
		return nil, err
	}
	signature, timestamp := chat.Sign(body, now, s.secret)
	req.Header.Set(chat.SignatureHeader, signature)
	req.Header.Set(chat.TimestampHeader, timestamp)
	return req, nil
}
