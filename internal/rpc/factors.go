package rpc

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/account/factor"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// FactorProcedures returns the procedures for the second factor of a sign-in, the fresh
// proof of identity, and the caller's own factors. They are not in the contract; the
// names follow its style. Passkeys are created on the pages: browsers bind them to the
// page's host.
func FactorProcedures(factors *factor.Service, gate *browser.SessionAuth) []Procedure {
	f := factorProcedures{factors, gate}
	return []Procedure{
		Mutation("auth.verifyTotp", Public, f.verifyTOTP),
		Mutation("auth.verifyRecoveryCode", Public, f.verifyRecoveryCode),
		Mutation("auth.proveIdentity", Restricted, f.prove),
		Mutation("auth.mailProofCode", Restricted, f.mailCode),
		Query("auth.getFactors", Restricted, f.state),
		Mutation("auth.beginTotp", Restricted, f.beginTOTP),
		Proven(AnyProof, Mutation("auth.enableTotp", Restricted, f.enableTOTP)),
		Proven(AnyProof, Mutation("auth.disableTotp", Session, f.disableTOTP)),
		Proven(AnyProof, Mutation("auth.createRecoveryCodes", Session, f.createCodes)),
		Proven(AnyProof, Mutation("auth.removePasskey", Session, f.removePasskey)),
		Proven(AnyProof, Mutation("members.resetFactors", Admin, f.resetMember)),
	}
}

// RequireProof returns the [Config.RequireProof] for factors.
func RequireProof(factors *factor.Service) func(context.Context, Proof) error {
	return func(ctx context.Context, need Proof) error {
		id, _ := account.FromContext(ctx)
		err := factors.RequireFresh(id)
		if err == nil || need == AnyProof {
			return err
		}
		st, serr := factors.State(ctx, id.UserID)
		if serr != nil {
			return serr
		}
		if !st.Second() {
			return nil
		}
		return err
	}
}

type factorProcedures struct {
	factors *factor.Service
	auth    *browser.SessionAuth
}

type codeInput struct {
	Code string `json:"code"`
}

// Check implements [problem.Checker].
func (in codeInput) Check(v *problem.Validation) { v.Line("code", in.Code, 1, 64) }

func (f factorProcedures) verifyTOTP(ctx context.Context, in codeInput) (passwordSignInOutput, error) {
	return f.complete(ctx, factor.Answer{Code: in.Code})
}

func (f factorProcedures) verifyRecoveryCode(ctx context.Context, in codeInput) (passwordSignInOutput, error) {
	return f.complete(ctx, factor.Answer{RecoveryCode: in.Code})
}

func (f factorProcedures) complete(ctx context.Context, a factor.Answer) (passwordSignInOutput, error) {
	r := Request(ctx)
	s, err := f.factors.Complete(ctx, browser.Pending(r), a, f.auth.Client(r))
	if err != nil {
		return passwordSignInOutput{}, err
	}
	SetCookie(ctx, f.auth.SetPending(""))
	return signedIn(ctx, f.auth, s), nil
}

// proofInput is a proof of identity; one field is set.
type proofInput struct {
	Password     string `json:"password,omitempty"`
	TOTP         string `json:"totp,omitempty"`
	RecoveryCode string `json:"recoveryCode,omitempty"`
	MailedCode   string `json:"mailedCode,omitempty"`
}

func (f factorProcedures) prove(ctx context.Context, in proofInput) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := f.factors.Prove(ctx, id, factor.Answer{Code: in.TOTP, RecoveryCode: in.RecoveryCode, Password: in.Password, MailedCode: in.MailedCode})
	return successOutput{err == nil}, err
}

func (f factorProcedures) mailCode(ctx context.Context, _ None) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := f.factors.MailCode(ctx, id)
	return successOutput{err == nil}, err
}

type passkeyRecord struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"lastUsedAt"`
}

// factorsRecord lists the caller's factors.
type factorsRecord struct {
	HasPassword   bool            `json:"hasPassword"`
	TOTPSince     *time.Time      `json:"totpSince"` // null: no authenticator app
	Passkeys      []passkeyRecord `json:"passkeys"`
	RecoveryCodes int             `json:"recoveryCodes"` // unused
	Required      bool            `json:"required"`      // the organization requires a second factor that this session lacks
}

func (f factorProcedures) state(ctx context.Context, _ None) (factorsRecord, error) {
	id, _ := account.FromContext(ctx)
	st, err := f.factors.State(ctx, id.UserID)
	if err != nil {
		return factorsRecord{}, err
	}
	out := factorsRecord{
		HasPassword: st.Password, TOTPSince: timeOrNull(st.TOTPSince), Passkeys: make([]passkeyRecord, len(st.Passkeys)),
		RecoveryCodes: st.RecoveryCodes, Required: id.NeedsSecondFactor,
	}
	for i, p := range st.Passkeys {
		out.Passkeys[i] = passkeyRecord{p.ID, p.Name, p.CreatedAt, timeOrNull(p.UsedAt)}
	}
	return out, nil
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type enrolmentOutput struct {
	Secret    string `json:"secret"` // base32, for typing
	URI       string `json:"uri"`    // otpauth://…, for a QR code
	Enrolment string `json:"enrolment"`
}

func (f factorProcedures) beginTOTP(ctx context.Context, _ None) (enrolmentOutput, error) {
	id, _ := account.FromContext(ctx)
	e, err := f.factors.BeginTOTP(id)
	return enrolmentOutput{e.Secret, e.URI, e.Sealed}, err
}

type enableTOTP struct {
	codeInput
	Enrolment string `json:"enrolment"`
}

// Check implements [problem.Checker].
func (in enableTOTP) Check(v *problem.Validation) {
	in.codeInput.Check(v)
	v.Line("enrolment", in.Enrolment, 1, 1024)
}

// codesOutput has recovery codes, which cannot be read again.
type codesOutput struct {
	Success       bool     `json:"success"`
	RecoveryCodes []string `json:"recoveryCodes"`
}

func (f factorProcedures) enableTOTP(ctx context.Context, in enableTOTP) (codesOutput, error) {
	id, _ := account.FromContext(ctx)
	codes, err := f.factors.EnableTOTP(ctx, id, in.Enrolment, in.Code)
	if codes == nil {
		codes = []string{}
	}
	return codesOutput{err == nil, codes}, err
}

func (f factorProcedures) disableTOTP(ctx context.Context, _ None) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := f.factors.DisableTOTP(ctx, id)
	return successOutput{err == nil}, err
}

func (f factorProcedures) createCodes(ctx context.Context, _ None) (codesOutput, error) {
	id, _ := account.FromContext(ctx)
	codes, err := f.factors.NewRecoveryCodes(ctx, id)
	return codesOutput{err == nil, codes}, err
}

func (f factorProcedures) removePasskey(ctx context.Context, in recordID) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := f.factors.RemovePasskey(ctx, id, in.ID)
	return successOutput{err == nil}, err
}

func (f factorProcedures) resetMember(ctx context.Context, in recordID) (successOutput, error) {
	id, _ := account.FromContext(ctx)
	err := f.factors.ResetMember(ctx, id, in.ID)
	return successOutput{err == nil}, err
}
