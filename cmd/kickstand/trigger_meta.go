package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
)

// The demo's accounts at the messengers.
const (
	demoNumberID  = "106540352242922"
	demoAccountID = "102290129340398"
	demoPageID    = "107520255634123"
	demoPersonID  = "7114562358661234"
)

func businessTrigger() trigger {
	return trigger{
		name: "business-messaging", secret: "business-messaging-secret",
		events:  []string{"message", "image", "button", "location", "reaction", "sent", "delivered", "read", "failed"},
		request: (*triggerCmd).business,
	}
}

// business builds a notification of business messaging. Reactions and states are about
// the message with the id --text, the provider's or Kickstand's.
func (t *triggerCmd) business(s triggerRequest) (*http.Request, error) {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	from := firstNonEmpty(t.From, demoCaller)
	who, recipient := map[string]any{}, map[string]any{}
	if number, ok := strings.CutPrefix(from, "+"); ok {
		who["from"], recipient["recipient_id"] = number, number
	} else {
		who["from_user_id"], recipient["recipient_user_id"] = from, from
	}
	value := map[string]any{
		"messaging_product": "whatsapp",
		"metadata":          map[string]any{"display_phone_number": strings.TrimPrefix(demoNumber, "+"), "phone_number_id": firstNonEmpty(t.To, demoNumberID)},
	}
	about := firstNonEmpty(t.Text, "wamid."+randomHex(16))
	switch s.event {
	case "sent", "delivered", "read", "failed":
		recipient["id"], recipient["biz_opaque_callback_data"], recipient["status"], recipient["timestamp"] = about, about, s.event, now
		if s.event == "failed" {
			recipient["errors"] = []any{map[string]any{"code": 131026, "title": "Message undeliverable", "message": "Message undeliverable"}}
		}
		value["statuses"] = []any{recipient}
	default:
		who["id"], who["timestamp"] = "wamid."+randomHex(16), now
		kind, content := "text", map[string]any{"body": firstNonEmpty(t.Text, "Hello, the scooter at the station does not unlock.")}
		switch s.event {
		case "image":
			kind, content = "image", map[string]any{"id": "1003383421387256", "mime_type": "image/jpeg", "caption": t.Text}
		case "button":
			kind = "interactive"
			content = map[string]any{"type": "button_reply", "button_reply": map[string]any{"id": "unlock", "title": firstNonEmpty(t.Text, "Unlock it for me")}}
		case "location":
			kind, content = "location", map[string]any{"latitude": 52.5251, "longitude": 13.3694, "name": firstNonEmpty(t.Text, "Central station")}
		case "reaction":
			kind, content = "reaction", map[string]any{"message_id": about, "emoji": "👍"}
		}
		who["type"], who[kind] = kind, content
		contact := map[string]any{"profile": map[string]any{"name": firstNonEmpty(t.Name, "Ana Client")}}
		if number, ok := who["from"]; ok {
			contact["wa_id"] = number
		} else {
			contact["user_id"] = from
		}
		value["contacts"], value["messages"] = []any{contact}, []any{who}
	}
	return s.meta(meta.NewBusiness(meta.Config{}), map[string]any{
		"object": "whatsapp_business_account",
		"entry":  []any{map[string]any{"id": demoAccountID, "changes": []any{map[string]any{"field": "messages", "value": value}}}},
	})
}

func messengerTrigger() trigger {
	return trigger{
		name: "social-messenger", secret: "social-messenger-secret",
		events:  []string{"message", "image", "postback", "echo", "delivery", "read"},
		request: (*triggerCmd).messenger,
	}
}

// messenger builds a notification of the social messenger. An echo is a message that the
// page sent by another program; a receipt covers all earlier messages.
func (t *triggerCmd) messenger(s triggerRequest) (*http.Request, error) {
	now := time.Now().UnixMilli()
	page := firstNonEmpty(t.To, demoPageID)
	customer, us := map[string]any{"id": firstNonEmpty(t.From, demoPersonID)}, map[string]any{"id": page}
	e := map[string]any{"sender": customer, "recipient": us, "timestamp": now}
	message := map[string]any{"mid": "m_" + randomHex(16), "text": firstNonEmpty(t.Text, "Hello, the scooter at the station does not unlock.")}
	switch s.event {
	case "message":
		e["message"] = message
	case "image":
		message["text"] = t.Text
		message["attachments"] = []any{map[string]any{"type": "image", "payload": map[string]any{"url": "https://scontent.xx.fbcdn.net/v/" + randomHex(8) + ".jpg"}}}
		e["message"] = message
	case "postback":
		e["postback"] = map[string]any{"mid": message["mid"], "title": firstNonEmpty(t.Text, "Get started"), "payload": "GET_STARTED"}
	case "echo":
		e["sender"], e["recipient"] = us, customer
		message["is_echo"], message["app_id"] = true, 1517776481860111
		message["text"] = firstNonEmpty(t.Text, "We are on our way.")
		e["message"] = message
	default:
		e[s.event] = map[string]any{"watermark": now}
	}
	return s.meta(meta.NewMessenger(meta.Config{}), map[string]any{
		"object": "page",
		"entry":  []any{map[string]any{"id": page, "time": now, "messaging": []any{e}}},
	})
}

// meta builds the signed request of a notification.
func (s *triggerRequest) meta(a channel.Adapter, notification map[string]any) (*http.Request, error) {
	body, err := json.Marshal(notification)
	if err != nil {
		return nil, err
	}
	req, err := s.post(a.Info().Path, "application/json", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(meta.SignatureHeader, meta.Sign(body, s.secret))
	return req, nil
}
