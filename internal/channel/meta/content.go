package meta

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// content is the content of a message.
type content struct {
	text        string
	notes       metadata
	attachments []channel.Attachment

	file channel.Attachment // its URL is requested later
}

// businessContent reads a message of business messaging. The result always has text or a file:
// unsupported content is described.
func businessContent(m object, kind string) content {
	o := m.object(kind)
	var c content
	switch kind {
	case "text":
		c.text = o.text("body")
	case "image", "document", "audio", "video", "sticker", "voice":
		c.text = o.text("caption")
		c.file = channel.Attachment{Name: o.text("filename"), ContentType: o.text("mime_type"), SHA256: sha256Hex(o.text("sha256")), Lookup: o.text("id")}
		if c.file.Lookup == "" {
			c.text = lines(c.text, unsupported(m, kind))
		}
	case "button":
		c.text = o.first("text", "payload")
		c.notes.add(MetaPayload, o.text("payload"))
	case "interactive":
		c.interactive(o)
	case "location":
		c.text = lines(o.text("name"), o.text("address"), o.text("url"), mapLink(o.text("latitude"), o.text("longitude")))
	case "contacts":
		var cards []string
		for _, card := range m.objects("contacts") {
			cards = append(cards, contactCard(card))
		}
		c.text = strings.Join(cards, "\n\n")
	case "order":
		c.text = order(o)
		c.notes.add(MetaCatalog, o.text("catalog_id"))
	case "system":
		c.text = o.text("body")
	case "request_welcome":
		c.text = "[The customer opened the conversation for the first time]"
	}
	if strings.TrimSpace(c.text) == "" && c.file.Lookup == "" {
		c.text = unsupported(m, kind)
	}
	c.text = strings.ReplaceAll(c.text, "\r\n", "\n")
	return c
}

// unsupported describes a message that cannot be shown, with the provider's reason.
func unsupported(m object, kind string) string {
	switch kind {
	case "interactive":
		kind = cmp.Or(m.object(kind).text("type"), kind)
	case "unsupported", "unknown":
		kind = m.object(kind).text("type")
	}
	text := "[A message that the provider does not hand over"
	if kind != "" {
		text = fmt.Sprintf("[A message of the kind “%s”, which cannot be shown here", word(kind))
	}
	for _, e := range m.objects("errors") {
		if f := readFailure(e); f.words != "" {
			text += ": " + f.tagged(f.words)
			break
		}
	}
	return text + "]"
}

// interactive reads a choice or a form.
func (c *content) interactive(o object) {
	kind := o.text("type")
	reply := o.object(kind)
	switch kind {
	case "nfm_reply":
		c.text = lines(reply.text("body"), formAnswers(reply.text("response_json")))
		c.notes.add(MetaForm, reply.text("name"))
	default:
		c.text = cmp.Or(lines(reply.text("title"), reply.text("description")), reply.text("id"))
		c.notes.add(MetaPayload, reply.text("id"))
	}
}

// formAnswers returns the answers of a form, one per line.
func formAnswers(raw string) string {
	form := parse(json.RawMessage(raw))
	if form == nil {
		return raw
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if name == "flow_token" {
			continue // the provider's own
		}
		value := form.text(name)
		if value == "" {
			value = channel.CleanText(string(form[name]))
		}
		list = append(list, channel.CleanText(name)+": "+value)
	}
	return strings.Join(list, "\n")
}

// contactCard returns a contact card, line by line.
func contactCard(card object) string {
	name := card.object("name")
	list := []string{"Contact: " + cmp.Or(name.text("formatted_name"), strings.TrimSpace(name.text("first_name")+" "+name.text("last_name")))}
	add := func(label, value, kind string) {
		if value == "" {
			return
		}
		if kind != "" {
			value += " (" + strings.ToLower(kind) + ")"
		}
		list = append(list, label+": "+value)
	}
	org := card.object("org")
	add("Organization", org.text("company"), "")
	add("Title", org.text("title"), "")
	for _, p := range card.objects("phones") {
		number := p.text("phone")
		if number == "" && isNumber(p.text("wa_id")) {
			number = "+" + p.text("wa_id")
		}
		add("Phone", number, p.text("type"))
	}
	for _, e := range card.objects("emails") {
		add("Email", e.text("email"), e.text("type"))
	}
	for _, a := range card.objects("addresses") {
		city := strings.TrimSpace(a.text("zip") + " " + a.text("city"))
		add("Address", strings.ReplaceAll(lines(a.text("street"), city, a.text("state"), a.text("country")), "\n", ", "), a.text("type"))
	}
	for _, u := range card.objects("urls") {
		add("Web", u.text("url"), u.text("type"))
	}
	add("Birthday", card.text("birthday"), "")
	return strings.Join(list, "\n")
}

// order returns the items of a catalogue order.
func order(o object) string {
	list := []string{o.text("text"), "Order:"}
	for _, item := range o.objects("product_items") {
		one := cmp.Or(item.text("quantity"), "1") + " × " + item.text("product_retailer_id")
		if price := item.text("item_price"); price != "" {
			one += ", " + strings.TrimSpace(price+" "+item.text("currency")) + " each"
		}
		list = append(list, one)
	}
	return lines(list...)
}

// sha256Hex returns a digest in hex, which the provider writes in hex or in base64, or "".
func sha256Hex(s string) string {
	raw, err := hex.DecodeString(s)
	if err != nil {
		if raw, err = base64.StdEncoding.DecodeString(s); err != nil {
			return ""
		}
	}
	if len(raw) != 32 {
		return ""
	}
	return hex.EncodeToString(raw)
}
