package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// WriteGrouped is [DB.Write] for functions that many callers run at once and that seldom fail.
// On PostgreSQL, functions that wait at the same time share a transaction, as all functions do
// on SQLite: they run at once, and their statements travel together, so that a group takes the
// round trips of one function, one commit, and each row's lock once.
//
// key names a party whose rows several functions change, such as an organization: functions with the
// same key never run in two groups of this process at once. Rows that functions with other keys
// change too must be locked by [Tx.QueryRowInOrder] or before the commit. fn must not wait for
// another function. ctx bounds the wait for the group; later the outcome decides.
//
// If a function fails, its group leaves no changes and each of its functions runs again, alone.
// The same happens if two of them take the same [Tx.Lock] or lock the same row, because locks do
// not exclude the functions of one transaction. Rows that a statement locks are distinguished by
// its first column if that is their id, otherwise by nothing. A function that reads a row to
// change it must lock it: others of its group may change it meanwhile. [Tx.Try] fails in a group.
func (d *DB) WriteGrouped(ctx context.Context, key string, fn func(tx *Tx) error) error {
	if d.engine == sqliteEngine || d.simulator != nil {
		return d.Write(ctx, fn)
	}
	if err := d.fence(); err != nil {
		return err
	}
	defer d.observe("write", time.Now())
	return d.classify(ctx, d.writeGrouped(ctx, key, fn))
}

// QueryRowInOrder is [Tx.QueryRow] for a statement that locks a row which many transactions
// change. In a group it waits until no function has other statements to run; then those of all
// functions run, sorted by order. So groups lock such rows late, and in one order.
func (tx *Tx) QueryRowInOrder(ctx context.Context, order, query string, args ...any) Row {
	if m, ok := tx.session.(*member); ok {
		m.order = order
	}
	return tx.QueryRow(ctx, query, args...)
}

const (
	// maxGrouped bounds the functions of a group.
	maxGrouped = 64
	// groupSlots bounds the groups that run at once in a process.
	groupSlots = 4
)

var (
	// errGroupFailed means that the functions of a group run again, alone.
	errGroupFailed = errors.New("the group of functions has failed")
	errInGroup     = errors.New("Try cannot be used in a group")
	errSameLock    = errors.New("two functions of a group take the same lock")
)

// groups are the functions of [DB.WriteGrouped] that wait, by their keys.
type groups [groupSlots]groupSlot

// groupSlot runs one group after the other.
type groupSlot struct {
	mu      sync.Mutex
	waiting []*member
	running bool
}

func (d *DB) writeGrouped(ctx context.Context, key string, fn func(*Tx) error) error {
	if !d.begin() {
		return errClosed
	}
	defer d.work.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	m := &member{joined: make(chan struct{}), answer: make(chan struct{}, 1)}
	h := fnv.New32a()
	h.Write([]byte(key))
	slot := &d.groups[h.Sum32()%groupSlots]
	slot.add(d, m)
	select {
	case <-m.joined:
	case <-ctx.Done():
		if slot.leave(m) {
			return ctx.Err()
		}
		<-m.joined
	}
	if m.group.refused != nil {
		return m.group.refused
	}
	m.run(fn)
	<-m.group.ended
	err := m.group.err
	if errors.Is(err, errGroupFailed) {
		return d.writePostgres(ctx, fn)
	}
	if err == nil {
		m.tx.committed()
	}
	return err
}

// add adds a function to the next group.
func (s *groupSlot) add(d *DB, m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, m)
	if !s.running {
		s.running = true
		go s.run(d)
	}
}

// leave reports whether a function still waited for its transaction. It will not run then.
func (s *groupSlot) leave(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, m); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	m.left = !m.begun
	return m.left
}

// begin returns the functions that have not left. From now on they cannot.
func (s *groupSlot) begin(members []*member) []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	members = slices.DeleteFunc(members, func(m *member) bool { return m.left })
	for _, m := range members {
		m.begun = true
	}
	return members
}

// run runs groups until no function waits.
func (s *groupSlot) run(d *DB) {
	for {
		runtime.Gosched() // functions whose callers were answered together come together
		s.mu.Lock()
		members := slices.Clone(s.waiting[:min(len(s.waiting), maxGrouped)])
		s.waiting = slices.Delete(s.waiting, 0, len(members))
		s.running = len(members) > 0
		s.mu.Unlock()
		if len(members) == 0 {
			return
		}
		g := &group{db: d, turn: make(chan struct{}, 1), ended: make(chan struct{}), locks: make(map[string]*member), rows: make(map[string]*member)}
		for _, m := range members {
			m.group = g
		}
		g.run(s, members)
	}
}

// group is a transaction of several functions. They run in rounds: all functions run until each
// has ended or waits for a statement; then the group runs these statements in one round trip.
type group struct {
	db      *DB
	conn    *postgresConn
	members []*member
	refused error         // of the begin, once members have joined
	ended   chan struct{} // closed when err is there
	err     error

	locks  map[string]*member // holders of [Tx.Lock], by key
	rows   map[string]*member // those that have locked rows
	anyRow *member            // has locked unknown rows

	turn     chan struct{} // capacity 1: no function runs
	mu       sync.Mutex
	running  int // functions that neither wait nor have ended
	scanning sync.Mutex
	types    *pgtype.Map // for one goroutine at a time, which holds scanning
}

// run begins a transaction, runs the functions and commits.
func (g *group) run(s *groupSlot, members []*member) {
	start, ctx := time.Now(), context.Background() // one caller's end must not end the others
	r, now, err := g.db.beginPostgres(ctx, false)
	if err != nil {
		g.refused = fmt.Errorf("begin: %w", err)
	} else {
		g.conn = r.Value()
		g.types = g.conn.TypeMap()
		defer func() { g.db.connections.release(r, g.conn.endTransaction(ctx)) }()
	}
	if g.members = s.begin(members); len(g.members) == 0 {
		return
	}
	g.running = len(g.members)
	for _, m := range g.members {
		m.tx = g.db.postgresTx(now, m)
		close(m.joined)
	}
	if g.refused == nil {
		if g.err = g.transaction(ctx); g.err == nil {
			g.db.observer.committed(len(g.members), start)
		}
		close(g.ended)
	}
}

// transaction runs the functions, which have begun, and commits. Any error means that nothing
// was committed, as far as is known.
func (g *group) transaction(ctx context.Context) error {
	// Plans of prepared statements may stem from when a table was small.
	err := g.conn.queue(ctx, "SELECT set_config('enable_seqscan', 'off', true)", nil)
	for {
		<-g.turn
		round := g.round()
		if len(round) == 0 {
			break
		}
		if err == nil {
			err = catch(func() error { return g.send(ctx, round) })
		}
		g.mu.Lock()
		g.running = len(round)
		g.mu.Unlock()
		for _, m := range round {
			if err != nil {
				m.result = result{err: errGroupFailed}
			}
			m.answer <- struct{}{}
		}
	}
	if err == nil {
		err = catch(func() error { return g.finish(ctx) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGroupFailed, err)
	}
	if err := g.conn.commit(ctx); err != nil {
		if mustRetry(err) || refused(err) {
			return fmt.Errorf("%w: %w", errGroupFailed, err)
		}
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// refused reports whether the server has refused a statement before the commit, which it does not
// execute then: statements run in order. After another error the commit may have happened.
func refused(err error) bool {
	queued, ok := errors.AsType[*queuedError](err)
	if ok {
		_, ok = errors.AsType[*pgconn.PgError](queued.err)
	}
	return ok
}

// round returns the functions whose statements run next.
func (g *group) round() []*member {
	var now, ordered []*member
	for _, m := range g.members {
		switch {
		case m.waits && m.order == "":
			now = append(now, m)
		case m.waits:
			ordered = append(ordered, m)
		}
	}
	if len(now) == 0 {
		slices.SortStableFunc(ordered, func(a, b *member) int { return cmp.Compare(a.order, b.order) })
		now = ordered
	}
	for _, m := range now {
		m.waits, m.order = false, ""
	}
	return now
}

// send runs the statements of a round, after those that are queued.
func (g *group) send(ctx context.Context, round []*member) error {
	batch := cmp.Or(g.conn.queued, new(pgx.Batch))
	g.conn.queued = nil
	results := make([]*member, 0, 2*len(round)) // by statement; nil: queued
	for range batch.QueuedQueries {
		results = append(results, nil)
	}
	for _, m := range round {
		if m.lock != "" && !lockFor(g.locks, m.lock, m) {
			return errSameLock
		}
		m.lock = ""
		for _, s := range m.queued {
			batch.Queue(s.query, s.args...)
			results = append(results, nil)
		}
		m.queued = m.queued[:0]
		batch.Queue(m.next.query, m.next.args...)
		results = append(results, m)
	}
	sent := g.conn.SendBatch(ctx, batch)
	for i, m := range results {
		var err error
		if m == nil || !m.rows {
			var tag pgconn.CommandTag
			tag, err = sent.Exec()
			if m != nil {
				m.result = result{changed: tag.RowsAffected()}
			}
		} else {
			var rows pgx.Rows
			if rows, err = sent.Query(); err == nil {
				m.result.rows, err = g.buffer(rows)
			}
		}
		if err == nil && m != nil && locksRows(m.next.query) {
			err = g.noteRows(m)
		}
		if err != nil {
			sent.Close()
			return fmt.Errorf("%s: %w", abbreviate(batch.QueuedQueries[i].SQL), err)
		}
	}
	return sent.Close()
}

// locksRows reports whether a statement locks rows until the end of the transaction.
func locksRows(query string) bool {
	_, after, _ := strings.Cut(query, "FOR ")
	for after != "" {
		for _, lock := range []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"} {
			if strings.HasPrefix(after, lock) {
				return true
			}
		}
		_, after, _ = strings.Cut(after, "FOR ")
	}
	return false
}

// lockFor reports whether m has a lock now: no other function has it.
func lockFor(locks map[string]*member, lock string, m *member) bool {
	if holder := locks[lock]; holder != nil && holder != m {
		return false
	}
	locks[lock] = m
	return true
}

// noteRows notes the rows that a function has locked. They must not be those of another one: the
// server would let both read them, and change them.
func (g *group) noteRows(m *member) error {
	b := m.result.rows
	if b == nil && m.result.changed == 0 || b != nil && len(b.values) == 0 {
		return nil
	}
	if g.anyRow != nil && g.anyRow != m {
		return errSameLock
	}
	if b == nil || b.fields[0].Name != "id" {
		for _, holder := range g.rows {
			if holder != m {
				return errSameLock
			}
		}
		g.anyRow = m
		return nil
	}
	for i := 0; i < len(b.values); i += len(b.fields) {
		if !lockFor(g.rows, fmt.Sprintf("%d %s", b.fields[0].TableOID, b.values[i]), m) {
			return errSameLock
		}
	}
	return nil
}

// finish ends the functions: their statements before the commit run, sorted by order over all
// functions.
func (g *group) finish(ctx context.Context) (err error) {
	for _, m := range g.members {
		if m.err != nil {
			return m.err
		}
		if m.tx.failed != nil {
			return m.tx.failed
		}
		for _, s := range m.queued {
			if err := g.conn.queue(ctx, s.query, s.args); err != nil {
				return err
			}
		}
		m.queued = nil
		m.alone = true
	}
	all := new(Tx)
	for {
		for _, m := range g.members {
			all.before = append(all.before, m.tx.before...)
			m.tx.before = nil
		}
		if len(all.before) == 0 {
			break
		}
		if err := all.runBefore(); err != nil {
			return err
		}
	}
	for _, m := range g.members {
		if err := m.tx.end(); err != nil {
			return err
		}
	}
	return nil
}

// catch returns a panic, or the end of the goroutine, as an error: it comes again in the goroutine
// of the function's caller, when that runs alone.
func catch(fn func() error) (err error) {
	err = errGroupFailed // unless fn returns
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		err = fn()
	}()
	<-done
	return err
}

// member is a function of a group, and the [session] of its transaction.
type member struct {
	group  *group
	tx     *Tx
	begun  bool          // it cannot leave any more; guarded by the slot, as left
	left   bool          // it does not run
	joined chan struct{} // closed when the group has begun or failed to
	err    error         // of the function

	queued []statement
	order  string // of [Tx.QueryRowInOrder], for the next statement
	lock   string // the key of [Tx.Lock] or [Tx.TryLock], for the next statement
	alone  bool   // the group runs nothing else: statements run at once

	next   statement // for which the function waits
	rows   bool      // it returns rows
	waits  bool
	answer chan struct{} // capacity 1: result is there
	result result
}

type statement struct {
	query string
	args  []any
}

type result struct {
	changed int64
	rows    *bufferedRows
	err     error
}

// run runs the function in the caller's goroutine.
func (m *member) run(fn func(*Tx) error) {
	m.err = errGroupFailed // unless fn returns
	defer func() {
		// A panic, or the end of the goroutine, comes again when the function runs alone.
		_ = recover()
		m.pass()
	}()
	m.err = fn(m.tx)
}

// pass notes that the function runs no more.
func (m *member) pass() {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	if m.group.running--; m.group.running == 0 {
		m.group.turn <- struct{}{}
	}
}

// wait runs a statement in the group's next round.
func (m *member) wait(query string, args []any, rows bool) result {
	m.next, m.rows, m.waits, m.result = statement{query, planned(args)}, rows, true, result{}
	m.pass()
	<-m.answer
	return m.result
}

// planned returns the arguments without the mode of [Tx.ExecPlanned]: a group disables
// sequential scans instead. It encodes JSON, in the function's goroutine.
func planned(args []any) []any {
	if len(args) > 0 {
		if _, mode := args[0].(pgx.QueryExecMode); mode {
			args = args[1:]
		}
	}
	args = slices.Clone(args)
	for i, a := range args {
		if v, ok := a.(jsonValue); ok {
			if stored, err := v.Value(); err == nil {
				args[i] = stored
			}
		}
	}
	return args
}

// usable implements [session].
func (m *member) usable() error { return nil } // the server checks it

// exec implements [session].
func (m *member) exec(ctx context.Context, query string, args []any) (int64, error) {
	if m.alone {
		return m.group.conn.exec(ctx, query, planned(args))
	}
	r := m.wait(query, args, false)
	return r.changed, r.err
}

// queue implements [session].
func (m *member) queue(ctx context.Context, query string, args []any) error {
	if m.alone {
		return m.group.conn.queue(ctx, query, planned(args))
	}
	m.queued = append(m.queued, statement{query, planned(args)})
	return nil
}

// query implements [session].
func (m *member) query(ctx context.Context, query string, args []any) (cursor, error) {
	if m.alone {
		return m.group.conn.query(ctx, query, planned(args))
	}
	r := m.wait(query, args, true)
	if r.err != nil {
		return nil, r.err
	}
	return r.rows, nil
}

// bufferedRows is the [cursor] of rows in memory.
type bufferedRows struct {
	group  *group
	fields []pgconn.FieldDescription
	values [][]byte // of all rows that were not read
	row    [][]byte
}

// buffer reads all rows.
func (g *group) buffer(rows pgx.Rows) (*bufferedRows, error) {
	b := &bufferedRows{group: g, fields: slices.Clone(rows.FieldDescriptions())}
	for rows.Next() {
		for _, v := range rows.RawValues() {
			b.values = append(b.values, slices.Clone(v)) // nil stays nil
		}
	}
	rows.Close()
	return b, rows.Err()
}

func (b *bufferedRows) next() bool {
	if len(b.values) == 0 || len(b.fields) == 0 {
		return false
	}
	b.row, b.values = b.values[:len(b.fields)], b.values[len(b.fields):]
	return true
}

func (b *bufferedRows) scan(dest []any) error {
	if len(dest) != len(b.row) {
		return fmt.Errorf("%d destinations for %d columns", len(dest), len(b.row))
	}
	b.group.scanning.Lock()
	defer b.group.scanning.Unlock()
	for i, f := range b.fields {
		if err := b.group.types.Scan(f.DataTypeOID, f.Format, b.row[i], dest[i]); err != nil {
			return fmt.Errorf("scan column %s: %w", f.Name, err)
		}
	}
	return nil
}

func (b *bufferedRows) columns() []string { return fieldNames(b.fields) }

func (b *bufferedRows) close() error { return nil }
