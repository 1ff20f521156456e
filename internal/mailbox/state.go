package mailbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/email"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"github.com/emersion/go-imap/v2"
)

// State is the state of a mailbox.
type State string

// The states.
const (
	Waiting State = "waiting" // it was never read
	Reading State = "reading"
	Failing State = "failing"
	Consent State = "consent" // the OAuth consent has ended
)

// Status is the state of a mailbox, for admins.
type Status struct {
	ConnectionID string    `json:"connection_id"`
	State        State     `json:"state"`
	Error        string    `json:"error,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	RetryAt      time.Time `json:"retry_at,omitzero"` // after a failure
	CheckedAt    time.Time `json:"checked_at,omitzero"`
	LastMailAt   time.Time `json:"last_mail_at,omitzero"`
	Collected    int64     `json:"collected"` // mails
	Reader       string    `json:"reader,omitempty"`
}

// lease is the right of this process to read a mailbox.
type lease struct {
	connectionID   string
	organizationID string
	fence          int64
	revision       int64
	importSince    time.Time
}

// After maxGuesses failures in a row, an attempt after a change waits for guessWait.
const (
	maxGuesses = 5
	guessWait  = 30 * time.Second
)

// saveState creates the state of a mailbox, or has it read by its new configuration.
func saveState(ctx context.Context, tx *db.Tx, c *connection.Connection, since time.Time) (created bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO mailboxes
		(connection_id, organization_id, holder, fence, lease_until, retry_at, state, failures, collected, import_since, revision)
		VALUES ($1, $2, '', 0, 0, 0, $3, 0, 0, $4, 1) ON CONFLICT (connection_id) DO NOTHING`, c.ID, c.OrganizationID, string(Waiting), since.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("create mailbox: %w", err)
	}
	if n > 0 {
		return true, nil
	}
	// A change leads to an attempt at once, but not to guesses of passwords.
	_, err = tx.Exec(ctx, `UPDATE mailboxes SET revision = revision + 1, retry_at = CASE WHEN failures < $2 THEN 0 ELSE CAST($3 AS BIGINT) END WHERE connection_id = $1`,
		c.ID, maxGuesses, tx.Now.Add(guessWait).UnixMicro())
	if err != nil {
		return false, fmt.Errorf("change mailbox: %w", err)
	}
	return false, nil
}

// deleteState deletes the state of a mailbox. The digests of its mails remain until the next
// [Service.Purge].
func deleteState(ctx context.Context, tx *db.Tx, id string) error {
	for _, table := range []string{"mailboxes", "mailbox_folders"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE connection_id = $1", id); err != nil {
			return fmt.Errorf("delete mailbox: %w", err)
		}
	}
	return nil
}

// due returns the connections of at most most mailboxes that are due and have no reader.
func (s *Service) due(ctx context.Context, now time.Time, most int) ([]string, error) {
	due, err := db.All(ctx, s.db, scanText, `SELECT m.connection_id FROM mailboxes m JOIN connections c ON c.id = m.connection_id
		WHERE m.lease_until <= $1 AND m.retry_at <= $1 AND c.enabled ORDER BY m.retry_at LIMIT $2`, now.UnixMicro(), most)
	if err != nil {
		return nil, fmt.Errorf("find mailboxes: %w", err)
	}
	return due, nil
}

// claim takes leases of mailboxes that are due, at most most.
func (s *Service) claim(ctx context.Context, most int) (claimed []lease, err error) {
	due, err := s.due(ctx, s.db.Now(), most)
	if err != nil {
		return nil, err
	}
	for _, id := range due {
		l := lease{connectionID: id}
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			return tx.QueryRow(ctx, `UPDATE mailboxes SET holder = $2, fence = fence + 1, lease_until = $3
				WHERE connection_id = $1 AND lease_until <= $4 AND retry_at <= $4
				RETURNING organization_id, fence, revision, import_since`, id, s.instance, tx.Now.Add(leaseTime).UnixMicro(), tx.Now.UnixMicro()).
				Scan(&l.organizationID, &l.fence, &l.revision, db.IntoTime(&l.importSince))
		})
		if errors.Is(err, db.ErrNoRows) {
			continue // another process was first
		}
		if err != nil {
			return claimed, fmt.Errorf("claim mailbox: %w", err)
		}
		claimed = append(claimed, l)
	}
	return claimed, nil
}

func scanText(row db.Row) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}

// checkedPrecision is how far the stored time of the last check may be behind.
const checkedPrecision = 20 * time.Second

// extend renews the leases of this process and returns them by connection. It stores when the
// mailboxes were last checked.
func (s *Service) extend(ctx context.Context, readers map[string]*reader) (map[string]lease, error) {
	held := make(map[string]lease)
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		clear(held)
		list, err := db.All(ctx, tx, func(row db.Row) (l lease, err error) {
			err = row.Scan(&l.connectionID, &l.fence, &l.revision)
			return l, err
		}, `UPDATE mailboxes SET lease_until = $2 WHERE holder = $1 AND lease_until > $3 RETURNING connection_id, fence, revision`,
			s.instance, tx.Now.Add(leaseTime).UnixMicro(), tx.Now.UnixMicro())
		if err != nil {
			return err
		}
		for _, l := range list {
			held[l.connectionID] = l
		}
		for _, id := range slices.Sorted(maps.Keys(readers)) {
			r := readers[id]
			at := r.checked.Load()
			if at-r.stored.Load() < checkedPrecision.Microseconds() {
				continue
			}
			if err := tx.Queue(ctx, "UPDATE mailboxes SET checked_at = $3 WHERE connection_id = $1 AND fence = $2", id, r.fence, at); err != nil {
				return err
			}
			tx.AfterCommit(func() {
				r.stored.Store(at)
				s.changed(r.organizationID, id)
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return held, nil
}

// releaseAll ends all leases, of dead processes.
func releaseAll(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE mailboxes SET holder = '', lease_until = 0 WHERE holder <> ''")
		return err
	})
}

// checkLease fails unless the reader has its lease, and locks the mailbox.
func (r *reader) checkLease(ctx context.Context, tx *db.Tx) error {
	n, err := tx.Exec(ctx, "UPDATE mailboxes SET holder = holder WHERE connection_id = $1 AND holder = $2 AND fence = $3 AND lease_until > $4",
		r.connectionID, r.instance, r.fence, tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("check lease: %w", err)
	}
	if n == 0 {
		return errLeaseLost
	}
	return nil
}

// write is [db.DB.Write] under the lease.
func (r *reader) write(ctx context.Context, fn func(tx *db.Tx) error) error {
	return r.db.Write(ctx, func(tx *db.Tx) error {
		if err := r.checkLease(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
}

func loadFolders(ctx context.Context, q db.Querier, id string) ([]folder, error) {
	return db.All(ctx, q, func(row db.Row) (f folder, err error) {
		var validity, last, until int64
		err = row.Scan(&f.name, &f.source, &validity, &last, &until)
		f.validity, f.last, f.importUntil = uint32(validity), uint32(last), uint32(until)
		return f, err
	}, "SELECT folder, source, uid_validity, last_uid, import_until FROM mailbox_folders WHERE connection_id = $1 ORDER BY folder", id)
}

// saveFolder stores a position in place of that of the folder replaced; empty names: of no folder.
func (r *reader) saveFolder(ctx context.Context, f folder, replaced string) error {
	return r.write(ctx, func(tx *db.Tx) error {
		if replaced != "" && replaced != f.name {
			if _, err := tx.Exec(ctx, "DELETE FROM mailbox_folders WHERE connection_id = $1 AND folder = $2", r.connectionID, replaced); err != nil {
				return fmt.Errorf("delete folder: %w", err)
			}
		}
		if f.name == "" {
			return nil
		}
		_, err := tx.Exec(ctx, `INSERT INTO mailbox_folders (connection_id, folder, organization_id, source, uid_validity, last_uid, import_until)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (connection_id, folder) DO UPDATE
			SET source = excluded.source, uid_validity = excluded.uid_validity, last_uid = excluded.last_uid, import_until = excluded.import_until`,
			r.connectionID, f.name, r.organizationID, f.source, int64(f.validity), int64(f.last), int64(f.importUntil))
		if err != nil {
			return fmt.Errorf("save folder: %w", err)
		}
		return nil
	})
}

// collectedMail is a mail to record.
type collectedMail struct {
	uid    imap.UID
	digest digest
}

// recordTx records mails of a folder and the position behind them. It reports which mails are
// new.
func (r *reader) recordTx(ctx context.Context, tx *db.Tx, f *folder, last uint32, mails []collectedMail) (fresh []bool, err error) {
	if err := r.checkLease(ctx, tx); err != nil {
		return nil, err
	}
	fresh = make([]bool, len(mails))
	count := int64(0)
	for i, m := range mails {
		n, err := tx.Exec(ctx, `INSERT INTO mailbox_mails (connection_id, digest, organization_id, uid_validity, uid, collected_at, unmarked)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (connection_id, digest) DO NOTHING`,
			r.connectionID, m.digest[:], r.organizationID, int64(f.validity), int64(m.uid), tx.Now.UnixMicro(), r.account.MarkSeen || r.account.MoveTo != "")
		if err != nil {
			return nil, fmt.Errorf("record mail: %w", err)
		}
		fresh[i] = n > 0
		count += n
	}
	n, err := tx.Exec(ctx, "UPDATE mailbox_folders SET last_uid = $4 WHERE connection_id = $1 AND folder = $2 AND uid_validity = $3",
		r.connectionID, f.name, int64(f.validity), int64(last))
	if err == nil && n == 0 {
		err = errLeaseLost // another reader has replaced the position
	}
	if err == nil && count > 0 {
		_, err = tx.Exec(ctx, "UPDATE mailboxes SET collected = collected + $2, last_mail_at = $3 WHERE connection_id = $1", r.connectionID, count, tx.Now.UnixMicro())
		tx.AfterCommit(func() { r.changed(r.organizationID, r.connectionID) })
	}
	if err != nil {
		return nil, fmt.Errorf("record position: %w", err)
	}
	return fresh, nil
}

// latestMails returns the digests of the newest mails of a folder by UID.
func latestMails(ctx context.Context, q db.Querier, id string, validity uint32) (map[imap.UID]digest, error) {
	mails := make(map[imap.UID]digest)
	_, err := db.All(ctx, q, func(row db.Row) (struct{}, error) {
		var uid int64
		var sum []byte
		err := row.Scan(&uid, &sum)
		if err == nil && len(sum) == len(digest{}) {
			mails[imap.UID(uid)] = digest(sum)
		}
		return struct{}{}, err
	}, "SELECT uid, digest FROM mailbox_mails WHERE connection_id = $1 AND uid_validity = $2 ORDER BY uid DESC LIMIT 5", id, int64(validity))
	return mails, err
}

// sharesValidity reports whether another folder of the mailbox has the same UIDVALIDITY.
func (r *reader) sharesValidity(ctx context.Context, f *folder) (bool, error) {
	var n int
	err := r.db.QueryRow(ctx, "SELECT count(*) FROM mailbox_folders WHERE connection_id = $1 AND uid_validity = $2 AND folder <> $3",
		r.connectionID, int64(f.validity), f.name).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("compare folders: %w", err)
	}
	return n > 0, nil
}

// unmarkedMails returns collected mails to be marked or moved behind a UID, a batch at a time.
func unmarkedMails(ctx context.Context, q db.Querier, id string, validity uint32, after imap.UID) ([]collectedMail, error) {
	return db.All(ctx, q, func(row db.Row) (m collectedMail, err error) {
		var uid int64
		var sum []byte
		err = row.Scan(&uid, &sum)
		if err == nil && len(sum) != len(m.digest) {
			err = fmt.Errorf("a digest has %d bytes", len(sum))
		}
		if err != nil {
			return m, err
		}
		return collectedMail{imap.UID(uid), digest(sum)}, nil
	}, "SELECT uid, digest FROM mailbox_mails WHERE connection_id = $1 AND uid_validity = $2 AND uid > $3 AND unmarked ORDER BY uid LIMIT 200", id, int64(validity), int64(after))
}

// recordMarked records that mails are marked or moved.
func (r *reader) recordMarked(ctx context.Context, mails []collectedMail) error {
	return r.write(ctx, func(tx *db.Tx) error {
		for _, m := range mails {
			if err := tx.Queue(ctx, "UPDATE mailbox_mails SET unmarked = FALSE WHERE connection_id = $1 AND digest = $2", r.connectionID, m.digest[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// recover records that the mailbox works, once.
func (r *reader) recover(ctx context.Context) error {
	if r.healthy {
		return nil
	}
	err := r.write(ctx, func(tx *db.Tx) error {
		var state State
		var said string
		if err := tx.QueryRow(ctx, "SELECT state, error FROM mailboxes WHERE connection_id = $1", r.connectionID).Scan(&state, db.IntoText(&said)); err != nil {
			return fmt.Errorf("read mailbox: %w", err)
		}
		checked := r.checked.Load()
		_, err := tx.Exec(ctx, "UPDATE mailboxes SET state = $2, error = NULL, failing_since = NULL, failures = 0, checked_at = $3 WHERE connection_id = $1",
			r.connectionID, string(Reading), checked)
		if err != nil {
			return fmt.Errorf("record state of mailbox: %w", err)
		}
		tx.AfterCommit(func() {
			r.stored.Store(checked)
			r.changed(r.organizationID, r.connectionID)
		})
		if state == Reading || said == "" {
			return nil
		}
		return r.withdrawNotice(ctx, tx, said)
	})
	r.healthy = err == nil
	return err
}

// withdrawNotice removes the connection's notice if it is that of the mailbox.
func (r *reader) withdrawNotice(ctx context.Context, tx *db.Tx, said string) error {
	c, err := r.connections.FindTx(ctx, tx, r.organizationID, r.connectionID)
	if problem.Of(err) == problem.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if c.Notice == nil || c.Notice.Text != noticeText(said) {
		return nil
	}
	return r.connections.NoticeTx(ctx, tx, r.organizationID, r.connectionID, "")
}

// noticeText is the notice of a connection about a failure.
func noticeText(text string) string { return "The mailbox cannot be read: " + text }

// Waits after failures, in order; the last one repeats.
var (
	shortWaits   = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute}
	lastingWaits = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute} // a refused login must not lock the account
)

// noticeFailures is the number of failures in a row from which admins are notified of one that
// may be short.
const noticeFailures = 4

// release ends the lease with the outcome of the reader. Only failures of the mailbox change its
// state; others are logged.
func (r *reader) release(ctx context.Context, outcome error) error {
	trouble, _ := errors.AsType[*Trouble](outcome)
	wait := time.Duration(0)
	switch {
	case trouble != nil && trouble.Kind == TroubleConnect && r.healthy:
		// Servers end connections, such as when a token expires. It is a failure if the next one fails.
		r.log.InfoContext(ctx, "the connection to a mailbox has ended", "connection", r.connectionID, "error", trouble.Cause)
		trouble, wait = nil, shortWaits[0]
	case trouble != nil:
		r.log.WarnContext(ctx, "a mailbox cannot be read", "connection", r.connectionID, "kind", string(trouble.Kind), "trouble", trouble.Text, "error", trouble.Cause)
	case errors.Is(outcome, errChanged), errors.Is(outcome, errStopping), errors.Is(outcome, errRelieved), errors.Is(outcome, context.Canceled):
	default:
		wait = shortWaits[0] // the database
		r.log.WarnContext(ctx, "reading a mailbox ended", "connection", r.connectionID, "error", outcome)
	}
	return r.db.Write(ctx, func(tx *db.Tx) error {
		var failures int
		var since time.Time
		var revision int64
		err := tx.QueryRow(ctx, `UPDATE mailboxes SET holder = '', lease_until = 0 WHERE connection_id = $1 AND holder = $2 AND fence = $3
			RETURNING failures, failing_since, revision`, r.connectionID, r.instance, r.fence).Scan(&failures, db.IntoTime(&since), &revision)
		if errors.Is(err, db.ErrNoRows) {
			return nil // another process has it, or it was removed
		}
		if err != nil {
			return fmt.Errorf("release mailbox: %w", err)
		}
		tx.AfterCommit(func() { r.changed(r.organizationID, r.connectionID) })
		if trouble == nil {
			_, err := tx.Exec(ctx, "UPDATE mailboxes SET retry_at = $2 WHERE connection_id = $1", r.connectionID, tx.Now.Add(r.scaled(wait)).UnixMicro())
			return err
		}
		return r.recordTrouble(ctx, tx, trouble, failures+1, since, revision)
	})
}

// recordTrouble records a failure, and notifies admins if it lasts.
func (r *reader) recordTrouble(ctx context.Context, tx *db.Tx, trouble *Trouble, failures int, since time.Time, revision int64) error {
	state, waits := Failing, shortWaits
	if trouble.lasting() {
		waits = lastingWaits
	}
	if trouble.Kind == TroubleConsent {
		state = Consent
	}
	if since.IsZero() {
		since = tx.Now
	}
	retry := tx.Now.Add(r.scaled(waits[min(failures, len(waits))-1]))
	if revision != r.revision && failures < maxGuesses {
		retry = tx.Now // the configuration has changed meanwhile
	}
	_, err := tx.Exec(ctx, "UPDATE mailboxes SET state = $2, error = $3, failing_since = $4, failures = $5, retry_at = $6 WHERE connection_id = $1",
		r.connectionID, string(state), trouble.Text, since.UnixMicro(), failures, retry.UnixMicro())
	if err != nil {
		return fmt.Errorf("record failure of mailbox: %w", err)
	}
	if !trouble.lasting() && failures < noticeFailures {
		return nil
	}
	err = r.connections.NoticeTx(ctx, tx, r.organizationID, r.connectionID, noticeText(trouble.Text))
	if problem.Of(err) == problem.NotFound {
		return nil
	}
	return err
}

// scaled returns a wait with jitter.
func (s *Service) scaled(wait time.Duration) time.Duration {
	wait = time.Duration(float64(wait) * s.scale)
	return wait - time.Duration(rand.Int64N(int64(wait)/5+1))
}

const statusColumns = "connection_id, state, error, failing_since, retry_at, checked_at, last_mail_at, collected, holder"

func scanStatus(row db.Row) (s Status, err error) {
	err = row.Scan(&s.ConnectionID, &s.State, db.IntoText(&s.Error), db.IntoTime(&s.FailingSince), db.IntoTime(&s.RetryAt),
		db.IntoTime(&s.CheckedAt), db.IntoTime(&s.LastMailAt), &s.Collected, &s.Reader)
	if s.Error == "" {
		s.RetryAt = time.Time{}
	}
	return s, err
}

// Status returns the state of a connection's mailbox. ok is false if the connection reads none.
func (s *Service) Status(ctx context.Context, q db.Querier, connectionID string) (status Status, ok bool, err error) {
	status, err = db.One(ctx, q, scanStatus, "SELECT "+statusColumns+" FROM mailboxes WHERE connection_id = $1", connectionID)
	if errors.Is(err, db.ErrNoRows) {
		return status, false, nil
	}
	return status, err == nil, err
}

// examine adds the state of a mailbox to the health of its connection.
func (s *Service) examine(ctx context.Context, c *connection.Connection, h *connection.Health) (err error) {
	if c.Channel != email.MailboxName {
		return nil
	}
	if h.ConsentEndsAt, err = s.consentEnds(ctx, c); err != nil {
		return err
	}
	status, ok, err := s.Status(ctx, s.db, c.ID)
	if err == nil && ok && c.Enabled && status.Error != "" {
		h.Error, h.ErrorAt, h.Unread = status.Error, status.FailingSince, true
	}
	return err
}

// CountStates counts the mailboxes of all organizations by state.
func CountStates(ctx context.Context, q db.Querier) (map[State]int, error) {
	counts := map[State]int{Waiting: 0, Reading: 0, Failing: 0, Consent: 0}
	_, err := db.All(ctx, q, func(row db.Row) (struct{}, error) {
		var state State
		var n int
		err := row.Scan(&state, &n)
		counts[state] = n
		return struct{}{}, err
	}, "SELECT state, count(*) FROM mailboxes GROUP BY state")
	return counts, err
}

// purgeBatch is the number of rows per delete, which bounds its lock time.
const purgeBatch = 1000

// Purge deletes the digests of mails of removed connections.
func (s *Service) Purge(ctx context.Context) error {
	for id := ""; ; {
		err := s.db.QueryRow(ctx, "SELECT connection_id FROM mailbox_mails WHERE connection_id > $1 ORDER BY connection_id LIMIT 1", id).Scan(&id)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find collected mails: %w", err)
		}
		_, err = s.connections.Find(ctx, id)
		if !errors.Is(err, db.ErrNoRows) {
			if err != nil {
				return fmt.Errorf("find connection: %w", err)
			}
			continue
		}
		err = db.Steps(ctx, func() (more bool, err error) {
			err = s.db.Write(ctx, func(tx *db.Tx) error {
				n, err := tx.Exec(ctx, `DELETE FROM mailbox_mails WHERE connection_id = $1 AND digest IN
					(SELECT digest FROM mailbox_mails WHERE connection_id = $1 LIMIT $2)`, id, purgeBatch)
				more = n == purgeBatch
				return err
			})
			return more, err
		})
		if err != nil {
			return fmt.Errorf("delete collected mails: %w", err)
		}
	}
}

// Invariants returns the rules of mailboxes.
func Invariants() []db.Invariant {
	return []db.Invariant{
		{Name: "mailboxes have a connection", Table: "mailboxes",
			Broken: "SELECT m.connection_id FROM mailboxes m LEFT JOIN connections c ON c.id = m.connection_id AND c.organization_id = m.organization_id WHERE c.id IS NULL OR c.channel <> '" + email.MailboxName + "'"},
		{Name: "folders have a mailbox", Table: "mailbox_folders",
			Broken: "SELECT f.connection_id FROM mailbox_folders f LEFT JOIN mailboxes m ON m.connection_id = f.connection_id AND m.organization_id = f.organization_id WHERE m.connection_id IS NULL"},
	}
}
