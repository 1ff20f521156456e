package main

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel/sms"
)

func smsTrigger() trigger {
	return trigger{
		name: "sms", secret: "sms-secret", events: []string{"message", "media", "stop", "delivered", "failed"},
		request: (*triggerCmd).sms,
	}
}

// sms builds an SMS, or the receipt of one with the provider's id --text.
func (t *triggerCmd) sms(s triggerRequest) (*http.Request, error) {
	sid := "SM" + randomHex(16)
	if s.event == "delivered" || s.event == "failed" {
		sid = firstNonEmpty(t.Text, sid)
	}
	form := url.Values{
		"MessageSid": {sid}, "SmsSid": {sid}, "AccountSid": {"AC" + strings.Repeat("0", 32)},
		"From": {firstNonEmpty(t.From, demoCaller)}, "To": {firstNonEmpty(t.To, demoNumber)},
	}
	switch s.event {
	case "delivered", "failed":
		form.Set("MessageStatus", s.event)
		form.Set("SmsStatus", s.event)
		if s.event == "failed" {
			form.Set("ErrorCode", "30003")
		}
	default:
		form.Set("Body", firstNonEmpty(t.Text, "Hello, the scooter at the station does not unlock."))
		form.Set("NumSegments", "1")
		form.Set("NumMedia", "0")
		if s.event == "stop" {
			form.Set("Body", firstNonEmpty(t.Text, "STOP"))
			form.Set("OptOutType", "STOP")
		}
		if s.event == "media" {
			form.Set("NumMedia", "1")
			form.Set("MediaUrl0", "https://api.twilio.com/2010-04-01/Accounts/"+form.Get("AccountSid")+"/Messages/"+sid+"/Media/ME"+randomHex(16))
			form.Set("MediaContentType0", "image/jpeg")
		}
	}
	const path = "/api/webhooks/sms"
	req, err := s.post(path, "application/x-www-form-urlencoded", []byte(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Sms-Signature", sms.Sign(s.base+path, form, s.secret))
	return req, nil
}
