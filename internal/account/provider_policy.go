package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// ProviderRequired is the [problem.Error.Code] of a sign-in refused because the
// organization admits the identity provider only.
const ProviderRequired = "provider_required"

// ProviderPolicy decides which members of an organization must sign in by the identity
// provider. Their sessions are valid only if a provider sign-in opened them. The policy
// is read with every request, so changes of policy and membership take effect at once.
//
// Emergency access: a link of the operator, [Service.OperatorLink], and for admins a
// password with a recovery code.
//
// The zero value covers nobody. Values come from [ParseProviderPolicy].
type ProviderPolicy string

// The policies other than domain lists.
const (
	ProviderOptional    ProviderPolicy = ""
	ProviderForEveryone ProviderPolicy = "all"
)

// maxPolicyDomains is the maximum number of domains of a policy.
const maxPolicyDomains = 50

// ParseProviderPolicy parses "off", "all" or "domain:example.com,example.org". Domains
// compare as in [ParseSignUpPolicy].
func ParseProviderPolicy(text string) (ProviderPolicy, error) {
	switch text = strings.TrimSpace(text); text {
	case "off":
		return ProviderOptional, nil
	case "all":
		return ProviderForEveryone, nil
	}
	list, ok := strings.CutPrefix(text, domainPolicy)
	if !ok {
		return "", fmt.Errorf("%q is not off, all or domain:example.com,…", text)
	}
	var domains []string
	for name := range strings.SplitSeq(list, ",") {
		domain, err := parseDomain(strings.TrimSpace(name))
		if err != nil {
			return "", err
		}
		domains = append(domains, domain)
	}
	if slices.Sort(domains); len(domains) > maxPolicyDomains {
		return "", fmt.Errorf("%d domains are too many: at most %d are allowed", len(domains), maxPolicyDomains)
	}
	return ProviderPolicy(domainPolicy + strings.Join(slices.Compact(domains), ",")), nil
}

// String returns the text that [ParseProviderPolicy] parses.
func (p ProviderPolicy) String() string {
	if p == ProviderOptional {
		return "off"
	}
	return string(p)
}

// Domains returns the domains of a domain policy, else none.
func (p ProviderPolicy) Domains() []string {
	list, ok := strings.CutPrefix(string(p), domainPolicy)
	if !ok {
		return nil
	}
	return strings.Split(list, ",")
}

// covers reports whether the policy applies to a member's address, in the form of
// [emailKey].
func (p ProviderPolicy) covers(key string) bool {
	return p == ProviderForEveryone || slices.Contains(p.Domains(), key[strings.LastIndexByte(key, '@')+1:])
}

// providerRule is the policy's effect on one user.
type providerRule struct {
	required bool // the organization admits the identity provider only
	recovers bool // the user is an admin with recovery codes
}

// providerRule returns the rule for a user.
func (s *Service) providerRule(ctx context.Context, q db.Querier, userID string) (providerRule, error) {
	var key string
	var policy ProviderPolicy
	var r providerRule
	err := q.QueryRow(ctx, `SELECT u.email_key, coalesce(o.provider_only, ''),
			u.role = $2 AND EXISTS (SELECT 1 FROM recovery_codes WHERE user_id = u.id AND used_at IS NULL)
		FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id = $1`, userID, string(Admin)).
		Scan(&key, (*string)(&policy), &r.recovers)
	if errors.Is(err, db.ErrNoRows) { // no organization
		return providerRule{}, nil
	}
	if err != nil {
		return providerRule{}, fmt.Errorf("find the provider policy: %w", err)
	}
	r.required = policy.covers(key)
	return r, nil
}

func errProviderRequired() error {
	return &problem.Error{
		Kind: problem.Forbidden, Code: ProviderRequired,
		Message: "Your organization signs in with its identity provider only. Choose the identity provider where you sign in.",
	}
}

func isProviderRequired(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Code == ProviderRequired
}

// providerMail informs a member that another way to sign in is refused.
func (s *Service) providerMail(subject string) mail.Notification {
	return mail.Notification{
		Subject: subject,
		Before:  []string{"Your organization signs in to Kickstand with its identity provider only. Choose the identity provider where you sign in."},
		Action:  mail.Action{Label: "Go to Kickstand", URL: s.redirects.base + "/sign-in"},
		After:   []string{"If you did not request this mail, ignore it."},
	}
}

// RequireProvider sets the provider policy of by's organization; by is an admin. It is a
// [problem.Precondition] if there is no provider or if the policy would end by's own
// session.
func (s *Service) RequireProvider(ctx context.Context, by Identity, p ProviderPolicy) (Organization, error) {
	switch {
	case p != ProviderOptional && s.provider == nil:
		return Organization{}, errNoProvider()
	case p.covers(emailKey(by.User.Email)) && !by.ByProvider:
		return Organization{}, problem.New(problem.Precondition, "sign in with the identity provider yourself first: this session would end")
	}
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		u, err := lockMember(ctx, tx, by.OrganizationID, by.UserID)
		if err != nil {
			return err
		}
		if u.Role != Admin {
			return problem.New(problem.Forbidden, "only admins may do this")
		}
		o, err = s.setProviderOnly(ctx, tx, by.OrganizationID, p)
		return err
	})
	return o, err
}

// RequireProviderByOperator sets the provider policy of an organization, without regard
// to sessions. An unknown slug is [problem.NotFound].
func (s *Service) RequireProviderByOperator(ctx context.Context, slug string, p ProviderPolicy) (Organization, error) {
	if p != ProviderOptional && s.provider == nil {
		return Organization{}, errNoProvider()
	}
	var o Organization
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		found, err := organizationBySlug(ctx, tx, slug)
		if err != nil {
			return err
		}
		o, err = s.setProviderOnly(ctx, tx, found.ID, p)
		return err
	})
	return o, err
}

func (s *Service) setProviderOnly(ctx context.Context, tx *db.Tx, organizationID string, p ProviderPolicy) (Organization, error) {
	o, err := lockOrganization(ctx, tx, organizationID)
	if err != nil || o.ProviderOnly == p {
		return o, err
	}
	before := o.ProviderOnly
	o.ProviderOnly, o.UpdatedAt = p, tx.Now
	if err := tx.Queue(ctx, "UPDATE organizations SET provider_only = $2, updated_at = $3 WHERE id = $1",
		o.ID, db.Text(string(p)), o.UpdatedAt.UnixMicro()); err != nil {
		return Organization{}, fmt.Errorf("set provider policy: %w", err)
	}
	s.notifyAfterCommit(tx, o.ID, "organization")
	return o, s.audit.RecordTx(ctx, tx, audit.Entry{
		OrganizationID: o.ID, Action: "organization.updated", Target: audit.Target{Type: "organization", ID: o.ID, Name: o.Name},
		Changes: map[string]audit.Change{"provider_only": {From: before.String(), To: p.String()}},
	})
}

// OperatorLink returns the URL of a sign-in link for a user, which works once, for
// [LinkLife], even under a provider policy. Its holder signs in as the user. An unknown
// address is [problem.NotFound].
func (s *Service) OperatorLink(ctx context.Context, email string) (string, error) {
	u, err := s.UserByEmail(ctx, email)
	if err != nil {
		return "", err
	}
	t := newToken()
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, `INSERT INTO login_links (digest, intent, email, email_key, redirect, created_at, owned, by_operator)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			t.digest(), newToken().digest(), u.Email, emailKey(u.Email), s.redirects.home(), tx.Now.UnixMicro(), false, true); err != nil {
			return fmt.Errorf("insert link: %w", err)
		}
		return s.audit.RecordTx(ctx, tx, audit.Entry{
			OrganizationID: u.OrganizationID, Action: "sign_in_link.created", Target: audit.Target{Type: "user", ID: u.ID, Name: u.Email},
		})
	})
	if err != nil {
		return "", err
	}
	return s.tokenURL(CallbackPath, t), nil
}
