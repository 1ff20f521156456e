package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPublicServeRefusesWithoutMail: a server with a public base URL and no way to send
// mail neither starts nor creates files.
func TestPublicServeRefusesWithoutMail(t *testing.T) {
	for _, baseURL := range []string{"https://help.example.com", "http://192.168.1.7:8080", "https://localhost.example.com"} {
		data := filepath.Join(t.TempDir(), "data")
		// Ends a server that starts nevertheless, with another error.
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		err := run(ctx, []string{"serve", "--listen=127.0.0.1:0", "--base-url=" + baseURL, "--data=" + data}, noEnvironment, nil, io.Discard, t.Output())
		stop()
		if _, wrong := errors.AsType[usageError](err); !wrong {
			t.Fatalf("%s: got error %v, want a refusal", baseURL, err)
		}
		for _, setting := range []string{"KICKSTAND_SMTP_URL", "KICKSTAND_EMAIL_DELIVERY_API_KEY", "KICKSTAND_MAIL_FROM", "KICKSTAND_ALLOW_NO_MAIL"} {
			if !strings.Contains(err.Error(), setting) {
				t.Errorf("%q does not name %s", err, setting)
			}
		}
		if _, err := os.Stat(data); err == nil {
			t.Error("the data folder was made")
		}
	}
}
