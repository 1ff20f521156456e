// Package rpc serves the helpdesk's procedures: the tRPC-over-HTTP envelope with the
// superjson transformer, for the public TypeScript client.
//
// A [Procedure] is a function from an input to an output or an error, with a name and the
// required authentication; a [Router] serves a literal list of them. The envelope is
// implemented here once: reading and bounding the input, reporting all wrong fields,
// sessions, batches, and the table from [problem.Kind] to tRPC's codes. Procedures do not
// handle HTTP, and the envelope has no rules of the domain.
//
// Every response is one well-formed JSON body. Only an internal error is a 5xx, and its
// text stays in the log. Nothing is written before the last call of a batch has ended, so
// each call may set a cookie.
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

// Prefix is the path under which a [Router] must be mounted.
const Prefix = "/api/trpc/"

// Auth is the authentication that a procedure requires.
type Auth uint8

const (
	Public     Auth = iota // none; no session is looked up
	Restricted             // signed in, even without the second factor that the organization requires
	Session                // signed in, with or without an organization
	Member                 // signed in, member of an organization
	Admin                  // signed in, admin of an organization
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

// None is the input of a procedure without one. It ignores any JSON that a client sends.
type None = struct{}

// A Procedure is one entry of the list given to [New]. Create it with [Query] or
// [Mutation].
type Procedure struct {
	name   string
	method string
	auth   Auth
	proof  Proof
	in     reflect.Type // of the input
	out    reflect.Type // of the output

	// run decodes input (nil: none), calls the function and encodes its result into a.
	run func(ctx context.Context, input []byte, a *response) error
}

// Query returns a procedure without side effects, called with GET.
//
// In must be a struct. A field is required unless it is a pointer or its json tag has
// omitempty or omitzero; null counts as missing, since superjson encodes undefined as
// null. Names match exactly, unknown fields are ignored, and the last of duplicate fields
// counts. If In or *In is a [problem.Checker], its issues are added to those of decoding,
// except for fields that could not be decoded. Query panics on an In that it cannot
// decode.
//
// fn may be called concurrently. [Request] returns its HTTP request.
func Query[In, Out any](name string, auth Auth, fn func(ctx context.Context, in In) (Out, error)) Procedure {
	return adapt(http.MethodGet, name, auth, fn)
}

// Mutation returns a procedure with side effects, called with POST. Otherwise it is like
// [Query]. It may set cookies with [SetCookie].
func Mutation[In, Out any](name string, auth Auth, fn func(ctx context.Context, in In) (Out, error)) Procedure {
	return adapt(http.MethodPost, name, auth, fn)
}

// Proof selects the callers that need a fresh proof of identity.
type Proof uint8

const (
	NoProof      Proof = iota
	SecuredProof       // callers with a second factor
	AnyProof           // every caller
)

// Proven returns p with a required proof of identity.
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
		in:     reflect.TypeFor[In](),
		out:    reflect.TypeFor[Out](),
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

// Config configures a [Router].
type Config struct {
	Procedures []Procedure

	// Authenticate returns a context, derived from r's, with the caller's identity for
	// Authorize and the procedures. It runs at most once per request, also for a batch,
	// and not for public procedures. It may add headers to w, such as the cookies of a
	// refreshed session, and nothing else. Its error fails every call that needs a
	// session.
	Authenticate func(w http.ResponseWriter, r *http.Request) (context.Context, error)

	// Authorize returns a [problem.Error] if the caller in ctx lacks need, which is never
	// Public.
	Authorize func(ctx context.Context, need Auth) error

	// RequireProof returns a [problem.Error] if the caller in ctx must prove their
	// identity first. Nil: no proof is required.
	RequireProof func(ctx context.Context, need Proof) error

	// NotFound is called with the id in the input of a call that failed with NOT_FOUND,
	// to detect ids of other organizations. Nil: no call.
	NotFound func(ctx context.Context, id string)

	Logger *slog.Logger // nil: no log
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

// New returns a router. It panics if two procedures share a name, or if one needs a
// session and Authenticate is nil.
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
