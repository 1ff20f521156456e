package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/call"
	"github.com/kickstand-dev/kickstand/internal/channel/voice"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/shop"
)

func openVoice(c Config) (*voice.Adapter, error) {
	api, err := netguard.ParseAPIURL(c.APIURLs["voice"], voice.DefaultAPIURL)
	if err != nil {
		return nil, fmt.Errorf("voice-api-url: %w", err)
	}
	return voice.New(voice.Config{APIURL: api.String(), MediaHosts: []string{api.Host}}), nil
}

// openCalls returns what keeps calls; inbound is to place what comes of them.
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
			_, err := a.Desk.Merge(ctx, tx, organizationID, ticketID, into)
			if _, ok := errors.AsType[*problem.Error](err); ok {
				return nil // somebody has merged or deleted one of them: their word counts
			}
			return err
		},
	})
}

// callKeeper has package shop take what is a person's out of the calls.
type callKeeper struct{ app *App }

var _ shop.Keeper = callKeeper{}

// Forget implements [shop.Keeper].
func (k callKeeper) Forget(ctx context.Context, p *shop.Person) error {
	var numbers []string
	for _, c := range p.Contacts {
		if strings.HasPrefix(c, "+") {
			numbers = append(numbers, c)
		}
	}
	return k.app.DB.Write(ctx, func(tx *db.Tx) error {
		return k.app.Calls.Redact(ctx, tx, p.OrganizationID, p.TicketIDs, numbers)
	})
}

// ForgetPlace implements [shop.Keeper].
func (k callKeeper) ForgetPlace(ctx context.Context, organizationID, connectionID string) error {
	return k.app.DB.Write(ctx, func(tx *db.Tx) error {
		return k.app.Calls.DropConnection(ctx, tx, organizationID, connectionID)
	})
}
