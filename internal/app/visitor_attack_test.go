package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rest/visitorapi"
)

// form returns a multipart body with fields and n files.
func form(fields [][2]string, n int) (contentType, body string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		w.WriteField(f[0], f[1])
	}
	for i := range n {
		part, _ := w.CreateFormFile("files", fmt.Sprintf("%d.txt", i))
		io.WriteString(part, "x")
	}
	w.Close()
	return w.FormDataContentType(), b.String()
}

// TestVisitorBadInput: bad input has a clear problem, and changes nothing.
func TestVisitorBadInput(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	const path = "/conversations/c/messages"
	at := visitorapi.Base + "/" + r.connection.ID
	good := [][2]string{{"external_id", "m"}, {"text", "x"}}
	many, manyFiles := form(good, 51)
	invalid, invalidText := form([][2]string{{"external_id", "m"}, {"text", "\xff"}}, 0)
	for _, tt := range []struct {
		name, path, contentType, body string
		status                        int
		code                          string
	}{
		{"text after the object", path, "application/json", `{"external_id":"m","text":"x"} and more`, 400, "invalid_json"},
		{"two objects", path, "application/json", `{"external_id":"m","text":"x"}{}`, 400, "invalid_json"},
		{"a number as id", path, "application/json", `{"external_id":1,"text":"x"}`, 400, "invalid_json"},
		{"an array", path, "application/json", `[]`, 400, "invalid_json"},
		{"a NUL", path, "application/json", `{"external_id":"m","text":"a\u0000b"}`, 422, "validation_failed"},
		{"a line break in the subject", path, "application/json", `{"external_id":"m","text":"x","subject":"a\nb"}`, 422, "validation_failed"},
		{"text that is not UTF-8", path, invalid, invalidText, 422, "validation_failed"},
		{"too many files", path, many, manyFiles, 422, "validation_failed"},
		{"a form without a boundary", path, "multipart/form-data", "x", 400, "invalid_form"},
		{"a form that breaks off", path, "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nx", 400, "invalid_form"},
		{"another content type", path, "text/plain", "x", 415, ""},
		{"no content type", path, "", "x", 415, ""},
		{"a conversation that is no id", "/conversations/a%2Fb/messages", "application/json", `{"external_id":"m","text":"x"}`, 404, "not_found"},
		{"a large body", path, "application/json", `{"external_id":"m","text":"` + strings.Repeat("x", 600<<10) + `"}`, 413, ""},
		{"a large form", path, many, strings.Repeat("x", 11<<20), 413, ""},
	} {
		got := r.do("POST", at+tt.path, r.token("u-7"), tt.contentType, tt.body)
		if got.status != tt.status || tt.code != "" && got.text("code") != tt.code {
			t.Errorf("%s: %d %v, want %d %s", tt.name, got.status, got.body, tt.status, tt.code)
		}
	}
	for _, table := range []string{"tickets", "messages", "customers"} {
		var n int
		if err := r.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows in %s, %v, want none", n, table, err)
		}
	}
}

// TestVisitorRace: a message that is sent several times at once is stored once.
func TestVisitorRace(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			got := r.visitor("u-7", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"Hello"}`)
			if got.status != 200 && got.status != 201 {
				t.Errorf("%d %v", got.status, got.body)
			}
			ids[i] = got.text("id")
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("the ids are %q, want the same", ids)
		}
	}
	var n int
	if err := r.DB.QueryRow(t.Context(), "SELECT count(*) FROM messages").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d messages, %v, want one", n, err)
	}
}

// TestAppReplyOrder: replies that wait for the app arrive in the order in which they were written.
func TestAppReplyOrder(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, true)
	ticket := r.rest("POST", "/messages", `{"external_id":"m","conversation":"c","user":{"id":"u-7"},"text":"Hello"}`).text("ticket_id")
	r.answerWith(http.StatusServiceUnavailable)
	first := r.reply(ticket, "First")
	r.until("an attempt", func() bool { return len(r.got("message.created")) > 0 })
	second := r.reply(ticket, "Second")
	r.answerWith(0)
	r.until("both replies", func() bool { return r.state(first).State == "sent" && r.state(second).State == "sent" })
	seen := false
	for _, p := range r.got("message.created") {
		text := p.body["message"].(map[string]any)["text"]
		if seen = seen || text == "Second"; seen && text == "First" {
			t.Error("the first reply arrived after the second")
		}
	}
}

// TestSlowUploads: files that arrive slowly, of any number of users of one channel, do not refuse those
// of others.
func TestSlowUploads(t *testing.T) {
	t.Parallel()
	r := openAppRig(t, false)
	theirs := signUp(t, r.App, "Theirs")
	other, otherSecret := r.connect(theirs, nil)
	for i := range 40 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		token := api.SignToken(api.User{ID: fmt.Sprintf("slow-%d", i)}, other.ID, otherSecret, r.DB.Now().Add(time.Hour))
		fmt.Fprintf(conn, "POST %s/%s/conversations/c/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=b\r\n"+
			"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", visitorapi.Base, other.ID, strings.TrimPrefix(r.base, "http://"), token)
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Errorf("slow upload %d is answered %q, %v", i, line, err)
		}
	}
	contentType, body := form([][2]string{{"external_id", "m"}, {"text", "With a file"}}, 1)
	got := r.do("POST", visitorapi.Base+"/"+r.connection.ID+"/conversations/c/messages", r.token("u-7"), contentType, body)
	if got.status != http.StatusCreated {
		t.Errorf("an upload beside slow ones: %d %v, want 201", got.status, got.body)
	}
}

// TestVisitorStreamEnds: an event stream ends at once when its token is revoked, by disabling the
// channel or by replacing the secret.
func TestVisitorStreamEnds(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(r *appRig) error{
		"disabled": func(r *appRig) error {
			return r.Connections.SetEnabled(t.Context(), r.organization.ID, r.connection.ID, false)
		},
		"secret replaced": func(r *appRig) error {
			_, err := r.Connections.Rotate(t.Context(), r.organization.ID, r.connection.ID, "", 0)
			return err
		},
		// Another process changes the channel while this one has it in its cache.
		"elsewhere": func(r *appRig) error {
			r.visitor("u-7", "GET", "/conversations/c/messages", "")
			return r.DB.Write(t.Context(), func(tx *db.Tx) error {
				tx.AfterCommit(func() { r.live.Publish(r.organization.ID, "channel:"+r.connection.ID) })
				_, err := tx.Exec(t.Context(), "UPDATE connections SET enabled = FALSE WHERE id = $1", r.connection.ID)
				return err
			})
		},
		"disconnected": func(r *appRig) error {
			return r.DB.Write(t.Context(), func(tx *db.Tx) error {
				return r.Connections.DeleteTx(t.Context(), tx, r.organization.ID, r.connection.ID)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openAppRig(t, false)
			r.visitor("u-7", "POST", "/conversations/c/messages", `{"external_id":"m-1","text":"Hello"}`)
			resp, err := http.Get(r.base + visitorapi.Base + "/" + r.connection.ID + "/events?token=" + r.token("u-7"))
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("the stream: %+v, %v", resp, err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: changed") {
			}
			if err := revoke(r); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				for lines.Scan() {
				}
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(8 * time.Second): // less than the heartbeat
				t.Error("the stream has not ended")
			}
		})
	}
}
