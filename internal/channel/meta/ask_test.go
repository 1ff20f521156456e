package meta_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
)

// sole returns the only part of a notification.
func sole(t *testing.T, a channel.Adapter, body string) (*channel.Request, channel.Part) {
	t.Helper()
	r := &channel.Request{Method: "POST", Header: http.Header{}, Body: []byte(body)}
	parts, err := a.Split(r)
	if err != nil || len(parts) != 1 {
		t.Fatalf("Split() = %+v, %v; want one part", parts, err)
	}
	return r, parts[0]
}

func businessBody(message string) string {
	return `{"object":"whatsapp_business_account","entry":[{"id":"1029","changes":[{"field":"messages","value":{
		"metadata":{"phone_number_id":"1065"},"messages":[` + message + `]}}]}]}`
}

func messengerBody(object, event string) string {
	return `{"object":"` + object + `","entry":[{"id":"1234","messaging":[` + event + `]}]}`
}

const (
	imageMessage = `{"from":"16505551234","id":"wamid.I","timestamp":"1764000000","type":"image",
		"image":{"id":"777","mime_type":"image/jpeg","sha256":"SfInY0gGKTsJlUWbwxC1k+FAD0FZHvzwfpvO0zX0GUI="}}`
	textEvent = `{"sender":{"id":"9001"},"recipient":{"id":"1234"},"timestamp":1764000000123,"message":{"mid":"m_1","text":"Hi"}}`
)

func bearer(token string) http.Header {
	return http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/json"}}
}

// TestLocate: the URL of a file is requested by its id, with the connection's token.
func TestLocate(t *testing.T) {
	credentials := map[string]string{"access_token": "t"}
	for _, tt := range []struct {
		name        string
		config      meta.Config
		credentials map[string]string
		id          string
		want        string // URL of the call; empty for none
	}{
		{"a file", meta.Config{}, credentials, "777", "https://graph.facebook.com/v25.0/777"},
		{"with proof", meta.Config{}, map[string]string{"access_token": "t", "app_secret": "s"}, "777",
			"https://graph.facebook.com/v25.0/777?appsecret_proof=" + hmacSHA256("t", "s")},
		{"elsewhere", meta.Config{APIURL: "http://127.0.0.1:9/proxy/"}, credentials, "777", "http://127.0.0.1:9/proxy/v25.0/777"},
		{"of another version", meta.Config{APIURL: "https://graph.example/v31.0"}, credentials, "777", "https://graph.example/v31.0/777"},
		{"of the connection's version", meta.Config{APIURL: "https://graph.example/v31.0"}, map[string]string{"access_token": "t", "api_version": "v24.0"}, "777", "https://graph.example/v24.0/777"},
		{"of a version that is none", meta.Config{}, map[string]string{"access_token": "t", "api_version": "../evil"}, "777", "https://graph.facebook.com/v25.0/777"},
		{"without a token", meta.Config{}, nil, "777", ""},
		{"an id that is none", meta.Config{}, credentials, "../me", ""},
	} {
		a := meta.NewBusiness(tt.config)
		got, why := a.Locate(channel.Attachment{Lookup: tt.id}, channel.ConnectionCredentials(channel.APIOf(a), tt.credentials))
		switch {
		case tt.want == "":
			if got != nil || why == "" {
				t.Errorf("%s: Locate() = %+v, %q, want a reason", tt.name, got, why)
			}
		case got == nil || got.Method != "GET" || got.URL != tt.want || !reflect.DeepEqual(got.Header, bearer("t")):
			t.Errorf("%s: Locate() = %+v, want a GET of %s", tt.name, got, tt.want)
		}
	}
}

func TestAsk(t *testing.T) {
	credentials := map[string]string{"access_token": "t"}
	for _, tt := range []struct {
		name        string
		asker       channel.Enricher
		body        string
		credentials map[string]string
		want        string // URL of the call; empty for none
	}{
		{"a name", meta.NewMessenger(meta.Config{}), messengerBody("page", textEvent), credentials, "https://graph.facebook.com/v25.0/9001?fields=first_name%2Clast_name"},
		{"a name, of the other object", meta.NewMessenger(meta.Config{}), messengerBody("instagram", textEvent), credentials, "https://graph.facebook.com/v25.0/9001?fields=name%2Cusername"},
		{"a name of whom the page wrote to", meta.NewMessenger(meta.Config{}),
			messengerBody("page", `{"sender":{"id":"1234"},"recipient":{"id":"9001"},"message":{"mid":"m","is_echo":true,"text":"x"}}`), credentials, ""},
		{"a name for a receipt", meta.NewMessenger(meta.Config{}), messengerBody("page", `{"sender":{"id":"9001"},"read":{"watermark":1764000000123}}`), credentials, ""},
		{"a name of an odd id", meta.NewMessenger(meta.Config{}), messengerBody("page", `{"sender":{"id":"me/accounts"},"message":{"mid":"m"}}`), credentials, ""},
	} {
		r, p := sole(t, tt.asker.(channel.Adapter), tt.body)
		got := tt.asker.EnrichCall(r, p, nil, channel.ConnectionCredentials(channel.APIOf(tt.asker.(channel.Adapter)), tt.credentials))
		if tt.want == "" {
			if got != nil {
				t.Errorf("%s: Ask() = %+v, want nothing", tt.name, got)
			}
			continue
		}
		if got == nil || got.Method != "GET" || got.URL != tt.want || !reflect.DeepEqual(got.Header, bearer("t")) {
			t.Errorf("%s: Ask() = %+v, want a GET of %s", tt.name, got, tt.want)
		}
		if again := tt.asker.EnrichCall(r, p, []channel.Response{{Status: 200}}, channel.ConnectionCredentials(channel.APIOf(tt.asker.(channel.Adapter)), tt.credentials)); again != nil {
			t.Errorf("%s: Ask() after an answer = %+v, want nothing", tt.name, again)
		}
	}
}

// TestFile reads the URL of a file, or the reason why it is unavailable.
func TestFile(t *testing.T) {
	const announced = "49f227634806293b0995459bc310b593e1400f41591efcf07e9bced335f41942"
	const confirmed = "cc8321d6375c494d043fdd0260f21bc0ec51dacc9f6abb7f909cdcd3041b78bf"
	a := meta.NewBusiness(meta.Config{})
	r, p := sole(t, a, businessBody(imageMessage))
	e, err := a.Parse(r, p)
	if err != nil || len(e.Message.Attachments) != 1 || e.Message.Attachments[0].Lookup != "777" {
		t.Fatalf("Parse() = %+v, %v; want one file to be asked for", e, err)
	}
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   channel.Attachment
	}{
		{"found", 200, `{"url":"https://lookaside.fbsbx.com/x","mime_type":"image/png","sha256":"` + confirmed + `","file_size":"9"}`,
			channel.Attachment{ContentType: "image/jpeg", URL: "https://lookaside.fbsbx.com/x", SHA256: confirmed}},
		{"found, without a digest", 200, `{"url":"https://lookaside.fbsbx.com/x"}`,
			channel.Attachment{ContentType: "image/jpeg", URL: "https://lookaside.fbsbx.com/x", SHA256: announced}},
		{"nowhere", 200, `{}`,
			channel.Attachment{ContentType: "image/jpeg", SHA256: announced, Error: "the file could not be had: the provider does not say where it is"}},
		{"no longer there", 400, `{"error":{"code":100,"message":"Object does not exist"}}`,
			channel.Attachment{ContentType: "image/jpeg", SHA256: announced, Error: "the file could not be had: the provider says: Object does not exist (100)"}},
		{"no token any more", 401, `{"error":{"code":190,"error_subcode":463,"message":"Session has expired"}}`,
			channel.Attachment{ContentType: "image/jpeg", SHA256: announced, Error: "the file could not be had: the provider refuses the connection's access token: it has expired or was withdrawn. An administrator must give the connection a new one (190/463)"}},
		{"unreadable", 404, `<html>`,
			channel.Attachment{ContentType: "image/jpeg", SHA256: announced, Error: "the file could not be had: the provider answered 404"}},
		{"no answer", 0, ``,
			channel.Attachment{ContentType: "image/jpeg", SHA256: announced, Error: "the file could not be had: the provider could not be reached"}},
	} {
		tt.want.Lookup = "777"
		if got := a.Located(e.Message.Attachments[0], channel.Response{Status: tt.status, Body: []byte(tt.body)}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: the file is %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestName(t *testing.T) {
	a := meta.NewMessenger(meta.Config{})
	r, p := sole(t, a, messengerBody("page", textEvent))
	for _, tt := range []struct {
		status     int
		body, want string
	}{
		{200, `{"first_name":"Ana","last_name":"L\u00f3pez","id":"9001"}`, "Ana López"},
		{200, `{"first_name":" Ana\n ","id":"9001"}`, "Ana"},
		{200, `{"name":"Ana L","username":"ana.l"}`, "Ana L"},
		{200, `{"username":"ana.l"}`, "ana.l"},
		{200, `{}`, ""},
		{200, `[`, ""},
		{400, `{"error":{"code":100},"first_name":"No"}`, ""},
		{0, ``, ""},
	} {
		e, err := a.ParseEnriched(r, p, []channel.Response{{Status: tt.status, Body: []byte(tt.body)}})
		if err != nil {
			t.Fatal(err)
		}
		if want := (channel.Party{ID: "9001", Name: tt.want}); e.Message.From != want || e.Message.Text != "Hi" {
			t.Errorf("%d %s: from %+v: %q, want %+v", tt.status, tt.body, e.Message.From, e.Message.Text, want)
		}
	}
}

func TestMediaRequest(t *testing.T) {
	at := channel.Attachment{URL: "https://lookaside.fbsbx.com/x"}
	hosts := []string{"lookaside.fbsbx.com", ".fbsbx.com", ".fbcdn.net", "graph.example"}
	credentials := channel.ConnectionCredentials(meta.NewBusiness(meta.Config{}).API(), map[string]string{"access_token": "t"})
	c := meta.Config{APIURL: "https://Graph.example/v25.0"}
	for _, tt := range []struct {
		name string
		got  channel.MediaRequest
		want channel.MediaRequest
	}{
		{"business", meta.NewBusiness(c).MediaRequest(at, credentials), channel.MediaRequest{URL: at.URL, Hosts: hosts, Header: http.Header{"Authorization": {"Bearer t"}}, HeaderHosts: []string{"lookaside.fbsbx.com", "graph.example"}}},
		{"business without a token", meta.NewBusiness(c).MediaRequest(at, channel.Credentials{}), channel.MediaRequest{URL: at.URL, Hosts: hosts}},
		{"messenger needs none", meta.NewMessenger(c).MediaRequest(at, credentials), channel.MediaRequest{URL: at.URL, Hosts: hosts}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: MediaRequest() = %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
}

// jsonEqual compares two JSON texts except for white space.
func jsonEqual(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	return reflect.DeepEqual(a, b)
}
