package app

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
)

func TestPaymentWarnings(t *testing.T) {
	secrets := map[string][]string{"payments": {"s"}}
	prices := map[account.Plan]string{account.Pro: "price_1", account.Business: ""}
	for _, tt := range []struct {
		name   string
		config Config
		want   string // words of each warning
	}{
		{"on this machine", Config{BaseURL: "http://127.0.0.1:8080"}, ""},
		{"for others", Config{BaseURL: "https://help.example", Secrets: secrets}, "without money"},
		{"complete", Config{BaseURL: "https://help.example", PaymentsAPIKey: "k", Secrets: secrets, PaymentsPrices: prices}, ""},
		{"no secret", Config{PaymentsAPIKey: "k", PaymentsPrices: prices}, "nobody will know"},
		{"nothing but the key", Config{PaymentsAPIKey: "k", PaymentsPrices: map[account.Plan]string{account.Pro: ""}}, "nobody will know|no plan can be paid for"},
	} {
		list := paymentWarnings(tt.config)
		var want []string
		if tt.want != "" {
			want = strings.Split(tt.want, "|")
		}
		if len(list) != len(want) {
			t.Errorf("%s: warnings %q, want %d", tt.name, list, len(want))
			continue
		}
		for i := range want {
			if !strings.Contains(list[i], want[i]) {
				t.Errorf("%s: warning %q, want one with %q", tt.name, list[i], want[i])
			}
		}
	}
}
