// Package push sends notices to members' browsers by Web Push: RFC 8030 (delivery), RFC 8291
// (encryption) and RFC 8292 (VAPID).
//
// A browser subscribes at the push service of its vendor, which gives it an endpoint. The
// subscription belongs to the session in which it was made, and ends with it. A notice enqueues a
// job for each subscription of its member, in the transaction of its cause. The job reads the
// notice again: one that has been read meanwhile is not sent.
//
// Endpoints are chosen by browsers, and so by anybody: they are public https addresses, requests
// go through package netguard, follow no redirect and have a time limit, and nothing of an answer
// but its status and Retry-After is read.
package push

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/seal"

	webpush "github.com/SherClockHolmes/webpush-go"
)

// MaxBrowsers is the number of subscriptions of a user.
const MaxBrowsers = 10

// Config configures [Open].
type Config struct {
	DB    *db.DB
	Queue *queue.Queue
	Box   *seal.Box
	// Transport connects to push services. It must refuse private addresses, unless AllowPrivate is
	// set, for development.
	Transport    http.RoundTripper
	AllowPrivate bool
	// Contact is where the operator of a push service reaches this deployment's: a mail address or an
	// https URL.
	Contact string
	// Member returns the organization and the user of an open session that may see pages; false if it
	// has ended, or may not.
	Member func(ctx context.Context, sessionID string) (organizationID, userID string, ok bool, err error)
	// Message returns the message of a member's notice; false if it is gone or has been read.
	Message func(ctx context.Context, organizationID, userID, noticeID string) (Message, bool, error)
	Logger  *slog.Logger // nil discards
}

// Message is what a browser shows. A later message with the same Tag replaces it.
type Message struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	URL   string `json:"url"` // absolute, or a path
	Tag   string `json:"tag"` // at most 32 letters, digits, "-" and "_"
}

// Service holds subscriptions and sends to them. It is safe for concurrent use.
type Service struct {
	Config
	client *http.Client

	mu   sync.Mutex
	keys *keyPair // nil: not read yet
}

// Open returns a service and registers its worker.
func Open(c Config) *Service {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{Config: c, client: &http.Client{
		Transport: c.Transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.Queue.Handle(queue.Worker{Kind: jobKind, Run: s.run, Retry: retry, Outgoing: true})
	return s
}

// keyPair is the deployment's VAPID key pair, in base64url.
type keyPair struct{ public, private string }

const (
	keyID         = "vapid"
	keyPurpose    = "vapid key"
	targetPurpose = "push subscription"
)

// PublicKey returns the public key with which browsers subscribe: base64url of the uncompressed
// point. The first call of a deployment creates the key pair.
func (s *Service) PublicKey(ctx context.Context) (string, error) {
	k, err := s.keyPair(ctx)
	if err != nil {
		return "", err
	}
	return k.public, nil
}

// keyPair returns the key pair, and creates it if there is none. One that cannot be opened is an
// error: a new one would make every subscription useless.
func (s *Service) keyPair(ctx context.Context) (*keyPair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys != nil {
		return s.keys, nil
	}
	k, err := s.readKeys(ctx, s.DB)
	if errors.Is(err, db.ErrNoRows) {
		k, err = s.createKeys(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("key pair of Web Push: %w", err)
	}
	s.keys = k
	return k, nil
}

func (s *Service) readKeys(ctx context.Context, q db.Querier) (*keyPair, error) {
	var k keyPair
	var sealed []byte
	if err := q.QueryRow(ctx, "SELECT public_key, private_key FROM push_keys WHERE id = $1", keyID).Scan(&k.public, &sealed); err != nil {
		return nil, err
	}
	private, err := s.Box.Open(keyPurpose, sealed, keyID)
	if err != nil {
		return nil, err
	}
	k.private = string(private)
	return &k, nil
}

func (s *Service) createKeys(ctx context.Context) (k *keyPair, err error) {
	private, public, err := webpush.GenerateVAPIDKeys()
	if err != nil {
		return nil, err
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		// Another process may be first.
		if _, err := tx.Exec(ctx, "INSERT INTO push_keys (id, public_key, private_key, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
			keyID, public, s.Box.Seal(keyPurpose, []byte(private), keyID), tx.Now.UnixMicro()); err != nil {
			return err
		}
		k, err = s.readKeys(ctx, tx)
		return err
	})
	return k, err
}

// Target is the endpoint of a browser and the keys that messages to it are encrypted with, in
// base64url.
type Target struct {
	Endpoint string `json:"endpoint"`
	P256DH   string `json:"p256dh"`
	Auth     string `json:"auth"`
}

// Check implements [problem.Checker] for public addresses.
func (t Target) Check(v *problem.Validation) { t.check(v, false) }

func (t Target) check(v *problem.Validation, allowPrivate bool) {
	if _, err := netguard.CheckURL(t.Endpoint, allowPrivate); err != nil {
		v.Add("endpoint", "%s", err)
	}
	key, err := base64.RawURLEncoding.DecodeString(t.P256DH)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(key)
	}
	if err != nil {
		v.Add("p256dh", "must be a public key on the curve P-256")
	}
	if secret, err := base64.RawURLEncoding.DecodeString(t.Auth); err != nil || len(secret) != 16 {
		v.Add("auth", "must be 16 bytes in base64url")
	}
}

// Subscriber is the member whose notices a browser gets, and the session there.
type Subscriber struct {
	OrganizationID, UserID, SessionID string
	Browser                           string // "Firefox on Linux"; empty: unknown
}

// Subscribe adds the browser of a session. It replaces the session's subscription and any other one
// to the same endpoint. Errors: Invalid; Precondition if the user has [MaxBrowsers] others.
func (s *Service) Subscribe(ctx context.Context, by Subscriber, to Target) error {
	var v problem.Validation
	to.check(&v, s.AllowPrivate)
	if err := v.Err(); err != nil {
		return err
	}
	u, err := netguard.CheckURL(to.Endpoint, s.AllowPrivate)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(to)
	if err != nil {
		return err
	}
	id, digest := queue.NewID(), sha256.Sum256([]byte(to.Endpoint))
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "push/"+by.UserID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM push_subscriptions WHERE session_id = $1 OR digest = $2", by.SessionID, digest[:]); err != nil {
			return fmt.Errorf("replace subscription: %w", err)
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM push_subscriptions WHERE user_id = $1", by.UserID).Scan(&n); err != nil {
			return fmt.Errorf("count subscriptions: %w", err)
		}
		if n >= MaxBrowsers {
			return problem.New(problem.Precondition, "at most %d browsers can get your notices; remove one first", MaxBrowsers)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO push_subscriptions (id, organization_id, user_id, session_id, digest, target, service, browser, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			id, by.OrganizationID, by.UserID, by.SessionID, digest[:], s.Box.Seal(targetPurpose, plain, id), u.Hostname(), by.Browser, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("write subscription: %w", err)
		}
		return nil
	})
}

// Subscription is a browser that gets a member's notices.
type Subscription struct {
	ID             string
	OrganizationID string
	UserID         string
	SessionID      string
	Browser        string // "Firefox on Linux"; empty: unknown
	Service        string // host of the push service
	CreatedAt      time.Time
	SentAt         time.Time // of the last accepted notice; zero: never

	target []byte // sealed
}

const selectSubscription = "SELECT id, organization_id, user_id, session_id, browser, service, created_at, sent_at, target FROM push_subscriptions "

func scanSubscription(row db.Row) (b Subscription, err error) {
	err = row.Scan(&b.ID, &b.OrganizationID, &b.UserID, &b.SessionID, &b.Browser, &b.Service, db.IntoTime(&b.CreatedAt), db.IntoTime(&b.SentAt), &b.target)
	return b, err
}

// Subscriptions returns a member's subscriptions, the oldest first.
func (s *Service) Subscriptions(ctx context.Context, q db.Querier, organizationID, userID string) ([]Subscription, error) {
	list, err := db.All(ctx, q, scanSubscription, selectSubscription+"WHERE user_id = $1 AND organization_id = $2 ORDER BY id", userID, organizationID)
	if err != nil {
		return nil, fmt.Errorf("list subscriptions: %w", err)
	}
	return list, nil
}

// Unsubscribe deletes one of a user's subscriptions. Error: NotFound.
func (s *Service) Unsubscribe(ctx context.Context, userID, id string) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM push_subscriptions WHERE id = $1 AND user_id = $2", id, userID)
		if err == nil && n == 0 {
			return problem.New(problem.NotFound, "there is no such browser")
		}
		return err
	})
}

// DeleteMemberTx deletes the subscriptions of a member who leaves an organization, in the caller's
// transaction.
func (s *Service) DeleteMemberTx(ctx context.Context, tx *db.Tx, organizationID, userID string) error {
	if err := tx.Queue(ctx, "DELETE FROM push_subscriptions WHERE user_id = $1 AND organization_id = $2", userID, organizationID); err != nil {
		return fmt.Errorf("delete subscriptions: %w", err)
	}
	return nil
}
