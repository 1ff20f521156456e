package inbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

const confirmTimeout = 10 * time.Second

// confirmation is the result of a [channel.URLConfirmation].
type confirmation struct {
	Outcome string `json:"outcome"`          // visited or refused
	Status  int    `json:"status,omitempty"` // the provider's HTTP status
	Reason  string `json:"reason,omitempty"` // reason of a refusal
}

// confirmURL calls a provider's confirmation URL, over https, at a public address on an allowed
// host, without following redirects. An error means that a retry may succeed. It does not
// repeat the URL, which may hold a token.
func (s *Service) confirmURL(ctx context.Context, v *channel.URLConfirmation) (*confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	refused := func(reason string) (*confirmation, error) {
		return &confirmation{Outcome: "refused", Reason: reason}, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.URL, nil)
	if err != nil {
		return refused("the address is malformed")
	}
	if checkHost(req.URL, v.Hosts) != nil {
		return refused("the address is not one of the provider's, or not plain https")
	}
	req.Header.Set("User-Agent", "Kickstand")
	resp, err := s.media.RoundTrip(req) // not an http.Client, which would follow redirects
	if err != nil {
		if failed, ok := errors.AsType[*mediaError](fetchError(err)); ok && failed.final {
			return refused("the address is not public")
		}
		return nil, fmt.Errorf("confirm URL: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return nil, fmt.Errorf("confirm URL: the provider answered %s", resp.Status)
	case resp.StatusCode/100 != 2:
		return &confirmation{Outcome: "refused", Status: resp.StatusCode, Reason: "the provider answered " + resp.Status}, nil
	}
	return &confirmation{Outcome: "visited", Status: resp.StatusCode}, nil
}
