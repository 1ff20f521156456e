package email

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mailparse"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// Delivery is the channel "email-delivery": a provider that delivers our mail, reports its
// delivery status, and may receive mail for us.
//
// Its events concern the connections of all mail channels, since mail of each can be sent by
// it. An event about received mail holds little more than an id; the rest is fetched,
// preferably the raw message, and then parsed like all mail.
type Delivery struct {
	Writer
	parser *Parser
	apis   []string // API addresses that the operator chose
	hosts  []string // hosts of files
}

var (
	_ channel.Adapter           = (*Delivery)(nil)
	_ channel.AddressNormalizer = (*Delivery)(nil)
	_ channel.SecretResolver    = (*Delivery)(nil)
	_ channel.Enricher          = (*Delivery)(nil)
	_ channel.DNSVerifier       = (*Delivery)(nil)
	_ channel.MediaSource       = (*Delivery)(nil)
	_ channel.MailComposer      = (*Delivery)(nil)
	_ channel.SecretChecker     = (*Delivery)(nil)
)

const (
	deliveryMaxAge  = 5 * time.Minute
	deliveryMaxBody = 1 << 20
	// maxSignatures bounds the signatures checked per request.
	maxSignatures = 20
)

// The headers of an event.
const (
	DeliveryIDHeader        = "Webhook-Id"
	DeliveryTimestampHeader = "Webhook-Timestamp"
	DeliverySignatureHeader = "Webhook-Signature"
)

const kindReceived = "email.received"

// NewDelivery returns the channel.
func NewDelivery(c Config) *Delivery {
	a := &Delivery{
		Writer: newWriter(c), parser: NewParser(c),
		hosts: slices.Concat([]string{".resend.com", ".resend.app", ".amazonaws.com", ".cloudfront.net"}, c.AttachmentHosts),
	}
	a.apis = []string{a.api.URL, strings.TrimRight(cmp.Or(c.DeploymentAPIURL, a.api.URL), "/")}
	for _, api := range a.apis {
		if u, err := url.Parse(api); err == nil {
			a.hosts = append(a.hosts, u.Host)
		}
	}
	return a
}

// Info implements [channel.Adapter].
func (*Delivery) Info() channel.Info {
	return channel.Info{
		Name: "email-delivery", TicketChannel: ticketChannel, Path: "/api/webhooks/email-delivery", Aliases: []string{"/api/webhooks/email"},
		MaxBody: deliveryMaxBody, Serves: []string{"email-form", "email-parse", "email-json", "email-raw", MailboxName, DirectName},
	}
}

// NormalizeAddress implements [channel.AddressNormalizer].
func (*Delivery) NormalizeAddress(raw string) (string, error) { return formAddress(raw) }

// SigningSecrets implements [channel.SecretResolver]. The signing secrets of other channels'
// connections do not count here.
func (a *Delivery) SigningSecrets(name string, secrets []string, credentials channel.Credentials) []string {
	var keys []string
	if name == a.Info().Name {
		keys = slices.Clone(secrets)
	}
	for secret := range strings.SplitSeq(credentials.Get(CredentialSecret), ",") {
		if secret = strings.TrimSpace(secret); secret != "" {
			keys = append(keys, secret)
		}
	}
	return keys
}

// Verify implements [channel.Adapter], by the rules of Standard Webhooks.
func (*Delivery) Verify(r *channel.Request, secret string) bool {
	id, timestamp, presented := deliverySignatures(r)
	if secret == "" {
		return false
	}
	good := false
	for _, signature := range presented {
		for _, key := range deliveryKeys(secret) {
			good = hmac.Equal(signature, deliveryMAC(id, timestamp, r.Body, key)) || good
		}
	}
	return good
}

// HeaderProof implements [channel.HeaderProver].
func (*Delivery) HeaderProof(r *channel.Request) channel.HeaderProof {
	_, _, presented := deliverySignatures(r)
	return channel.BodyDecidesIf(len(presented) > 0)
}

// deliverySignatures returns the well-formed signatures in the headers, or none if their time
// is not fresh.
func deliverySignatures(r *channel.Request) (id, timestamp string, presented [][]byte) {
	id = r.First(DeliveryIDHeader, "Svix-Id")
	timestamp = r.First(DeliveryTimestampHeader, "Svix-Timestamp")
	if id == "" || !fresh(r, timestamp, deliveryMaxAge) {
		return id, timestamp, nil
	}
	for i, one := range strings.Fields(r.First(DeliverySignatureHeader, "Svix-Signature")) {
		version, text, _ := strings.Cut(one, ",")
		signature, err := base64.StdEncoding.DecodeString(text)
		if i < maxSignatures && version == "v1" && err == nil && len(signature) == sha256.Size {
			presented = append(presented, signature)
		}
	}
	return id, timestamp, presented
}

// CheckSecret implements [channel.SecretChecker].
func (*Delivery) CheckSecret(secret string) error {
	if len(deliveryKeys(secret)) == 0 {
		return errors.New("must have the provider's form: whsec_ and base64")
	}
	return nil
}

// deliveryKeys returns the keys that a secret may encode: base64 after the usual prefix, or,
// without the prefix, base64 or the secret itself.
func deliveryKeys(secret string) [][]byte {
	encoded, prefixed := strings.CutPrefix(secret, "whsec_")
	var keys [][]byte
	if key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "=")); err == nil && len(key) > 0 {
		keys = append(keys, key)
	}
	if !prefixed {
		keys = append(keys, []byte(secret))
	}
	return keys
}

func deliveryMAC(id, timestamp string, body, key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, id+"."+timestamp+".") // a hash does not fail
	mac.Write(body)
	return mac.Sum(nil)
}

// SignDelivery returns the values of [DeliverySignatureHeader] and [DeliveryTimestampHeader]
// for an event with an id. They are empty if the secret is not a key.
func SignDelivery(body []byte, id string, at time.Time, secret string) (signature, timestamp string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	keys := deliveryKeys(secret)
	if len(keys) == 0 {
		return "", ""
	}
	return "v1," + base64.StdEncoding.EncodeToString(deliveryMAC(id, timestamp, body, keys[0])), timestamp
}

// deliveryEvent is the body of a provider's request.
type deliveryEvent struct {
	Type text `json:"type"`
	Data struct {
		EmailID   text  `json:"email_id"`
		MessageID text  `json:"message_id"`
		From      text  `json:"from"`
		To        texts `json:"to"`
		Cc        texts `json:"cc"`
		Bcc       texts `json:"bcc"`
		Subject   text  `json:"subject"`
		Bounce    struct {
			Type    text `json:"type"`
			SubType text `json:"subType"`
			Message text `json:"message"`
		} `json:"bounce"`
		Failed struct {
			Reason text `json:"reason"`
		} `json:"failed"`
		Suppressed struct {
			Message text `json:"message"`
		} `json:"suppressed"`
		Tags        json.RawMessage          `json:"tags"`
		Attachments list[deliveryAttachment] `json:"attachments"`
	} `json:"data"`
}

type deliveryAttachment struct {
	ID          text `json:"id"`
	Name        text `json:"filename"`
	ContentType text `json:"content_type"`
	ContentID   text `json:"content_id"`
	Disposition text `json:"content_disposition"`
	DownloadURL text `json:"download_url"`
}

var errNoEvent = fmt.Errorf("%w: there is no event", channel.ErrUnreadable)

func openDelivery(r *channel.Request) (*deliveryEvent, error) {
	if kind, _ := contentType(r); kind != kindJSON {
		return nil, channel.ErrContentType
	}
	var e deliveryEvent
	if !anyJSON(r.Body, &e) {
		return nil, errNotJSON
	}
	if e.Type == "" {
		return nil, errNoEvent
	}
	return &e, nil
}

// ours returns our addresses that the event is about.
func (e *deliveryEvent) ours() []string {
	var list []string
	add := func(values ...string) {
		for _, v := range values {
			for one := range mailparse.SplitAddresses(v) {
				if a := Canonical(one); a != "" && !slices.Contains(list, a) && len(list) < maxRecipients {
					list = append(list, a)
				}
			}
		}
	}
	if e.Type == kindReceived {
		add(slices.Concat(e.Data.To, e.Data.Cc, e.Data.Bcc)...)
	} else {
		add(string(e.Data.From))
	}
	return list
}

// Addresses implements [channel.Adapter].
func (*Delivery) Addresses(r *channel.Request) ([]string, error) {
	e, err := openDelivery(r)
	switch {
	case err == channel.ErrContentType:
		return nil, err
	case err != nil:
		return nil, nil // rejected once the sender is verified
	}
	return e.ours(), nil
}

// Split implements [channel.Adapter]: one part, or for received mail one per recipient.
func (*Delivery) Split(r *channel.Request) ([]channel.Part, error) {
	e, err := openDelivery(r)
	if err != nil {
		return nil, unreadable(err)
	}
	id := r.First(DeliveryIDHeader, "Svix-Id")
	if id == "" {
		sum := sha256.Sum256(r.Body)
		id = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	kind := key(mailparse.Text(string(e.Type)))
	if _, known := e.state(); !known && e.Type != kindReceived {
		return []channel.Part{{Kind: kind, Skip: true}}, nil
	}
	ours := e.ours()
	if e.Type != kindReceived {
		return []channel.Part{{Key: key(mailparse.Text(id)), Sender: key(mailparse.Text(string(e.Data.EmailID))), Address: strings.Join(ours, ""), Kind: kind}}, nil
	}
	if ours == nil {
		ours = []string{""}
	}
	sender := ""
	if from := mailparse.AddressList(string(e.Data.From)); len(from) > 0 {
		sender = key(strings.ToLower(from[0].Address))
	}
	var parts []channel.Part
	for _, address := range ours {
		parts = append(parts, channel.Part{
			Key: key(strings.TrimSpace(mailparse.Text(id) + " " + address)), Sender: sender, Address: address,
			Guessed: true, // the event names header recipients only
			Kind:    kind,
		})
	}
	return parts, nil
}

// Parse implements [channel.Adapter].
func (a *Delivery) Parse(r *channel.Request, p channel.Part) (channel.Event, error) {
	return a.ParseEnriched(r, p, nil)
}

// state returns the delivery state of our mail; false for other events.
func (e *deliveryEvent) state() (channel.ReceiptState, bool) {
	switch e.Type {
	case "email.sent":
		return channel.ReceiptSent, true
	case "email.delivered":
		return channel.ReceiptDelivered, true
	case "email.delivery_delayed":
		return channel.ReceiptDelayed, true
	case "email.bounced", "email.failed", "email.suppressed":
		return channel.ReceiptFailed, true
	case "email.complained": // which implies delivery
		return channel.ReceiptDelivered, true
	case "email.opened", "email.clicked":
		return channel.ReceiptRead, true
	}
	return "", false
}

// receipt returns the event's delivery status.
func (e *deliveryEvent) receipt() (*channel.Receipt, error) {
	d := &e.Data
	state, _ := e.state()
	r := &channel.Receipt{State: state}
	for _, id := range []string{mailparse.ID(string(d.EmailID)), tagged(d.Tags), mailparse.ID(string(d.MessageID))} {
		if id != "" && !slices.Contains(r.ExternalIDs, id) {
			r.ExternalIDs = append(r.ExternalIDs, id)
		}
	}
	if r.ExternalIDs == nil {
		return nil, fmt.Errorf("%w: it names no mail", channel.ErrUnreadable)
	}
	// With several recipients the failed one is unknown.
	if len(d.To) == 1 && len(d.Cc) == 0 && len(d.Bcc) == 0 {
		r.Recipient = mailparse.Address(d.To[0])
	}
	switch e.Type {
	case "email.bounced":
		r.Error = explainBounce(string(d.Bounce.Type), string(d.Bounce.SubType), string(d.Bounce.Message))
		r.Permanent = strings.EqualFold(string(d.Bounce.Type), "Permanent")
	case "email.failed":
		r.Error = withReason("the delivery provider could not send the mail", string(d.Failed.Reason))
	case "email.suppressed":
		r.Error = withReason("the delivery provider sends nothing to this address any more, because of what became of earlier mail", string(d.Suppressed.Message))
	case "email.complained":
		r.Note = "The recipient reported the mail as unwanted."
		r.Permanent, r.OptedOut = true, r.Recipient != ""
	}
	return r, nil
}

// tagged returns our id in a mail's tags: an object, or an array of names and values.
func tagged(data json.RawMessage) string {
	var object dict[text]
	if anyJSON(data, &object); object != nil {
		return mailparse.ID(string(object[mail.MessageTag]))
	}
	var tags list[struct{ Name, Value text }]
	anyJSON(data, &tags)
	for _, t := range tags {
		if t.Name == mail.MessageTag {
			return mailparse.ID(string(t.Value))
		}
	}
	return ""
}

// explainBounce explains a bounce in plain words.
func explainBounce(kind, sub, message string) string {
	what := "the other server did not take the mail"
	switch strings.ToLower(sub) {
	case "noemail":
		what = "the address does not exist"
	case "suppressed", "onaccountsuppressionlist":
		what = "the delivery provider sends nothing to this address any more"
	case "mailboxfull":
		what = "the mailbox is full"
	case "messagetoolarge":
		what = "the mail is too large"
	case "contentrejected", "attachmentrejected":
		what = "the other server refused the mail by its rules"
	default:
		switch strings.ToLower(kind) {
		case "permanent":
			what = "the address does not exist, or takes no mail"
		case "transient":
			what = "the other server could not take the mail in time"
		}
	}
	return withReason(what, message)
}

func withReason(what, reason string) string {
	if reason = safehtml.Clip(mailparse.Text(reason), 300); reason != "" {
		what += " (" + reason + ")"
	}
	return what
}

// receivedMail is received mail in the form of the provider's API.
type receivedMail struct {
	ID          text                     `json:"id"`
	From        text                     `json:"from"`
	To          texts                    `json:"to"`
	Cc          texts                    `json:"cc"`
	Bcc         texts                    `json:"bcc"`
	ReplyTo     texts                    `json:"reply_to"`
	Subject     text                     `json:"subject"`
	MessageID   text                     `json:"message_id"`
	HTML        text                     `json:"html"`
	Text        text                     `json:"text"`
	Headers     json.RawMessage          `json:"headers"`
	Attachments list[deliveryAttachment] `json:"attachments"`
	Raw         struct {
		DownloadURL text `json:"download_url"`
	} `json:"raw"`
}

// enrichment is the data fetched so far for received mail.
type enrichment struct {
	mail    *receivedMail // nil if not fetched
	raw     []byte        // nil if there is none
	files   []deliveryAttachment
	pending string // the next call: "", "mail", "raw", "files"
	rawURL  string
}

// readResponses reads the responses to the calls of EnrichCall, in order.
func (a *Delivery) readResponses(p channel.Part, e *deliveryEvent, answers []channel.Response) enrichment {
	k := enrichment{pending: "mail"}
	if len(answers) == 0 {
		return k
	}
	k.pending = ""
	var m receivedMail
	if answers[0].Status != http.StatusOK || !anyJSON(answers[0].Body, &m) {
		return k
	}
	// The key may also give access to other recipients' mail.
	theirs := deliveryEvent{Type: kindReceived}
	theirs.Data.To, theirs.Data.Cc, theirs.Data.Bcc = m.To, m.Cc, m.Bcc
	if m.ID != "" && m.ID != e.Data.EmailID || !slices.Contains(theirs.ours(), p.Address) {
		return k
	}
	k.mail = &m
	answers = answers[1:]
	if k.rawURL = string(m.Raw.DownloadURL); a.fetchable(k.rawURL) {
		if len(answers) == 0 {
			k.pending = "raw"
			return k
		}
		if answers[0].Status == http.StatusOK && len(strings.TrimSpace(string(answers[0].Body))) > 0 {
			k.raw = answers[0].Body
			return k
		}
		answers = answers[1:]
	}
	if len(m.Attachments) == 0 {
		return k
	}
	if len(answers) == 0 {
		k.pending = "files"
		return k
	}
	var l struct {
		Data list[deliveryAttachment] `json:"data"`
	}
	if answers[0].Status == http.StatusOK && anyJSON(answers[0].Body, &l) {
		k.files = l.Data
	}
	return k
}

// fetchable reports whether a URL from the provider is on one of its hosts.
func (a *Delivery) fetchable(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil {
		return false
	}
	if slices.ContainsFunc(a.apis, func(api string) bool { return channel.SameOrigin(raw, api) }) {
		return true
	}
	host := strings.ToLower(u.Host)
	return u.Scheme == "https" && slices.ContainsFunc(a.hosts, func(h string) bool {
		return host == h || strings.HasPrefix(h, ".") && strings.HasSuffix(host, h)
	})
}

// EnrichCall implements [channel.Enricher].
func (a *Delivery) EnrichCall(r *channel.Request, p channel.Part, answers []channel.Response, credentials channel.Credentials) *channel.APIRequest {
	e, err := openDelivery(r)
	if err != nil || e.Type != kindReceived || e.Data.EmailID == "" || credentials.Get(CredentialAPIKey) == "" ||
		credentials.BaseURL() == "" || credentials.Public() && !strings.HasPrefix(credentials.BaseURL(), "https://") {
		return nil
	}
	at := "/emails/receiving/" + url.PathEscape(string(e.Data.EmailID))
	var call channel.APIRequest
	switch k := a.readResponses(p, e, answers); k.pending {
	case "mail":
		call = a.getCall(at, credentials)
	case "raw":
		call = credentials.Download(k.rawURL)
	case "files":
		call = a.getCall(at+"/attachments?limit="+strconv.Itoa(mailparse.MaxAttachments), credentials)
	default:
		return nil
	}
	return &call
}

func (*Delivery) getCall(path string, credentials channel.Credentials) channel.APIRequest {
	return credentials.NewRequest(http.MethodGet, path, http.Header{
		"Authorization": {"Bearer " + credentials.Get(CredentialAPIKey)}, "Accept": {"application/json"},
	}, nil)
}

// ParseEnriched implements [channel.Enricher].
func (a *Delivery) ParseEnriched(r *channel.Request, p channel.Part, answers []channel.Response) (channel.Event, error) {
	e, err := openDelivery(r)
	if err != nil {
		return channel.Event{}, unreadable(err)
	}
	if e.Type != kindReceived {
		receipt, err := e.receipt()
		return channel.Event{Receipt: receipt}, err
	}
	m, err := a.parser.parse(a.received(r, p, e, answers))
	if err != nil {
		return channel.Event{}, err
	}
	return channel.Event{Message: m}, nil
}

// TXTNames implements [channel.DNSVerifier].
func (a *Delivery) TXTNames(r *channel.Request, p channel.Part, answers []channel.Response) []string {
	e, err := openDelivery(r)
	if err != nil || e.Type != kindReceived {
		return nil
	}
	return a.parser.names(a.received(r, p, e, answers))
}

// received returns the mail as far as the provider returned it.
func (a *Delivery) received(r *channel.Request, p channel.Part, e *deliveryEvent, answers []channel.Response) *source {
	s := &source{env: Envelope{Received: r.Received, Recipient: p.Address, TXT: r.TXT}}
	switch k := a.readResponses(p, e, answers); {
	case k.raw != nil:
		s.raw = k.raw
	case k.mail != nil:
		s.taken = k.message()
	default:
		s.taken = e.message()
	}
	return s
}

// message returns the mail with the fields of the API.
func (k *enrichment) message() *receivedMessage {
	m := k.mail
	t := &receivedMessage{plain: body{data: []byte(m.Text)}, html: body{data: []byte(m.HTML)}}
	var headers dict[texts]
	anyJSON(m.Headers, &headers)
	for _, name := range slices.Sorted(maps.Keys(headers)) { // objects have no order
		for _, v := range headers[name] {
			t.add(name, v)
		}
	}
	t.supply("From", string(m.From))
	t.supply("To", strings.Join(m.To, ", "))
	t.supply("Cc", strings.Join(m.Cc, ", "))
	t.supply("Reply-To", strings.Join(m.ReplyTo, ", "))
	t.supply("Subject", string(m.Subject))
	t.supply("Message-ID", string(m.MessageID))
	for _, f := range m.Attachments {
		if i := slices.IndexFunc(k.files, func(x deliveryAttachment) bool { return x.ID == f.ID }); i >= 0 {
			f.DownloadURL = k.files[i].DownloadURL
		}
		t.files = append(t.files, f.file())
	}
	return t
}

// message returns the mail with the fields of the event alone.
func (e *deliveryEvent) message() *receivedMessage {
	d := &e.Data
	t := &receivedMessage{plain: body{data: []byte("(The text of this mail could not be fetched from the delivery provider.)")}}
	t.add("From", string(d.From))
	t.add("To", strings.Join(d.To, ", "))
	t.add("Cc", strings.Join(d.Cc, ", "))
	t.add("Subject", string(d.Subject))
	t.add("Message-ID", string(d.MessageID))
	for _, f := range d.Attachments {
		t.files = append(t.files, f.file())
	}
	return t
}

func (f *deliveryAttachment) file() file {
	x := file{
		name: string(f.Name), contentType: string(f.ContentType), contentID: string(f.ContentID),
		inline: strings.EqualFold(string(f.Disposition), "inline"), url: string(f.DownloadURL),
	}
	if x.url == "" {
		x.missing = "the file could not be fetched from the delivery provider"
	}
	return x
}

// MediaRequest implements [channel.MediaSource]. File URLs need no further credentials.
func (a *Delivery) MediaRequest(at channel.Attachment, _ channel.Credentials) channel.MediaRequest {
	return channel.MediaRequest{URL: at.URL, Hosts: a.hosts}
}
