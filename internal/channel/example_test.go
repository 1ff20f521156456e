package channel_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// pager is the adapter of an invented provider, which posts one text per request as JSON and
// signs the body in X-Signature.
type pager struct{}

type page struct {
	ID   string `json:"id"`
	From string `json:"from"`
	To   string `json:"to"`
	Text string `json:"text"`
}

func decode(r *channel.Request) (p page, err error) {
	if err = json.Unmarshal(r.Body, &p); err != nil {
		return p, fmt.Errorf("%w: %v", channel.ErrUnreadable, err)
	}
	return p, nil
}

func (pager) Info() channel.Info {
	return channel.Info{Name: "pager", TicketChannel: "sms", Path: "/api/webhooks/pager", MaxBody: 64 << 10}
}

func (pager) Addresses(r *channel.Request) ([]string, error) {
	p, err := decode(r)
	if err != nil {
		return nil, err
	}
	return []string{p.To}, nil
}

func (pager) Verify(r *channel.Request, secret string) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(r.Body)
	got, err := hex.DecodeString(r.Header.Get("X-Signature"))
	return err == nil && hmac.Equal(got, mac.Sum(nil))
}

func (pager) Split(r *channel.Request) ([]channel.Part, error) {
	p, err := decode(r)
	if err != nil {
		return nil, err
	}
	return []channel.Part{{Key: p.ID, Sender: p.From, Address: p.To, Kind: "text"}}, nil
}

func (pager) Parse(r *channel.Request, _ channel.Part) (channel.Event, error) {
	p, err := decode(r)
	if err != nil {
		return channel.Event{}, err
	}
	return channel.Event{Message: &channel.Message{
		ExternalID: p.ID, ThreadKey: p.From, From: channel.Party{Phone: p.From}, Text: p.Text,
	}}, nil
}

// An adapter turns a request into events in four steps. Package inbound calls them in this order,
// and stores the parts between Split and Parse.
func ExampleAdapter() {
	var a channel.Adapter = pager{}
	body := []byte(`{"id": "p1", "from": "+436605550101", "to": "+4319280000", "text": "The lock is stuck"}`)
	mac := hmac.New(sha256.New, []byte("a shared secret"))
	mac.Write(body)
	r := &channel.Request{
		Method: http.MethodPost, URL: "https://help.example.com/api/webhooks/pager", Body: body,
		Header:   http.Header{"X-Signature": {hex.EncodeToString(mac.Sum(nil))}},
		Received: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	}

	addresses, err := a.Addresses(r) // unverified: they select the secrets to try
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("for", addresses)
	fmt.Println("verified:", a.Verify(r, "another secret"), a.Verify(r, "a shared secret"))

	parts, err := a.Split(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range parts {
		e, err := a.Parse(r, p)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s in lane %s: %s\n", p.Key, p.Sender, e.Message.Text)
	}
	// Output:
	// for [+4319280000]
	// verified: false true
	// p1 in lane +436605550101: The lock is stuck
}
