package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.CredentialTester = Adapter{}
	_ channel.Sampler          = Adapter{}
)

// TestCall implements [channel.CredentialTester]. The app gets a signed event without effect.
func (Adapter) TestCall(_ string, credentials channel.Credentials, answers []channel.Response, at time.Time) (*channel.APIRequest, error) {
	if len(answers) == 0 {
		c := call(&outgoing{Type: TypeTest, Timestamp: at.UTC()}, uuid.NewString(), credentials)
		return &c, nil
	}
	if status := answers[0].Status; status < 200 || status > 299 {
		return nil, fmt.Errorf("the app answered %d %s", status, http.StatusText(status))
	}
	return nil, nil
}

// Sample implements [channel.Sampler].
func (Adapter) Sample(s channel.Sample) *channel.Request {
	body, _ := json.Marshal(Event{Type: TypeMessage, Message: &Message{ // strings do not fail
		ID: uuid.NewString(), Conversation: "test", User: User{ID: "test"}, Text: "Test",
	}})
	r := s.NewRequest("application/json", body)
	Sign(r.Header, uuid.NewString(), s.At, body, s.Secret)
	return r
}
