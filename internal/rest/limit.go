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
		a.fail(w, r, limited("key", t, fmt.Sprintf("The API key has %d requests a minute.", s.Limit)))
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
	f, ok := errors.AsType[*apiError](err)
	if !ok {
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
	if f.code == "wrong_environment" || f.code == "invalid_api_key" {
		if address := a.addressOfKey(r); address != "" {
			f.detail = "The API key works at " + address + " only."
		}
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

// addressOfKey returns the base URL of the API of this deployment that accepts a refused key;
// empty if there is none.
func (a *API) addressOfKey(r *Request) string {
	token, err := bearer(r.http.Header)
	if err != nil {
		return ""
	}
	place, ok := a.c.Keys.APIOf(r.http.Context(), token)
	if !ok || place == (apikey.API{Service: a.c.Service, Environment: a.c.Environment}) {
		return ""
	}
	return a.c.Addresses[place]
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
