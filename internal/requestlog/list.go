package requestlog

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Query selects requests of an organization, by one key or by all keys of a service and
// environment.
type Query struct {
	KeyID                string // empty: of Service and Environment
	Service, Environment string // both or, with a KeyID, none
	Failed               bool   // only errors
	Code                 string // of the problem; empty: any
	Before               string // id; for the next page
	Limit                int    // 0: all
}

// where returns the query's condition and its arguments.
func (q *Query) where(organizationID string) (condition string, args []any) {
	condition = "r.organization_id = $1"
	args = []any{organizationID}
	add := func(term string, value any) {
		args = append(args, value)
		condition += " AND " + term + " $" + strconv.Itoa(len(args))
	}
	if q.KeyID != "" {
		add("r.key_id =", q.KeyID)
	}
	if q.Service != "" {
		add("r.service =", q.Service)
		add("r.environment =", q.Environment)
	}
	if q.Failed {
		add("r.failed =", true)
	}
	if q.Code != "" {
		add("r.code =", q.Code)
	}
	if q.Before != "" {
		add("r.id <", q.Before)
	}
	return condition, args
}

const columns = `r.id, r.organization_id, r.service, r.environment, r.key_id, coalesce(k.name, ''), coalesce(k.partial_key, ''), r.request_id,
	r.at, r.duration, r.method, r.path, r.status, r.code, r.address, r.rule, r.needed
	FROM api_requests r LEFT JOIN api_keys k ON k.id = r.key_id`

func scan(row db.Row) (Request, error) {
	var r Request
	var duration int64
	var address string
	err := row.Scan(&r.ID, &r.Key.OrganizationID, &r.Key.Service, &r.Key.Environment, &r.Key.ID, &r.Key.Name, &r.Key.PartialKey, &r.RequestID,
		db.IntoTime(&r.At), &duration, &r.Method, &r.Path, &r.Status, &r.Code, &address, &r.Refusal.Rule, &r.Refusal.Needed)
	if err != nil {
		return r, err
	}
	r.Duration = time.Duration(duration) * time.Microsecond
	if address != "" {
		r.Address, err = netip.ParseAddr(address)
	}
	return r, err
}

// List returns requests, newest first. The name of a key is its current one.
func (l *Log) List(ctx context.Context, organizationID string, q Query) ([]Request, error) {
	condition, args := q.where(organizationID)
	if q.Limit > 0 {
		args = append(args, q.Limit)
		condition += " ORDER BY r.id DESC LIMIT $" + strconv.Itoa(len(args))
	} else {
		condition += " ORDER BY r.id DESC"
	}
	list, err := db.All(ctx, l.db, scan, "SELECT "+columns+" WHERE "+condition, args...)
	if err != nil {
		return nil, fmt.Errorf("list requests: %w", err)
	}
	return list, nil
}

// Find returns the request of a query with an id or X-Request-Id; the newest if several have
// it. Without one it is a [problem.NotFound].
func (l *Log) Find(ctx context.Context, organizationID, id string, q Query) (Request, error) {
	condition, args := q.where(organizationID)
	for _, column := range []string{"id", "request_id"} {
		r, err := db.One(ctx, l.db, scan, "SELECT "+columns+" WHERE "+condition+" AND r."+column+" = $"+strconv.Itoa(len(args)+1)+
			" ORDER BY r.id DESC LIMIT 1", append(args, id)...)
		if !errors.Is(err, db.ErrNoRows) {
			return r, err
		}
	}
	return Request{}, problem.New(problem.NotFound, "there is no such request in the log")
}

// Client is a client address that uses a key.
type Client struct {
	Address  string // empty: unknown
	Requests int64  // of those in the log
	Last     time.Time
}

// Clients returns the addresses with accepted requests of a key since a time, as far as the
// log has them, the most recent first.
func (l *Log) Clients(ctx context.Context, keyID string, since time.Time) ([]Client, error) {
	list, err := db.All(ctx, l.db, func(row db.Row) (Client, error) {
		var c Client
		err := row.Scan(&c.Address, &c.Requests, db.IntoTime(&c.Last))
		return c, err
	}, `SELECT address, count(*), max(at) FROM api_requests WHERE key_id = $1 AND at >= $2
		AND rule NOT IN ('address', 'environment', 'revoked', 'expired') GROUP BY address ORDER BY max(at) DESC, address LIMIT 20`, keyID, since.UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("list clients of a key: %w", err)
	}
	return list, nil
}
