package inbound

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// endpoint serves one path, which several adapters may share.
type endpoint struct {
	*Service
	adapters   []channel.Adapter
	limit      int64 // largest MaxBody of the adapters, in bytes
	handshakes bool  // an adapter answers GET handshakes
}

// httpResponse is the answer to a request.
type httpResponse struct {
	status      int
	contentType string
	body        []byte
}

func jsonResponse(status int, name, value string) httpResponse {
	b, _ := json.Marshal(map[string]string{name: value}) // strings do not fail
	return httpResponse{status, "application/json", append(b, '\n')}
}

// textResponse answers a challenge.
func textResponse(challenge string) httpResponse {
	return httpResponse{http.StatusOK, "text/plain; charset=utf-8", []byte(challenge)}
}

// errorResponse answers with an error.
func errorResponse(status int, message string) httpResponse {
	return jsonResponse(status, "error", message)
}

// ServeHTTP implements [http.Handler].
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	telemetry.RequestFrom(r.Context()).SetRoute("inbound", r.Pattern)
	r = r.WithContext(e.source(r))
	handle := e.receive
	switch {
	case r.Method == http.MethodPost:
	case r.Method == http.MethodGet && e.handshakes:
		handle = e.handshake
	case e.handshakes:
		w.Header().Set("Allow", "GET, POST")
		write(w, errorResponse(http.StatusMethodNotAllowed, "only GET and POST are allowed"))
		return
	default:
		w.Header().Set("Allow", http.MethodPost)
		write(w, errorResponse(http.StatusMethodNotAllowed, "only POST is allowed"))
		return
	}
	a, err := recoverPanics(handle, w, r)
	if err != nil {
		// The event may not be stored because of a failure of ours: the provider must send it
		// again.
		switch {
		case r.Context().Err() != nil:
		case problem.Of(err) == problem.Unavailable: // logged by the database or the store of files
			e.log.DebugContext(r.Context(), "an inbound request could not be stored", "path", r.URL.Path, "error", err)
		default:
			e.log.ErrorContext(r.Context(), "an inbound request could not be stored", "path", r.URL.Path, "error", err)
		}
		w.Header().Set("Retry-After", "5")
		a = errorResponse(http.StatusServiceUnavailable, "the event could not be stored; send it again")
	}
	write(w, a)
}

func write(w http.ResponseWriter, a httpResponse) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="inbound"`) // RFC 9110, 15.5.2
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// recoverPanics calls handle and turns an adapter's panic into an error.
func recoverPanics(handle func(http.ResponseWriter, *http.Request) (httpResponse, error), w http.ResponseWriter, r *http.Request) (a httpResponse, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return handle(w, r)
}

// receive verifies and stores a request and returns its answer. An error means 503.
func (e *endpoint) receive(w http.ResponseWriter, r *http.Request) (httpResponse, error) {
	ctx := r.Context()
	if a, refused, err := e.refuseEarly(r); err != nil || refused {
		return a, err
	}
	body, err := e.readBody(w, r) // a large request's memory, held until it is stored
	defer body.release()
	if refused, ok := errors.AsType[*bodyError](err); ok {
		return refused.response, nil
	}
	if err != nil {
		return httpResponse{}, err
	}
	req := &channel.Request{Method: r.Method, URL: e.calledURL(r), Header: r.Header, Body: body.bytes, Received: e.db.Now()}

	a, err := e.selectAdapter(ctx, req)
	if errors.Is(err, channel.ErrContentType) {
		return errorResponse(http.StatusUnsupportedMediaType, "the content type "+mediaType(r)+" is not supported"), nil
	}
	if errors.Is(err, errNoAdapter) {
		return e.unauthorized(r, e.adapters[0]), nil // in no known format
	}
	if err != nil {
		return httpResponse{}, err
	}
	info, tally := a.Info(), e.counts[a.Info().Name]
	if int64(len(req.Body)) > info.MaxBody {
		return tooLarge(info.MaxBody), nil
	}
	v, err := e.verifyRequest(ctx, a, req)
	if errors.Is(err, channel.ErrContentType) {
		return errorResponse(http.StatusUnsupportedMediaType, "the content type "+mediaType(r)+" is not supported"), nil
	}
	if err != nil {
		return httpResponse{}, err
	}
	if !v.ok() {
		return e.unauthorized(r, a), nil
	}
	if g, ok := a.(channel.ChallengeResponder); ok && !v.limited {
		if challenge, ok := g.ChallengeResponse(req); ok {
			tally.add(channel.Ignored)
			return textResponse(challenge), nil
		}
	}
	response, err := e.accept(ctx, a, req, v)
	if errors.Is(err, errUsedToken) || errors.Is(err, errUnproven) {
		return e.unauthorized(r, a), nil
	}
	return response, err
}

// verifyRequest verifies a request for the addresses that it claims. The result is not ok
// if it claims none. Error: channel.ErrContentType, among others.
func (e *endpoint) verifyRequest(ctx context.Context, a channel.Adapter, req *channel.Request) (verified, error) {
	addresses, err := a.Addresses(req)
	if errors.Is(err, channel.ErrContentType) {
		return verified{}, err
	}
	if err != nil {
		return verified{}, nil
	}
	if p, ok := a.(channel.Preparer); ok {
		if err := p.Prepare(ctx, req); err != nil {
			return verified{}, err
		}
	}
	return e.verify(ctx, a, req, addresses)
}

// accept splits and stores a verified request. Errors: errUsedToken and errUnproven, among
// others.
func (e *endpoint) accept(ctx context.Context, a channel.Adapter, req *channel.Request, v verified) (httpResponse, error) {
	tally := e.counts[a.Info().Name]
	parts, err := a.Split(req)
	if errors.Is(err, channel.ErrUnreadable) {
		if v.limited {
			return httpResponse{}, errUnproven
		}
		if err := e.storeRejected(ctx, a, req, v, err); err != nil {
			return httpResponse{}, err
		}
		tally.rejected.Add(1)
		return errorResponse(http.StatusBadRequest, "the request is signed but cannot be read: "+reason(err)), nil
	}
	if err != nil {
		return httpResponse{}, fmt.Errorf("split: %w", err)
	}
	outcome, reply, err := e.store(ctx, a, req, v, parts)
	if err != nil {
		return httpResponse{}, err
	}
	tally.add(outcome)
	if form, ok := a.(channel.Acknowledger); ok {
		contentType, body := form.Acknowledgement(outcome, reply)
		return httpResponse{http.StatusOK, contentType, body}, nil
	}
	return jsonResponse(http.StatusOK, "status", string(outcome)), nil
}

// handshake answers a provider's GET that verifies the endpoint.
func (e *endpoint) handshake(_ http.ResponseWriter, r *http.Request) (httpResponse, error) {
	req := &channel.Request{Method: r.Method, URL: e.calledURL(r), Header: r.Header, Received: e.db.Now()}
	for _, a := range e.adapters {
		h, ok := a.(channel.Handshaker)
		if !ok {
			continue
		}
		token, challenge, ok := h.Handshake(req)
		if !ok {
			continue
		}
		known, err := e.isVerifyToken(r.Context(), a.Info(), connectionID(req), token)
		if err != nil {
			return httpResponse{}, err
		}
		if known {
			return textResponse(challenge), nil
		}
	}
	return errorResponse(http.StatusForbidden, "the verify token is wrong"), nil
}

// isVerifyToken reports whether token is a valid verify token of the deployment or of the
// connection id; without an id, of any connection of the channel.
func (s *Service) isVerifyToken(ctx context.Context, info channel.Info, id, token string) (bool, error) {
	if token == "" {
		return false, nil
	}
	presented := sha256.Sum256([]byte(token))
	known := false
	same := func(token string) {
		digest := sha256.Sum256([]byte(token))
		if token != "" && hmac.Equal(digest[:], presented[:]) {
			known = true
		}
	}
	for _, token := range s.verifyTokens[info.Name] {
		same(token)
	}
	if known {
		return true, nil
	}
	if id == "" {
		return s.connections.HasCredential(ctx, append([]string{info.Name}, info.Serves...), channel.VerifyToken, token)
	}
	c, err := s.connections.ByID(ctx, id)
	if err == nil && c != nil && c.Enabled && servesChannel(info, c.Channel) {
		same(c.Credentials().Get(channel.VerifyToken))
	}
	return known, err
}

// unauthorized answers every unverified request. It does not reveal which check failed.
func (e *endpoint) unauthorized(r *http.Request, a channel.Adapter) httpResponse {
	name := a.Info().Name
	e.counts[name].refused.Add(1)
	e.audit.Refuse(r.Context(), audit.Entry{Action: AuditRefused, Target: audit.Target{Type: "channel", ID: name}})
	return errorResponse(http.StatusUnauthorized, "the request has no valid signature")
}

// calledURL returns the URL exactly as the provider called it, because signatures cover it.
func (e *endpoint) calledURL(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return e.baseURL + r.RequestURI
	}
	return e.baseURL + r.URL.RequestURI()
}

func mediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "given"
	}
	return t
}

// reason returns an adapter's error text without the prefix of [channel.ErrUnreadable].
func reason(err error) string {
	return clean(strings.TrimPrefix(err.Error(), channel.ErrUnreadable.Error()+": "), maxError)
}

var errNoAdapter = errors.New("no adapter recognizes the request")

// selectAdapter returns the adapter of the connection in the URL, the one that ?style= names,
// or the first that recognizes the request. If all of them refuse the content type, the error
// is [channel.ErrContentType]; any error other than that and errNoAdapter is internal.
func (e *endpoint) selectAdapter(ctx context.Context, req *channel.Request) (channel.Adapter, error) {
	if strings.Contains(req.URL, "style=") {
		if style := req.Query().Get("style"); style != "" {
			for _, a := range e.adapters {
				if strings.HasSuffix(a.Info().Name, "-"+style) {
					return a, nil
				}
			}
			return nil, errNoAdapter
		}
	}
	if id := connectionID(req); id != "" && len(e.adapters) > 1 {
		c, err := e.connections.ByID(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look up connection: %w", err)
		}
		if c != nil {
			for _, a := range e.adapters {
				if a.Info().Name == c.Channel {
					return a, nil
				}
			}
		}
	}
	for _, a := range e.adapters {
		if r, ok := a.(channel.Recognizer); !ok || r.Recognizes(req) {
			return a, nil
		}
	}
	for _, a := range e.adapters {
		if _, err := a.Addresses(req); !errors.Is(err, channel.ErrContentType) {
			return nil, errNoAdapter
		}
	}
	return nil, channel.ErrContentType
}
