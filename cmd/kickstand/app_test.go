package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestAPITrigger: every event of an app is accepted with the secret of its channel, and none without.
func TestAPITrigger(t *testing.T) {
	t.Parallel()
	data := "--data=" + t.TempDir()
	command(t, nil, "org", "create", data, "--name=Acme")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"channel", "connect", "api", data, "--org=acme", "--address=app", "--json"}, noEnvironment, nil, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	var made struct {
		ID      string   `json:"id"`
		Secrets []string `json:"secrets"`
	}
	if err := json.Unmarshal(out.Bytes(), &made); err != nil || made.ID == "" || len(made.Secrets) != 1 {
		t.Fatalf("connected %s, %v", out.String(), err)
	}
	s := start(t, data)
	args := []string{"trigger", "api", "--json", "--base-url=" + s.url, "--api-channel=" + made.ID}
	for _, event := range apiTrigger().events {
		out.Reset()
		want := "accepted"
		if event == "test" {
			want = "ignored"
		}
		if err := run(t.Context(), append(args, "--api-secret="+made.Secrets[0], "--event="+event), noEnvironment, nil, &out, t.Output()); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s, want %s", event, err, out.String(), want)
		}
	}
	for want, args := range map[string][]string{
		"--api-secret":              args,
		"1 of 1 requests":           append(args, "--api-secret=a secret of another channel"),
		"--api-channel must be the": {"trigger", "api", "--base-url=" + s.url, "--api-secret=" + made.Secrets[0]},
	} {
		if err := run(t.Context(), args, noEnvironment, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
