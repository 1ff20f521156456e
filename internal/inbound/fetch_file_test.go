package inbound_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// provider serves downloads by URL and records requests.
type provider struct {
	answers map[string]func(*http.Request) (*http.Response, error)
	mu      sync.Mutex
	asked   []string // "address authorization referer"
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.asked = append(p.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.URL, r.Header.Get("Authorization"), r.Header.Get("Referer"))))
	p.mu.Unlock()
	answer, ok := p.answers[r.URL.String()]
	if !ok {
		return nil, fmt.Errorf("dial tcp: lookup %s: no such host", r.URL.Host)
	}
	return answer(r)
}

func respond(status int, body io.Reader, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: io.NopCloser(body), ContentLength: -1,
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

type answerFunc = func(*http.Request) (*http.Response, error)

func file(content string, header ...string) answerFunc {
	return func(*http.Request) (*http.Response, error) {
		return respond(200, strings.NewReader(content), header...), nil
	}
}

func status(code int) answerFunc {
	return func(*http.Request) (*http.Response, error) { return respond(code, strings.NewReader("no")), nil }
}

func redirect(to string) answerFunc {
	return func(r *http.Request) (*http.Response, error) {
		resp := respond(302, http.NoBody, "Location", to)
		resp.Request = r
		return resp, nil
	}
}

// hang returns when the request is cancelled.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// hangInBody stops in the middle of the body.
func hangInBody(r *http.Request) (*http.Response, error) {
	from, to := io.Pipe()
	go func() {
		to.Write([]byte("GIF89a"))
		<-r.Context().Done()
		to.CloseWithError(r.Context().Err())
	}()
	return respond(200, from), nil
}

// inTurn answers from a list, and repeats the last answer.
func inTurn(list ...answerFunc) answerFunc {
	var mu sync.Mutex
	return func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		next := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		mu.Unlock()
		return next(r)
	}
}

const (
	png   = "\x89PNG\r\n\x1a\n and more"
	basic = "Basic QUMxOnRva2Vu" // AC1:token
	api   = "https://api.twilio.com/media/1"
	cdn   = "https://mms.twiliocdn.com/1"
)

// attachments processes one text with media at the URLs and returns the ticket's attachments
// and the duration.
func attachments(t *testing.T, p http.RoundTripper, change func(*house), urls ...string) (*house, []desk.Attachment, time.Duration) {
	t.Helper()
	h := startSQLite(t, func(h *house) {
		h.media = p
		if change != nil {
			change(h)
		}
	})
	h.connect(t, "sms", ours, func(n *connection.New) {
		n.Credentials = map[string]string{"account_sid": "AC1", "auth_token": "token"}
	})
	form := text("SM1", theirs, "look")
	form.Set("NumMedia", fmt.Sprint(len(urls)))
	for i, u := range urls {
		form.Set(fmt.Sprint("MediaUrl", i), u)
		form.Set(fmt.Sprint("MediaContentType", i), "image/jpeg")
	}
	h.wantAnswer(t, smsRequest(form, secretOf(ours)), 200, twiml)
	began := time.Now()
	h.run(t)
	h.settled(t)
	h.wantTickets(t, "org-1", []string{"look"})
	list, _, err := h.desk.FindTickets(t.Context(), h.db, "org-1", desk.TicketQuery{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := h.desk.Messages(t.Context(), h.db, "org-1", list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(messages[0].Attachments) != len(urls) {
		t.Fatalf("attachments %+v, want %d", messages[0].Attachments, len(urls))
	}
	if waited := h.list(t)[0].ProcessedAt.Sub(began); waited > time.Second {
		t.Errorf("the text waited for %v", waited)
	}
	return h, messages[0].Attachments, time.Since(began)
}

func TestMedia(t *testing.T) {
	big := bytes.Repeat([]byte("\x00\x01\x02\x03"), 25<<20/4)
	bigFile := func(more string) answerFunc {
		return func(*http.Request) (*http.Response, error) {
			return respond(200, io.MultiReader(bytes.NewReader(big), strings.NewReader(more))), nil
		}
	}
	const (
		notHost  = "the file's address is not one of the provider's hosts"
		notPlain = "the file's address is not plain https"
		nowhere  = "the provider could not be reached"
	)
	at := func(u string, f answerFunc) map[string]answerFunc { return map[string]answerFunc{u: f} }
	for _, tt := range []struct {
		name    string
		url     string
		answers map[string]answerFunc
		want    string   // "name type size" or the error
		asked   []string // in order; nil for only url, with credentials
		waits   time.Duration
	}{
		{name: "a picture, mislabelled", url: api, answers: at(api, file(png, "Content-Type", "text/html")), want: "attachment.png image/png 17"},
		{name: "its name", url: api, answers: at(api, file(png, "Content-Disposition", `attachment; filename="..\\up/holiday.png"`)), want: "holiday.png image/png 17"},
		{name: "bytes that tell nothing", url: api, answers: at(api, file("\x00\x01\x02")), want: "attachment.jpg image/jpeg 3"},
		{name: "nothing", url: api, answers: at(api, file("")), want: "attachment.txt text/plain; charset=utf-8 0"},
		{name: "the port said", url: "https://api.twilio.com:443/media/1", answers: at("https://api.twilio.com:443/media/1", file(png)), want: "attachment.png image/png 17"},
		{
			name: "redirected away", url: api, want: "attachment.png image/png 17",
			answers: map[string]answerFunc{api: redirect(cdn), cdn: redirect("https://s3-external-1.amazonaws.com/x?sig=1"), "https://s3-external-1.amazonaws.com/x?sig=1": file(png)},
			asked:   []string{api + " " + basic, cdn, "https://s3-external-1.amazonaws.com/x?sig=1"},
		},
		{
			name: "redirected within the host", url: api, want: "attachment.png image/png 17",
			answers: map[string]answerFunc{api: redirect("/media/2"), "https://api.twilio.com/media/2": file(png)},
			asked:   []string{api + " " + basic, "https://api.twilio.com/media/2 " + basic},
		},
		{
			name: "redirected away and back", url: api, want: "attachment.png image/png 17",
			answers: map[string]answerFunc{api: redirect(cdn), cdn: redirect("https://api.twilio.com/media/2"), "https://api.twilio.com/media/2": file(png)},
			asked:   []string{api + " " + basic, cdn, "https://api.twilio.com/media/2"},
		},
		{name: "redirected to a stranger", url: api, answers: at(api, redirect("https://evil.example/x")), want: notHost},
		{name: "redirected to http", url: api, answers: at(api, redirect("http://api.twilio.com/x")), want: notPlain},
		{name: "redirected to another port", url: api, answers: at(api, redirect("https://api.twilio.com:22/x")), want: notHost},
		{
			name: "redirected in a circle", url: api, answers: at(api, redirect(api)), want: "the file's address redirects too often",
			asked: slices.Repeat([]string{api + " " + basic}, 6),
		},
		{name: "http", url: "http://api.twilio.com/x", want: notPlain, asked: []string{}},
		{name: "a password", url: "https://a:b@api.twilio.com/x", want: notPlain, asked: []string{}},
		{name: "a stranger", url: "https://api.twilio.com.evil.example/x", want: notHost, asked: []string{}},
		{name: "an address", url: "https://169.254.169.254/x", want: notHost, asked: []string{}},
		{name: "another port", url: "https://api.twilio.com:8443/x", want: notHost, asked: []string{}},
		{name: "a file", url: "file:///etc/passwd", want: notPlain, asked: []string{}},
		{name: "no address", url: "https://[::1", want: "the file's address is malformed", asked: []string{}},
		{name: "as large as may be", url: api, answers: at(api, bigFile("")), want: "attachment.jpg image/jpeg 26214400"},
		{name: "too large", url: api, answers: at(api, bigFile("!")), want: "the file is larger than 25 MB"},
		{name: "gone", url: api, answers: at(api, status(404)), want: "the provider answered 404 Not Found"},
		{name: "forbidden", url: api, answers: at(api, status(401)), want: "the provider answered 401 Unauthorized"},
		// Waits of one, four and sixteen seconds.
		{name: "down", url: api, answers: at(api, status(503)), want: "the provider answered 503 Service Unavailable", waits: 21 * time.Second, asked: slices.Repeat([]string{api + " " + basic}, 4)},
		// Hosts that need no credentials get none.
		{name: "unknown", url: cdn, want: nowhere, waits: 21 * time.Second, asked: slices.Repeat([]string{cdn}, 4)},
		{
			name: "down for a while", url: api, want: "attachment.png image/png 17", waits: 5 * time.Second,
			answers: at(api, inTurn(status(429), func(*http.Request) (*http.Response, error) {
				return respond(200, io.MultiReader(strings.NewReader(png), failing{})), nil
			}, file(png))), asked: slices.Repeat([]string{api + " " + basic}, 3),
		},
		{name: "silent", url: api, answers: at(api, hang), want: nowhere, waits: 141 * time.Second, asked: slices.Repeat([]string{api + " " + basic}, 4)},
		{name: "silent in the middle", url: api, answers: at(api, hangInBody), want: "the download was interrupted", waits: 141 * time.Second, asked: slices.Repeat([]string{api + " " + basic}, 4)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answers: tt.answers}
				h, list, took := attachments(t, p, nil, tt.url)
				a := list[0]
				got := a.Error
				if a.BlobKey != "" {
					got = strings.TrimSpace(fmt.Sprintf("%s %s %d %s", a.Name, a.ContentType, a.Size, a.Error))
				}
				if got != tt.want {
					t.Errorf("attachment %q, want %q", got, tt.want)
				}
				want := tt.asked
				if want == nil {
					want = []string{tt.url + " " + basic}
				}
				if !slices.Equal(p.asked, want) {
					t.Errorf("asked %q, want %q", p.asked, want)
				}
				if took.Truncate(time.Second) != tt.waits {
					t.Errorf("took %v, want %v", took, tt.waits)
				}
				if a.BlobKey == "" && h.files(t) != 0 {
					t.Errorf("%d files are left behind", h.files(t))
				}
			})
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

func TestMediaOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{api: file(png), cdn: status(404), api + "/3": file("GIF89a...")}}
		_, list, _ := attachments(t, p, nil, api, cdn, api+"/3")
		got := make(map[string]string)
		for _, a := range list {
			got[a.Name] = a.Error
		}
		want := map[string]string{"attachment.png": "", "attachment-2": "the provider answered 404 Not Found", "attachment.gif": ""}
		if !maps.Equal(got, want) {
			t.Errorf("attachments %v, want %v", got, want)
		}
	})
}

// TestMediaCredentialsOfAnyName sends credentials in a header that Go's client does not know.
func TestMediaCredentialsOfAnyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const back = "https://api.twilio.com/media/2"
		p := &provider{answers: map[string]answerFunc{api: redirect(cdn), cdn: redirect(back), back: file(png)}}
		var keys []string
		seen := transport(func(r *http.Request) (*http.Response, error) {
			keys = append(keys, r.Header.Get("X-Key"))
			return p.RoundTrip(r)
		})
		attachments(t, seen, with(&loose{media: http.Header{"X-Key": {"hunter2"}}}), api)
		if want := []string{"hunter2", "", ""}; !slices.Equal(keys, want) {
			t.Errorf("keys sent %q, want %q", keys, want)
		}
	})
}

// TestMediaOnPrivateAddress: the guard refuses a private address of an allowed host.
func TestMediaOnPrivateAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guarded := netguard.NewTransport(netguard.Guard{})
		defer guarded.CloseIdleConnections()
		_, list, took := attachments(t, guarded, func(h *house) {
			h.adapters = []channel.Adapter{sms.New(sms.Config{MediaHosts: []string{"127.0.0.1", "[::ffff:10.0.0.1]"}})}
		}, "https://127.0.0.1/x", "https://[::ffff:10.0.0.1]/x")
		for _, a := range list {
			if a.Error != "the file's address is not public" || took > time.Second {
				t.Errorf("attachment %+v after %v, want it refused at once", a, took)
			}
		}
	})
}

// TestMediaCannotBeStored: a failure of our storage is not final.
func TestMediaCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store brokenStore
		store.broken.Store(true)
		p := &provider{answers: map[string]answerFunc{api: file(png)}}
		time.AfterFunc(time.Minute, func() { store.broken.Store(false) })
		_, list, took := attachments(t, p, func(h *house) {
			h.store = func(s blob.Store) blob.Store { store.Store = s; return &store }
		}, api)
		if a := list[0]; a.BlobKey == "" || a.Error != "" || took < time.Minute {
			t.Errorf("attachment %+v after %v, want it stored in the end", a, took)
		}
	})
}

// TestMediaSecretsStayHidden: errors do not show a signed URL.
func TestMediaSecretsStayHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{api: redirect(cdn + "?signature=hunter2")}}
		h, list, _ := attachments(t, p, nil, api)
		if strings.Contains(h.logged(), "hunter2") || strings.Contains(list[0].Error, "hunter2") || strings.Contains(h.logged(), basic) {
			t.Errorf("a secret is shown: %q\n%s", list[0].Error, h.logged())
		}
		if _, err := url.Parse(list[0].URL); err != nil || h.list(t)[0].State != inbound.Processed {
			t.Errorf("attachment %+v", list[0])
		}
	})
}

// signIn is a text channel with a provider that shows a sign-in page to unauthenticated
// clients.
type signIn struct{ *sms.Adapter }

func (s signIn) MediaRequest(a channel.Attachment, credentials channel.Credentials) channel.MediaRequest {
	m := s.Adapter.MediaRequest(a, credentials)
	m.SignIn = "the provider wants to be signed in to"
	return m
}

// TestSignInPage: a sign-in page is not stored as the file.
func TestSignInPage(t *testing.T) {
	const page, away = "https://api.twilio.com/media/2", "https://api.twilio.com/media/3"
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answers: map[string]answerFunc{
			api:  file(png),
			page: file("<!DOCTYPE html><html><title>Sign in</title>", "Content-Type", "text/html"),
			away: redirect("https://login.example/?redir=media"),
		}}
		_, list, _ := attachments(t, p, func(h *house) { h.adapters = []channel.Adapter{signIn{sms.New(sms.Config{})}} }, api, page, away)
		for i, want := range []string{"", "the provider wants to be signed in to", "the provider wants to be signed in to"} {
			if list[i].Error != want {
				t.Errorf("attachment %d has the error %q, want %q", i+1, list[i].Error, want)
			}
		}
	})
}
