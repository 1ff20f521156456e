package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDemoSends: a reply to the newest ticket of each channel goes to the stand-in of its provider,
// and is delivered or at least sent; a reply by mail is in the mailbox.
func TestDemoSends(t *testing.T) {
	t.Chdir(t.TempDir())
	demo := startDemo(t)
	call := func(method, path string, body any) (data json.RawMessage) {
		t.Helper()
		var in io.Reader
		if body != nil {
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			in = bytes.NewReader(b)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, demo.URL+"/api/v1"+path, in)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+demo.LiveKey)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %s, %v\n%s", method, path, resp.Status, err, b)
		}
		var answer struct {
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Data == nil {
			return b
		}
		return answer.Data
	}
	for channel, want := range map[string]string{
		"sms": "delivered", "voice": "delivered", "chat": "sent", "business_messaging": "read", "social_messenger": "read", "email": "sent", "api": "read",
	} {
		t.Run(channel, func(t *testing.T) {
			var tickets []struct {
				ID     string `json:"id"`
				Number int64  `json:"number"`
			}
			if err := json.Unmarshal(call(http.MethodGet, "/tickets?limit=1&channel="+url.QueryEscape(channel), nil), &tickets); err != nil || len(tickets) == 0 {
				t.Fatalf("tickets: %v, %v", tickets, err)
			}
			text := "We are on our way, " + channel
			var sent struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(call(http.MethodPost, "/tickets/"+tickets[0].ID+"/messages", map[string]any{"kind": "reply", "text": text}), &sent); err != nil || sent.ID == "" {
				t.Fatalf("message: %+v, %v", sent, err)
			}
			state, asked := "", time.Time{}
			for range poll(t, 20*time.Second) {
				if time.Since(asked) < 200*time.Millisecond { // the key's rate limit
					continue
				}
				asked = time.Now()
				var m struct {
					Delivery struct {
						State string `json:"state"`
					} `json:"delivery"`
				}
				if err := json.Unmarshal(call(http.MethodGet, "/messages/"+sent.ID, nil), &m); err != nil {
					t.Fatal(err)
				}
				if state = m.Delivery.State; state == want {
					break
				}
			}
			if state != want {
				t.Errorf("the message is %q, want %q", state, want)
			}
		})
	}
	t.Run("test buttons", func(t *testing.T) { testDemoChannels(t, demo) })
	resp, err := http.Get(demo.URL + "/dev/mailbox")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if page, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(page), "Re: ") {
		t.Errorf("the mailbox shows no reply (%v)", err)
	}
}

// testDemoChannels presses the test button of each channel as the admin: nothing fails against the
// stand-ins, and each channel receives.
func testDemoChannels(t *testing.T, demo *demoServer) {
	client := browser(t)
	page := func(method, path string, form url.Values) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, demo.URL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		status, body := send(t, client, req)
		if status != http.StatusOK && (path != "/sign-in" || status != http.StatusSeeOther) {
			t.Fatalf("%s %s: %d %s", method, path, status, body)
		}
		return body
	}
	page("POST", "/sign-in", url.Values{"email": {demo.Email}, "password": {demo.Password}})
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(`/settings/channels/([0-9a-f-]{36})"`).FindAllStringSubmatch(page("GET", "/settings/channels", nil), -1) {
		ids[m[1]] = true
	}
	if len(ids) != len(demoConnections) {
		t.Fatalf("%d channels, want %d", len(ids), len(demoConnections))
	}
	for id := range ids {
		_, results, _ := strings.Cut(page("POST", "/settings/channels/"+id+"/test", nil), `id="results">`)
		results, _, _ = strings.Cut(results, "</dl>")
		if !strings.Contains(results, "Works") || strings.Contains(results, "Fails") {
			t.Errorf("a channel's test: %s", results)
		}
	}
}
