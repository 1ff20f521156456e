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
	taken      []string // claimed addresses whose connections are disabled or of another style
	named      bool     // the only candidate is the connection that the URL names
}

// candidate is a connection at an address that the request claims, or that its URL
// names.
type candidate struct {
	*connection.Connection
	secret int // which of its own keys matched, from 1; 0: none
}

func (v *verified) ok() bool {
	return v.deployment > 0 || slices.ContainsFunc(v.candidates, func(c candidate) bool { return c.secret > 0 })
}

// connectionID is the id of the connection that the URL names: the parameter c.
// Empty: none.
func connectionID(req *channel.Request) string {
	if !strings.Contains(req.URL, "c=") {
		return ""
	}
	return clean(req.Query().Get("c"), maxKey)
}

// serves reports whether an adapter takes requests for connections of a channel.
func serves(info channel.Info, name string) bool {
	return name == info.Name || slices.Contains(info.Serves, name)
}

// takes reports whether requests for a connection are taken by an adapter.
func takes(info channel.Info, c *connection.Connection) bool {
	return (c.Enabled || info.Lawful) && serves(info, c.Channel)
}

// verify tries the keys of the connection that the URL names, or else of those that
// the request claims to be for, and the deployment's. Keys of other connections are
// never tried, so nobody can vouch for another's address.
func (s *Service) verify(ctx context.Context, a channel.Adapter, req *channel.Request, addresses []string) (verified, error) {
	v := verified{claimed: addresses}
	info := a.Info()
	if id := connectionID(req); id != "" {
		c, err := s.connections.ByID(ctx, id)
		if err != nil {
			return v, fmt.Errorf("look up connection: %w", err)
		}
		if c == nil || !takes(info, c) {
			return v, nil
		}
		v.named = true
		v.candidates = []candidate{{c, match(a, req, keys(a, c, req.Received))}}
		if v.candidates[0].secret == 0 {
			v.deployment = match(a, req, s.secrets[info.Name])
		}
		return v, nil
	}
	at, err := s.connections.At(ctx, info.Medium, addresses)
	if err != nil {
		return v, fmt.Errorf("look up connections: %w", err)
	}
	all := len(addresses) > 0 // every address is proven to be its connection's
	for _, c := range at {
		if !takes(info, c) {
			v.taken = append(v.taken, c.Address)
			continue
		}
		n := match(a, req, keys(a, c, req.Received))
		v.candidates = append(v.candidates, candidate{c, n})
		all = all && n > 0
	}
	if !all || len(v.candidates) < len(addresses) {
		v.deployment = match(a, req, s.secrets[info.Name])
	}
	if u, ok := a.(channel.Unbound); ok && v.deployment > 0 && len(v.candidates) > 0 && u.Unbound(req) {
		_, sole, err := s.soleOrganization(ctx, s.db)
		if err != nil {
			return v, fmt.Errorf("find the only organization: %w", err)
		}
		if !sole {
			v.deployment = 0
		}
	}
	return v, nil
}

// keys are what requests for a connection may be signed with, newest first.
func keys(a channel.Adapter, c *connection.Connection, at time.Time) []string {
	if holder, ok := a.(channel.KeyHolder); ok {
		return holder.Keys(c.Channel, c.Secrets(at), c.Credentials())
	}
	return c.Secrets(at)
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
	if v.named {
		return v.routeNamed(parts)
	}
	var list []routed
	var guess *routed // the first part at a guessed address that is nobody's
	known := false
	forOne := sole(parts)
	for _, p := range parts {
		if p.Skip {
			continue
		}
		to, ok := v.find(p, forOne)
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

// routeNamed is route for a request whose URL names the connection: what names
// another recipient is left out, whoever has that.
func (v *verified) routeNamed(parts []channel.Part) []routed {
	c := v.candidates[0]
	to := v.to(c)
	var list []routed
	var guess *routed
	forOne := sole(parts)
	for _, p := range parts {
		r := routed{p, to}
		switch {
		case p.Skip:
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

// sole reports whether a request is for one recipient: it has one part, or several of
// one event that was delivered to one address.
func sole(parts []channel.Part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts[1:], func(p channel.Part) bool {
		return p.Guessed || p.Address == "" || p.Address != parts[0].Address
	})
}

// find decides whose a part is; sole says that it is for the only recipient.
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

// choose leaves out what the connections do not want.
func choose(a channel.Adapter, req *channel.Request, list []routed) []routed {
	chooser, ok := a.(channel.Chooser)
	if !ok {
		return list
	}
	return slices.DeleteFunc(list, func(r routed) bool {
		var settings map[string]string
		if r.to != nil {
			settings = r.to.Settings
		}
		return !chooser.Chooses(settings, req, r.Part)
	})
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
