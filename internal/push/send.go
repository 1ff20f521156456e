package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"

	webpush "github.com/SherClockHolmes/webpush-go"
)

const (
	jobKind = "push.send"
	// sendTimeout bounds a request with its answer.
	sendTimeout = 10 * time.Second
	// timeToLive is how long a push service stores a notice for a browser that is closed.
	timeToLive = 12 * time.Hour
	// recordSize is the length of an encrypted message in bytes. All have the same, so that it says
	// nothing about the content; push services accept 4096.
	recordSize = 2048
	maxTitle   = 150 // characters
	maxBody    = 150
)

// job is the payload of a job.
type job struct {
	SubscriptionID string `json:"subscription_id"`
	NoticeID       string `json:"notice_id"`
}

// NotifyTx enqueues a notice to each of a member's browsers, in the caller's transaction.
func (s *Service) NotifyTx(ctx context.Context, tx *db.Tx, organizationID, userID, noticeID string) error {
	browsers, err := s.Subscriptions(ctx, tx, organizationID, userID)
	if err != nil || len(browsers) == 0 {
		return err
	}
	jobs := make([]queue.New, len(browsers))
	for i := range browsers {
		payload, err := json.Marshal(job{browsers[i].ID, noticeID})
		if err != nil {
			return err
		}
		jobs[i] = queue.New{Kind: jobKind, Lane: "push/" + browsers[i].ID, Tenant: organizationID, Payload: payload}
	}
	return s.Queue.EnqueueTx(ctx, tx, jobs...)
}

// run sends a notice to a browser.
func (s *Service) run(ctx context.Context, j *queue.Job) error {
	var of job
	if err := json.Unmarshal(j.Payload, &of); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	b, err := db.One(ctx, s.DB, scanSubscription, selectSubscription+"WHERE id = $1", of.SubscriptionID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find subscription: %w", err)
	}
	organizationID, userID, ok, err := s.Member(ctx, b.SessionID)
	if err != nil {
		return fmt.Errorf("check session: %w", err)
	}
	if !ok || userID != b.UserID || organizationID != b.OrganizationID {
		return nil
	}
	m, ok, err := s.Message(ctx, b.OrganizationID, b.UserID, of.NoticeID)
	if err != nil || !ok {
		return err
	}
	err = s.send(ctx, &b, m)
	if err == nil {
		return s.end(ctx, j, "UPDATE push_subscriptions SET sent_at = $2 WHERE id = $1", b.ID, s.DB.Now().UnixMicro())
	}
	if refused, ok := errors.AsType[*refusal](err); ok && refused.gone() {
		return s.end(ctx, j, "DELETE FROM push_subscriptions WHERE id = $1", b.ID)
	}
	return err
}

// end records the outcome of a job.
func (s *Service) end(ctx context.Context, j *queue.Job, statement string, args ...any) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Queue(ctx, statement, args...); err != nil {
			return fmt.Errorf("record outcome: %w", err)
		}
		return j.FinishTx(ctx, tx)
	})
}

// refusal is the answer of a push service other than success.
type refusal struct {
	status int
	after  time.Duration // of Retry-After; 0: none
}

func (r *refusal) Error() string { return fmt.Sprintf("the push service answered %d", r.status) }

// gone reports whether the subscription has ended.
func (r *refusal) gone() bool { return r.status == http.StatusNotFound || r.status == http.StatusGone }

// passes reports whether a later attempt may succeed.
func (r *refusal) passes() bool { return r.status == http.StatusTooManyRequests || r.status >= 500 }

// send sends a message to a browser. An error does not name the endpoint: whoever knows it can send to the browser.
func (s *Service) send(ctx context.Context, b *Subscription, m Message) error {
	keys, err := s.keyPair(ctx)
	if err != nil {
		return err
	}
	plain, err := s.Box.Open(targetPurpose, b.target, b.ID)
	if err != nil {
		return fmt.Errorf("open subscription: %w", err)
	}
	var to Target
	if err := json.Unmarshal(plain, &to); err != nil {
		return fmt.Errorf("read subscription: %w", err)
	}
	m.Title, m.Body = clip(m.Title, maxTitle), clip(m.Body, maxBody)
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	response, err := webpush.SendNotificationWithContext(ctx, content,
		&webpush.Subscription{Endpoint: to.Endpoint, Keys: webpush.Keys{Auth: to.Auth, P256dh: to.P256DH}},
		&webpush.Options{
			HTTPClient: s.client, RecordSize: recordSize, Subscriber: s.Contact, Topic: m.Tag, TTL: int(timeToLive / time.Second), Urgency: webpush.UrgencyNormal,
			VAPIDPublicKey: keys.public, VAPIDPrivateKey: keys.private,
		})
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("push: %w", err)
	}
	response.Body.Close()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return nil
	}
	return &refusal{response.StatusCode, netguard.RetryAfter(response.Header, s.DB.Now())}
}

// clip returns at most n characters of a text.
func clip(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// waits are the times between the attempts of a notice. After the last one it is given up: it is
// in the page anyway.
var waits = [...]time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour}

// maxWait bounds the wait that a push service may ask for.
const maxWait = 2 * time.Hour

// retry implements [queue.Worker.Retry].
func retry(attempt int, err error) (time.Duration, bool) {
	if attempt > len(waits) {
		return 0, false
	}
	wait := waits[attempt-1]
	if refused, ok := errors.AsType[*refusal](err); ok {
		if !refused.passes() {
			return 0, false
		}
		wait = max(wait, min(refused.after, maxWait))
	}
	if _, refused := errors.AsType[*netguard.AddressError](err); refused {
		return 0, false
	}
	return wait, true
}
