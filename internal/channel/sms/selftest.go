package sms

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.CredentialTester = (*Adapter)(nil)
	_ channel.Sampler          = (*Adapter)(nil)
)

// TestCall implements [channel.CredentialTester]: it reads the account.
func (a *Adapter) TestCall(address string, credentials channel.Credentials, answers []channel.Response, _ time.Time) (*channel.APIRequest, error) {
	if err := a.Check(&channel.Outgoing{From: address, To: channel.Party{Phone: "+14155550100"}, Text: "x"}, credentials); err != nil {
		return nil, fmt.Errorf("replies need account_sid with auth_token, or with api_key and api_secret")
	}
	if len(answers) == 0 {
		call := credentials.NewRequest(http.MethodGet, "/2010-04-01/Accounts/"+url.PathEscape(credentials.Get(CredentialAccount))+".json",
			http.Header{"Authorization": {basic(credentials)}, "Accept": {"application/json"}}, nil)
		return &call, nil
	}
	switch status := answers[0].Status; status {
	case http.StatusOK:
		return nil, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("the provider rejected the key (%d)", status)
	case http.StatusNotFound:
		return nil, fmt.Errorf("the provider does not know the account (%d)", status)
	default:
		return nil, fmt.Errorf("the provider answered %d", status)
	}
}

// Sample implements [channel.Sampler].
func (*Adapter) Sample(s channel.Sample) *channel.Request {
	id := "SM" + strings.ReplaceAll(uuid.NewString(), "-", "")
	form := url.Values{
		"MessageSid": {id}, "SmsSid": {id}, "AccountSid": {"AC" + strings.Repeat("0", 32)}, "From": {"+14155550100"}, "To": {s.Address},
		"Body": {"Test"}, "NumMedia": {"0"},
	}
	if strings.HasPrefix(s.Address, "MG") {
		form.Set("MessagingServiceSid", s.Address)
		form.Set("To", "+14155550101")
	}
	r := s.NewRequest("application/x-www-form-urlencoded", []byte(form.Encode()))
	r.Header.Set("X-Sms-Signature", Sign(s.URL, form, s.Secret))
	return r
}
