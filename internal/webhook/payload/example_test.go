package payload_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

// A receiver verifies the raw body before it parses it.
func ExampleVerify() {
	body := []byte(`{"event":"ticket.created","text":"Grüße 👋"}`)
	h := http.Header{}
	h.Set("X-Service-Signature", "sha256=2cc8bf7a241758fc232a35fef10041ff32389a578322827e8f5a14f6371e62de")
	h.Set("Webhook-Id", "evt_known_answer")
	h.Set("Webhook-Timestamp", "1764000000")
	h.Set("Webhook-Signature", "v1,i8gmKRrSWpRkiIpOYs5wtCAxsEaVmNUM8Gno2tegkLA=")

	now := time.Unix(1764000060, 0)
	form, err := payload.Verify(h, body, "a secret made of plain words", now)
	fmt.Println(form, err)

	_, err = payload.Verify(h, body, "a secret made of plain words", now.Add(time.Hour))
	fmt.Println(err != nil)
	// Output:
	// b <nil>
	// true
}
