// Package kickstand is the client library of Kickstand: [Helpdesk] for tickets, messages and
// customers, and [Fleet] for vehicles and rides.
//
// Calls retry by themselves when the connection breaks or the server is busy, and each write
// carries one Idempotency-Key for all its attempts, so that it takes effect once. An answer of
// 4xx or 5xx is a [*Problem]. Package webhooks verifies deliveries of webhooks.
package kickstand

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const version = "0.1.0"

// Options are the options of a client.
type Options struct {
	// Key is the API key. Empty: the environment variable KICKSTAND_KEY. With a key that begins
	// with sk_test_, a Fleet uses the sandbox.
	Key string `json:"-"`
	// BaseURL is the origin of the server: "https://help.example.com". Empty: the environment
	// variable KICKSTAND_URL.
	BaseURL string
	// AllowHTTP permits a BaseURL with http on other hosts than this machine. The key then
	// travels in the clear.
	AllowHTTP bool
	// Timeout is the longest time of one attempt, and of a pause within a stream. 0: 30 seconds.
	Timeout time.Duration
	// MaxRetries is the number of attempts after the first. 0: three; negative: none.
	MaxRetries int
	// MaxRetryWait is the longest Retry-After that is waited for. 0: one minute.
	MaxRetryWait time.Duration
	// HTTPClient sends the requests, without following redirects. nil: a new client with the
	// transport of [http.DefaultTransport].
	HTTPClient *http.Client

	random func() float64 // of tests
}

// Format implements [fmt.Formatter]. It leaves out the key.
func (o Options) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "kickstand.Options{BaseURL: %q}", o.BaseURL)
}

// client sends the requests of one API.
type client struct {
	base          string // "https://help.example.com/api/v1"
	authorization string
	http          *http.Client
	timeout       time.Duration
	maxRetries    int
	maxRetryWait  time.Duration
	random        func() float64 // from 0 up to 1
}

func newClient(o Options, path func(key string) string) (*client, error) {
	if o.Key == "" {
		o.Key = os.Getenv("KICKSTAND_KEY")
	}
	if o.BaseURL == "" {
		o.BaseURL = os.Getenv("KICKSTAND_URL")
	}
	if err := checkKey(o.Key); err != nil {
		return nil, err
	}
	origin, err := checkOrigin(o.BaseURL, o.AllowHTTP)
	if err != nil {
		return nil, err
	}
	c := &client{
		base: origin + path(o.Key), authorization: "Bearer " + o.Key, http: &http.Client{},
		timeout: 30 * time.Second, maxRetries: 3, maxRetryWait: time.Minute, random: rand.Float64,
	}
	if o.random != nil {
		c.random = o.random
	}
	if o.HTTPClient != nil {
		*c.http = *o.HTTPClient
	}
	// A redirect would carry the key to another address.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if o.Timeout > 0 {
		c.timeout = o.Timeout
	}
	if o.MaxRetryWait > 0 {
		c.maxRetryWait = o.MaxRetryWait
	}
	if o.MaxRetries != 0 {
		c.maxRetries = max(o.MaxRetries, 0)
	}
	return c, nil
}

func deskBase(string) string { return "/api/v1" }

func fleetBase(key string) string {
	if strings.HasPrefix(key, "sk_test_") {
		return "/sandbox/v1"
	}
	return "/v1"
}

// checkKey refuses texts that cannot be keys. The errors leave the text out.
func checkKey(key string) error {
	if key == "" {
		return errors.New("kickstand: no API key: set Options.Key or KICKSTAND_KEY")
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return errors.New("kickstand: the API key has a character that keys do not have, such as a blank or a line break")
		}
	}
	return nil
}

// checkOrigin returns the origin of a server's address.
func checkOrigin(address string, allowHTTP bool) (string, error) {
	if address == "" {
		return "", errors.New("kickstand: no address of the server: set Options.BaseURL or KICKSTAND_URL")
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return "", errors.New("kickstand: BaseURL must be an origin, like https://help.example.com")
	}
	local := u.Hostname() == "localhost"
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		local = ip.IsLoopback()
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !local && !allowHTTP) {
		return "", errors.New("kickstand: BaseURL must begin with https://, or AllowHTTP be set")
	}
	return u.Scheme + "://" + u.Host, nil
}
