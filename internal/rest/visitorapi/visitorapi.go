// Package visitorapi is the API with which an app's user, in a browser or on a device, has
// conversations with the organization: `/api/visitor/v1/CHANNEL_ID`.
//
// There are no API keys. A request has a token that the app's server signs with the secret of its
// channel of kind api ([api.ParseToken]), and reaches the conversations of the token's user on that
// channel only: every key that it looks up or writes begins with the user's id. Pages of other
// origins need the channel's permission. Requests are limited per user, per channel, and, with an
// invalid token, per address.
package visitorapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/bodypool"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/channel/api"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/fairqueue"
	"github.com/kickstand-dev/kickstand/internal/inbound"
	"github.com/kickstand-dev/kickstand/internal/live"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// Base is the base path, before the id of a channel.
const Base = "/api/visitor/v1"

// Requests a minute.
const (
	userLimit    = 120
	uploadLimit  = 10 // of them with files
	channelLimit = 6000
	refusalLimit = 60 // with an invalid token, of an address
)

// Config has the parts of a [Handler]. All are required.
type Config struct {
	DB          *db.DB
	Connections *connection.Service
	Desk        *desk.Service
	Inbound     *inbound.Service
	Live        *live.Hub
	BaseURL     string           // public address, without a trailing slash
	Limiter     rest.RateLimiter // of windows of a minute

	TrustedProxies []netip.Prefix
	Logger         *slog.Logger
}

// Handler serves the API. It is safe for concurrent use.
type Handler struct {
	Config
	mux       *http.ServeMux
	receiving *bodypool.Pool   // forms that arrive
	storing   *fairqueue.Queue // forms that are parsed and stored
	streams   streams
}

// Bounds of the forms with files in memory. Strangers can have any number of tokens of a channel, so a
// client is its network while a form arrives, and each channel has its turn when it is stored.
const (
	maxReceiving = 96 << 20 // bytes
	maxPerClient = 32 << 20
	slowest      = 64 << 10 // bytes per second: the largest form must end before the server's write timeout
	maxStoring   = 8        // forms
	maxPerTurn   = 4        // of a channel
	maxWaiting   = 500      // of all channels
	storeWait    = 10 * time.Second
)

// New returns the API.
func New(c Config) *Handler {
	h := &Handler{
		Config: c, mux: http.NewServeMux(), receiving: bodypool.NewSlow(maxReceiving, maxPerClient, slowest),
		storing: fairqueue.New(fairqueue.Config{Capacity: maxStoring, PerKey: maxWaiting / 10, Waiting: maxWaiting}),
	}
	const at, conversation = Base + "/{channel}", Base + "/{channel}/conversations/{conversation}"
	h.handle("GET "+at+"/conversations", h.listConversations)
	h.handle("GET "+conversation+"/messages", h.listMessages)
	h.handle("POST "+conversation+"/messages", h.createMessage)
	h.handle("POST "+conversation+"/read", h.markRead)
	h.handle("POST "+conversation+"/typing", h.reportTyping)
	h.handle("GET "+at+"/events", h.events)
	h.mux.HandleFunc("OPTIONS "+at+"/", h.preflight)
	h.mux.HandleFunc(Base+"/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, &problem.Error{Kind: problem.NotFound, Code: "route_not_found", Message: "there is no such path"})
	})
	return h
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.mux.ServeHTTP(w, r)
}

// visitor is an authenticated request.
type visitor struct {
	user       api.User
	connection *connection.Connection
	expires    time.Time // of the token
}

// key returns the thread key of the path's conversation.
func (v *visitor) key(r *http.Request) string {
	return api.ThreadKey(v.user.ID, r.PathValue("conversation"))
}

// source returns the source of the visitor's messages.
func (v *visitor) source(at time.Time) channel.Source {
	return channel.Source{OrganizationID: v.connection.OrganizationID, ConnectionID: v.connection.ID, Channel: api.Name, TicketChannel: api.Name, ReceivedAt: at}
}

// handle registers a route. Its handler runs for authenticated visitors within their limits.
func (h *Handler) handle(pattern string, fn func(w http.ResponseWriter, r *http.Request, v *visitor) error) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		telemetry.RequestFrom(r.Context()).SetRoute("visitor", r.Pattern)
		v, err := h.admit(w, r)
		if err == nil && r.PathValue("conversation") != "" {
			var issues problem.Validation
			api.CheckID(&issues, "conversation", r.PathValue("conversation"))
			if issues.Err() != nil {
				err = problem.New(problem.NotFound, "there is no such conversation")
			}
		}
		if err == nil {
			err = fn(w, r, v)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	})
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if status := rest.WriteProblem(w, h.BaseURL, err); status == http.StatusInternalServerError && r.Context().Err() == nil {
		h.Logger.ErrorContext(r.Context(), "a visitor's request failed", "path", r.URL.Path, "error", err)
	}
}

// admit authenticates a request and counts it.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (*visitor, error) {
	c, err := h.channel(r)
	if err != nil {
		return nil, err
	}
	if err := allowOrigin(w, r, c); err != nil {
		return nil, err
	}
	v, err := h.authenticate(r, c)
	if err != nil {
		return nil, err
	}
	if err := h.count(r.Context(), "user "+c.ID+" "+v.user.ID, userLimit); err != nil {
		return nil, err
	}
	return v, h.count(r.Context(), "channel "+c.ID, channelLimit)
}

// channel returns the channel of the path; nil if there is none that visitors can use.
func (h *Handler) channel(r *http.Request) (*connection.Connection, error) {
	c, err := h.Connections.ByID(r.Context(), r.PathValue("channel"))
	if err != nil || c == nil || c.Channel != api.Name || !c.Enabled {
		return nil, err
	}
	return c, nil
}

// authenticate verifies the request's token for a channel. An unknown channel, nil, is an invalid
// token.
func (h *Handler) authenticate(r *http.Request, c *connection.Connection) (*visitor, error) {
	now := h.DB.Now()
	err := error(api.ErrToken)
	if c != nil {
		var t api.Token
		if t, err = api.ParseToken(bearer(r), c.ID, c.Secrets(now), now); err == nil {
			return &visitor{t.User, c, t.Expires}, nil
		}
	}
	// Only refused requests are counted, so that a stranger cannot lock out an address's visitors.
	if limited := h.count(r.Context(), "address "+rest.AddressBucket(browser.ClientIP(r, h.TrustedProxies)), refusalLimit); limited != nil {
		return nil, limited
	}
	return nil, &problem.Error{Kind: problem.Unauthorized, Code: "invalid_visitor_token", Message: err.Error(), Cause: err}
}

// bearer returns the token of a request: from the header, or, for event streams of browsers, which
// cannot set one, from the query.
func bearer(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/events") {
		return r.URL.Query().Get("token")
	}
	return ""
}

// count counts a request under a key.
func (h *Handler) count(ctx context.Context, key string, limit int64) error {
	s, ok, err := h.Limiter.Acquire(ctx, key, limit)
	if err != nil {
		return problem.New(problem.Unavailable, "the rate limit is unavailable").Because(err)
	}
	if !ok {
		e := problem.New(problem.RateLimited, "there are more than %d requests a minute", limit)
		e.RetryAfter = max(time.Until(s.Reset), time.Second)
		return e
	}
	return nil
}

// allowOrigin permits a page of another origin to read the answer, if the channel does. Requests
// without an origin, as of devices, need no permission.
func allowOrigin(w http.ResponseWriter, r *http.Request, c *connection.Connection) error {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if c == nil || !slices.Contains(api.Origins(c.Settings), strings.ToLower(origin)) {
		return &problem.Error{Kind: problem.Forbidden, Code: "origin_not_allowed", Message: "the channel does not allow pages of this origin"}
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
	return nil
}

// preflight answers a browser's question before a request of a page of another origin.
func (h *Handler) preflight(w http.ResponseWriter, r *http.Request) {
	c, err := h.channel(r)
	if err == nil {
		err = allowOrigin(w, r, c)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// readUpload reads a form with files. The caller calls leave once the files are stored.
func (h *Handler) readUpload(w http.ResponseWriter, r *http.Request, v *visitor) (body []byte, leave func(), err error) {
	if err := h.count(r.Context(), "upload "+v.connection.ID+" "+v.user.ID, uploadLimit); err != nil {
		return nil, nil, err
	}
	in, err := h.receiving.Read(w, r, rest.AddressBucket(browser.ClientIP(r, h.TrustedProxies)), maxUpload)
	if err != nil {
		in.Release()
		return nil, nil, uploadError(w, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeWait)
	defer cancel()
	turn, err := h.storing.Acquire(ctx, v.connection.ID, 1, maxPerTurn)
	if err != nil {
		in.Release()
		return nil, nil, errCrowded(err)
	}
	return in.Bytes, func() { turn(); in.Release() }, nil
}

func errCrowded(cause error) error {
	e := problem.New(problem.Unavailable, "too many files are being sent; try again").Because(cause)
	e.RetryAfter = bodypool.RetryAfter
	return e
}

// uploadError converts an error of receiving a form.
func uploadError(w http.ResponseWriter, err error) error {
	switch {
	case errors.Is(err, bodypool.ErrCrowded):
		return errCrowded(err)
	case errors.Is(err, bodypool.ErrSlow):
		w.Header().Set("Connection", "close")
		return formError(errors.New("it arrived too slowly"))
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return errLarge(maxUpload)
	}
	return formError(errors.New("it is incomplete"))
}
