package channels

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/connection"
)

// stepPart is a part of a step: text, a value to enter at the provider, or a link.
type stepPart struct {
	Text, Code, Link string
	Name             string // of the link; empty: its address
}

var stepToken = regexp.MustCompile(`\{[a-z_]+\}|https://[A-Za-z0-9./_-]*[A-Za-z0-9/]`)

// docs is the address of the folder docs/channels.
const docs = "https://github.com/kickstand-dev/kickstand/blob/main/docs/channels/"

// DocURL returns the address of the guide's documentation.
func (g *guide) DocURL() string { return docs + g.Doc }

// stepValues are the values of steps, and the words for one that is not known yet or not shown.
var stepValues = map[string]string{
	"{endpoint}": "the endpoint URL below", "{endpoint_mime}": "the endpoint URL below with format=mime in its query",
	"{endpoint_token}": "the endpoint URL below with anything:TOKEN@ before its host, where TOKEN is the secret",
	"{privacy}":        "the compliance webhook URL below", "{address}": "your address", "{secret}": "the secret", "{verify_token}": "your verify token",
	"{messages}": "the REST API", "{visitors}": "the visitors’ API",
}

// values returns the values of the steps of a connection. secret is empty unless it is shown.
func (p *pages) values(g *guide, c *connection.Connection, secret string) map[string]string {
	if c == nil {
		return nil
	}
	endpoint := p.endpoint(g, c)
	values := map[string]string{
		"{endpoint}": endpoint, "{address}": c.Address, "{messages}": p.BaseURL + "/api/v1/channels/" + c.ID + "/messages", "{secret}": secret, "{privacy}": p.BaseURL + privacyPath,
		"{visitors}": p.BaseURL + "/api/visitor/v1/" + c.ID,
	}
	if u, err := url.Parse(endpoint); err == nil {
		query := u.Query()
		query.Set("format", "mime")
		mime := *u
		mime.RawQuery = query.Encode()
		values["{endpoint_mime}"] = mime.String()
		if secret != "" {
			u.User = url.UserPassword("kickstand", secret)
			values["{endpoint_token}"] = u.String()
		}
	}
	return values
}

// steps returns the steps of a guide with the values in them.
func (g *guide) steps(values map[string]string) [][]stepPart {
	list := make([][]stepPart, len(g.Steps))
	for i, text := range g.Steps {
		at := 0
		for _, m := range stepToken.FindAllStringIndex(text, -1) {
			list[i] = append(list[i], stepPart{Text: text[at:m[0]]})
			at = m[1]
			switch token := text[m[0]:m[1]]; {
			case token == "{doc}":
				list[i] = append(list[i], stepPart{Link: g.DocURL(), Name: "the documentation"})
			case strings.HasPrefix(token, "https"):
				list[i] = append(list[i], stepPart{Link: token})
			case values[token] != "":
				list[i] = append(list[i], stepPart{Code: values[token]})
			default:
				list[i] = append(list[i], stepPart{Text: stepValues[token]})
			}
		}
		list[i] = append(list[i], stepPart{Text: text[at:]})
	}
	return list
}
