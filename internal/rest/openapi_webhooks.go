package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Webhook describes the delivery of an event, in the document's section webhooks.
type Webhook struct {
	Name    string // of the event, and of its form: "ticket.created", "ticket.created.a"
	Summary string
	Tag     string // empty: Webhooks
	Body    *schema.Record
	Example json.RawMessage // a body as it is sent
}

// deliveryHeaders are the headers of deliveries, as parameters, except X-Service-Event.
var deliveryHeaders = object{
	"X-Service-Delivery":  deliveryHeader("X-Service-Delivery", true, "The id of the delivery, the same for every attempt.", exampleID("delivery")),
	"X-Service-Signature": deliveryHeader("X-Service-Signature", false, "The HMAC-SHA256 of the body in hex: form a as it is, form b after sha256=. Absent without a secret.", ""),
	"X-Service-Test":      deliveryHeader("X-Service-Test", false, "true for a test delivery.", "true"),
	"Webhook-Id":          deliveryHeader("Webhook-Id", true, "The id of the event, the same for every delivery of it.", exampleID("event")),
	"Webhook-Timestamp":   deliveryHeader("Webhook-Timestamp", false, "The time of the attempt, in Unix seconds. Absent without a secret.", "1773480413"),
	"Webhook-Signature":   deliveryHeader("Webhook-Signature", false, "Signatures by Standard Webhooks, separated by spaces. Absent without a secret.", ""),
}

func deliveryHeader(name string, required bool, doc, example string) object {
	p := parameter("header", name, required, object{"type": "string"}, doc)
	if example != "" {
		p["example"] = example
	}
	return p
}

// webhooks returns the deliveries by name.
func (b *documentBuilder) webhooks() (object, error) {
	var headers []object
	names := append(slices.Collect(maps.Keys(deliveryHeaders)), "X-Service-Event")
	slices.Sort(names)
	for _, name := range names {
		headers = append(headers, object{"$ref": "#/components/parameters/" + name})
	}
	all := object{}
	for _, w := range b.api.c.Webhooks {
		s, err := b.components.Ref(w.Body, "")
		if err != nil {
			return nil, fmt.Errorf("webhook %s: %w", w.Name, err)
		}
		all[w.Name] = object{"post": object{
			"operationId": "receive" + camel(w.Name), "tags": []string{cmp.Or(w.Tag, "Webhooks")}, "summary": w.Summary,
			"description": "A delivery to the webhooks that subscribe to the event. Answer it with 2XX within 30 seconds, whatever its order, and once for each Webhook-Id.",
			"security":    []object{},
			"parameters":  headers,
			"requestBody": object{"required": true, "content": object{"application/json": object{"schema": s, "example": w.Example}}},
			"responses": object{
				"2XX": object{"description": "Accepted."},
				"4XX": object{"description": "Refused, and not sent again. 429 is retried, after Retry-After if there is one."},
				"5XX": object{"description": "Retried by the schedule of the webhook; 503 after Retry-After if there is one."},
			},
		}}
	}
	return all, nil
}

// camel returns "TicketStatusChanged" for "ticket.status_changed".
func camel(name string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '.' || c == '_' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
