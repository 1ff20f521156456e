package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// refuseEarly answers requests that no body could make valid, before the body is read: without
// a signature, with a malformed or expired one, with an invalid token, or for an unknown
// connection or channel. refused is false for all others.
func (e *endpoint) refuseEarly(r *http.Request) (a httpResponse, refused bool, err error) {
	if r.ContentLength > e.limit {
		return tooLarge(e.limit), true, nil
	}
	req := &channel.Request{Method: r.Method, URL: e.calledURL(r), Header: r.Header, Received: e.db.Now()}
	named, adapters, err := e.candidateAdapters(r.Context(), req)
	if err != nil {
		return httpResponse{}, false, err
	}
	for _, a := range adapters {
		ok, err := e.couldVerify(r.Context(), a, req, named)
		if err != nil || ok {
			return httpResponse{}, false, err
		}
	}
	otherType := func(a channel.Adapter) bool {
		_, err := a.Addresses(req)
		return errors.Is(err, channel.ErrContentType)
	}
	if len(adapters) > 0 && !slices.ContainsFunc(adapters, func(a channel.Adapter) bool { return !otherType(a) }) {
		return errorResponse(http.StatusUnsupportedMediaType, "the content type "+mediaType(r)+" is not supported"), true, nil
	}
	first := e.adapters[0]
	if len(adapters) > 0 {
		first = adapters[0]
	}
	return e.unauthorized(r, first), true, nil
}

// candidateAdapters returns the connection in the URL, if any, and the adapters that
// [endpoint.selectAdapter] could select for any body.
func (e *endpoint) candidateAdapters(ctx context.Context, req *channel.Request) (*connection.Connection, []channel.Adapter, error) {
	adapters := e.adapters
	if strings.Contains(req.URL, "style=") {
		if style := req.Query().Get("style"); style != "" {
			i := slices.IndexFunc(adapters, func(a channel.Adapter) bool { return strings.HasSuffix(a.Info().Name, "-"+style) })
			if i < 0 {
				return nil, nil, nil
			}
			adapters = adapters[i : i+1]
		}
	}
	id := connectionID(req)
	if id == "" {
		return nil, adapters, nil
	}
	c, err := e.connections.ByID(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("look up connection: %w", err)
	}
	if c == nil {
		return nil, nil, nil
	}
	if i := slices.IndexFunc(adapters, func(a channel.Adapter) bool { return a.Info().Name == c.Channel }); i >= 0 {
		adapters = adapters[i : i+1]
	}
	return c, adapters, nil
}

// couldVerify reports whether a body and a secret of the deployment or of a connection could
// make the request valid. named restricts it to one connection.
func (e *endpoint) couldVerify(ctx context.Context, a channel.Adapter, req *channel.Request, named *connection.Connection) (bool, error) {
	proof := channel.BodyDecides
	if p, ok := a.(channel.HeaderProver); ok {
		proof = p.HeaderProof(req)
	}
	if proof == channel.HeadersRefuse {
		return false, nil
	}
	opens := func(keys []string) bool {
		if proof == channel.HeadersDecide {
			return matchSecret(a, req, keys) > 0
		}
		return slices.ContainsFunc(keys, func(key string) bool { return key != "" })
	}
	info := a.Info()
	reaches := func(c *connection.Connection) bool {
		return accepts(info, c) && opens(signingSecrets(a, c, req.Received))
	}
	if named != nil {
		return accepts(info, named) && (opens(e.secrets[info.Name]) || reaches(named)), nil
	}
	if opens(e.secrets[info.Name]) {
		return true, nil
	}
	channels := append([]string{info.Name}, info.Serves...)
	for _, after := range []time.Time{{}, req.Received} { // cached first, then current
		list, all, err := e.connections.ListByChannels(ctx, channels, after)
		if err != nil {
			return false, fmt.Errorf("list connections: %w", err)
		}
		if !all || slices.ContainsFunc(list, reaches) {
			return true, nil
		}
	}
	return false, nil
}
