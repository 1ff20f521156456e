package meta_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
)

func sign(r *channel.Request, secret string, _ time.Time) {
	r.Header.Set(meta.SignatureHeader, meta.Sign(r.Body, secret))
}

func TestBusinessConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: meta.NewBusiness(meta.Config{}), Dir: "testdata/business", Sign: sign})
}

func TestMessengerConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{Adapter: meta.NewMessenger(meta.Config{}), Dir: "testdata/messenger", Sign: sign})
}

// hmacSHA256 is the signature from the provider's documentation, implemented independently.
func hmacSHA256(text, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestVerify(t *testing.T) {
	const body, secret = `{"object":"page","text":"\u00fc"}`, "app secret"
	good := hmacSHA256(body, secret)
	for _, tt := range []struct {
		name, header string
		want         bool
	}{
		{"as documented", "sha256=" + good, true},
		{"hex in capitals", "sha256=" + strings.ToUpper(good), true},
		{"without its name", good, false},
		{"of the older header", "sha1=" + good[:40], false},
		{"cut short", "sha256=" + good[:62], false},
		{"no hex", "sha256=" + strings.Repeat("z", 64), false},
		{"of the body as it reads", "sha256=" + hmacSHA256(`{"object":"page","text":"ü"}`, secret), false},
		{"none", "", false},
	} {
		r := &channel.Request{Header: http.Header{"X-Hub-Signature-256": {tt.header}}, Body: []byte(body)}
		for _, a := range []channel.Adapter{meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{})} {
			if got := a.Verify(r, secret); got != tt.want {
				t.Errorf("%s: %s: Verify() = %t, want %t", a.Info().Name, tt.name, got, tt.want)
			}
		}
	}
}

func TestHandshake(t *testing.T) {
	for _, tt := range []struct {
		query, token, challenge string
		ok                      bool
	}{
		{"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=meat%26drink", "meat&drink", "1158201444", true},
		{"hub%2Emode=subscribe&hub.challenge=%3Cb%3E&hub.verify_token=t", "t", "<b>", true},
		{"hub.mode=subscribe", "", "", true},
		{"hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=t", "", "", false},
		{"hub_mode=subscribe&hub_challenge=1&hub_verify_token=t", "", "", false},
		{"", "", "", false},
	} {
		r := &channel.Request{Method: "GET", URL: "https://help.example/api/webhooks/business-messaging?" + tt.query}
		token, challenge, ok := meta.NewBusiness(meta.Config{}).Handshake(r)
		if token != tt.token || challenge != tt.challenge || ok != tt.ok {
			t.Errorf("Handshake(%q) = %q, %q, %t; want %q, %q, %t", tt.query, token, challenge, ok, tt.token, tt.challenge, tt.ok)
		}
	}
}

func TestKeys(t *testing.T) {
	a := meta.NewMessenger(meta.Config{})
	secrets := make([]string, 1, 4)
	secrets[0] = "one"
	if got, want := a.SigningSecrets("social-messenger", secrets, channel.ConnectionCredentials(a.API(), map[string]string{"app_secret": "two"})), []string{"one", "two"}; !slices.Equal(got, want) {
		t.Errorf("Keys() = %q, want %q", got, want)
	}
	if got, want := a.SigningSecrets("social-messenger", secrets, channel.Credentials{}), []string{"one"}; !slices.Equal(got, want) {
		t.Errorf("Keys() without an app's secret = %q, want %q", got, want)
	}
}

func TestNormalizeAddress(t *testing.T) {
	for _, tt := range []struct {
		raw, want string
		ok        bool
	}{
		{" 106540352242922 ", "106540352242922", true},
		{"+14155550100", "", false}, {"my page", "", false}, {"", "", false}, {strings.Repeat("1", 41), "", false},
	} {
		got, err := meta.NewBusiness(meta.Config{}).NormalizeAddress(tt.raw)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("FormAddress(%q) = %q, %v; want %q, ok: %t", tt.raw, got, err, tt.want, tt.ok)
		}
	}
}

// FuzzNotification: any body is at most refused, and the results can be stored and parsed
// again.
func FuzzNotification(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		f.Add(channeltest.Load(f, file).Body)
	}
	adapters := []channel.Adapter{meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{})}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, a := range adapters {
			r := &channel.Request{Method: "POST", URL: "https://a.example/", Header: http.Header{}, Body: body, Received: channeltest.Received()}
			sign(r, "key", r.Received)
			if !a.Verify(r, "key") || a.Verify(r, "other") {
				t.Error("the signature tells nothing")
			}
			texts, err := a.Addresses(r)
			if err != nil {
				t.Errorf("Addresses() error = %v for JSON", err)
			}
			parts, err := a.Split(r)
			if err != nil && !errors.Is(err, channel.ErrUnreadable) {
				t.Errorf("Split() error = %v, want ErrUnreadable", err)
			}
			for _, p := range parts {
				texts = append(texts, p.Key, p.Sender, p.Address, p.Account, p.Kind)
				if p.Skip {
					continue
				}
				e, err := a.Parse(r, p)
				if err != nil {
					if !errors.Is(err, channel.ErrUnreadable) {
						t.Errorf("Parse() error = %v, want ErrUnreadable", err)
					}
					continue
				}
				switch {
				case e.Message != nil:
					m := e.Message
					if m.ThreadKey == "" || m.Text == "" && len(m.Attachments) == 0 {
						t.Errorf("a message without a thread or with nothing to read: %+v", m)
					}
					texts = append(texts, m.ExternalID, m.ThreadKey, m.From.Name, m.From.ID, m.From.Phone, m.Text)
					texts = append(texts, m.OtherKeys...)
					for name, value := range m.Metadata {
						texts = append(texts, name, value)
					}
					for _, at := range m.Attachments {
						texts = append(texts, at.Name, at.URL, at.ContentType, at.SHA256, at.Error)
					}
				case e.Receipt != nil:
					texts = append(append(texts, e.Receipt.ExternalIDs...), e.Receipt.Error, e.Receipt.Recipient, e.Receipt.ThreadKey)
				case e.Annotation != nil:
					texts = append(texts, e.Annotation.ExternalID, e.Annotation.Text, e.Annotation.By.Name)
				case e.IdentityChange != nil:
					if e.IdentityChange.FromKey == "" || len(e.IdentityChange.ToKeys) == 0 {
						t.Errorf("a change from or to nobody: %+v", e.IdentityChange)
					}
					texts = append(append(texts, e.IdentityChange.ToKeys...), e.IdentityChange.FromKey)
				case e.ConnectionEvent != nil:
					texts = append(texts, e.ConnectionEvent.Text)
				default:
					t.Errorf("nothing comes of %q", p.Key)
				}
			}
			for _, s := range texts {
				if err := channeltest.Storable(s); err != nil {
					t.Errorf("%q: %v", s, err)
				}
			}
		}
	})
}

// TestLarge: an unverified body costs no more time than reading it, and a verified one is not
// split without limit.
func TestLarge(t *testing.T) {
	many := func(object, item string, n int) *channel.Request {
		var b strings.Builder
		b.WriteString(`{"object":"` + object + `","entry":[`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(item, "#", strconv.Itoa(i)))
		}
		return &channel.Request{Header: http.Header{}, Body: []byte(b.String() + "]}")}
	}
	const change = `{"id":"7","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"#"}}}]}`
	for _, tt := range []struct {
		adapter channel.Adapter
		r       *channel.Request
		want    int
	}{
		{meta.NewMessenger(meta.Config{}), many("page", `{"id":"#"}`, 200_000), 1000},
		{meta.NewBusiness(meta.Config{}), many("whatsapp_business_account", `{"id":"#"}`, 200_000), 1000},
		{meta.NewBusiness(meta.Config{}), many("whatsapp_business_account", change, 30_000), 1001},
	} {
		got, err := tt.adapter.Addresses(tt.r)
		if err != nil || len(got) != tt.want {
			t.Errorf("%s: got %d addresses, %v, want %d", tt.adapter.Info().Name, len(got), err, tt.want)
		}
	}
	for _, a := range []channel.Adapter{meta.NewMessenger(meta.Config{}), meta.NewBusiness(meta.Config{})} {
		object := "page"
		if a.Info().Name == "business-messaging" {
			object = "whatsapp_business_account"
		}
		if got, err := a.Split(many(object, "#", 10_000)); err != nil || len(got) != 10_000 {
			t.Errorf("%s: got %d parts, %v", a.Info().Name, len(got), err)
		}
		if got, err := a.Split(many(object, "#", 10_001)); !errors.Is(err, channel.ErrUnreadable) {
			t.Errorf("%s: one more: got %d parts, %v", a.Info().Name, len(got), err)
		}
	}
}
