package inbound_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// TestEnrich: missing data is fetched, and unavailable data is done without.
func TestEnrich(t *testing.T) {
	const first, second = "https://api.example/1/0", "https://api.example/1/1"
	for _, tt := range []struct {
		name    string
		calls   int
		answers map[string]answerFunc
		want    string // the text of the message
		asked   int
		took    time.Duration // minimum duration

		optional time.Duration // maximum duration with optional responses
	}{
		{"nothing is missing", 0, nil, "", 0, 0, 0},
		{"one answer", 1, map[string]answerFunc{first: file("Ana")}, "200:Ana", 1, 0, 0},
		{"two answers", 2, map[string]answerFunc{first: file("Ana"), second: file("Bo")}, "200:Ana 200:Bo", 2, 0, 0},
		{"refused", 2, map[string]answerFunc{first: status(403), second: file("Bo")}, "403:no 200:Bo", 2, 0, 0},
		{"not followed", 1, map[string]answerFunc{first: redirect("https://api.example/1/9")}, "302:", 1, 0, 0},
		{"fails twice", 1, map[string]answerFunc{first: inTurn(status(500), status(503), file("Ana"))}, "200:Ana", 3, 5 * time.Second, 0},
		{"fails for good", 2, map[string]answerFunc{first: status(500), second: file("Bo")}, "0: 200:Bo", 5, 21 * time.Second, 0},
		{"cannot be reached", 1, nil, "0:", 4, 21 * time.Second, 0},
		{"hangs", 1, map[string]answerFunc{first: hang}, "0:", 4, 120 * time.Second, 0},
		{"hangs in the body", 1, map[string]answerFunc{first: hangInBody}, "0:", 4, 120 * time.Second, 0},
		{"asks to wait", 1, map[string]answerFunc{first: inTurn(busy("90"), file("Ana"))}, "200:Ana", 2, 90 * time.Second, 0},
		{"asks to wait for days", 1, map[string]answerFunc{first: inTurn(busy("864000"), file("Ana"))}, "200:Ana", 2, 15 * time.Minute, 0},
		{"large", 1, map[string]answerFunc{first: fileOf(30 << 20)}, "200:" + strings.Repeat("a", 20), 1, 0, 0},
		{"two large ones", 2, map[string]answerFunc{first: fileOf(19 << 20), second: fileOf(19 << 20)}, "200:" + strings.Repeat("a", 20) + " 200:" + strings.Repeat("a", 20), 2, 0, 0},
		{"too large", 1, map[string]answerFunc{first: fileOf(41 << 20)}, "0:", 4, 21 * time.Second, 0},
		{"without end", 1000, map[string]answerFunc{}, "", 0, 0, 0},
		{"a name", 1, map[string]answerFunc{first: file("Ana")}, "200:Ana", 1, 0, time.Second},
		{"no name", 2, map[string]answerFunc{first: status(500), second: file("Bo")}, "0: 200:Bo", 2, 0, time.Second},
		{"names hang", 2, map[string]answerFunc{first: hang, second: hang}, "0: 0:", 2, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answers: tt.answers}
				if tt.calls > 20 {
					tt.asked = 20
					var texts []string
					for i := range 20 {
						p.answers[fmt.Sprint("https://api.example/1/", i)] = file("x")
						texts = append(texts, "200:x")
					}
					tt.want = strings.Join(texts, " ")
				}
				h := startSQLite(t, withParcels(asking{newParcels("parcels"), tt.calls, tt.optional != 0}), func(h *house) { h.api = p })
				h.connect(t, "parcels", "a", func(n *connection.New) { n.Credentials = map[string]string{"token": "T"} })
				h.wantAnswer(t, parcelRequest(parcelPath, to("a", "1", "").bytes(), secretOf("a")), 200, accepted)
				from := time.Now()
				h.run(t)
				h.settled(t)
				took := time.Since(from)
				if list := h.list(t); list[0].State != inbound.Processed {
					t.Fatalf("the event is %s: %s", list[0].State, list[0].Error)
				}
				h.wantTickets(t, "org-1", []string{tt.want})
				if len(p.asked) != tt.asked || took < tt.took || took > tt.took+time.Minute {
					t.Errorf("asked %d times within %s, want %d times within %s: %q", len(p.asked), took, tt.asked, tt.took, p.asked)
				}
				if tt.optional > 0 && took > tt.optional {
					t.Errorf("the event waited for %s", took)
				}
				for _, asked := range p.asked {
					if !strings.HasSuffix(asked, " Bearer T") {
						t.Errorf("asked %q, want the connection's token", asked)
					}
				}
				if log := h.logged(); strings.Contains(log, "Bearer") || strings.Contains(log, "api.example/") {
					t.Errorf("the log holds a credential or an address: %s", log)
				}
			})
		})
	}
}

// fileOf returns n letters.
func fileOf(n int64) answerFunc {
	return file(strings.Repeat("a", int(n)))
}

// busy returns a 429.
func busy(retryAfter string) answerFunc {
	return func(*http.Request) (*http.Response, error) {
		return respond(429, strings.NewReader("slow down"), "Retry-After", retryAfter), nil
	}
}

// TestEnrichWithDeploymentCredentials: an event verified by the deployment's secret uses its
// credentials if the connection has none.
func TestEnrichWithDeploymentCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{"https://api.example/1/0": file("x"), "https://api.example/2/0": file("x")}}
		h := startSQLite(t, withParcels(asking{parcels: newParcels("parcels"), calls: 1}), func(h *house) {
			h.api = p
			h.secrets = map[string][]string{"parcels": {"the deployment's"}}
			h.credentials = map[string]channel.Credentials{"parcels": channel.DeploymentCredentials(parcelAPI, parcelAPI.URL, map[string]string{"token": "D"})}
		})
		h.connect(t, "parcels", "a", func(n *connection.New) { n.Credentials = map[string]string{"token": "A"} })
		h.connect(t, "parcels", "b", func(n *connection.New) { n.Credentials = map[string]string{"other": "B"} })
		h.wantAnswer(t, parcelRequest(parcelPath, to("a", "1", "").bytes(), secretOf("a")), 200, accepted)
		h.wantAnswer(t, parcelRequest(parcelPath, to("b", "2", "").bytes(), "the deployment's"), 200, accepted)
		h.run(t)
		h.settled(t)
		slices.Sort(p.asked)
		if want := []string{"https://api.example/1/0 Bearer A", "https://api.example/2/0 Bearer D"}; !slices.Equal(p.asked, want) {
			t.Errorf("asked %q, want %q", p.asked, want)
		}
	})
}

// TestMediaChecksum: a file with another checksum than announced is refused.
func TestMediaChecksum(t *testing.T) {
	sum := func(content string) string {
		digest := sha256.Sum256([]byte(content))
		return hex.EncodeToString(digest[:])
	}
	const url = "https://files.example/1"
	for _, tt := range []struct {
		name, sum string
		answer    answerFunc
		want      string // the error
		asked     int
	}{
		{"right", sum("content"), file("content"), "", 1},
		{"right, in capitals", strings.ToUpper(sum("content")), file("content"), "", 1},
		{"none", "", file("content"), "", 1},
		{"wrong", sum("other"), file("content"), "the file's checksum does not match", 4},
		{"wrong at first", sum("content"), inTurn(file("cont"), file("content")), "", 2},
		{"no checksum", "x", file("content"), "the file's checksum does not match", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answers: map[string]answerFunc{url: tt.answer}}
				h := startSQLite(t, withParcels(newParcels("parcels")), func(h *house) { h.media = p })
				h.connect(t, "parcels", "a")
				body := parcel{To: []string{"a"}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: "a", Text: "look", File: url, Sum: tt.sum}}}
				h.wantAnswer(t, parcelRequest(parcelPath, body.bytes(), secretOf("a")), 200, accepted)
				h.run(t)
				h.settled(t)
				messages, err := h.desk.Messages(t.Context(), h.db, "org-1", result(t, h.list(t)[0]).TicketID)
				if err != nil {
					t.Fatal(err)
				}
				got := messages[0].Attachments[0]
				if got.Error != tt.want || (got.BlobKey == "") != (tt.want != "") || len(p.asked) != tt.asked {
					t.Errorf("attachment %+v after %d requests, want the error %q after %d", got, len(p.asked), tt.want, tt.asked)
				}
			})
		})
	}
}

// TestConfirmURL: only URLs at the provider's hosts are called.
func TestConfirmURL(t *testing.T) {
	const url = "https://sns.example/?Action=ConfirmSubscription&Token=hush"
	blocked := func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("dial: %w", &netguard.AddressError{Why: "private"})
	}
	for _, tt := range []struct {
		name, url string
		answer    answerFunc
		want      string // the result
		asked     int
	}{
		{"confirms", url, file("<ok/>"), `{"outcome":"visited","status":200}`, 1},
		{"after a failure", url, inTurn(status(500), status(429), file("<ok/>")), `{"outcome":"visited","status":200}`, 3},
		{"out of reach at first", url, inTurn(hang, file("<ok/>")), `{"outcome":"visited","status":200}`, 2},
		{"refused", url, status(403), `{"outcome":"refused","status":403,"reason":"the provider answered 403 Forbidden"}`, 1},
		{"elsewhere", url, redirect("https://sns.example/other"), `{"outcome":"refused","status":302,"reason":"the provider answered 302 Found"}`, 1},
		{"not public", url, blocked, `{"outcome":"refused","reason":"the address is not public"}`, 1},
		{"another host", "https://evil.example/", file("x"), `{"outcome":"refused","reason":"the address is not one of the provider's, or not plain https"}`, 0},
		{"with a password", "https://a:b@sns.example/", file("x"), `{"outcome":"refused","reason":"the address is not one of the provider's, or not plain https"}`, 0},
		{"another port", "https://sns.example:444/", file("x"), `{"outcome":"refused","reason":"the address is not one of the provider's, or not plain https"}`, 0},
		{"plain", "http://sns.example/", file("x"), `{"outcome":"refused","reason":"the address is not one of the provider's, or not plain https"}`, 0},
		{"malformed", "https://sns.example/%zz", file("x"), `{"outcome":"refused","reason":"the address is malformed"}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answers: map[string]answerFunc{tt.url: tt.answer}}
				h := startSQLite(t, withParcels(newParcels("parcels")), func(h *house) { h.media = p })
				h.connect(t, "parcels", "a")
				h.wantAnswer(t, parcelRequest(parcelPath, eventTo("a", channel.Event{URLConfirmation: &channel.URLConfirmation{URL: tt.url, Hosts: []string{"sns.example"}}}), secretOf("a")), 200, accepted)
				h.run(t)
				h.settled(t)
				e := h.list(t)[0]
				if e.State != inbound.Processed || string(e.Result) != tt.want || len(p.asked) != tt.asked {
					t.Errorf("the event is %s with %s after %d requests, want %s after %d", e.State, e.Result, len(p.asked), tt.want, tt.asked)
				}
				if strings.Contains(h.logged(), "hush") {
					t.Errorf("the log holds the address: %s", h.logged())
				}
			})
		})
	}
}

// TestConfirmURLDead: an unconfirmed URL waits for review.
func TestConfirmURLDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startSQLite(t, withParcels(newParcels("parcels")))
		h.connect(t, "parcels", "a")
		visit := channel.Event{URLConfirmation: &channel.URLConfirmation{URL: "https://sns.example/?Token=hush", Hosts: []string{"sns.example"}}}
		h.wantAnswer(t, parcelRequest(parcelPath, eventTo("a", visit), secretOf("a")), 200, accepted)
		h.run(t)
		h.settled(t)
		if e := h.list(t)[0]; e.State != inbound.Dead || !strings.Contains(e.Error, "no route") || strings.Contains(e.Error, "hush") {
			t.Errorf("the event is %s: %s", e.State, e.Error)
		}
	})
}

// eventTo returns a request with the event e.
func eventTo(address string, e channel.Event) []byte {
	return parcel{To: []string{address}, Parts: []parcelItem{{Key: "1", Sender: "ana", Address: address, Event: &e}}}.bytes()
}
