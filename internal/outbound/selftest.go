package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
)

// ErrNoCredentials is the result of [Service.TestCredentials] for a connection that has none of its
// own to test.
var ErrNoCredentials = errors.New("the connection has no credentials")

const (
	testTimeout  = 15 * time.Second
	maxTestCalls = 3
)

// TestCredentials tests a connection's own credentials by a harmless call of the provider's API, or a
// sign-in at its mail server. The error is the reason why they do not work, as a sentence without
// its full stop, or [ErrNoCredentials]. It contains neither address nor credentials.
func (s *Service) TestCredentials(ctx context.Context, c *connection.Connection) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	a, credentials := s.adapters[c.Channel], c.Credentials()
	if _, ok := a.(channel.MailComposer); ok {
		server, err := s.openMail(c, credentials)
		if err != nil {
			return err
		}
		if server == nil {
			return ErrNoCredentials
		}
		if login, ok := server.(interface{ Check(context.Context) error }); ok {
			return login.Check(ctx)
		}
	}
	if !credentials.HasAPI() {
		return ErrNoCredentials
	}
	next := func(answers []channel.Response) (*channel.APIRequest, error) { return nil, ErrNoCredentials }
	switch t := a.(type) {
	case channel.CredentialTester:
		next = func(answers []channel.Response) (*channel.APIRequest, error) {
			return t.TestCall(c.Address, credentials, answers, s.db.Now())
		}
	case channel.ProviderProof:
		if credentials.BaseURL() == "" { // the address is part of the API's
			credentials = channel.ConnectionCredentials(t.ProofAPI(c.Address), c.CredentialValues())
		}
		next = func(answers []channel.Response) (*channel.APIRequest, error) {
			return t.ProofCall(c.Address, credentials, answers)
		}
	}
	var answers []channel.Response
	for {
		call, err := next(answers)
		if err != nil || call == nil {
			return err
		}
		if len(answers) == maxTestCalls {
			return errors.New("the test has too many calls")
		}
		if signer, ok := a.(channel.CallSigner); ok {
			signer.SignCall(call, c.Secrets(s.db.Now()), s.db.Now())
		}
		answer, _, err := s.call(ctx, *call, nil)
		if err != nil {
			return fmt.Errorf("the provider cannot be reached: %w", err)
		}
		answers = append(answers, answer)
	}
}
