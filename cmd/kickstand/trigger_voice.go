package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/voice"
)

// demoTelephone is the demo's telephone number.
const demoTelephone = "+12085550100"

func voiceTrigger() trigger {
	return trigger{
		name: "voice", secret: "voice-secret",
		events: []string{
			"transcription", "calling", "ringing", "connected", "hold", "hangup", "missed", "voicemail", "voicemail_uploaded",
			"recording", "sms", "sms-sent", "sms-delivered", "sms-failed",
		},
		request: (*triggerCmd).voice,
	}
}

// voice builds a request with a token as its body, as the provider sends it. Each event
// belongs to a call of its own, in the right state.
func (t *triggerCmd) voice(s triggerRequest) (*http.Request, error) {
	now := time.Now()
	from, to := firstNonEmpty(t.From, demoCaller), firstNonEmpty(t.To, demoTelephone)
	body := voiceCall(s.event, from, to, t.Text, now)
	switch s.event {
	case "sms":
		body = voiceText(from, to, firstNonEmpty(t.Text, "Is there a scooter at the station?"), now)
	case "sms-sent":
		body = voiceText(from, to, firstNonEmpty(t.Text, "There are three."), now)
		body["direction"], body["from_number"], body["to_number"], body["message_status"] = "outbound", to, []string{from}, "success"
	case "sms-delivered", "sms-failed":
		// --text is the provider's id of the SMS.
		body = voiceText(to, from, "", now)
		body["id"], body["direction"], body["target"], body["message_status"] = firstNonEmpty(t.Text, fmt.Sprint(voiceID())), "outbound", voiceTarget(to), "success"
		if s.event == "sms-failed" {
			body["message_status"], body["message_delivery_result"] = "failed", "invalid_destination"
		}
	}
	event, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return s.post(voice.New(voice.Config{}).Info().Path, "application/jwt", voice.SignJWT(event, s.secret))
}

// voiceID returns an id like the provider's: too large for a float to represent exactly.
func voiceID() int64 { return 1<<52 + rand.Int64N(1<<52) }

func voiceTarget(number string) map[string]any {
	return map[string]any{"id": 11, "type": "department", "name": "Support", "phone": number}
}

func voiceCall(state, from, to, text string, now time.Time) map[string]any {
	began := now.Add(-45 * time.Second)
	call := map[string]any{
		"call_id": voiceID(), "state": state, "direction": "inbound", "event_timestamp": now.UnixMilli(),
		"target": voiceTarget(to), "internal_number": to,
		"contact": map[string]any{"id": 22, "type": "local", "name": "Ana", "phone": from}, "external_number": from,
		"date_started": began.UnixMilli(), "date_connected": nil, "date_ended": nil, "duration": 0, "talk_time": 0,
		"entry_point_call_id": nil, "master_call_id": nil, "operator_call_id": nil,
		"voicemail_link": nil, "voicemail_recording_id": nil, "transcription_text": nil, "recording_details": []any{},
	}
	file := func(kind string) string {
		return fmt.Sprintf("https://dialpad.com/blob/%s/%d.mp3", kind, call["call_id"])
	}
	switch state {
	case "calling":
		call["direction"] = "outbound"
	case "connected", "hold", "recording", "hangup":
		call["date_connected"] = began.Add(10 * time.Second).UnixMilli()
	}
	switch state {
	case "hangup", "missed", "voicemail_uploaded", "transcription", "recording":
		call["date_ended"] = now.UnixMilli()
	}
	switch state {
	case "hangup":
		call["talk_time"] = 35_000
	case "recording":
		call["recording_details"] = []any{map[string]any{"id": fmt.Sprint(voiceID()), "url": file("callrecording"), "duration": 35_000, "recording_type": "callrecording"}}
	case "voicemail":
		call["voicemail_link"] = file("voicemail")
	case "transcription":
		call["transcription_text"] = firstNonEmpty(text, "Hello, this is Ana. The scooter at the station does not unlock. Please call me back.")
		fallthrough
	case "voicemail_uploaded":
		call["voicemail_link"], call["voicemail_recording_id"] = file("voicemail"), voiceID()
	}
	return call
}

func voiceText(from, to, text string, now time.Time) map[string]any {
	return map[string]any{
		"id": voiceID(), "created_date": now.UnixMilli(), "direction": "inbound", "target": voiceTarget(to),
		"contact":     map[string]any{"id": 22, "name": "Ana", "phone_number": from},
		"from_number": from, "to_number": []string{to}, "text": text, "mms": false, "mms_url": nil, "message_status": "pending",
	}
}
