package developers_test

import (
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

const (
	hooksPath      = "/settings/webhooks"
	deliveriesPath = "/settings/deliveries"
)

var secrets = regexp.MustCompile(`whsec_[A-Za-z0-9+/=&#;]{44,}`)

// secretIn returns the secret on a page.
func secretIn(d webtest.Document) string {
	for _, pre := range d.All("pre") {
		if text := webtest.Text(pre); strings.HasPrefix(text, "whsec_") {
			return text
		}
	}
	return ""
}

// fact returns the value of a term in a list of facts.
func fact(d webtest.Document, name string) string {
	for _, dt := range d.All("dt") {
		if webtest.Text(dt) == name && dt.NextSibling != nil {
			return webtest.Text(dt.NextSibling)
		}
	}
	return ""
}

func (h *harness) hooksOf() []webhook.Webhook {
	h.t.Helper()
	list, err := h.hooks.List(h.t.Context(), h.Organization.ID)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// TestWebhookLife creates, tests, replays, pauses, resumes and deletes a webhook.
func TestWebhookLife(t *testing.T) {
	h := newHarness(t)
	b := h.admin
	b.Page(hooksPath).Want("No webhooks yet.", "Add webhook", "kickstand listen")
	d := b.Page(hooksPath + "/new")
	d.Want("Tickets", "Messages", "Customers", "Service levels", "sla.breached")
	typed := set(form(d), "url", "https://receiver.example.com/hook?q=%22%3Cb%3E", "events", "ticket.created", "events", "message.created")
	w := b.Post(hooksPath+"/new", typed)
	d = b.WantRefused(w, http.StatusCreated)
	secret := secretIn(d)
	if secret == "" || len(h.hooksOf()) != 1 {
		t.Fatalf("got secret %q and %d webhooks", secret, len(h.hooksOf()))
	}
	hook := h.hooksOf()[0]
	path := hooksPath + "/" + hook.ID
	d, notice := b.Follow(b.Post(hooksPath+"/new", typed))
	if len(h.hooksOf()) != 1 || !strings.Contains(notice, "already exists") {
		t.Errorf("again: %d webhooks, notice %q", len(h.hooksOf()), notice)
	}
	for _, id := range []string{"state", "trouble", "pulse", "queue", "deliveries"} {
		if part := d.WithAttr("id", id); len(part) != 1 || webtest.Attr(part[0], "data-live") != "webhook:"+hook.ID {
			t.Errorf("the part %s is not kept up to date", id)
		}
	}
	d.Want("receiver.example.com/hook", "ticket.created, message.created", "The queue is empty.", "No deliveries yet.", "no attempts")

	h.tested = h.Organization.ID
	b.WantRefused(b.Post(path+"/test", nil), http.StatusTooManyRequests).Want("Too many tests")
	if n := len(h.deliveries(hook)); n != 0 {
		t.Errorf("a test too many made %d deliveries", n)
	}
	h.tested = ""

	// The test delivery's exact bytes.
	d, notice = b.Follow(b.Post(path+"/test", nil))
	if !strings.HasPrefix(notice, "The receiver accepted the test: 200 in ") {
		t.Errorf("got notice %q", notice)
	}
	got := <-h.receiver.got
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payload.Verify(got.Header, body, secret, time.Now()); err != nil {
		t.Errorf("the secret that was shown does not verify: %v", err)
	}
	d.Want("POST /hook?q=%22%3Cb%3E HTTP/1.1", string(body), got.Header.Get("Webhook-Signature"), got.Header.Get("X-Service-Signature"), "thanks <script>", "Attempt 1", "Accepted", "Test",
		got.Header.Get("Webhook-Id")+"."+got.Header.Get("Webhook-Timestamp")+".")
	for _, p := range []string{path, hooksPath, path + "/edit", path + "/secret", deliveriesPath + "/" + h.deliveries(hook)[0].ID} {
		if w := b.Get(p); secrets.MatchString(w.Body.String()) || w.Code != http.StatusOK {
			t.Errorf("%s: got %d, with the secret: %v", p, w.Code, secrets.MatchString(w.Body.String()))
		}
	}
	b.Page(hooksPath).Want("ticket.created, message.created", "1 delivered", "Active")

	// A failed delivery is retried and replayed.
	h.receiver.set(http.StatusGone, "")
	h.emit(1)
	h.deliver(1)
	d = b.Page(path)
	d.Want("410 in", "Failed", "the receiver answered 410 Gone", "1 failed", "1 delivered")
	failed := h.deliveries(hook)[0]
	b.Page(deliveriesPath+"/"+failed.ID).Want("the receiver answered 410 Gone", "The response had no body.")
	d, notice = b.Follow(b.Post(deliveriesPath+"/"+failed.ID+"/replay", nil))
	if notice != "Event sent again. This is the new delivery." || h.deliveries(hook)[0].EventID != failed.EventID {
		t.Errorf("got notice %q", notice)
	}
	d.Want("No attempts yet.", "Body of the next attempt", `"event":"ticket.created"`)
	if _, notice = b.Follow(b.Post(path, url.Values{"delivery": {failed.ID}})); notice != "One event resent." {
		t.Errorf("got notice %q", notice)
	}
	if _, notice = b.Follow(b.Post(path, nil)); notice != "Select the deliveries to resend." {
		t.Errorf("got notice %q", notice)
	}

	// Paused, with a preview of the queue; resumed at a rate.
	d, _ = b.Follow(b.Post(path+"/state", url.Values{"do": {"pause"}}))
	d.Want("Paused", "2 deliveries queued until you resume.", "Resume")
	for _, rate := range []string{"many", "1001", "-1"} {
		if _, notice = b.Follow(b.Post(path+"/state", url.Values{"do": {"resume"}, "rate": {rate}})); notice != "The rate must be a number from 1 to 1,000, or empty." {
			t.Errorf("rate %s: got notice %q", rate, notice)
		}
	}
	d, notice = b.Follow(b.Post(path+"/state", url.Values{"do": {"resume"}, "rate": {" 7 "}}))
	d.Want("sent at 7 per second", "Change rate", "Draining queue")
	if webtest.Attr(d.Field("rate"), "value") != "7" || notice != "Webhook active. Queued events are sent now, oldest first." {
		t.Errorf("got notice %q", notice)
	}

	// Deletion requires the address.
	b.WantRefused(b.Post(path+"/delete", url.Values{"confirm": {"receiver"}}), http.StatusUnprocessableEntity).Want("Its 2 queued deliveries are not sent.")
	if _, notice = b.Follow(b.Post(path+"/delete", url.Values{"confirm": {"receiver.example.com/hook"}})); notice != "Webhook deleted." || len(h.hooksOf()) != 0 {
		t.Errorf("got notice %q", notice)
	}
	b.WantRefused(b.Get(path), http.StatusNotFound)
	b.WantRefused(b.Get(deliveriesPath+"/"+failed.ID), http.StatusNotFound)
}

// TestWebhookShowsRetries checks that each attempt of a delivery is shown.
func TestWebhookShowsRetries(t *testing.T) {
	h := newHarness(t)
	hook := h.hook(webhook.New{PayloadForm: payload.Flat, Ordered: true})
	h.receiver.set(0, "")
	h.emit(2)
	h.deliver(1)
	d := h.admin.Page(hooksPath + "/" + hook.ID)
	d.Want("Will retry", "No response, ", "Earlier deliveries", "A: flat, camelCase", "in order, one at a time", "2 deliveries queued.", "1 to retry", "The last attempt failed")
	waits := slices.DeleteFunc(h.deliveries(hook), func(d webhook.Delivery) bool { return d.State != webhook.Retrying })
	d = h.admin.Page(deliveriesPath + "/" + waits[0].ID)
	d.Want("Next attempt", "connection refused by <script>", "No response.", "Body of the next attempt", `"ticketNumber":1`)
	if strings.Contains(webtest.Text(d.Root), "Verify the signature") {
		t.Error("it is said how to verify what is not signed")
	}
	h.admin.Page(deliveriesPath + "/" + waits[0].ID + "?attempt=9").Want("Request of attempt 1")
}

func TestWebhookForms(t *testing.T) {
	h := newHarness(t)
	b := h.admin
	blank := func() url.Values { return set(form(b.Page(hooksPath+"/new")), "url", "https://example.com/hook") }
	for name, c := range map[string]struct {
		typed []string
		says  string
	}{
		"no URL":      {[]string{"url", "example"}, "Address "},
		"private":     {[]string{"url", "https://127.0.0.1/"}, "Address must be publicly reachable"},
		"no events":   {[]string{"events", "nonsense"}, "Events is not the name of an event."},
		"form":        {[]string{"payloadForm", "c"}, `Payload must be "a" or "b".`},
		"schedule":    {[]string{"retrySchedule", "c"}, `Retries must be "one" or "two".`},
		"no secret":   {[]string{"signing", "own"}, "My secret must have at least 16 characters."},
		"half secret": {[]string{"signing", "own", "secret", "whsec_!!!!!!!!!!!!"}, "My secret must be whsec_ followed by base64."},
	} {
		typed := set(blank(), c.typed...)
		d := b.WantRefused(b.Post(hooksPath+"/new", typed), http.StatusUnprocessableEntity)
		if !strings.Contains(d.Alert(), c.says) {
			t.Errorf("%s: got %q, want %q", name, d.Alert(), c.says)
		}
		if got := webtest.Attr(d.Field("url"), "value"); got != typed.Get("url") {
			t.Errorf("%s: got %q back", name, got)
		}
		if webtest.Attr(d.Field("secret"), "value") != "" {
			t.Errorf("%s: the secret comes back", name)
		}
	}
	typed := blank()
	typed.Del("events")
	d := b.WantRefused(b.Post(hooksPath+"/new", typed), http.StatusUnprocessableEntity)
	if got := webtest.Text(d.WithAttr("id", "events-error")[0]); got != "Events must name at least one event." {
		t.Errorf("no events: got %q", got)
	}
	if n := len(h.hooksOf()); n != 0 {
		t.Fatalf("%d webhooks were made", n)
	}

	// The user's own secret is not shown; the form describes the present one.
	d, notice := b.Follow(b.Post(hooksPath+"/new", set(blank(), "signing", "own", "secret", "a secret of mine", "events", "*", "retrySchedule", "one")))
	d.Want("all events", "and 24 h")
	if fact(d, "Signed") != "yes" {
		t.Errorf("it is signed: %s", fact(d, "Signed"))
	}
	if notice != "Webhook created. Send a test." {
		t.Errorf("got notice %q", notice)
	}
	hook := h.hooksOf()[0]
	path := hooksPath + "/" + hook.ID
	d = b.Page(path + "/edit")
	if len(d.WithAttr("name", "secret")) != 0 || !webtest.Has(d.WithAttr("value", "*")[0], "checked") {
		t.Error("the form is not the webhook's")
	}
	d, _ = b.Follow(b.Post(path+"/edit", set(form(d), "events", "ticket.created", "events", "sla.warning", "events", "sla.breached", "ordered", "on", "payloadForm", "a")))
	d.Want("ticket.created, sla.warning, sla.breached", "A: flat", "one at a time")
	b.Page(hooksPath).Want("ticket.created, sla.warning and 1 more")
	d = b.WantRefused(b.Post(path+"/edit", set(form(b.Page(path+"/edit")), "url", "ftp://example.com")), http.StatusUnprocessableEntity)
	if webtest.Attr(d.Field("url"), "value") != "ftp://example.com" {
		t.Error("what was typed is gone")
	}

	// A generated replacement is shown once.
	typed = form(b.Page(path + "/secret"))
	d = b.WantRefused(b.Post(path+"/secret", typed), http.StatusCreated)
	d.Want("Secret replaced", "For 24 hours")
	if secretIn(d) == "" {
		t.Error("the secret is not shown")
	}
	if _, notice = b.Follow(b.Post(path+"/secret", typed)); !strings.HasPrefix(notice, "Nothing was changed: ") {
		t.Errorf("again: got notice %q", notice)
	}
	b.WantRefused(b.Post(path+"/secret", set(form(b.Page(path+"/secret")), "signing", "own", "secret", "whsec_!")), http.StatusUnprocessableEntity)
	b.WantRefused(b.Post(path+"/secret", set(form(b.Page(path+"/secret")), "signing", "own")), http.StatusUnprocessableEntity)
	d, notice = b.Follow(b.Post(path+"/secret", set(form(b.Page(path+"/secret")), "signing", "none")))
	if fact(d, "Signed") != "no" {
		t.Errorf("it is signed: %s", fact(d, "Signed"))
	}
	if notice != "Deliveries are no longer signed." {
		t.Errorf("got notice %q", notice)
	}
}

// TestDeliveryFilter checks the filters and pages of the list, and their errors.
func TestDeliveryFilter(t *testing.T) {
	h := newHarness(t)
	hook := h.hook(webhook.New{Disabled: true})
	h.emit(35)
	path := hooksPath + "/" + hook.ID
	rows := func(d webtest.Document) int { return len(d.WithAttr("name", "delivery")) }
	d := h.admin.Page(path)
	d.Want("35 deliveries queued", "More are queued.")
	older := ""
	for _, a := range d.All("a") {
		if webtest.Text(a) == "Older" {
			older = webtest.Attr(a, "href")
		}
	}
	if rows(d) != 30 || older == "" {
		t.Fatalf("got %d rows, and then %q", rows(d), older)
	}
	d = h.admin.Page(older)
	d.Want("Newest")
	if rows(d) != 5 {
		t.Errorf("got %d older rows", rows(d))
	}
	for query, want := range map[string]int{
		"state=untried&event=ticket.created": 30, "state=failed": 0, "event=ticket.deleted": 0,
		"to=" + time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04"): 0, "from=" + time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04"): 30,
	} {
		if got := rows(h.admin.Page(path + "?" + query)); got != want {
			t.Errorf("%s: got %d rows, want %d", query, got, want)
		}
	}
	h.admin.Page(path+"?state=failed").Want("No deliveries match these filters.", "Show all")
	for query, field := range map[string]string{"from=yesterday": "from", "event=x": "event", "from=2026-01-02T00:00&to=2026-01-01T00:00": "to"} {
		d := h.admin.WantRefused(h.admin.Get(path+"?"+query), http.StatusUnprocessableEntity)
		if len(d.DescribedBy(field)) == 0 {
			t.Errorf("%s: nothing is said beside the field", query)
		}
	}
}

// TestReplayTime replays a time range; a long one shows progress.
func TestReplayTime(t *testing.T) {
	h := newHarness(t)
	hook := h.hook(webhook.New{Disabled: true})
	path := hooksPath + "/" + hook.ID + "/replay"
	h.admin.Page(path).Want("Resends every event of the time range, oldest first")
	typed := form(h.admin.Page(path))
	if _, notice := h.admin.Follow(h.admin.Post(path, typed)); notice != "No events to resend." {
		t.Errorf("got notice %q", notice)
	}
	for _, c := range [][]string{{"from", ""}, {"from", "x"}, {"to", "x"}, {"to", "2020-01-01T00:00"}, {"event", "x"}} {
		d := h.admin.WantRefused(h.admin.Post(path, set(form(h.admin.Page(path)), c...)), http.StatusUnprocessableEntity)
		if len(d.DescribedBy(c[0])) == 0 || d.Alert() == "" {
			t.Errorf("%s: nothing is said beside the field", c)
		}
	}

	const n = 1100 // more than one request replays
	for range n / 100 {
		h.emit(100)
	}
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE deliveries SET state = $1", int64(webhook.DeliveryFailed))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	typed = form(h.admin.Page(path))
	w := h.admin.Post(path, typed)
	d := h.admin.WantRefused(w, http.StatusOK)
	d.Want("1,000 resent so far")
	if p := d.All("progress"); len(p) != 1 || webtest.Attr(p[0], "value") == "" {
		t.Error("it does not tell how far it is")
	}
	_, notice := h.admin.Follow(h.admin.Post(path, form(d)))
	if notice != "1,100 events are sent again." {
		t.Errorf("got notice %q", notice)
	}
	if got := h.waiting(hook); got != n {
		t.Errorf("%d wait, want %d", got, n)
	}
}

// TestFailedEnabled: enabling a failed webhook announces the events that ran out of
// attempts, though none waits.
func TestFailedEnabled(t *testing.T) {
	h := newHarness(t)
	hook := h.hook(webhook.New{})
	if err := h.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE webhooks SET state = 'failed'")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, notice := h.admin.Follow(h.admin.Post(hooksPath+"/"+hook.ID+"/state", url.Values{"do": {"resume"}}))
	if notice != "Webhook active. Queued events are sent now, oldest first." {
		t.Errorf("got notice %q", notice)
	}
}

// TestCommandVerifies runs the shown command and compares its signatures.
func TestCommandVerifies(t *testing.T) {
	for _, tool := range []string{"sh", "openssl", "base64", "od", "tr"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	h := newHarness(t)
	for _, secret := range []string{payload.NewSecret(), "it's a plain one"} {
		hook := h.hook(webhook.New{Secret: &secret})
		res, err := h.hooks.Test(t.Context(), h.Organization.ID, hook.ID)
		if err != nil {
			t.Fatal(err)
		}
		sent := <-h.receiver.got
		d := h.admin.Page(deliveriesPath + "/" + res.DeliveryID)
		command := ""
		for _, c := range d.All("code") {
			if c.FirstChild != nil && strings.HasPrefix(c.FirstChild.Data, "BODY=") {
				command = c.FirstChild.Data
			}
		}
		run := exec.CommandContext(t.Context(), "sh", "-c", command)
		run.Env = []string{"SECRET=" + secret, "PATH=/usr/local/bin:/usr/bin:/bin"}
		out, err := run.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, command)
		}
		for _, want := range []string{
			strings.TrimPrefix(sent.Header.Get("Webhook-Signature"), "v1,"), strings.TrimPrefix(sent.Header.Get("X-Service-Signature"), "sha256="),
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("secret %q: got %s, want %s in it", secret, out, want)
			}
		}
	}
}

// TestWebhooksForAdmins checks that agents and other organizations can neither read nor
// change webhooks.
func TestWebhooksForAdmins(t *testing.T) {
	h := newHarness(t)
	hook := h.hook(webhook.New{})
	h.emit(1)
	delivery := h.deliveries(hook)[0].ID
	agent := h.SignIn(h.Agent)
	other := h.SignIn(h.NewUser(h.elsewhere, "eve@example.com", "Eve", "admin"))
	for _, p := range []string{hooksPath, hooksPath + "/new"} {
		agent.WantRefused(agent.Get(p), http.StatusForbidden)
	}
	for _, p := range []string{"", "/edit", "/secret", "/replay", "/delete"} {
		agent.WantRefused(agent.Get(hooksPath+"/"+hook.ID+p), http.StatusForbidden)
		other.WantRefused(other.Get(hooksPath+"/"+hook.ID+p), http.StatusNotFound)
	}
	other.WantRefused(other.Get(deliveriesPath+"/"+delivery), http.StatusNotFound)
	typed := url.Values{"confirm": {"receiver.example.com/hook"}, "delivery": {delivery}, "url": {"https://example.org"}, "events": {"*"}, "from": {"2026-01-01T00:00"}, "do": {"pause"}}
	for _, p := range []string{hooksPath + "/" + hook.ID, deliveriesPath + "/" + delivery + "/replay"} {
		agent.WantRefused(agent.Post(p, typed), http.StatusForbidden)
		other.WantRefused(other.Post(p, typed), http.StatusNotFound)
	}
	for _, p := range []string{"/edit", "/state", "/test", "/secret", "/replay", "/delete"} {
		agent.WantRefused(agent.Post(hooksPath+"/"+hook.ID+p, typed), http.StatusForbidden)
		other.WantRefused(other.Post(hooksPath+"/"+hook.ID+p, typed), http.StatusNotFound)
	}
	list := h.hooksOf()
	if len(list) != 1 || list[0].State != webhook.Enabled || list[0].URL != hook.URL || list[0].QueuedEvents != 1 || list[0].HasSecret {
		t.Errorf("got %+v", list)
	}
	other.Page(hooksPath).Want("No webhooks yet.")
}

// deliveriesOf returns all deliveries of a webhook.
func (h *harness) deliveriesOf(w webhook.Webhook) []webhook.Delivery {
	h.t.Helper()
	var out []webhook.Delivery
	if err := h.hooks.Each(h.t.Context(), h.Organization.ID, webhook.Query{WebhookID: w.ID}, func(d *webhook.Delivery) error {
		out = append(out, *d)
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *harness) waiting(w webhook.Webhook) int {
	n := 0
	for _, d := range h.deliveriesOf(w) {
		if d.State == webhook.Pending {
			n++
		}
	}
	return n
}

// A webhook of the fleet has the events of its source, and no settings that it cannot have.
func TestFleetWebhookForm(t *testing.T) {
	h := newHarness(t)
	b := h.admin
	d := b.Page(hooksPath + "/new?source=sandbox")
	d.Want("Fleet sandbox", "ride.started", "vehicle.state_changed", "The events of a vehicle and its rides arrive in order.")
	if text := webtest.Text(d.Root); strings.Contains(text, "ticket.created") || strings.Contains(text, "one at a time") || len(d.WithAttr("name", "payloadForm")) > 0 {
		t.Errorf("the form is that of the helpdesk: %s", text)
	}
	b.WantRefused(b.Post(hooksPath+"/new", set(form(d), "url", "https://example.com/fleet", "events", "ticket.created")), http.StatusUnprocessableEntity).Want("Events is not the name of an event.", "Fleet sandbox")
	d, _ = b.Follow(b.Post(hooksPath+"/new", set(form(d), "url", "https://example.com/fleet", "signing", "none", "events", "ride.started")))
	if fact(d, "Source") != "Fleet sandbox" || fact(d, "Events") != "ride.started" || fact(d, "Order") != "in order for each vehicle" {
		t.Errorf("got %q, %q, %q", fact(d, "Source"), fact(d, "Events"), fact(d, "Order"))
	}
	if len(d.WithAttr("value", "zone.deleted")) == 0 || len(d.WithAttr("value", "sla.breached")) > 0 {
		t.Error("the filter has other events")
	}
	hook := h.hooksOf()[0]
	path := hooksPath + "/" + hook.ID
	d, _ = b.Follow(b.Post(path+"/edit", set(form(b.Page(path+"/edit")), "events", "*")))
	if fact(d, "Events") != "all events" || fact(d, "Source") != "Fleet sandbox" {
		t.Errorf("got %q of %q", fact(d, "Events"), fact(d, "Source"))
	}
	b.Page(hooksPath).Want("All events: Fleet sandbox")
	b.Page(path + "/replay").Want("ride.started")
}
