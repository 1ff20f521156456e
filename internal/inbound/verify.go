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

// verified says who vouches for a request.
type verified struct {
	claimed    []string // the addresses that the request names
	candidates []candidate
	deployment int      // which of the deployment's secrets matched, from 1; 0: none
	unavailable      []string // claimed addresses whose connections are disabled or of another style
	named      bool     // the only candidate is the connection that the URL names
	// limited says that the request is for a connection that may not have it yet: only
	// what sets it up or proves its address counts.
	limited bool
}

// candidate is a connection at an address that the request claims, or that its URL
// names.
type candidate struct {
	*connection.Connection
	secret int // which of its own keys matched, from 1; 0: none
	// acceptsDeployment reports whether requests signed with the deployment's secret may reach it.
	acceptsDeployment bool
}

func (v *verified) ok() bool {
	return v.deployment > 0 || slices.ContainsFunc(v.candidates, func(c candidate) bool { return c.secret > 0 })
}

// isVerified reports whether anybody vouches for a request to a candidate.
func (v *verified) isVerified(c candidate) bool {
	return c.secret > 0 || v.deployment > 0 && (c.acceptsDeployment || v.limited)
}

// connectionID is the id of the connection that the URL names: the parameter c.
// Empty: none.
func connectionID(req *channel.Request) string {
	if !strings.Contains(req.URL, "c=") {
		return ""
	}
	return clean(req.Query().Get("c"), maxKey)
}

// servesChannel reports whether an adapter takes requests for connections of a channel.
func servesChannel(info channel.Info, name string) bool {
	return name == info.Name || slices.Contains(info.Serves, name)
}

// accepts reports whether requests for a connection are taken by an adapter.
func accepts(info channel.Info, c *connection.Connection) bool {
	return (c.Enabled || info.AcceptWhenDisabled && c.Proven()) && servesChannel(info, c.Channel)
}

// verify tries the keys of the connection that the URL names, or else of those that
// the request claims to be for, and the deployment's. Keys of other connections are
// never tried, so nobody can vouch for another's address. What each of them lets reach
// a connection, [connection.Connection.Receives] decides.
func (s *Service) verify(ctx context.Context, a channel.Adapter, req *channel.Request, addresses []string) (verified, error) {
	if id := connectionID(req); id != "" {
		return s.verifyNamed(ctx, a, req, id, addresses)
	}
	v := verified{claimed: addresses}
	info := a.Info()
	at, err := s.connections.FindByAddresses(ctx, info.Medium, addresses)
	if err != nil {
		return v, fmt.Errorf("look up connections: %w", err)
	}
	all := len(addresses) > 0 // every address is proven to be its connection's
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

// requireSignedRecipient returns the deployment's secret that matched, or 0 where it vouches for nobody:
// see [channel.RecipientChecker].
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

// verifyNamed is verify for a request whose URL names the connection.
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
		v.deployment = n // the key that the provider signs with for everybody
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

// trustsUnsignedRecipient reports whether the deployment's secret vouches for a request of which
// nothing signed says for whom it is: it does for the default organization, as long as the
// secret serves no other. Neither a sign-up nor a connection that a stranger makes changes
// that.
func (s *Service) trustsUnsignedRecipient(ctx context.Context, info channel.Info) (bool, error) {
	id, ok, err := s.defaultOrganization(ctx, s.db)
	if err != nil || !ok {
		return false, err
	}
	shared, err := s.connections.SharedWithOthers(ctx, s.db, append([]string{info.Name}, info.Serves...), id)
	if err != nil {
		return false, fmt.Errorf("look for other organizations' connections: %w", err)
	}
	return !shared, nil
}

// isDefaultOrganization reports whether a connection is of the default organization: for its claims, the deployment's secret vouches as it does without them.
func (s *Service) isDefaultOrganization(ctx context.Context, c *connection.Connection) (bool, error) {
	id, ok, err := s.defaultOrganization(ctx, s.db)
	return ok && id == c.OrganizationID, err
}

const (
	// maxClaims bounds the connections whose addresses are not proven and whose keys are
	// tried for one request, and maxClaimKeys the keys of each: strangers can make as
	// many as they like.
	maxClaims    = 16
	maxClaimKeys = 2
)

// addClaims adds those connections that have not proven their addresses and that the
// request reaches: by a key of their own, where it is nobody else's, or by the
// deployment's, as far as the organization is the default one.
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
		own, err := s.connections.FindByAddress(ctx, id, info.Medium, c.Address)
		if err != nil {
			return err
		}
		if own != nil && accepts(info, own) {
			v.candidates = append(v.candidates, candidate{own, 0, true})
		}
	}
	return nil
}

// signingSecrets are what requests for a connection may be signed with, newest first.
func signingSecrets(a channel.Adapter, c *connection.Connection, at time.Time) []string {
	if holder, ok := a.(channel.SecretResolver); ok {
		return holder.SigningSecrets(c.Channel, c.Secrets(at), c.Credentials())
	}
	return c.Secrets(at)
}

// matchSecret returns which of the secrets, from 1, the request was signed with; 0:
// with none.
func matchSecret(a channel.Adapter, req *channel.Request, secrets []string) int {
	for i, secret := range secrets {
		if secret != "" && a.Verify(req, secret) {
			return i + 1
		}
	}
	return 0
}

// route is where a part goes.
type route struct {
	to  *connection.Connection // nil: nobody connected the address
	unavailable bool                   // somebody did, but it is disabled or of another style
	by  string                 // who vouches for it, in words
}

// routed is a part that shall be stored.
type routed struct {
	channel.Part
	route
	challenge string // the token of a challenge that it seems to bring back
}

// part is a part of a request, before it is routed.
type part struct {
	channel.Part
	challenge string
}

// readChallenges returns the parts of a request with what they bring back.
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

// route decides whose the parts are. Those that nobody vouches for, or that the
// channel does not handle, are left out.
func (v *verified) route(parts []part) []routed {
	if v.named {
		return v.routeNamed(parts)
	}
	var list []routed
	var guess *routed // the first part at a guessed address that is nobody's
	known := false
	forOne := hasOneRecipient(parts)
	for _, p := range parts {
		if p.Skip && p.challenge == "" {
			continue
		}
		to, ok := v.routePart(p.Part, forOne)
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

// routeNamed is route for a request whose URL names the connection: what names
// another recipient is left out, whoever has that.
func (v *verified) routeNamed(parts []part) []routed {
	c := v.candidates[0]
	to := v.to(c)
	var list []routed
	var guess *routed
	forOne := hasOneRecipient(parts)
	for _, p := range parts {
		r := routed{p.Part, to, p.challenge}
		switch {
		case p.Skip && p.challenge == "":
		case v.limited && p.challenge == "" && !p.Setup:
		case p.Address == "", p.Address == c.Address, p.Account == c.Address:
			list = append(list, r)
		case p.Guessed:
			// What the sender wrote is not where it was delivered.
			if guess == nil {
				guess = &r
			}
		case forOne && slices.Contains(v.claimed, c.Address):
			// One recipient under several names, as in find.
			list = append(list, r)
		}
	}
	if guess != nil && len(list) == 0 {
		list = append(list, *guess)
	}
	return list
}

// hasOneRecipient reports whether a request is for one recipient: it has one part, or several of
// one event that was delivered to one address.
func hasOneRecipient(parts []part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts[1:], func(p part) bool {
		return p.Guessed || p.Address == "" || p.Address != parts[0].Address
	})
}

// routePart decides whose a part is; sole says that it is for the only recipient.
func (v *verified) routePart(p channel.Part, sole bool) (route, bool) {
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
	if sole && len(vouched) == 1 && !off {
		// One part claimed under several names (a number and the messaging
		// service that it is in), of which one is connected; or under none,
		// and then the secret tells.
		return v.to(vouched[0]), true
	}
	// Only the deployment's secret vouches for addresses nobody connected.
	return route{unavailable: off, by: verifiedBy(byDeployment, v.deployment)}, v.deployment > 0
}

// filterParts leaves out what the connections do not want.
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

// The first words of [Event.VerifiedBy].
const (
	byConnection = "connection"
	byDeployment = "deployment"
)

// verifiedBy says which secret matched, so that an administrator can see when an old
// one is no longer used.
func verifiedBy(whose string, secret int) string { return whose + ", secret " + strconv.Itoa(secret) }
