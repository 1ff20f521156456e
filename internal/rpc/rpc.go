// Package rpc is the helpdesk's procedure surface: the tRPC-over-HTTP envelope
// with the superjson transformer, as the public TypeScript client speaks it.
//
// A [Procedure] is a function from an input to an output or an error, a name
// and who may call it; a [Router] is a literal list of them. The envelope is
// written once, here: reading and bounding the input, telling every field that
// is wrong, sessions, batches, and one table from [problem.Kind] to tRPC's
// codes. Procedures hold no HTTP and the envelope holds no rules.
//
// Whatever arrives, the answer is one well-formed JSON body. Only a fault of
// ours is a 5xx, and its text stays in the log. Nothing is written before the
// last call of a batch has ended, so any of them may still set a cookie.
package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
)

// Prefix is the path below which a [Router] must be mounted.
const Prefix = "/api/trpc/"

// Auth says what a procedure needs to know about its caller.
type Auth uint8

const (
	Public     Auth = iota // anyone; no session is looked up
	Restricted             // signed in, even without the second factor that the organization requires
	Session                // signed in, with or without an organization
	Member                 // signed in and of an organization
	Admin                  // signed in and admin of an organization
)

func (a Auth) String() string {
	switch a {
	case Public:
		return "public"
	case Restricted:
		return "restricted"
	case Session:
		return "session"
	case Member:
		return "member"
	case Admin:
		return "admin"
	}
	return fmt.Sprintf("auth(%d)", a)
}

// None is the input of a procedure that takes none. Whatever a client sends
// all the same is ignored, as long as it is JSON.
type None = struct{}

// A Procedure is one entry of the list given to [New]. Make it with [Query] or
// [Mutation].
type Procedure struct {
	name   string
	method string
	auth   Auth
	proof  Proof

	// run decodes input (nil for none), calls the function and encodes what
	// it returned into a.
	run func(ctx context.Context, input []byte, a *response) error
}

// Query returns a procedure that only reads; it is called with GET.
//
// In must be a struct. A member is required unless its field is a pointer or
// its json tag says omitempty or omitzero; null counts as missing, because
// that is how superjson writes undefined. Names match exactly, unknown members
// are ignored, and of a repeated one the last counts. If In or *In is a
// [problem.Checker] its verdict is added to the issues found while decoding,
// except on members that could not be decoded. Query panics on an In that it
// cannot decode.
//
// fn may be called concurrently. It finds the HTTP request with [Request].
func Query[In, Out any](name string, auth Auth, fn func(ctx context.Context, in In) (Out, error)) Procedure {
	return adapt(http.MethodGet, name, auth, fn)
}

// Mutation returns a procedure that changes something; it is called with POST.
// All else is as for [Query]. It may set cookies with [SetCookie].
func Mutation[In, Out any](name string, auth Auth, fn func(ctx context.Context, in In) (Out, error)) Procedure {
	return adapt(http.MethodPost, name, auth, fn)
}

// Proof says for which callers a procedure needs a fresh proof of identity.
type Proof uint8

const (
	NoProof      Proof = iota
	SecuredProof       // callers with a second factor
	AnyProof           // every caller
)

// Proven returns p with the need of a fresh proof of identity.
func Proven(need Proof, p Procedure) Procedure {
	p.proof = need
	return p
}

func adapt[In, Out any](method, name string, auth Auth, fn func(context.Context, In) (Out, error)) Procedure {
	shape, err := compileInput(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("rpc: input of %s: %v", name, err))
	}
	return Procedure{
		name:   name,
		method: method,
		auth:   auth,
		run: func(ctx context.Context, input []byte, a *response) error {
			var in In
			if err := shape.decode(input, &in); err != nil {
				return err
			}
			out, err := fn(ctx, in)
			if err != nil {
				return err
			}
			return a.result(out)
		},
	}
}

// Config is what a [Router] is made of.
type Config struct {
	Procedures []Procedure

	// Authenticate finds out who sent r and returns a context, derived from
	// r's, that says so to Authorize and to the procedures. It runs at most
	// once per request, however many calls a batch holds, and not at all for
	// public procedures. It may add headers to w, such as the cookies of a
	// refreshed session, and nothing else. Its error fails every call that
	// needs a session.
	Authenticate func(w http.ResponseWriter, r *http.Request) (context.Context, error)

	// Authorize reports, as a [problem.Error], why the caller in ctx may not
	// call a procedure that needs need, which is never Public.
	Authorize func(ctx context.Context, need Auth) error

	// RequireProof reports, as a [problem.Error], that the caller in ctx must prove
	// their identity first. Nil asks for no proof.
	RequireProof func(ctx context.Context, need Proof) error

	// NotFound is called with the id in the input of a call that was answered NOT_FOUND,
	// in case it is another organization's. Nil: nothing is.
	NotFound func(ctx context.Context, id string)

	Logger *slog.Logger // nil discards
}

// Router serves procedures below [Prefix]. It is safe for concurrent use.
type Router struct {
	procedures   map[string]*Procedure
	authenticate func(http.ResponseWriter, *http.Request) (context.Context, error)
	authorize    func(context.Context, Auth) error
	requireProof func(context.Context, Proof) error
	onNotFound   func(context.Context, string)
	log          *slog.Logger
}

// Procedures returns the names of all procedures, sorted.
func (rt *Router) Procedures() []string { return slices.Sorted(maps.Keys(rt.procedures)) }

// New returns a router. It panics when two procedures share a name, or when
// one needs a session and there is no way to find it.
func New(c Config) *Router {
	rt := &Router{
		procedures:   make(map[string]*Procedure, len(c.Procedures)),
		authenticate: c.Authenticate,
		authorize:    c.Authorize,
		requireProof: c.RequireProof,
		onNotFound:   c.NotFound,
		log:          c.Logger,
	}
	if rt.log == nil {
		rt.log = slog.New(slog.DiscardHandler)
	}
	for _, p := range c.Procedures {
		if _, ok := rt.procedures[p.name]; ok {
			panic("rpc: two procedures named " + p.name)
		}
		if p.auth != Public && (c.Authenticate == nil || c.Authorize == nil) {
			panic("rpc: " + p.name + " needs a session, but Authenticate or Authorize is missing")
		}
		rt.procedures[p.name] = &p
	}
	return rt
}
