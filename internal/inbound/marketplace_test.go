package inbound_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

const (
	ourTopic  = "arn:aws:sns:us-east-1:123456789012:ours"
	snsHost   = "https://sns.us-east-1.amazonaws.com/"
	snsCert   = snsHost + "SimpleNotificationService-1.pem"
	confirmIt = snsHost + "?Action=ConfirmSubscription&TopicArn=" + ourTopic + "&Token=hush"
)

// sns is the notification service with its key and certificate URL.
type sns struct {
	key *rsa.PrivateKey
	pem []byte
}

func newSNS(t testing.TB) *sns {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().AddDate(0, 0, -1), NotAfter: time.Now().AddDate(0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &sns{key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// request returns a message of the service; members are name, value pairs.
func (s *sns) request(topic, id, text string, members ...string) *http.Request {
	m := map[string]string{
		"Type": "Notification", "MessageId": id, "TopicArn": topic, "Message": text, "Timestamp": time.Now().UTC().Format(time.RFC3339),
		"SigningCertURL": snsCert,
	}
	for i := 0; i < len(members); i += 2 {
		m[members[i]] = members[i+1]
	}
	body, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("POST", "/api/marketplace/webhook", bytes.NewReader(marketplace.Sign(body, s.key, m["SigningCertURL"])))
	r.Header.Set("Content-Type", "text/plain; charset=UTF-8")
	return r
}

// orderChange returns a notification about an order.
func orderChange(id, order, kind, status string, at time.Time) string {
	return fmt.Sprintf(`{"NotificationType":"ORDER_CHANGE","Payload":{"OrderChangeNotification":{"AmazonOrderId":%q,"OrderChangeType":%q,
		"OrderChangeTrigger":{"TimeOfOrderChange":%q,"ChangeReason":"Buyer Requested Cancel"},"Summary":{"OrderStatus":%q}}},
		"NotificationMetadata":{"NotificationId":%q}}`, order, kind, at.UTC().Format(time.RFC3339), status, id)
}

func marketHouse(t *testing.T, s *sns, change ...func(*house)) (*house, *provider, *recorder) {
	p := &provider{answers: map[string]answerFunc{
		snsCert:   file(string(s.pem)),
		confirmIt: file("<ConfirmSubscriptionResponse/>"),
	}}
	k := new(recorder)
	h := startSQLite(t, append([]func(*house){func(h *house) {
		h.adapters = []channel.Adapter{marketplace.New(marketplace.OpenCertificates(p, nil))}
		h.media, h.shops, h.news = p, k, k
	}}, change...)...)
	return h, p, k
}

// TestMarketplace: signed messages are accepted for the topic they name.
func TestMarketplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSNS(t)
		stranger := newSNS(t)
		h, p, k := marketHouse(t, s)
		h.connect(t, "marketplace", ourTopic)
		h.connect(t, "marketplace", ourTopic+"2", func(n *connection.New) { n.OrganizationID = "org-2" })
		now := time.Now()
		raw := s.request(ourTopic, "m0", orderChange("n0", "1", "BuyerRequestedChange", "Unshipped", now))
		raw.Header.Set("X-Amz-Sns-Rawdelivery", "true")
		h.wantAnswer(t, raw, 401, denied)
		before := h.rows(t)
		h.wantAnswer(t, stranger.request(ourTopic, "m1", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now)), 401, denied)
		h.wantAnswer(t, s.request(ourTopic+"3", "m1", "{}"), 401, denied)
		for _, address := range []string{
			"https://sns.s3-us-west-2.amazonaws.com/SimpleNotificationService-1.pem",
			"https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem",
			"https://sns.us-east-1.amazonaws.com@evil.example/SimpleNotificationService-1.pem",
			"https://127.0.0.1/SimpleNotificationService-1.pem",
		} {
			h.wantAnswer(t, s.request(ourTopic, "m1", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now), "SigningCertURL", address), 401, denied)
		}
		h.wantUntouched(t, before)

		h.wantAnswer(t, s.request(ourTopic, "m1", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now)), 200, accepted)
		h.wantAnswer(t, s.request(ourTopic, "m1", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now)), 200, duplicate)
		h.wantAnswer(t, s.request(ourTopic, "m2", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now)), 200, duplicate) // duplicated by the marketplace
		h.wantAnswer(t, s.request(ourTopic, "m3", orderChange("n3", "2", "OrderStatusChange", "Shipped", now)), 200, accepted)
		h.wantAnswer(t, s.request(ourTopic, "m4", "Hello from the console"), 200, ignored)
		h.wantAnswer(t, s.request(ourTopic+"2", "m5", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", now)), 200, accepted)
		h.wantAnswer(t, s.request(ourTopic, "m6", "You have chosen", "Type", "SubscriptionConfirmation", "Token", "hush", "SubscribeURL", confirmIt), 200, accepted)
		h.wantAnswer(t, s.request(ourTopic, "m7", "Ended", "Type", "UnsubscribeConfirmation", "Token", "t", "SubscribeURL", confirmIt), 200, accepted)
		h.run(t)
		h.settled(t)
		for _, org := range []string{"org-1", "org-2"} {
			list := h.tickets(t, org)
			if len(list) != 1 || len(list[0]) != 1 || !strings.HasPrefix(list[0][0], "The buyer asks to cancel order 1.") {
				t.Errorf("tickets of %s: %q, want one cancellation", org, list)
			}
		}
		var taken []string
		for _, what := range k.taken {
			what, _, _ = strings.Cut(what, " of ")
			taken = append(taken, what)
		}
		slices.Sort(taken)
		if want := []string{"news noticed", "record order:1", "record order:1", "record order:2"}; !slices.Equal(taken, want) {
			t.Errorf("taken %q, want %q", taken, want)
		}
		if want := []string{snsCert, confirmIt}; !slices.Equal(p.asked, want) {
			t.Errorf("asked for %q, want the certificate once, and the confirmation", p.asked)
		}
	})
}

// TestMarketplaceTopics: the deployment may list topics or allow any.
func TestMarketplaceTopics(t *testing.T) {
	for _, tt := range []struct {
		name   string
		topics []string
		status int
		answer string
	}{
		{"none", nil, 401, denied},
		{"another", []string{ourTopic + "2"}, 401, denied},
		{"this one", []string{ourTopic + "2", ourTopic}, 200, accepted},
		{"any", []string{marketplace.AnyTopic}, 200, accepted},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSNS(t)
			sole := "org-1"
			h, _, _ := marketHouse(t, s, func(h *house) { h.secrets = map[string][]string{"marketplace": tt.topics} })
			h.fallback.Store(&sole)
			w := h.do(s.request(ourTopic, "m1", orderChange("n1", "1", "BuyerRequestedChange", "Unshipped", time.Now())))
			if w.Code != tt.status || w.Body.String() != tt.answer {
				t.Errorf("%s: answered %d %q, want %d %q", tt.name, w.Code, w.Body, tt.status, tt.answer)
			}
		})
	}
}

// TestMarketplaceCertificateLater: while the certificate is unavailable, the service must
// retry.
func TestMarketplaceCertificateLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSNS(t)
		h, p, _ := marketHouse(t, s)
		h.connect(t, "marketplace", ourTopic)
		request := func() *http.Request {
			return s.request(ourTopic, "m1", orderChange("n1", "1", "OrderStatusChange", "Shipped", time.Now()))
		}
		for _, answer := range []answerFunc{status(503), hang} {
			p.answers[snsCert] = answer
			began := time.Now()
			if w := h.do(request()); w.Code != 503 || time.Since(began) > 5*time.Second {
				t.Errorf("answered %d %q after %s, want 503 within 5s", w.Code, w.Body, time.Since(began))
			}
		}
		p.answers[snsCert] = file(string(s.pem))
		h.wantAnswer(t, request(), 200, accepted)
	})
}

// connectEvent returns an event of a connected account.
func connectEvent(id, account, more string) string {
	return `{"id":"` + id + `","object":"event","type":"customer.created","created":946684800,"livemode":true,"account":"` + account + `",` +
		more + `"data":{"object":{"id":"cus_1","name":"Ana","email":"ana@client.example"}}}`
}

// TestPaymentsConnect: an account's events belong to its organization and are verified with
// this path's secrets.
func TestPaymentsConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := new(recorder), new(ledger)
		h := startSQLite(t, func(h *house) {
			h.adapters = []channel.Adapter{payments.New(), payments.NewConnect()}
			h.shops, h.billing = k, l
			h.secrets = map[string][]string{"payments": {"platform secret"}, "payments-connect": {"connect secret"}}
		})
		h.connect(t, "payments-connect", "acct_1")
		h.connect(t, "payments-connect", "acct_2", func(n *connection.New) {
			n.OrganizationID, n.Settings = "org-2", map[string]string{"test_events": "true"}
		})
		const connectPath = paymentsPath + "-connect"
		for _, tt := range []struct {
			name, path, body, secret string
			status                   int
			answer                   string
		}{
			{"an account's", connectPath, connectEvent("evt_1", "acct_1", ""), "connect secret", 200, accepted},
			{"again", connectPath, connectEvent("evt_1", "acct_1", ""), "connect secret", 200, duplicate},
			{"with its own secret", connectPath, connectEvent("evt_2", "acct_1", ""), secretOf("acct_1"), 200, accepted},
			{"with another's", connectPath, connectEvent("evt_3", "acct_2", ""), secretOf("acct_1"), 401, denied},
			{"with the other path's", connectPath, connectEvent("evt_4", "acct_1", ""), "platform secret", 401, denied},
			{"on the other path", paymentsPath, connectEvent("evt_5", "acct_1", ""), "platform secret", 200, ignored},
			{"no account", connectPath, strings.Replace(connectEvent("evt_6", "", ""), `"account":"",`, "", 1), "connect secret", 200, ignored},
			{"a test", connectPath, strings.Replace(connectEvent("evt_7", "acct_1", ""), `"livemode":true`, `"livemode":false`, 1), "connect secret", 200, ignored},
			{"a test where they are wanted", connectPath, strings.Replace(connectEvent("evt_8", "acct_2", ""), `"livemode":true`, `"livemode":false`, 1), "connect secret", 200, accepted},
		} {
			r := httptest.NewRequest("POST", tt.path, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Stripe-Signature", payments.Sign([]byte(tt.body), time.Now(), tt.secret))
			if w := h.do(r); w.Code != tt.status || w.Body.String() != tt.answer {
				t.Errorf("%s: answered %d %q, want %d %q", tt.name, w.Code, w.Body, tt.status, tt.answer)
			}
		}
		h.run(t)
		h.settled(t)
		var taken []string
		for _, what := range k.taken {
			who := "org-1"
			if strings.Contains(what, "org-2") {
				who = "org-2"
			}
			what, _, _ = strings.Cut(what, " of ")
			taken = append(taken, who+" "+what)
		}
		slices.Sort(taken)
		if want := []string{"org-1 record cus_1", "org-1 record cus_1", "org-2 record cus_1"}; !slices.Equal(taken, want) {
			t.Errorf("taken %q, want %q", taken, want)
		}
		if len(l.taken) > 0 {
			t.Errorf("billing was told of %q", l.taken)
		}
	})
}
