package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MaxText is the maximum text length in characters, including links to files; the provider
// truncates longer ones.
const MaxText = 40_000

var (
	_ channel.APISender = (*Adapter)(nil)
	_ channel.Searcher  = (*Adapter)(nil)
)

// Check implements [channel.Sender]. Only existing threads can be answered.
func (*Adapter) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(CredBotToken) == "" {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its credentials need %s", m.From, CredBotToken)
	}
	if _, _, ok := thread(m); !ok {
		return problem.New(problem.Precondition, "on this channel only threads started by the customer can be answered")
	}
	var v problem.Validation
	if n := utf8.RuneCountInString(text(m)); n > MaxText {
		v.AddCode("too_long", "text", "must have at most %d characters on this channel, with the links to its files", MaxText)
	}
	return v.Err()
}

// Limits implements [channel.LimitedSender].
func (*Adapter) Limits() channel.Limits {
	return channel.Limits{Text: MaxText, Files: "files are sent as links, which work for a week"}
}

// thread returns the destination: a chat channel, and the first message of a thread in it.
func thread(m *channel.Outgoing) (place, root string, ok bool) {
	place, root, ok = strings.Cut(m.ThreadKey, ":")
	return place, root, ok && place != "" && !moment(root).IsZero()
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// text returns the text to post: the message's, with markup escaped, and a link to each file.
func text(m *channel.Outgoing) string {
	var b strings.Builder
	b.WriteString(escaper.Replace(m.Text))
	for _, f := range m.Files {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		label := strings.ReplaceAll(strings.Join(strings.Fields(f.Name), " "), "|", "/")
		fmt.Fprintf(&b, "<%s|%s>", escaper.Replace(f.URL), escaper.Replace(cmp.Or(label, "file")))
	}
	return b.String()
}

// eventType is the type of our message metadata. It holds our message id, for searching.
const eventType = "kickstand_message"

type metadata struct {
	Type    string `json:"event_type"`
	Payload struct {
		ID string `json:"id"`
	} `json:"event_payload"`
}

// postCall is the body of the call.
type postCall struct {
	Channel  string   `json:"channel"`
	Thread   string   `json:"thread_ts"`
	Text     string   `json:"text"`
	Metadata metadata `json:"metadata"`
}

// SendCall implements [channel.APISender].
func (a *Adapter) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	p := postCall{Text: text(m), Metadata: metadata{Type: eventType}}
	p.Metadata.Payload.ID = m.ID
	p.Channel, p.Thread, _ = thread(m)
	body, _ := json.Marshal(p) // strings do not fail
	return credentials.NewRequest(http.MethodPost, "/api/chat.postMessage", http.Header{
		"Authorization": {"Bearer " + credentials.Get(CredBotToken)}, "Content-Type": {"application/json; charset=utf-8"},
		"Accept": {"application/json"},
	}, body)
}

// postResponse is the body of the response.
type postResponse struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Needed  string `json:"needed"` // missing scopes
	Channel string `json:"channel"`
	TS      string `json:"ts"`
}

// ReadSendResponse implements [channel.APISender]. Most errors have the status 200.
func (*Adapter) ReadSendResponse(m *channel.Outgoing, answer channel.Response) channel.SendResult {
	wait := netguard.RetryAfter(answer.Header, m.Now)
	switch status := answer.Status; {
	case status == http.StatusTooManyRequests:
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)", RetryAfter: wait}
	case status >= 500:
		return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: fmt.Sprintf("the provider failed (%d)", status), RetryAfter: wait}
	case status != http.StatusOK:
		return channel.SendResult{Verdict: channel.VerdictRefused, Reason: fmt.Sprintf("the provider refused the message (%d)", status)}
	}
	var p postResponse
	if err := json.Unmarshal(answer.Body, &p); err != nil || p.OK && p.TS == "" || !p.OK && p.Error == "" {
		return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}
	}
	if p.OK {
		place, _, _ := thread(m)
		return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{messageID(cmp.Or(p.Channel, place), p.TS)}}
	}
	fate, reason := explain(&p)
	return channel.SendResult{Verdict: fate, Reason: reason, RetryAfter: wait}
}

// explain explains an error in plain words and returns whether a retry can help.
func explain(p *postResponse) (channel.SendOutcome, string) {
	fate, text := channel.VerdictRefused, ""
	switch p.Error {
	case "ratelimited", "rate_limited", "message_limit_exceeded":
		fate, text = channel.VerdictRetry, "the provider takes no more messages at the moment"
	case "internal_error", "fatal_error", "request_timeout", "service_unavailable":
		fate, text = channel.VerdictUnclear, "the provider failed"
	case "not_in_channel":
		text = "the app is not in the channel any more: invite it again"
	case "channel_not_found":
		text = "the channel does not exist any more, or the app may not see it"
	case "is_archived":
		text = "the channel is archived"
	case "thread_not_found", "cannot_reply_to_message":
		text = "the thread cannot be answered any more"
	case "msg_too_long":
		text = "the text is too long"
	case "no_text":
		text = "the message has no text"
	case "not_authed", "invalid_auth":
		text = "the provider refuses the connection's bot_token"
	case "token_revoked", "token_expired", "account_inactive":
		text = "the connection's bot_token is not valid any more: install the app again"
	case "missing_scope":
		text = "the app lacks the scope " + cmp.Or(key(p.Needed), "chat:write")
	case "restricted_action", "restricted_action_read_only_channel", "restricted_action_thread_only_channel",
		"restricted_action_non_threadable_channel", "restricted_action_thread_locked", "no_permission", "ekm_access_denied":
		text = "the workspace does not let the app write there"
	case "messages_tab_disabled":
		text = "direct messages to the app are switched off in its settings"
	default:
		text = "the provider refused the message"
	}
	return fate, text + " (" + key(p.Error) + ")"
}

// searchSlack is how far the provider's clock may be behind ours.
const searchSlack = 5 * time.Minute

// SearchCall implements [channel.Searcher]: it lists the thread's messages since then, with
// metadata.
func (a *Adapter) SearchCall(m *channel.Outgoing, credentials channel.Credentials, since time.Time) channel.APIRequest {
	return a.search(m, credentials, since, "")
}

func (a *Adapter) search(m *channel.Outgoing, credentials channel.Credentials, since time.Time, cursor string) channel.APIRequest {
	place, root, _ := thread(m)
	query := url.Values{
		"channel": {place}, "ts": {root}, "limit": {"100"}, "include_all_metadata": {"true"},
		"oldest": {strconv.FormatInt(since.Add(-searchSlack).Unix(), 10) + ".000000"},
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return getCall(credentials, "/api/conversations.replies?"+query.Encode())
}

// ReadSearchResponse implements [channel.Searcher]. If the app may not read the thread, it can
// never be searched.
func (a *Adapter) ReadSearchResponse(m *channel.Outgoing, credentials channel.Credentials, since time.Time, answer channel.Response) ([]string, *channel.APIRequest, error) {
	var list struct {
		OK       bool   `json:"ok"`
		Error    string `json:"error"`
		Messages []struct {
			TS       string   `json:"ts"`
			Metadata metadata `json:"metadata"`
		} `json:"messages"`
		More bool `json:"has_more"`
		Next struct {
			Cursor string `json:"next_cursor"`
		} `json:"response_metadata"`
	}
	if answer.Status != http.StatusOK {
		return nil, nil, fmt.Errorf("searching for the message failed with status %d", answer.Status)
	}
	err := json.Unmarshal(answer.Body, &list)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other || !list.OK && list.Error == "" {
		return nil, nil, errors.New("the provider's list of messages is malformed")
	}
	switch code := list.Error; {
	case list.OK:
	case code == "missing_scope", code == "not_in_channel", code == "channel_not_found", code == "thread_not_found",
		code == "no_permission", lostAccess(code):
		return nil, nil, fmt.Errorf("%w: %s", channel.ErrUnsearchable, code)
	default:
		return nil, nil, fmt.Errorf("searching for the message failed with %s", key(code))
	}
	place, _, _ := thread(m)
	var ids []string
	for _, p := range list.Messages {
		if p.Metadata.Type == eventType && p.Metadata.Payload.ID == m.ID && p.TS != "" {
			ids = append(ids, messageID(place, p.TS))
		}
	}
	if !list.More || list.Next.Cursor == "" {
		return ids, nil, nil
	}
	more := a.search(m, credentials, since, list.Next.Cursor)
	return ids, &more, nil
}
