package rest

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/ratelimit"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
)

// addressLimit is the number of failed authentications per address and minute.
const addressLimit = 60

// bucketOf returns the rate limit bucket of a client address: IPv6 by /64 network, the usual
// size of one customer's.
func bucketOf(ip netip.Addr) string {
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr().String()
		}
	}
	return ip.String()
}

// AddressBucket returns the key under which requests of a client address are counted.
func AddressBucket(ip netip.Addr) string { return bucketOf(ip) }

// allowRequest counts a request in the key's window, and answers 429 if that is full.
func (a *API) allowRequest(w http.ResponseWriter, r *Request) bool {
	ctx := r.http.Context()
	limit, err := a.c.Keys.Limit(ctx, r.Key)
	var s ratelimit.State
	ok := false
	if err == nil {
		s, ok, err = a.c.KeyLimiter.Acquire(ctx, r.Key.ID, limit)
	}
	if err != nil {
		r.limits(w.Header(), "key", ratelimit.State{Limit: limit, Reset: time.Now().Add(time.Minute)})
		a.writeError(w, r, problem.New(problem.Unavailable, "the rate limit of the API key is unavailable").Because(err))
		return false
	}
	t := r.limits(w.Header(), "key", s)
	if !ok {
		f := limited("key", t, fmt.Sprintf("The API key has %d requests a minute.", s.Limit))
		f.refusal = requestlog.Refusal{Rule: requestlog.Limit, Needed: fmt.Sprintf("more than %d requests a minute", s.Limit)}
		a.fail(w, r, f)
	}
	return ok
}

// limited returns the refusal of a request over a limit.
func limited(policy string, t int64, detail string) *apiError {
	return &apiError{
		code: "rate_limited", detail: fmt.Sprintf("%s Try again in %d seconds.", detail, t),
		details: map[string]any{"policy": policy}, retry: time.Duration(t) * time.Second,
	}
}

// refuse answers a request with an invalid key.
func (a *API) refuse(w http.ResponseWriter, r *Request, bucket string, err error) {
	ctx := r.http.Context()
	f, malformed := errors.AsType[*apiError](err)
	refused := !malformed
	if refused {
		refusal, known := errors.AsType[apikey.Refusal](err)
		if !known {
			// Not the key's fault: do not count it.
			a.peek(w, r, bucket)
			a.writeError(w, r, problem.New(problem.Unavailable, "the API key cannot be checked now").Because(err))
			return
		}
		f = apiErrorf(byRefusal[refusal], "%s", sentence(refusal.Error()))
	}
	s, ok, err := a.c.AddressLimiter.Acquire(ctx, bucket, addressLimit)
	if err != nil {
		r.limits(w.Header(), "address", ratelimit.State{Limit: addressLimit, Reset: time.Now().Add(time.Minute)})
		a.writeError(w, r, problem.New(problem.Unavailable, "the rate limit of the address is unavailable").Because(err))
		return
	}
	t := r.limits(w.Header(), "address", s)
	if !ok {
		a.fail(w, r, limited("address", t, "Too many requests of this address had no valid API key."))
		return
	}
	if refused {
		a.identify(r, f)
	}
	if errorCodes[f.code].status == http.StatusUnauthorized {
		challenge := `Bearer realm="` + a.c.Realm + `"`
		switch f.code {
		case "missing_credentials":
		case "malformed_authorization":
			challenge += `, error="invalid_request"`
		default:
			challenge += `, error="invalid_token", error_description="` + f.detail + `"`
		}
		f.headers = [][2]string{{"Www-Authenticate", challenge}}
	}
	a.fail(w, r, f)
}

// refusedBy is the rule of the log by the code of a refused key.
var refusedBy = map[string]requestlog.Rule{
	"wrong_environment": requestlog.Environment, "invalid_api_key": requestlog.Environment,
	"api_key_revoked": requestlog.Revoked, "api_key_expired": requestlog.Expired, "ip_not_allowed": requestlog.Address,
}

// identify finds the key of a refused request, for the request log, and names the right base
// URL if the key is active and belongs to another API of the deployment.
func (a *API) identify(r *Request, f *apiError) {
	token, err := bearer(r.http.Header)
	if err != nil {
		return
	}
	k, ok := a.c.Keys.Identify(r.http.Context(), token)
	if !ok {
		return
	}
	r.refused = k
	f.refusal.Rule = refusedBy[f.code]
	switch f.refusal.Rule {
	case requestlog.Environment:
		place := apikey.API{Service: k.Service, Environment: k.Environment}
		f.refusal.Needed = a.c.Addresses[place]
		if f.refusal.Needed != "" && k.Status(a.c.DB.Now()) == apikey.Active && place != (apikey.API{Service: a.c.Service, Environment: a.c.Environment}) {
			f.detail = "The API key works at " + f.refusal.Needed + " only."
		}
	case requestlog.Address:
		if r.IP.IsValid() {
			f.refusal.Needed = r.IP.Unmap().WithZone("").String()
		}
	}
}

// peek sets the headers of the address bucket without counting.
func (a *API) peek(w http.ResponseWriter, r *Request, bucket string) {
	s, err := a.c.AddressLimiter.Peek(r.http.Context(), bucket, addressLimit)
	if err != nil {
		s = ratelimit.State{Limit: addressLimit, Reset: time.Now().Add(time.Minute)}
	}
	r.limits(w.Header(), "address", s)
}

// limits sets the headers of a limit and returns the seconds until its window ends.
func (r *Request) limits(h http.Header, policy string, s ratelimit.State) int64 {
	t := seconds(time.Until(s.Reset))
	reset := s.Reset.Unix()
	if s.Reset.Nanosecond() > 0 {
		reset++
	}
	limit, remaining := strconv.FormatInt(s.Limit, 10), strconv.FormatInt(s.Remaining, 10)
	h["X-Ratelimit-Limit"] = r.headerLine(limit)
	h["X-Ratelimit-Remaining"] = r.headerLine(remaining)
	h["X-Ratelimit-Reset"] = r.headerLine(strconv.FormatInt(reset, 10))
	h["Ratelimit-Policy"] = r.headerLine(`"` + policy + `";q=` + limit + `;w=60`)
	h["Ratelimit"] = r.headerLine(`"` + policy + `";r=` + remaining + `;t=` + strconv.FormatInt(t, 10))
	return t
}

// seconds returns whole seconds, rounded up, at least 1.
func seconds(d time.Duration) int64 { return int64(ratelimit.Seconds(d)) }
