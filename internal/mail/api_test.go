package mail_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/mail/mailtest"
)

func openAPI(t *testing.T, p *mailtest.Provider) *mail.HTTPSender {
	t.Helper()
	a, err := mail.OpenAPI(p.URL, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAPIConformance(t *testing.T) {
	mailtest.Run(t, func(t *testing.T) mailtest.Fixture {
		p := mailtest.NewProvider(t, nil)
		return mailtest.Fixture{Sender: openAPI(t, p), Received: p.Received, OwnEnvelope: true}
	})
}

func TestAPIMessage(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	id, err := openAPI(t, p).SendTracked(t.Context(), mail.Message{
		ID:      "0190c0de-0000-7000-8000-000000000001",
		From:    mail.Address{Name: `Acme "Wheels", Inc.`, Address: "support@acme.example"},
		To:      []mail.Address{{Name: "Ana Lind", Address: "ana@bücher.example"}},
		Cc:      []mail.Address{{Address: "bob@client.example"}},
		ReplyTo: mail.Address{Address: "support@acme.example"},
		Subject: "Re: Lamp [Ticket #7]", Text: "Hello", HTML: "<p>Hello</p>", MessageID: "<t.1.2@acme.example>",
		Headers: []mail.Header{
			{Name: "In-Reply-To", Value: "<c1@client.example>"},
			{Name: "References", Value: "<c1@client.example> <t.1.2@acme.example>"},
			{Name: "X-Helpdesk-Message", Value: "2.abc"},
		},
		Attachments: []mail.Attachment{{Name: "dir/a.pdf", ContentType: "application/pdf", Content: []byte("%PDF\x00\xff")}},
	}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	got := p.Deliveries()
	if len(got) != 1 || id == "" || id != got[0].ID {
		t.Fatalf("Carry() = %q, delivered %+v", id, got)
	}
	want := mailtest.Posted{
		ID: id, IdempotencyKey: "0190c0de-0000-7000-8000-000000000001",
		From: `"Acme \"Wheels\", Inc." <support@acme.example>`, To: []string{"Ana Lind <ana@xn--bcher-kva.example>"}, Cc: []string{"bob@client.example"},
		ReplyTo: "support@acme.example", Subject: "Re: Lamp [Ticket #7]", Text: "Hello", HTML: "<p>Hello</p>",
		Headers: map[string]string{
			"Message-ID": "<t.1.2@acme.example>", "In-Reply-To": "<c1@client.example>",
			"References": "<c1@client.example> <t.1.2@acme.example>", "X-Helpdesk-Message": "2.abc",
		},
		Attachments: map[string]string{"a.pdf": "%PDF\x00\xff"},
		Tags:        map[string]string{"message": "0190c0de-0000-7000-8000-000000000001"},
	}
	if g := got[0].Plain(); !reflect.DeepEqual(g, want) {
		t.Errorf("delivered\n%+v\nwant\n%+v", g, want)
	}
}

// TestAPIRepeats loses the response and retries.
func TestAPIRepeats(t *testing.T) {
	p := mailtest.NewProvider(t, func(n int, _ *http.Request) *mailtest.Trouble {
		if n == 1 {
			return &mailtest.Trouble{Taken: true} // and the connection breaks
		}
		return nil
	})
	a := openAPI(t, p)
	m := message()
	m.ID, m.MessageID = "m-1", "m-1@rentals.example"
	_, err := a.SendTracked(t.Context(), m, func() error { return nil })
	e, ok := errors.AsType[*mail.Error](err)
	if !ok || !e.Unclear || !e.Temporary || !e.API {
		t.Fatalf("Carry() = %#v, want an unclear error", err)
	}
	id, err := a.SendTracked(t.Context(), m, func() error { return nil })
	if got := p.Deliveries(); err != nil || len(got) != 1 || got[0].ID != id {
		t.Errorf("Carry() again = %q, %v; delivered %+v; want the one mail", id, err, got)
	}
	m.Text = "Something else."
	_, err = a.SendTracked(t.Context(), m, func() error { return nil })
	if e, ok := errors.AsType[*mail.Error](err); !ok || !e.Unclear || e.Temporary || e.Code != http.StatusConflict {
		t.Errorf("Carry() of another mail under the same id = %#v, want that it is unclear, and for good", err)
	}
	if got := len(p.Deliveries()); got != 1 {
		t.Errorf("%d mails were delivered, want 1", got)
	}
}

func TestAPIRefusals(t *testing.T) {
	for _, tt := range []struct {
		trouble mailtest.Trouble
		want    mail.Error
		again   bool // Retry's result after the first failure
		wait    time.Duration
	}{
		{mailtest.Trouble{Status: 401, Name: "missing_api_key", Text: "Missing API key"}, mail.Error{Op: mail.OpLogin, Code: 401, Text: "Missing API key"}, true, 5 * time.Second},
		{mailtest.Trouble{Status: 403, Name: "invalid_api_key", Text: "API key is invalid"}, mail.Error{Op: mail.OpLogin, Code: 403, Text: "API key is invalid"}, true, 5 * time.Second},
		{
			mailtest.Trouble{Status: 403, Name: "validation_error", Text: "The acme.example domain is not verified."},
			mail.Error{Op: mail.OpSender, Code: 403, Text: "The acme.example domain is not verified."}, false, 0,
		},
		{mailtest.Trouble{Status: 422, Name: "invalid_from_address", Text: "Invalid `from` field."}, mail.Error{Op: mail.OpSender, Code: 422, Text: "Invalid `from` field."}, false, 0},
		{mailtest.Trouble{Status: 422, Name: "validation_error", Text: "two\nlines"}, mail.Error{Op: mail.OpContent, Code: 422, Text: "two lines"}, false, 0},
		{mailtest.Trouble{Status: 413}, mail.Error{Op: mail.OpContent, Code: 413, Text: "Request Entity Too Large"}, false, 0},
		{
			mailtest.Trouble{Status: 429, Name: "rate_limit_exceeded", Text: "Too many requests", Header: http.Header{"Retry-After": {"120"}}},
			mail.Error{Op: mail.OpContent, Code: 429, Temporary: true, RetryAfter: 2 * time.Minute, Text: "Too many requests"}, true, 2 * time.Minute,
		},
		{
			mailtest.Trouble{Status: 429, Text: "Quota", Header: http.Header{"Retry-After": {"99999999"}}},
			mail.Error{Op: mail.OpContent, Code: 429, Temporary: true, RetryAfter: 24 * time.Hour, Text: "Quota"}, true, 24 * time.Hour,
		},
		{mailtest.Trouble{Status: 409, Name: "concurrent_idempotent_requests", Text: "Busy"}, mail.Error{Op: mail.OpContent, Code: 409, Temporary: true, Unclear: true, Text: "Busy"}, true, 5 * time.Second},
		{mailtest.Trouble{Status: 500, Text: "Oops"}, mail.Error{Op: mail.OpContent, Code: 500, Temporary: true, Unclear: true, Text: "Oops"}, true, 5 * time.Second},
		{mailtest.Trouble{Status: 503, Text: "Later"}, mail.Error{Op: mail.OpContent, Code: 503, Temporary: true, Text: "Later"}, true, 5 * time.Second},
		{mailtest.Trouble{Status: 404, Text: "No such page"}, mail.Error{Op: mail.OpConnect, Code: 404, Temporary: true, Text: "No such page"}, true, 5 * time.Second},
		{
			mailtest.Trouble{Status: 200, Text: "Welcome to our web site"},
			mail.Error{Op: mail.OpContent, Code: 200, Temporary: true, Unclear: true, Text: "the response has no message id; check the API's address"}, true, 5 * time.Second,
		},
		{mailtest.Trouble{Status: 302, Header: http.Header{"Location": {"/"}}}, mail.Error{Op: mail.OpConnect, Code: 302, Temporary: true, Text: "Found"}, true, 5 * time.Second},
	} {
		p := mailtest.NewProvider(t, func(int, *http.Request) *mailtest.Trouble { return &tt.trouble })
		err := openAPI(t, p).Send(t.Context(), message())
		got, ok := errors.AsType[*mail.Error](err)
		if !ok {
			t.Errorf("%d: Send() = %v, want a *mail.Error", tt.trouble.Status, err)
			continue
		}
		tt.want.API, tt.want.Server = true, strings.TrimPrefix(p.URL, "http://")
		if *got != tt.want {
			t.Errorf("%d %s: Send() = %+v, want %+v", tt.trouble.Status, tt.trouble.Name, *got, tt.want)
		}
		if wait, again := mail.Retry(1, err); again != tt.again || wait != tt.wait {
			t.Errorf("%d %s: Retry() = %s, %t; want %s, %t", tt.trouble.Status, tt.trouble.Name, wait, again, tt.wait, tt.again)
		}
		if p.Calls() != 1 {
			t.Errorf("%d: %d calls, want 1", tt.trouble.Status, p.Calls())
		}
	}
}

func TestAPIUnreachable(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	a, err := mail.OpenAPI(server.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	err = a.Send(t.Context(), message())
	if e, ok := errors.AsType[*mail.Error](err); !ok || e.Op != mail.OpConnect || !e.Temporary || e.Unclear {
		t.Errorf("Send() = %#v, want a temporary failure to connect", err)
	}
}

// TestAPICancelled cancels during the call: the provider may have accepted the mail.
func TestAPICancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := mailtest.NewProvider(t, func(int, *http.Request) *mailtest.Trouble {
		cancel()
		return &mailtest.Trouble{Taken: true}
	})
	_, err := openAPI(t, p).SendTracked(ctx, message(), func() error { return nil })
	if e, ok := errors.AsType[*mail.Error](err); !ok || !e.Unclear {
		t.Errorf("Carry() = %#v, want an unclear error", err)
	}
}

// TestAPIKeyIsKept: no form of printing shows the key.
func TestAPIKeyIsKept(t *testing.T) {
	key := "re_" + "abc123"
	p := mailtest.NewProvider(t, func(_ int, r *http.Request) *mailtest.Trouble {
		return &mailtest.Trouble{Status: 401, Text: "not " + r.Header.Get("Authorization")}
	})
	a, err := mail.OpenAPI(p.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	err = a.Send(t.Context(), message())
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", a, a)} {
		if strings.Contains(text, key) {
			t.Errorf("%s tells the key", text)
		}
	}
	if !strings.Contains(err.Error(), "[redacted]") {
		t.Errorf("Send() = %v, want what the provider said", err)
	}
}

func TestOpenAPI(t *testing.T) {
	for _, tt := range []struct {
		base, key string
		ok        bool
	}{
		{mail.DefaultAPIURL, "re_1", true},
		{"https://proxy.example/resend/", "re_1", true},
		{"api.resend.com", "re_1", false},
		{"ftp://api.resend.com", "re_1", false},
		{"https://user:secret@api.resend.com", "re_1", false},
		{"https://api.resend.com?key=secret", "re_1", false},
		{mail.DefaultAPIURL, "", false},
		{mail.DefaultAPIURL, "secret\r\nX: y", false},
	} {
		_, err := mail.OpenAPI(tt.base, tt.key)
		if (err == nil) != tt.ok {
			t.Errorf("OpenAPI(%q, %q): %v, want it taken: %t", tt.base, tt.key, err, tt.ok)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("OpenAPI(%q, %q): %v tells a secret", tt.base, tt.key, err)
		}
	}
}

// TestAPIHeaders: the headers of a mail are always in the same order, because the idempotency
// key stands for the content.
func TestAPIHeaders(t *testing.T) {
	p := mailtest.NewProvider(t, nil)
	a := openAPI(t, p)
	m := message()
	m.ID, m.MessageID = "m-1", "m-1@rentals.example"
	for i := range 20 {
		m.Headers = append(m.Headers, mail.Header{Name: fmt.Sprintf("X-%d", i), Value: "v"})
	}
	for range 20 {
		if err := a.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got := p.Deliveries()
	if len(got) != 1 || len(slices.Collect(maps.Keys(got[0].Headers))) != 21 {
		t.Errorf("delivered %+v, want one mail with 21 headers", got)
	}
}
