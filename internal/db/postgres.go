package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// idlePostgres is the time after which an unused connection is closed.
const idlePostgres = 5 * time.Minute

func (d *DB) openPostgres(ctx context.Context, rawURL string, o Options) error {
	d.engine = postgresEngine
	d.namespace = o.Namespace
	d.server = &serverClock{origin: time.Now()}
	l := cmp.Or(o.limits, defaultLimits)
	cfg, err := parsePostgres(rawURL)
	if err != nil {
		return err
	}
	d.connector = newConnector(cfg, o.Namespace, l, d.server)
	if o.DirectURL != "" {
		direct, err := parsePostgres(o.DirectURL)
		if err != nil {
			return fmt.Errorf("for direct connections: %w", err)
		}
		d.direct = newConnector(direct, o.Namespace, l, d.server)
	}
	d.connections = newPool(cmp.Or(o.MaxConns, 24), 0, idlePostgres, d.connector.connectAdmitted, (*postgresConn).close)
	if err := d.readClock(ctx); err != nil {
		d.connections.Close()
		return fmt.Errorf("connect to postgres at %s: %w", d.connector.where(), err)
	}
	if o.Namespace == "" {
		return nil
	}
	// Without its search_path, a database would share the tables of another.
	var got string
	path := pgx.Identifier{o.Namespace}.Sanitize()
	err = d.QueryRow(ctx, "SELECT current_setting('search_path')").Scan(&got)
	if err == nil && got != path {
		err = fmt.Errorf("connections do not keep their search_path: it is %q, not %q", got, path)
	}
	if err != nil {
		d.connections.Close()
		return fmt.Errorf("use a schema of postgres at %s: %w", d.connector.where(), err)
	}
	return nil
}

func parsePostgres(rawURL string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		// pgx masks the password in its own text, but not in every form.
		return nil, errors.New("the postgres database URL cannot be parsed")
	}
	return cfg, nil
}

// Pooled reports whether a pooler such as pgbouncer is between this process and PostgreSQL.
func (d *DB) Pooled() bool { return d.connector != nil && d.connector.pooled.Load() }

// Listens reports whether [DB.Listen] hears notifications; otherwise it polls.
func (d *DB) Listens() bool { return d.connector == nil || !d.Pooled() || d.direct != nil }

// connector opens connections to PostgreSQL, to the first host that accepts one. Of several
// hosts that is the one that can be written to, unless the URL says otherwise.
//
// A connection belongs to the era in which it was opened. When one connection finds that its
// server is lost or read-only, an era ends: the others are replaced before their next use,
// because they lead to the same server.
type connector struct {
	hosts     []host
	preferred atomic.Int32 // the host to try first: the last that worked
	guard     *guard
	clock     *serverClock

	session   string // statement that begins a session, with %d for its process
	local     string // the settings of sessions for a transaction: "; select …"
	namespace string

	pooled atomic.Bool
	era    atomic.Int64
	ended  atomic.Int64 // time of the last change of era, in nanoseconds since 1970
}

// host is a server to connect to.
type host struct {
	name   string
	direct *pgx.ConnConfig
	// pooled prepares no statements: a pooler hands each transaction to another session.
	pooled *pgx.ConnConfig
}

// errPooled is the result of an attempt to open a session through a pooler.
var errPooled = errors.New("the connection leads to a pooler")

func newConnector(cfg *pgx.ConnConfig, namespace string, l limits, clock *serverClock) *connector {
	l.dial = cmp.Or(cfg.ConnectTimeout, l.dial) // set in the URL
	c := &connector{clock: clock, namespace: namespace}
	c.guard = newGuard(l, c.answers)
	cfg.Tracer = tracer{c.guard, c}
	cfg.OnNotice = noteWarning
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = applicationName
	}
	c.set(cfg)
	servers := byHost(cfg)
	if len(servers) > 1 && cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	for _, s := range servers {
		one := *cfg
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = s[0].Host, s[0].Port, s[0].TLSConfig, s[1:]
		session := one
		if one.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			one.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		c.hosts = append(c.hosts, host{name: one.Host, direct: session.Copy(), pooled: one.Copy()})
	}
	return c
}

// byHost returns the ways to connect, which may be with and without TLS, to each host.
func byHost(cfg *pgx.ConnConfig) (servers [][]*pgconn.FallbackConfig) {
	ways := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for _, way := range ways {
		i := slices.IndexFunc(servers, func(s []*pgconn.FallbackConfig) bool { return s[0].Host == way.Host && s[0].Port == way.Port })
		if i < 0 {
			i, servers = len(servers), append(servers, nil)
		}
		servers[i] = append(servers[i], way)
	}
	return servers
}

// set sets the settings of sessions, which are no connection parameters: poolers refuse those.
func (c *connector) set(cfg *pgx.ConnConfig) {
	values := map[string]string{
		"statement_timeout": fmt.Sprint(c.guard.statement.Milliseconds()),
		"lock_timeout":      fmt.Sprint(c.guard.lock.Milliseconds()),
	}
	if c.namespace != "" {
		values["search_path"] = pgx.Identifier{c.namespace}.Sanitize()
	}
	var rows []string
	for _, name := range []string{"statement_timeout", "lock_timeout", "search_path"} {
		value, ours := values[name]
		if _, given := cfg.RuntimeParams[name]; ours && (!given || name == "search_path") { // not set in the URL
			rows = append(rows, "('"+name+"', '"+strings.ReplaceAll(value, "'", "''")+"')")
		}
	}
	c.session = "SELECT 1 WHERE pg_backend_pid() = %d"
	if len(rows) > 0 {
		list := " FROM (VALUES " + strings.Join(rows, ", ") + ") AS s (name, value)"
		c.local = "; select set_config(name, value, true)" + list
		c.session = "SELECT set_config(name, value, false)" + strings.ReplaceAll(list, "%", "%%") + " WHERE pg_backend_pid() = %d"
	}
}

// begin sets up a new session. A session that is not the one of the connection belongs to a
// pooler, which would keep the settings for other clients.
func (c *connector) begin(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, fmt.Sprintf(c.session, conn.PgConn().PID()), pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.RowsAffected() == 0 {
		err = errPooled
	}
	if err != nil {
		conn.Close(ctx)
	}
	return err
}

// where names the hosts, for errors.
func (c *connector) where() string {
	var names []string
	for _, h := range c.hosts {
		names = append(names, h.name)
	}
	return strings.Join(names, ", ")
}

// connectAdmitted connects, unless the server is known to hang.
func (c *connector) connectAdmitted(ctx context.Context) (*postgresConn, error) {
	if !c.guard.admit() {
		return nil, errHangs
	}
	return c.connect(ctx, c.guard.dial)
}

// connect tries each host, for limit at most.
func (c *connector) connect(ctx context.Context, limit time.Duration) (*postgresConn, error) {
	era := c.era.Load()
	var failed []error
	late := false
	first, count := c.preferred.Load(), int32(len(c.hosts))
	for i := range count {
		n := (first + i) % count
		conn, err := c.connectTo(ctx, c.hosts[n], limit)
		if err == nil {
			c.guard.note(true)
			return &postgresConn{Conn: conn, guard: c.guard, clock: c.clock, connector: c, era: era}, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
		late = late || errors.Is(err, errHangs)
		c.preferred.CompareAndSwap(n, (n+1)%count)
	}
	if late {
		c.guard.note(false)
	}
	return nil, errors.Join(failed...)
}

// connectTo connects to a host, directly or through its pooler.
func (c *connector) connectTo(ctx context.Context, h host, limit time.Duration) (*pgx.Conn, error) {
	limited, cancel := context.WithTimeout(context.WithValue(ctx, connectKey{}, true), limit)
	defer cancel()
	if !c.pooled.Load() {
		conn, err := pgx.ConnectConfig(limited, h.direct)
		if err == nil {
			err = c.begin(limited, conn)
		}
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, errPooled) {
			return nil, connectError(ctx, limited, err)
		}
		c.pooled.Store(true)
	}
	conn, err := pgx.ConnectConfig(limited, h.pooled)
	return conn, connectError(ctx, limited, err)
}

// connectError marks an error by a limit of ours.
func connectError(ctx, limited context.Context, err error) error {
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", errHangs, err)
	}
	return err
}

// answers reports whether a host accepts a connection, or refuses one, within limit.
func (c *connector) answers(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), connectKey{}, true), limit)
	defer cancel()
	h := c.hosts[c.preferred.Load()]
	way := h.direct
	if c.pooled.Load() {
		way = h.pooled
	}
	conn, err := pgx.ConnectConfig(ctx, way)
	if err == nil {
		conn.PgConn().Conn().Close()
	}
	return ctx.Err() == nil
}

// eraPause bounds how often connections are replaced.
const eraPause = time.Second

// newEra ends the era of a connection.
func (c *connector) newEra(of int64) {
	last, now := c.ended.Load(), time.Now().UnixNano()
	if now-last >= int64(eraPause) && c.ended.CompareAndSwap(last, now) {
		c.era.CompareAndSwap(of, of+1)
	}
}

// tracer is the guard of statements, and ends the era of a server that is lost or read-only.
type tracer struct {
	*guard
	c *connector
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (t tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	t.guard.TraceQueryEnd(ctx, conn, data)
	if data.Err != nil && serverGone(data.Err) {
		t.c.newEra(t.c.era.Load())
	}
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (t tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	t.TraceQueryEnd(ctx, conn, pgx.TraceQueryEndData{Err: data.Err})
}

// serverGone reports whether err means that the server of a connection has stopped, or accepts
// no writes any more: after a failover other servers do.
func serverGone(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains([]string{"25006", "57P01", "57P02", "57P03"}, e.Code)
	}
	if isContext(err) {
		return false
	}
	_, network := errors.AsType[*net.OpError](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// warningKey is the key of the last warning in a connection's data.
const warningKey = "kickstand: warning"

// noteWarning stores a warning of the server.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warningKey] = n.Message
	}
}

// postgresConn is a connection to PostgreSQL. It is used by one goroutine at a time.
type postgresConn struct {
	*pgx.Conn
	guard     *guard
	clock     *serverClock
	connector *connector
	era       int64

	queued *pgx.Batch // statements that wait for the next one; nil: none
}

// maxStale bounds the connections that a caller finds to be lost before it gives up.
const maxStale = 3

// acquirePostgres returns a connection that works, as far as is known.
func (d *DB) acquirePostgres(ctx context.Context) (*puddle.Resource[*postgresConn], error) {
	for {
		r, err := d.connections.acquire(ctx)
		if err != nil {
			return nil, err
		}
		c := r.Value()
		if c.valid() && r.IdleDuration() > c.guard.idle {
			// An unanswered ping closes the connection.
			_, _ = c.Exec(ctx, "-- ping", pgx.QueryExecModeSimpleProtocol)
		}
		if c.valid() {
			return r, nil
		}
		r.Destroy()
	}
}

// valid reports whether the connection can be used.
func (c *postgresConn) valid() bool { return c.era == c.connector.era.Load() && !c.IsClosed() }

// close closes the connection without waiting for the server.
func (c *postgresConn) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c.Conn.Close(ended)
}

// beginPostgres begins a transaction, which reads the server's clock in the same round trip.
func (d *DB) beginPostgres(ctx context.Context, snapshot bool) (*puddle.Resource[*postgresConn], time.Time, error) {
	begin := "begin"
	if snapshot {
		begin = "begin isolation level repeatable read read only"
	}
	for tries := 1; ; tries++ {
		r, err := d.acquirePostgres(ctx)
		if err != nil {
			return nil, time.Time{}, err
		}
		c := r.Value()
		statements := begin
		if c.connector.pooled.Load() {
			statements += c.connector.local
		}
		now, err := c.readClock(ctx, statements+"; "+selectClock)
		if err == nil {
			return r, now, nil
		}
		lost := c.IsClosed() && ctx.Err() == nil && !isContext(err)
		r.Destroy()
		if !lost || tries == maxStale {
			return nil, time.Time{}, err
		}
	}
}

// postgresTx returns a transaction that has begun at a time.
func (d *DB) postgresTx(now time.Time, s session) *Tx {
	return &Tx{Now: now, engine: postgresEngine, namespace: d.namespace, ids: d.ids, session: s, observer: d.observer}
}

func (d *DB) readPostgres(ctx context.Context, fn func(tx *Tx) error) error {
	r, now, err := d.beginPostgres(ctx, true)
	if err != nil {
		return err
	}
	c := r.Value()
	defer func() { d.connections.release(r, c.endTransaction(ctx)) }()
	tx := d.postgresTx(now, c)
	defer tx.end() // also after a panic
	if err = tx.setLongTimeouts(ctx); err == nil {
		err = fn(tx)
	}
	if failed := tx.end(); err == nil {
		err = failed
	}
	return err
}

// commit commits the transaction, with the statements that are queued.
func (c *postgresConn) commit(ctx context.Context) error {
	delete(c.PgConn().CustomData(), warningKey)
	tag, err := c.execTag(ctx, "commit", nil)
	switch warning, warned := c.PgConn().CustomData()[warningKey]; {
	case err == nil && warned:
		// A synchronous standby did not confirm in time. If the primary fails now, the
		// transaction is lost.
		return fmt.Errorf("%w: %s", errNotReplicated, warning)
	case err == nil && tag.String() == "ROLLBACK":
		return pgx.ErrTxCommitRollback
	}
	return err
}

// endTransaction rolls a transaction back that was not committed. It reports whether the
// connection is broken.
func (c *postgresConn) endTransaction(ctx context.Context) (broken bool) {
	c.queued = nil
	if !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		if _, err := c.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol); err != nil {
			c.close()
		}
	}
	return c.IsClosed()
}

// usable implements [session].
func (c *postgresConn) usable() error { return nil } // the server checks it

// exec implements [session].
func (c *postgresConn) exec(ctx context.Context, query string, args []any) (int64, error) {
	tag, err := c.execTag(ctx, query, args)
	return tag.RowsAffected(), err
}

func (c *postgresConn) execTag(ctx context.Context, query string, args []any) (pgconn.CommandTag, error) {
	results, err := c.flush(ctx, query, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if results == nil {
		return c.Exec(ctx, query, args...)
	}
	tag, err := results.Exec()
	return tag, cmp.Or(err, results.Close())
}

// maxQueued bounds the statements that wait.
const maxQueued = 64

// queue implements [session].
func (c *postgresConn) queue(ctx context.Context, query string, args []any) error {
	if c.queued != nil && c.queued.Len() == maxQueued {
		_, err := c.exec(ctx, query, args)
		return err
	}
	if c.queued == nil {
		c.queued = new(pgx.Batch)
	}
	c.queued.Queue(query, slices.Clone(args)...)
	return nil
}

// flush sends the queued statements together with another one, whose result is the next to be
// read. If none are queued it does nothing and returns nil; so it does after sending them if
// the other one asks for a mode of its own.
func (c *postgresConn) flush(ctx context.Context, query string, args []any) (pgx.BatchResults, error) {
	batch := c.queued
	if batch == nil {
		return nil, nil
	}
	c.queued = nil
	queued := batch.QueuedQueries
	together := true
	if len(args) > 0 {
		_, mode := args[0].(pgx.QueryExecMode)
		together = !mode
	}
	if together {
		batch.Queue(query, args...)
	}
	results := c.SendBatch(ctx, batch)
	for _, q := range queued {
		if _, err := results.Exec(); err != nil {
			results.Close()
			return nil, &queuedError{abbreviate(q.SQL), err}
		}
	}
	if !together {
		return nil, results.Close()
	}
	return results, nil
}

// queuedError is the error of a statement that was queued before the one that returns it.
type queuedError struct {
	statement string
	err       error
}

func (e *queuedError) Error() string { return e.statement + ": " + e.err.Error() }
func (e *queuedError) Unwrap() error { return e.err }

// abbreviate returns the begin of a statement, for errors.
func abbreviate(query string) string {
	const most = 60
	query = strings.Join(strings.Fields(query), " ")
	if len(query) > most {
		query = query[:most] + "…"
	}
	return query
}

// query implements [session].
func (c *postgresConn) query(ctx context.Context, query string, args []any) (cursor, error) {
	results, err := c.flush(ctx, query, args)
	if err != nil {
		return nil, err
	}
	p := &postgresRows{results: results}
	if results != nil {
		p.Rows, err = results.Query()
	} else {
		p.Rows, err = c.Query(ctx, query, args...)
	}
	if err != nil {
		if results != nil {
			results.Close()
		}
		return nil, err
	}
	// Errors of most statements come with the first row.
	p.ahead = true
	if p.first = p.Rows.Next(); !p.first {
		if err := p.Rows.Err(); err != nil {
			return nil, cmp.Or(p.close(), err)
		}
	}
	return p, nil
}

// postgresRows is the [cursor] of a statement.
type postgresRows struct {
	pgx.Rows
	results pgx.BatchResults // that the rows belong to; nil: none
	ahead   bool             // the first row was read, and next has not returned it
	first   bool             // there is a first row
}

func (p *postgresRows) next() bool {
	if p.ahead {
		p.ahead = false
		return p.first
	}
	return p.Rows.Next()
}

func (p *postgresRows) scan(dest []any) error { return p.Rows.Scan(dest...) }

func (p *postgresRows) columns() []string { return fieldNames(p.FieldDescriptions()) }

func fieldNames(fields []pgconn.FieldDescription) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}

func (p *postgresRows) close() error {
	p.Rows.Close()
	err := p.Rows.Err()
	if p.results != nil {
		if closed := p.results.Close(); err == nil {
			err = closed
		}
	}
	return err
}

// queryPostgres runs a statement outside of any transaction, on another connection if the first
// is lost before it has sent the statement.
func (d *DB) queryPostgres(ctx context.Context, query string, args []any) (*Rows, error) {
	for tries := 1; ; tries++ {
		r, err := d.acquirePostgres(ctx)
		if err != nil {
			return nil, err
		}
		c := r.Value()
		wraps := c.wraps()
		if wraps {
			err = c.control(ctx, "begin"+c.connector.local)
		}
		var rows cursor
		if err == nil {
			rows, err = c.query(ctx, query, args)
		}
		if err != nil {
			d.connections.release(r, c.endTransaction(ctx))
			if pgconn.SafeToRetry(err) && ctx.Err() == nil && tries < maxStale {
				continue
			}
			return nil, err
		}
		return newRows(rows, func(err error) error {
			if wraps && err == nil {
				err = c.control(ctx, "commit")
			}
			d.connections.release(r, c.endTransaction(ctx))
			return d.classify(ctx, err)
		}), nil
	}
}

// wraps reports whether a statement needs a transaction for its search_path: a pooler hands a
// statement outside of a transaction to any session.
func (c *postgresConn) wraps() bool {
	return c.connector.namespace != "" && c.connector.pooled.Load() && c.PgConn().TxStatus() == 'I'
}

// control runs statements that begin or end a transaction.
func (c *postgresConn) control(ctx context.Context, statements string) error {
	_, err := c.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	return err
}
