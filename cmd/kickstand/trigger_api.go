package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
)

// The demo's app, and a conversation of its user.
const (
	demoApp          = "demo-app"
	demoAppUser      = "ana"
	demoConversation = "help"
)

// apiTrigger signs with the secret of a channel: the deployment has none for apps.
func apiTrigger() trigger {
	return trigger{name: "api", events: []string{"message", "file", "delivered", "read", "failed", "test"}, request: (*triggerCmd).api}
}

var errNoAppChannel = usageError{errors.New("--api-channel must be the id of a channel of the kind api, which `kickstand channel list` shows; or run in the folder of `kickstand demo`")}

// api builds a message of the user --from in the conversation --to, or a receipt of the reply with the
// id --text, by default of all in the conversation.
func (t *triggerCmd) api(s triggerRequest) (*http.Request, error) {
	secret := firstNonEmpty(s.secret, t.APISecret)
	if t.APIChannel == "" {
		return nil, errNoAppChannel
	}
	if secret == "" {
		return nil, noSecret("api-secret")
	}
	user, conversation := firstNonEmpty(t.From, demoAppUser), firstNonEmpty(t.To, demoConversation)
	e := api.Event{Type: api.TypeMessage}
	switch s.event {
	case "delivered", "read", "failed":
		e.Type, e.Receipt = api.TypeReceipt, &api.Receipt{MessageID: t.Text, State: s.event}
		if t.Text == "" {
			e.Receipt.User, e.Receipt.Conversation = user, conversation
		}
		if e.Receipt.State == string(channel.ReceiptFailed) {
			e.Receipt.Error = "the user has removed the app"
		}
	case "test":
		e.Type = api.TypeTest
	default:
		e.Message = &api.Message{
			ID: "m-" + randomHex(8), Conversation: conversation, User: api.User{ID: user, Name: firstNonEmpty(t.Name, "Ana Client")},
			Text: firstNonEmpty(t.Text, "Hello, the scooter at the station does not unlock."), SentAt: time.Now().UTC(),
		}
		if s.event == "file" {
			e.Message.Files = []api.File{{Name: "log.txt", ContentType: "text/plain", Content: base64.StdEncoding.EncodeToString([]byte("unlock: no answer\n"))}}
		}
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	req, err := s.post(api.New().Info().Path+"?c="+t.APIChannel, "application/json", body)
	if err != nil {
		return nil, err
	}
	api.Sign(req.Header, "evt_"+randomHex(12), time.Now(), body, secret)
	return req, nil
}
