package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/mail"
)

// sendByMail sends the message as a mail.
func (a *attempt) sendByMail(ctx context.Context, c channel.MailComposer) error {
	server, route := a.mail, "mail"
	own, err := a.openMail(a.connection.Credentials())
	if err != nil && a.w.SubmittedAt.IsZero() {
		return a.postpone(ctx, "the connection cannot send: "+err.Error(), disabledWait)
	}
	if own != nil {
		server, route = own, "mail/"+a.connection.ID
	}
	by := bySMTP
	repeater, repeats := server.(mail.IdempotentSender)
	if repeats {
		by = "api " + repeater.IdempotencyScope()
	}
	repeats = repeats && err == nil && a.canRepeat(by, repeater.IdempotencyWindow())
	if !a.w.SubmittedAt.IsZero() && !repeats {
		return a.conclude(ctx, outcome{verdict: refusedVerdict(mayHaveArrived)})
	}
	if barred, err := a.isBlocked(ctx); barred || err != nil {
		return err
	}
	var memory int64
	for _, f := range a.w.Files {
		memory += 3 * f.Size // raw, as base64, and in the mail
	}
	memory = min(memory, maxMemory)
	if wait := a.routes.acquire(route, memory); wait > 0 {
		return a.postpone(ctx, "", wait)
	}
	defer a.routes.release(route, memory)

	for i := range a.w.Files {
		data, err := a.content(ctx, i)
		if errors.Is(err, blob.ErrNotFound) {
			return a.conclude(ctx, outcome{verdict: refusedVerdict("the file " + a.w.Files[i].Name + " is gone")})
		}
		if err != nil {
			return fmt.Errorf("load attachment: %w", err)
		}
		a.w.Files[i].Data = data
	}
	id, err := server.SendTracked(ctx, c.Compose(&a.w.Outgoing), func() error { return a.recordSubmission(ctx, by) })
	for {
		gone := a.refusedCc(err)
		if gone == "" {
			break
		}
		reason := mailErrorText(err)
		if err := a.db.WriteUntilDone(ctx, func(tx *db.Tx) error { return a.desk.RemoveCcTx(ctx, tx, &a.w, gone, reason) }); err != nil {
			return fmt.Errorf("remove copy: %w", err)
		}
		id, err = server.SendTracked(ctx, c.Compose(&a.w.Outgoing), func() error { return a.recordSubmission(ctx, by) })
	}
	if err == nil {
		v := channel.SendResult{Verdict: channel.VerdictSent}
		if id != "" {
			v.ExternalIDs = []string{id}
		}
		return a.conclude(ctx, outcome{verdict: v})
	}
	e, _ := errors.AsType[*mail.Error](err)
	unclear := e != nil && e.Unclear
	switch {
	case errors.Is(err, desk.ErrRecalled), isInternal(err):
		return err
	case ctx.Err() != nil && !unclear:
		return a.interrupted(ctx, false)
	case ctx.Err() != nil && repeats:
		return a.interrupted(ctx, true)
	case unclear && repeats && e.Temporary:
		wait := max(a.backoff(a.w.Attempts+1, e.RetryAfter), a.scaled(inFlightTime))
		return a.conclude(ctx, outcome{verdict: channel.SendResult{Verdict: channel.VerdictUnclear, Reason: mailErrorText(err)}, wait: wait})
	case unclear:
		return a.conclude(ctx, outcome{verdict: refusedVerdict(mayHaveArrived)})
	}
	if e != nil && isThrottled(e) {
		rest := e.RetryAfter
		if rest == 0 {
			rest = time.Minute
		}
		a.routes.pause(route, a.scaled(rest))
	}
	v := channel.SendResult{Verdict: channel.VerdictRetry, Reason: mailErrorText(err)}
	wait, again := mail.Retry(a.w.Attempts+1, err)
	if !again && e != nil && e.Op == mail.OpRecipient {
		v.Recipient, v.Unreachable = strings.Trim(e.Recipient, "<>"), strings.HasPrefix(e.EnhancedCode, "5.1.")
	}
	return a.conclude(ctx, outcome{verdict: v, wait: a.scaled(wait), giveUp: !again})
}

// bySMTP is the route by a mail server, any: none recognizes a repeated mail.
const bySMTP = "smtp"

// canRepeat reports whether a provider that recognizes a repeated message within a
// time still does so for the first uncertain submission. It knows nothing of
// submissions by another route.
func (a *attempt) canRepeat(by string, within time.Duration) bool {
	return a.w.SubmittedAt.IsZero() || a.w.SubmittedVia == by && time.Since(a.w.UncertainSince) < within
}

// refusedCc returns the Cc address that the mail server refuses permanently; empty
// if the error has another reason.
func (a *attempt) refusedCc(err error) string {
	e, ok := errors.AsType[*mail.Error](err)
	if !ok || e.Op != mail.OpRecipient || e.Temporary || e.Code == 530 {
		return ""
	}
	for _, p := range a.w.Cc {
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
