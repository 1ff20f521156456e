package sms

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// MaxText is the provider's maximum text length in characters. Longer texts are refused rather
// than split: parts may arrive out of order or fail.
const MaxText = 1600

// DefaultAPIURL is the provider's API.
const DefaultAPIURL = "https://api.twilio.com"

// The credentials of a connection.
const (
	CredentialAccount = "account_sid"
	CredentialToken   = "auth_token"
	credKey           = "api_key"
	credKeySecret     = "api_secret"
	credService       = "messaging_service_sid"
)

// API implements [channel.APIUser].
func (a *Adapter) API() channel.API { return channel.API{URL: a.apiURL, Credentials: declared} }

var declared = []channel.Credential{
	{Name: CredentialAccount, Kind: channel.KindOption}, {Name: CredentialToken, Kind: channel.KindAPIKey},
	{Name: credKey, Kind: channel.KindAPIKey}, {Name: credKeySecret, Kind: channel.KindAPIKey},
	{Name: credService, Kind: channel.KindOption},
}

var (
	_ channel.APISender = (*Adapter)(nil)
	_ channel.Searcher  = (*Adapter)(nil)
)

// Check implements [channel.Sender].
func (a *Adapter) Check(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(CredentialAccount) == "" || basic(credentials) == "" {
		return problem.New(problem.Precondition,
			"the connection of %s cannot send: its credentials need account_sid with auth_token, or with api_key and api_secret", m.From)
	}
	if m.To.Phone == "" && m.To.ID == "" {
		return problem.New(problem.Precondition, "the customer's number is not known")
	}
	if m.To.Phone == "" && strings.ContainsFunc(m.To.ID, unicode.IsLetter) {
		return problem.New(problem.Precondition, "%s cannot be answered: it is a sender name, not a number", m.To.ID)
	}
	var v problem.Validation
	if n := utf8.RuneCountInString(m.Text); n > MaxText {
		v.AddCode("too_long", "text", "must have at most %d characters on this channel", MaxText)
	}
	return a.checkFiles(m, &v)
}

// Limits implements [channel.LimitedSender].
func (*Adapter) Limits() channel.Limits {
	return channel.Limits{Text: MaxText, Parts: true, Files: "at most 10 files of 5 MB together: pictures, sound, video, contacts and PDF"}
}

// The provider's limits for files of one message.
const (
	maxFiles     = 10
	maxFileBytes = 5 << 20
)

// fileTypes are the media types that carriers deliver.
var fileTypes = []string{
	"image/jpeg", "image/png", "image/gif",
	"audio/mpeg", "audio/mp4", "audio/ogg", "audio/3gpp", "audio/3gpp2", "audio/amr", "audio/webm",
	"video/mpeg", "video/mp4", "video/quicktime", "video/webm", "video/3gpp", "video/3gpp2",
	"text/vcard", "text/x-vcard", "text/csv", "text/rtf", "text/calendar", "application/pdf",
}

// checkFiles refuses unsupported files. The provider downloads them from us.
func (a *Adapter) checkFiles(m *channel.Outgoing, v *problem.Validation) error {
	if len(m.Files) > maxFiles {
		v.AddCode("too_long", "attachments", "must have at most %d files on this channel", maxFiles)
	}
	var total int64
	for i, f := range m.Files {
		total += f.Size
		kind, _, _ := mime.ParseMediaType(f.ContentType)
		if !slices.Contains(fileTypes, kind) {
			v.Add("attachments."+strconv.Itoa(i), "cannot be sent on this channel: carriers take pictures, audio, video, contacts and PDF, and this is %s", cmp.Or(kind, "of an unknown type"))
		}
	}
	if total > maxFileBytes {
		v.AddCode("too_long", "attachments", "must have at most %d MB together on this channel", maxFileBytes>>20)
	}
	if err := v.Err(); err != nil {
		return err
	}
	for _, f := range m.Files {
		if !a.reachable(f.URL) {
			return problem.New(problem.Precondition, "files cannot be sent on this channel: the provider fetches them from here, and it cannot reach the base URL of this server")
		}
	}
	return nil
}

// basic returns the Authorization header, or "".
func basic(credentials channel.Credentials) string {
	for _, pair := range [][2]string{{credKey, credKeySecret}, {CredentialAccount, CredentialToken}} {
		user, password := credentials.Get(pair[0]), credentials.Get(pair[1])
		if user != "" && password != "" {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
		}
	}
	return ""
}

// endpoints returns sender and recipient in the provider's form. A messaging service may
// replace our number.
func endpoints(m *channel.Outgoing, credentials channel.Credentials) (from, service, to string) {
	from, service, to = m.From, credentials.Get(credService), cmp.Or(m.To.Phone, m.To.ID)
	if isService(from) {
		from, service = "", cmp.Or(service, from)
	}
	if network, _, ok := strings.Cut(from, ":"); ok && !strings.Contains(to, ":") {
		to = network + ":" + to
	}
	return from, service, to
}

func isService(address string) bool { return len(address) == 34 && strings.HasPrefix(address, "MG") }

func messagesPath(credentials channel.Credentials) string {
	return "/2010-04-01/Accounts/" + url.PathEscape(credentials.Get(CredentialAccount)) + "/Messages.json"
}

// SendCall implements [channel.APISender].
func (a *Adapter) SendCall(m *channel.Outgoing, credentials channel.Credentials) channel.APIRequest {
	from, service, to := endpoints(m, credentials)
	form := url.Values{"To": {to}, "Body": {m.Text}}
	if from != "" {
		form.Set("From", from)
	}
	if service != "" {
		form.Set("MessagingServiceSid", service)
	}
	for _, f := range m.Files {
		form.Add("MediaUrl", f.URL)
	}
	if a.reachable(m.ReceiptURL) {
		form.Set("StatusCallback", m.ReceiptURL)
	}
	return credentials.NewRequest(http.MethodPost, messagesPath(credentials), http.Header{
		"Authorization": {basic(credentials)}, "Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"},
	}, []byte(form.Encode()))
}

// reachable reports whether the provider can call a URL; it refuses the whole message
// otherwise. A replacement of the provider's API may use any URL.
func (a *Adapter) reachable(address string) bool {
	if address == "" || a.apiURL != DefaultAPIURL {
		return address != ""
	}
	u, err := url.Parse(address)
	if err != nil || !strings.Contains(u.Hostname(), ".") {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// resource is a message of the provider's API, or an error.
type resource struct {
	SID          string `json:"sid"`
	Body         string `json:"body"`
	Direction    string `json:"direction"`
	Status       any    `json:"status"` // a number in errors
	To           string `json:"to"`
	From         string `json:"from"`
	Service      string `json:"messaging_service_sid"`
	NumMedia     string `json:"num_media"`
	DateCreated  string `json:"date_created"` // RFC 5322
	ErrorCode    any    `json:"error_code"`   // a number or null
	ErrorMessage string `json:"error_message"`

	Code    int    `json:"code"`
	Message string `json:"message"`
}

// ReadSendResponse implements [channel.APISender].
func (a *Adapter) ReadSendResponse(m *channel.Outgoing, answer channel.Response) channel.SendResult {
	var r resource
	readable := json.Unmarshal(answer.Body, &r) == nil
	recipient := cmp.Or(m.To.Phone, m.To.ID)
	switch status := answer.Status; {
	case status >= 200 && status < 300:
		if !readable || r.SID == "" {
			return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: "the provider's response is malformed"}
		}
		state, _ := r.Status.(string)
		if s, _ := receiptState(state); s == channel.ReceiptFailed {
			text, permanent := explain(number(r.ErrorCode), r.ErrorMessage, state)
			return channel.SendResult{
				Verdict: channel.VerdictRefused, ExternalIDs: []string{r.SID}, Reason: text,
				Recipient: recipient, Unreachable: permanent, OptedOut: number(r.ErrorCode) == codeOptedOut,
			}
		}
		return channel.SendResult{Verdict: channel.VerdictSent, ExternalIDs: []string{r.SID}}
	case status == http.StatusTooManyRequests || r.Code == 20429:
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's rate limit was exceeded (429)", RetryAfter: netguard.RetryAfter(answer.Header, m.Now)}
	case status >= 500:
		return channel.SendResult{Verdict: channel.VerdictUnclear, Reason: fmt.Sprintf("the provider failed (%d)", status), RetryAfter: netguard.RetryAfter(answer.Header, m.Now)}
	case r.Code == 21611:
		return channel.SendResult{Verdict: channel.VerdictRetry, Reason: "the provider's queue for our number is full (21611)", RetryAfter: netguard.RetryAfter(answer.Header, m.Now)}
	case !readable || r.Code == 0:
		return channel.SendResult{Verdict: channel.VerdictRefused, Reason: fmt.Sprintf("the provider refused the message (%d)", status)}
	}
	code := strconv.Itoa(r.Code)
	text, permanent := explain(code, r.Message, "")
	return channel.SendResult{Verdict: channel.VerdictRefused, Reason: text, Recipient: recipient, Unreachable: permanent, OptedOut: code == codeOptedOut}
}

// number returns a code that JSON has as a number, a string or null.
func number(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return v
	}
	return ""
}

// SearchCall implements [channel.Searcher]. The list has the newest first. It is not filtered
// by date, because the provider's date is that of sending, which a queued message does not
// have.
func (a *Adapter) SearchCall(m *channel.Outgoing, credentials channel.Credentials, _ time.Time) channel.APIRequest {
	from, _, to := endpoints(m, credentials)
	query := url.Values{"To": {to}, "PageSize": {"100"}}
	if from != "" {
		query.Set("From", from)
	}
	return search(messagesPath(credentials)+"?"+query.Encode(), credentials)
}

func search(path string, credentials channel.Credentials) channel.APIRequest {
	return credentials.NewRequest(http.MethodGet, path, http.Header{"Authorization": {basic(credentials)}, "Accept": {"application/json"}}, nil)
}

// searchSlack is how far the provider's clock may be behind ours.
const searchSlack = 5 * time.Minute

// ReadSearchResponse implements [channel.Searcher]: messages created by the API since then with
// the text of m.
func (a *Adapter) ReadSearchResponse(m *channel.Outgoing, credentials channel.Credentials, since time.Time, answer channel.Response) ([]string, *channel.APIRequest, error) {
	if answer.Status != http.StatusOK {
		return nil, nil, fmt.Errorf("searching for the message failed with status %d", answer.Status)
	}
	var list struct {
		Messages []resource `json:"messages"`
		Next     string     `json:"next_page_uri"`
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil || list.Messages == nil {
		return nil, nil, fmt.Errorf("the provider's list of messages is malformed")
	}
	_, service, _ := endpoints(m, credentials)
	var ids []string
	for _, r := range list.Messages {
		if at, err := time.Parse(time.RFC1123Z, r.DateCreated); err == nil && at.Before(since.Add(-searchSlack)) {
			return ids, nil, nil // all that follow are older
		}
		if r.SID == "" || r.Direction != "outbound-api" || r.Service != service && r.From != m.From {
			continue
		}
		if files, err := strconv.Atoi(r.NumMedia); err == nil && files != len(m.Files) {
			continue
		}
		if same(r.Body, m.Text) {
			ids = append(ids, r.SID)
		}
	}
	if list.Next == "" {
		return ids, nil, nil
	}
	// The next page, but only at the provider's host.
	if !strings.HasPrefix(list.Next, "/") || strings.HasPrefix(list.Next, "//") {
		return ids, nil, fmt.Errorf("the provider's list of messages continues at another host")
	}
	more := search(list.Next, credentials)
	return ids, &more, nil
}

// preface is the provider's prefix of texts from trial accounts.
const preface = "Sent from your Twilio trial account - "

// same reports whether a listed text may be ours: the provider may have replaced quotation
// marks and similar characters.
func same(shown, sent string) bool {
	shown = strings.TrimPrefix(shown, preface)
	if want := letters(sent); want != "" {
		return letters(shown) == want
	}
	return strings.TrimSpace(shown) == strings.TrimSpace(sent)
}

func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r
		}
		return -1
	}, text)
}
