package chat_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
)

// TestProofCall: only the provider's answer for a bot token proves a workspace.
func TestProofCall(t *testing.T) {
	a := chat.New(chat.Config{APIURL: "https://chat.example"})
	credentials := channel.ConnectionCredentials(a.ProofAPI("T0ACME"), map[string]string{"bot_token": "xoxb-ours"})
	call, err := a.ProofCall("T0ACME", credentials, nil)
	if err != nil || call.Method != "GET" || call.URL != "https://chat.example/api/auth.test" || call.Header.Get("Authorization") != "Bearer xoxb-ours" || call.Body != nil {
		t.Fatalf("the question is %+v, %v", call, err)
	}
	if call, err := a.ProofCall("T0ACME", channel.ConnectionCredentials(a.API(), nil), nil); call != nil || err == nil ||
		err.Error() != "the proof needs the credential bot_token, which the connection does not have" {
		t.Errorf("without a token: %v, %v", call, err)
	}
	const other = "the credential bot_token belongs to another workspace"
	for _, tt := range []struct {
		name, address string
		status        int
		body          string
		want          string // the error; empty if proven
	}{
		{"the workspace's bot", "T0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1","enterprise_id":null,"is_enterprise_install":false}`, ""},
		{"installed for the whole organization", "E0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1","enterprise_id":"E0ACME","is_enterprise_install":true}`, ""},
		{"one workspace of the organization", "E0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1","enterprise_id":"E0ACME","is_enterprise_install":false}`, other},
		{"the organization's, for a workspace", "T0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1","enterprise_id":"E0ACME","is_enterprise_install":true}`, other},
		{"another workspace's bot", "T0ACME", 200, `{"ok":true,"team_id":"T0EVE","bot_id":"B1"}`, other},
		{"a workspace of that name", "T0ACME", 200, `{"ok":true,"team":"T0ACME","team_id":"T0EVE","bot_id":"B1"}`, other},
		{"no workspace", "T0ACME", 200, `{"ok":true,"bot_id":"B1"}`, other},
		{"no organization", "", 200, `{"ok":true,"bot_id":"B1","team_id":"T0EVE","is_enterprise_install":true,"enterprise_id":"E0EVE"}`, other},
		{"a member's token", "T0ACME", 200, `{"ok":true,"team_id":"T0ACME","user_id":"U1"}`, "the credential bot_token is not a bot token"},
		{"a guest's, not accepted", "T0ACME", 200, `{"ok":false,"team_id":"T0ACME","bot_id":"B1","error":"invalid_auth"}`, "the provider rejected the credential bot_token (invalid_auth)"},
		{"no answer to the question", "T0ACME", 200, `{}`, "the provider rejected the credential bot_token ()"},
		{"null", "T0ACME", 200, `null`, "the provider rejected the credential bot_token ()"},
		{"a page", "T0ACME", 200, `<html>T0ACME</html>`, "the provider rejected the request (200)"},
		{"cut short", "T0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1"`, "the provider rejected the request (200)"},
		{"more after it", "T0ACME", 200, `{"ok":true,"team_id":"T0ACME","bot_id":"B1"}{}`, "the provider rejected the request (200)"},
		{"of another type", "T0ACME", 200, `{"ok":"true","team_id":["T0ACME"],"bot_id":"B1"}`, "the provider rejected the request (200)"},
		{"redirected", "T0ACME", 302, `{"ok":true,"team_id":"T0ACME","bot_id":"B1"}`, "the provider rejected the request (302)"},
		{"refused", "T0ACME", 403, `{"ok":true,"team_id":"T0ACME","bot_id":"B1"}`, "the provider rejected the request (403)"},
		{"nothing", "T0ACME", 200, ``, "the provider rejected the request (200)"},
	} {
		call, err := a.ProofCall(tt.address, credentials, []channel.Response{{Status: tt.status, Body: []byte(tt.body)}})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || call != nil {
			t.Errorf("%s: %v, %q, want %q", tt.name, call, got, tt.want)
		}
	}
	long := []byte(`{"ok":false,"error":"` + strings.Repeat("x", 1<<20) + "\x1b[2J" + `"}`)
	if _, err := a.ProofCall("T0ACME", credentials, []channel.Response{{Status: 200, Body: long}}); err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a long error: %.80v", err)
	}
}
