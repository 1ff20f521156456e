package e2e

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// discover crawls the dashboard as a persona and returns the first page of each shape. A
// broken link fails the test.
func (w *world) discover(who persona) []pageCase {
	w.t.Helper()
	c := &crawler{world: w, who: who, header: http.Header{}, tried: map[string]bool{}, shapes: map[string]int{}}
	for _, cookie := range w.session(w.people[who]) {
		c.header.Add("Cookie", cookie.Name+"="+cookie.Value)
	}
	for _, entry := range []string{"/inbox", "/customers", "/reports", "/fleet", "/sandbox/fleet", "/settings"} {
		c.queue = append(c.queue, link{entry, "the sidebar"})
	}
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.follow(next)
	}
	return c.found
}

// link is a link from a page to an address.
type link struct{ to, from string }

// crawler visits pages, a few of each shape.
type crawler struct {
	*world
	who    persona
	header http.Header
	queue  []link
	tried  map[string]bool
	shapes map[string]int
	found  []pageCase
}

// notPages matches paths that are no dashboard pages: APIs, their documentation, and
// files.
var notPages = regexp.MustCompile(`^/(api|docs|v1|sandbox/v1|sandbox/gbfs|gbfs|sandbox/mds|mds|dev|healthz|readyz|static|attachments|files|exports|messages)(/|$)`)

// maxPerShape is the number of pages of a shape to visit.
const maxPerShape = 4

func (c *crawler) follow(l link) {
	c.t.Helper()
	u, err := url.Parse(l.to)
	if err != nil {
		c.t.Errorf("%s links to %q: %v", l.from, l.to, err)
		return
	}
	if u.Host != "" || u.Scheme != "" || notPages.MatchString(u.Path) {
		return
	}
	u.Fragment = ""
	s := shape(u.Path)
	if c.tried[u.String()] || c.shapes[s] >= maxPerShape {
		return
	}
	c.tried[u.String()] = true
	c.shapes[s]++
	status, kind, body := c.get(u.RequestURI())
	if status != http.StatusOK {
		c.t.Errorf("%s, to which %s leads, is answered %d", u, l.from, status)
		return
	}
	if !strings.HasPrefix(kind, "text/html") {
		return
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		c.t.Errorf("%s: %v", u, err)
		return
	}
	// An empty organization has only lists.
	if form := formPage.MatchString(s); c.shapes[s] == 1 && (c.who != newcomer || !form) {
		name := strings.Trim(strings.NewReplacer("/", "-", "*", "one").Replace(s), "-")
		if c.who == newcomer {
			name += "-empty"
		}
		c.found = append(c.found, pageCase{name: name, path: at(u.RequestURI()), persona: c.who})
	}
	for n := range root.Descendants() {
		if n.Data != "a" && n.Data != "iframe" {
			continue
		}
		if i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "href" || a.Key == "src" }); i >= 0 && !strings.HasPrefix(n.Attr[i].Val, "#") {
			to := n.Attr[i].Val
			if strings.HasPrefix(to, "?") {
				to = u.Path + to
			} else if !strings.HasPrefix(to, "/") && !strings.Contains(to, ":") {
				to = path.Join(path.Dir(u.Path), to)
			}
			c.queue = append(c.queue, link{to, u.Path})
		}
	}
}

// formPage matches forms and pages of one record.
var formPage = regexp.MustCompile(`\*|/(new|edit|import|invite)$`)

// get opens a page, following redirects.
func (c *crawler) get(address string) (status int, kind, body string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+address, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = c.header.Clone()
	resp, text, err := do(http.DefaultClient, req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
}

// shape returns an address without ids and parameters. The sandbox's pages have the
// shapes of the fleet's.
func shape(address string) string {
	address, _, _ = strings.Cut(address, "?")
	address = strings.TrimPrefix(address, "/sandbox")
	out := strings.Split(address, "/")
	for i, part := range out {
		if recordID.MatchString(part) || i > 2 && slices.Contains([]string{"status", "priority", "channel", "connect"}, out[i-1]) {
			out[i] = "*"
		}
	}
	return strings.Join(out, "/")
}

// recordID matches numbers, UUIDs and prefixed ULIDs.
var recordID = regexp.MustCompile(`^([0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}|[a-z]+_[0-9A-Za-z]{10,}|[0-9A-Z]{26})$`)
