package voice

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// state returns the provider's state of the call.
func (o object) state() string { return strings.ToLower(o.text("state")) }

// The provider's voicemail states. The first only means that the caller reached the mailbox.
const (
	stateVoicemail     = "voicemail"
	stateUploaded      = "voicemail_uploaded"
	stateTranscription = "transcription"
)

// call returns the event for a call's state change.
func (o object) call() (channel.Event, error) {
	id, state := o.text("call_id"), o.state()
	if id == "" || state == "" {
		return channel.Event{}, fmt.Errorf("%w: an event of a call needs call_id and state", channel.ErrUnreadable)
	}
	c := &channel.PhoneCall{
		State:      channel.IndexKey(state),
		At:         o.time("event_timestamp", "timestamp"),
		Inbound:    !o.outbound() && state != "calling",
		StartedAt:  o.time("date_started", "started_at"),
		AnsweredAt: o.time("date_connected", "answered_at"),
		EndedAt:    o.time("date_ended", "ended_at"),
	}
	for _, name := range []string{"call_id", "master_call_id", "entry_point_call_id", "operator_call_id"} {
		if leg := channel.IndexKey(o.text(name)); leg != "" && leg != "0" && !slices.Contains(c.IDs, leg) {
			c.IDs = append(c.IDs, leg)
		}
	}
	c.Contact, _ = o.contact()
	target := o.object("target")
	c.Target = channel.Party{
		Name: target.text("name"), ID: channel.IndexKey(target.text("id")),
		Phone: cmp.Or(number(o.text("internal_number")), number(target.text("phone", "phone_number"))),
	}
	c.Duration = o.duration(c.EndedAt.Sub(c.StartedAt))
	recording := o.text("voicemail_recording_id")
	c.Voicemail = state == stateUploaded || recording != "" && recording != "0"
	if c.Voicemail || state == stateTranscription {
		c.Transcription = o.transcription()
	}
	c.Audio, c.Recordings = o.recordings(state)
	return channel.Event{Call: c}, nil
}

// contact returns the customer and their key.
func (o object) contact() (channel.Party, string) {
	contact := o.object("contact")
	raw := o.text("external_number")
	if raw == "" || !isWithheld(raw) && number(raw) == "" {
		raw = cmp.Or(contact.text("phone", "phone_number"), raw)
	}
	p, thread := party(raw)
	p.Name = contact.text("name")
	if isWithheld(p.Name) || !strings.ContainsFunc(p.Name, unicode.IsLetter) {
		p.Name = "" // the number again, or a placeholder
	}
	return p, thread
}

// duration returns the talk time. talk_time is in milliseconds; the unit of duration varies, so
// the interpretation nearer to the wall time is used.
func (o object) duration(wall time.Duration) time.Duration {
	if ms := o.number("talk_time"); ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	n := o.number("duration")
	if n == 0 {
		return 0
	}
	_, vendor := o["date_started"]
	if !o.time("date_started", "started_at").IsZero() && !o.time("date_ended", "ended_at").IsZero() && wall > 0 {
		seconds := wall.Seconds()
		vendor = math.Abs(n/1000-seconds) < math.Abs(n-seconds)
	}
	if vendor {
		return time.Duration(n * float64(time.Millisecond))
	}
	return time.Duration(min(n, 1e8) * float64(time.Second))
}

// maxText bounds a transcription, in bytes.
const maxText = 100 << 10

func (o object) transcription() string {
	text := o.text("transcription_text", "transcription", "transcript")
	if text == "" {
		text = o.object("transcription").text("text")
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// recordings returns the files of the voicemail and of the conversation.
func (o object) recordings(state string) (left, spoken []channel.Attachment) {
	add := func(list *[]channel.Attachment, name, raw string) {
		file, ok := file(name, raw)
		if ok && !slices.ContainsFunc(*list, func(a channel.Attachment) bool { return a.URL == file.URL }) {
			*list = append(*list, file)
		}
	}
	for _, name := range []string{"voicemail_link", "voicemail_url"} {
		add(&left, "voicemail", o.text(name))
	}
	// A file without a type is classified by the state.
	voicemail := state == stateVoicemail || state == stateUploaded || state == stateTranscription
	for _, v := range o.list("recording_details") {
		m, _ := v.(map[string]any)
		detail := object(m)
		kind := strings.ToLower(detail.text("recording_type", "type"))
		switch {
		case strings.Contains(kind, "voicemail"), kind == "" && voicemail:
			add(&left, "voicemail", detail.text("url"))
		default:
			add(&spoken, "recording", detail.text("url"))
		}
	}
	for _, name := range []string{"recording_url", "recording_link", "recording_urls"} {
		for _, link := range o.ends(name) {
			if voicemail {
				add(&left, "voicemail", link)
			} else {
				add(&spoken, "recording", link)
			}
		}
	}
	return left, spoken
}

// file returns a recording to be downloaded. The core checks its URL.
func file(name, raw string) (channel.Attachment, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || len(raw) > 4096 {
		return channel.Attachment{}, false
	}
	ext, contentType := strings.ToLower(path.Ext(u.Path)), "audio/mpeg"
	switch ext {
	case ".wav":
		contentType = "audio/wav"
	case ".ogg", ".oga":
		contentType = "audio/ogg"
	case ".m4a":
		contentType = "audio/mp4"
	default:
		ext = ".mp3" // the provider's format, despite the URL's extension
	}
	return channel.Attachment{Name: name + ext, ContentType: contentType, URL: raw}, true
}
