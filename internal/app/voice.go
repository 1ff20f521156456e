package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

func openVoice(c Config) (*voice.Adapter, error) {
	api, err := netguard.ParseAPIURL(c.APIURLs["voice"], voice.DefaultAPIURL)
	if err != nil {
		return nil, fmt.Errorf("voice-api-url: %w", err)
	}
	return voice.New(voice.Config{APIURL: api.String(), MediaHosts: []string{api.Host}}), nil
}

// openCalls returns the service for calls; inbound places their events.
func (a *App) openCalls() *call.Service {
	return call.Open(call.Config{
		DB: a.DB, Queue: a.queue,
		Settings: func(ctx context.Context, connectionID string) (map[string]string, error) {
			if connectionID == "" {
				return nil, nil
			}
			c, err := a.Connections.ByID(ctx, connectionID)
			if c == nil {
				return nil, err
			}
			return c.Settings, err
		},
		Merge: func(ctx context.Context, tx *db.Tx, organizationID, ticketID, into string) error {
			_, err := a.Desk.MergeTx(ctx, tx, organizationID, ticketID, into)
			if _, ok := errors.AsType[*problem.Error](err); ok {
				return nil // one of the tickets was merged or deleted concurrently
			}
			return err
		},
	})
}
