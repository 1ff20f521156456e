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
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// store stores the parts of a verified request and enqueues them, in one transaction. The
// provider delivers a non-empty reply.
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
		s.log.InfoContext(ctx, "a verified request has no recipient here", "channel", a.Info().Name, "parts", len(parts))
		return channel.Ignored, "", nil
	}
	greeting, err := s.autoReplyText(ctx, a, req, list)
	if err != nil {
		return "", "", err
	}
	events := make([]*StoredEvent, len(list))
	shown := s.withoutSecrets(a, req)
	for i, p := range list {
		events[i] = s.newEvent(a, shown, p)
		if err := s.assignRoute(ctx, events[i], p.route); err != nil {
			return "", "", err
		}
	}
	shelved, err := s.storeBodies(ctx, list, events)
	if err != nil {
		return "", "", err
	}
	var stored storedRequest
	write := func(tx *db.Tx) error {
		if err := used.recordTx(ctx, tx); err != nil {
			return err
		}
		var err error
		stored, err = s.storeParts(ctx, tx, a, events, list, greeting)
		return err
	}
	if used == nil {
		err = s.db.WriteGrouped(ctx, events[0].ConnectionID, write)
	} else { // it fails if the token was used, so it would fail others
		err = s.db.Write(ctx, write)
	}
	if errors.Is(err, errUsedToken) {
		s.deleteBodies(ctx, shelved)
	}
	if err != nil {
		return "", "", fmt.Errorf("store event: %w", err)
	}
	s.deleteBodies(ctx, slices.DeleteFunc(shelved, func(key string) bool { return stored.bodies[key] }))
	return stored.outcome, stored.reply, nil
}

// storedRequest is the result of storeParts.
type storedRequest struct {
	outcome channel.Outcome
	reply   string
	bodies  map[string]bool // in the blob store, that new events refer to
}

// storeParts stores the parts of a request. greeting is the reply to a new sender; empty:
// none.
func (s *Service) storeParts(ctx context.Context, tx *db.Tx, a channel.Adapter, events []*StoredEvent, list []routed, greeting string) (storedRequest, error) {
	r := storedRequest{outcome: channel.Ignored, bodies: make(map[string]bool)}
	for i, e := range events {
		part, err := s.storePart(ctx, tx, a, e, &list[i])
		if err != nil {
			return r, err
		}
		if part.fresh {
			r.bodies[e.bodyKey] = true
		}
		switch {
		case part.skipped, e.State == Unrouted && !part.challenge:
		case part.fresh:
			r.outcome = channel.Accepted
		case r.outcome == channel.Ignored:
			r.outcome = channel.Duplicate
		}
		if !part.fresh || part.challenge || greeting == "" {
			continue
		}
		first, err := recordGreeting(ctx, tx, e)
		if err != nil {
			return r, err
		}
		if first {
			r.reply = greeting
		}
	}
	return r, nil
}

// storedPart is the result of storePart.
type storedPart struct {
	fresh     bool // it was not stored before
	challenge bool // it answered a challenge
	skipped   bool // it is not to be stored
}

// storePart stores a part, and applies it if it answers a challenge.
func (s *Service) storePart(ctx context.Context, tx *db.Tx, a channel.Adapter, e *StoredEvent, p *routed) (r storedPart, err error) {
	if err := s.recordShared(ctx, tx, a, p); err != nil {
		return r, err
	}
	returned, challenge, err := s.matchChallenge(ctx, tx, a, e, p)
	if err != nil {
		return r, err
	}
	r.challenge, r.skipped = challenge, !challenge && p.Skip
	if r.skipped {
		return r, nil
	}
	if challenge {
		e = new(*e)
		e.State, e.Kind = Processed, kindChallenge
	}
	if r.fresh, err = s.insert(ctx, tx, e); err != nil || !r.fresh || !challenge {
		return r, err
	}
	return r, e.recordOutcome(ctx, tx, Processed, returned, "")
}

// recordGreeting records that the sender of an event gets the automatic reply, and reports
// whether it is the first one.
func recordGreeting(ctx context.Context, tx *db.Tx, e *StoredEvent) (first bool, err error) {
	n, err := tx.Exec(ctx, "INSERT INTO inbound_greetings (connection_id, sender, greeted_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
		e.ConnectionID, e.Sender, tx.Now.UnixMicro())
	return n == 1, err
}

// errUnproven refuses a request for a connection with an unproven address.
var errUnproven = errors.New("the connection's address is not proven")

// matchChallenge matches a part's challenge token with a pending proof. known is false for
// parts to be stored as usual.
func (s *Service) matchChallenge(ctx context.Context, tx *db.Tx, a channel.Adapter, e *StoredEvent, p *routed) (r connection.ChallengeResult, known bool, err error) {
	if p.challenge == "" {
		return r, false, nil
	}
	id := ""
	if p.to != nil {
		id = p.to.ID
	}
	return s.connections.ApplyReturnedTokenTx(ctx, tx, a.Info().TicketChannel, e.Address, p.challenge, id)
}

// recordShared records that the deployment's secret verified a request for the part's
// connection; see [Service.trustsUnsignedRecipient].
func (s *Service) recordShared(ctx context.Context, tx *db.Tx, a channel.Adapter, p *routed) error {
	if _, ok := a.(channel.RecipientChecker); !ok || p.to == nil || p.to.SharesSecret() || !strings.HasPrefix(p.by, byDeployment) {
		return nil
	}
	return s.connections.RecordSharedTx(ctx, tx, p.to.ID)
}

// withKnownChallenges removes parts with an unknown challenge token.
func (s *Service) withKnownChallenges(ctx context.Context, a channel.Adapter, list []routed) ([]routed, error) {
	var kept []routed
	for _, p := range list {
		if p.challenge != "" {
			known, err := s.connections.IsChallenge(ctx, a.Info().TicketChannel, p.to.Address, p.challenge)
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

// minSecret is the length in bytes from which deployment secrets are redacted.
const minSecret = 8

// secretEncodings returns the secrets as they may appear in headers and URLs.
func secretEncodings(secrets []string) []string {
	var list []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			list = append(list, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}
	return list
}

// withoutSecrets returns req with the deployment's secrets of its channel redacted in URL and
// headers, because the request is stored for an organization. A proxy may copy the URL and its
// token into a header.
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

func (s *Service) newEvent(a channel.Adapter, req *channel.Request, p routed) *StoredEvent {
	body := p.Body
	if body == nil {
		body = req.Body
	}
	e := &StoredEvent{
		ID: s.db.NewID(), Channel: a.Info().Name, VerifiedBy: p.by, State: Accepted,
		Key: keyText(p.Key), Kind: clean(p.Kind, maxKey), Sender: clean(p.Sender, maxKey), Address: clean(p.Address, maxKey),
		URL: urlText(req.URL), Header: req.Header, Body: body, Size: int64(len(body)), ReceivedAt: req.Received,
	}
	if p.to != nil {
		e.ConnectionID, e.OrganizationID = p.to.ID, p.to.OrganizationID
	}
	e.prepared = prepared{e.fingerprint(), headerText(e.Header)}
	return e
}

// keyText returns the stored form of a key. Keys that do not fit are replaced by their digest,
// so that they stay unique.
func keyText(key string) string {
	if stored := clean(key, maxKey); stored == key {
		return stored
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// assignRoute assigns an event without a connection to the default organization, or leaves it
// unrouted. Events of deployment channels have neither.
func (s *Service) assignRoute(ctx context.Context, e *StoredEvent, r route) error {
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
			return fmt.Errorf("find the former owner of the address: %w", err)
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

// autoReply is the connection setting with the answer to a customer's first message.
const autoReply = "auto_reply"

// autoReplyText returns the connection's auto_reply if this is the sender's first message, else
// "".
func (s *Service) autoReplyText(ctx context.Context, a channel.Adapter, req *channel.Request, list []routed) (string, error) {
	p := list[0]
	if _, ok := a.(channel.Acknowledger); !ok || len(list) > 1 || p.to == nil || p.Sender == "" {
		return "", nil
	}
	text := p.to.Settings[autoReply]
	if text == "" {
		return "", nil
	}
	// A sender of STOP must not get an answer.
	parsed, err := a.Parse(req, p.Part)
	if err != nil || parsed.Message == nil || parsed.Message.Outbound || parsed.Message.OptOut {
		return "", nil // the worker reports the error
	}
	known, err := s.desk.HasThread(ctx, s.db, p.to.ID, p.Sender)
	if err != nil {
		return "", fmt.Errorf("find earlier messages: %w", err)
	}
	if known {
		return "", nil
	}
	return text, nil
}

// insert stores an event and enqueues it if accepted. It reports whether the event is new; a
// repeated one changes nothing.
func (s *Service) insert(ctx context.Context, tx *db.Tx, e *StoredEvent) (bool, error) {
	counted, err := s.countsBody(ctx, tx, e)
	if err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO inbound_events
		(id, fingerprint, organization_id, connection_id, channel, external_key, kind, sender, address, verified_by, state,
		error, received_at, body_size, body_key, url, headers, body, counted)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (fingerprint) DO NOTHING`,
		e.ID, e.prepared.fingerprint, db.Text(e.OrganizationID), e.ConnectionID, e.Channel, e.Key, e.Kind, e.Sender, e.Address, e.VerifiedBy, string(e.State),
		db.Text(e.Error), e.ReceivedAt.UnixMicro(), e.Size, db.Text(e.bodyKey), e.URL, e.prepared.header, e.Body, counted)
	if err == nil && n > 0 {
		if counted {
			s.quotas.AddStorageTx(ctx, tx, e.OrganizationID, e.Size, quota.Counted)
		}
		if e.State == Unrouted {
			tx.AfterCommit(func() { s.logUnrouted(context.WithoutCancel(ctx), e) })
		}
	}
	if err != nil || n == 0 || e.State != Accepted {
		return n > 0, err
	}
	return true, s.enqueue(ctx, tx, e)
}

// enqueue adds the processing job of an event. The job has the event's id, so it exists at most
// once, and a lane runs in order of receipt.
func (s *Service) enqueue(ctx context.Context, tx *db.Tx, e *StoredEvent) error {
	return s.queue.EnqueueTx(ctx, tx, queue.New{ID: e.ID, Kind: jobKind(e.Channel), Lane: e.lane(), Tenant: e.OrganizationID})
}

// storeRejected stores an unreadable verified request once, for review.
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
	e := s.newEvent(a, s.withoutSecrets(a, req), p)
	if err := s.assignRoute(ctx, e, p.route); err != nil {
		return err
	}
	e.State, e.Error = Rejected, reason(cause)
	shelved, err := s.storeBodies(ctx, []routed{p}, []*StoredEvent{e})
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

// deleteBodies deletes bodies in the blob store that no event refers to.
func (s *Service) deleteBodies(ctx context.Context, keys []string) {
	for _, key := range keys {
		if err := s.blob.Delete(ctx, key); err != nil {
			s.log.WarnContext(ctx, "an unused body could not be deleted", "blob", key, "error", err)
		}
	}
}
