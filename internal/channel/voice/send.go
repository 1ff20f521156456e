package voice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// DefaultAPIURL is the provider's API.
const DefaultAPIURL = "https://dialpad.com"

// MaxText is the maximum length of a text in characters.
const MaxText = 1600

// The credential names.
const (
	credToken     = "api_token"
	credUser      = "user_id"
	credGroup     = "sender_group_id"
	credGroupType = "sender_group_type"
)

// API implements [channel.APIUser].
func (a *Adapter) API() channel.API { return channel.API{URL: a.apiURL, Credentials: declared} }

var declared = []channel.Credential{
	{Name: credToken, Kind: channel.KindAPIKey}, {Name: credUser, Kind: channel.KindOption},
	{Name: credGroup, Kind: channel.KindOption}, {Name: credGroupType, Kind: channel.KindOption},
}

// The provider's API can neither search texts nor deduplicate them, so a text without a
// response is not sent again.
var _ channel.APISender = (*Adapter)(nil)

// Limits implements [channel.LimitedSender].
func (*Adapter) Limits() channel.Limits {
	return channel.Limits{Text: MaxText, Parts: true, Files: "no files"}
}

// Check implements [channel.Sender].
func (*Adapter) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(credToken) == "" || credentials.Get(credUser) == "" && (credentials.Get(credGroup) == "" || credentials.Get(credGroupType) == "") {
		return problem.New(problem.Precondition,
			"the connection of %s cannot send: its credentials need api_token with user_id, or with sender_group_id and sender_group_type", m.From)
	}
	if m.To.Phone == "" {
		return problem.New(problem.Precondition, "the customer's number is not known")
	}
	var v problem.Validation
	if n := utf8.RuneCountInString(m.Text); n > MaxText {
		v.AddCode("too_long", "text", "must have at most %d characters on this channel", MaxText)
	}
	for i := range m.Files {
		v.Add("attachments."+strconv.Itoa(i), "cannot be sent on this channel")
	}
	return v.Err()
}

// idValue returns an id in the API's form: a number if possible.
func idValue(s string) any {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n
	}
	return s
}

// SendCall implements [channel.APISender].
func (a *Adapter) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	body := map[string]any{"to_numbers": []string{m.To.Phone}, "text": m.Text}
	if group := credentials.Get(credGroup); group != "" && credentials.Get(credGroupType) != "" {
		body["sender_group_id"], body["sender_group_type"] = idValue(group), credentials.Get(credGroupType)
	}
	if user := credentials.Get(credUser); user != "" {
		body["user_id"] = idValue(user)
	}
	b, _ := json.Marshal(body) // strings and numbers do not fail
	return credentials.NewRequest(http.MethodPost, "/api/v2/sms", http.Header{
		"Authorization": {"Bearer " + credentials.Get(credToken)}, "Content-Type": {"application/json"}, "Accept": {"application/json"},
	}, b)
}

// rest is the wait after a rate limit, which the provider counts per minute.
const rest = time.Minute

// ReadSendResponse implements [channel.APISender].
func (*Adapter) ReadSendResponse(m *channel.Outgoing, answer channel.Response) channel.SendResult {
	var o object
	d := json.NewDecoder(strings.NewReader(string(answer.Body)))
	d.UseNumber()
	readable := d.Decode(&o) == nil && o != nil
	switch status := answer.Status; {
	case status >= 200 && status < 300:
		ref := channel.IndexKey(o.text("id", "message_id", "sms_id"))
		if !readable || ref == "" {
			return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}
		}
		if state, _ := textState(o.status()); state == channel.ReceiptFailed {
			text, permanent, optedOut := explain(cmp.Or(o.text("message_delivery_result"), o.status()))
			return channel.SendResult{
				Verdict: channel.VerdictRefused, ExternalIDs: []string{ref}, Reason: text,
				Recipient: m.To.Phone, Unreachable: permanent, OptedOut: optedOut,
			}
		}
		return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{ref}}
	case status == http.StatusTooManyRequests:
		return channel.SendResult{
			Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)",
			RetryAfter: cmp.Or(netguard.RetryAfter(answer.Header, m.Now), rest),
		}
	case status >= 500 || status == http.StatusRequestTimeout:
		return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: fmt.Sprintf("the provider failed (%d)", status)}
	case status == http.StatusUnauthorized:
		return channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider rejected the connection's api_token (401)"}
	case status == http.StatusForbidden:
		return channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the api_token may not send texts for this user or group (403)"}
	case status == http.StatusNotFound:
		return channel.SendResult{Verdict: channel.VerdictRefused, Reason: "the provider does not know the connection's user or group (404)"}
	}
	reason := fmt.Sprintf("the provider refused the text (%d)", answer.Status)
	if words := cmp.Or(o.object("error").text("message"), o.text("error", "message")); words != "" {
		if runes := []rune(words); len(runes) > 300 {
			words = string(runes[:300])
		}
		reason += ": " + words
	}
	return channel.SendResult{Verdict: channel.VerdictRefused, Reason: reason}
}
