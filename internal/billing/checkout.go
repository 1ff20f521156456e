package billing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/loop"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// DefaultAPIURL is the payment provider's API.
const DefaultAPIURL = "https://api.stripe.com"

// CheckoutConfig has the parts of a [Checkout]. DB, Box and BaseURL are required.
type CheckoutConfig struct {
	DB      *db.DB
	Box     *seal.Box
	BaseURL string // the public address, without a trailing slash

	// APIKey is the payment provider's. Without one, the built-in page replaces the
	// provider, for development: it takes no money. With NoBuiltIn, no plan can be
	// paid for.
	APIKey    string
	NoBuiltIn bool
	APIURL    string // empty means [DefaultAPIURL]

	// Prices are the provider's price ids of the paid plans.
	Prices map[account.Plan]string

	// Transport carries the requests to the provider; nil: directly, or through the
	// proxy that HTTPS_PROXY names.
	Transport http.RoundTripper

	Logger *slog.Logger // nil discards
}

// Checkout starts checkouts. It is safe for concurrent use.
type Checkout struct {
	db      *db.DB
	box     *seal.Box
	baseURL string
	key     string
	builtIn bool // the built-in page replaces the provider
	api     *url.URL
	prices  map[account.Plan]string
	plans   map[string]account.Plan // by price
	client  *http.Client
	log     *slog.Logger
}

var _ account.Checkout = (*Checkout)(nil)

const (
	// apiTimeout bounds one attempt, checkoutTimeout all of them: a person waits.
	apiTimeout      = 10 * time.Second
	checkoutTimeout = 20 * time.Second
	apiTries        = 3
	// maxAnswer bounds the provider's response, in bytes.
	maxAnswer = 1 << 20
)

// NewCheckout returns the checkout. The error describes an invalid field of c.
func NewCheckout(c CheckoutConfig) (*Checkout, error) {
	api, err := ParseAPIURL(c.APIURL)
	if err != nil {
		return nil, err
	}
	k := &Checkout{
		db: c.DB, box: c.Box, baseURL: c.BaseURL, key: c.APIKey, builtIn: c.APIKey == "" && !c.NoBuiltIn, api: api, prices: c.Prices,
		plans: make(map[string]account.Plan), log: c.Logger,
	}
	for plan, price := range c.Prices {
		if price == "" {
			continue
		}
		if other, taken := k.plans[price]; taken {
			return nil, fmt.Errorf("the plans %s and %s have the same price %q", min(plan, other), max(plan, other), price)
		}
		k.plans[price] = plan
	}
	transport := c.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	k.client = &http.Client{
		Transport:     transport,
		Timeout:       apiTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	return k, nil
}

// ParseAPIURL parses the URL of the payment provider's API, by the rules of
// [netguard.ParseAPIURL].
func ParseAPIURL(raw string) (*url.URL, error) { return netguard.ParseAPIURL(raw, DefaultAPIURL) }

// The pages to which the provider returns the browser.
func (k *Checkout) paidURL() string   { return k.baseURL + "/?checkout=paid" }
func (k *Checkout) cancelURL() string { return k.baseURL + "/?checkout=cancelled" }

// StartCheckout implements [account.Checkout]. Errors: [problem.Precondition] for a
// plan without a price, or without a payment provider; [problem.Unavailable] if the
// provider cannot be reached. Any other error means that the provider refuses the
// configuration.
func (k *Checkout) StartCheckout(ctx context.Context, c account.CheckoutRequest) (string, error) {
	var page string
	var err error
	switch {
	case k.builtIn:
		page, err = k.devPage(c)
	case k.key == "":
		err = problem.New(problem.Precondition, "the plan %s cannot be paid for here: the operator of this server has not set up a payment provider (KICKSTAND_PAYMENTS_API_KEY)", c.Plan)
	default:
		page, err = k.hostedPage(ctx, c)
	}
	if err != nil {
		return "", err
	}
	return page, savePlanRequest(ctx, k.db, c.OrganizationID, c.Plan)
}

// hostedPage creates a checkout page at the provider.
func (k *Checkout) hostedPage(ctx context.Context, c account.CheckoutRequest) (string, error) {
	price := k.prices[c.Plan]
	if price == "" {
		return "", problem.New(problem.Precondition, "the plan %s cannot be paid for here: it has no price yet", c.Plan)
	}
	form := url.Values{
		"mode":                    {"subscription"},
		"line_items[0][price]":    {price},
		"line_items[0][quantity]": {"1"},
		"client_reference_id":     {c.OrganizationID},
		"customer_email":          {c.Email},
		"success_url":             {k.paidURL()},
		"cancel_url":              {k.cancelURL()},
	}
	for _, prefix := range []string{"metadata", "subscription_data[metadata]"} {
		form.Set(prefix+"["+channel.MetadataOrganization+"]", c.OrganizationID)
		form.Set(prefix+"["+channel.MetadataPlan+"]", string(c.Plan))
	}
	var session struct {
		URL string `json:"url"`
	}
	err := k.call(ctx, "/v1/checkout/sessions", form, &session)
	if refused, ok := errors.AsType[*apiError](err); ok && refused.param == "customer_email" {
		form.Del("customer_email") // it only prefills a field
		err = k.call(ctx, "/v1/checkout/sessions", form, &session)
	}
	if err != nil {
		return "", err
	}
	u, err := url.Parse(session.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && netguard.Loopback(k.api)) {
		return "", fmt.Errorf("the payment provider returned the unusable address %q", session.URL)
	}
	return session.URL, nil
}

// apiError is an error response of the provider.
type apiError struct {
	status int
	kind   string // its type and code
	param  string
	text   string
}

func (e *apiError) Error() string {
	s := "status " + strconv.Itoa(e.status)
	if e.kind != "" {
		s += " (" + e.kind + ")"
	}
	if e.param != "" {
		s += " for " + e.param
	}
	if e.text != "" {
		s += ": " + e.text
	}
	return s
}

// isTemporary reports whether the same request may succeed soon.
func (e *apiError) isTemporary() bool {
	return e.status == http.StatusConflict || e.status == http.StatusTooManyRequests || e.status >= 500
}

// call posts a form to the provider and decodes the response. It retries network
// and server errors under one idempotency key, so that the provider performs the
// request once.
func (k *Checkout) call(ctx context.Context, path string, form url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, checkoutTimeout)
	defer cancel()
	idempotency := rand.Text()
	var err error
	for try := range apiTries {
		if try > 0 {
			loop.Pause(ctx, 250*time.Millisecond<<(2*(try-1))) // 0.25 s, 1 s; the end of ctx shows below
		}
		if err = k.post(ctx, path, idempotency, form, into); err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*apiError](err); ok && !refused.isTemporary() {
			return k.configurationError(refused)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return problem.New(problem.Unavailable, "the payment provider cannot be reached at the moment; try again in a minute").Because(err)
}

// configurationError returns an error that names the option to correct.
func (k *Checkout) configurationError(refused *apiError) error {
	switch {
	case refused.status == http.StatusUnauthorized, refused.status == http.StatusForbidden:
		return fmt.Errorf("the payment provider rejects the API key (payments-api-key): %w", refused)
	case strings.Contains(refused.param, "price"):
		return fmt.Errorf("the payment provider rejects the price (payments-price-pro, payments-price-business): %w", refused)
	}
	return fmt.Errorf("the payment provider refuses the checkout: %w", refused)
}

// post posts the form once. An error response is an [*apiError].
func (k *Checkout) post(ctx context.Context, path, idempotency string, form url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.api.String()+path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+k.key)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", idempotency)
	req.Header.Set("User-Agent", "Kickstand")
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return k.refusal(resp.StatusCode, body)
	}
	if len(body) > maxAnswer {
		return &apiError{status: resp.StatusCode, text: "a response of more than " + strconv.Itoa(maxAnswer) + " bytes"}
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return &apiError{status: resp.StatusCode, text: "a response that is not JSON: " + err.Error()}
	}
	return nil
}

// refusal parses the provider's error. It masks the API key, which some messages
// quote.
func (k *Checkout) refusal(status int, body []byte) *apiError {
	var answer struct {
		Error struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Param   string `json:"param"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &answer) // any other body adds nothing to the status
	short := func(s string, n int) string {
		s = strings.ToValidUTF8(strings.ReplaceAll(s, k.key, "********"), "\uFFFD")
		return strings.ToValidUTF8(s[:min(len(s), n)], "")
	}
	e := answer.Error
	kind := strings.Trim(e.Type+" "+e.Code, " ")
	return &apiError{status: status, kind: short(kind, 100), param: short(e.Param, 100), text: short(e.Message, 500)}
}
