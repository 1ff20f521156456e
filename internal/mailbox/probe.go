package mailbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// probeTime bounds a probe.
const probeTime = 40 * time.Second

// Probe is the result of [Service.Probe].
type Probe struct {
	Folders []ProbedFolder `json:"folders"` // empty: mails are not collected
	Sends   bool           `json:"sends"`   // the SMTP server accepts the login
}

// ProbedFolder is a folder to be read.
type ProbedFolder struct {
	Name  string `json:"name"`
	Mails int    `json:"mails"`
}

// Probe signs in at the servers of a connection that is not stored yet, and looks for its folders.
// It adds the servers of its domain if the connection names none. With a provider of tokens it only
// checks the configuration, since somebody has to sign in there first. Errors: a [problem.Invalid] of
// the field to correct, with its remedy; RateLimited.
func (s *Service) Probe(ctx context.Context, n *connection.New) (p Probe, err error) {
	if err := s.limitProbes(n.OrganizationID); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	address := email.Canonical(n.Address)
	if address == "" {
		return p, invalid("address", "must be a mail address such as support@example.com")
	}
	if err := s.discover(ctx, n, address); err != nil {
		return p, err
	}
	var v problem.Validation
	new(email.Mailbox).CheckConnection(&v, address, n.Credentials, n.Settings)
	if err := v.Err(); err != nil {
		return p, err
	}
	a, err := email.ParseAccount(address, n.Settings, n.Credentials)
	if err != nil {
		return p, err
	}
	if err := s.checkProvider(a.Provider); err != nil || a.Provider != "" {
		return p, err // there is no token yet
	}
	if a.IMAP.Host != "" {
		if p.Folders, err = s.probeFolders(ctx, &a); err != nil {
			return p, err
		}
	}
	if a.SMTP.Host == "" {
		return p, nil
	}
	server, err := s.sender("", &a, n.Credentials[email.CredentialServer])
	if err != nil {
		return p, invalid("credentials."+email.CredentialServer, "%s", err)
	}
	if err := server.Check(ctx); err != nil {
		return p, sendProblem(&a, err)
	}
	p.Sends = true
	return p, nil
}

// ErrNotRead is the result of [Service.Test] for a connection that only sends.
var ErrNotRead = errors.New("the mailbox is not read")

// Test signs in at the IMAP server of a connection and looks for its folders. The error is the reason
// why its mails cannot be collected, without credentials, or [ErrNotRead].
func (s *Service) Test(ctx context.Context, c *connection.Connection) error {
	if err := s.limitProbes(c.OrganizationID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	a, err := email.ParseAccount(c.Address, c.Settings, c.CredentialValues())
	if err != nil {
		return err
	}
	if a.IMAP.Host == "" {
		return ErrNotRead
	}
	in, err := s.connect(ctx, c.ID, &a)
	if err != nil {
		return err
	}
	defer in.close()
	for _, name := range a.Folders {
		if _, ok, err := in.choose(ctx, name); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%s is no folder of the mailbox", name)
		}
	}
	return nil
}

// An organization can probe maxProbes times in probeWindow, since it names the servers.
const (
	maxProbes   = 20
	probeWindow = 10 * time.Minute
)

func (s *Service) limitProbes(organizationID string) error {
	now := s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.probes, func(_ string, at []time.Time) bool { return now.Sub(at[len(at)-1]) >= probeWindow })
	recent := slices.DeleteFunc(s.probes[organizationID], func(at time.Time) bool { return now.Sub(at) >= probeWindow })
	if len(recent) >= maxProbes {
		p := problem.New(problem.RateLimited, "too many attempts to connect a mailbox: try again later")
		p.RetryAfter = probeWindow - now.Sub(recent[0])
		return p
	}
	s.probes[organizationID] = append(recent, now)
	return nil
}

func invalid(path, format string, args ...any) error {
	var v problem.Validation
	v.Add(path, format, args...)
	return v.Err()
}

// probeFolders looks for the folders of an account.
func (s *Service) probeFolders(ctx context.Context, a *email.Account) (list []ProbedFolder, err error) {
	c, err := s.open(ctx, a, "")
	if err != nil {
		return nil, troubleProblem(ctx, err)
	}
	defer c.close()
	for _, name := range a.Folders {
		s, ok, err := c.choose(ctx, name)
		if err != nil {
			return nil, troubleProblem(ctx, err)
		}
		if !ok {
			return nil, invalid("settings."+email.SettingFolders, "has %s, which is no folder of the mailbox", name)
		}
		list = append(list, ProbedFolder{name, int(s.mails)})
	}
	return list, nil
}

// troubleProblem converts a failure to a problem of the field to correct.
func troubleProblem(ctx context.Context, err error) error {
	t, ok := errors.AsType[*Trouble](err)
	if !ok {
		if ctx.Err() != nil {
			return invalid("credentials."+email.CredentialIMAP, "names a server that does not answer in time")
		}
		return err
	}
	path := "credentials." + email.CredentialIMAP
	if t.Kind == TroubleLogin {
		path = "credentials." + email.CredentialPassword
	}
	var v problem.Validation
	v.Add(path, "is not usable: %s", t.Text)
	p, _ := errors.AsType[*problem.Error](v.Err())
	return p.Because(t.Cause)
}

// sendProblem converts a failure of the SMTP server.
func sendProblem(a *email.Account, err error) error {
	e, _ := errors.AsType[*mail.Error](err)
	if e == nil {
		return err
	}
	path, text := "credentials."+email.CredentialServer, ""
	reply := e.Text
	switch e.Op {
	case mail.OpConnect:
		text = fmt.Sprintf("the SMTP server %s cannot be reached. Check its name and its port, usually 465 or 587", a.SMTP.Address())
	case mail.OpTLS:
		text = fmt.Sprintf("no TLS connection to the SMTP server %s", a.SMTP.Address())
	case mail.OpLogin:
		path = "credentials." + email.CredentialPassword
		text = fmt.Sprintf("the SMTP server %s rejects the login of %s", a.SMTP.Host, a.User)
		if e.Err == nil {
			text += ": " + printable(reply) + ". " + loginAdvice(&email.Account{IMAP: a.SMTP, Provider: a.Provider})
		}
	default:
		text = fmt.Sprintf("the SMTP server %s does not answer as expected", a.SMTP.Address())
	}
	if e.Err != nil {
		text += ": " + printable(redact(a, e.Err.Error()))
	}
	return invalid(path, "is not usable: %s", text)
}
