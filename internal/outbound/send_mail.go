package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// sendByMail sends the message as a mail.
func (a *attempt) sendByMail(ctx context.Context, c channel.MailComposer) error {
	r, err := a.mailRoute()
	switch submitted := !a.w.SubmittedAt.IsZero(); {
	case submitted && !r.repeats:
		return a.conclude(ctx, outcome{verdict: refusedVerdict(a.mayHaveArrived())})
	case err != nil:
		return a.postpone(ctx, "the connection cannot send: "+err.Error(), disabledWait)
	}
	if blocked, err := a.isBlocked(ctx); blocked || err != nil {
		return err
	}
	var memory int64
	for _, f := range a.w.Files {
		memory += 3 * f.Size // raw, as base64, and in the mail
	}
	memory = min(memory, maxMemory)
	if wait := a.routes.acquire(r.slot, memory); wait > 0 {
		return a.postpone(ctx, "", wait)
	}
	defer a.routes.release(r.slot, memory)
	if missing, err := a.loadFiles(ctx); err != nil {
		return err
	} else if missing != "" {
		return a.conclude(ctx, outcome{verdict: refusedVerdict("the file " + missing + " is gone")})
	}

	if a.w.HTML != "" {
		brand, err := a.brand(ctx, a.connection.OrganizationID)
		if err != nil {
			return fmt.Errorf("brand of the mail: %w", err)
		}
		a.w.HTML += brand.Footer()
	}
	id, failure, err := a.transmitMail(ctx, c, r)
	if err != nil {
		return err
	}
	e, _ := errors.AsType[*mail.Error](failure)
	unclear := e != nil && e.Unclear
	switch {
	case errors.Is(failure, desk.ErrRecalled), isInternal(failure):
		return failure
	case failure != nil && (ctx.Err() != nil || errors.Is(failure, queue.ErrLeaseLost)) && (r.repeats || !unclear):
		return a.interrupted(ctx, unclear)
	}
	o := mailOutcome(id, failure, a.w.Attempts+1, r.repeats)
	if o.pause > 0 {
		a.routes.pause(r.slot, a.scaled(o.pause))
	}
	return a.conclude(ctx, o)
}

// mailRoute is how a mail is submitted.
type mailRoute struct {
	server  mail.TrackedSender
	slot    string // for [routes]
	via     string // recorded with a submission
	repeats bool   // the server recognizes the mail if it is submitted again
}

// mailRoute returns the route of the connection. An error reports invalid credentials.
func (a *attempt) mailRoute() (mailRoute, error) {
	r := mailRoute{server: mail.Current(a.mail), slot: "mail", via: bySMTP}
	own, err := a.openMail(&a.connection, a.connection.Credentials())
	if own != nil {
		r.server, r.slot = own, "mail/"+a.connection.ID
	}
	if s, ok := r.server.(mail.IdempotentSender); ok {
		r.via = "api " + s.IdempotencyScope()
		r.repeats = err == nil && a.canRepeat(r.via, s.IdempotencyWindow())
	}
	return r, err
}

// loadFiles reads the files of the message, or returns the name of a missing one.
func (a *attempt) loadFiles(ctx context.Context) (missing string, err error) {
	for i := range a.w.Files {
		data, err := a.content(ctx, i)
		if errors.Is(err, blob.ErrNotFound) {
			return a.w.Files[i].Name, nil
		}
		if err != nil {
			return "", fmt.Errorf("load attachment: %w", err)
		}
		a.w.Files[i].Data = data
	}
	return "", nil
}

// transmitMail submits the mail, and again without each Cc address that the server refuses.
// It returns the provider's id or the failure of the submission; err is one of our own.
func (a *attempt) transmitMail(ctx context.Context, c channel.MailComposer, r mailRoute) (id string, failure, err error) {
	for {
		recorded := false
		id, failure = r.server.SendTracked(ctx, c.Compose(&a.w.Outgoing), func() error {
			if recorded {
				return a.checkLease(ctx)
			}
			recorded = true
			return a.recordSubmission(ctx, r.via)
		})
		refused := a.refusedCc(failure)
		if refused == "" {
			return id, failure, nil
		}
		reason := mailErrorText(failure)
		if err := a.db.WriteUntilDone(ctx, func(tx *db.Tx) error {
			if err := a.job.CheckLeaseTx(ctx, tx); err != nil {
				return err
			}
			return a.desk.RemoveCcTx(ctx, tx, &a.w, refused, reason)
		}); err != nil {
			return "", nil, fmt.Errorf("remove copy: %w", err)
		}
	}
}

// mailOutcome decides the outcome of an attempt (from 1) by the failure of its submission; nil
// is success, with the provider's id. repeats is that of the [mailRoute].
func mailOutcome(id string, failure error, attempt int, repeats bool) outcome {
	if failure == nil {
		v := channel.SendResult{Verdict: channel.VerdictSent}
		if id != "" {
			v.ExternalIDs = []string{id}
		}
		return outcome{verdict: v}
	}
	e, known := errors.AsType[*mail.Error](failure)
	reason := mailErrorText(failure)
	switch {
	case known && e.Unclear && e.Temporary && repeats:
		return outcome{verdict: channel.SendResult{Verdict: channel.VerdictUnclear, Reason: reason}, wait: max(backoff(attempt, e.RetryAfter), inFlightTime)}
	case known && e.Unclear:
		return outcome{verdict: refusedVerdict(mayHaveArrived)}
	}
	wait, again := mail.Retry(attempt, failure)
	o := outcome{verdict: channel.SendResult{Verdict: channel.VerdictRetry, Reason: reason}, wait: wait, giveUp: !again}
	if known && isThrottled(e) {
		o.pause = cmp.Or(e.RetryAfter, time.Minute)
	}
	if known && !again && e.Op == mail.OpRecipient {
		o.verdict.Recipient, o.verdict.Unreachable = strings.Trim(e.Recipient, "<>"), strings.HasPrefix(e.EnhancedCode, "5.1.")
	}
	return o
}

// bySMTP is the route by a mail server, any: none recognizes a repeated mail.
const bySMTP = "smtp"

// maxCall is the time that a call may need until the provider has it.
const maxCall = time.Minute

// canRepeat reports whether a provider that recognizes a repeated message within a
// time still does so for the first uncertain submission. It knows nothing of
// submissions by another route.
func (a *attempt) canRepeat(by string, within time.Duration) bool {
	return a.w.SubmittedAt.IsZero() || a.submittedVia(by) && a.db.Now().Sub(a.w.UncertainSince) < within-maxCall
}

// submittedVia reports whether the last submission was, or may have been, by a route.
func (a *attempt) submittedVia(by string) bool {
	return a.w.SubmittedVia == by || a.w.SubmittedVia == desk.ViaUnknown
}

// refusedCc returns the address of a copy that the mail server refuses permanently; empty
// if the error has another reason.
func (a *attempt) refusedCc(err error) string {
	e, ok := errors.AsType[*mail.Error](err)
	if !ok || e.Op != mail.OpRecipient || e.Temporary || e.Code == 530 {
		return ""
	}
	for _, p := range slices.Concat(a.w.Cc, a.w.Bcc) {
		if a, err := mail.EnvelopeAddress(p.Email); err == nil && strings.EqualFold(a, e.Recipient) {
			return p.Email
		}
	}
	return ""
}

// isThrottled reports whether a mail server limits our rate, rather than refusing
// this mail.
func isThrottled(e *mail.Error) bool {
	if e.API {
		return e.Code == http.StatusTooManyRequests || e.Code == http.StatusServiceUnavailable
	}
	return e.Code == 421 || e.Code == 450 && strings.HasPrefix(e.EnhancedCode, "4.7.")
}

// mailErrorText describes a mail error for people.
func mailErrorText(err error) string {
	e, ok := errors.AsType[*mail.Error](err)
	if !ok {
		return "the mail could not be sent"
	}
	detail := e.Text
	if e.Code != 0 {
		detail = strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Code, e.EnhancedCode, e.Text))
		detail = strings.Join(strings.Fields(detail), " ")
	} else if e.Err != nil {
		detail = e.Err.Error()
	}
	by := "the mail server"
	if e.API {
		by = "the delivery provider"
	}
	text := by + " did not accept the mail"
	switch e.Op {
	case mail.OpCompose:
		text = "the mail cannot be written"
	case mail.OpConnect:
		text = by + " cannot be reached"
	case mail.OpTLS:
		text = "no TLS connection to " + by
	case mail.OpLogin:
		text = by + " rejects our login"
		if e.API {
			text = by + " refuses the API key"
		}
	case mail.OpSender:
		text = by + " rejects our sender address"
	case mail.OpRecipient:
		text = by + " rejects mail for " + strings.Trim(e.Recipient, "<>")
	case mail.OpStore:
		text = "the mail could not be stored"
	}
	return text + ": " + detail
}
