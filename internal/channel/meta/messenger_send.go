package meta

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MaxMessengerText is the maximum text length in characters.
const MaxMessengerText = 2000

const (
	maxMessengerFile  = 25 << 20 // bytes
	maxMessengerImage = 8 << 20
)

// agentWindow is how long after the customer's last message an agent may reply if the app has
// the human_agent permission.
const agentWindow = 7 * 24 * time.Hour

var (
	_ channel.APISender      = (*Messenger)(nil)
	_ channel.WindowedSender = (*Messenger)(nil)
)

// humanAgent reports whether the app may reply after the first day.
func humanAgent(credentials channel.Credentials) bool {
	yes, err := strconv.ParseBool(credentials.Get(credHumanAgent))
	return err == nil && yes
}

// Window implements [channel.WindowedSender].
func (*Messenger) Window(m *channel.Outgoing, credentials channel.Credentials) time.Duration {
	if humanAgent(credentials) && !m.Automatic {
		return agentWindow
	}
	return serviceWindow
}

// Limits implements [channel.LimitedSender].
func (*Messenger) Limits() channel.Limits {
	return channel.Limits{Text: MaxMessengerText, Files: "one file, without text"}
}

// Check implements [channel.Sender].
func (a *Messenger) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if err := checkCredentials(m, credentials); err != nil {
		return err
	}
	if m.To.ID == "" {
		return problem.New(problem.Precondition, "the customer's id with this page is not known")
	}
	var v problem.Validation
	if n := utf8.RuneCountInString(m.Text); n > MaxMessengerText {
		v.AddCode("too_long", "text", "must have at most %d characters on this channel", MaxMessengerText)
	}
	for i, f := range m.Files {
		path := "attachments." + strconv.Itoa(i)
		limit := int64(maxMessengerFile)
		if messengerFileKind(f.ContentType) == "image" {
			limit = maxMessengerImage
		}
		switch {
		case i > 0:
			v.Add(path, "must be sent separately: on this channel a message has at most one file")
		case m.Text != "":
			v.Add(path, "must be sent without text: on this channel a message is a file or a text")
		case f.Size > limit:
			v.AddCode("too_long", path, "must have at most %d MB on this channel", limit>>20)
		}
	}
	if err := v.Err(); err != nil {
		return err
	}
	const what = "Until the customer writes again, nothing may be sent here: reach them another way, or wait for them to write"
	window := a.Window(m, credentials)
	if m.LastInboundAt.IsZero() {
		return windowClosed("the customer has not written on this channel yet, and only what they write opens it. %s", what)
	}
	if until := m.LastInboundAt.Add(window); !m.Now.Before(until) {
		more := ""
		if window == serviceWindow {
			more = ". An app with the provider's permission Human Agent has seven days: see the connection's credential " + credHumanAgent
		}
		return windowClosed("the time in which the customer could be answered here ended on %s. %s%s", moment(until), what, more)
	}
	return nil
}

// messengerFileKind returns the provider's attachment type for a media type.
func messengerFileKind(contentType string) string {
	switch kind, sub, _ := strings.Cut(strings.ToLower(contentType), "/"); kind {
	case "audio", "video":
		return kind
	case "image":
		switch sub, _, _ := strings.Cut(sub, ";"); strings.TrimSpace(sub) {
		case "jpeg", "png", "gif", "webp":
			return kind
		}
	}
	return "file"
}

// messengerOut is a message in the API's form.
type messengerOut struct {
	Recipient struct {
		ID string `json:"id"`
	} `json:"recipient"`
	Type    string `json:"messaging_type"`
	Tag     string `json:"tag,omitempty"`
	Message struct {
		Text       string          `json:"text,omitempty"`
		Attachment *attachmentLink `json:"attachment,omitempty"`
		Metadata   string          `json:"metadata,omitempty"` // returned with the echo
	} `json:"message"`
}

type attachmentLink struct {
	Type    string `json:"type"`
	Payload struct {
		URL string `json:"url"`
	} `json:"payload"`
}

// SendCall implements [channel.APISender].
func (a *Messenger) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	var out messengerOut
	out.Recipient.ID, out.Type = m.To.ID, "RESPONSE"
	if humanAgent(credentials) && !m.Now.Before(m.LastInboundAt.Add(serviceWindow)) {
		out.Type, out.Tag = "MESSAGE_TAG", "HUMAN_AGENT"
	}
	out.Message.Metadata = ownMark + m.ID
	if len(m.Files) == 0 {
		out.Message.Text = m.Text
	} else {
		link := &attachmentLink{Type: messengerFileKind(m.Files[0].ContentType)}
		link.Payload.URL = m.Files[0].URL
		out.Message.Attachment = link
	}
	call := a.graph.call(http.MethodPost, credentials, nil, m.From, "messages")
	call.Header.Set("Content-Type", "application/json")
	call.Body, _ = json.Marshal(out) // strings do not fail
	return call
}

// ReadSendResponse implements [channel.APISender].
func (*Messenger) ReadSendResponse(m *channel.Outgoing, answer channel.Response) channel.SendResult {
	if answer.Status/100 == 2 {
		if id := parse(answer.Body).text("message_id"); id != "" {
			return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{key(id)}}
		}
	}
	return verdict(m, answer, m.To.ID, explainMessenger)
}

// explainMessenger explains an error of the social messenger in plain words.
func explainMessenger(f failure) errorInfo {
	m := errorInfo{fate: channel.VerdictRefused}
	switch c, sub := f.code, f.subcode; {
	case c == 10 && sub == 2018278 || sub == 2018065:
		m.text = "too much time has passed since the customer last wrote. Write again after they have, or reach them another way"
	case c == 551 || sub == 1545041 || sub == 2018108:
		m.text = "the customer cannot be reached at the moment: they may have blocked the page, or left the messenger"
	case c == 100 && sub == 2018001:
		m.text, m.unreachable = "the provider knows nobody with the customer's id on this page", true
	case c == 100 && (sub == 2018008 || sub == 2018047 || sub == 2018294):
		m.text = "the provider could not load the file: it takes neither this type or size, or cannot reach its address"
	case c == 100 || c == 33:
		m.text = "the provider rejected the message: " + cmp.Or(f.words, "no reason given")
	case c == 1200:
		m.text, m.fate = "the provider failed", channel.VerdictRetry
	default:
		var ok bool
		if m, ok = f.explain(); !ok {
			m = errorInfo{text: cmp.Or(f.words, "the provider refused the message")}
		}
	}
	return m
}
