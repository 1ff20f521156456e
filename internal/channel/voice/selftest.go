package voice

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.CredentialTester = (*Adapter)(nil)
	_ channel.Sampler          = (*Adapter)(nil)
)

// TestCall implements [channel.CredentialTester]: it reads the company of the key.
func (*Adapter) TestCall(_ string, credentials channel.Credentials, answers []channel.Response, _ time.Time) (*channel.APIRequest, error) {
	if credentials.Get(credToken) == "" {
		return nil, errors.New("replies need the credential " + credToken)
	}
	if len(answers) == 0 {
		call := credentials.NewRequest(http.MethodGet, "/api/v2/company", http.Header{
			"Authorization": {"Bearer " + credentials.Get(credToken)}, "Accept": {"application/json"},
		}, nil)
		return &call, nil
	}
	switch status := answers[0].Status; status {
	case http.StatusOK, http.StatusForbidden: // a valid key need not be allowed to read the company
		return nil, nil
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("the provider rejected the connection's %s (%d)", credToken, status)
	default:
		return nil, fmt.Errorf("the provider answered %d", status)
	}
}

// Sample implements [channel.Sampler]: a text.
func (*Adapter) Sample(s channel.Sample) *channel.Request {
	body, _ := json.Marshal(map[string]any{ // strings and numbers do not fail
		"id": s.At.UnixMicro(), "created_date": s.At.UnixMilli(), "direction": "inbound",
		"target":      map[string]any{"id": s.Address, "type": "department", "name": "Test", "phone": s.Address},
		"contact":     map[string]any{"id": 22, "name": "Test", "phone_number": "+14155550100"},
		"from_number": "+14155550100", "to_number": []string{s.Address}, "text": "Test", "mms": false, "message_status": "pending",
	})
	return s.NewRequest("application/jwt", SignJWT(body, s.Secret))
}
