package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// attempt is one attempt to send a message.
type attempt struct {
	*Service
	job        *queue.Job
	w          desk.OutboxMessage
	connection connection.Connection

	// Of the last recorded submission of this attempt; zero: none.
	submission time.Time // before the record, by the monotonic clock
}

// outcome is the result of an attempt.
type outcome struct {
	verdict channel.SendResult
	wait    time.Duration // until the next attempt, after a retryable result; not scaled
	giveUp  bool          // no next attempt
	pause   time.Duration // of the route, if the mail server limits our rate; not scaled
}

// run sends the message of a job, or finds out the result of an earlier submission.
func (s *Service) run(ctx context.Context, j *queue.Job) error {
	w, err := s.desk.OutboxMessage(ctx, s.db, j.ID)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted with its ticket
	}
	if err != nil {
		return fmt.Errorf("load message: %w", err)
	}
	if w.State != channel.ReceiptQueued {
		// The receipt arrived before the response.
		return s.db.WriteUntilDone(ctx, func(tx *db.Tx) error {
			if err := s.desk.RecordSentTx(ctx, tx, &w, nil); err != nil {
				return err
			}
			return j.FinishTx(ctx, tx)
		})
	}
	w.Fence = j.Fence()
	c, err := s.connections.Find(ctx, w.ConnectionID)
	a := &attempt{Service: s, job: j, w: w, connection: c}
	if errors.Is(err, db.ErrNoRows) {
		reason := "its connection was removed"
		if !w.SubmittedAt.IsZero() {
			reason = a.mayHaveArrived()
		}
		return a.conclude(ctx, outcome{verdict: refusedVerdict(reason)})
	}
	if err != nil {
		return fmt.Errorf("load connection: %w", err)
	}
	if !c.Enabled {
		return a.postpone(ctx, "the connection is switched off", disabledWait)
	}
	if refusal := s.connections.SendRefusal(&c); refusal != nil {
		return a.postpone(ctx, problemText(refusal), disabledWait)
	}
	if a.w.FromName, err = s.fromName(ctx, &c); err != nil {
		return err
	}
	a.w.From = c.Address
	a.w.CopyHeader = s.copyHeader(w.OrganizationID, w.ID)

	switch sender := s.sender(&c, w.Channel).(type) {
	case channel.MailComposer:
		return a.sendByMail(ctx, sender)
	case channel.APISender:
		return a.sendByAPI(ctx, sender)
	}
	return a.conclude(ctx, outcome{verdict: refusedVerdict("messages cannot be sent on this channel")})
}

// disabledWait is the interval of checking a disabled connection.
const disabledWait = 5 * time.Minute

func refusedVerdict(reason string) channel.SendResult {
	return channel.SendResult{Verdict: channel.VerdictRefused, Reason: reason}
}

// mayHaveArrived is the error of a message with an unknown result that is not sent
// again.
const mayHaveArrived = "it may have arrived: the connection ended before the server confirmed it. It is not sent again automatically"

// mayHaveLeft is [mayHaveArrived] of a message that waited in a restored backup.
const mayHaveLeft = "it may have arrived: it waited in the backup from which this server was restored, and may have been sent since. It is not sent again automatically"

// mayHaveArrived returns the error of the message if it is not sent again.
func (a *attempt) mayHaveArrived() string {
	if a.w.SubmittedVia == desk.ViaUnknown {
		return mayHaveLeft
	}
	return mayHaveArrived
}

func (s *Service) fromName(ctx context.Context, c *connection.Connection) (string, error) {
	if c.Name != "" && c.Name != c.Address {
		return c.Name, nil
	}
	name, err := s.organizationName(ctx, c.OrganizationID)
	if err != nil {
		return "", fmt.Errorf("look up organization: %w", err)
	}
	return name, nil
}

// isBlocked concludes the attempt if the message must not be sent any more.
func (a *attempt) isBlocked(ctx context.Context) (bool, error) {
	reason, err := a.desk.SendBlock(ctx, a.db, &a.w)
	if err != nil || reason == "" {
		return false, err
	}
	return true, a.conclude(ctx, outcome{verdict: refusedVerdict(reason)})
}

// recordSubmission records that the message is about to be submitted by a route. It fails
// if the job's lease has ended, or a later claim has handled the message.
func (a *attempt) recordSubmission(ctx context.Context, by string) error {
	before := time.Now()
	err := a.db.Write(ctx, func(tx *db.Tx) error {
		if err := a.job.CheckLeaseTx(ctx, tx); err != nil {
			return err
		}
		return a.desk.RecordSubmissionTx(ctx, tx, &a.w, by)
	})
	if err == nil {
		a.submission = before
	}
	return err
}

// errStalled refuses the bytes of a submission that was recorded too long ago.
var errStalled = errors.New("the process stood still before the message was sent")

// checkLease refuses the rest of a recorded submission when the job's lease has ended: a
// process that stood still notices it here, before its heartbeat does.
func (a *attempt) checkLease(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.job.CheckLease()
}

// checkSubmission is checkLease for a call, and refuses it after submissionTime: soon
// another process may find out what became of it, and must not miss what is sent then.
// Both clocks have to agree, since either can stop with the process.
func (a *attempt) checkSubmission(ctx context.Context) error {
	limit := time.Duration(float64(submissionTime) * a.scale)
	err := a.checkLease(ctx)
	switch {
	case err != nil:
		return err
	case time.Since(a.submission) >= limit, a.db.Now().Sub(a.w.SubmittedAt) >= limit:
		return errStalled
	}
	return nil
}

// conclude records the result of an attempt.
func (a *attempt) conclude(ctx context.Context, e outcome) error {
	v := e.verdict
	log := a.log.With("message", a.w.ID, "connection", a.w.ConnectionID, "channel", a.w.Channel, "attempt", a.w.Attempts+1)
	again := (v.Verdict == channel.VerdictRetry || v.Verdict == channel.VerdictUnclear) && !e.giveUp
	wait := a.scaled(e.wait)
	if e.giveUp && v.Verdict == channel.VerdictUnclear {
		v.Reason = a.mayHaveArrived() + " (" + v.Reason + ")"
	}
	err := a.db.WriteUntilDone(ctx, func(tx *db.Tx) error {
		var err error
		switch {
		case v.Verdict == channel.VerdictSent:
			err = a.desk.RecordSentTx(ctx, tx, &a.w, v.ExternalIDs)
		case again:
			if err = a.desk.RecordRetryTx(ctx, tx, &a.w, v.Reason, v.Verdict == channel.VerdictUnclear); err == nil {
				return a.job.RescheduleTx(ctx, tx, tx.Now.Add(wait))
			}
		default:
			err = a.desk.RecordFailureTx(ctx, tx, &a.w, v)
		}
		if err != nil {
			return err
		}
		return a.job.FinishTx(ctx, tx)
	})
	switch {
	case err != nil:
		return fmt.Errorf("record that a message is %s: %w", v.Verdict, err)
	case v.Verdict == channel.VerdictSent:
		a.recordHealth(ctx, "")
		a.observe(a.w.Channel, "sent")
		log.DebugContext(ctx, "a message was sent")
	case again:
		outcome := "retry"
		if v.Verdict == channel.VerdictUnclear {
			outcome = "unclear"
		}
		a.recordHealth(ctx, v.Reason)
		a.observe(a.w.Channel, outcome)
		log.WarnContext(ctx, "a message could not be sent yet", "reason", v.Reason, "unclear", v.Verdict == channel.VerdictUnclear, "in", wait)
	default:
		a.recordHealth(ctx, v.Reason)
		a.observe(a.w.Channel, "failed")
		log.WarnContext(ctx, "a message could not be sent", "reason", v.Reason)
	}
	return nil
}

// recordHealth records the result for the health of the connection. It is best effort: the message's
// state is recorded already.
func (a *attempt) recordHealth(ctx context.Context, reason string) {
	if err := a.connections.RecordSend(ctx, a.w.ConnectionID, reason); err != nil && ctx.Err() == nil {
		a.log.DebugContext(ctx, "the health of a connection was not recorded", "connection", a.w.ConnectionID, "error", err)
	}
}

// postpone delays the job without an attempt.
func (a *attempt) postpone(ctx context.Context, reason string, wait time.Duration) error {
	return a.db.WriteUntilDone(ctx, func(tx *db.Tx) error {
		if reason != "" {
			if err := a.desk.SetDelayReasonTx(ctx, tx, &a.w, reason); err != nil {
				return err
			}
		}
		return a.job.RescheduleTx(ctx, tx, tx.Now.Add(wait))
	})
}

// interrupted records an attempt cut short by shutdown or by the loss of the job,
// not by the provider. The job becomes ready again.
func (a *attempt) interrupted(ctx context.Context, unclear bool) error {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = queue.ErrLeaseLost // noticed before the queue did
	}
	if unclear || a.submission.IsZero() {
		return cause
	}
	err := a.db.WriteUntilDone(ctx, func(tx *db.Tx) error { return a.desk.CancelSubmissionTx(ctx, tx, &a.w) })
	if err != nil && !errors.Is(err, desk.ErrRecalled) {
		return err
	}
	return cause
}

// isInternal reports whether err is a failure of our own database or files. The
// queue repeats such work without counting an attempt.
func isInternal(err error) bool { return problem.Of(err) == problem.Unavailable }

// discard fails a message that our own errors kept from being sent.
func (s *Service) discard(ctx context.Context, tx *db.Tx, j *queue.Job, _ error) error {
	w, err := s.desk.OutboxMessage(ctx, tx, j.ID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load message: %w", err)
	}
	reason := "repeated internal errors"
	if !w.SubmittedAt.IsZero() {
		reason = (&attempt{w: w}).mayHaveArrived()
	}
	return s.desk.RecordFailureTx(ctx, tx, &w, refusedVerdict(reason))
}

// backoffSchedule has the waits between attempts at an API, as for an unreachable
// mail server. A provider that defers gets two days, an unreachable one a week.
var backoffSchedule = []time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute}

const (
	maxBackoff          = 30 * time.Minute // after the schedule
	maxLaterRetries     = 2 * 48
	maxUnreachedRetries = 7 * 48
)

// backoff returns the wait after the attempt-th failure (from 1), at least asked.
func backoff(attempt int, asked time.Duration) time.Duration {
	wait := maxBackoff
	if attempt <= len(backoffSchedule) {
		wait = backoffSchedule[attempt-1]
	}
	return max(wait, asked)
}

// scaled returns a wait times Config.RetryTimeScale, plus up to a tenth, so that
// jobs do not return at the same time.
func (s *Service) scaled(wait time.Duration) time.Duration {
	d := time.Duration(float64(wait) * s.scale)
	return d + rand.N(d/10+1)
}

// content reads the i-th file of the message.
func (a *attempt) content(ctx context.Context, i int) ([]byte, error) {
	r, err := a.blob.Open(ctx, a.w.File(i))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
