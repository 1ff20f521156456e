package developers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

const deliveriesPath = "/settings/deliveries"

// deliveryPage is the body of a delivery's page.
type deliveryPage struct {
	deliveryRow
	Hook     webhook.Webhook
	Address  string
	Attempts []attemptRow
	Shown    *attemptRow // the selected attempt; nil: there was none
	Request  string      // with its exact bytes; empty: unknown
	Lost     bool        // the request's body is no longer available
	Pretty   string      // the body, indented; empty: not JSON
	Steps    *steps      // nil: not signed
	Coming   string      // the body of the next attempt; empty: there is none
}

// attemptRow is an attempt in the list.
type attemptRow struct {
	webhook.Attempt
	Badge   web.Badge
	Started web.Time
	Result  string
	Path    string
	Present bool
}

// steps are the values that verify a delivery, except for the secret.
type steps struct {
	ID, Timestamp string
	Signed        string // the signed text up to the body
	Signatures    []string
	Form          string // the payload's signature header
	Command       string // computes both signatures
}

func (p *pages) delivery(w http.ResponseWriter, r *web.Request) error {
	d, attempts, err := p.Webhooks.Delivery(r.Context(), r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	h, err := p.Webhooks.Find(r.Context(), r.OrganizationID, d.WebhookID)
	if err != nil {
		return err
	}
	body := deliveryPage{deliveryRow: newDeliveryRow(r, d), Hook: h, Address: address(h.URL)}
	shown := len(attempts) - 1
	if n, err := strconv.Atoi(r.URL.Query().Get("attempt")); err == nil && n >= 1 && n <= len(attempts) {
		shown = n - 1
	}
	for i, a := range attempts {
		row := attemptRow{Attempt: a, Badge: web.Badge{Text: "Failed", Tone: web.Bad}, Started: r.Time(a.At), Result: answerText(a),
			Path: deliveriesPath + "/" + d.ID + "?attempt=" + strconv.Itoa(i+1), Present: i == shown}
		if a.Error == "" {
			row.Badge = web.Badge{Text: "Accepted", Tone: web.Good}
		}
		body.Attempts = append(body.Attempts, row)
	}
	if shown >= 0 {
		body.Shown = &body.Attempts[shown]
		if err := body.readRequest(attempts[shown].Request); err != nil {
			return err
		}
	}
	if d.State < webhook.Delivered {
		next, err := p.Webhooks.Body(r.Context(), r.OrganizationID, d.ID)
		if err != nil && problem.Of(err) != problem.NotFound {
			return err
		}
		body.Coming = string(next)
	}
	return p.Render(w, r, "delivery", page(r, webhooksPath, string(d.Event), body))
}

// readRequest sets the request and the steps that verify it.
func (p *deliveryPage) readRequest(q *payload.Request) error {
	if q == nil {
		return nil
	}
	raw, err := q.Bytes()
	if err != nil {
		return err
	}
	p.Request, p.Lost = string(raw), q.Body == nil
	var pretty bytes.Buffer
	if json.Indent(&pretty, q.Body, "", "  ") == nil {
		p.Pretty = pretty.String()
	}
	id, at := q.Header.Get("Webhook-Id"), q.Header.Get("Webhook-Timestamp")
	if q.Header.Get("Webhook-Signature") == "" || q.Body == nil {
		return nil
	}
	p.Steps = &steps{
		ID: id, Timestamp: at, Signed: id + "." + at + ".", Signatures: strings.Fields(q.Header.Get("Webhook-Signature")), Form: q.Header.Get("X-Service-Signature"),
		// A secret whsec_… is base64 of the key; any other secret is the key itself.
		Command: "BODY=" + quoted(string(q.Body)) + `
case $SECRET in whsec_*) KEY=$(printf %s "${SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \n') ;;
*) KEY=$(printf %s "$SECRET" | od -An -v -tx1 | tr -d ' \n') ;; esac
printf %s "` + id + "." + at + `.$BODY" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$KEY" -binary | base64
printf %s "$BODY" | openssl dgst -sha256 -hmac "$SECRET"`,
	}
	return nil
}

// quoted quotes text for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// replayDelivery delivers the event of a delivery again and redirects to the new one.
func (p *pages) replayDelivery(w http.ResponseWriter, r *web.Request) error {
	if _, ok := p.Form(w, r); !ok {
		return nil
	}
	var made []string
	err := p.write(r, func(ctx context.Context, tx *db.Tx) (err error) {
		made, err = p.Webhooks.ReplayTx(ctx, tx, r.OrganizationID, []string{r.PathValue("id")})
		return err
	})
	if err != nil {
		return err
	}
	return p.Redirect(w, deliveriesPath+"/"+made[0], web.Notice{Text: "Event sent again. This is the new delivery."})
}

// replayForm is the body of the replay form and of its progress.
type replayForm struct {
	Hook    webhook.Webhook
	Address string
	Under   bool // in progress
	Hidden  url.Values
	Sent    string
	Percent int
	At      web.Time
}

func (p *pages) replayFields(r *web.Request, source event.Source) web.Fields {
	return web.Fields{
		{Name: "from", Label: "From", Type: "datetime-local", Value: web.DateTimeLocal(r.Now.Add(-24 * time.Hour))},
		{Name: "to", Label: "Before", Type: "datetime-local", Optional: true, Help: "Empty: now."},
		{Name: "event", Label: "Event", Type: "select", Options: eventOptions(source)},
		{Name: "failed", Label: "Only failed or dropped", Type: "checkbox", Value: "on"},
	}
}

func (p *pages) showReplayForm(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	pg := page(r, webhooksPath, "Resend to "+address(h.URL), replayForm{Hook: h, Address: address(h.URL)})
	pg.Fields = p.replayFields(r, h.Source)
	return p.Render(w, r, "replay", pg)
}

// replayParts is the number of parts of a range that one request replays: about a second
// of work, after which the page shows progress.
const replayParts = 5

// replayRange replays all deliveries of a time range, in several requests if there are
// many. Each response carries the cursor of the next.
func (p *pages) replayRange(w http.ResponseWriter, r *web.Request) error {
	h, err := p.hook(r)
	if err != nil {
		return err
	}
	form, ok := p.Form(w, r)
	if !ok {
		return nil
	}
	fields := p.replayFields(r, h.Source)
	fields.Fill(form)
	rg := webhook.Range{WebhookID: h.ID, States: webhook.FailedOnly(form.Get("failed") != ""), Event: event.Name(form.Get("event"))}
	var wrong []problem.Issue
	if rg.From, err = parseTime(r, form.Get("from")); err != nil || rg.From.IsZero() {
		wrong = append(wrong, problem.Issue{Path: "from", Message: errTime.Error()})
	}
	if rg.To, err = parseTime(r, form.Get("to")); err != nil {
		wrong = append(wrong, problem.Issue{Path: "to", Message: err.Error()})
	}
	if rg.To.IsZero() {
		rg.To = r.Now
	}
	pg := page(r, webhooksPath, "Resend to "+address(h.URL), replayForm{Hook: h, Address: address(h.URL)})
	if wrong != nil {
		fields.Mark(wrong)
		fields.Focus()
		pg.Fields = fields
		return p.Render(w, r, "replay", refused(pg))
	}
	sent, _ := strconv.Atoi(form.Get("sent"))
	part := webhook.ReplayProgress{Next: form.Get("next")}
	for range replayParts {
		part, err = p.Webhooks.ReplayPart(r.Context(), r.OrganizationID, rg, part.Next)
		if fields.Refused(err) {
			pg.Fields = fields
			return p.Render(w, r, "replay", refused(pg))
		}
		if err != nil {
			return err
		}
		if sent += part.Replayed; part.Next == "" {
			return p.Redirect(w, webhooksPath+"/"+h.ID, web.Notice{Text: replayedText(sent)})
		}
	}
	body := replayForm{Hook: h, Address: address(h.URL), Under: true, Sent: web.Number(int64(sent)), At: r.Time(part.At), Hidden: url.Values{
		"from": {rg.From.Format(time.RFC3339Nano)}, "to": {rg.To.Format(time.RFC3339Nano)}, "event": {string(rg.Event)},
		"failed": {form.Get("failed")}, "next": {part.Next}, "sent": {strconv.Itoa(sent)},
	}}
	body.Percent = int(100 * part.At.Sub(rg.From) / max(rg.To.Sub(rg.From), 1))
	pg.Body, pg.Scripts = body, []string{"developers.js"}
	return p.Render(w, r, "replay", pg)
}
