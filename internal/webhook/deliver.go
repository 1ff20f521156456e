package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

const (
	// attemptTimeout bounds an attempt, from DNS lookup to the last byte of the answer.
	attemptTimeout = 30 * time.Second
	maxRead        = 64 << 10 // of an answer's body
	maxKept        = 4 << 10  // stored of that
	maxError       = 500      // bytes stored of an error
)

// outcome is the effect of an attempt on its delivery.
type outcome uint8

const (
	accepted  outcome = iota // 2xx
	rejected                 // an answer that a retry would not change
	retryable                // no answer, 5xx or 429: retried
)

// attempt is one HTTP request and its result.
type attempt struct {
	outcome    outcome
	at         time.Time // its start
	sent       sent
	latency    time.Duration
	status     int    // 0 without an answer
	err        string // empty if accepted
	response   string // the start of the answer's body
	retryAfter time.Duration
}

// deliver runs one job: it attempts to deliver an event to a webhook.
func (s *Service) deliver(ctx context.Context, j *queue.Job) error {
	err := s.deliverInOrder(ctx, j)
	if behind, ok := errors.AsType[*behindError](err); ok {
		return s.parkBehind(ctx, j, behind.until)
	}
	switch {
	case errors.Is(err, errNewBacklog):
		return s.deliver(ctx, j)
	case errors.Is(err, errDeleted):
		return nil // deleted while the event was being written
	case errors.Is(err, errOtherKind):
		return s.changeKind(ctx, j)
	case errors.Is(err, errLater):
		return s.reschedule(ctx, j)
	}
	return err
}

var (
	errDeleted    = errors.New("the webhook was deleted")
	errOtherKind  = errors.New("the webhook's deliveries have the other kind")
	errNewBacklog = errors.New("the webhook was enabled again meanwhile")
	errLater      = errors.New("it is not the delivery's turn, or the webhook is not enabled")
)

// deliverInOrder attempts a delivery when its turn comes, and records the attempt.
func (s *Service) deliverInOrder(ctx context.Context, j *queue.Job) error {
	t, err := s.cached(ctx, j.Lane)
	if err != nil {
		return err
	}
	if t.kind() != j.Kind {
		return errOtherKind
	}
	if j.Kind == FleetKind {
		if err := s.awaitSubject(ctx, j); err != nil {
			return err
		}
	}
	if t.backlog != "" {
		if !t.ordered { // ordered lanes are in order already
			mine, err := s.awaitTurn(ctx, j, t.backlog)
			if err != nil {
				return err
			}
			if !mine {
				return errLater
			}
			if j.ID <= t.backlog {
				defer s.turns.done(j.Lane)
			}
		}
		if j.ID <= t.backlog {
			if err := s.pace(ctx, j.Lane); err != nil {
				return err
			}
		}
	}
	w := s.windows.open(j.Lane)
	defer s.windows.close(w)
	if err := s.windows.acquire(ctx, w); err != nil {
		return err
	}
	a, err := s.attemptDelivery(ctx, j, t.backlog)
	if a.sent.version == 0 { // nothing was posted
		s.windows.cancel(w)
	} else {
		s.windows.release(w, a.status != 0)
	}
	if err != nil {
		return err
	}
	return s.record(ctx, &result{job: j, attempt: a})
}

// changeKind moves a job to the kind of its webhook: the webhook was made ordered or unordered
// while the job was enqueued or delayed.
func (s *Service) changeKind(ctx context.Context, j *queue.Job) error {
	ctx = context.WithoutCancel(ctx)
	return s.db.Write(ctx, func(tx *db.Tx) error {
		// The cached webhook may be a second old.
		tx.AfterCommit(func() { s.cache.Delete(j.Lane) })
		var ordered bool
		var events string
		err := tx.QueryRow(ctx, "SELECT ordered, events FROM webhooks WHERE id = $1 FOR UPDATE", j.Lane).Scan(&ordered, &events)
		if errors.Is(err, db.ErrNoRows) {
			return j.FinishTx(ctx, tx)
		}
		if err != nil {
			return err
		}
		source, _ := splitEvents(events)
		kind := kindOf(source, ordered)
		if err := j.ReleaseTx(ctx, tx); err != nil || kind == j.Kind {
			return err
		}
		_, err = s.queue.MoveLaneTx(ctx, tx, j.Kind, kind, j.Lane) // later jobs move the rest of the lane
		return err
	})
}

// attemptDelivery makes a job's attempt with the current webhook. An error means that no request was sent.
// backlog is the one in which the job waited for its turn: if the webhook has a new one by now,
// the job waits again.
func (s *Service) attemptDelivery(ctx context.Context, j *queue.Job, backlog string) (attempt, error) {
	t, err := s.cached(ctx, j.Lane)
	switch {
	case err != nil:
		return attempt{}, err
	case t.kind() != j.Kind:
		return attempt{}, errOtherKind
	case !t.enabled:
		return attempt{}, errLater
	case t.backlog != "" && t.backlog != backlog:
		return attempt{}, errNewBacklog
	}
	p := decodePayload(j.Payload)
	body, err := s.body(ctx, p.eventID, t.form)
	if errors.Is(err, db.ErrNoRows) {
		return attempt{outcome: rejected, at: s.db.Now(), err: "the event is no longer stored"}, nil
	}
	if err != nil {
		return attempt{}, err
	}
	// A process that stood still, or waited for its turn, may have lost the job to another.
	if err := j.CheckLease(); err != nil {
		return attempt{}, err
	}
	a := s.post(ctx, t, payload.Header(p.event, j.ID, p.eventID, false), body)
	if a.status == 0 && ctx.Err() != nil {
		// Interrupted by the end of the process or of the webhook: neither the receiver's fault
		// nor an attempt.
		return attempt{}, context.Cause(ctx)
	}
	return a, nil
}

// post sends one request with the headers h, which it signs.
func (s *Service) post(ctx context.Context, t *cachedWebhook, h http.Header, body []byte) attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	now, begun := s.db.Now(), time.Now()
	a := attempt{at: now}
	a.sent = sent{version: t.version, sum: payload.Checksum(body)}
	if t.secret != nil {
		old := t.old
		if !now.Before(t.oldUntil) {
			old = nil
		}
		a.sent.signatures = payload.Sign(h, t.secret, old, t.form, now, body)
	}
	// The transport does not send an empty value. It permits a second try when a reused
	// connection turns out to be closed.
	h["Idempotency-Key"] = []string{}
	req := &http.Request{
		Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
	// No http.Client, which would follow redirects and store cookies.
	res, err := s.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		a.latency = time.Since(begun)
		a.outcome, a.err = retryable, describeError(ctx, err)
		return a
	}
	a.status = res.StatusCode
	a.response = readStart(res.Body)
	a.latency = time.Since(begun)
	a.outcome = classify(res.StatusCode)
	if a.outcome != accepted {
		a.err = "the receiver answered " + status(res.StatusCode)
		if res.StatusCode/100 == 3 {
			a.err += ", and redirects are not followed"
		}
		a.retryAfter = retryAfter(res.StatusCode, res.Header, s.db.Now())
	}
	return a
}

// classify returns the outcome of a status (helpdesk.md part 6, delivery rules 2 and 3).
func classify(status int) outcome {
	switch {
	case status/100 == 2:
		return accepted
	case status/100 == 5 || status == http.StatusTooManyRequests:
		return retryable
	default:
		return rejected
	}
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// readStart reads the body of an answer up to a limit and returns the part to be stored. The
// status decides the outcome, so read errors are ignored.
func readStart(body io.ReadCloser) string {
	defer body.Close()
	if body == http.NoBody {
		return ""
	}
	var start bytes.Buffer
	if n, err := io.CopyN(&start, body, maxKept); err == nil {
		io.CopyN(io.Discard, body, maxRead-n)
	}
	return storableText(start.String())
}

// storableText returns b as text that both engines can store.
func storableText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// describeError returns the reason for a missing answer, in words.
func describeError(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "no answer within 30 seconds"
	}
	text := storableText(err.Error())
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	return text
}
