package inbound

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// verified says who vouches for a request.
type verified struct {
	candidates []candidate
	deployment int      // which of the deployment's secrets matched, from 1; 0: none
	taken      []string // claimed addresses whose connections are disabled or of another style
}

// candidate is a connection at an address that the request claims.
type candidate struct {
	*connection.Connection
	secret int // which of its own secrets matched, from 1; 0: none
}

func (v *verified) ok() bool {
	return v.deployment > 0 || slices.ContainsFunc(v.candidates, func(c candidate) bool { return c.secret > 0 })
}

// verify tries the secrets of the connections that the request claims to be
// for, and the deployment's. Secrets of other connections are never tried, so
// nobody can vouch for another's address.
func (s *Service) verify(ctx context.Context, a channel.Adapter, req *channel.Request, addresses []string) (verified, error) {
	var v verified
	info := a.Info()
	at, err := s.connections.At(ctx, info.Medium, addresses)
	if err != nil {
		return v, fmt.Errorf("look up connections: %w", err)
	}
	all := len(addresses) > 0 // every address is proven to be its connection's
	for _, c := range at {
		if !c.Enabled || c.Channel != info.Name {
			v.taken = append(v.taken, c.Address)
			continue
		}
		n := match(a, req, c.Secrets(req.Received))
		v.candidates = append(v.candidates, candidate{c, n})
		all = all && n > 0
	}
	if !all || len(v.candidates) < len(addresses) {
		v.deployment = match(a, req, s.secrets[info.Name])
	}
	return v, nil
}

// match returns which of the secrets, from 1, the request was signed with; 0:
// with none.
func match(a channel.Adapter, req *channel.Request, secrets []string) int {
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
	off bool                   // somebody did, but it is disabled or of another style
	by  string                 // who vouches for it, in words
}

// routed is a part that shall be stored.
type routed struct {
	channel.Part
	route
}

// route decides whose the parts are. Those that nobody vouches for, or that the
// channel does not handle, are left out.
func (v *verified) route(parts []channel.Part) []routed {
	var list []routed
	var guess *routed // the first part at a guessed address that is nobody's
	known := false
	for _, p := range parts {
		if p.Skip {
			continue
		}
		to, ok := v.find(p, len(parts) == 1)
		if !ok {
			continue
		}
		r := routed{p, to}
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

// find decides whose a part is; sole says that it is the only one.
func (v *verified) find(p channel.Part, sole bool) (route, bool) {
	var vouched []candidate
	for _, c := range v.candidates {
		if c.secret == 0 && v.deployment == 0 {
			continue
		}
		if c.Address == p.Address {
			return v.to(c), true
		}
		vouched = append(vouched, c)
	}
	off := slices.Contains(v.taken, p.Address)
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
	return route{off: off, by: by(byDeployment, v.deployment)}, v.deployment > 0
}

func (v *verified) to(c candidate) route {
	if c.secret > 0 {
		return route{to: c.Connection, by: by(byConnection, c.secret)}
	}
	return route{to: c.Connection, by: by(byDeployment, v.deployment)}
}

// The first words of [Event.VerifiedBy].
const (
	byConnection = "connection"
	byDeployment = "deployment"
)

// by says which secret matched, so that an administrator can see when an old
// one is no longer used.
func by(whose string, secret int) string { return whose + ", secret " + strconv.Itoa(secret) }
