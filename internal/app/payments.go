package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/kickstand-dev/kickstand/internal/billing"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/payments"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// channelSecrets returns the deployment's secrets. If neither a payment provider nor its
// secret is configured, the built-in checkout, which exists only if the base URL is this
// machine, signs with a secret derived from the deployment's key.
func channelSecrets(c Config, box *seal.Box) map[string][]string {
	const name = "payments"
	secrets := maps.Clone(c.Secrets)
	if secrets == nil {
		secrets = make(map[string][]string)
	}
	secrets["marketplace"] = marketplaceTopics(c)
	if c.PaymentsAPIKey == "" && len(secrets[name]) == 0 && c.Loopback() {
		secrets[name] = []string{hex.EncodeToString(box.MAC("payments secret", "built-in checkout"))}
	}
	return secrets
}

// openCheckout checks the configuration of payments and returns the checkout.
func (a *App) openCheckout(box *seal.Box) (*billing.Checkout, error) {
	k, err := billing.NewCheckout(billing.CheckoutConfig{
		DB: a.DB, Box: box, BaseURL: a.BaseURL, APIKey: a.config.PaymentsAPIKey, APIURL: a.config.PaymentsAPIURL,
		Prices: a.config.PaymentsPrices, NoBuiltIn: !a.config.Loopback(), Logger: a.log,
	})
	if err != nil {
		return nil, fmt.Errorf("payments: %w", err)
	}
	return k, nil
}

// paymentPoster returns a function that posts a signed event to the payment endpoint as
// the provider does, in process.
func (a *App) paymentPoster(secrets []string) func(ctx context.Context, event []byte) error {
	return func(ctx context.Context, event []byte) error {
		if len(secrets) == 0 {
			return errors.New("there is no secret to sign with")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, payments.New().Info().Path, bytes.NewReader(event))
		if err != nil {
			return err
		}
		if base, err := url.Parse(a.BaseURL); err == nil {
			req.Host = base.Host
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(payments.SignatureHeader, payments.Sign(event, a.DB.Now(), secrets[0]))
		w := posterResponse{header: make(http.Header), status: http.StatusOK}
		a.handler.ServeHTTP(&w, req)
		switch w.status {
		case http.StatusOK:
			return nil
		case http.StatusServiceUnavailable:
			return problem.New(problem.Unavailable, "the payment could not be stored; try again")
		}
		return fmt.Errorf("%s answered %d: %s", req.URL, w.status, w.body.Bytes())
	}
}

// posterResponse is the response to an in-process request.
type posterResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
	wrote  bool
}

// Header implements [http.ResponseWriter].
func (a *posterResponse) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *posterResponse) WriteHeader(status int) {
	if !a.wrote {
		a.status, a.wrote = status, true
	}
}

// Write implements [http.ResponseWriter].
func (a *posterResponse) Write(p []byte) (int, error) {
	a.wrote = true
	return a.body.Write(p)
}

// connectable returns the channels that an organization can connect: neither
// deployment-wide nor auxiliary ones.
func connectable(adapters []channel.Adapter) []channel.Adapter {
	var list []channel.Adapter
	for _, ad := range adapters {
		if info := ad.Info(); !info.Deployment && !info.AcceptWhenDisabled {
			list = append(list, ad)
		}
	}
	return list
}
