package chat

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

// maxMentions bounds the mentioned users to look up.
const maxMentions = 5

// users returns the users to look up, in order: the author, then mentioned ones.
func (e *envelope) users() []string {
	v := &e.Event
	var users []string
	text := ""
	switch e.kind() {
	case KindMessage:
		users, text = []string{v.User}, v.says()
	case KindEdit:
		users, text = []string{cmp.Or(v.Changed.Edited.User, v.Changed.User)}, v.Changed.says()
	case KindReact, KindUnreact:
		users = []string{v.User}
	default:
		return nil
	}
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		if len(users) <= maxMentions && !slices.Contains(users, m[1]) {
			users = append(users, m[1])
		}
	}
	return users
}

// mention matches a user mentioned by id alone.
var mention = regexp.MustCompile(`<@([UW][A-Z0-9]{1,40})>`)

// EnrichCall implements [channel.Enricher].
func (a *Adapter) EnrichCall(r *channel.Request, _ channel.Part, answers []channel.Response, credentials channel.Credentials) *channel.APIRequest {
	if credentials.Get(CredBotToken) == "" {
		return nil
	}
	e, err := read(r.Body)
	if err != nil {
		return nil
	}
	open := e.users()
	if len(answers) >= len(open) {
		return nil
	}
	for _, answer := range answers {
		if reply := parseReply(answer); lostAccess(reply.Error) {
			return nil
		}
	}
	call := getCall(credentials, "/api/users.info?"+url.Values{"user": {open[len(answers)]}}.Encode())
	call.Optional = true
	return &call
}

// Locate implements [channel.MediaLocator]. An event has only the id of a file in another
// workspace.
func (a *Adapter) Locate(at channel.Attachment, credentials channel.Credentials) (*channel.APIRequest, string) {
	if credentials.Get(CredBotToken) == "" {
		return nil, unlocated
	}
	call := getCall(credentials, "/api/files.info?"+url.Values{"file": {at.Lookup}}.Encode())
	return &call, ""
}

// Located implements [channel.MediaLocator].
func (a *Adapter) Located(at channel.Attachment, answer channel.Response) channel.Attachment {
	reply := parseReply(answer)
	if !reply.OK {
		at.Error = unlocated
		return at
	}
	f := reply.File
	f.Access = "" // the lookup was answered
	told := f.attachment()
	if f.Mode == "external" && link(f.URL) {
		told.URL, told.Error = "", "it is not in the chat but at "+channel.CleanText(f.URL)
	}
	told.Lookup = at.Lookup
	return told
}

// getCall returns a GET call.
func getCall(credentials channel.Credentials, path string) channel.APIRequest {
	return credentials.NewRequest(http.MethodGet, path, http.Header{
		"Authorization": {"Bearer " + credentials.Get(CredBotToken)}, "Accept": {"application/json"},
	}, nil)
}

// reply is a response of the provider's API.
type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	User  struct {
		Name    string `json:"name"`
		Profile struct {
			RealName    string `json:"real_name"`
			DisplayName string `json:"display_name"`
			Email       string `json:"email"`
		} `json:"profile"`
	} `json:"user"`
	File file `json:"file"`
}

// parseReply parses a response; an invalid one counts as an error without a code.
func parseReply(a channel.Response) reply {
	var r reply
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &r) != nil {
		return reply{}
	}
	return r
}

// lostAccess reports whether an error code means that the token is useless.
func lostAccess(code string) bool {
	switch code {
	case "not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired":
		return true
	}
	return false
}

// userDirectory holds the users that were looked up, by id.
type userDirectory map[string]channel.Party

// newUserDirectory reads the responses to the user lookups, in the same order.
func newUserDirectory(users []string, answers []channel.Response) userDirectory {
	k := userDirectory{}
	for i, answer := range answers[:min(len(answers), len(users))] {
		reply := parseReply(answer)
		if !reply.OK {
			continue
		}
		u := &reply.User
		k[users[i]] = channel.Party{
			ID: key(users[i]), Name: channel.CleanText(cmp.Or(u.Profile.RealName, u.Profile.DisplayName, u.Name)), Email: channel.CleanText(u.Profile.Email),
		}
	}
	return k
}

// party returns a user, with the name if known.
func (k userDirectory) party(id string) channel.Party {
	if p, ok := k[id]; ok {
		return p
	}
	return channel.Party{ID: key(id)}
}

// text converts markup to plain text: references in angle brackets are resolved, escapes
// undone.
func (k userDirectory) text(s string) string {
	s = channel.CleanText(s)
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "<")
		inside, after, closed := strings.Cut(rest, ">")
		if !found || !closed {
			b.WriteString(unescape(s))
			return b.String()
		}
		b.WriteString(unescape(before))
		b.WriteString(unescape(k.reference(inside)))
		s = after
	}
}

// reference returns the readable form of <inside>.
func (k userDirectory) reference(inside string) string {
	target, label, labelled := strings.Cut(inside, "|")
	if target == "" {
		return "<" + inside + ">"
	}
	switch target[0] {
	case '@':
		id := target[1:]
		return "@" + cmp.Or(k[id].Name, label, id)
	case '#':
		return "#" + cmp.Or(label, target[1:])
	case '!':
		if !labelled {
			label = target[1:]
			if i := strings.IndexByte(label, '^'); i >= 0 {
				label = label[:i]
			}
		}
		if strings.HasPrefix(target, "!date^") {
			return label
		}
		return "@" + strings.TrimPrefix(label, "@")
	}
	bare := target
	for _, scheme := range []string{"mailto:", "tel:"} {
		bare = strings.TrimPrefix(bare, scheme)
	}
	switch {
	case label == "" || label == target || label == bare:
		return bare
	case strings.TrimRight(bare[strings.Index(bare, "://")+1:], "/") == "//"+strings.TrimRight(label, "/"):
		return bare // written without the scheme
	}
	return label + " (" + bare + ")"
}

// unescape reverts the provider's three escapes, once.
func unescape(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}
