package app

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/rest/deskapi"
)

// watched is a body that never arrives, and records whether it is read.
type watched struct{ read bool }

func (b *watched) Read([]byte) (int, error) {
	b.read = true
	return 0, errors.New("the body is read")
}
func (*watched) Close() error { return nil }

// early sends a request with a body that must not be read, with and without
// Content-Length, and returns the common status.
func early(t *testing.T, a *App, what, method, path string, header map[string]string) int {
	t.Helper()
	status := 0
	for _, length := range []int64{1000, -1} {
		w, read := unread(a, method, path, header, length)
		if read {
			t.Errorf("%s: %s %s reads a body of length %d before the proof", what, method, path, length)
		}
		status = w.Code
	}
	return status
}

func unread(a *App, method, path string, header map[string]string, length int64) (*httptest.ResponseRecorder, bool) {
	body := new(watched)
	r := httptest.NewRequest(method, path, io.NopCloser(body))
	_, r.Host, _ = strings.Cut(a.BaseURL, "://")
	r.ContentLength = length
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w, body.read
}

const earlySecret = "early secret"

// wellFormed returns the signature headers of every channel, as a client without a key
// can forge them.
func wellFormed(at time.Time) map[string]string {
	unix := strconv.FormatInt(at.Unix(), 10)
	sum := base64.StdEncoding.EncodeToString(make([]byte, 32))
	return map[string]string{
		"X-Sms-Signature":             base64.StdEncoding.EncodeToString(make([]byte, 20)),
		"X-Hub-Signature-256":         "sha256=" + strings.Repeat("0", 64),
		"X-Voice-Signature":           strings.Repeat("0", 64),
		"X-Storefront-Hmac-Sha256":    sum,
		"X-Shopify-Hmac-Sha256":       sum,
		chat.SignatureHeader:          "v0=" + strings.Repeat("0", 64),
		chat.TimestampHeader:          unix,
		payments.SignatureHeader:      "t=" + unix + ",v1=" + strings.Repeat("0", 64),
		email.DeliveryIDHeader:        "m1",
		email.DeliveryTimestampHeader: unix,
		email.DeliverySignatureHeader: "v1," + sum,
		email.ParseTimestampHeader:    unix,
		email.ParseSignatureHeader:    sum,
		"X-Webhook-Signature":         strings.Repeat("0", 64),
		"X-Webhook-Timestamp":         unix,
	}
}

// inBody lists the channels with the proof in the body.
var inBody = []string{"email-form", "voice", "marketplace"}

// TestHeaderProofComesBeforeBody: a wrong proof, or form of a signature, in URL or
// headers is refused before the body is read. So is every request for an unused channel.
func TestHeaderProofComesBeforeBody(t *testing.T) {
	a := deployment(t, publicURL, quiet)
	idle := make(map[string]bool)
	for _, ad := range posted(a) {
		for _, path := range append([]string{ad.Info().Path}, ad.Info().Aliases...) {
			idle[path] = true
		}
	}
	t.Run("channels that nobody uses", func(t *testing.T) {
		for path := range idle {
			for _, contentType := range []string{"application/json", "application/x-www-form-urlencoded", "message/rfc822"} {
				h := wellFormed(time.Now())
				h["Content-Type"] = contentType
				early(t, a, "idle", "POST", path, h)
				early(t, a, "idle", "POST", path, map[string]string{"Content-Type": contentType, "Authorization": "Bearer " + earlySecret})
			}
		}
	})
	secrets := make(map[string][]string)
	for _, ad := range a.adapters {
		if name := ad.Info().Name; name != "marketplace" { // it has a development topic on this machine
			secrets[name] = []string{earlySecret}
		}
	}
	a = deployment(t, "http://localhost:8080", quiet, func(c *Config) { c.Secrets = secrets })
	for _, ad := range posted(a) {
		t.Run(ad.Info().Name, func(t *testing.T) { earlyChannel(t, a, ad) })
	}
	t.Run("tRPC", func(t *testing.T) { earlyProcedures(t) })
	t.Run("REST", func(t *testing.T) { earlyREST(t) })
	t.Run("pages", func(t *testing.T) { earlyPages(t) })
}

// posted returns the adapters with an endpoint.
func posted(a *App) (list []channel.Adapter) {
	for _, ad := range a.adapters {
		if !ad.Info().Collected {
			list = append(list, ad)
		}
	}
	return list
}

func earlyChannel(t *testing.T, a *App, ad channel.Adapter) {
	info := ad.Info()
	types := map[string]string{
		"sms": "application/x-www-form-urlencoded", "email-form": "multipart/form-data; boundary=b", "email-parse": "multipart/form-data; boundary=b", "email-raw": "message/rfc822",
	}
	contentType := types[info.Name]
	if contentType == "" {
		contentType = "application/json"
	}
	with := func(base map[string]string, more ...string) map[string]string {
		h := map[string]string{"Content-Type": contentType}
		maps.Copy(h, base)
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	bodyProof := slices.Contains(inBody, info.Name)
	style := ""
	if i := strings.LastIndexByte(info.Name, '-'); strings.HasPrefix(info.Name, "email-") && info.Name != "email-delivery" {
		style = "?style=" + info.Name[i+1:]
	}
	for _, path := range append([]string{info.Path}, info.Aliases...) {
		if !bodyProof {
			early(t, a, "no proof", "POST", path+style, with(nil))
			misshapen := wellFormed(time.Now())
			for name := range misshapen {
				misshapen[name] = "x"
			}
			early(t, a, "misshapen", "POST", path+style, with(misshapen))
		}
		if slices.Contains([]string{"chat", "payments", "payments-connect", "email-parse", "email-delivery", "email-raw"}, info.Name) {
			early(t, a, "an old signature", "POST", path+style, with(wellFormed(time.Now().Add(-time.Hour))))
			early(t, a, "a signature from the future", "POST", path+style, with(wellFormed(time.Now().Add(time.Hour))))
		}
		if info.Name == "email-raw" || info.Name == "email-json" {
			basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:wrong"))
			for name, value := range map[string]string{"Authorization": basic, email.TokenHeader: "wrong"} {
				early(t, a, "a wrong token", "POST", path+style, with(nil, name, value))
			}
			early(t, a, "a wrong token", "POST", path+style, with(nil, "Authorization", "Bearer wrong"))
			early(t, a, "a wrong token", "POST", path+style+"&token=wrong", with(nil))
		}
		if info.Name == "marketplace" {
			early(t, a, "no envelope", "POST", path, with(nil, "X-Amz-Sns-Rawdelivery", "true"))
		}
		if info.Name == "voice" {
			early(t, a, "misshapen", "POST", path, with(nil, "X-Voice-Signature", "x"))
		}
		// An unknown connection, with any proof.
		joint := map[bool]string{true: "?", false: "&"}[style == ""]
		early(t, a, "no such connection", "POST", path+style+joint+"c=01a204c2-4df1-7bec-bcfb-0e27f87ff74c", with(wellFormed(time.Now()), "Authorization", "Bearer "+earlySecret))
		if style != "" {
			early(t, a, "no such style", "POST", path+"?style=nothing", with(wellFormed(time.Now())))
		}
		// A possibly valid request is read.
		h := with(wellFormed(time.Now()))
		if info.Name == "email-json" {
			h[email.TokenHeader] = earlySecret
		}
		if w, read := unread(a, "POST", path+style, h, 1000); !read {
			t.Errorf("%s: a request that could be signed is not read: %d", path, w.Code)
		}
	}
}

func earlyProcedures(t *testing.T) {
	s := openStrict(t)
	agent, err := s.Accounts.CreateUser(t.Context(), account.NewUser{Email: "eve@example.com", Password: factorPassword, Organization: s.org.Slug, Role: account.Agent})
	if err != nil {
		t.Fatal(err)
	}
	eve := browser.AccessCookie + "=" + s.signIn(agent).Tokens.Access
	protected, forAdmins := 0, 0
	for _, name := range s.procedureNames() {
		path := "/api/trpc/" + name
		w, read := unread(s.App, "POST", path, map[string]string{"Content-Type": "application/json"}, 1000)
		if w.Code == http.StatusMethodNotAllowed || w.Code != http.StatusUnauthorized && read {
			continue // a query, or public
		}
		protected++
		if got := early(t, s.App, name, "POST", path, map[string]string{"Content-Type": "application/json", "Cookie": browser.AccessCookie + "=none"}); got != http.StatusUnauthorized {
			t.Errorf("%s: answered %d to a stranger", name, got)
		}
		if w, read := unread(s.App, "POST", path, map[string]string{"Content-Type": "application/json", "Cookie": eve}, 1000); w.Code == http.StatusForbidden {
			if forAdmins++; read {
				t.Errorf("%s: the body of somebody who may not is read", name)
			}
		}
	}
	if protected < 15 || forAdmins < 3 {
		t.Errorf("walked only %d procedures, %d for admins", protected, forAdmins)
	}
	early(t, s.App, "a batch", "POST", "/api/trpc/user.updateProfile,auth.setPassword?batch=1", map[string]string{"Content-Type": "application/json"})
	early(t, s.App, "another site", "POST", "/api/trpc/auth.signInWithEmail", map[string]string{"Content-Type": "application/json", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"})
}

func earlyREST(t *testing.T) {
	s := openStrict(t)
	walked := 0
	for _, base := range []string{deskapi.Base, "/v1", "/sandbox/v1"} {
		w := s.do("GET", base+"/openapi.json", "", "", nil)
		var doc struct {
			Paths map[string]map[string]json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(base, err)
		}
		for pattern, methods := range doc.Paths {
			for method := range methods {
				method = strings.ToUpper(method)
				if !slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method) {
					continue
				}
				walked++
				path := base + strings.TrimPrefix(example(pattern), base)
				for _, token := range []string{"", "Bearer", "Bearer none", "Basic bm9uZQ=="} {
					h := map[string]string{"Content-Type": "application/json"}
					if token != "" {
						h["Authorization"] = token
					}
					if got := early(t, s.App, "no key", method, path, h); got != http.StatusUnauthorized && got != http.StatusTooManyRequests {
						t.Errorf("%s %s: answered %d to a stranger", method, path, got)
					}
				}
			}
		}
	}
	if walked < 45 {
		t.Errorf("walked only %d routes", walked)
	}
}

func earlyPages(t *testing.T) {
	s := openStrict(t)
	walked := 0
	for _, rt := range s.site.Routes() {
		if !rt.Post || !rt.InDashboard { // forms outside of the dashboard are public
			continue
		}
		walked++
		for _, contentType := range []string{formType, "multipart/form-data; boundary=b"} {
			for _, cookies := range []string{"", browser.AccessCookie + "=none; " + browser.RefreshCookie + "=none"} {
				early(t, s.App, "no session", "POST", example(rt.Path), map[string]string{"Content-Type": contentType, "Cookie": cookies})
			}
		}
	}
	if walked < 40 {
		t.Errorf("walked only %d forms", walked)
	}
}

// TestSecretOfAnyConnectionOpens: a connection's token in the headers is not refused
// early, right after its creation and its change.
func TestSecretOfAnyConnectionOpens(t *testing.T) {
	s := openStrict(t)
	read := func(token string) bool {
		_, read := unread(s.App, "POST", "/api/webhooks/inbound-email?style=json", map[string]string{"Content-Type": "application/json", email.TokenHeader: token}, 1000)
		return read
	}
	if read("a secret of ours") {
		t.Error("it opens before it is anybody's")
	}
	c, _, err := s.Connections.Connect(t.Context(), connection.New{OrganizationID: s.org.ID, Channel: "email-json", Address: "help@acme.example", Secrets: []string{"a secret of ours"}, ByOperator: true})
	if err != nil {
		t.Fatal(err)
	}
	if !read("a secret of ours") {
		t.Error("the secret of a new connection opens nothing")
	}
	if _, err := s.Connections.Rotate(t.Context(), s.org.ID, c.ID, "a newer one of ours", time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"a newer one of ours", "a secret of ours"} {
		if !read(token) {
			t.Errorf("%q opens nothing after the rotation", token)
		}
	}
	for i := range 20 {
		if read(fmt.Sprint("guess ", i)) {
			t.Error("a guess opens")
		}
	}
}
