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

// Owner is the party that credentials belong to.
type Owner string

// The owners.
const (
	OwnerDeployment Owner = "deployment" // the operator
	OwnerConnection Owner = "connection" // the organization that has the connection
)

// CredentialKind says how a credential is used.
type CredentialKind string

// The kinds.
const (
	// KindAPIKey is presented to the provider's API.
	KindAPIKey CredentialKind = "api_key"
	// KindAPIURL is the address of the API. A set has one at most.
	KindAPIURL CredentialKind = "api_url"
	// KindServer is the address of a server with the password for it: a set in itself.
	KindServer CredentialKind = "server"
	// KindSigning verifies inbound requests. It is never presented to anybody.
	KindSigning CredentialKind = "signing"
	// KindOption is no secret: an account's id, a version.
	KindOption CredentialKind = "option"
)

// Credential declares one of the values that a connection can have for a provider.
type Credential struct {
	Name string
	Kind CredentialKind
}

// API describes the API of a channel's provider.
type API struct {
	// URL is the base address, without a slash at its end, for credentials that name
	// no other. Empty: it depends on the connection.
	URL string
	// Credentials are all that the channel reads. [Credentials] hides every other.
	Credentials []Credential
}

// kind returns the kind of a credential; empty for one that is not declared.
func (a *API) kind(name string) CredentialKind {
	for i := range a.Credentials {
		if a.Credentials[i].Name == name {
			return a.Credentials[i].Kind
		}
	}
	return ""
}

// APIUser is implemented by channels whose connections have credentials.
type APIUser interface {
	// API describes the provider's API. The result must not be changed.
	API() API
}

// APIOf returns the API of an adapter; zero where it has none.
func APIOf(a Adapter) API {
	if u, ok := a.(APIUser); ok {
		return u.API()
	}
	return API{}
}

// Credentials are the whole set of one owner: the address of a provider's API and
// what is presented there. The values of two owners never meet in one set, and a call
// is made from one set only, so a key never leaves for an address that its owner did
// not choose. The zero value is the empty set, from which no call can be made.
//
// No form of printing shows a value.
type Credentials struct {
	owner  Owner
	api    API
	base   string // "": no call can be made
	chosen bool   // the connection names the address
	values map[string]string
}

// DeploymentCredentials returns the operator's set. The base address must be one that
// [netguard.ParseAPIURL] accepts; it can be private.
func DeploymentCredentials(api API, base string, values map[string]string) Credentials {
	return Credentials{owner: OwnerDeployment, api: api, base: strings.TrimRight(base, "/"), values: maps.Clone(values)}
}

// ConnectionCredentials returns the set of a connection. An address among the values replaces
// that of the API; if it is malformed, no call can be made from the set. It keeps
// values, which must not be changed.
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

// Get returns a value; empty for one that is not set, or that the channel does not
// declare.
func (c Credentials) Get(name string) string {
	v := c.values[name]
	if v == "" || c.api.kind(name) == "" {
		return ""
	}
	return v
}

// Owner returns the owner; empty for the empty set.
func (c Credentials) Owner() Owner { return c.owner }

// BaseURL returns the address of the API, without a slash at its end; empty if there
// is none.
func (c Credentials) BaseURL() string { return c.base }

// Public reports whether a tenant chose the address: calls must then connect to
// public addresses only.
func (c Credentials) Public() bool { return c.chosen }

// HasAPI reports whether the set has a key of, or an address for, the API. The set of
// a connection that has either is complete: nothing of the deployment's joins it.
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

// Call returns a call of the API at a path, which begins with a slash and can have a
// query.
func (c Credentials) Call(method, path string, header http.Header, body []byte) Call {
	return Call{Method: method, URL: c.base + path, Header: header, Body: body, base: c.base, public: c.chosen}
}

// Download returns a call for a file at an address that the API named. It carries no
// credentials: the address holds what it takes. Only at the operator's own address of
// the API can it be private.
func (c Credentials) Download(address string) Call {
	call := Call{Method: http.MethodGet, URL: address, bare: true, public: true}
	if c.base != "" && !c.chosen && SameOrigin(address, c.base) {
		call.public = false
	}
	return call
}

// SameOrigin reports whether two addresses have scheme and host in common.
func SameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	return err == nil && u.Host != "" && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host)
}

// Call is a request to a provider's API. Only [Credentials] makes one that can be
// sent: it goes to the address of its set.
type Call struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte

	// Optional: the event is complete without the answer, such as a name. It waits for
	// it but a moment, and does not ask again.
	Optional bool

	base   string // the address of the set
	public bool   // a tenant, or a provider's answer, chose the address
	bare   bool   // carries no credentials
}

// Public reports whether the call must connect to public addresses only, because not
// the operator chose the address.
func (c *Call) Public() bool { return c.public }

// Request returns the call as a request. It fails for a call that leaves the address
// of its set. Errors repeat neither address nor credentials.
func (c *Call) Request(ctx context.Context) (*http.Request, error) {
	if !c.bare && (c.base == "" || !strings.HasPrefix(c.URL, c.base+"/")) {
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
