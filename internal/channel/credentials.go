package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// Owner is the party that owns credentials.
type Owner string

// The owners.
const (
	OwnerDeployment Owner = "deployment" // the operator
	OwnerConnection Owner = "connection" // the organization of the connection
)

// CredentialKind is the use of a credential.
type CredentialKind string

// The kinds.
const (
	// KindAPIKey authenticates calls to the provider's API.
	KindAPIKey CredentialKind = "api_key"
	// KindAPIURL is the base URL of the API. A set has at most one.
	KindAPIURL CredentialKind = "api_url"
	// KindServer is a server's address including its password: a complete set by itself.
	KindServer CredentialKind = "server"
	// KindSigning verifies inbound requests. It is never sent.
	KindSigning CredentialKind = "signing"
	// KindOption is not secret, such as an account id or a version.
	KindOption CredentialKind = "option"
)

// Credential declares one credential that a connection can have.
type Credential struct {
	Name string
	Kind CredentialKind
}

// API describes the API of a channel's provider.
type API struct {
	// URL is the default base URL, without a trailing slash. Empty means that it depends on the
	// connection.
	URL string
	// Credentials lists all credentials that the channel reads. [Credentials] hides any other.
	Credentials []Credential
}

// kind returns the kind of a credential, or "" if it is not declared.
func (a *API) kind(name string) CredentialKind {
	for i := range a.Credentials {
		if a.Credentials[i].Name == name {
			return a.Credentials[i].Kind
		}
	}
	return ""
}

// APIUser is implemented by channels with credentials per connection.
type APIUser interface {
	// API describes the provider's API. The result must not be changed.
	API() API
}

// APIOf returns the API of an adapter, or the zero value if it has none.
func APIOf(a Adapter) API {
	if u, ok := a.(APIUser); ok {
		return u.API()
	}
	return API{}
}

// Credentials are the complete set of one owner: the base URL of a provider's API and the keys
// for it. A set never mixes values of two owners, and each call uses one set, so a key is sent
// only to an address that its owner chose. The zero value is the empty set, which allows no
// calls.
//
// No form of printing shows a value.
type Credentials struct {
	owner  Owner
	api    API
	base   string // "": no calls allowed
	chosen bool   // base comes from the connection
	values map[string]string
}

// DeploymentCredentials returns the operator's set. base must satisfy [netguard.ParseAPIURL];
// it may be a private address.
func DeploymentCredentials(api API, base string, values map[string]string) Credentials {
	return Credentials{owner: OwnerDeployment, api: api, base: strings.TrimRight(base, "/"), values: maps.Clone(values)}
}

// ConnectionCredentials returns the set of a connection. A URL among values replaces that of
// the API; a malformed one makes the set unusable for calls. The set retains values, which must
// not be modified afterwards.
func ConnectionCredentials(api API, values map[string]string) Credentials {
	c := Credentials{owner: OwnerConnection, api: api, base: api.URL, values: values}
	for i := range api.Credentials {
		if api.Credentials[i].Kind != KindAPIURL {
			continue
		}
		raw := values[api.Credentials[i].Name]
		if raw == "" {
			continue
		}
		c.base, c.chosen = "", true
		if u, err := netguard.ParseAPIURL(raw, ""); err == nil {
			c.base = u.String()
		}
	}
	return c
}

// Get returns a value, or "" if it is not set or not declared by the channel.
func (c Credentials) Get(name string) string {
	v := c.values[name]
	if v == "" || c.api.kind(name) == "" {
		return ""
	}
	return v
}

// Owner returns the owner, or "" for the empty set.
func (c Credentials) Owner() Owner { return c.owner }

// BaseURL returns the base URL of the API without a trailing slash, or "".
func (c Credentials) BaseURL() string { return c.base }

// Public reports whether a tenant chose the base URL: calls must then connect to public
// addresses only.
func (c Credentials) Public() bool { return c.chosen }

// HasAPI reports whether the set has a key or URL for the API. A connection's set with either
// is complete: the deployment's values are never added.
func (c Credentials) HasAPI() bool {
	for i := range c.api.Credentials {
		switch d := &c.api.Credentials[i]; d.Kind {
		case KindAPIKey, KindAPIURL:
			if c.values[d.Name] != "" {
				return true
			}
		}
	}
	return false
}

// Format implements [fmt.Formatter].
func (c Credentials) Format(f fmt.State, _ rune) {
	if c.owner == "" {
		fmt.Fprint(f, "no credentials")
		return
	}
	fmt.Fprintf(f, "credentials of the %s", string(c.owner))
}

// MarshalJSON implements [json.Marshaler].
func (c Credentials) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", fmt.Sprint(c)), nil }

// NewRequest returns a call of the API. path is empty, or begins with a slash and may have a query.
func (c Credentials) NewRequest(method, path string, header http.Header, body []byte) APIRequest {
	return APIRequest{Method: method, URL: c.base + path, Header: header, Body: body, base: c.base, public: c.chosen}
}

// Download returns a call for a file at a URL that the API returned. It carries no credentials;
// the URL itself grants access. Only a URL at the operator's own API address may be private.
func (c Credentials) Download(address string) APIRequest {
	call := APIRequest{Method: http.MethodGet, URL: address, bare: true, public: true}
	if c.base != "" && !c.chosen && SameOrigin(address, c.base) {
		call.public = false
	}
	return call
}

// SameOrigin reports whether two URLs have the same scheme and host.
func SameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	return err == nil && u.Host != "" && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host)
}

// APIRequest is a request to a provider's API. Only [Credentials] creates sendable calls, bound to
// the base URL of the set.
type APIRequest struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte

	// Optional marks a call without which the event is complete, such as for a name. The event
	// waits for it briefly and does not retry it.
	Optional bool

	base   string // base URL of the set
	public bool   // a tenant, or a provider's answer, chose the address
	bare   bool   // carries no credentials
}

// Public reports whether the call must connect to public addresses only, because a party other
// than the operator chose the address.
func (c *APIRequest) Public() bool { return c.public }

// HTTPRequest returns the call as an HTTP request. It fails if the URL is outside the set's base
// URL. Errors contain neither address nor credentials.
func (c *APIRequest) HTTPRequest(ctx context.Context) (*http.Request, error) {
	if !c.bare && (c.base == "" || c.URL != c.base && !strings.HasPrefix(c.URL, c.base+"/")) {
		return nil, errors.New("its address is not that of the credentials")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, errors.New("its address is malformed")
	}
	if c.bare && c.public && u.Scheme != "https" {
		return nil, errors.New("its address is not https")
	}
	body := c.Body
	if c.bare {
		body = nil
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address is malformed")
	}
	if !c.bare {
		maps.Copy(req.Header, c.Header)
	}
	req.Header.Set("User-Agent", "Kickstand")
	return req, nil
}
