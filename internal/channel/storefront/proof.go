package storefront

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Provable      = Adapter{}
	_ channel.ProviderProof = Adapter{}
)

// ProofWays implements [channel.Provable].
func (Adapter) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByProvider}
}

// ProofAPI implements [channel.ProviderProof]. Addresses are domains of the platform, so only
// the platform can answer there.
func (a Adapter) ProofAPI(address string) channel.API {
	return channel.API{URL: strings.ReplaceAll(a.apiURL, "{shop}", address), Credentials: declared}
}

// proofVersion is the API version of the call; the platform falls forward from outdated ones.
const proofVersion = "2026-10"

// ProofCall implements [channel.ProviderProof]: the shop's API names its own domain.
func (Adapter) ProofCall(address string, credentials channel.Credentials, answers []channel.Response) (*channel.APIRequest, error) {
	token := credentials.Get(accessToken)
	if token == "" {
		return nil, errors.New("the proof needs the credential " + accessToken + ", which the connection does not have")
	}
	if len(answers) == 0 {
		call := credentials.NewRequest(http.MethodPost, "/admin/api/"+proofVersion+"/graphql.json", http.Header{
			"X-Shopify-Access-Token": {token}, "Content-Type": {"application/json"}, "Accept": {"application/json"},
		}, []byte(`{"query":"{ shop { myshopifyDomain } }"}`))
		return &call, nil
	}
	var reply struct {
		Data struct {
			Shop struct {
				Domain string `json:"myshopifyDomain"`
			} `json:"shop"`
		} `json:"data"`
	}
	if a := answers[0]; a.Status != http.StatusOK || json.Unmarshal(a.Body, &reply) != nil {
		return nil, fmt.Errorf("the shop rejected the credential %s (%d)", accessToken, a.Status)
	}
	if domain, err := formDomain(reply.Data.Shop.Domain); err != nil || domain != address {
		return nil, fmt.Errorf("the credential %s does not belong to this shop", accessToken)
	}
	return nil, nil
}
