package inbound

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// store keeps the parts of a verified request and enqueues their processing,
// all in one transaction. A reply, if any, is for the provider to send.
func (s *Service) store(ctx context.Context, a channel.Adapter, req *channel.Request, v verified, parts []channel.Part) (_ channel.Outcome, reply string, err error) {
	list := filterParts(a, req, v.route(readChallenges(a, req, parts)))
	if v.limited {
		if list, err = s.withKnownChallenges(ctx, a, list); err != nil {
			return "", "", err
		}
		if len(list) == 0 {
			return "", "", errUnproven
		}
	}
	used := newTokenUse(a, req, &v)
	if len(list) == 0 {
		if err := s.recordTokenUse(ctx, used); err != nil {
			return "", "", err
		}
		s.log.InfoContext(ctx, "a verified request is for nobody here", "channel", a.Info().Name, "parts", len(parts))
		return channel.Ignored, "", nil
	}
	greeting, err := s.autoReplyText(ctx, a, req, list)
	if err != nil {
		return "", "", err
	}
	events := make([]*Event, len(list))
	shown := s.withoutSecrets(a, req)
	for i, p := range list {
		events[i] = newEvent(a, shown, p)
		if err := s.assignRoute(ctx, events[i], p.route); err != nil {
			return "", "", err
		}
	}
	shelved, err := s.storeBodies(ctx, list, events)
	if err != nil {
		return "", "", err
	}
	var outcome channel.Outcome
	var needed map[string]bool // of what was shelved
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		outcome, reply, needed = channel.Ignored, "", make(map[string]bool)
		if err := used.recordTx(ctx, tx); err != nil {
			return err
		}
		for i, e := range events {
			if err := s.recordShared(ctx, tx, a, &list[i]); err != nil {
				return err
			}
			back, known, err := s.matchChallenge(ctx, tx, a, e, &list[i])
			if err != nil {
				return err
			}
			if !known && list[i].Skip {
				continue
			}
			e := e
			if known {
				e = new(*e)
				e.State, e.Kind = Processed, kindChallenge
			}
			fresh, err := s.insert(ctx, tx, e)
			if err != nil {
				return err
			}
			if known && fresh {
				if err := e.recordOutcome(ctx, tx, Processed, back, ""); err != nil {
					return err
				}
			}
			if fresh {
				needed[e.bodyKey] = true
			}
			switch {
			case e.State == Unrouted:
			case fresh:
				outcome = channel.Accepted
			case outcome == channel.Ignored:
				outcome = channel.Duplicate
			}
			if fresh && greeting != "" && !known {
				n, err := tx.Exec(ctx, "INSERT INTO inbound_greetings (connection_id, sender, greeted_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
					e.ConnectionID, e.Sender, tx.Now.UnixMicro())
				if err != nil {
					return err
				}
				if n == 1 {
					reply = greeting
				}
			}
		}
		return nil
	})
	if errors.Is(err, errUsedToken) {
		s.deleteBodies(ctx, shelved)
	}
	if err != nil {
		return "", "", fmt.Errorf("store event: %w", err)
	}
	s.deleteBodies(ctx, slices.DeleteFunc(shelved, func(key string) bool { return needed[key] }))
	return outcome, reply, nil
}

// errUnproven says that a request is for a connection that may not have it yet.
var errUnproven = errors.New("the connection that the request is for may not have it yet")

// matchChallenge has the connections look at the challenge that a part seems to bring back.
// known is false for a part that is to be stored like any other.
func (s *Service) matchChallenge(ctx context.Context, tx *db.Tx, a channel.Adapter, e *Event, p *routed) (r connection.Returned, known bool, err error) {
	if p.challenge == "" {
		return r, false, nil
	}
	id := ""
	if p.to != nil {
		id = p.to.ID
	}
	return s.connections.ApplyReturnedTokenTx(ctx, tx, a.Info().Medium, e.Address, p.challenge, id)
}

// recordShared records that the deployment's secret serves a part's connection, where that
// matters to others; see [Service.trustsUnsignedRecipient].
func (s *Service) recordShared(ctx context.Context, tx *db.Tx, a channel.Adapter, p *routed) error {
	if _, ok := a.(channel.RecipientChecker); !ok || p.to == nil || p.to.SharesSecret() || !strings.HasPrefix(p.by, byDeployment) {
		return nil
	}
	return s.connections.RecordSharedTx(ctx, tx, p.to.ID)
}

// withKnownChallenges leaves out the parts that seem to bring a challenge back and do not.
func (s *Service) withKnownChallenges(ctx context.Context, a channel.Adapter, list []routed) ([]routed, error) {
	var kept []routed
	for _, p := range list {
		if p.challenge != "" {
			known, err := s.connections.IsChallenge(ctx, a.Info().Medium, p.to.Address, p.challenge)
			if err != nil {
				return nil, err
			}
			if !known {
				continue
			}
		}
		kept = append(kept, p)
	}
	return kept, nil
}

// minSecret is the length from which a secret of the deployment is looked for, in bytes.
const minSecret = 8

// secretEncodings returns secrets as headers and URLs may have them.
func secretEncodings(secrets []string) []string {
	var list []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			list = append(list, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}
	return list
}

// withoutSecrets returns req without the deployment's secrets of its channel, wherever
// headers and URL have them: a proxy may copy the URL with its token into a header. The
// request is stored for an organization.
func (s *Service) withoutSecrets(a channel.Adapter, req *channel.Request) *channel.Request {
	shown := req
	for _, secret := range s.secretEncodings[a.Info().Name] {
		if strings.Contains(shown.URL, secret) {
			shown = new(*shown)
			shown.URL = strings.ReplaceAll(shown.URL, secret, url.QueryEscape(notStored))
		}
		for name, values := range shown.Header {
			if slices.ContainsFunc(values, func(value string) bool { return strings.Contains(value, secret) }) {
				shown = new(*shown)
				shown.Header = shown.Header.Clone()
				for i, value := range values {
					shown.Header[name][i] = strings.ReplaceAll(value, secret, notStored)
				}
			}
		}
	}
	return shown
}

func newEvent(a channel.Adapter, req *channel.Request, p routed) *Event {
	body := p.Body
	if body == nil {
		body = req.Body
	}
	e := &Event{
		ID: queue.NewID(), Channel: a.Info().Name, VerifiedBy: p.by, State: Accepted,
		Key: keyText(p.Key), Kind: clean(p.Kind, maxKey), Sender: clean(p.Sender, maxKey), Address: clean(p.Address, maxKey),
		URL: urlText(req.URL), Header: req.Header, Body: body, Size: int64(len(body)), ReceivedAt: req.Received,
	}
	if p.to != nil {
		e.ConnectionID, e.OrganizationID = p.to.ID, p.to.OrganizationID
	}
	e.prepared = prepared{e.fingerprint(), headerText(e.Header)}
	return e
}

// keyText is the stored form of a key. One that does not fit stands by its
// digest, so that it stays unlike others.
func keyText(key string) string {
	if stored := clean(key, maxKey); stored == key {
		return stored
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// assignRoute gives an event that no connection claims to the default organization, or
// leaves it unrouted. What is the deployment's own goes to neither.
func (s *Service) assignRoute(ctx context.Context, e *Event, r route) error {
	if r.to != nil || s.isDeployment(e) {
		return nil
	}
	e.OrganizationID, e.State = "", Unrouted
	if r.unavailable {
		return nil
	}
	var id string
	var ok bool
	var err error
	if a := s.byName[e.Channel]; s.formerOwner != nil && a.Info().AcceptWhenDisabled {
		if id, ok, err = s.formerOwner(ctx, s.db, e.Address); err != nil {
			return fmt.Errorf("find who had the address: %w", err)
		}
	}
	if !ok {
		if id, ok, err = s.defaultOrganization(ctx, s.db); err != nil {
			return err
		}
	}
	if ok {
		e.OrganizationID, e.State = id, Accepted
	}
	return nil
}

// autoReply is the setting of a connection that holds what a first message is
// answered with.
const autoReply = "auto_reply"

// autoReplyText returns the text to answer with if this is the sender's first
// contact: the connection's setting auto_reply.
func (s *Service) autoReplyText(ctx context.Context, a channel.Adapter, req *channel.Request, list []routed) (string, error) {
	p := list[0]
	if _, ok := a.(channel.Acknowledger); !ok || len(list) > 1 || p.to == nil || p.Sender == "" {
		return "", nil
	}
	text := p.to.Settings[autoReply]
	if text == "" {
		return "", nil
	}
	// Somebody who says STOP must not hear from us.
	parsed, err := a.Parse(req, p.Part)
	if err != nil || parsed.Message == nil || parsed.Message.Outbound || parsed.Message.OptOut {
		return "", nil // an error is for the worker to find
	}
	known, err := s.desk.HasThread(ctx, s.db, p.to.ID, p.Sender)
	if err != nil {
		return "", fmt.Errorf("look for earlier messages: %w", err)
	}
	if known {
		return "", nil
	}
	return text, nil
}

// insert stores an event, with a job if it is accepted. It reports whether the
// event is new; if not, nothing was done.
func (s *Service) insert(ctx context.Context, tx *db.Tx, e *Event) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO inbound_events
		(id, fingerprint, organization_id, connection_id, channel, external_key, kind, sender, address, verified_by, state,
		error, received_at, body_size, body_key, url, headers, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
		ON CONFLICT (fingerprint) DO NOTHING`,
		e.ID, e.prepared.fingerprint, db.Text(e.OrganizationID), e.ConnectionID, e.Channel, e.Key, e.Kind, e.Sender, e.Address, e.VerifiedBy, string(e.State),
		db.Text(e.Error), e.ReceivedAt.UnixMicro(), e.Size, db.Text(e.bodyKey), e.URL, e.prepared.header, e.Body)
	if err == nil && n > 0 && e.State == Unrouted {
		tx.AfterCommit(func() { s.logUnrouted(context.WithoutCancel(ctx), e) })
	}
	if err != nil || n == 0 || e.State != Accepted {
		return n > 0, err
	}
	return true, s.enqueue(ctx, tx, e)
}

// enqueue has an event processed. The job's id is the event's, so there is only
// ever one, and those of a lane run in the order in which requests came.
func (s *Service) enqueue(ctx context.Context, tx *db.Tx, e *Event) error {
	return s.queue.Enqueue(ctx, tx, queue.New{ID: e.ID, Kind: jobKind(e.Channel), Lane: e.lane()})
}

// storeRejected keeps a verified request that cannot be read, once, for people
// to look at.
func (s *Service) storeRejected(ctx context.Context, a channel.Adapter, req *channel.Request, v verified, cause error) error {
	sum := sha256.Sum256(req.Body)
	p := routed{Part: channel.Part{Key: kindUnreadable + ":" + hex.EncodeToString(sum[:]), Kind: kindUnreadable}}
	for _, c := range v.candidates {
		if v.isVerified(c) {
			p.route = v.to(c)
			break
		}
	}
	if p.to == nil {
		p.by = verifiedBy(byDeployment, v.deployment)
	}
	e := newEvent(a, s.withoutSecrets(a, req), p)
	if err := s.assignRoute(ctx, e, p.route); err != nil {
		return err
	}
	e.State, e.Error = Rejected, reason(cause)
	shelved, err := s.storeBodies(ctx, []routed{p}, []*Event{e})
	if err != nil {
		return err
	}
	fresh := false
	used := newTokenUse(a, req, &v)
	err = s.db.Write(ctx, func(tx *db.Tx) (err error) {
		if err := used.recordTx(ctx, tx); err != nil {
			return err
		}
		fresh, err = s.insert(ctx, tx, e)
		return err
	})
	if errors.Is(err, errUsedToken) {
		s.deleteBodies(ctx, shelved)
	}
	if err != nil {
		return fmt.Errorf("store rejected request: %w", err)
	}
	if !fresh {
		s.deleteBodies(ctx, shelved)
	}
	return nil
}

// deleteBodies deletes shelved bodies that nothing names.
func (s *Service) deleteBodies(ctx context.Context, keys []string) {
	for _, key := range keys {
		if err := s.blob.Delete(ctx, key); err != nil {
			s.log.WarnContext(ctx, "a body that nothing needs could not be deleted", "blob", key, "error", err)
		}
	}
}
