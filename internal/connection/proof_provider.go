package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

const (
	maxProofCalls   = 3
	proofTimeout    = 15 * time.Second // per call
	maxProofAnswer  = 1 << 20          // bytes
	errProofTrouble = "the provider could not be reached; try again in a minute"
)

// proveByProvider asks the provider's API for the owner of the connection's own token. It calls
// the operator's address of the API or the provider's own, never one from the connection's
// credentials.
func (s *Service) proveByProvider(ctx context.Context, c Connection) (Connection, error) {
	p, ok := s.adapters[c.Channel].(channel.ProviderProof)
	if !ok {
		return c, fmt.Errorf("channel %s has no proof by its provider", c.Channel)
	}
	if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.countAttempt(ctx, tx, lookupLimits(&c)) }); err != nil {
		return c, err
	}
	api := p.ProofAPI(c.Address)
	values := maps.Clone(c.credentials)
	for _, d := range api.Credentials {
		if d.Kind == channel.KindAPIURL {
			delete(values, d.Name)
		}
	}
	credentials := channel.ConnectionCredentials(api, values)
	var answers []channel.Response
	for {
		call, err := p.ProofCall(c.Address, credentials, answers)
		if err != nil {
			return c, problem.New(problem.Precondition, "this address is not proven: %v", err)
		}
		if call == nil {
			break
		}
		if len(answers) == maxProofCalls {
			return c, fmt.Errorf("channel %s exceeded the limit of provider calls", c.Channel)
		}
		a, err := s.callProvider(ctx, call)
		if err != nil {
			return c, problem.New(problem.Unavailable, errProofTrouble).Because(err)
		}
		answers = append(answers, a)
	}
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		now, err := s.proveByID(ctx, tx, c.ID, evidence{method: ByProvider})
		if err == nil {
			c = now
		}
		return err
	})
	return c, contestedProblem(err)
}

// callProvider makes a call. Errors contain neither address nor credentials.
func (s *Service) callProvider(ctx context.Context, call *channel.APIRequest) (channel.Response, error) {
	var a channel.Response
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	req, err := call.HTTPRequest(ctx)
	if err != nil {
		return a, err
	}
	resp, err := s.proofs.HTTP.RoundTrip(req) // not an http.Client, which would follow redirects
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return a, fmt.Errorf("the provider answered %s", resp.Status)
	}
	a = channel.Response{Status: resp.StatusCode, Header: resp.Header}
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxProofAnswer))
	return a, err
}
