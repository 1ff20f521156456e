package inbound_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/chat"
	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/channel/meta"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/channel/sms"
	"github.com/kickstand-dev/kickstand/internal/channel/storefront"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/inbound"
)

// poster is a provider as the endpoint sees it: its requests and their signatures.
type poster struct {
	adapter channel.Adapter
	// address is a connected address with the key as its secret, and other a second one; empty
	// if the deployment's key signs.
	address, other string
	key            func(secret string) string // the verifying key, if it is not the signing key
	// request returns a request with one event, signed with secret, or unsigned if secret is
	// empty. query is appended to its URL: "", or begins with "?".
	request func(query, secret string) *http.Request
	// unsigned means that the signature does not cover the body.
	unsigned bool
	// types means that any content type is accepted.
	types bool
	// foreign means that the key belongs to no connection, so that only the recipient
	// distinguishes them.
	foreign bool
	answer  string // default: the JSON status
}

// posters returns all channels of the program. Add new channels here.
func posters(t testing.TB) []poster {
	post := func(path, query, contentType string, body []byte, headers ...string) *http.Request {
		r := httptest.NewRequest("POST", path+query, bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			if headers[i+1] != "" {
				r.Header.Set(headers[i], headers[i+1])
			}
		}
		return r
	}
	// signed returns a signature, or "" for an empty secret.
	signed := func(secret string, sign func() string) string {
		if secret == "" {
			return ""
		}
		return sign()
	}
	base64Of := func(secret string) string { return base64.StdEncoding.EncodeToString([]byte(secret)) }
	const support = "support@acme.example"
	topics, others := newSNS(t), newSNS(t)
	certificates := &provider{answers: map[string]answerFunc{snsCert: file(string(topics.pem))}}
	return []poster{
		{adapter: sms.New(sms.Config{}), address: ours, other: "+14155550199", answer: twiml, request: func(query, secret string) *http.Request {
			form := text("SM1", theirs, "hello")
			return post(smsPath, query, "application/x-www-form-urlencoded", []byte(form.Encode()),
				"X-Twilio-Signature", signed(secret, func() string { return sms.Sign(baseURL+smsPath+query, form, secret) }))
		}},
		{adapter: email.NewRaw(email.Config{}), address: support, other: "other@acme.example", types: true, request: func(query, secret string) *http.Request {
			mail := mailText("m1@client.example", "ana@client.example", support, "hello")
			signature, timestamp := email.SignRaw([]byte(mail), time.Now(), secret)
			return post(mailPath, query, "message/rfc822", []byte(mail), "X-Envelope-To", support,
				"X-Webhook-Signature", signed(secret, func() string { return signature }), "X-Webhook-Timestamp", timestamp)
		}},
		{adapter: email.NewForm(email.Config{}), address: support, other: "other@acme.example", unsigned: true, request: func(query, secret string) *http.Request {
			timestamp, signature := email.SignForm("token-1", time.Now(), secret)
			form := url.Values{
				"recipient": {support}, "sender": {"ana@client.example"}, "from": {"ana@client.example"}, "subject": {"Help"}, "body-plain": {"hello"},
				"Message-Id": {"<m1@client.example>"}, "timestamp": {timestamp}, "token": {"token-1"},
			}
			if secret != "" {
				form.Set("signature", signature)
			}
			return post(mailPath, query, "application/x-www-form-urlencoded", []byte(form.Encode()))
		}},
		{adapter: email.NewParsed(email.Config{}), address: support, other: "other@acme.example", key: publicKeyOf, request: func(query, secret string) *http.Request {
			var b strings.Builder
			for _, f := range [][2]string{
				{"headers", "Message-ID: <m1@client.example>\nFrom: Ana <ana@client.example>"}, {"from", "Ana <ana@client.example>"}, {"to", support},
				{"subject", "Help"}, {"text", "hello"}, {"envelope", `{"to":["` + support + `"],"from":"ana@client.example"}`},
			} {
				fmt.Fprintf(&b, "--xYzZY\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", f[0], f[1])
			}
			b.WriteString("--xYzZY--\r\n")
			r := post(mailPath, query, "multipart/form-data; boundary=xYzZY", []byte(b.String()))
			if secret != "" {
				signature, timestamp, err := email.SignParse([]byte(b.String()), time.Now(), privateKeyOf(secret))
				if err != nil {
					t.Error(err)
				}
				r.Header.Set(email.ParseSignatureHeader, signature)
				r.Header.Set(email.ParseTimestampHeader, timestamp)
			}
			return r
		}},
		{adapter: email.NewJSON(email.Config{}), address: support, other: "other@acme.example", unsigned: true, request: func(query, secret string) *http.Request {
			return post(mailPath, query, "application/json", []byte(`{"From":"ana@client.example","To":"`+support+`","OriginalRecipient":"`+support+
				`","Subject":"Help","MessageID":"g1","TextBody":"hello","HtmlBody":"","MailboxHash":"","Headers":[{"Name":"Message-ID","Value":"<m1@client.example>"}]}`),
				email.TokenHeader, secret)
		}},
		{adapter: email.NewDelivery(email.Config{}), request: func(query, secret string) *http.Request {
			body := []byte(`{"type":"email.delivered","created_at":"2026-11-20T10:00:00.000Z","data":{"email_id":"56761188","from":"Acme <` + support + `>",` +
				`"to":["ana@client.example"],"subject":"Re: Lamp","tags":{"message":"m1"}}}`)
			signature, timestamp := email.SignDelivery(body, "msg_1", time.Now(), base64Of(secret))
			return post("/api/webhooks/email-delivery", query, "application/json", body, "Webhook-Id", "msg_1", "Webhook-Timestamp", timestamp,
				"Webhook-Signature", signed(secret, func() string { return signature }))
		}, key: base64Of},
		{adapter: meta.NewBusiness(meta.Config{}), address: "1065", other: "2000", request: func(query, secret string) *http.Request {
			r := businessRequest("x", "1029", businessChange("1065", "wamid.1", "text", `{"body":"hello"}`))
			return resigned(r, query, meta.SignatureHeader, func(body []byte) string { return signed(secret, func() string { return meta.Sign(body, secret) }) })
		}},
		{adapter: meta.NewMessenger(meta.Config{}), address: "3001", other: "3002", request: func(query, secret string) *http.Request {
			r := messengerRequest("x", "3001", `{"sender":{"id":"P9"},"recipient":{"id":"3001"},"timestamp":1764000000000,"message":{"mid":"m1","text":"hello"}}`)
			return resigned(r, query, meta.SignatureHeader, func(body []byte) string { return signed(secret, func() string { return meta.Sign(body, secret) }) })
		}},
		{adapter: voice.New(voice.Config{}), address: telephone, other: "+12085550199", types: true, request: func(query, secret string) *http.Request {
			body := []byte(`{"call_id":1,"state":"ringing","direction":"inbound","external_number":"` + caller + `","internal_number":"` + telephone + `","event_timestamp":1764000042000}`)
			return post(voicePath, query, "application/json", body, "X-Voice-Signature", signed(secret, func() string { return voice.Sign(body, secret) }))
		}},
		{adapter: storefront.New(storefront.Config{}), address: "acme-lamps.myshopify.com", other: "other.myshopify.com", request: func(query, secret string) *http.Request {
			body := []byte(`{"id":7,"name":"#1001","email":"ana@client.example","updated_at":"2026-11-20T10:00:01Z","order_status_url":"https://acme-lamps.myshopify.com/1"}`)
			return post("/api/webhooks/storefront", query, "application/json", body, "X-Shopify-Topic", "orders/create",
				"X-Shopify-Shop-Domain", "acme-lamps.myshopify.com", "X-Shopify-Webhook-Id", "w1",
				storefront.SignatureHeader, signed(secret, func() string { return storefront.Sign(body, secret) }))
		}},
		{adapter: storefront.NewPrivacy(), request: func(query, secret string) *http.Request {
			body := []byte(`{"shop_id":9,"shop_domain":"acme-lamps.myshopify.com"}`)
			return post("/api/webhooks/storefront/gdpr", query, "application/json", body, "X-Shopify-Topic", "shop/redact",
				"X-Shopify-Shop-Domain", "acme-lamps.myshopify.com", "X-Shopify-Webhook-Id", "w1",
				storefront.SignatureHeader, signed(secret, func() string { return storefront.Sign(body, secret) }))
		}},
		{adapter: payments.New(), request: func(query, secret string) *http.Request {
			return post(paymentsPath, query, "application/json", []byte(failed("evt_1")),
				payments.SignatureHeader, signed(secret, func() string { return payments.Sign([]byte(failed("evt_1")), time.Now(), secret) }))
		}},
		{adapter: payments.NewConnect(), address: "acct_1", other: "acct_2", request: func(query, secret string) *http.Request {
			body := []byte(connectEvent("evt_1", "acct_1", ""))
			return post(paymentsPath+"-connect", query, "application/json", body,
				payments.SignatureHeader, signed(secret, func() string { return payments.Sign(body, time.Now(), secret) }))
		}},
		{adapter: chat.New(chat.Config{}), address: "T1", other: "T2", request: func(query, secret string) *http.Request {
			r := chatRequest(chatPath+query, chatEvent("T1", "Ev1", "text", "hello", "ts", "1764000000.000100"), secret)
			if secret == "" {
				r.Header.Del("X-Slack-Signature")
			}
			return r
		}},
		{
			adapter: marketplace.New(marketplace.OpenCertificates(certificates, nil)), address: ourTopic, other: ourTopic + "2", foreign: true, types: true, key: func(string) string { return "of no use here" },
			request: func(query, secret string) *http.Request {
				from := topics
				if secret != secretOf(ourTopic) {
					from = others
				}
				r := from.request(ourTopic, "n1", orderChange("1", "903-1", "OrderStatusChange", "Shipped", time.Now()))
				body, _ := io.ReadAll(r.Body)
				if secret == "" {
					body = bytes.Replace(body, []byte(`"Signature"`), []byte(`"Nothing"`), 1)
				}
				return post("/api/marketplace/webhook", query, "text/plain; charset=UTF-8", body)
			},
		},
	}
}

// privateKeyOf returns a key derived from a secret.
func privateKeyOf(secret string) *ecdsa.PrivateKey {
	sum := sha256.Sum256([]byte(secret))
	scalar := new(big.Int).SetBytes(sum[:])
	scalar.Mod(scalar, new(big.Int).Sub(elliptic.P256().Params().N, big.NewInt(1)))
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar.FillBytes(make([]byte, 32)))
	if err != nil {
		panic(err)
	}
	return key
}

func publicKeyOf(secret string) string {
	der, err := x509.MarshalPKIXPublicKey(privateKeyOf(secret).Public())
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// resigned returns r with a query and a signature header, or without the header if signature is
// empty.
func resigned(r *http.Request, query, header string, sign func(body []byte) string) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	n := httptest.NewRequest(r.Method, r.URL.Path+query, bytes.NewReader(body))
	n.Header = r.Header.Clone()
	n.Header.Del(header)
	if signature := sign(body); signature != "" {
		n.Header.Set(header, signature)
	}
	return n
}

// posted is a request that can be sent repeatedly.
type posted struct {
	*http.Request
	body []byte
}

func capture(t testing.TB, r *http.Request) posted {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return posted{r, body}
}

// with returns the request with another body.
func (p posted) with(body io.Reader, size int) *http.Request {
	r := httptest.NewRequest(p.Method, p.URL.RequestURI(), body)
	r.Header, r.ContentLength = p.Header.Clone(), int64(size)
	return r
}

func (p posted) again() *http.Request { return p.with(bytes.NewReader(p.body), len(p.body)) }

// started returns a house with only this channel, connected, and the domains of its events.
func (p *poster) started(t testing.TB, start func(testing.TB, ...func(*house)) *house) (h *house, secret, other string) {
	t.Helper()
	secret = "the deployment's"
	key := func(secret string) string { return secret }
	if p.key != nil {
		key = p.key
	}
	h = start(t, func(h *house) {
		k := new(recorder)
		h.adapters = []channel.Adapter{p.adapter}
		h.billing, h.calls, h.shops, h.news = new(ledger), k, k, k
		h.api = transport(func(*http.Request) (*http.Response, error) { return respond(404, strings.NewReader("")), nil })
		if p.address == "" {
			h.secrets = map[string][]string{p.adapter.Info().Name: {key(secret)}}
		}
	})
	if p.address == "" {
		h.fallback.Store(new("org-1"))
		return h, secret, ""
	}
	keyOf := func(n *connection.New) { n.Secrets = []string{key(secretOf(n.Address))} }
	h.connect(t, p.adapter.Info().Name, p.address, keyOf)
	c := h.connect(t, p.adapter.Info().Name, p.other, ofOrg2, keyOf)
	return h, secretOf(p.address), c.ID
}

// TestEndpoint checks the rules that no provider and no stranger may circumvent, on every
// channel, through the whole endpoint.
func TestEndpoint(t *testing.T) {
	for _, p := range posters(t) {
		t.Run(p.adapter.Info().Name, func(t *testing.T) {
			h, secret, other := p.started(t, start)
			info := p.adapter.Info()
			good := capture(t, p.request("", secret))
			before := h.rows(t)
			h.wantAnswer(t, p.request("", ""), 401, denied)
			h.wantAnswer(t, p.request("", "another secret"), 401, denied)
			h.wantAnswer(t, p.request("?c=nobody", secret), 401, denied)
			if other != "" {
				status, body := 401, denied
				if p.foreign {
					status, body = 200, ignored
				}
				h.wantAnswer(t, p.request("?c="+other, secret), status, body)
				h.wantAnswer(t, p.request("", secretOf(p.other)), 401, denied)
			}
			altered := bytes.Clone(good.body)
			altered[len(altered)/2] ^= 1
			if !p.unsigned {
				h.wantAnswer(t, good.with(bytes.NewReader(altered), len(altered)), 401, denied)
			}
			for what, r := range map[string]*http.Request{
				"oversize":                  good.with(endless(info.MaxBody+1), int(info.MaxBody+1)),
				"oversize, of unknown size": good.with(endless(info.MaxBody+1), -1),
				"truncated":                 good.with(bytes.NewReader(good.body), len(good.body)+1),
				"PUT":                       httptest.NewRequest("PUT", info.Path, nil),
			} {
				want := map[string]int{"truncated": 400, "PUT": 405}[what]
				if want == 0 {
					want = 413
				}
				if w := h.do(r); w.Code != want {
					t.Errorf("%s: answered %d %s, want %d", what, w.Code, w.Body, want)
				}
			}
			if !p.types {
				r := good.again()
				r.Header.Set("Content-Type", "application/pdf")
				if w := h.do(r); w.Code != 415 {
					t.Errorf("another content type: answered %d %s, want 415", w.Code, w.Body)
				}
			}
			h.wantUntouched(t, before)

			var mu sync.Mutex
			answers := make(map[string]int)
			var wg sync.WaitGroup
			for range 20 {
				r := good.again()
				wg.Go(func() {
					w := h.do(r)
					mu.Lock()
					defer mu.Unlock()
					answers[fmt.Sprint(w.Code, " ", w.Body)]++
				})
			}
			wg.Wait()
			want := map[string]int{"200 " + accepted: 1, "200 " + duplicate: 19}
			if p.answer != "" {
				want = map[string]int{"200 " + p.answer: 20}
			}
			if !maps.Equal(answers, want) {
				t.Errorf("answers %v, want %v", answers, want)
			}
			events, jobs := h.count(t, "SELECT count(*) FROM inbound_events"), h.count(t, "SELECT count(*) FROM jobs")
			if events != 1 || jobs != 1 {
				t.Errorf("%d events and %d jobs, want 1 of each", events, jobs)
			}
			if _, once := p.adapter.(channel.ReplayTokenReader); once {
				h.wantAnswer(t, good.with(bytes.NewReader(altered), len(altered)), 401, denied)
			}
		})
	}
}

// TestOneEffect: twenty concurrent copies of an event leave the same rows as one, in every
// table.
func TestOneEffect(t *testing.T) {
	for i, p := range posters(t) {
		t.Run(p.adapter.Info().Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if p.foreign {
					p = posters(t)[i] // its certificate must be valid in the bubble's time
				}
				var rows []map[string]int
				for _, copies := range []int{1, 20} {
					h, secret, _ := p.started(t, startSQLite)
					good := capture(t, p.request("", secret))
					h.run(t)
					var wg sync.WaitGroup
					for range copies {
						wg.Go(func() { h.do(good.again()) })
					}
					wg.Wait()
					h.settled(t)
					if list := h.list(t); len(list) != 1 || list[0].State != inbound.Processed {
						t.Fatalf("after %d copies there are %d events, want one that is processed\n%s", copies, len(list), h.logged())
					}
					rows = append(rows, h.rows(t))
				}
				if !maps.Equal(rows[0], rows[1]) {
					t.Errorf("rows by table after one copy %v, after twenty %v", rows[0], rows[1])
				}
			})
		})
	}
}

// TestReceiptsInAnyOrder: the final state of a message does not depend on the order of its
// receipts. Packages shop and call test orders and calls in every order.
func TestReceiptsInAnyOrder(t *testing.T) {
	for _, tt := range []struct {
		states []channel.ReceiptState
		want   channel.ReceiptState
	}{
		{[]channel.ReceiptState{"queued", "sent", "delivered", "read"}, "read"},
		{[]channel.ReceiptState{"queued", "sent", "delivered"}, "delivered"},
		{[]channel.ReceiptState{"sent", "delayed", "delivered"}, "delivered"},
		{[]channel.ReceiptState{"queued", "sent", "failed"}, "failed"},
		{[]channel.ReceiptState{"sent", "read"}, "read"},
	} {
		t.Run(fmt.Sprint(tt.states), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startSQLite(t, withParcels(newParcels("parcels")))
				h.connect(t, "parcels", "a")
				h.run(t)
				orders := permutations(tt.states)
				for i, order := range orders {
					id := fmt.Sprint("m", i)
					message := &channel.Message{ExternalID: id, ThreadKey: "ana", From: channel.Party{ID: "us"}, To: []channel.Party{{ID: "ana"}}, Text: "hello", Outbound: true}
					body := parcel{To: []string{"a"}, Parts: []parcelItem{{Key: id, Address: "a", Event: &channel.Event{Message: message}}}}
					h.wantAnswer(t, parcelRequest(parcelPath, body.bytes(), secretOf("a")), 200, accepted)
					h.settled(t)
					for _, state := range order {
						receipt := &channel.Event{Receipt: &channel.Receipt{ExternalIDs: []string{id}, State: state}}
						body := parcel{To: []string{"a"}, Parts: []parcelItem{{Key: id + string(state), Sender: id, Address: "a", Event: receipt}}}
						h.wantAnswer(t, parcelRequest(parcelPath, body.bytes(), secretOf("a")), 200, accepted)
					}
					h.settled(t)
					var got channel.ReceiptState
					if err := h.db.QueryRow(t.Context(), "SELECT delivery_state FROM messages WHERE external_id = $1", id).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if got != tt.want {
						t.Errorf("after %v the message is %s, want %s", order, got, tt.want)
					}
				}
				if list := h.list(t, inbound.Dead, inbound.Rejected); len(list) > 0 {
					t.Errorf("set aside: %+v", list)
				}
			})
		})
	}
}

// permutations returns all orders of a short list.
func permutations[T any](list []T) [][]T {
	if len(list) == 0 {
		return [][]T{nil}
	}
	var all [][]T
	for i := range list {
		for _, rest := range permutations(slices.Concat(list[:i], list[i+1:])) {
			all = append(all, append([]T{list[i]}, rest...))
		}
	}
	return all
}
