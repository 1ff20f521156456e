package channels

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// guide describes how to connect a channel: the steps at the provider, and the fields
// here. docs/channels has the details; {doc} in a step links to its page.
type guide struct {
	Name     string // of the adapter
	Title    string
	Icon     string
	Provider string // the companies
	Text     string // a sentence
	Heading  string // of the steps; empty: At the provider
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
	// Read: its servers are called; nothing is posted.
	Read bool
}

// input is a field of the form.
type input struct {
	Name        string
	Label       string
	Help        string
	Placeholder string
	Required    bool
	Long        bool // several lines
	Password    bool
	Choices     []web.Option
}

// Settings of several channels.
var (
	yesOrNo = []web.Option{{Label: "No"}, {Value: "true", Label: "Yes"}}

	autoAnswer = input{Name: "auto_reply", Label: "Automatic answer", Long: true,
		Help: "Sent once per new ticket, not for automatic messages. Empty: none."}
	signature = input{Name: "signature", Label: "Signature", Long: true,
		Help: "Markdown, below all replies by mail, after the signature of the member who writes. {{agent.name}} stands for the member’s name. Empty: none."}
	smtpURL = input{Name: "smtp_url", Label: "Mail server", Placeholder: "smtps://user:password@mail.example.com",
		Help: "Sends replies. Empty: the deployment's mail server."}
	deliveryKey = input{Name: "delivery_api_key", Label: "API key of a delivery provider", Placeholder: "re_…",
		Help: "Sends replies by its API if the connection has no mail server."}
	deliverySecret = input{Name: "delivery_secret", Label: "Signing secret of the delivery provider", Placeholder: "whsec_…",
		Help: "Verifies its delivery reports."}
	signIn      = input{Name: "oauth", Label: "Sign in at", Choices: []web.Option{{Label: "No provider"}, {Value: "google", Label: "Google"}, {Value: "microsoft", Label: "Microsoft"}}, Help: "In place of a password. The provider asks for your consent after connecting."}
	mailAddress = input{Label: "Mail address", Placeholder: "help@example.com", Help: "The address customers write to. A plus tag is ignored."}
	verifyToken = input{Name: "verify_token", Label: "Verify token", Help: "Any text. The provider sends it when you set up the callback URL."}
	appSecret   = input{Name: "app_secret", Label: "App secret for calls", Help: "If the app requires appsecret_proof."}
	apiVersion  = input{Name: "api_version", Label: "API version", Placeholder: "v25.0"}
)

// guides lists the channels that an organization can connect, most common first.
var guides = []guide{{
	Name: "mailbox", Title: "Mailbox", Icon: "channel-email", Provider: "Gmail, Microsoft 365, any IMAP server", Doc: "mailbox.md", Read: true,
	Text: "Mail of an existing mailbox, read by IMAP and left in place. Replies leave by its SMTP server.",
	Steps: []string{"Enable IMAP in the settings of the mailbox, if its provider requires it.",
		"Create an app password: for Gmail at https://myaccount.google.com/apppasswords, for iCloud at https://account.apple.com/account/manage, for Yahoo and Fastmail in the security settings of the account.",
		"Enter address and password. The servers of well-known providers are found by the address."},
	Address: mailAddress,
	Credentials: []input{signIn, {Name: "password", Label: "Password", Password: true, Help: "Of the mailbox, or an app password."},
		{Name: "username", Label: "User", Help: "Empty: the address."},
		{Name: "imap_url", Label: "IMAP server", Placeholder: "imaps://imap.example.com", Help: "imaps:// for TLS, imap:// for STARTTLS. Empty: found by the address."},
		{Name: "smtp_url", Label: "SMTP server", Placeholder: "smtps://smtp.example.com", Help: "Sends replies, with the same user and password. smtps:// for TLS, smtp:// for STARTTLS. With an IMAP server only, the deployment’s mail server sends them."}},
	Settings: []input{{Name: "folders", Label: "Folders", Placeholder: "INBOX", Help: "Names separated by commas."},
		{Name: "import_days", Label: "Import mails of the last days", Placeholder: "0", Help: "When it is connected. 0: only new mails."},
		{Name: "aliases", Label: "Further addresses", Placeholder: "sales@example.com, @example.org", Help: "Whose mail arrives in this mailbox: addresses and whole domains."},
		{Name: "auth_servers", Label: "Trusted mail servers", Placeholder: "mx.example.com", Help: "Names in the Authentication-Results of the provider, which must remove forged ones. Empty: those of the deployment."},
		{Name: "mark_seen", Label: "Mark collected mails as read", Choices: yesOrNo},
		{Name: "move_to", Label: "Move collected mails to folder", Help: "Empty: they stay where they are."},
		{Name: "sent_folder", Label: "Folder for sent replies", Placeholder: "auto", Help: "auto finds it. Empty: no copies, or those of the provider: Gmail and Microsoft file them on their own."}, autoAnswer, signature},
}, {
	Name: "email-smtp", Title: "Mail of your own domain", Icon: "channel-email", Provider: "Received by this server, without a provider", Doc: "email-smtp.md",
	Text: "Mail that other servers deliver here directly, as the MX of your domain.", Heading: "Setup",
	Steps: []string{"Connect the address, and prove it: by DNS for all addresses of the domain, or by a code while mail still arrives at your former server.",
		"Create the MX record below for the domain, and remove others.",
		"Allow the server that sends your replies in the SPF record of the domain."},
	Address:     mailAddress,
	Credentials: []input{smtpURL, deliveryKey, deliverySecret},
	Settings: []input{{Name: "aliases", Label: "Further addresses", Placeholder: "sales@example.com, @example.com",
		Help: "Of the same domain, which must be proven by DNS. @example.com stands for all addresses of the domain."}, autoAnswer, signature},
}, {
	Name: "email-raw", Title: "E-mail by HTTP", Icon: "channel-email", Provider: "CloudMailin, Forward Email, any mail-to-HTTP service", Doc: "email-raw.md",
	Text:  "Mail that a service receives by SMTP and posts here as raw messages.",
	Steps: []string{"Configure the service to post each message to {address}, with its envelope, to {endpoint}.", "Enter {secret} there as signing key, bearer token, or Basic password."}, Made: true,
	Address: mailAddress, Secret: input{Label: "Secret", Help: "Empty: generated and shown once."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer, signature},
}, {
	Name: "email-form", Title: "E-mail by Mailgun", Icon: "channel-email", Provider: "Mailgun routes", Doc: "email-form.md",
	Text: "Mail that Mailgun receives for your domain.",
	Steps: []string{"Point the domain's MX records at the provider.",
		"Create a route at https://app.mailgun.com/: match {address} as recipient, and forward to {endpoint_mime}.",
		"Copy the account's HTTP webhook signing key."},
	Address: mailAddress, Secret: input{Label: "HTTP webhook signing key", Required: true},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer, signature},
}, {
	Name: "email-parse", Title: "E-mail by SendGrid", Icon: "channel-email", Provider: "SendGrid Inbound Parse", Doc: "email-parse.md",
	Text: "Mail that SendGrid receives for your host.",
	Steps: []string{"Point the MX records of a host such as parse.example.com at the provider.",
		"At https://app.sendgrid.com/settings/parse add the host, enter {endpoint} as its destination, and tick POST the raw, full MIME message.",
		"Create a security policy with a signature, attach it to the host, and copy its public key."},
	Address: mailAddress, Secret: input{Label: "Public key of the security policy", Required: true, Long: true, Help: "Base64 or PEM."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer, signature},
}, {
	Name: "email-json", Title: "E-mail by Postmark", Icon: "channel-email", Provider: "Postmark's inbound stream", Doc: "email-json.md",
	Text: "Mail that Postmark receives for you.",
	Steps: []string{"At https://account.postmarkapp.com/servers open the server, inbound stream, Settings. Set the webhook to {endpoint_token}.",
		"Tick Include raw email content.", "Forward {address} to the stream's address, or point MX records at it."}, Made: true,
	Address: mailAddress, Secret: input{Label: "Token", Help: "Empty: generated and shown once."},
	Credentials: []input{smtpURL, deliveryKey, deliverySecret}, Settings: []input{autoAnswer, signature},
}, {
	Name: "email-delivery", Title: "E-mail by Resend", Icon: "channel-email", Provider: "Resend", Doc: "email-delivery.md",
	Text: "Mail that Resend receives, and replies sent through it.",
	Steps: []string{"At https://resend.com/domains verify the domain, and at https://resend.com/api-keys create a key with full access.",
		"At https://resend.com/webhooks add one that posts the events email.* to {endpoint}.", "Copy the signing secret."},
	Address: mailAddress, Secret: input{Label: "Signing secret", Required: true, Placeholder: "whsec_…"},
	Credentials: []input{{Name: "delivery_api_key", Label: "API key", Placeholder: "re_…", Help: "Fetches mail and sends replies."}, smtpURL}, Settings: []input{autoAnswer, signature},
}, {
	Name: "sms", Title: "SMS", Icon: "channel-sms", Provider: "Twilio", Doc: "sms.md",
	Text: "Texts to your numbers, and replies as texts.",
	Steps: []string{"At https://console.twilio.com/ set the incoming-message URL of {address}, method POST, to {endpoint}.",
		"Copy the account's auth token: it signs the requests.", "For replies and pictures, add the account SID with the auth token or an API key."},
	Address: input{Label: "Number", Placeholder: "+14155550100", Help: "With country code, or the SID of a messaging service."},
	Secret:  input{Label: "Auth token", Required: true},
	Credentials: []input{{Name: "account_sid", Label: "Account SID", Placeholder: "AC…", Help: "For replies and pictures."},
		{Name: "auth_token", Label: "Auth token for calls", Help: "Or an API key with its secret."},
		{Name: "api_key", Label: "API key"}, {Name: "api_secret", Label: "API key's secret"},
		{Name: "messaging_service_sid", Label: "Messaging service", Help: "The service selects the sender."}},
	Settings: []input{autoAnswer},
}, {
	Name: "business-messaging", Title: "WhatsApp", Icon: "channel-business-messaging", Provider: "WhatsApp Cloud API", Doc: "business-messaging.md",
	Text: "Messages to your WhatsApp numbers. Replies are possible for 24 hours after the customer's last message.",
	Steps: []string{"At https://developers.facebook.com/apps create an app of type Business and add WhatsApp; API Setup shows the phone number ID.",
		"App settings, Basic has the app secret.", "In Business Settings create a system user with the app and the account, and a token with whatsapp_business_messaging.",
		"After connecting: under WhatsApp, Configuration, enter {endpoint} as callback URL, and {verify_token}. Subscribe to the field messages."},
	Address: input{Label: "Phone number ID", Placeholder: "106540352242922", Help: "The id, not the number. The account's id connects all its numbers that are not connected themselves."},
	Secret:  input{Label: "App secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Access token", Placeholder: "EAAG…", Help: "For files and replies."}, verifyToken, appSecret, apiVersion,
		{Name: "phone_number_id", Label: "Sending number", Help: "If the address is the account's id."}},
	Settings: []input{autoAnswer},
}, {
	Name: "social-messenger", Title: "Messenger", Icon: "channel-social-messenger", Provider: "Messenger Platform", Doc: "social-messenger.md",
	Text: "Messages to your page. Replies are possible for 24 hours after the customer's last message.",
	Steps: []string{"At https://developers.facebook.com/apps create an app of type Business and add Messenger; App settings, Basic has the app secret.",
		"Messenger, API Setup: connect the page and generate its page access token with pages_messaging.",
		"After connecting: under Webhooks, enter {endpoint} as callback URL, and {verify_token}. Subscribe your page to messages, messaging_postbacks, message_deliveries, message_reads and message_echoes."},
	Address: input{Label: "Page ID", Placeholder: "107520255634123"}, Secret: input{Label: "App secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Page access token", Placeholder: "EAAG…", Help: "For names and replies."}, verifyToken, appSecret,
		{Name: "human_agent", Label: "Reply window of 7 days", Choices: yesOrNo, Help: "Yes if the app has the Human Agent permission."}, apiVersion},
	Settings: []input{autoAnswer},
}, {
	Name: "voice", Title: "Telephone", Icon: "channel-voice", Provider: "Dialpad", Doc: "voice.md",
	Text: "Voicemails with their recordings and transcriptions, and texts. Replies are sent as texts.",
	Steps: []string{"At https://dialpad.com/settings create an API key with the scopes recordings_export and message_content_export.",
		"Create a webhook by its API with {endpoint} as hook_url and {secret} to sign with, and subscribe it to call states and texts of {address}."}, Made: true,
	Address: input{Label: "Number", Placeholder: "+12085550100", Help: "Or the id of a department."}, Secret: input{Label: "Webhook secret", Help: "Empty: generated and shown once."},
	Credentials: []input{{Name: "api_token", Label: "API key", Help: "For recordings and replies."},
		{Name: "user_id", Label: "Sending user"}, {Name: "sender_group_id", Label: "Sending group"},
		{Name: "sender_group_type", Label: "Type of sending group", Choices: []web.Option{{Label: "None"}, {Value: "office", Label: "Office"}, {Value: "department", Label: "Department"}, {Value: "callcenter", Label: "Call center"}}}},
	Settings: []input{{Name: "missed_calls", Label: "Missed calls", Choices: []web.Option{{Label: "Create no ticket"}, {Value: "ticket", Label: "Create a ticket"}}}},
}, {
	Name: "chat", Title: "Team chat", Icon: "channel-chat", Provider: "Slack", Doc: "chat.md", Named: true,
	Text: "Threads in channels that you share with customers. Replies go into the thread.",
	Steps: []string{"At https://api.slack.com/apps create an app from scratch in your workspace, add the bot scopes listed in {doc}, and install it.",
		"Copy the bot user OAuth token, and the signing secret under Basic Information.",
		"After connecting: under Event Subscriptions, enter {endpoint} as request URL. Subscribe to the bot events, and invite the app to the channels."},
	Address:     input{Label: "Workspace", Placeholder: "T012AB3C4", Help: "Its id, which starts with T; see Slack's URL in a browser."},
	Secret:      input{Label: "Signing secret", Required: true},
	Credentials: []input{{Name: "bot_token", Label: "Bot user OAuth token", Placeholder: "xoxb-…", Help: "For names, files and replies."}},
	Settings:    []input{{Name: "channels", Label: "Channels", Placeholder: "C024BE91L,C024BE92M", Help: "Ids separated by commas. Empty: all channels of the app."}, autoAnswer},
}, {
	Name: "api", Title: "Your own app", Icon: "channel-api", Provider: "Your app, site or form", Doc: "api.md", Named: true, Made: true,
	Text: "Conversations in your own app or a form on your site. Replies go back to it.", Heading: "Setup",
	Steps: []string{"Choose a name, and connect the app: its id and secret are shown then.",
		"Have your server post messages to {messages}, or signed requests to {endpoint}, or sign tokens with {secret} for your users' browsers, which use {visitors}.",
		"For replies, enter your server's URL, or read them with the tokens."},
	Address:     input{Label: "Name of the app", Placeholder: "contact-form", Help: "Letters, digits, dots and hyphens."},
	Secret:      input{Label: "Secret", Help: "At least 24 characters. Empty: generated and shown once."},
	Credentials: []input{{Name: "webhook_url", Label: "URL for replies", Placeholder: "https://app.example.com/kickstand", Help: "Empty: replies wait for your users' browsers."}},
	Settings:    []input{{Name: "origins", Label: "Origins of pages", Placeholder: "https://www.example.com", Help: "Pages that may use the visitors' API, separated by commas."}},
}, {
	Name: "storefront", Title: "Shop", Icon: "channel-storefront", Provider: "Shopify", Doc: "storefront.md",
	Text: "Imports customers and orders, and processes GDPR requests automatically. Creates no tickets.",
	Steps: []string{"At https://dev.shopify.com/dashboard create an app for your shop with the scopes read_orders and read_customers, and request access to protected customer data.",
		"Install it to get an access token. The app's client secret signs the requests.",
		"After connecting, Kickstand creates the subscriptions. In the app's configuration, set the three compliance webhooks to {privacy}."},
	Address: input{Label: "Shop domain", Placeholder: "acme-lamps.myshopify.com", Help: "At the platform."}, Secret: input{Label: "Client secret", Required: true},
	Credentials: []input{{Name: "access_token", Label: "Access token", Placeholder: "shpat_…", Help: "Creates the subscriptions. Empty: create them yourself."},
		{Name: "api_secret", Label: "Compliance webhook secret", Help: "If it differs."}},
	Settings: []input{{Name: "api_version", Label: "API version", Placeholder: "2026-10"}},
}, {
	Name: "marketplace", Title: "Marketplace", Icon: "channel-marketplace", Provider: "Amazon, through SNS", Doc: "marketplace.md",
	Text: "Order changes and returns. Cancellations and returns create tickets.",
	Steps: []string{"At https://console.aws.amazon.com/sns create a standard topic, and publish to it from your rule or queue consumer.",
		"After connecting: create a subscription of {address}, protocol HTTPS, to {endpoint}, without raw message delivery. It is confirmed automatically.",
		"Subscribe to ORDER_CHANGE with the marketplace."},
	Address: input{Label: "Topic", Placeholder: "arn:aws:sns:us-east-1:123456789012:orders", Help: "SNS signs with its own key; no secret is needed."},
}, {
	Name: "payments-connect", Title: "Connected account", Icon: "channel-payments", Provider: "Stripe Connect", Doc: "payments-connect.md",
	Text: "Shows payments beside the tickets of your customers. Creates no tickets.",
	Steps: []string{"At https://dashboard.stripe.com/webhooks, in the platform's account, add {endpoint} as an endpoint for events on connected accounts.",
		"Its signing secret is configured for the deployment, or entered here."},
	Address:  input{Label: "Account", Placeholder: "acct_1032D82eZvKYlo2C"},
	Secret:   input{Label: "Signing secret", Placeholder: "whsec_…", Help: "Of the endpoint, from the provider. Empty: the deployment's secret."},
	Settings: []input{{Name: "test_events", Label: "Test mode", Choices: yesOrNo, Help: "Whether events of the test mode are accepted."}},
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

// guide returns the guide of a channel, or nil, with the choices that the deployment has.
func (p *pages) guide(name string) *guide {
	g := findGuide(name)
	if g == nil || !g.Read {
		return g
	}
	g = new(*g)
	g.Credentials = slices.DeleteFunc(slices.Clone(g.Credentials), func(in input) bool { return in.Name == signIn.Name })
	if providers := p.Mailboxes.Providers(); len(providers) > 0 {
		in := signIn
		in.Choices = slices.DeleteFunc(slices.Clone(in.Choices), func(o web.Option) bool { return o.Value != "" && !slices.Contains(providers, o.Value) })
		g.Credentials = append([]input{in}, g.Credentials...)
	}
	return g
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
