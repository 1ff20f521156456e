package inbound_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// withMeta adds both channels to a house.
func withMeta(p *provider) func(*house) {
	return func(h *house) {
		h.adapters = []channel.Adapter{meta.NewBusiness(meta.Config{}), meta.NewMessenger(meta.Config{})}
		h.api, h.media = p, p
	}
}

func withToken(n *connection.New) { n.Credentials = map[string]string{"access_token": "T"} }

// businessChange returns a message to a number of an account in JSON. The sender's id is
// derived from the message's.
func businessChange(number, id, kind, content string) string {
	return fmt.Sprintf(`{"field":"messages","value":{"metadata":{"phone_number_id":%q},"contacts":[{"profile":{"name":"Ana"},"user_id":"US.%s"}],
		"messages":[{"from_user_id":"US.%[2]s","id":%[2]q,"timestamp":"1764000000","type":%q,%[3]q:%s}]}}`, number, id, kind, content)
}

func businessRequest(secret, account string, changes ...string) *http.Request {
	return metaRequest("business-messaging", secret, fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":%q,"changes":[%s]}]}`, account, strings.Join(changes, ",")))
}

func messengerRequest(secret, page, event string) *http.Request {
	return metaRequest("social-messenger", secret, fmt.Sprintf(`{"object":"page","entry":[{"id":%q,"messaging":[%s]}]}`, page, event))
}

func metaRequest(name, secret, body string) *http.Request {
	r := httptest.NewRequest("POST", "/api/webhooks/"+name, bytes.NewReader([]byte(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(meta.SignatureHeader, meta.Sign([]byte(body), secret))
	return r
}

// TestBusinessFile: a file's URL is requested, and the file is downloaded with the token.
func TestBusinessFile(t *testing.T) {
	const graph, at, later = "https://graph.facebook.com/v25.0/777", "https://lookaside.fbsbx.com/1", "https://lookaside.fbsbx.com/2"
	digest := "8b5f2ec1d6b2b1fb6a0e4bd0ab9fd3cc0f45fb0a3a2f3b34ae1d3d6d2a1ea1bb" // of another file
	where := func(address, sum string) answerFunc {
		body, _ := json.Marshal(map[string]any{"url": address, "mime_type": "image/png", "sha256": sum, "file_size": 16})
		return file(string(body))
	}
	refuses := func(code int) answerFunc {
		return func(*http.Request) (*http.Response, error) {
			body := fmt.Sprintf(`{"error":{"code":%d,"message":"no"}}`, code)
			return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	for _, tt := range []struct {
		name    string
		answers map[string]answerFunc
		want    desk.Attachment // fields of no interest are empty
		asked   []string
	}{
		{"had", map[string]answerFunc{graph: where(at, ""), at: file(png)},
			desk.Attachment{Name: "attachment.png", ContentType: "image/png"}, []string{graph + " Bearer T", at + " Bearer T"}},
		{"had where it is by now", map[string]answerFunc{graph: inTurn(where(at, ""), where(later, "")), at: status(500), later: file(png)},
			desk.Attachment{Name: "attachment.png", ContentType: "image/png"}, []string{graph + " Bearer T", at + " Bearer T", graph + " Bearer T", later + " Bearer T"}},
		{"asked too often", map[string]answerFunc{graph: inTurn(refuses(80007), where(at, "")), at: file(png)},
			desk.Attachment{Name: "attachment.png", ContentType: "image/png"}, []string{graph + " Bearer T", graph + " Bearer T", at + " Bearer T"}},
		{"asked too often, again and again", map[string]answerFunc{graph: refuses(4)},
			desk.Attachment{Name: "attachment-1", ContentType: "image/jpeg", Error: "the file could not be had: the provider did not tell where it is, however often it was asked (4)"}, slices.Repeat([]string{graph + " Bearer T"}, 4)},
		{"not for us", map[string]answerFunc{graph: refuses(190)},
			desk.Attachment{Name: "attachment-1", ContentType: "image/jpeg", Error: "the file could not be had: the provider refuses the connection's access token: it has expired or was withdrawn. An administrator must give the connection a new one (190)"}, []string{graph + " Bearer T"}},
		{"no longer there", map[string]answerFunc{graph: status(404)},
			desk.Attachment{Name: "attachment-1", ContentType: "image/jpeg", Error: "the file could not be had: the provider answered 404"}, []string{graph + " Bearer T"}},
		{"elsewhere", map[string]answerFunc{graph: where("https://evil.example/1", "")},
			desk.Attachment{Name: "attachment-1", ContentType: "image/jpeg", Error: "the file's address is not one of the provider's hosts"}, []string{graph + " Bearer T"}},
		{"another file", map[string]answerFunc{graph: where(at, digest), at: file(png)},
			desk.Attachment{Name: "attachment-1", ContentType: "image/jpeg", Error: "the file's checksum does not match"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answers: tt.answers}
				h := startSQLite(t, withMeta(p))
				h.connect(t, "business-messaging", "1065", withToken)
				h.wantAnswer(t, businessRequest(secretOf("1065"), "1029", businessChange("1065", "wamid.1", "image", `{"id":"777","mime_type":"image/jpeg","caption":"Look"}`)), 200, accepted)
				h.run(t)
				h.settled(t)
				h.wantTickets(t, "org-1", []string{"Look"})
				r := result(t, h.list(t)[0])
				messages, err := h.desk.Messages(t.Context(), h.db, "org-1", r.TicketID)
				if err != nil || len(messages[0].Attachments) != 1 {
					t.Fatalf("messages %+v, %v; want one with one file", messages, err)
				}
				got := messages[0].Attachments[0]
				if got.Name != tt.want.Name || got.ContentType != tt.want.ContentType || got.Error != tt.want.Error {
					t.Errorf("the file is %q of %s, error %q; want %q of %s, error %q", got.Name, got.ContentType, got.Error, tt.want.Name, tt.want.ContentType, tt.want.Error)
				}
				if tt.asked != nil && !slices.Equal(p.asked, tt.asked) {
					t.Errorf("asked %q, want %q", p.asked, tt.asked)
				}
			})
		})
	}
}

// TestBusinessAccount: a whole account can be connected. A connection of one of its numbers
// takes precedence, but requests verified only by the account's key stay with the account.
func TestBusinessAccount(t *testing.T) {
	h := start(t, withMeta(new(provider)), func(h *house) { h.secrets = map[string][]string{"business-messaging": {"the app's"}} })
	account := h.connect(t, "business-messaging", "1029")
	number := h.connect(t, "business-messaging", "1065", ofOrg2)
	batch := func(id string) []string {
		var list []string
		for _, n := range []string{"1065", "1066", "1067"} {
			list = append(list, businessChange(n, id+n, "text", `{"body":"Hi"}`))
		}
		return list
	}
	h.wantAnswer(t, businessRequest("the app's", "1029", batch("a")...), 200, accepted)
	h.wantAnswer(t, businessRequest(secretOf("1029"), "1029", batch("b")...), 200, accepted)
	h.wantAnswer(t, businessRequest(secretOf("1065"), "1029", batch("c")...), 200, accepted)
	h.wantAnswer(t, businessRequest("another's", "1029", batch("d")...), 401, denied)
	got := make(map[string]string)
	for _, e := range h.list(t, inbound.Accepted) {
		got[e.Key] = e.ConnectionID
	}
	for key, want := range map[string]string{
		"a1065": number.ID, "a1066": account.ID, "a1067": account.ID,
		"b1065": account.ID, "b1066": account.ID, "b1067": account.ID,
		"c1065": number.ID,
	} {
		if got[key] != want {
			t.Errorf("%s went to %q, want %q", key, got[key], want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("more came in than anybody vouches for: %v", got)
	}
}

// TestMessengerName: the sender's name is looked up.
func TestMessengerName(t *testing.T) {
	const profile = "https://graph.facebook.com/v25.0/9001?fields=first_name%2Clast_name"
	for _, tt := range []struct {
		name    string
		answer  answerFunc
		want    string
		subject string
	}{
		{"told", file(`{"first_name":"Ana","last_name":"López"}`), "Ana López", "Hi"},
		{"refused", status(400), "", "Hi"},
		{"out of order", status(500), "", "Hi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startSQLite(t, withMeta(&provider{answers: map[string]answerFunc{profile: tt.answer}}))
				h.connect(t, "social-messenger", "1234", withToken)
				h.wantAnswer(t, messengerRequest(secretOf("1234"), "1234", `{"sender":{"id":"9001"},"recipient":{"id":"1234"},"timestamp":1764000000000,"message":{"mid":"m_1","text":"Hi"}}`), 200, accepted)
				h.run(t)
				h.settled(t)
				list, _, err := h.desk.FindTickets(t.Context(), h.db, "org-1", desk.TicketQuery{})
				if err != nil || len(list) != 1 {
					t.Fatalf("tickets %+v, %v; want one", list, err)
				}
				if got := list[0]; got.Customer.Name != tt.want || got.Subject != tt.subject || got.Channel != "social_messenger" {
					t.Errorf("ticket %q of %q on %s, want %q of %q on social_messenger", got.Subject, got.Customer.Name, got.Channel, tt.subject, tt.want)
				}
			})
		})
	}
}

// TestMetaBatch: unreadable parts of a batch are stored separately from readable ones, and
// other kinds are ignored.
func TestMetaBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, withMeta(new(provider)))
		h.connect(t, "business-messaging", "1065")
		good := businessChange("1065", "wamid.1", "text", `{"body":"Hi"}`)
		bad := `{"field":"messages","value":{"metadata":{"phone_number_id":"1065"},"messages":["junk"]}}`
		h.wantAnswer(t, businessRequest(secretOf("1065"), "1029", bad, good), 200, accepted)
		h.wantAnswer(t, businessRequest(secretOf("1065"), "1029", bad, good), 200, duplicate)
		h.wantAnswer(t, metaRequest("business-messaging", secretOf("1065"), `{"object":"page","entry":[{"id":"1065","messaging":[]}]}`), 200, ignored)
		h.run(t)
		h.settled(t)
		h.wantTickets(t, "org-1", []string{"Hi"})
		if list := h.list(t, inbound.Rejected); len(list) != 1 || !strings.Contains(list[0].Error, "it is no object") {
			t.Errorf("rejected %+v, want the one that is no object", list)
		}
	})
}
