package payments_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/channeltest"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
)

func TestConnectConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		Adapter: payments.NewConnect(), Dir: "testdata/connect", Timed: true,
		Sign: func(r *channel.Request, secret string, at time.Time) {
			r.Header.Set(payments.SignatureHeader, payments.Sign(r.Body, at, secret))
		},
	})
}

// TestOneOrTheOther: exactly one of the two channels accepts an event.
func TestOneOrTheOther(t *testing.T) {
	for _, tt := range []struct {
		file               string
		platform, connects bool
	}{
		{"testdata/invoice-paid.txtar", true, false},
		{"testdata/connected-account.txtar", false, true},
		{"testdata/connect/invoice-paid.txtar", false, true},
		{"testdata/connect/own-account.txtar", false, false}, // a customer of the operator's has no organization
	} {
		r := channeltest.Load(t, tt.file)
		for _, a := range []struct {
			channel.Adapter
			want bool
		}{{payments.New(), tt.platform}, {payments.NewConnect(), tt.connects}} {
			parts, err := a.Split(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := !parts[0].Skip; got != a.want {
				t.Errorf("%s: %s takes it: %t, want %t", tt.file, a.Info().Name, got, a.want)
			}
		}
	}
}

func TestTestEvents(t *testing.T) {
	a := payments.NewConnect()
	for _, tt := range []struct {
		fixture  string
		settings map[string]string
		want     bool
	}{
		{"customer-created", nil, true},
		{"customer-created", map[string]string{"test_events": "true"}, true},
		{"test-mode", nil, false},
		{"test-mode", map[string]string{"test_events": "false"}, false},
		{"test-mode", map[string]string{"test_events": "true"}, true},
	} {
		r := channeltest.Load(t, "testdata/connect/"+tt.fixture+".txtar")
		if got := a.WantsPart(tt.settings, r, channel.Part{}); got != tt.want {
			t.Errorf("%s: Chooses(%v) = %t, want %t", tt.fixture, tt.settings, got, tt.want)
		}
	}
}

func TestConnectNormalizeAddress(t *testing.T) {
	for _, tt := range []struct {
		raw string
		ok  bool
	}{
		{"acct_1032D82eZvKYlo2C", true},
		{" acct_1 ", true},
		{"acct_", false},
		{"ACCT_1", false},
		{"cus_1", false},
		{"acct_1/../x", false},
	} {
		if _, err := payments.NewConnect().NormalizeAddress(tt.raw); (err == nil) != tt.ok {
			t.Errorf("FormAddress(%q) error = %v, want ok: %t", tt.raw, err, tt.ok)
		}
	}
}

// TestAmounts reads amounts in the provider's smallest units.
func TestAmounts(t *testing.T) {
	for _, tt := range []struct {
		currency, number, want string
	}{
		{"usd", "1999", "19.99"},
		{"usd", "5", "0.05"},
		{"usd", "0", "0.00"},
		{"usd", "-5", "-0.05"},
		{"jpy", "4200", "4200"},
		{"kwd", "1500", "1.500"},
		{"kwd", "7", "0.007"},
		{"isk", "4200", "42.00"}, // which the provider still counts in hundredths
		{"usd", "1.5", ""},
		{"usd", "null", ""},
		{"usd", `"5"`, ""},
		{"usd", "1e30", ""},
		{"xx", "5", ""},
	} {
		body := `{"id":"evt_1","object":"event","type":"invoice.paid","created":1795168800,"account":"acct_1","data":{"object":{"id":"in_1","total":` +
			tt.number + `,"currency":"` + tt.currency + `"}}}`
		e, err := payments.NewConnect().Parse(&channel.Request{Body: []byte(body)}, channel.Part{})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Record.Order.Total; got != tt.want {
			t.Errorf("%s %s reads as %q, want %q", tt.number, tt.currency, got, tt.want)
		}
	}
}

// TestWithinOneSecond orders changes within one second by the object's life cycle.
func TestWithinOneSecond(t *testing.T) {
	type state struct{ kind, status string }
	for _, life := range [][]state{
		{{"customer.created", ""}, {"customer.updated", ""}, {"customer.deleted", ""}},
		{{"invoice.updated", "draft"}, {"invoice.finalized", "open"}, {"invoice.payment_failed", "open"}, {"invoice.paid", "paid"}},
		{{"customer.subscription.created", "active"}, {"customer.subscription.updated", "active"}, {"customer.subscription.deleted", "canceled"}},
	} {
		var before time.Time
		for _, s := range life {
			body := `{"id":"evt_1","type":"` + s.kind + `","created":1795168800,"account":"acct_1","data":{"object":{"id":"x_1","status":"` + s.status + `"}}}`
			e, err := payments.NewConnect().Parse(&channel.Request{Body: []byte(body)}, channel.Part{})
			if err != nil {
				t.Fatal(err)
			}
			at := e.Record.UpdatedAt
			if !at.After(before) || at.Unix() != 1795168800 {
				t.Errorf("%s, %q: at %s, want it in the same second and after %s", s.kind, s.status, at, before)
			}
			before = at
		}
	}
}

// FuzzConnect: any body is at most refused, and the results can be stored and parsed again.
func FuzzConnect(f *testing.F) {
	files, err := filepath.Glob("testdata/connect/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(channeltest.Load(f, file).Body)
	}
	a := payments.NewConnect()
	f.Fuzz(func(t *testing.T, body []byte) {
		at := time.Unix(1795168800, 0)
		r := &channel.Request{Header: http.Header{}, Body: body, Received: at}
		r.Header.Set(payments.SignatureHeader, payments.Sign(body, at, "key"))
		if !a.Verify(r, "key") || a.Verify(r, "other") {
			t.Error("Verify() is wrong about the secret")
		}
		addresses, addressErr := a.Addresses(r)
		parts, err := a.Split(r)
		if addressErr != nil && err == nil {
			t.Errorf("Split() takes what Addresses() refuses: %v", addressErr)
		}
		texts := addresses
		for _, p := range parts {
			if p.Skip {
				continue
			}
			e, err := a.Parse(r, p)
			if err != nil {
				if !errors.Is(err, channel.ErrUnreadable) {
					t.Errorf("Parse() error = %v, want ErrUnreadable", err)
				}
				continue
			}
			texts = append(texts, p.Key, p.Sender, p.Address, p.Kind)
			rec := e.Record
			if rec == nil {
				if e.ConnectionEvent == nil {
					t.Errorf("Parse() = %+v, want a member", e)
				}
				continue
			}
			texts = append(texts, rec.ExternalID, rec.Customer.Name, rec.Customer.Email, rec.Customer.Phone)
			if o := rec.Order; o != nil {
				texts = append(texts, o.ExternalID, o.Number, o.Status, o.Currency, o.Total, o.URL)
				if o.URL != "" && !strings.HasPrefix(o.URL, "https://") {
					t.Errorf("the order is at %q", o.URL)
				}
				for _, i := range o.Items {
					texts = append(texts, i.ExternalID, i.Name, i.SKU, i.Price)
				}
			}
		}
		for _, s := range texts {
			if err := channeltest.Storable(s); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
