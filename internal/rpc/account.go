package rpc

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Authorize is the [Config.Authorize] for [browser.SessionAuth.Authenticate], with the
// roles of package account.
func Authorize(ctx context.Context, need Auth) error {
	id, ok := account.FromContext(ctx)
	switch {
	case !ok:
		return problem.New(problem.Unauthorized, "you are not signed in")
	case need > Restricted && id.NeedsSecondFactor:
		return id.Restricted()
	case need >= Member && id.OrganizationID == "":
		return problem.New(problem.Forbidden, "you belong to no organization yet; call auth.completeSignup first")
	case need == Admin && id.Role != account.Admin:
		return problem.New(problem.Forbidden, "only admins may do this")
	}
	return nil
}

// AccountProcedures returns the procedures of helpdesk.md 4.2, and auth.deleteAccount.
func AccountProcedures(accounts *account.Service, gate *browser.SessionAuth) []Procedure {
	a := accountProcedures{accounts, gate}
	return []Procedure{
		Mutation("auth.signInWithEmail", Public, a.signInWithEmail),
		Mutation("auth.signInWithPassword", Public, a.signInWithPassword),
		Mutation("auth.signInWithProvider", Public, a.signInWithProvider),
		Query("auth.getUser", Session, a.getUser),
		Mutation("auth.signOut", Restricted, a.signOut),
		Mutation("auth.updateProfile", Session, a.updateProfile),
		Proven(SecuredProof, Mutation("auth.setPassword", Session, a.setPassword)),
		Mutation("auth.changePassword", Session, a.changePassword),
		Query("auth.hasPassword", Session, a.hasPassword),
		Mutation("auth.sendPasswordReset", Public, a.sendPasswordReset),
		Mutation("auth.completeSignup", Session, a.completeSignup),
		Proven(AnyProof, Mutation("auth.deleteAccount", Session, a.deleteAccount)),
	}
}

type accountProcedures struct {
	accounts *account.Service
	auth     *browser.SessionAuth
}

type successOutput struct {
	Success bool `json:"success"`
}

// userRecord is the User of helpdesk.md 2.
type userRecord struct {
	ID             string          `json:"id"`
	Email          string          `json:"email"`
	Name           string          `json:"name"`
	AvatarURL      *string         `json:"avatar_url"`
	OrganizationID *string         `json:"organization_id"`
	Role           *account.Role   `json:"role"`
	Preferences    json.RawMessage `json:"preferences"`
	CreatedAt      time.Time       `json:"created_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
}

func newUserRecord(u *account.User) userRecord {
	return userRecord{
		ID: u.ID, Email: u.Email, Name: u.Name, AvatarURL: orNull(u.AvatarURL),
		OrganizationID: orNull(u.OrganizationID), Role: orNull(u.Role), Preferences: u.Preferences,
		CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt,
	}
}

// orNull returns nil, JSON null, for an empty string.
func orNull[S ~string](s S) *S {
	if s == "" {
		return nil
	}
	return &s
}

func (a accountProcedures) signInWithEmail(ctx context.Context, in account.EmailSignIn) (successOutput, error) {
	r := Request(ctx)
	intent, err := a.accounts.SignInWithEmail(ctx, in, browser.Intent(r), a.auth.Client(r))
	if err != nil {
		return successOutput{}, err
	}
	SetCookie(ctx, a.auth.SetIntent(intent))
	return successOutput{true}, nil
}

type passwordSignInOutput struct {
	Success bool `json:"success"`
	User    struct {
		ID        string    `json:"id"`
		Email     string    `json:"email"`
		CreatedAt time.Time `json:"created_at"`
	} `json:"user"`
}

func (a accountProcedures) signInWithPassword(ctx context.Context, in account.PasswordSignIn) (passwordSignInOutput, error) {
	var out passwordSignInOutput
	s, err := a.accounts.SignInWithPassword(ctx, in, a.auth.Client(Request(ctx)))
	if err != nil {
		return out, err
	}
	if s.Pending != "" {
		SetCookie(ctx, a.auth.SetPending(s.Pending))
		return out, &problem.Error{
			Kind: problem.Unauthorized, Code: account.SecondFactorRequired,
			Message: "a second factor is required; call auth.verifyTotp or auth.verifyRecoveryCode",
		}
	}
	return signedIn(ctx, a.auth, s), nil
}

// signedIn sets the cookies of a session and returns the output.
func signedIn(ctx context.Context, gate *browser.SessionAuth, s account.SignIn) passwordSignInOutput {
	for _, c := range gate.SetSession(s.Tokens) {
		SetCookie(ctx, c)
	}
	out := passwordSignInOutput{Success: true}
	out.User.ID, out.User.Email, out.User.CreatedAt = s.User.ID, s.User.Email, s.User.CreatedAt
	return out
}

type providerSignInOutput struct {
	URL string `json:"url"`
}

func (a accountProcedures) signInWithProvider(ctx context.Context, in account.ProviderSignIn) (providerSignInOutput, error) {
	r := Request(ctx)
	url, intent, err := a.accounts.SignInWithProvider(ctx, in, browser.Intent(r), a.auth.Client(r))
	if err != nil {
		return providerSignInOutput{}, err
	}
	SetCookie(ctx, a.auth.SetIntent(intent))
	return providerSignInOutput{url}, nil
}

func (a accountProcedures) getUser(ctx context.Context, _ None) (userRecord, error) {
	// The caller asks for their own record, which was read with the session.
	id, _ := account.FromContext(ctx)
	return newUserRecord(&id.User), nil
}

func (a accountProcedures) signOut(ctx context.Context, _ None) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	if err := a.accounts.SignOut(ctx, id.SessionID); err != nil {
		return successOutput{}, err
	}
	for _, c := range a.auth.ClearSession() {
		SetCookie(ctx, c)
	}
	return successOutput{true}, nil
}

func (a accountProcedures) updateProfile(ctx context.Context, in account.Profile) (userRecord, error) {
	id, _ := account.FromContext(ctx)
	u, err := a.accounts.UpdateProfile(ctx, id.UserID, in)
	return newUserRecord(&u), err
}

func (a accountProcedures) setPassword(ctx context.Context, in account.FirstPassword) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := a.accounts.SetPassword(ctx, id, in)
	return successOutput{err == nil}, err
}

func (a accountProcedures) changePassword(ctx context.Context, in account.PasswordChange) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := a.accounts.ChangePassword(ctx, id, in)
	return successOutput{err == nil}, err
}

type hasPasswordOutput struct {
	HasPassword bool `json:"hasPassword"`
}

func (a accountProcedures) hasPassword(ctx context.Context, _ None) (hasPasswordOutput, error) {
	id, _ := account.FromContext(ctx)
	has, err := a.accounts.HasPassword(ctx, id.UserID)
	return hasPasswordOutput{has}, err
}

func (a accountProcedures) sendPasswordReset(ctx context.Context, in account.PasswordReset) (successOutput, error) {
	err := a.accounts.SendPasswordReset(ctx, in, a.auth.Client(Request(ctx)))
	return successOutput{err == nil}, err
}

func (a accountProcedures) deleteAccount(ctx context.Context, in account.Deletion) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	if err := a.accounts.DeleteAccount(ctx, id, in); err != nil {
		return successOutput{}, err
	}
	for _, c := range a.auth.ClearSession() {
		SetCookie(ctx, c)
	}
	return successOutput{true}, nil
}

type signupOutput struct {
	User struct {
		ID             string       `json:"id"`
		Email          string       `json:"email"`
		Name           string       `json:"name"`
		OrganizationID string       `json:"organization_id"`
		Role           account.Role `json:"role"`
	} `json:"user"`
	Organization struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Slug string `json:"slug"`
	} `json:"organization"`
	RequiresPayment bool   `json:"requiresPayment"`
	CheckoutURL     string `json:"checkoutUrl,omitempty"`
}

func (a accountProcedures) completeSignup(ctx context.Context, in account.SignupRequest) (signupOutput, error) {
	var out signupOutput
	id, _ := account.FromContext(ctx)
	s, err := a.accounts.CompleteSignup(ctx, id.UserID, in)
	if err != nil {
		return out, err
	}
	u, o := s.User, s.Organization
	out.User.ID, out.User.Email, out.User.Name, out.User.OrganizationID, out.User.Role = u.ID, u.Email, u.Name, u.OrganizationID, u.Role
	out.Organization.ID, out.Organization.Name, out.Organization.Slug = o.ID, o.Name, o.Slug
	out.RequiresPayment, out.CheckoutURL = s.CheckoutURL != "", s.CheckoutURL
	return out, nil
}
