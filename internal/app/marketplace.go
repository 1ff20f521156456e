package app

import (
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

// openMarketplace returns the marketplace's channel, which fetches the notification
// service's certificates over public addresses only.
func openMarketplace(c Config) (*marketplace.Adapter, error) {
	var test *marketplace.TestKey
	switch keys := c.Secrets["marketplace"]; len(keys) {
	case 0:
	case 1:
		var err error
		if test, err = marketplace.ParseTestKey(keys[0]); err != nil {
			return nil, fmt.Errorf("marketplace-test-key: it %w", err)
		}
	default:
		return nil, errors.New("marketplace-test-key: it must be one key")
	}
	transport := c.Certificates
	if transport == nil {
		transport = netguard.NewTransport(netguard.Guard{})
	}
	a := marketplace.New(marketplace.OpenCertificates(transport, test))
	for _, topic := range c.MarketplaceTopics {
		if _, err := a.NormalizeAddress(topic); err != nil {
			return nil, fmt.Errorf("marketplace-topics: %q %w", topic, err)
		}
	}
	return a, nil
}

// marketplaceTopics returns the accepted topics, which replace deployment secrets for the
// marketplace. Without configuration any topic with a valid signature is accepted, on
// this machine only: elsewhere anybody could sign with a topic of their own.
func marketplaceTopics(c Config) []string {
	if len(c.MarketplaceTopics) == 0 && c.Loopback() {
		return []string{marketplace.AnyTopic}
	}
	return c.MarketplaceTopics
}
