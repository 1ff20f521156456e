package inbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/quota"
)

// Filter selects events. Zero fields do not filter.
type Filter struct {
	States         []State
	OrganizationID string
	ConnectionID   string
	Channel        string
	Before         string    // older than the event with this id
	After          string    // newer than the event with this id
	From, To       time.Time // received at or after From and before To
	Limit          int       // default 50, maximum 1000
}

// List returns the selected events without headers and bodies, newest first.
// It returns Invalid for an unknown channel.
func (s *Service) List(ctx context.Context, f Filter) ([]*StoredEvent, error) {
	if err := s.checkFilter(&f); err != nil {
		return nil, err
	}
	return list(ctx, s.db, f, newestFirst)
}

// checkFilter normalizes the channel of a filter and rejects an unknown one.
func (s *Service) checkFilter(f *Filter) error {
	f.Channel = channel.AdapterName(f.Channel)
	if f.Channel == "" || s.byName[f.Channel] != nil {
		return nil
	}
	var v problem.Validation
	v.Add("channel", "must be one of %s", strings.Join(s.Channels(), ", "))
	return v.Err()
}

// Channels returns the names of all adapters, sorted.
func (s *Service) Channels() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Each calls fn with each selected event in the form and order of [Service.List], all from one snapshot.
// It ignores f.Before and f.Limit. An error of fn stops it and is returned. It runs for at most
// [keyset.MaxExport].
func (s *Service) Each(ctx context.Context, f Filter, fn func(*StoredEvent) error) error {
	if err := s.checkFilter(&f); err != nil {
		return err
	}
	f.Limit = keyset.ExportPage
	return keyset.Export(ctx, s.db, func(ctx context.Context, tx *db.Tx) error {
		each := func(e **StoredEvent) error { return fn(*e) }
		return keyset.EachPage("inbound events", each, func(before string) ([]*StoredEvent, string, error) {
			f.Before = before
			events, err := list(ctx, tx, f, newestFirst)
			if err != nil || len(events) < f.Limit {
				return events, "", err
			}
			return events, events[f.Limit-1].ID, nil
		})
	})
}

// The orders of list.
const (
	newestFirst = "DESC"
	oldestFirst = "ASC"
)

func list(ctx context.Context, q db.Querier, f Filter, order string) ([]*StoredEvent, error) {
	var where []string
	var args []any
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, strings.ReplaceAll(condition, "?", "$"+strconv.Itoa(len(args))))
	}
	if len(f.States) > 0 {
		waiting := true
		states := make([]string, len(f.States))
		for i, state := range f.States {
			states[i] = string(state)
			waiting = waiting && (state == Unrouted || state == Rejected || state == Dead)
		}
		add("state = ANY(?)", states)
		if waiting {
			// Redundant, but enables the partial index of these states.
			where = append(where, "state IN ('unrouted', 'rejected', 'dead')")
		}
	}
	for _, c := range []struct{ column, value string }{
		{"organization_id", f.OrganizationID}, {"connection_id", f.ConnectionID}, {"channel", f.Channel},
	} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.Before != "" {
		add("id < ?", f.Before)
	}
	if f.After != "" {
		add("id > ?", f.After)
	}
	if !f.From.IsZero() {
		// Ids are generated after receipt.
		add("id >= ?", minID(f.From.Add(-maxClockSkew)))
		add("received_at >= ?", f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		add("received_at < ?", f.To.UnixMicro())
	}
	query := "SELECT " + summaryColumns + " FROM inbound_events"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	args = append(args, min(limit, 1000))
	return db.All(ctx, q, scanSummary, query+" ORDER BY id "+order+" LIMIT $"+strconv.Itoa(len(args)), args...)
}

// maxClockSkew bounds the difference between the time in an id and that of the receipt. Ids of
// previous versions have the time of the process's clock.
const maxClockSkew = db.SkewRefuse + time.Minute

// Find returns an event with headers and body, or NotFound.
func (s *Service) Find(ctx context.Context, id string) (*StoredEvent, error) {
	id = clean(id, maxKey)
	e, err := s.load(ctx, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil, problem.New(problem.NotFound, "there is no inbound event %s", id)
	}
	if err != nil {
		return nil, fmt.Errorf("load event: %w", err)
	}
	if err := s.loadBody(ctx, e); err != nil {
		return nil, err
	}
	return e, nil
}

// FindOf is [Service.Find] restricted to one organization; other events are NotFound.
func (s *Service) FindOf(ctx context.Context, organizationID, id string) (*StoredEvent, error) {
	e, err := s.Find(ctx, id)
	if err == nil && e.OrganizationID != organizationID {
		return nil, problem.New(problem.NotFound, "there is no inbound event %s", e.ID)
	}
	return e, err
}

// Replay processes an event again, or for the first time. An unrouted event needs a connection
// for its address by now. An unreadable request is split again into new events. The desk
// ignores messages it already has. Replay returns the updated event; an event that is still
// queued is a Conflict.
func (s *Service) Replay(ctx context.Context, id string) (*StoredEvent, error) {
	e, err := s.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	switch {
	case e.State == Accepted:
		return nil, &problem.Error{Kind: problem.Conflict, Code: "invalid_transition", Message: "the event is already queued"}
	case e.URL == "":
		return nil, problem.New(problem.Precondition, "event %s was redacted by a privacy request and cannot be replayed", e.ID)
	case e.Kind == kindChallenge:
		return nil, problem.New(problem.Precondition, "event %s is the challenge of a proof and cannot be replayed", e.ID)
	case e.Kind == kindUnreadable:
		err = s.resplit(ctx, e)
	case e.OrganizationID == "" && !s.isDeployment(e):
		err = s.reroute(ctx, e)
	default:
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			if err := s.accept(ctx, tx, e); err != nil {
				return err
			}
			return s.recordTx(ctx, tx, AuditReplayed, e, nil)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("replay event: %w", err)
	}
	return s.Find(ctx, id)
}

// isDeployment reports whether an event belongs to a deployment channel, which has no routing.
func (s *Service) isDeployment(e *StoredEvent) bool {
	a, ok := s.byName[e.Channel]
	return ok && a.Info().Deployment
}

// Route assigns an unrouted event to a connection and enqueues it.
func (s *Service) Route(ctx context.Context, id, connectionID string) (*StoredEvent, error) {
	e, err := s.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	connectionID = clean(connectionID, maxKey)
	c, err := s.connections.Find(ctx, connectionID)
	if errors.Is(err, db.ErrNoRows) {
		return nil, problem.New(problem.NotFound, "there is no connection %s", connectionID)
	}
	if err != nil {
		return nil, fmt.Errorf("find connection: %w", err)
	}
	a, ok := s.byName[e.Channel]
	if !ok || !servesChannel(a.Info(), c.Channel) {
		return nil, problem.New(problem.Precondition, "the connection's channel is %s, but the event's is %s", c.Channel, e.Channel)
	}
	return s.assign(ctx, e, c.ID, c.OrganizationID)
}

// RouteTo assigns an unrouted event to an organization without a connection and enqueues it.
// The organization must exist.
func (s *Service) RouteTo(ctx context.Context, id, organizationID string) (*StoredEvent, error) {
	e, err := s.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.assign(ctx, e, "", organizationID)
}

func (s *Service) assign(ctx context.Context, e *StoredEvent, connectionID, organizationID string) (*StoredEvent, error) {
	switch {
	case e.State == Rejected && e.Kind == kindUnreadable:
		return nil, problem.New(problem.Precondition, "the event could not be read; replay it, then route the resulting events")
	case e.State != Unrouted:
		return nil, problem.New(problem.Precondition, "only unrouted events can be routed; this one is %s", e.State)
	}
	if err := s.db.Write(ctx, func(tx *db.Tx) error { return s.move(ctx, tx, e, connectionID, organizationID) }); err != nil {
		return nil, fmt.Errorf("route event: %w", err)
	}
	return s.Find(ctx, e.ID)
}

// accept enqueues an event unless it has changed since it was read.
func (s *Service) accept(ctx context.Context, tx *db.Tx, e *StoredEvent) error {
	n, err := tx.Exec(ctx, `UPDATE inbound_events SET state = 'accepted', error = NULL, processed_at = NULL
		WHERE id = $1 AND state = $2`, e.ID, string(e.State))
	if err != nil {
		return err
	}
	if n == 0 {
		return errChanged()
	}
	return s.enqueue(ctx, tx, e)
}

func errChanged() error {
	return &problem.Error{Kind: problem.Conflict, Code: "invalid_transition", Message: "the event has changed; reload it and try again"}
}

// reroute assigns an event to the connection that now has its address, or to the default
// organization.
func (s *Service) reroute(ctx context.Context, e *StoredEvent) error {
	c, taken, err := s.connectionAt(ctx, e)
	if err != nil {
		return err
	}
	connectionID, now := "", *e
	if c != nil {
		connectionID, now.OrganizationID = c.ID, c.OrganizationID
	} else if err := s.assignRoute(ctx, &now, route{unavailable: taken}); err != nil {
		return err
	}
	if now.OrganizationID == "" {
		return problem.New(problem.Precondition, "no connection of %s has the address %q", e.Channel, e.Address)
	}
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.move(ctx, tx, e, connectionID, now.OrganizationID) })
}

// connectionAt returns the proven connection at an event's address, if its channel accepts
// requests for it.
func (s *Service) connectionAt(ctx context.Context, e *StoredEvent) (c *connection.Connection, taken bool, err error) {
	a, ok := s.byName[e.Channel]
	if !ok {
		return nil, false, fmt.Errorf("channel %q is not part of this program", e.Channel)
	}
	list, err := s.connections.FindByAddresses(ctx, a.Info().TicketChannel, []string{e.Address})
	if err != nil || len(list) == 0 || !list[0].Proven() {
		return nil, false, err // unproven connections receive none of it
	}
	if c := list[0]; accepts(a.Info(), c) {
		return c, false, nil
	}
	return nil, true, nil
}

// move assigns an event to an organization and enqueues it. If the organization already has the
// same event, the outcome is duplicate.
func (s *Service) move(ctx context.Context, tx *db.Tx, e *StoredEvent, connectionID, organizationID string) error {
	now := *e
	now.ConnectionID, now.OrganizationID = connectionID, organizationID
	var same string
	err := tx.QueryRow(ctx, "SELECT id FROM inbound_events WHERE fingerprint = $1 AND id <> $2", now.fingerprint(), e.ID).Scan(&same)
	if err == nil {
		return e.recordOutcome(ctx, tx, Processed, map[string]string{"outcome": "duplicate", "event_id": same}, "")
	}
	if !errors.Is(err, db.ErrNoRows) {
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE inbound_events SET connection_id = $3, organization_id = $4, fingerprint = $5 WHERE id = $1 AND state = $2",
		e.ID, string(e.State), connectionID, organizationID, now.fingerprint())
	if err != nil {
		return err
	}
	if n == 0 {
		return errChanged()
	}
	if err := s.countBody(ctx, tx, &now); err != nil {
		return err
	}
	if err := s.recordTx(ctx, tx, AuditRouted, &now, map[string]any{"connection": connectionID}); err != nil {
		return err
	}
	return s.accept(ctx, tx, &now)
}

// resplit splits a stored unreadable request again.
func (s *Service) resplit(ctx context.Context, e *StoredEvent) error {
	a, ok := s.byName[e.Channel]
	if !ok {
		return fmt.Errorf("channel %q is not part of this program", e.Channel)
	}
	req := e.request()
	parts, err := a.Split(req)
	if errors.Is(err, channel.ErrUnreadable) {
		return problem.New(problem.Precondition, "the request still cannot be read: %s", reason(err)).Because(err)
	}
	if err != nil {
		return err
	}
	addresses, err := a.Addresses(req)
	if err != nil {
		return err
	}
	v, err := s.restoreVerification(ctx, a, e, addresses)
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(v.route(readChallenges(a, req, parts)), func(p routed) bool { return p.Skip })
	events := make([]*StoredEvent, len(list))
	ids := make([]string, len(list))
	for i, p := range list {
		events[i] = s.newEvent(a, req, p)
		events[i].VerifiedBy = e.VerifiedBy
		if err := s.assignRoute(ctx, events[i], p.route); err != nil {
			return err
		}
		ids[i] = events[i].ID
	}
	shelved, err := s.storeBodies(ctx, list, events)
	if err != nil {
		return err
	}
	var needed map[string]bool // bodies in the blob store that events refer to
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		needed = make(map[string]bool)
		for _, part := range events {
			fresh, err := s.insert(ctx, tx, part)
			if err != nil {
				return err
			}
			if fresh {
				needed[part.bodyKey] = true
			}
		}
		if err := s.recordTx(ctx, tx, AuditReplayed, e, map[string]any{"parts": len(ids)}); err != nil {
			return err
		}
		return e.recordOutcome(ctx, tx, Processed, map[string]any{"outcome": "split", "event_ids": ids}, "")
	})
	if err == nil {
		s.deleteBodies(ctx, slices.DeleteFunc(shelved, func(key string) bool { return needed[key] }))
	}
	return err
}

// restoreVerification rebuilds the verification of a stored request from VerifiedBy, because
// its credentials were not stored.
func (s *Service) restoreVerification(ctx context.Context, a channel.Adapter, e *StoredEvent, addresses []string) (verified, error) {
	v := verified{claimed: addresses}
	if strings.HasPrefix(e.VerifiedBy, byDeployment) {
		v.deployment = 1
	}
	if connectionID(e.request()) != "" && e.ConnectionID != "" {
		c, err := s.connections.ByID(ctx, e.ConnectionID)
		if err != nil {
			return v, fmt.Errorf("look up connection: %w", err)
		}
		if c == nil || !accepts(a.Info(), c) {
			return v, problem.New(problem.Precondition, "the connection of the request is disabled or was removed")
		}
		v.named, v.candidates = true, []candidate{{c, 1, true}}
		return v, nil
	}
	at, err := s.connections.FindByAddresses(ctx, a.Info().TicketChannel, addresses)
	if err != nil {
		return v, fmt.Errorf("look up connections: %w", err)
	}
	for _, c := range at {
		switch {
		case !c.Proven() && c.ID != e.ConnectionID:
		case !accepts(a.Info(), c):
			v.unavailable = append(v.unavailable, c.Address)
		case c.ID == e.ConnectionID:
			v.candidates = append(v.candidates, candidate{c, 1, c.Proven()})
		default:
			v.candidates = append(v.candidates, candidate{c, 0, true})
		}
	}
	return v, nil
}

// purgeBatch is the number of rows per delete, which bounds its lock time.
const purgeBatch = 500

// Purge deletes events received before a time, except pending ones, and replay tokens that are
// no longer valid. Events that wait for review are deleted, too. It returns the number of
// events.
func (s *Service) Purge(ctx context.Context, before time.Time) (int, error) {
	if err := s.PurgeTokens(ctx); err != nil {
		return 0, err
	}
	total := 0
	err := db.Steps(ctx, func() (more bool, err error) {
		n, bodies, err := s.deleteBatch(ctx, before)
		total += n
		for _, key := range bodies {
			if err == nil {
				err = s.deleteUnusedBody(ctx, key)
			}
		}
		return n > 0, err
	})
	return total, err
}

// deleteBatch deletes one batch and returns the blob keys of its bodies.
func (s *Service) deleteBatch(ctx context.Context, before time.Time) (n int, bodies []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		bodies = nil
		list, err := db.All(ctx, tx, scanBody, `DELETE FROM inbound_events WHERE id IN (
			SELECT id FROM inbound_events WHERE id < $1 AND state <> 'accepted' ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING body_key, `+countedBody, minID(before), purgeBatch)
		n = len(list)
		for _, b := range list {
			s.quotas.AddStorageTx(ctx, tx, b.organizationID, -b.counted, quota.Counted)
			if b.key != "" {
				bodies = append(bodies, b.key)
			}
		}
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("delete old events: %w", err)
	}
	return n, bodies, nil
}

// deleteUnusedBody deletes a body that no event refers to any more. It belongs to one request,
// so no new reference can appear meanwhile.
func (s *Service) deleteUnusedBody(ctx context.Context, key string) error {
	var left int
	if err := s.db.QueryRow(ctx, "SELECT count(*) FROM inbound_events WHERE body_key = $1", key).Scan(&left); err != nil {
		return fmt.Errorf("count the events of a body: %w", err)
	}
	if left > 0 {
		return nil
	}
	return s.blob.Delete(ctx, key)
}

// minID returns the lowest UUIDv7 at t.
func minID(t time.Time) string {
	ms := uint64(t.UnixMilli())
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", uint32(ms>>16), uint16(ms))
}
