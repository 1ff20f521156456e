package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestMailboxFlags: an error of a mailbox names the flag to correct.
func TestMailboxFlags(t *testing.T) {
	settings := []string{"--data=" + t.TempDir(), "--database-url=" + dbtest.URL(t), "--base-url=https://help.example.com"}
	try := func(args ...string) string {
		var out bytes.Buffer
		err := run(t.Context(), append(args, settings...), noEnvironment, nil, &out, &out)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if err := try("org", "create", "--name=Acme"); err != "" {
		t.Fatal(err)
	}
	connect := []string{"channel", "connect", "mailbox", "--org=acme", "--address=help@acme.example"}
	for flag, args := range map[string][]string{
		"--imap":     {"--imap=pop3://mail.acme.example", "--password=x"},
		"--smtp":     {"--imap=imaps://mail.acme.example", "--smtp=http://mail.acme.example", "--password=x"},
		"--password": {"--imap=imaps://mail.acme.example"},
		"--oauth":    {"--imap=imaps://mail.acme.example", "--oauth=aol"},
	} {
		if got := try(slices.Concat(connect, args)...); !strings.HasPrefix(got, flag+" must") && !strings.HasPrefix(got, flag+" is") {
			t.Errorf("%v: got %q", args, got)
		}
	}
}
