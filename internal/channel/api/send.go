package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// credURL is the app's URL, which gets replies. Without one, replies wait in the visitors' API.
const credURL = "webhook_url"

// API implements [channel.APIUser]. The app's own URL is the API; requests are signed, and there is
// no key.
func (Adapter) API() channel.API {
	return channel.API{Credentials: []channel.Credential{{Name: credURL, Kind: channel.KindAPIURL}}}
}

var (
	_ channel.APISender        = Adapter{}
	_ channel.IdempotentSender = Adapter{}
	_ channel.TypingReporter   = Adapter{}
	_ channel.PullSender       = Adapter{}
)

// Check implements [channel.Sender].
func (Adapter) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.HasAPI() && credentials.BaseURL() == "" {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its webhook_url is not valid", m.From)
	}
	return nil
}

// Pulls implements [channel.PullSender].
func (Adapter) Pulls(credentials channel.Credentials) bool { return !credentials.HasAPI() }

// ReadPulled implements [channel.PullSender].
func (Adapter) ReadPulled(m *channel.Outgoing) channel.SendResult { return sent(m) }

func sent(m *channel.Outgoing) channel.SendResult {
	return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{channel.ReplyID(m.ID)}}
}

// IdempotencyWindow implements [channel.IdempotentSender]. The header webhook-id is the message's id
// in each attempt, and receivers ignore ids that they have.
func (Adapter) IdempotencyWindow() time.Duration { return 7 * 24 * time.Hour }

// outgoing is the body of a request to the app.
type outgoing struct {
	Type         string    `json:"type"`
	Timestamp    time.Time `json:"timestamp"`
	User         string    `json:"user_id"`
	Conversation string    `json:"conversation"`
	TicketID     string    `json:"ticket_id"`
	TicketNumber int64     `json:"ticket_number,omitempty"`
	Agent        string    `json:"agent,omitempty"`
	Message      *reply    `json:"message,omitempty"`
}

type reply struct {
	ID        string      `json:"id"`
	From      string      `json:"from"`
	Text      string      `json:"text"`
	HTML      string      `json:"html,omitempty"`
	Automatic bool        `json:"automatic,omitempty"`
	Files     []replyFile `json:"files"`
}

type replyFile struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	URL         string `json:"url"` // valid for a week
}

// SendCall implements [channel.APISender].
func (Adapter) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	user, conversation := SplitThreadKey(m.ThreadKey)
	body := outgoing{
		Type: "message.created", Timestamp: m.Now.UTC(), User: user, Conversation: conversation, TicketID: m.TicketID, TicketNumber: m.TicketNumber,
		Message: &reply{ID: m.ID, From: m.FromName, Text: m.Text, HTML: m.HTML, Automatic: m.Automatic, Files: []replyFile{}},
	}
	for _, f := range m.Files {
		body.Message.Files = append(body.Message.Files, replyFile{f.Name, f.ContentType, f.Size, f.URL})
	}
	return call(&body, m.ID, credentials)
}

// TypingCall implements [channel.TypingReporter].
func (Adapter) TypingCall(m *channel.Outgoing, agent string, credentials channel.Credentials) channel.APIRequest {
	user, conversation := SplitThreadKey(m.ThreadKey)
	return call(&outgoing{
		Type: "agent.typing", Timestamp: m.Now.UTC(), User: user, Conversation: conversation, TicketID: m.TicketID, Agent: agent,
	}, m.ID, credentials)
}

func call(body *outgoing, id string, credentials channel.Credentials) channel.APIRequest {
	text, _ := json.Marshal(body) // strings, numbers and times do not fail
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set(payload.StandardID, id)
	return credentials.NewRequest(http.MethodPost, "", h, text)
}

// SignCall implements [channel.CallSigner].
func (Adapter) SignCall(c *channel.APIRequest, secrets []string, at time.Time) {
	payload.SignStandard(c.Header, c.Header.Get(payload.StandardID), at, c.Body, secrets)
}

// ReadSendResponse implements [channel.APISender].
func (Adapter) ReadSendResponse(m *channel.Outgoing, a channel.Response) channel.SendResult {
	reason := fmt.Sprintf("the app answered %d %s", a.Status, http.StatusText(a.Status))
	switch {
	case a.Status >= 200 && a.Status < 300:
		return sent(m)
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusRequestTimeout, a.Status >= 500:
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: reason, RetryAfter: time.Duration(min(max(seconds, 0), 86400)) * time.Second}
	case a.Status >= 300 && a.Status < 400:
		reason += "; redirects are not followed"
	}
	return channel.SendResult{Verdict: channel.VerdictRefused, Reason: reason}
}
