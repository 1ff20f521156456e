package meta

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"cmp"
)

// The provider's limits in characters. Longer messages are refused rather than split: parts may
// arrive out of order or fail.
const (
	MaxBusinessText    = 4096
	MaxBusinessCaption = 1024
)

// serviceWindow is how long after the customer's last message free-form replies are allowed.
const serviceWindow = 24 * time.Hour

var (
	_ channel.APISender      = (*Business)(nil)
	_ channel.WindowedSender = (*Business)(nil)
)

// Window implements [channel.WindowedSender].
func (*Business) Window(*channel.Outgoing, channel.Credentials) time.Duration { return serviceWindow }

// businessFile describes a supported file type.
type businessFile struct {
	kind    string
	types   []string
	maxSize int64 // bytes
	caption bool  // supports a caption
}

func businessFiles() []businessFile {
	return []businessFile{
		{"image", []string{"image/jpeg", "image/png"}, 5 << 20, true},
		{"video", []string{"video/mp4", "video/3gpp"}, 16 << 20, true},
		{"audio", []string{"audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"}, 16 << 20, false},
		{"document", []string{
			"application/pdf", "text/plain", "application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
			"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
			"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
			"application/vnd.openxmlformats-officedocument.presentationml.presentation",
		}, 100 << 20, true},
	}
}

// businessKind returns how to send a file of a media type; false if it is not supported.
func businessKind(contentType string) (businessFile, bool) {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return businessFile{}, false
	}
	files := businessFiles()
	i := slices.IndexFunc(files, func(f businessFile) bool { return slices.Contains(f.types, t) })
	if i < 0 {
		return businessFile{}, false
	}
	return files[i], true
}

// Limits implements [channel.LimitedSender].
func (*Business) Limits() channel.Limits {
	return channel.Limits{Text: MaxBusinessText, Files: "one file, beside at most 1,024 characters"}
}

// Check implements [channel.Sender].
func (*Business) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if err := checkCredentials(m, credentials); err != nil {
		return err
	}
	if m.To.Phone == "" && m.To.ID == "" {
		return problem.New(problem.Precondition, "neither the customer's number nor their id is known")
	}
	var v problem.Validation
	limit := MaxBusinessText
	for i, f := range m.Files {
		path := "attachments." + strconv.Itoa(i)
		kind, ok := businessKind(f.ContentType)
		switch {
		case i > 0:
			v.Add(path, "must be sent separately: on this channel a message has at most one file")
		case !ok:
			v.Add(path, "cannot be sent on this channel: it takes JPEG and PNG images, MP4 and 3GPP videos, AAC, AMR, MP3, M4A and OGG sound, PDF, plain text and Office documents")
		case f.Size > kind.maxSize:
			v.AddCode("too_long", path, "must have at most %d MB on this channel", kind.maxSize>>20)
		case !kind.caption && m.Text != "":
			v.Add(path, "must be sent without text: on this channel audio has no caption")
		case kind.caption:
			limit = MaxBusinessCaption
		}
	}
	if n := utf8.RuneCountInString(m.Text); n > limit {
		beside := ""
		if limit == MaxBusinessCaption {
			beside = " beside a file"
		}
		v.AddCode("too_long", "text", "must have at most %d characters%s on this channel", limit, beside)
	}
	if err := v.Err(); err != nil {
		return err
	}
	const what = "Until the customer writes again, only templates that the provider has approved may be sent: reach them another way, or wait for them to write"
	if m.LastInboundAt.IsZero() {
		return windowClosed("the customer has not written on this channel yet, and only what they write opens it for 24 hours. %s", what)
	}
	if until := m.LastInboundAt.Add(serviceWindow); !m.Now.Before(until) {
		return windowClosed("the 24 hours in which the customer could be answered here ended on %s. %s", moment(until), what)
	}
	return nil
}

// businessOut is a message in the API's form.
type businessOut struct {
	Product       string `json:"messaging_product"`
	RecipientType string `json:"recipient_type"`
	To            string `json:"to,omitempty"`
	Recipient     string `json:"recipient,omitempty"` // user id of a customer with a hidden number; the API loses ids in to
	Type          string `json:"type"`
	Ours          string `json:"biz_opaque_callback_data,omitempty"` // returned with every status

	Text     *businessText `json:"text,omitempty"`
	Image    *businessLink `json:"image,omitempty"`
	Video    *businessLink `json:"video,omitempty"`
	Audio    *businessLink `json:"audio,omitempty"`
	Document *businessLink `json:"document,omitempty"`
}

type businessText struct {
	Body string `json:"body"`
}

type businessLink struct {
	Link     string `json:"link"`
	Caption  string `json:"caption,omitempty"`
	Filename string `json:"filename,omitempty"`
}

// SendCall implements [channel.APISender]. It prefers the phone number, so that replies
// continue to include it.
func (b *Business) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	out := businessOut{Product: "whatsapp", RecipientType: "individual", Ours: m.ID}
	if m.To.Phone != "" {
		out.To = strings.TrimPrefix(m.To.Phone, "+")
	} else {
		out.Recipient = m.To.ID
	}
	if len(m.Files) == 0 {
		out.Type, out.Text = "text", &businessText{m.Text}
	} else {
		f := m.Files[0]
		kind, _ := businessKind(f.ContentType)
		link := &businessLink{Link: f.URL, Caption: m.Text}
		switch out.Type = kind.kind; kind.kind {
		case "image":
			out.Image = link
		case "video":
			out.Video = link
		case "audio":
			out.Audio, link.Caption = link, ""
		default:
			out.Document, link.Filename = link, f.Name
		}
	}
	call := b.graph.call(http.MethodPost, credentials, nil, cmp.Or(credentials.Get(credNumber), m.From), "messages")
	call.Header.Set("Content-Type", "application/json")
	call.Body, _ = json.Marshal(out) // strings do not fail
	return call
}

// ReadSendResponse implements [channel.APISender].
func (*Business) ReadSendResponse(m *channel.Outgoing, answer channel.Response) channel.SendResult {
	if answer.Status/100 == 2 {
		var ids []string
		for _, r := range parse(answer.Body).objects("messages") {
			if id := r.text("id"); id != "" {
				ids = append(ids, key(id))
			}
		}
		if len(ids) > 0 {
			return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: ids}
		}
	}
	return verdict(m, answer, cmp.Or(m.To.Phone, m.To.ID), explainBusiness)
}

// explainBusiness explains an error of business messaging in plain words.
func explainBusiness(f failure) errorInfo {
	m := errorInfo{fate: channel.VerdictRefused}
	switch c := f.code; {
	case c == 131047 || c == 470:
		m.text = "more than 24 hours have passed since the customer last wrote, so only approved templates may be sent. Write again after they have, or reach them another way"
	case c == 131026:
		m.text, m.unreachable = "the message cannot be delivered: the customer may not use the messenger, or an app that is too old", true
	case c == 131056:
		m.text, m.fate = "too many messages went to this customer in a short time", channel.VerdictRetry
	case c == 130429:
		m.text, m.fate = "too many messages went out from our number in a short time", channel.VerdictRetry
	case c == 131000 || c == 131016 || c == 131057 || c == 133004:
		m.text, m.fate = "the provider failed, or is at work on the account", channel.VerdictRetry
	case c == 131048:
		m.text = "the provider limits our number, since too many of its messages were blocked or reported"
	case c == 131049:
		m.text = "the provider chose not to deliver the message, so that the customer does not get too many"
	case c == 131050:
		m.text = "the customer has stopped messages of this kind"
	case c == 130472:
		m.text = "the customer is in a test of the provider's and does not get this kind of message"
	case c == 131051:
		m.text = "the provider does not take messages of this type"
	case c == 131052:
		m.text = "the provider could not get the customer's file"
	case c == 131053:
		m.text = "the provider could not load the file: it takes neither this type or size, or cannot reach its address"
	case c == 131062:
		m.text = "this template cannot be sent to a customer who hides their number"
	case c >= 132000 && c <= 132999:
		m.text = "the provider rejected the template: " + cmp.Or(f.words, "no reason given")
	case c == 131005:
		m.text = "the connection's access token lacks the permission to send from here"
	case c == 131008 || c == 131009 || c == 131021 || c == 100 || c == 33 || c == 135000:
		m.text = "the provider rejected the message: " + cmp.Or(f.words, "no reason given")
	case c == 131030:
		m.text = "the provider's test number may not write to this customer: their number is not on its list"
	case c == 131031:
		m.text = "the provider has locked or restricted the account"
	case c == 131037 || c == 131045 || c == 133010:
		m.text = "our number is not ready to send: its registration with the provider is not complete"
	case c == 131042:
		m.text = "the provider wants its account's payment settled first"
	case c == 130497:
		m.text = "the account may not write to customers in this country"
	default:
		var ok bool
		if m, ok = f.explain(); !ok {
			m = errorInfo{text: cmp.Or(f.words, "the provider refused the message")}
		}
	}
	return m
}
