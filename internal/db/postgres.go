package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
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
	"github.com/jackc/pgx/v5/stdlib"
)

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
	maxConns := cmp.Or(o.MaxConns, 24)
	d.pool = sql.OpenDB(d.connector)
	d.pool.SetMaxOpenConns(maxConns)
	d.pool.SetMaxIdleConns(maxConns)
	d.pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := d.readClock(ctx); err != nil {
		d.pool.Close()
		return fmt.Errorf("connect to postgres at %s: %w", d.connector.where(), err)
	}
	if o.Namespace == "" {
		return nil
	}
	// Without its search_path, a database would share the tables of another.
	var got string
	path := pgx.Identifier{o.Namespace}.Sanitize()
	err = d.pool.QueryRowContext(ctx, "SELECT current_setting('search_path')").Scan(&got)
	if err == nil && got != path {
		err = fmt.Errorf("connections do not keep their search_path: it is %q, not %q", got, path)
	}
	if err != nil {
		d.pool.Close()
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
	direct driver.Connector
	// pooled prepares no statements: a pooler hands each transaction to another session.
	pooled driver.Connector
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
		reuse := []stdlib.OptionOpenDB{stdlib.OptionShouldPing(c.guard.check), stdlib.OptionResetSession(reset)}
		c.hosts = append(c.hosts, host{
			name:   one.Host,
			direct: stdlib.GetConnector(session, append(reuse, stdlib.OptionAfterConnect(c.begin))...),
			pooled: stdlib.GetConnector(one, reuse...),
		})
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

// Driver implements [driver.Connector].
func (c *connector) Driver() driver.Driver { return c.hosts[0].direct.Driver() }

// where names the hosts, for errors.
func (c *connector) where() string {
	var names []string
	for _, h := range c.hosts {
		names = append(names, h.name)
	}
	return strings.Join(names, ", ")
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if !c.guard.admit() {
		return nil, errHangs
	}
	conn, err := c.connect(ctx, c.guard.dial)
	if conn == nil { // not an interface with a nil pointer
		return nil, err
	}
	return conn, nil
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
			return &postgresConn{Conn: conn.(*stdlib.Conn), guard: c.guard, clock: c.clock, connector: c, era: era}, nil
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
func (c *connector) connectTo(ctx context.Context, h host, limit time.Duration) (driver.Conn, error) {
	limited, cancel := context.WithTimeout(context.WithValue(ctx, connectKey{}, true), limit)
	defer cancel()
	if !c.pooled.Load() {
		conn, err := h.direct.Connect(limited)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, errPooled) {
			return nil, connectError(ctx, limited, err)
		}
		c.pooled.Store(true)
	}
	conn, err := h.pooled.Connect(limited)
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
	conn, err := way.Connect(ctx)
	if err == nil {
		conn.(*stdlib.Conn).Conn().PgConn().Conn().Close()
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

// postgresConn is a connection to PostgreSQL whose transactions begin with a reading of the
// server's clock, in one round trip.
type postgresConn struct {
	*stdlib.Conn
	guard     *guard
	clock     *serverClock
	connector *connector
	era       int64
}

// ResetSession implements [driver.SessionResetter].
func (c *postgresConn) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return c.Conn.ResetSession(ctx)
}

// IsValid implements [driver.Validator].
func (c *postgresConn) IsValid() bool {
	return c.era == c.connector.era.Load() && !c.Conn.Conn().IsClosed()
}

// wraps reports whether a statement needs a transaction for its search_path: a pooler hands a
// statement outside of a transaction to any session.
func (c *postgresConn) wraps() bool {
	return c.connector.namespace != "" && c.connector.pooled.Load() && c.Conn.Conn().PgConn().TxStatus() == 'I'
}

// ExecContext implements [driver.ExecerContext].
func (c *postgresConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !c.wraps() {
		return c.Conn.ExecContext(ctx, query, args)
	}
	if err := c.control(ctx, "begin"+c.connector.local); err != nil {
		return nil, err
	}
	result, err := c.Conn.ExecContext(ctx, query, args)
	return result, cmp.Or(err, c.control(ctx, "commit")) // which rolls back after an error
}

// QueryContext implements [driver.QueryerContext].
func (c *postgresConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.wraps() {
		return c.Conn.QueryContext(ctx, query, args)
	}
	if err := c.control(ctx, "begin"+c.connector.local); err != nil {
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, query, args)
	if err != nil {
		c.control(ctx, "rollback")
		return nil, err
	}
	return wrappedRows{rows.(*stdlib.Rows), c, ctx}, nil
}

// control runs statements that begin or end a transaction.
func (c *postgresConn) control(ctx context.Context, statements string) error {
	_, err := c.Conn.Conn().Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		c.close()
	}
	return err
}

// wrappedRows are the rows of a statement in a transaction of its own.
type wrappedRows struct {
	*stdlib.Rows
	c   *postgresConn
	ctx context.Context
}

// Close implements [driver.Rows].
func (r wrappedRows) Close() error {
	return cmp.Or(r.Rows.Close(), r.c.control(r.ctx, "commit"))
}
