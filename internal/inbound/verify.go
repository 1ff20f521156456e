package inbound

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// verified is the result of verifying a request.
type verified struct {
	claimed     []string // addresses that the request names
	candidates  []candidate
	deployment  int      // number of the deployment secret that matched, from 1; 0 for none
	unavailable []string // claimed addresses with a connection that is disabled or of another style
	named       bool     // the URL names the only candidate
	// limited marks a request for a connection with an unproven address: only parts that set it
	// up or prove the address are accepted.
	limited bool
}

// candidate is a connection that the request's address or URL names.
type candidate struct {
	*connection.Connection
	secret int // number of its own secret that matched, from 1; 0 for none
	// acceptsDeployment reports whether requests signed with the deployment's secret may reach
	// it.
	acceptsDeployment bool
}

func (v *verified) ok() bool {
	return v.deployment > 0 || slices.ContainsFunc(v.candidates, func(c candidate) bool { return c.secret > 0 })
}

// isVerified reports whether a secret verifies the request for a candidate.
func (v *verified) isVerified(c candidate) bool {
	return c.secret > 0 || v.deployment > 0 && (c.acceptsDeployment || v.limited)
}

// connectionID returns the connection id in the URL, the parameter c, or "".
func connectionID(req *channel.Request) string {
	if !strings.Contains(req.URL, "c=") {
		return ""
	}
	return clean(req.Query().Get("c"), maxKey)
}

// servesChannel reports whether an adapter accepts requests for connections of a channel.
func servesChannel(info channel.Info, name string) bool {
	return name == info.Name || slices.Contains(info.Serves, name)
}

// accepts reports whether an adapter accepts requests for a connection.
func accepts(info channel.Info, c *connection.Connection) bool {
	return (c.Enabled || info.AcceptWhenDisabled && c.Proven()) && servesChannel(info, c.Channel)
}

// verify tries the secrets of the connection in the URL, or else of the claimed addresses, and
// the deployment's. Secrets of other connections are never tried, so that no tenant can sign
// for another's address. [connection.Connection.Receives] decides which secret is sufficient.
func (s *Service) verify(ctx context.Context, a channel.Adapter, req *channel.Request, addresses []string) (verified, error) {
	if id := connectionID(req); id != "" {
		return s.verifyNamed(ctx, a, req, id, addresses)
	}
	v := verified{claimed: addresses}
	info := a.Info()
	at, err := s.connections.FindByAddresses(ctx, info.TicketChannel, addresses)
	if err != nil {
		return v, fmt.Errorf("look up connections: %w", err)
	}
	all := len(addresses) > 0 // each claimed address is verified by its connection's secret
	var claims []*connection.Connection
	for _, c := range at {
		if !c.Proven() {
			claims = append(claims, c)
			continue
		}
		if !accepts(info, c) {
			v.unavailable = append(v.unavailable, c.Address)
			continue
		}
		n := matchSecret(a, req, signingSecrets(a, c, req.Received))
		v.candidates = append(v.candidates, candidate{c, n, true})
		all = all && n > 0
	}
	if !all || len(v.candidates) < len(addresses) {
		v.deployment = matchSecret(a, req, s.secrets[info.Name])
	}
	if v.deployment, err = s.requireSignedRecipient(ctx, a, req, v.deployment, len(v.candidates) > 0); err != nil {
		return v, err
	}
	if len(claims) > 0 {
		err = s.addClaims(ctx, a, req, &v, claims)
	}
	return v, err
}

// requireSignedRecipient returns the number of the matching deployment secret, or 0 if the
// signature does not cover the recipient and the secret is shared: see
// [channel.RecipientChecker].
func (s *Service) requireSignedRecipient(ctx context.Context, a channel.Adapter, req *channel.Request, deployment int, reached bool) (int, error) {
	if u, ok := a.(channel.RecipientChecker); !ok || deployment == 0 || !reached || !u.RecipientUnsigned(req) {
		return deployment, nil
	}
	vouches, err := s.trustsUnsignedRecipient(ctx, a.Info())
	if err != nil || !vouches {
		return 0, err
	}
	return deployment, nil
}

// verifyNamed is verify for a URL that names the connection.
func (s *Service) verifyNamed(ctx context.Context, a channel.Adapter, req *channel.Request, id string, addresses []string) (verified, error) {
	v := verified{claimed: addresses}
	info := a.Info()
	c, err := s.connections.ByID(ctx, id)
	if err != nil {
		return v, fmt.Errorf("look up connection: %w", err)
	}
	if c == nil || !accepts(info, c) {
		return v, nil
	}
	n := matchSecret(a, req, signingSecrets(a, c, req.Received))
	if n > 0 && c.Receives(true) {
		v.named, v.candidates = true, []candidate{{c, n, c.Proven()}}
		return v, nil
	}
	v.named = true
	if v.deployment = matchSecret(a, req, s.secrets[info.Name]); v.deployment == 0 {
		v.deployment = n // the provider signs with one key for all customers
	}
	deployed := c.Receives(false)
	if !deployed && v.deployment > 0 {
		if deployed, err = s.isDefaultOrganization(ctx, c); err != nil {
			return v, err
		}
	}
	v.limited = !deployed
	v.candidates = []candidate{{c, 0, deployed}}
	return v, nil
}

// trustsUnsignedRecipient reports whether the deployment's secret verifies a request with a
// signature that covers no recipient. It does for the default organization while no other
// organization uses the secret. Neither a sign-up nor a stranger's connection changes that.
func (s *Service) trustsUnsignedRecipient(ctx context.Context, info channel.Info) (bool, error) {
	id, ok, err := s.defaultOrganization(ctx, s.db)
	if err != nil || !ok {
		return false, err
	}
	shared, err := s.connections.SharedWithOthers(ctx, s.db, append([]string{info.Name}, info.Serves...), id)
	if err != nil {
		return false, fmt.Errorf("find other organizations' connections: %w", err)
	}
	return !shared, nil
}

// isDefaultOrganization reports whether the connection belongs to the default organization. The
// deployment's secret verifies for its unproven addresses, too.
func (s *Service) isDefaultOrganization(ctx context.Context, c *connection.Connection) (bool, error) {
	id, ok, err := s.defaultOrganization(ctx, s.db)
	return ok && id == c.OrganizationID, err
}

const (
	// maxClaims bounds the unproven connections tried for one request, and maxClaimKeys the
	// secrets of each, because strangers can create any number.
	maxClaims    = 16
	maxClaimKeys = 2
)

// addClaims adds the unproven connections that the request reaches: by a secret that only one
// of them has, or by the deployment's secret if they belong to the default organization.
func (s *Service) addClaims(ctx context.Context, a channel.Adapter, req *channel.Request, v *verified, claims []*connection.Connection) error {
	info := a.Info()
	if v.deployment > 0 {
		return s.addDefaultClaims(ctx, info, v, claims)
	}
	byAddress := make(map[string][]candidate)
	for _, c := range claims[:min(len(claims), maxClaims)] {
		if !accepts(info, c) || !c.Receives(true) || slices.ContainsFunc(v.candidates, func(p candidate) bool { return p.Address == c.Address && p.secret > 0 }) {
			continue
		}
		own := signingSecrets(a, c, req.Received)
		if n := matchSecret(a, req, own[:min(len(own), maxClaimKeys)]); n > 0 {
			byAddress[c.Address] = append(byAddress[c.Address], candidate{c, n, false})
		}
	}
	for _, address := range v.claimed {
		if list := byAddress[address]; len(list) == 1 {
			v.candidates = append(v.candidates, list[0])
		}
	}
	return nil
}

func (s *Service) addDefaultClaims(ctx context.Context, info channel.Info, v *verified, claims []*connection.Connection) error {
	id, ok, err := s.defaultOrganization(ctx, s.db)
	if err != nil || !ok {
		return err
	}
	done := slices.Clone(v.unavailable)
	for _, c := range v.candidates {
		done = append(done, c.Address)
	}
	for _, c := range claims {
		if slices.Contains(done, c.Address) {
			continue
		}
		done = append(done, c.Address)
		own, err := s.connections.FindByAddress(ctx, id, info.TicketChannel, c.Address)
		if err != nil {
			return err
		}
		if own != nil && accepts(info, own) {
			v.candidates = append(v.candidates, candidate{own, 0, true})
		}
	}
	return nil
}

// signingSecrets returns the secrets that verify requests for a connection, newest first.
func signingSecrets(a channel.Adapter, c *connection.Connection, at time.Time) []string {
	if holder, ok := a.(channel.SecretResolver); ok {
		return holder.SigningSecrets(c.Channel, c.Secrets(at), c.Credentials())
	}
	return c.Secrets(at)
}

// matchSecret returns the number, from 1, of the secret that signed the request, or 0.
func matchSecret(a channel.Adapter, req *channel.Request, secrets []string) int {
	for i, secret := range secrets {
		if secret != "" && a.Verify(req, secret) {
			return i + 1
		}
	}
	return 0
}

// route is the destination of a part.
type route struct {
	to          *connection.Connection // nil if no connection has the address
	unavailable bool                   // its connection is disabled or of another style
	by          string                 // see [StoredEvent.VerifiedBy]
}

// routed is a part to store.
type routed struct {
	channel.Part
	route
	challenge string // challenge token of the part, unchecked; empty if none
}

// part is a part of a request before routing.
type part struct {
	channel.Part
	challenge string
}

// readChallenges returns the parts with their challenge tokens.
func readChallenges(a channel.Adapter, req *channel.Request, parts []channel.Part) []part {
	reader, reads := a.(channel.ChallengeReader)
	list := make([]part, len(parts))
	for i, p := range parts {
		list[i].Part = p
		if reads {
			list[i].challenge = reader.ReadChallenge(req, p)
		}
	}
	return list
}

// route assigns parts to connections. It drops parts that are not verified or that the channel
// skips.
func (v *verified) route(parts []part) []routed {
	if v.named {
		return v.routeNamed(parts)
	}
	var list []routed
	var guess *routed // the first guessed part without a connection
	known := false
	oneRecipient := hasOneRecipient(parts)
	for _, p := range parts {
		if p.Skip && p.challenge == "" {
			continue
		}
		to, ok := v.routePart(p.Part, oneRecipient)
		if !ok {
			continue
		}
		r := routed{p.Part, to, p.challenge}
		if p.Guessed && to.to == nil {
			if guess == nil {
				guess = &r
			}
			continue
		}
		known = known || p.Guessed
		list = append(list, r)
	}
	if guess != nil && !known {
		list = append(list, *guess)
	}
	return list
}

// routeNamed is route for a URL that names the connection. Parts for other recipients are
// dropped.
func (v *verified) routeNamed(parts []part) []routed {
	c := v.candidates[0]
	to := v.to(c)
	var list []routed
	var guess *routed
	oneRecipient := hasOneRecipient(parts)
	for _, p := range parts {
		r := routed{p.Part, to, p.challenge}
		switch {
		case p.Skip && p.challenge == "":
		case v.limited && p.challenge == "" && !p.Setup:
		case p.Address == "", p.Address == c.Address, p.Account == c.Address:
			list = append(list, r)
		case p.Guessed:
			// A guessed address is not the envelope recipient.
			if guess == nil {
				guess = &r
			}
		case oneRecipient && slices.Contains(v.claimed, c.Address):
			// One recipient under several names, as in routePart.
			list = append(list, r)
		}
	}
	if guess != nil && len(list) == 0 {
		list = append(list, *guess)
	}
	return list
}

// hasOneRecipient reports whether all parts have the same recipient.
func hasOneRecipient(parts []part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts[1:], func(p part) bool {
		return p.Guessed || p.Address == "" || p.Address != parts[0].Address
	})
}

// routePart returns the route of a part. oneRecipient means that the request has no other
// recipient.
func (v *verified) routePart(p channel.Part, oneRecipient bool) (route, bool) {
	var vouched []candidate
	for _, c := range v.candidates {
		if !v.isVerified(c) {
			continue
		}
		if c.Address == p.Address {
			return v.to(c), true
		}
		vouched = append(vouched, c)
	}
	off := slices.Contains(v.unavailable, p.Address)
	for _, c := range vouched {
		if p.Account != "" && c.Address == p.Account && !off {
			return v.to(c), true
		}
	}
	if oneRecipient && len(vouched) == 1 && !off {
		// The part claims one recipient under several names (a number and its messaging
		// service), of which one is connected; or under none, and then the secret identifies
		// it.
		return v.to(vouched[0]), true
	}
	// Only the deployment's secret verifies addresses without a connection.
	return route{unavailable: off, by: verifiedBy(byDeployment, v.deployment)}, v.deployment > 0
}

// filterParts drops parts that their connections' settings exclude.
func filterParts(a channel.Adapter, req *channel.Request, list []routed) []routed {
	chooser, ok := a.(channel.PartFilter)
	if !ok {
		return list
	}
	return slices.DeleteFunc(list, func(r routed) bool {
		var settings map[string]string
		if r.challenge != "" {
			return false
		}
		if r.to != nil {
			settings = r.to.Settings
		}
		return !chooser.WantsPart(settings, req, r.Part)
	})
}

func (v *verified) to(c candidate) route {
	if c.secret > 0 {
		return route{to: c.Connection, by: verifiedBy(byConnection, c.secret)}
	}
	return route{to: c.Connection, by: verifiedBy(byDeployment, v.deployment)}
}

// The prefixes of [StoredEvent.VerifiedBy].
const (
	byConnection = "connection"
	byDeployment = "deployment"
)

// verifiedBy names the secret that matched, so that an administrator sees when an old one is no
// longer used.
func verifiedBy(whose string, secret int) string { return whose + ", secret " + strconv.Itoa(secret) }
