package account

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/problem"
)

// maxRedirect is the maximum length of a redirect target in bytes.
const maxRedirect = 2048

// redirects checks the targets of redirects after a sign-in.
type redirects struct {
	base    string   // base URL without a trailing slash
	host    string   // its host, for Message-IDs
	origin  string   // its origin
	path    string   // its path, without a trailing slash
	origins []string // additional origins
}

func newRedirects(base string, origins []string) (redirects, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return redirects{}, fmt.Errorf("base URL %q must be like https://help.example.com", base)
	}
	r := redirects{
		base:   strings.TrimRight(base, "/"),
		host:   u.Hostname(),
		origin: origin(u),
		path:   strings.TrimRight(u.Path, "/"),
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return redirects{}, fmt.Errorf("redirect origin %q must be like https://app.example.com", o)
		}
		r.origins = append(r.origins, origin(u))
	}
	return r, nil
}

// home is the default target.
func (r redirects) home() string { return r.path + "/" }

// check returns the target to redirect to, home if target is empty. It records an issue
// if target is not allowed.
func (r redirects) check(v *problem.Validation, target string) string {
	if target == "" {
		return r.home()
	}
	if !r.allowed(target) {
		v.Add("redirectTo", "must be under %s or an allowed origin", r.base)
	}
	return target
}

// allowed reports whether target is a path or URL under the base URL, or a URL of an
// additional origin. Targets that browsers and [url.Parse] might read differently are
// refused.
func (r redirects) allowed(target string) bool {
	if len(target) > maxRedirect {
		return false
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return false
		}
	}
	u, err := url.Parse(target)
	if err != nil || u.Opaque != "" || u.User != nil {
		return false
	}
	switch {
	case u.Scheme == "" && u.Host == "":
		return strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//") && r.under(u.Path)
	case u.Scheme == "" || u.Host == "":
		return false
	}
	o := origin(u)
	return o == r.origin && r.under(u.Path) || slices.Contains(r.origins, o)
}

// under reports whether p, with its dot segments resolved as a browser does, is at or
// below the base URL's path.
func (r redirects) under(p string) bool {
	if r.path == "" {
		return true
	}
	p = path.Clean("/" + p)
	return p == r.path || strings.HasPrefix(p, r.path+"/")
}

// origin returns u's origin as browsers compare it.
func origin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return scheme + "://" + strings.TrimSuffix(host, ":")
}
