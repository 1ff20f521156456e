package meta

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// DefaultAPIURL is the Graph API with its version.
const DefaultAPIURL = "https://graph.facebook.com/v25.0"

// defaultVersion is used if the configured URL has no version.
const defaultVersion = "v25.0"

// The credential names.
const (
	credToken      = "access_token"
	credAppSecret  = "app_secret"  // of the provider's app
	credVersion    = "api_version" // replaces the deployment's
	credNumber     = "phone_number_id"
	credHumanAgent = "human_agent" // "true" if the app has the permission
)

var declared = []channel.Credential{
	{Name: credToken, Kind: channel.KindAPIKey}, {Name: credAppSecret, Kind: channel.KindSigning}, {Name: channel.VerifyToken, Kind: channel.KindSigning},
	{Name: credVersion, Kind: channel.KindOption}, {Name: credNumber, Kind: channel.KindOption}, {Name: credHumanAgent, Kind: channel.KindOption},
}

// API implements [channel.APIUser].
func (p platform) API() channel.API { return channel.API{URL: p.graph.base, Credentials: declared} }

// graph is the provider's API.
type graph struct {
	base    string // without version and trailing slash
	version string
	host    string
}

func newGraph(c Config) graph {
	g := graph{base: strings.TrimRight(cmp.Or(c.APIURL, DefaultAPIURL), "/"), version: defaultVersion}
	if last := path.Base(g.base); isVersion(last) {
		g.base, g.version = strings.TrimSuffix(g.base, "/"+last), last
	}
	if u, err := url.Parse(g.base); err == nil {
		g.host = strings.ToLower(u.Host)
	}
	return g
}

func isVersion(s string) bool {
	ok, _ := regexp.MatchString(`^v[0-9]{1,3}\.[0-9]{1,2}$`, s) // the pattern is valid
	return ok
}

// call returns an API call with a connection's credentials. If the app secret is known, it adds
// a proof of possession.
func (g graph) call(method string, credentials channel.Credentials, query url.Values, path ...string) channel.APIRequest {
	version := credentials.Get(credVersion)
	if !isVersion(version) {
		version = g.version
	}
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	at := "/" + version + "/" + strings.Join(escaped, "/")
	token := credentials.Get(credToken)
	if secret := credentials.Get(credAppSecret); secret != "" {
		if query == nil {
			query = url.Values{}
		}
		query.Set("appsecret_proof", proof(token, secret))
	}
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	return credentials.NewRequest(method, at, http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/json"}}, nil)
}

func proof(token, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(token))
	return hex.EncodeToString(mac.Sum(nil))
}

// mediaHosts returns the provider's file hosts.
func (g graph) mediaHosts() []string {
	return []string{"lookaside.fbsbx.com", ".fbsbx.com", ".fbcdn.net", g.host}
}

// tokenHosts returns the hosts among mediaHosts that require the token.
func (g graph) tokenHosts() []string { return []string{"lookaside.fbsbx.com", g.host} }

// checkCredentials returns the reason why these credentials cannot send.
func checkCredentials(m *channel.Outgoing, credentials channel.Credentials) error {
	if credentials.Get(credToken) == "" {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its credentials need %s", m.From, credToken)
	}
	if v := credentials.Get(credVersion); v != "" && !isVersion(v) {
		return problem.New(problem.Precondition, "the connection of %s cannot send: its credential %s must look like %s", m.From, credVersion, defaultVersion)
	}
	return nil
}

// windowClosed returns a refusal because the reply window has closed. Waiting does not help.
func windowClosed(format string, args ...any) error {
	return problem.New(problem.Precondition, format, args...).Because(channel.ErrTooLate)
}

// moment formats a time for display.
func moment(t time.Time) string { return t.UTC().Format("2 January 2006 at 15:04 UTC") }

// failure is an error of the API or of a receipt.
type failure struct {
	code, subcode int
	words         string // the provider's text in one line; may be empty
	transient     bool   // the provider marks it as transient
}

func readFailure(o object) failure {
	f := failure{code: number(o.text("code")), subcode: number(o.text("error_subcode")), transient: o.flag("is_transient")}
	f.words = cmp.Or(o.object("error_data").text("details"), o.first("error_user_msg", "message", "title"))
	f.words = strings.Join(strings.Fields(f.words), " ")
	if len(f.words) > 300 {
		f.words = strings.ToValidUTF8(f.words[:300], "") + "…"
	}
	return f
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// errorInfo is the meaning of a failure for a message.
type errorInfo struct {
	text        string              // plain words for agents
	fate        channel.SendOutcome // empty if the code is unknown
	unreachable bool
}

// explain explains errors common to both APIs; ok is false for other errors.
func (f failure) explain() (m errorInfo, ok bool) {
	m.fate = channel.VerdictRefused
	switch c := f.code; {
	case c == 190:
		m.text = "the provider refuses the connection's access token: it has expired or was withdrawn. An administrator must give the connection a new one"
	case c == 3 || c == 10 || c >= 200 && c <= 299:
		m.text = "the connection's access token lacks the permission to send from here"
	case c == 368:
		m.text = "the provider has restricted the account for breaking its rules"
	case c == 4 || c == 17 || c == 32 || c == 613 || c >= 80000 && c <= 80014:
		m.text, m.fate = "the provider takes no more messages at the moment", channel.VerdictRetry
	case c == 1 || c == 2:
		m.text, m.fate = "the provider failed", channel.VerdictRetry
	default:
		return errorInfo{}, false
	}
	return m, true
}

// tagged appends the provider's code to a text.
func (f failure) tagged(text string) string {
	switch {
	case f.code != 0 && f.subcode != 0:
		return fmt.Sprintf("%s (%d/%d)", text, f.code, f.subcode)
	case f.code != 0:
		return fmt.Sprintf("%s (%d)", text, f.code)
	}
	return text
}

// verdict interprets an error response. An error in the API's own format means that the message
// was not accepted. One without, such as a gateway's, leaves that open, unless its status
// refuses every request.
func verdict(m *channel.Outgoing, answer channel.Response, recipient string, explain func(failure) errorInfo) channel.SendResult {
	v := channel.SendResult{RetryAfter: netguard.RetryAfter(answer.Header, m.Now)}
	f := readFailure(parse(answer.Body).object("error"))
	switch status := answer.Status; {
	case f.code != 0:
		info := explain(f)
		v.Verdict, v.Reason = info.fate, f.tagged(info.text)
		if info.unreachable {
			v.Recipient, v.Unreachable = recipient, true
		}
		switch {
		case v.Verdict != "":
		case f.transient || status == http.StatusTooManyRequests || status >= 500:
			v.Verdict = channel.VerdictRetry
		default:
			v.Verdict = channel.VerdictRefused
		}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		v.Verdict, v.Reason = channel.VerdictRetry, fmt.Sprintf("the provider takes no more messages at the moment (%d)", status)
	case status >= 500:
		v.Verdict, v.Reason = channel.VerdictUnclear, fmt.Sprintf("the provider failed (%d)", status)
	case status >= 200 && status < 300:
		v.Verdict, v.Reason = channel.VerdictUnclear, "the provider's response is malformed"
	default:
		v.Verdict, v.Reason = channel.VerdictRefused, fmt.Sprintf("the provider refused the message (%d)", status)
	}
	if v.Verdict == channel.VerdictRefused {
		v.RetryAfter = 0
	}
	return v
}

// unanswered explains in plain words why a lookup failed.
func unanswered(a channel.Response) string {
	if a.Status == 0 {
		return "the provider could not be reached"
	}
	f := readFailure(parse(a.Body).object("error"))
	if m, ok := f.explain(); ok {
		if m.fate == channel.VerdictRetry {
			m.text = "the provider did not tell where it is, however often it was asked"
		}
		return f.tagged(m.text)
	}
	if f.words != "" {
		return f.tagged("the provider says: " + f.words)
	}
	return fmt.Sprintf("the provider answered %d", a.Status)
}
