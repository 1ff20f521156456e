package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// SignUpPolicy decides which addresses can create an account and an organization. It
// applies to new users only: existing users sign in, invitations can be accepted, and the
// operator creates users under every policy. The zero value is [OpenSignUp]. A policy is
// immutable.
type SignUpPolicy struct {
	invited bool
	domains []string // in the form of [emailKey]; none: any
}

// OpenSignUp admits every address, InvitedSignUp addresses with a pending invitation.
var (
	OpenSignUp    = SignUpPolicy{}
	InvitedSignUp = SignUpPolicy{invited: true}
)

const domainPolicy = "domain:"

// ParseSignUpPolicy parses "open", "invited" or "domain:example.com,example.org". The
// last admits addresses with exactly these domains: a subdomain is another domain.
// Unicode and ASCII forms of an international domain (RFC 5890) are equal.
func ParseSignUpPolicy(text string) (SignUpPolicy, error) {
	switch text = strings.TrimSpace(text); text {
	case "open":
		return OpenSignUp, nil
	case "invited":
		return InvitedSignUp, nil
	}
	list, ok := strings.CutPrefix(text, domainPolicy)
	if !ok {
		return SignUpPolicy{}, fmt.Errorf("%q is not open, invited or domain:example.com,…", text)
	}
	var p SignUpPolicy
	for name := range strings.SplitSeq(list, ",") {
		domain, err := parseDomain(strings.TrimSpace(name))
		if err != nil {
			return SignUpPolicy{}, err
		}
		p.domains = append(p.domains, domain)
	}
	return p, nil
}

// parseDomain returns a domain in the form of [emailKey].
func parseDomain(name string) (string, error) {
	var v problem.Validation
	checkEmail(&v, "", "x@"+name)
	_, domain, _ := strings.Cut(emailKey("x@"+name), "@")
	if v.Err() != nil || strings.Trim(domain, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || !strings.Contains(domain, ".") {
		return "", fmt.Errorf("%q is not a mail domain such as example.com", name)
	}
	return domain, nil
}

// String returns the text that [ParseSignUpPolicy] parses.
func (p SignUpPolicy) String() string {
	switch {
	case p.invited:
		return "invited"
	case len(p.domains) > 0:
		return domainPolicy + strings.Join(p.domains, ",")
	}
	return "open"
}

// Open reports whether the policy admits every address.
func (p SignUpPolicy) Open() bool { return !p.invited && len(p.domains) == 0 }

// admits reports whether an address may sign up, given whether it has a pending
// invitation.
func (p SignUpPolicy) admits(key string, invited bool) bool {
	switch {
	case p.invited:
		return invited
	case len(p.domains) > 0:
		return slices.Contains(p.domains, key[strings.LastIndexByte(key, '@')+1:])
	}
	return true
}

// refusal returns the error for the proven owner of an address that p refuses.
func (p SignUpPolicy) refusal() error {
	reason := "Sign-up here is by invitation only."
	if len(p.domains) > 0 {
		reason = "Sign-up here is limited to certain e-mail domains."
	}
	return problem.New(problem.Forbidden, "%s %s", reason, invitationHint)
}

const invitationHint = "Ask an admin of your organization to invite this address. " +
	"If your organization is not here yet, ask the operator of this server to create it."

// SignUp returns the sign-up policy.
func (s *Service) SignUp() SignUpPolicy { return *s.signUp.Load() }

// SetSignUp changes the sign-up policy. It applies to every link that is followed from now on.
func (s *Service) SetSignUp(p SignUpPolicy) { s.signUp.Store(&p) }

// MayCompleteSignup returns nil if a user without an organization may create one, else
// the [problem.Forbidden] of [Service.CompleteSignup].
func (s *Service) MayCompleteSignup(ctx context.Context, userID string) error {
	u, err := s.User(ctx, userID)
	if err != nil {
		return err
	}
	return s.checkMayCreateOrganization(ctx, s.db, u, s.db.Now())
}

// checkMayCreateOrganization refuses a user if the policy does not admit their address: a
// former member, or a user from the time of another policy.
func (s *Service) checkMayCreateOrganization(ctx context.Context, q db.Querier, u User, now time.Time) error {
	key := emailKey(u.Email)
	invited, err := isInvited(ctx, q, key, now)
	if err != nil {
		return err
	}
	if !s.SignUp().admits(key, invited) {
		return s.refuseSignUp(ctx)
	}
	return nil
}

// isInvited reports whether an address has a pending invitation.
func isInvited(ctx context.Context, q db.Querier, key string, now time.Time) (invited bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM invitations WHERE email_key = $1 AND created_at > $2)",
		key, now.Add(-InvitationLife).UnixMicro()).Scan(&invited)
	if err != nil {
		return false, fmt.Errorf("find invitation: %w", err)
	}
	return invited, nil
}

// useInvitation deletes one of an address's pending invitations: under [InvitedSignUp]
// each admits one sign-up. The caller has locked the user.
func (s *Service) useInvitation(ctx context.Context, tx *db.Tx, key string) error {
	var organizationID string
	err := tx.QueryRow(ctx, `DELETE FROM invitations WHERE id = (
			SELECT id FROM invitations WHERE email_key = $1 AND created_at > $2 ORDER BY id LIMIT 1)
		RETURNING organization_id`, key, tx.Now.Add(-InvitationLife).UnixMicro()).Scan(&organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return s.refuseSignUp(ctx) // revoked or accepted concurrently
	}
	if err != nil {
		return fmt.Errorf("use up invitation: %w", err)
	}
	s.notifyAfterCommit(tx, organizationID, "member")
	return nil
}

// provenUser returns the user with a proven address. A new user is created if the policy
// admits the address, with name and avatar, and is a [problem.Forbidden] otherwise.
func (s *Service) provenUser(ctx context.Context, tx *db.Tx, email, name, avatarURL string) (User, error) {
	key := emailKey(email)
	u, err := db.One(ctx, tx, scanUser, "SELECT "+userColumns+" FROM users u WHERE u.email_key = $1", key)
	if err == nil {
		return u, nil
	}
	if !errors.Is(err, db.ErrNoRows) {
		return User{}, fmt.Errorf("find user: %w", err)
	}
	invited, err := isInvited(ctx, tx, key, tx.Now)
	if err != nil {
		return User{}, err
	}
	if !s.SignUp().admits(key, invited) {
		return User{}, s.refuseSignUp(ctx)
	}
	return findOrCreate(ctx, tx, email, name, avatarURL)
}
