package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Provable      = (*Adapter)(nil)
	_ channel.ProviderProof = (*Adapter)(nil)
)

// ProofWays implements [channel.Provable].
func (*Adapter) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByProvider}
}

// ProofAPI implements [channel.ProviderProof].
func (a *Adapter) ProofAPI(string) channel.API { return a.API() }

// ProofCall implements [channel.ProviderProof]: auth.test names the workspace of a token. Only
// bot tokens count, since they require an installed app, and for an enterprise only one that
// was installed for all its workspaces.
func (*Adapter) ProofCall(address string, credentials channel.Credentials, answers []channel.Response) (*channel.APIRequest, error) {
	if credentials.Get(CredBotToken) == "" {
		return nil, errors.New("the proof needs the credential " + CredBotToken + ", which the connection does not have")
	}
	if len(answers) == 0 {
		call := getCall(credentials, "/api/auth.test")
		return &call, nil
	}
	var reply struct {
		OK         bool   `json:"ok"`
		Error      string `json:"error"`
		Team       string `json:"team_id"`
		Enterprise string `json:"enterprise_id"`
		ForAll     bool   `json:"is_enterprise_install"`
		Bot        string `json:"bot_id"`
	}
	if a := answers[0]; a.Status != http.StatusOK || json.Unmarshal(a.Body, &reply) != nil {
		return nil, fmt.Errorf("the provider rejected the request (%d)", a.Status)
	}
	switch {
	case !reply.OK:
		return nil, fmt.Errorf("the provider rejected the credential %s (%s)", CredBotToken, key(reply.Error))
	case reply.Bot == "":
		return nil, fmt.Errorf("the credential %s is not a bot token", CredBotToken)
	case strings.EqualFold(reply.Team, address) && !reply.ForAll:
		return nil, nil
	case strings.EqualFold(reply.Enterprise, address) && reply.ForAll:
		return nil, nil
	}
	return nil, fmt.Errorf("the credential %s belongs to another workspace", CredBotToken)
}
