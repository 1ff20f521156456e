package rpc

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/google/uuid"
)

// MemberProcedures returns the procedures for the caller's sessions and for members,
// invitations and sign-in policy of the caller's organization. They are not in the
// contract; the names follow its style.
func MemberProcedures(accounts *account.Service, gate *browser.SessionAuth) []Procedure {
	p := memberProcedures{accounts, gate}
	return []Procedure{
		Query("sessions.list", Session, p.listSessions),
		Mutation("sessions.end", Session, p.endSession),
		Mutation("sessions.endAll", Session, p.endSessions),
		Query("members.list", Member, p.listMembers),
		Proven(AnyProof, Mutation("members.update", Admin, p.updateMember)),
		Proven(AnyProof, Mutation("members.remove", Admin, p.removeMember)),
		Query("organization.getSignIn", Member, p.signInPolicy),
		Proven(AnyProof, Mutation("organization.setSignIn", Admin, p.setSignInPolicy)),
		Proven(AnyProof, Mutation("organization.requireSecondFactor", Admin, p.requireSecondFactor)),
		Query("invitations.list", Admin, p.listInvitations),
		Proven(AnyProof, Mutation("invitations.create", Admin, p.createInvitation)),
		Proven(AnyProof, Mutation("invitations.revoke", Admin, p.revokeInvitation)),
	}
}

type memberProcedures struct {
	accounts *account.Service
	auth     *browser.SessionAuth
}

// recordID is the input of procedures on one record.
type recordID struct {
	ID string `json:"id"`
}

// Check implements [problem.Checker].
func (in recordID) Check(v *problem.Validation) {
	checkUUID(v, "id", in.ID)
}

// checkUUID records an issue unless id is a UUID in canonical form.
func checkUUID(v *problem.Validation, path, id string) {
	if uuid.Validate(id) != nil || len(id) != 36 {
		v.Add(path, "must be a UUID")
	}
}

type sessionRecord struct {
	ID         string    `json:"id"`
	Device     *string   `json:"device"`
	IP         *string   `json:"ip"`
	UserAgent  *string   `json:"userAgent"`
	Current    bool      `json:"current"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"lastUsedAt"`
}

func (p memberProcedures) listSessions(ctx context.Context, _ None) ([]sessionRecord, error) {
	id, _ := account.FromContext(ctx)
	list, err := p.accounts.Sessions(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make([]sessionRecord, len(list))
	for i, s := range list {
		out[i] = sessionRecord{
			ID: s.ID, Device: orNull(s.Device), IP: orNull(s.IP), UserAgent: orNull(s.UserAgent),
			Current: s.Current, CreatedAt: s.CreatedAt, LastUsedAt: s.UsedAt,
		}
	}
	return out, nil
}

func (p memberProcedures) endSession(ctx context.Context, in recordID) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	if err := p.accounts.EndSession(ctx, id.UserID, in.ID); err != nil {
		return successOutput{}, err
	}
	if in.ID == id.SessionID {
		p.clearCookies(ctx)
	}
	return successOutput{true}, nil
}

type endSessionsInput struct {
	IncludeCurrent bool `json:"includeCurrent,omitempty"`
}

type endSessionsOutput struct {
	Success bool  `json:"success"`
	Ended   int64 `json:"ended"`
}

func (p memberProcedures) endSessions(ctx context.Context, in endSessionsInput) (endSessionsOutput, error) {
	id, _ := account.FromContext(ctx)
	except := id.SessionID
	if in.IncludeCurrent {
		except = ""
	}
	n, err := p.accounts.EndSessions(ctx, id.UserID, except)
	if err != nil {
		return endSessionsOutput{}, err
	}
	if in.IncludeCurrent {
		p.clearCookies(ctx)
	}
	return endSessionsOutput{true, n}, nil
}

func (p memberProcedures) clearCookies(ctx context.Context) {
	for _, c := range p.auth.ClearSession() {
		SetCookie(ctx, c)
	}
}

// memberRecord is a member as other members see them, without preferences.
type memberRecord struct {
	ID        string       `json:"id"`
	Email     string       `json:"email"`
	Name      string       `json:"name"`
	AvatarURL *string      `json:"avatar_url"`
	Role      account.Role `json:"role"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
}

func newMemberRecord(u account.User) memberRecord {
	return memberRecord{u.ID, u.Email, u.Name, orNull(u.AvatarURL), u.Role, u.CreatedAt, u.UpdatedAt}
}

func (p memberProcedures) listMembers(ctx context.Context, _ None) ([]memberRecord, error) {
	list, err := p.accounts.Members(ctx, organization(ctx))
	if err != nil {
		return nil, err
	}
	out := make([]memberRecord, len(list))
	for i, u := range list {
		out[i] = newMemberRecord(u)
	}
	return out, nil
}

type updateMember struct {
	recordID
	Role account.Role `json:"role"`
}

// Check implements [problem.Checker].
func (in updateMember) Check(v *problem.Validation) {
	in.recordID.Check(v)
	in.Role.Check(v, "role")
}

func (p memberProcedures) updateMember(ctx context.Context, in updateMember) (memberRecord, error) {
	u, err := p.accounts.ChangeRole(ctx, organization(ctx), in.ID, in.Role)
	return newMemberRecord(u), err
}

type removeMember struct {
	recordID
	// RevokeCredentials also revokes the API keys and disables the webhooks that
	// the member created.
	RevokeCredentials bool `json:"revokeCredentials,omitempty"`
}

func (p memberProcedures) removeMember(ctx context.Context, in removeMember) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	remove := p.accounts.RemoveMember
	if in.RevokeCredentials {
		remove = p.accounts.RemoveMemberAndCredentials
	}
	if err := remove(ctx, id.OrganizationID, in.ID); err != nil {
		return successOutput{}, err
	}
	if in.ID == id.UserID {
		p.clearCookies(ctx)
	}
	return successOutput{true}, nil
}

type invitationRecord struct {
	ID        string       `json:"id"`
	Email     string       `json:"email"`
	Role      account.Role `json:"role"`
	InvitedBy string       `json:"invitedBy"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt time.Time    `json:"expiresAt"`
}

func newInvitationRecord(i account.Invitation) invitationRecord {
	return invitationRecord{i.ID, i.Email, i.Role, i.InvitedBy, i.CreatedAt, i.ExpiresAt}
}

func (p memberProcedures) listInvitations(ctx context.Context, _ None) ([]invitationRecord, error) {
	list, err := p.accounts.Invitations(ctx, organization(ctx))
	if err != nil {
		return nil, err
	}
	out := make([]invitationRecord, len(list))
	for i, e := range list {
		out[i] = newInvitationRecord(e)
	}
	return out, nil
}

func (p memberProcedures) createInvitation(ctx context.Context, in account.NewInvitation) (invitationRecord, error) {
	id, _ := account.FromContext(ctx)
	i, err := p.accounts.Invite(ctx, id, in)
	return newInvitationRecord(i), err
}

func (p memberProcedures) revokeInvitation(ctx context.Context, in recordID) (successOutput, error) {
	err := p.accounts.RevokeInvitation(ctx, organization(ctx), in.ID)
	return successOutput{err == nil}, err
}

type signInPolicyRecord struct {
	ProviderOnly string `json:"providerOnly"` // off, all, or domain:example.com,…
	HasProvider  bool   `json:"hasProvider"`
	// SecondFactorRequired limits members' sessions of one factor to adding or proving
	// another.
	SecondFactorRequired bool `json:"secondFactorRequired"`
}

func (p memberProcedures) newSignInPolicy(o account.Organization) signInPolicyRecord {
	return signInPolicyRecord{o.ProviderOnly.String(), p.accounts.HasProvider(), o.SecondFactorRequired}
}

func (p memberProcedures) signInPolicy(ctx context.Context, _ None) (signInPolicyRecord, error) {
	o, err := p.accounts.Organization(ctx, organization(ctx))
	return p.newSignInPolicy(o), err
}

type setSignInPolicy struct {
	ProviderOnly string `json:"providerOnly"`
}

// Check implements [problem.Checker].
func (in setSignInPolicy) Check(v *problem.Validation) {
	if _, err := account.ParseProviderPolicy(in.ProviderOnly); err != nil {
		v.Add("providerOnly", "must be off, all or domain:example.com,…")
	}
}

func (p memberProcedures) setSignInPolicy(ctx context.Context, in setSignInPolicy) (signInPolicyRecord, error) {
	policy, err := account.ParseProviderPolicy(in.ProviderOnly)
	if err != nil {
		return signInPolicyRecord{}, err // Check has validated it
	}
	id, _ := account.FromContext(ctx)
	o, err := p.accounts.RequireProvider(ctx, id, policy)
	return p.newSignInPolicy(o), err
}

type requireSecondFactor struct {
	Required bool `json:"required"`
}

func (p memberProcedures) requireSecondFactor(ctx context.Context, in requireSecondFactor) (signInPolicyRecord, error) {
	id, _ := account.FromContext(ctx)
	o, err := p.accounts.RequireSecondFactor(ctx, id, in.Required)
	return p.newSignInPolicy(o), err
}
