package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// signUp creates an organization as a sign-up does.
func signUp(t *testing.T, a *App, name string) account.Organization {
	t.Helper()
	o, err := a.signUp(t, name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// signUp creates a user with a verified address and completes the sign-up.
func (a *App) signUp(t *testing.T, name string) (account.Organization, error) {
	t.Helper()
	id := strings.ToLower(name)
	err := a.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO users (id, email, email_key, name, preferences, created_at, updated_at)
			VALUES ($1, $2, $2, '', '{}', $3, $3)`, id, id+"@client.example", tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done, err := a.Accounts.CompleteSignup(t.Context(), id, account.SignupRequest{Name: name, OrganizationName: name})
	return done.Organization, err
}

// TestDefaultSignUp: by default, sign-up is open on a loopback address only.
func TestDefaultSignUp(t *testing.T) {
	for _, tt := range []struct {
		baseURL, setting string
		admitted         bool
	}{
		{"http://localhost:8080", "", true},
		{"http://127.0.0.1:8080", "", true},
		{publicURL, "", false},
		{"http://192.168.1.7:8080", "", false},
		{publicURL, "open", true},
		{"http://localhost:8080", "invited", false},
	} {
		t.Run(tt.baseURL+" "+tt.setting, func(t *testing.T) {
			a := deployment(t, tt.baseURL, quiet, func(c *Config) { c.SignUp = tt.setting })
			_, err := a.signUp(t, "Stranger")
			if tt.admitted && err != nil {
				t.Errorf("CompleteSignup() = %v", err)
			}
			if !tt.admitted && problem.Of(err) != problem.Forbidden {
				t.Errorf("CompleteSignup() = %v, want it refused", err)
			}
		})
	}
}

// mail posts a mail signed with the deployment's secret to an unconnected address, and
// returns the stored event.
func (a *App) mail(t *testing.T, id string, more ...string) *inbound.StoredEvent {
	t.Helper()
	body := "From: ana@client.example\r\nTo: lost@acme.example\r\nSubject: Help\r\nMessage-ID: <" + id + "@client.example>\r\n\r\nHello\r\n" + strings.Join(more, "")
	r := httptest.NewRequest("POST", a.BaseURL+"/api/webhooks/inbound-email", strings.NewReader(body))
	r.Header.Set("Content-Type", "message/rfc822")
	r.Header.Set("X-Envelope-To", "lost@acme.example")
	signature, timestamp := email.SignRaw([]byte(body), time.Now(), deploymentSigns)
	r.Header.Set("X-Webhook-Signature", signature)
	r.Header.Set("X-Webhook-Timestamp", timestamp)
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("a signed mail is answered %d %s", w.Code, w.Body)
	}
	list, err := a.Inbound.List(t.Context(), inbound.Filter{Limit: 1})
	if err != nil || len(list) != 1 {
		t.Fatalf("List() = %v, %v", list, err)
	}
	want := `{"status":"accepted"}`
	if list[0].State == inbound.Unrouted {
		want = `{"status":"ignored"}`
	}
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("the mail is %s and answered %s, want %s", list[0].State, got, want)
	}
	return list[0]
}

const deploymentSigns = "signs for the deployment"

// TestSecondSignUpNeverReroutesMail: a later sign-up neither receives nor blocks mail of
// the default organization.
func TestSecondSignUpNeverReroutesMail(t *testing.T) {
	for _, tt := range []struct {
		baseURL string
		first   func(t *testing.T, a *App) account.Organization
	}{
		{"http://localhost:8080", func(t *testing.T, a *App) account.Organization { return signUp(t, a, "First") }},
		{publicURL, func(t *testing.T, a *App) account.Organization {
			o, err := a.Accounts.CreateOrganization(t.Context(), account.NewOrganization{Name: "Acme"})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}},
	} {
		t.Run(tt.baseURL, func(t *testing.T) {
			a := deployment(t, tt.baseURL, quiet, shared)
			first := tt.first(t, a)
			if e := a.mail(t, "one"); e.OrganizationID != first.ID || e.State != inbound.Accepted {
				t.Errorf("before: the mail is %s of %q, want it to be of %s", e.State, e.OrganizationID, first.ID)
			}
			for i := range 2 {
				newcomer := signUp(t, a, fmt.Sprint("Mallory", i))
				if e := a.mail(t, fmt.Sprint("after", i)); e.OrganizationID != first.ID || e.State != inbound.Accepted || e.OrganizationID == newcomer.ID {
					t.Errorf("after: the mail is %s of %q, want it to be of %s", e.State, e.OrganizationID, first.ID)
				}
			}
		})
	}
}

// TestSignedUpNeverGetsUnconnectedMail: at a public base URL, mail to unconnected
// addresses stays unrouted until the operator creates or names a default organization.
func TestSignedUpNeverGetsUnconnectedMail(t *testing.T) {
	a := deployment(t, publicURL, quiet, shared)
	only := signUp(t, a, "Mallory")
	lost := a.mail(t, "one")
	if lost.State != inbound.Unrouted || lost.OrganizationID != "" {
		t.Errorf("the mail is %s of %q, want it unrouted", lost.State, lost.OrganizationID)
	}
	if _, err := a.Inbound.Replay(t.Context(), lost.ID); err == nil {
		t.Error("a replay gave the mail to somebody")
	}
	if _, err := a.Accounts.SetDefaultOrganization(t.Context(), only.Slug); err != nil {
		t.Fatal(err)
	}
	if e := a.mail(t, "two"); e.State != inbound.Accepted || e.OrganizationID != only.ID {
		t.Errorf("the operator named it: the mail is %s of %q, want it to be of %s", e.State, e.OrganizationID, only.ID)
	}
	if e, err := a.Inbound.Replay(t.Context(), lost.ID); err != nil || e.OrganizationID != only.ID {
		t.Errorf("Replay() = %+v, %v", e, err)
	}
}

// TestOperatorMailIsEnqueued: notices to the configured address are sent by the queue.
func TestOperatorMailIsEnqueued(t *testing.T) {
	a := deployment(t, publicURL, quiet, shared, func(c *Config) { c.OperatorMail = "Ops <ops@help.example>" })
	a.mail(t, "one")
	for range 2 {
		if err := a.Inbound.NotifyOperator(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var lane string
	var mails int
	if err := a.DB.QueryRow(t.Context(), "SELECT max(lane), count(*) FROM jobs WHERE kind = $1", mailKind).Scan(&lane, &mails); err != nil || mails != 1 || lane != "ops@help.example" {
		t.Errorf("%d mails to %s, %v; want one to the operator", mails, lane, err)
	}
	if _, err := (Config{OperatorMail: "nobody"}).operator(); err == nil {
		t.Error("an address that is none was taken")
	}
}

// shared configures a deployment-wide secret for mail and open sign-up.
func shared(c *Config) {
	c.Secrets = map[string][]string{"email-raw": {deploymentSigns}}
	c.SignUp = "open"
}
