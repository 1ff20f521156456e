// Package webhookstest signs deliveries for tests of receivers.
package webhookstest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/clients/go/internal/signing"
	"github.com/kickstand-dev/kickstand/clients/go/webhooks"
)

// Sign returns the headers with which the server would deliver a body in form B.
func Sign(body []byte, secret, id string, at time.Time) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	h := SignBody(body, secret, webhooks.FormB)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", signing.Standard(secret, id, timestamp, body))
	return h
}

// SignBody returns the header that signs the body alone.
func SignBody(body []byte, secret string, form webhooks.Form) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Service-Signature": {signing.Body(secret, form == webhooks.FormB, body)}}
}
