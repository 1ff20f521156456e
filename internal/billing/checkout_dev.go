package billing

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// DevCheckoutPath is the path of the built-in page below the base URL; a token
// follows.
const DevCheckoutPath = "/dev/checkout/"

// devLife is the life of a checkout at the built-in page.
const devLife = 24 * time.Hour

// sealPurpose separates the tokens of checkouts from other sealed values.
const sealPurpose = "dev checkout"

// DevCheckout is the content of the built-in page.
type DevCheckout struct {
	OrganizationID   string
	OrganizationName string
	Plan             account.Plan
	Email            string // of the payer
	ExpiresAt        time.Time
}

// devToken is the content of a checkout's token. It is not stored.
type devToken struct {
	OrganizationID   string       `json:"organization_id"`
	OrganizationName string       `json:"organization_name"`
	Plan             account.Plan `json:"plan"`
	Email            string       `json:"email"`
	ExpiresAt        time.Time    `json:"expires_at"`
}

// devPage returns the address of the built-in page for one checkout.
func (k *Checkout) devPage(c account.CheckoutRequest) (string, error) {
	plain, err := json.Marshal(devToken{
		c.OrganizationID, c.OrganizationName, c.Plan, c.Email, k.db.Now().Add(devLife).Truncate(time.Second),
	})
	if err != nil {
		return "", err
	}
	token := base64.RawURLEncoding.EncodeToString(k.box.Seal(sealPurpose, plain, ""))
	return k.baseURL + DevCheckoutPath + token, nil
}

// HasDevCheckout reports whether the built-in page replaces a payment provider.
func (s *Service) HasDevCheckout() bool { return s.checkout.builtIn }

// DevCheckout returns the checkout of a token. Error: [problem.NotFound] for a
// forged or expired token, and for every token if a payment provider is configured
// or the built-in page is off.
func (s *Service) DevCheckout(token string) (DevCheckout, error) {
	c, _, err := s.checkout.openToken(token)
	if err != nil {
		return DevCheckout{}, err
	}
	return DevCheckout(c), nil
}

// openToken returns the content of a token, and an unguessable name derived from
// it.
func (k *Checkout) openToken(token string) (c devToken, name string, err error) {
	gone := problem.New(problem.NotFound, "there is no such checkout, or it is older than %d hours", devLife/time.Hour)
	if !k.builtIn {
		return c, "", gone
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return c, "", gone.Because(err)
	}
	plain, err := k.box.Open(sealPurpose, sealed, "")
	if err != nil {
		return c, "", gone.Because(err)
	}
	if err := json.Unmarshal(plain, &c); err != nil {
		return c, "", gone.Because(err)
	}
	if !k.db.Now().Before(c.ExpiresAt) {
		return c, "", gone
	}
	sum := sha256.Sum256(sealed)
	return c, hex.EncodeToString(sum[:12]), nil
}

// Pay pays for the checkout of a token: it posts the provider's events to our own
// endpoint. Every id is derived from the token, so paying twice changes nothing.
// Errors as of [Service.DevCheckout] and of Config.Post.
func (s *Service) Pay(ctx context.Context, token string) error {
	c, name, err := s.checkout.openToken(token)
	if err != nil {
		return err
	}
	for _, kind := range []channel.PaymentKind{channel.CheckoutCompleted, channel.SubscriptionCreated, channel.InvoicePaid} {
		event := Sample{
			Kind: kind, Name: name, Created: s.db.Now(), OrganizationID: c.OrganizationID, Plan: c.Plan, Email: c.Email,
		}
		if err := s.post(ctx, event.JSON()); err != nil {
			return fmt.Errorf("post %s: %w", kind, err)
		}
	}
	return nil
}
