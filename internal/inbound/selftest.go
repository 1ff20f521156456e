package inbound

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// ErrUnsampled is the result of [Service.SelfTest] for a channel whose provider signs with a key of
// its own: only its next request shows whether the channel receives.
var ErrUnsampled = errors.New("only the provider can sign its requests")

// SelfTest has a request as the provider sends it verified, split and routed for a connection, and
// stores nothing. The error is the reason why it would not be received, as a sentence without its
// full stop, or [ErrUnsampled].
func (s *Service) SelfTest(ctx context.Context, c *connection.Connection) error {
	a := s.byName[c.Channel]
	if a == nil {
		return fmt.Errorf("the channel %s is not part of this server", c.Channel)
	}
	if !c.Enabled {
		return errors.New("the channel is disabled, so requests are refused")
	}
	if slices.Contains(s.connections.Needs(c), connection.ToReceive) && !c.Receives(true) {
		return errors.New("the address is not proven yet, so requests do not reach it")
	}
	sampler, ok := a.(channel.Sampler)
	if !ok {
		return ErrUnsampled
	}
	now := s.db.Now()
	secrets := signingSecrets(a, c, now)
	if len(secrets) == 0 {
		return errors.New("the connection has no valid secret, so no request can be verified")
	}
	url := s.baseURL + a.Info().Path + "?c=" + c.ID
	req := sampler.Sample(channel.Sample{URL: url, Address: c.Address, Secret: secrets[0], Setting: c.Settings, At: now})
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
		return errors.New("a request signed with the connection's secret is not verified")
	}
	parts, err := a.Split(req)
	if err != nil {
		return fmt.Errorf("a signed request is not readable: %s", reason(err))
	}
	list := filterParts(a, req, v.route(readChallenges(a, req, parts)))
	if !slices.ContainsFunc(list, func(r routed) bool { return r.to != nil && r.to.ID == c.ID }) {
		return errors.New("a signed request reaches no ticket: the connection's settings or address leave it out")
	}
	return nil
}
