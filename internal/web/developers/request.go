package developers

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/web"

	"github.com/google/uuid"
)

// requestsPage is the number of requests on a page of a key.
const requestsPage = 25

// keyRequests is the part of a key's page with its last requests.
type keyRequests struct {
	Rows   []requestRow
	Failed bool // only errors are shown
	Path   string
	Pager  web.Pager
	Empty  web.Empty
}

// requestRow is a request in the list.
type requestRow struct {
	ID, RequestID string
	Badge         web.Badge
	Method, Path  string
	At            web.Time
	Took          string
	Address       string
	Code          string
	Refusal       refusalText
	Curl          web.Code
	Body          bool // it had one, probably
	Masked        bool // values of its query are replaced
}

// refusalText explains why a request failed, and the next step.
type refusalText struct {
	Text        string // empty: it succeeded
	Path, Label string // of the link; empty: none
}

// keyRequests returns the page of requests in the query.
func (p *pages) keyRequests(r *web.Request, k *apikey.Key, kd *kind) (keyRequests, error) {
	asked := r.URL.Query()
	part := keyRequests{Path: keysPath + "/" + k.ID, Failed: asked.Get("requests") == "failed"}
	q := requestlog.Query{KeyID: k.ID, Failed: part.Failed, Limit: requestsPage + 1}
	if before := asked.Get("before"); before != "" {
		if id, err := uuid.Parse(before); err != nil || id.String() != before {
			return part, problem.New(problem.NotFound, "there is no such page")
		}
		q.Before, part.Pager.Newer = before, part.address("")
	}
	found, err := p.Requests.List(r.Context(), r.OrganizationID, q)
	if err != nil {
		return part, err
	}
	if len(found) > requestsPage {
		found = found[:requestsPage]
		part.Pager.Older = part.address(found[requestsPage-1].ID)
	}
	for i := range found {
		part.Rows = append(part.Rows, p.requestRow(r, k, kd, &found[i]))
	}
	part.Empty = web.Empty{Text: "No requests in the log yet.", Command: "curl -sS " + kd.API + `/key -H "Authorization: Bearer $KEY"`}
	if part.Failed || q.Before != "" {
		part.Empty = web.Empty{Text: "No requests match.", Path: part.Path, Label: "Show all"}
	}
	return part, nil
}

// address returns the address of a page of the part.
func (k *keyRequests) address(before string) string {
	query := url.Values{}
	if k.Failed {
		query.Set("requests", "failed")
	}
	if before != "" {
		query.Set("before", before)
	}
	return web.Address(k.Path, query)
}

func (p *pages) requestRow(r *web.Request, k *apikey.Key, kd *kind, q *requestlog.Request) requestRow {
	row := requestRow{
		ID: q.ID, RequestID: q.RequestID, Method: q.Method, Path: q.Path, At: r.Time(q.At), Code: q.Code,
		Took: strconv.FormatFloat(q.Duration.Seconds()*1000, 'f', 1, 64) + " ms", Refusal: explain(k, kd, q, r.Now),
		Body: q.Method == "POST" || q.Method == "PUT", Masked: strings.Contains(q.Path, "=*"),
	}
	row.Badge = web.Badge{Text: strconv.Itoa(q.Status), Tone: web.Good}
	if q.Status >= 500 {
		row.Badge.Tone = web.Bad
	} else if q.Failed() {
		row.Badge.Tone = web.Warning
	}
	if q.Address.IsValid() {
		row.Address = q.Address.String()
	}
	row.Curl = web.Code{Label: "Command", Text: p.curl(kd, q)}
	return row
}

// curl returns the command that sends a request again.
func (p *pages) curl(kd *kind, q *requestlog.Request) string {
	base := kd.API
	for _, other := range p.kinds() { // the request may have gone to another API than the key's
		u, err := url.Parse(other.API)
		if own, ownErr := url.Parse(base); err == nil && ownErr == nil && !strings.HasPrefix(q.Path, own.Path+"/") && strings.HasPrefix(q.Path, u.Path+"/") {
			base = other.API
		}
	}
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	line := "curl -sS"
	if q.Method == "HEAD" {
		line += " -I"
	} else if q.Method != "GET" {
		line += " -X " + quotedMethod(q.Method)
	}
	line += " " + quoted(u.Scheme+"://"+u.Host+q.Path) + ` -H "Authorization: Bearer $KEY"`
	if q.Method == "POST" || q.Method == "PUT" {
		line += " -H 'Content-Type: application/json' -d @body.json"
	}
	return line
}

// quotedMethod quotes a method for a shell if it is not a standard one, because it may have
// characters with a meaning there: "`" and "|".
func quotedMethod(method string) string {
	if strings.ContainsFunc(method, func(c rune) bool { return c < 'A' || 'Z' < c }) {
		return quoted(method)
	}
	return method
}

// explain describes in plain words why a request failed, and the next step.
func explain(k *apikey.Key, kd *kind, q *requestlog.Request, now time.Time) refusalText {
	if !q.Failed() {
		return refusalText{}
	}
	edit, needed := keysPath+"/"+k.ID+"/edit", q.Refusal.Needed
	if k.Status(now) != apikey.Active {
		edit = "" // a key that ended cannot be changed
	}
	var out refusalText
	switch q.Refusal.Rule {
	case requestlog.Level:
		out = refusalText{"The key's level did not allow this request. It needs the level " + levels[apikey.Level(needed)] + ".", edit, "Change the level"}
		if k.Level == apikey.Level(needed) {
			out = refusalText{Text: "The key's level did not allow this request. The key has the level " + levels[k.Level] + " now."}
		}
	case requestlog.Resource:
		out = explainResource(k, kd, needed, edit)
	case requestlog.Scope:
		out = refusalText{"The request concerned a subaccount that the key or the request itself excludes. The subaccounts of a key never change: create another key.", keysPath + "/new?of=" + kd.Name, "Create key"}
		if needed == "all" {
			out.Text = "The request needs a key for all subaccounts, and must not be narrowed to one. The subaccounts of a key never change: create another key."
		} else if needed != "" {
			out.Text = "The subaccount " + needed + " is outside of the subaccounts of the key or of the request. The subaccounts of a key never change: create another key."
		}
	case requestlog.Address:
		out = refusalText{"The request came from " + needed + ", which was not among the allowed addresses.", edit, "Allow the address"}
		switch {
		case needed == "":
			out = refusalText{Text: "The client's address is unknown, because a proxy does not report it, and the key has allowed addresses."}
		case k.AllowedIPs.Allow(q.Address):
			out = refusalText{Text: "The request came from " + needed + ", which was not among the allowed addresses. It is now."}
		}
	case requestlog.Limit:
		out = refusalText{Text: "The key had used all its requests of that minute. Wait for the seconds in Retry-After, or allow " + needed + "; the plan has the highest possible limit."}
		if k.RateLimit != 0 && edit != "" {
			out.Path, out.Label = edit, "Change the limit"
		}
	case requestlog.Environment:
		out = refusalText{Text: "This is a key for " + kd.where + ". It works at " + needed + " only."}
	case requestlog.Revoked, requestlog.Expired:
		out = refusalText{"The key was " + string(q.Refusal.Rule) + ". It never works again: the client must use another key.", keysPath + "/new?of=" + kd.Name, "Create key"}
		if k.ReplacedBy != "" {
			out.Path, out.Label = keysPath+"/"+k.ReplacedBy, "Open its replacement"
		}
	default:
		out = refusalText{Text: "No rule of the key refused this request."}
		if q.Code != "" {
			out.Path, out.Label = "/problems/"+q.Code, "About "+q.Code
		}
	}
	if out.Path == "" {
		out.Label = ""
	}
	return out
}

// explainResource explains the refusal of a permission, "tickets.create".
func explainResource(k *apikey.Key, kd *kind, needed, edit string) refusalText {
	resource, action, _ := strings.Cut(needed, ".")
	text := "The key was not allowed to " + action + " " + resource + "."
	switch {
	case kd.Catalogue.Allows(k.Permissions, resource, apikey.Action(action)):
		return refusalText{Text: text + " It is now."}
	case k.Resources.Named != nil && !kd.Catalogue.Grantable(resource):
		return refusalText{text + " A key with a list of resources cannot: remove the list and set a level.", edit, "Change permissions"}
	case k.Level == apikey.ReadOnly && apikey.Action(action) != apikey.Read:
		return refusalText{text + " Add the action, and change the level: " + levels[k.Level] + " does not allow it either.", edit, "Change permissions"}
	}
	return refusalText{text + " Add the action to its resources.", edit, "Change permissions"}
}

// keyClient is an address that still uses a rotated key.
type keyClient struct {
	Address  string
	Requests string
	Last     web.Time
}

// remainingClients returns the addresses that used a key after its rotation.
func (p *pages) remainingClients(r *web.Request, k, replacement *apikey.Key) ([]keyClient, error) {
	found, err := p.Requests.Clients(r.Context(), k.ID, replacement.CreatedAt)
	if err != nil {
		return nil, err
	}
	var out []keyClient
	for _, c := range found {
		out = append(out, keyClient{c.Address, web.Number(c.Requests), r.Time(c.Last)})
	}
	return out, nil
}
