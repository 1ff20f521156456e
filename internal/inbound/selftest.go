package inbound

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// SampleKey is the key that signed the sample of a self-test.
type SampleKey int

const (
	// SampleSecret is a secret of the connection or of the deployment.
	SampleSecret SampleKey = iota
	// SampleTestKey is a key made for tests, because only the provider has its own.
	SampleTestKey
)

// SelfTest has a request as the provider sends it verified, split, routed and parsed for a connection,
// and stores nothing. The error is the reason why it would not be received, as a sentence without its
// full stop.
func (s *Service) SelfTest(ctx context.Context, c *connection.Connection) (SampleKey, error) {
	a, err := s.testable(c)
	if err != nil {
		return 0, err
	}
	now := s.db.Now()
	secrets := s.testSecrets(a, c, now)
	if len(secrets) == 0 {
		return 0, errors.New("the channel has no valid secret of its provider, so no request can be verified")
	}
	sample := channel.Sample{URL: s.baseURL + a.Info().Path + "?c=" + c.ID, Address: c.Address, Secret: secrets[0], Setting: c.Settings, At: now}
	key := SampleSecret
	var req *channel.Request
	switch t := a.(type) {
	case channel.Sampler:
		req = t.Sample(sample)
	case channel.TestKeySampler:
		key = SampleTestKey
		if req, a, err = t.SampleByTestKey(sample); err != nil {
			return key, err
		}
	default:
		return 0, fmt.Errorf("the channel %s has no test", c.Channel)
	}
	if err := s.testRequest(ctx, a, c, req); err != nil {
		return key, err
	}
	if source, ok := s.byName[c.Channel].(channel.KeySource); ok {
		return key, source.CheckKeySource(ctx, c.Address)
	}
	return key, nil
}

// testable returns the adapter of a connection that accepts requests, or the reason why it does not.
func (s *Service) testable(c *connection.Connection) (channel.Adapter, error) {
	a := s.byName[c.Channel]
	switch {
	case a == nil:
		return nil, fmt.Errorf("the channel %s is not part of this server", c.Channel)
	case !c.Enabled:
		return nil, errors.New("the channel is disabled, so requests are refused")
	case slices.Contains(s.connections.Needs(c), connection.ToReceive) && !c.Receives(true):
		return nil, errors.New("the address is not proven yet, so requests do not reach it")
	}
	return a, nil
}

// testSecrets returns the secrets with which the provider may sign for a connection, newest first.
func (s *Service) testSecrets(a channel.Adapter, c *connection.Connection, now time.Time) []string {
	secrets := signingSecrets(a, c, now)
	maker, ok := a.(channel.SecretMaker)
	if !ok {
		return secrets
	}
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return !maker.MayBeProviders(secret) })
	if c.Receives(false) {
		secrets = append(secrets, s.secrets[a.Info().Name]...)
	}
	return secrets
}

// testRequest has a signed request verified, split, routed and parsed for a connection.
func (s *Service) testRequest(ctx context.Context, a channel.Adapter, c *connection.Connection, req *channel.Request) error {
	if p, ok := a.(channel.HeaderProver); ok && p.HeaderProof(req) == channel.HeadersRefuse {
		return errors.New("a signed request is refused by its headers")
	}
	addresses, err := a.Addresses(req)
	if err != nil {
		return fmt.Errorf("a signed request is not recognized: %w", err)
	}
	v, err := s.verify(ctx, a, req, addresses)
	if err != nil {
		return err
	}
	if !v.ok() {
		return errors.New("a signed request is not verified")
	}
	parts, err := a.Split(req)
	if err != nil {
		return fmt.Errorf("a signed request is not readable: %s", reason(err))
	}
	list := filterParts(a, req, v.route(readChallenges(a, req, parts)))
	i := slices.IndexFunc(list, func(r routed) bool { return r.to != nil && r.to.ID == c.ID })
	if i < 0 {
		return errors.New("a signed request reaches no ticket: the connection's settings or address leave it out")
	}
	return testParse(a, s.newEvent(a, req, list[i]))
}

// testParse parses an event that is not stored.
func testParse(a channel.Adapter, e *StoredEvent) error {
	if _, err := a.Parse(e.request(), e.part()); err != nil {
		return fmt.Errorf("a sample cannot be read: %s", reason(err))
	}
	return nil
}

// TestDelivery is [Service.SelfTest] for a connection whose mails this server receives itself. receive
// returns the copies of a mail to its address.
func (s *Service) TestDelivery(c *connection.Connection, receive func() ([]Delivery, error)) error {
	a, err := s.testable(c)
	if err != nil {
		return err
	}
	copies, err := receive()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(copies, func(d Delivery) bool { return d.Connection.ID == c.ID })
	if i < 0 {
		return errors.New("mail to the address reaches another channel")
	}
	e, _ := s.newCollected(a, c, copies[i].Request, byRecipient)
	if e.State == Rejected {
		return fmt.Errorf("a sample cannot be read: %s", e.Error)
	}
	return testParse(a, e)
}
