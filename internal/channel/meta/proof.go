package meta

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.Provable      = (*Business)(nil)
	_ channel.Provable      = (*Messenger)(nil)
	_ channel.ProviderProof = (*Business)(nil)
	_ channel.ProviderProof = (*Messenger)(nil)
)

// ProofWays implements [channel.Provable].
func (platform) ProofWays(string) []channel.ProofWay {
	return []channel.ProofWay{channel.ProveByProvider}
}

// ProofAPI implements [channel.ProviderProof].
func (p platform) ProofAPI(string) channel.API { return p.API() }

var errNoToken = errors.New("the proof needs the credential " + credToken + ", which the connection does not have")

// ProofCall implements [channel.ProviderProof]: only managers can read a number's display form,
// or the numbers of an account.
func (b *Business) ProofCall(address string, credentials channel.Credentials, answers []channel.Response) (*channel.APIRequest, error) {
	if credentials.Get(credToken) == "" {
		return nil, errNoToken
	}
	switch len(answers) {
	case 0:
		call := b.graph.call(http.MethodGet, credentials, url.Values{"fields": {"id,display_phone_number"}}, address)
		return &call, nil
	case 1:
		if o := parse(answers[0].Body); answers[0].Status == http.StatusOK && o.text("id") == address && o.text("display_phone_number") != "" {
			return nil, nil
		}
		call := b.graph.call(http.MethodGet, credentials, url.Values{"fields": {"id"}, "limit": {"1"}}, address, "phone_numbers")
		return &call, nil
	}
	if o := parse(answers[1].Body); answers[1].Status == http.StatusOK && len(o.list("data")) > 0 {
		return nil, nil
	}
	return nil, fmt.Errorf("the credential %s does not manage this number or account%s", credToken, errorText(answers))
}

// ProofCall implements [channel.ProviderProof]: a page's own token names the page. The page
// itself is public, so reading it proves nothing.
func (m *Messenger) ProofCall(address string, credentials channel.Credentials, answers []channel.Response) (*channel.APIRequest, error) {
	if credentials.Get(credToken) == "" {
		return nil, errNoToken
	}
	if len(answers) == 0 {
		call := m.graph.call(http.MethodGet, credentials, url.Values{"fields": {"id,category"}}, "me")
		return &call, nil
	}
	if o := parse(answers[0].Body); answers[0].Status == http.StatusOK && o.text("id") == address && o.text("category") != "" {
		return nil, nil
	}
	return nil, fmt.Errorf("the credential %s does not belong to this page%s", credToken, errorText(answers))
}

// errorText returns the provider's text in the last response, in parentheses, or "".
func errorText(answers []channel.Response) string {
	last := answers[len(answers)-1]
	if f := readFailure(parse(last.Body).object("error")); f.words != "" {
		return " (" + f.words + ")"
	}
	return ""
}
