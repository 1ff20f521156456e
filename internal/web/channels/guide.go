package channels

import "github.com/kickstand-dev/kickstand/internal/connection"

// guide describes how to connect a channel: the steps at the provider, and the fields
// here. docs/channels has the details.
type guide struct {
	Name     string // of the adapter
	Title    string
	Icon     string
	Provider string // the companies
	Text     string // a sentence
	Steps    []string
	Doc      string // the page in docs/channels

	Address input
	Secret  input // Label is empty if there is no secret
	// Made: a secret is generated for the provider if none is entered.
	Made        bool
	Credentials []input
	Settings    []input
	// Named: the provider must post to the endpoint with the connection's id.
	Named bool
}

// input is a field of the form.
type input struct {
	Name        string
	Label       string
	Help        string
	Placeholder string
	Required    bool
	Long        bool // several lines
	Choices     []string
}

// Settings of several channels.
var (
	autoAnswer = input{Name: "auto_reply", Label: "Automatic answer", Long: true,
		Help: "Sent once for each new ticket that a person begins. Empty: none."}
	smtpURL = input{Name: "smtp_url", Label: "Mail server", Placeholder: "smtps://user:password@mail.example.com",
		Help: "By which replies leave. Without it they leave by the deployment's."}
	deliveryKey = input{Name: "delivery_api_key", Label: "Key of a delivery provider", Placeholder: "re_…",
		Help: "Replies leave by its API where there is no mail server of the connection's own."}
	deliverySecret = input{Name: "delivery_secret", Label: "Signing secret of the delivery provider", Placeholder: "whsec_…",
		Help: "What its reports about replies are signed with."}
	mailAddress = input{Label: "Mail address", Placeholder: "help@example.com", Help: "To which customers write. A plus-tag is ignored."}
	verifyToken = input{Name: "verify_token", Label: "Verify token", Help: "Any words of yours. The provider presents them when the callback URL is set up."}
	appSecret   = input{Name: "app_secret", Label: "App secret for calls", Help: "If the app demands a proof of it with each call."}
	apiVersion  = input{Name: "api_version", Label: "Version of the API", Placeholder: "v25.0"}
)

// guides lists the channels that an organization can connect, most common first.
var guides = []guide{{
	Name: "email-raw", Title: "E-mail from a converter", Icon: "channel-email", Provider: "CloudMailin, Forward Email, any converter of mail to HTTP", Doc: "email-raw.md",
	Text:  "Mail that something in front of Kickstand receives by SMTP and posts here, message by message.",
	Steps: []string{"Have the converter post each message, with its envelope, to the address below.", "Give it the secret: as a signing key, a bearer token, or the password of Basic credentials."}, Made: true,
	Address: mailAddress, Secret: input{Label: "Secret", Help: "Empty: one is made and shown once."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer},
}, {
	Name: "email-form", Title: "E-mail by Mailgun", Icon: "channel-email", Provider: "Mailgun routes, and what posts like them", Doc: "email-form.md",
	Text: "Mail that Mailgun receives for your domain.",
	Steps: []string{"Point the domain's MX records at the provider.",
		"Make a route: match recipient your address, forward to the address below with ?format=mime at its end.",
		"Copy the account's HTTP webhook signing key."},
	Address: mailAddress, Secret: input{Label: "HTTP webhook signing key", Required: true},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer},
}, {
	Name: "email-parse", Title: "E-mail by SendGrid", Icon: "channel-email", Provider: "SendGrid Inbound Parse", Doc: "email-parse.md",
	Text: "Mail that SendGrid receives for a host of yours.",
	Steps: []string{"Point the MX records of a host such as parse.example.com at the provider.",
		"Settings, Inbound Parse: add the host with the address below, and tick POST the raw, full MIME message.",
		"Make a security policy with a signature, attach it to the host, and copy its public key."},
	Address: mailAddress, Secret: input{Label: "Public key of the security policy", Required: true, Long: true, Help: "Base64 or PEM."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer},
}, {
	Name: "email-json", Title: "E-mail by Postmark", Icon: "channel-email", Provider: "Postmark's inbound stream", Doc: "email-json.md",
	Text: "Mail that Postmark receives for you.",
	Steps: []string{"Server, inbound stream, Settings, Webhook: the address below with anything:TOKEN@ before its host, where TOKEN is the secret.",
		"Tick Include raw email content.", "Forward your mailbox to the stream's address, or point MX records at it."}, Made: true,
	Address: mailAddress, Secret: input{Label: "Token", Help: "Empty: one is made and shown once."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer},
}, {
	Name: "email-delivery", Title: "E-mail by Resend", Icon: "channel-email", Provider: "Resend", Doc: "email-delivery.md",
	Text: "Mail that Resend receives, and replies that leave by it.",
	Steps: []string{"Verify the domain, and make an API key with full access.",
		"Webhooks, Add: the events email.* and the address below.", "Copy the signing secret."},
	Address: mailAddress, Secret: input{Label: "Signing secret", Required: true, Placeholder: "whsec_…"},
	Credentials: []input{{Name: "delivery_api_key", Label: "API key", Placeholder: "re_…", Help: "Fetches mail and sends replies."}, smtpURL}, Settings: []input{autoAnswer},
}, {
	Name: "sms", Title: "SMS", Icon: "channel-sms", Provider: "Twilio", Doc: "sms.md",
	Text: "Texts to your numbers, and replies as texts.",
	Steps: []string{"Set the number's incoming-message URL, method POST, to the address below.",
		"Copy the account's auth token: it signs what is posted.", "For replies and pictures, add the account SID with the auth token or an API key."},
	Address: input{Label: "Number", Placeholder: "+14155550100", Help: "With the country's code. Or the SID of a messaging service."},
	Secret:  input{Label: "Auth token", Required: true},
	Credentials: []input{{Name: "account_sid", Label: "Account SID", Placeholder: "AC…", Help: "For replies and pictures."},
		{Name: "auth_token", Label: "Auth token for calls", Help: "Or an API key with its secret."},
		{Name: "api_key", Label: "API key"}, {Name: "api_secret", Label: "API key's secret"},
		{Name: "messaging_service_sid", Label: "Messaging service", Help: "Has the service choose the sender."}},
	Settings: []input{autoAnswer},
}, {
	Name: "business-messaging", Title: "WhatsApp", Icon: "channel-business-messaging", Provider: "WhatsApp Cloud API", Doc: "business-messaging.md",
	Text: "Messages to your WhatsApp numbers. Replies may be written for 24 hours after the customer last wrote.",
	Steps: []string{"In Meta's App Dashboard make an app of the type Business and add WhatsApp; API Setup shows the phone number ID.",
		"App settings, Basic has the app secret.", "In Business Settings make a system user with the app and the account, and a token with whatsapp_business_messaging.",
		"When it is connected here: WhatsApp, Configuration, with the address below and your verify token. Subscribe to the field messages."},
	Address: input{Label: "Phone number ID", Placeholder: "106540352242922", Help: "The id, not the number. The id of the account connects whatever number of it is not connected itself."},
	Secret:  input{Label: "App secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Access token", Placeholder: "EAAG…", Help: "For files and replies."}, verifyToken, appSecret, apiVersion,
		{Name: "phone_number_id", Label: "Number that sends", Help: "Where the address is the account."}},
	Settings: []input{autoAnswer},
}, {
	Name: "social-messenger", Title: "Messenger", Icon: "channel-social-messenger", Provider: "Messenger Platform", Doc: "social-messenger.md",
	Text: "Messages to your page. Replies may be written for 24 hours after the customer last wrote.",
	Steps: []string{"In Meta's App Dashboard make an app of the type Business and add Messenger; App settings, Basic has the app secret.",
		"Messenger, API Setup: connect the page and generate its page access token with pages_messaging.",
		"When it is connected here: Webhooks, with the address below and your verify token. Subscribe the page to messages, messaging_postbacks, message_deliveries, message_reads and message_echoes."},
	Address: input{Label: "Page ID", Placeholder: "107520255634123"}, Secret: input{Label: "App secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Page access token", Placeholder: "EAAG…", Help: "For names and replies."}, verifyToken, appSecret,
		{Name: "human_agent", Label: "Seven days for replies", Choices: []string{"", "true"}, Help: "true if the provider has given the app that permission."}, apiVersion},
	Settings: []input{autoAnswer},
}, {
	Name: "voice", Title: "Telephone", Icon: "channel-voice", Provider: "Dialpad", Doc: "voice.md",
	Text: "Voicemails with their recordings and transcriptions, and texts. Replies leave as texts.",
	Steps: []string{"Make an API key with the scopes recordings_export and message_content_export.",
		"Make a webhook at the provider with the address below and the secret, and subscribe it to the call states and to texts."}, Made: true,
	Address: input{Label: "Number", Placeholder: "+12085550100", Help: "Or the id of a department."}, Secret: input{Label: "Secret of the webhook", Help: "Empty: one is made and shown once."},
	Credentials: []input{{Name: "api_token", Label: "API key", Help: "For recordings and replies."},
		{Name: "user_id", Label: "User who sends texts"}, {Name: "sender_group_id", Label: "Or group that sends texts"},
		{Name: "sender_group_type", Label: "Kind of that group", Choices: []string{"", "office", "department", "callcenter"}}},
	Settings: []input{{Name: "missed_calls", Label: "Missed calls", Choices: []string{"", "ticket"}, Help: "ticket: a call that nobody answered makes a ticket."}},
}, {
	Name: "chat", Title: "Team chat", Icon: "channel-chat", Provider: "Slack", Doc: "chat.md", Named: true,
	Text: "Threads in channels that you share with customers. Replies go into the thread.",
	Steps: []string{"Make an app from scratch in your workspace, give its bot the scopes that the documentation lists, and install it.",
		"Copy the bot user OAuth token, and the signing secret under Basic Information.",
		"When it is connected here: Event Subscriptions, with the address that is then shown. Subscribe to the bot events, and invite the app to the channels."},
	Address:     input{Label: "Workspace", Placeholder: "T012AB3C4", Help: "Its id, which begins with T. It is in the address of Slack in a browser."},
	Secret:      input{Label: "Signing secret", Required: true},
	Credentials: []input{{Name: "bot_token", Label: "Bot user OAuth token", Placeholder: "xoxb-…", Help: "For names, files and replies."}},
	Settings:    []input{{Name: "channels", Label: "Channels", Placeholder: "C024BE91L,C024BE92M", Help: "Ids with commas. Empty: all that the app is in."}, autoAnswer},
}, {
	Name: "storefront", Title: "Shop", Icon: "channel-storefront", Provider: "Shopify", Doc: "storefront.md",
	Text: "Customers and their orders are known here, and what the law has a shop ask for is carried out. No tickets come of it.",
	Steps: []string{"Make an app for the shop with the scopes read_orders and read_customers, and ask for access to protected customer data.",
		"Install it: you get an access token. The app's client secret signs what is posted.",
		"When it is connected, Kickstand subscribes at the shop by itself. In the app's configuration set the three compliance webhooks to the privacy address below."},
	Address: input{Label: "Domain of the shop", Placeholder: "acme-lamps.myshopify.com", Help: "Its own at the platform."}, Secret: input{Label: "Client secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Access token", Placeholder: "shpat_…", Help: "For the subscriptions. Without it make them yourself."},
		{Name: "api_secret", Label: "Secret of compliance webhooks", Help: "If they are signed with another one."}},
	Settings: []input{{Name: "api_version", Label: "Version of the API", Placeholder: "2026-10"}},
}, {
	Name: "marketplace", Title: "Marketplace", Icon: "channel-marketplace", Provider: "Amazon, through SNS", Doc: "marketplace.md",
	Text: "Changed orders and returns. A buyer who wants to cancel or sends something back becomes a ticket.",
	Steps: []string{"Make a standard topic, and have your rule or queue consumer publish to it.",
		"When it is connected here: create a subscription, protocol HTTPS, to the address below, without raw message delivery. It is confirmed by itself.",
		"Subscribe to ORDER_CHANGE with the marketplace."},
	Address: input{Label: "Topic", Placeholder: "arn:aws:sns:us-east-1:123456789012:orders", Help: "The service signs with a key of its own, so there is no secret."},
}, {
	Name: "payments-connect", Title: "Connected account", Icon: "channel-payments", Provider: "Stripe Connect", Doc: "payments-connect.md",
	Text: "Who paid what is shown beside the tickets of your customers. No tickets come of it.",
	Steps: []string{"In the dashboard of the platform's account add a webhook endpoint with the address below that listens to events on connected accounts.",
		"Its signing secret is the deployment's, or is given here."}, Made: true,
	Address:  input{Label: "Account", Placeholder: "acct_1032D82eZvKYlo2C"},
	Secret:   input{Label: "Signing secret", Placeholder: "whsec_…", Help: "Empty: the deployment's is what counts."},
	Settings: []input{{Name: "test_events", Label: "Test mode", Choices: []string{"", "true"}, Help: "true: events of the provider's test mode are taken, too."}},
}}

// findGuide returns the guide of a channel, or nil.
func findGuide(name string) *guide {
	for i := range guides {
		if guides[i].Name == name {
			return &guides[i]
		}
	}
	return nil
}

// privacyPath is the endpoint of shops' compliance webhooks.
const privacyPath = "/api/webhooks/storefront/gdpr"

// endpoint returns the URL to which the provider posts for a connection; without a
// connection, the channel's.
func (p *pages) endpoint(g *guide, c *connection.Connection) string {
	if c != nil && !g.Named {
		return p.BaseURL + p.Connections.Endpoint(c)
	}
	at := p.BaseURL + p.Connections.Path(g.Name)
	if c != nil {
		at += "?c=" + c.ID
	}
	return at
}
