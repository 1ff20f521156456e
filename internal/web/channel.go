package web

import "github.com/kickstand-dev/kickstand/internal/desk"

// Channels lists the channels of tickets with their labels, in display order.
var Channels = [...]Option{
	{"email", "E-mail"}, {"sms", "SMS"}, {"business_messaging", "Business messaging"}, {"social_messenger", "Social messenger"},
	{"voice", "Voice"}, {"chat", "Team chat"}, {"storefront", "Storefront"}, {"marketplace", "Marketplace"}, {"payments", "Payments"},
	{desk.ChannelAPI, "API"},
}

// ChannelLabel returns the label of a channel.
func ChannelLabel(name string) string {
	for _, c := range Channels {
		if c.Value == name {
			return c.Label
		}
	}
	return name
}
