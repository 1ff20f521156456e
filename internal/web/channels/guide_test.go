package channels

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
)

// TestGuidesNameDeclaredCredentials checks that forms request only credentials that the
// adapter declares: it cannot read any other.
func TestGuidesNameDeclaredCredentials(t *testing.T) {
	apis := make(map[string]channel.API)
	for _, a := range []channel.Adapter{
		sms.New(sms.Config{}), voice.New(voice.Config{}), chat.New(chat.Config{}), storefront.New(storefront.Config{}),
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
