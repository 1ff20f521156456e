package sms

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func TestFiles(t *testing.T) {
	picture := channel.OutgoingFile{Name: "a.png", ContentType: "image/png", Size: 1 << 20, URL: "https://help.example/files/1?until=2&sig=3"}
	of := func(change func(f *channel.OutgoingFile)) channel.OutgoingFile {
		f := picture
		change(&f)
		return f
	}
	credentials := channel.ConnectionCredentials(New(Config{}).API(), map[string]string{"account_sid": "AC1", "auth_token": "token"})
	for _, tt := range []struct {
		name  string
		files []channel.OutgoingFile
		want  string // prefix of the refusal; empty for none
	}{
		{"none", nil, ""},
		{"pictures", slices.Repeat([]channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.Size = 1 << 19 })}, 10), ""},
		{"with a parameter", []channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.ContentType = "text/vcard; charset=utf-8" })}, ""},
		{"too many", slices.Repeat([]channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.Size = 1 })}, 11), "must have at most 10 files"},
		{"too large", slices.Repeat([]channel.OutgoingFile{picture}, 6), "must have at most 5 MB"},
		{"a program", []channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.ContentType = "application/x-msdownload" })}, "cannot be sent on this channel: carriers take"},
		{"of no type", []channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.ContentType = "" })}, "cannot be sent on this channel: carriers take"},
		{"here only", []channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.URL = "http://127.0.0.1:8080/files/1" })}, "files cannot be sent on this channel: the provider fetches"},
		{"without a link", []channel.OutgoingFile{of(func(f *channel.OutgoingFile) { f.URL = "" })}, "files cannot be sent on this channel: the provider fetches"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := New(Config{})
			m := &channel.Outgoing{From: "+14155550100", To: channel.Party{Phone: "+14155550111"}, Files: tt.files}
			err := a.Check(m, credentials)
			got := ""
			if p, ok := errors.AsType[*problem.Error](err); ok {
				if got = p.Message; len(p.Issues) > 0 {
					got = p.Issues[0].Message
				}
			}
			if got != "" && tt.want == "" || !strings.HasPrefix(got, tt.want) || err != nil && got == "" {
				t.Fatalf("got %q, %v, want %q", got, err, tt.want)
			}
			form, err := url.ParseQuery(string(a.SendCall(m, credentials).Body))
			if err != nil || len(form["MediaUrl"]) != len(tt.files) {
				t.Errorf("got %v, %v, want %d files", form, err, len(tt.files))
			}
		})
	}
}

// TestSearchWithFiles: a message with a file does not match the same text without one.
func TestSearchWithFiles(t *testing.T) {
	a := New(Config{})
	answer := channel.Response{Status: 200, Body: []byte(`{"messages":[
		{"sid":"SM1","direction":"outbound-api","from":"+14155550100","body":"See","num_media":"0"},
		{"sid":"SM2","direction":"outbound-api","from":"+14155550100","body":"See","num_media":"1"}]}`)}
	m := &channel.Outgoing{From: "+14155550100", To: channel.Party{Phone: "+14155550111"}, Text: "See", Files: []channel.OutgoingFile{{}}}
	ids, _, err := a.ReadSearchResponse(m, channel.Credentials{}, time.Now(), answer)
	if err != nil || !slices.Equal(ids, []string{"SM2"}) {
		t.Errorf("got %q, %v, want SM2", ids, err)
	}
}
