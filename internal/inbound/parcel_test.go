package inbound_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// parcels is a test channel with signed JSON requests that describe their own events.
type parcels struct {
	info channel.Info
	// only restricts Recognizes to bodies that contain it.
	only string
}

// parcel is a request of the channel.
type parcel struct {
	To    []string     `json:"to,omitempty"`
	Parts []parcelItem `json:"parts"`
}

// parcelItem is one part: a message, unless another field is set.
type parcelItem struct {
	Key     string         `json:"key"`
	Sender  string         `json:"sender"`
	Address string         `json:"address,omitempty"`
	Guessed bool           `json:"guessed,omitempty"`
	Text    string         `json:"text,omitempty"`
	File    string         `json:"file,omitempty"` // URL of an attachment
	Sum     string         `json:"sum,omitempty"`  // announced checksum
	Event   *channel.Event `json:"event,omitempty"`
}

const parcelPath = "/api/webhooks/parcels"

func newParcels(name string) parcels {
	return parcels{info: channel.Info{Name: name, TicketChannel: "parcels", Path: parcelPath, MaxBody: 1 << 20}}
}

func (p parcels) Info() channel.Info { return p.info }

// parcelAPI is the API of the channel's provider.
var parcelAPI = channel.API{URL: "https://api.example", Credentials: []channel.Credential{
	{Name: "token", Kind: channel.KindAPIKey}, {Name: "api_url", Kind: channel.KindAPIURL}, {Name: channel.VerifyToken, Kind: channel.KindSigning},
	{Name: "key", Kind: channel.KindSigning}, {Name: "old_key", Kind: channel.KindSigning}, {Name: "reports_key", Kind: channel.KindSigning},
}}

func (parcels) API() channel.API { return parcelAPI }

func (p parcels) Recognizes(r *channel.Request) bool { return strings.Contains(string(r.Body), p.only) }

func (p parcels) read(r *channel.Request) (parcel, error) {
	var body parcel
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return body, fmt.Errorf("%w: %w", channel.ErrUnreadable, err)
	}
	return body, nil
}

func (p parcels) Addresses(r *channel.Request) ([]string, error) {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" && kind != "" {
		return nil, channel.ErrContentType
	}
	body, err := p.read(r)
	if err != nil {
		return nil, nil // stored as rejected
	}
	return body.To, nil
}

func (p parcels) Verify(r *channel.Request, secret string) bool {
	presented, err := hex.DecodeString(r.Header.Get("X-Signature"))
	return err == nil && secret != "" && hmac.Equal(presented, parcelMAC(r.Body, secret))
}

func parcelMAC(body []byte, secret string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}

func (p parcels) Split(r *channel.Request) ([]channel.Part, error) {
	body, err := p.read(r)
	if err != nil {
		return nil, err
	}
	var parts []channel.Part
	for _, i := range body.Parts {
		own, _ := json.Marshal(i)
		parts = append(parts, channel.Part{Key: i.Key, Sender: i.Sender, Address: i.Address, Guessed: i.Guessed, Kind: "item", Body: own})
	}
	return parts, nil
}

func (p parcels) Parse(_ *channel.Request, part channel.Part) (channel.Event, error) {
	var i parcelItem
	if err := json.Unmarshal(part.Body, &i); err != nil {
		return channel.Event{}, fmt.Errorf("%w: %w", channel.ErrUnreadable, err)
	}
	if i.Event != nil {
		return *i.Event, nil
	}
	m := &channel.Message{ExternalID: i.Key, ThreadKey: i.Sender, From: channel.Party{ID: i.Sender}, Text: i.Text}
	if i.File != "" {
		m.Attachments = []channel.Attachment{{Name: "file", URL: i.File, SHA256: i.Sum}}
	}
	return channel.Event{Message: m}, nil
}

func (p parcels) MediaRequest(a channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	return channel.MediaRequest{URL: a.URL, Hosts: []string{"files.example"}, HeaderHosts: []string{"files.example"}, Header: http.Header{"Authorization": {credentials.Get("token")}}}
}

// bytes returns the request body.
func (p parcel) bytes() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return b
}

// parcelRequest returns a signed request to a path, which may have a query.
func parcelRequest(path string, body []byte, secret string) *http.Request {
	r := httptest.NewRequest("POST", path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Signature", hex.EncodeToString(parcelMAC(body, secret)))
	return r
}

// to returns a request with one message to an address.
func to(address, key, text string) parcel {
	return parcel{To: []string{address}, Parts: []parcelItem{{Key: key, Sender: "ana", Address: address, Text: text}}}
}

// greeting is a parcels channel with a provider that sends challenges.
type greeting struct{ parcels }

func (greeting) Handshake(r *channel.Request) (token, challenge string, ok bool) {
	q := r.Query()
	return q.Get("hub.verify_token"), q.Get("hub.challenge"), q.Get("hub.mode") == "subscribe"
}

func (g greeting) ChallengeResponse(r *channel.Request) (string, bool) {
	var body struct{ Challenge string }
	err := json.Unmarshal(r.Body, &body)
	return body.Challenge, err == nil && body.Challenge != ""
}

// tokened is a parcels channel with signatures that cover only a token.
type tokened struct{ parcels }

func (t tokened) Verify(r *channel.Request, secret string) bool {
	presented, err := hex.DecodeString(r.Header.Get("X-Signature"))
	return err == nil && secret != "" && hmac.Equal(presented, parcelMAC([]byte(r.Header.Get("X-Once")), secret))
}

func (t tokened) ReplayToken(r *channel.Request) channel.ReplayToken {
	return channel.ReplayToken{Value: r.Header.Get("X-Once"), Until: r.Received.Add(15 * time.Minute)}
}

// tokenRequest returns a request of the channel tokened.
func tokenRequest(path string, body []byte, token, secret string) *http.Request {
	r := parcelRequest(path, body, secret)
	r.Header.Set("X-Once", token)
	r.Header.Set("X-Signature", hex.EncodeToString(parcelMAC([]byte(token), secret)))
	return r
}

// keyed is a parcels channel that verifies with a credential, and with another one for
// connections of the channel that it serves.
type keyed struct{ parcels }

func (k keyed) SigningSecrets(name string, _ []string, credentials channel.Credentials) []string {
	if name == k.info.Name {
		return []string{credentials.Get("old_key"), credentials.Get("key")}
	}
	return []string{credentials.Get("reports_key")}
}

// asking is a parcels channel with messages that refer to their text.
type asking struct {
	parcels
	calls    int // number of calls to get the text
	optional bool
}

func (a asking) EnrichCall(_ *channel.Request, p channel.Part, answers []channel.Response, credentials channel.Credentials) *channel.APIRequest {
	if len(answers) == a.calls {
		return nil
	}
	call := credentials.NewRequest("GET", fmt.Sprintf("/%s/%d", p.Key, len(answers)), http.Header{"Authorization": {"Bearer " + credentials.Get("token")}}, nil)
	call.Optional = a.optional
	return &call
}

func (a asking) ParseEnriched(r *channel.Request, p channel.Part, answers []channel.Response) (channel.Event, error) {
	e, err := a.Parse(r, p)
	if err != nil {
		return e, err
	}
	var texts []string
	for _, answer := range answers {
		texts = append(texts, fmt.Sprintf("%d:%s", answer.Status, answer.Body[:min(len(answer.Body), 20)]))
	}
	e.Message.Text = strings.Join(texts, " ")
	return e, nil
}

// withParcels adds test channels to a house.
func withParcels(adapters ...channel.Adapter) func(*house) {
	return func(h *house) { h.adapters = append(slices.Clone(h.adapters), adapters...) }
}
