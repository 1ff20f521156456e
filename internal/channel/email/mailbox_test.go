package email

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

func TestParseAccount(t *testing.T) {
	login := map[string]string{CredentialIMAP: "imaps://mail.example", CredentialPassword: "hush"}
	with := func(base map[string]string, more ...string) map[string]string {
		m := make(map[string]string)
		maps.Copy(m, base)
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		name                  string
		settings, credentials map[string]string
		wrong                 string // a part of the error; empty: none
	}{
		{"IMAP only", nil, login, ""},
		{"SMTP only", nil, map[string]string{CredentialServer: "smtps://ana:hush@mail.example"}, ""},
		{"a token", nil, map[string]string{CredentialIMAP: "imaps://mail.example", CredentialProvider: ProviderGoogle}, ""},
		{"all settings", map[string]string{SettingFolders: "INBOX, Support", SettingImportDays: "7", SettingAliases: "Sales@acme.example, @acme.org", SettingTrusted: "mx.acme.example, mx.google.com", SettingMarkSeen: "true", SettingMoveTo: "Done", SettingSent: "auto"}, login, ""},
		{"nothing", nil, nil, "credentials.imap_url is required"},
		{"no password", nil, map[string]string{CredentialIMAP: "imaps://mail.example"}, "credentials.password is required"},
		{"a token without IMAP", nil, map[string]string{CredentialServer: "smtps://mail.example", CredentialProvider: ProviderGoogle}, "credentials.imap_url is required"},
		{"another provider", nil, with(login, CredentialProvider, "example"), "credentials.oauth must be"},
		{"a password in the address", nil, with(login, CredentialIMAP, "imaps://ana:hush@mail.example"), "must not have user or password"},
		{"another scheme", nil, with(login, CredentialIMAP, "https://hush@mail.example"), "must begin with imaps://"},
		{"no host", nil, with(login, CredentialIMAP, "imaps://:hush"), "must be an address such as"},
		{"a port of none", nil, with(login, CredentialIMAP, "imaps://mail.example:0"), "must have a port"},
		{"days", map[string]string{SettingImportDays: "366"}, login, "settings.import_days"},
		{"a server", map[string]string{SettingTrusted: "mx acme"}, login, "settings.auth_servers"},
		{"a choice", map[string]string{SettingMarkSeen: "yes"}, login, "settings.mark_seen"},
		{"a folder within", map[string]string{SettingMoveTo: "INBOX"}, login, "settings.move_to must not be a folder that is read"},
		{"a line end", map[string]string{SettingFolders: "IN\r\nBOX"}, login, "settings.folders"},
		{"many folders", map[string]string{SettingFolders: strings.Join(strings.Fields(strings.Repeat("x ", 3)+"a b c d e f g h i j k l m n o p q r s t u v"), ",")}, login, "at most 20 folders"},
		{"an alias", map[string]string{SettingAliases: "sales"}, login, "settings.aliases"},
		{"a domain", map[string]string{SettingAliases: "@"}, login, "settings.aliases"},
	} {
		a, err := ParseAccount("help@acme.example", tt.settings, tt.credentials)
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.wrong)
		}
		if tt.name == "all settings" && (len(a.Folders) != 2 || a.ImportDays != 7 || !a.Owns("sales@acme.example") || !a.Owns("x@acme.org") || a.Owns("x@acme.example") || !a.Owns("help@acme.example")) {
			t.Errorf("got %+v", a)
		}
	}
}

// TestMailboxTrust: the results of a server count if the mailbox names it, else if the deployment does.
func TestMailboxTrust(t *testing.T) {
	a := NewMailbox(Config{TrustedAuthServers: []string{"mx.acme.example"}})
	for _, tt := range []struct {
		server, setting string
		proven          bool
	}{
		{"mx.acme.example", "", true},
		{"mx.other.example", "", false},
		{"mx.other.example", "mx.third.example, MX.other.example", true},
		{"mx.acme.example", "mx.other.example", false},
	} {
		r := &channel.Request{
			Body:     []byte("Authentication-Results: " + tt.server + "; dkim=pass header.d=client.example\r\nFrom: ana@client.example\r\nSubject: Lamp\r\n\r\nHi\r\n"),
			Header:   http.Header{"X-Envelope-To": {"help@acme.example"}, "Content-Type": {"message/rfc822"}},
			Received: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Settings: map[string]string{SettingTrusted: tt.setting}, TXT: map[string][]string{},
		}
		e, err := a.Parse(r, channel.Part{Address: "help@acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Message.Mail.Proof.Proven(); got != tt.proven {
			t.Errorf("%s with the setting %q: proven = %t, %s", tt.server, tt.setting, got, e.Message.Mail.Proof.Reason)
		}
	}
}

// TestServerURL: the mail server gets the login of the mailbox, and TLS is required.
func TestServerURL(t *testing.T) {
	a := Account{User: "help@acme.example", Password: "p/w"}
	for raw, want := range map[string]string{
		"":                             "",
		"smtps://mail.example":         "smtps://help%40acme.example:p%2Fw@mail.example",
		"smtp://mail.example:25":       "smtp://help%40acme.example:p%2Fw@mail.example:25?tls=required",
		"smtps://ana:pw@mail.example":  "smtps://ana:pw@mail.example",
		"smtp://mail.example?ehlo=a.b": "smtp://help%40acme.example:p%2Fw@mail.example?ehlo=a.b&tls=required",
	} {
		if got := a.ServerURL(raw); got != want {
			t.Errorf("of %s: got %s, want %s", raw, got, want)
		}
	}
	a = Account{User: "help@acme.example", Provider: ProviderGoogle}
	if got := a.ServerURL("smtps://ana:pw@mail.example"); got != "smtps://mail.example" {
		t.Errorf("with a token: got %s", got)
	}
}
