package channels

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// TestSteps checks that steps have only known values, and links of providers, and that the values of
// a connection are in them.
func TestSteps(t *testing.T) {
	p := &pages{Config: Config{BaseURL: "https://help.example.com", Connections: connection.Open(nil, nil, []channel.Adapter{email.NewJSON(email.Config{})})}}
	for _, g := range guides {
		if _, err := os.Stat(filepath.Join("../../../docs/channels", g.Doc)); g.Doc == "" || err != nil {
			t.Errorf("%s: the documentation %q: %v", g.Name, g.Doc, err)
		}
		links := 0
		for _, step := range g.steps(nil) {
			for _, part := range step {
				if strings.ContainsAny(part.Text, "{}") {
					t.Errorf("%s: %q has an unknown value", g.Name, part.Text)
				}
				if part.Link == "" {
					continue
				}
				links++
				if u, err := url.Parse(part.Link); err != nil || !strings.Contains(u.Host, ".") || u.Scheme != "https" {
					t.Errorf("%s: %q is no link", g.Name, part.Link)
				}
			}
		}
		if provider := g.Name != "email-raw" && g.Name != "email-smtp" && g.Name != "api"; links == 0 && provider {
			t.Errorf("%s: no link to the provider", g.Name)
		}
	}
	g := findGuide("email-json")
	var codes []string
	for _, step := range g.steps(p.values(g, &connection.Connection{ID: "c1", Channel: "email-json", Address: "help@example.com"}, "s3cret/1")) {
		for _, part := range step {
			if part.Code != "" {
				codes = append(codes, part.Code)
			}
		}
	}
	want := []string{"https://kickstand:s3cret%2F1@help.example.com/api/webhooks/inbound-email?c=c1", "help@example.com"}
	if !slices.Equal(codes, want) {
		t.Errorf("the values are %q, want %q", codes, want)
	}
}

// TestGuidesNameDeclaredCredentials checks that forms request only credentials that the
// adapter declares: it cannot read any other.
func TestGuidesNameDeclaredCredentials(t *testing.T) {
	apis := make(map[string]channel.API)
	for _, a := range []channel.Adapter{
		sms.New(sms.Config{}), voice.New(voice.Config{}), chat.New(chat.Config{}), api.New(), storefront.New(storefront.Config{}),
		meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{}),
		email.NewForm(email.Config{}), email.NewParsed(email.Config{}), email.NewJSON(email.Config{}), email.NewRaw(email.Config{}), email.NewMailbox(email.Config{}), email.NewDirect(email.Config{}), email.NewDelivery(email.Config{}),
	} {
		apis[a.Info().Name] = channel.APIOf(a)
	}
	for _, g := range guides {
		for _, in := range g.Credentials {
			if !slices.ContainsFunc(apis[g.Name].Credentials, func(c channel.Credential) bool { return c.Name == in.Name }) {
				t.Errorf("the guide to %s asks for %s, which the channel does not declare", g.Name, in.Name)
			}
		}
	}
}
