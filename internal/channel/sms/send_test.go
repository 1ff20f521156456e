package sms

import (
	"slices"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// TestReadSearch searches for a text among those sent to the number.
func TestReadSearch(t *testing.T) {
	a := New(Config{})
	m := &channel.Outgoing{From: "+14155550100", To: channel.Party{Phone: "+14155550111"}, Text: "It\u2019s OK"}
	for _, tt := range []struct {
		name, shown string
		want        bool
	}{
		{"as it is", "It\u2019s OK", true},
		{"with other quotation marks", "It's OK", true},
		{"of a trial account", "Sent from your Twilio trial account - It's OK", true},
		{"the end of another", "If you are late, it's OK", false},
		{"the end of another, in the same letters", "Well, It's OK", false},
		{"the beginning of another", "It's OK for us", false},
	} {
		answer := channel.Response{Status: 200, Body: []byte(`{"messages":[{"sid":"SM1","direction":"outbound-api","from":"+14155550100","body":"` + tt.shown + `"}]}`)}
		ids, _, err := a.ReadSearchResponse(m, channel.Credentials{}, time.Now(), answer)
		if err != nil || slices.Contains(ids, "SM1") != tt.want {
			t.Errorf("%s: found %q, error %v; want found: %t", tt.name, ids, err, tt.want)
		}
	}
}
