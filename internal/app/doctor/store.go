package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// Database is a database of the program.
type Database struct {
	Name   string
	Schema db.Schema
	// Open opens the database; the caller calls done after use. A missing database is not
	// created: [fs.ErrNotExist].
	Open func(ctx context.Context) (d *db.DB, done func(), err error)
}

// oldestPostgres is the oldest supported major version.
const oldestPostgres = 15

// DatabaseHealth checks that a database is writable, has the current schema, and has no
// triggers or views that hide entries of the audit log.
func DatabaseHealth(ctx context.Context, d Database) Finding {
	handle, done, err := d.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		found := "it does not exist yet"
		if missing, ok := errors.AsType[*fs.PathError](err); ok {
			found += ": " + missing.Path
		}
		return warn(found, "Start the server, which creates it, or name another with --data or --database-url.")
	}
	if err != nil {
		return fail(fmt.Sprintf("it cannot be opened: %v", err), "Look at KICKSTAND_DATABASE_URL and the database server.")
	}
	defer done()
	if err := handle.Ping(ctx); err != nil {
		return fail(fmt.Sprintf("it cannot be written: %v", err), "Look at the disk, the permissions, and whether the server is a standby.")
	}
	state, err := handle.Inspect(ctx)
	if err != nil {
		return fail(fmt.Sprintf("it cannot be read: %v", err), "Look at the database server.")
	}
	newest, err := d.Schema.Newest()
	if err != nil {
		return fail(err.Error(), "Report this as a bug of Kickstand.")
	}
	found := fmt.Sprintf("%s, schema %d of %d", state.Engine, state.Version, newest)
	switch {
	case handle.Postgres() && state.Release < oldestPostgres:
		return fail(found, fmt.Sprintf("Upgrade PostgreSQL to %d or newer.", oldestPostgres))
	case state.Floor > newest:
		return fail(found+": a newer version of Kickstand has removed what this version uses", "Upgrade this program.")
	case state.Version > newest:
		return warn(found+": a newer version of Kickstand has migrated it, beside which this version may run", "Finish the update: upgrade this program.")
	case state.Version < newest:
		return warn(found, "Start the server or run `kickstand migrate`, after a backup.")
	}
	if err := handle.ProbeWrite(ctx); err != nil {
		return fail(fmt.Sprintf("%s: %s", found, db.FailureReason(err)), "Look at the disk and the database server; restore a backup if a table is damaged.")
	}
	interference, err := audit.CheckTampering(ctx, handle)
	if err != nil {
		return fail(fmt.Sprintf("%s: %v", found, err), "Look at the database server.")
	}
	if interference != "" {
		return fail(found+": "+interference, "Keep a copy of the database, find out who had access to it, and run `kickstand audit verify`.")
	}
	return ok("%s", found)
}

// Connections checks that the PostgreSQL server has room for the connections of the running
// processes. perProcess is the number that each opens at most.
func Connections(ctx context.Context, d Database, perProcess int) Finding {
	handle, done, err := d.Open(ctx)
	if err != nil {
		return ok("the database cannot be opened")
	}
	defer done()
	if !handle.Postgres() {
		return ok("SQLite needs none")
	}
	if !handle.Listens() {
		return warn("they lead to a pooler, which passes no notifications on: changes by other processes are noticed up to 5 s late", "Set KICKSTAND_DATABASE_DIRECT_URL to the address of PostgreSQL itself.")
	}
	c, err := handle.Connections(ctx)
	if err != nil {
		return fail(fmt.Sprintf("they cannot be counted: %v", err), "Look at the database server.")
	}
	processes := max(1, (c.Ours+perProcess-1)/perProcess)
	found := fmt.Sprintf("%d of %d are in use, %d of them by Kickstand; each process opens up to %d", c.Ours+c.Others, c.Limit, c.Ours, perProcess)
	if handle.Pooled() {
		return ok("%d of %d are in use, %d of them by Kickstand and its pooler", c.Ours+c.Others, c.Limit, c.Ours)
	}
	if processes*perProcess+c.Others > c.Limit {
		return warn(found, "Lower KICKSTAND_DATABASE_CONNECTIONS, or raise max_connections of PostgreSQL.")
	}
	return ok("%s", found)
}

// Outgoing reports whether outgoing work is held, as after a restore.
func Outgoing(ctx context.Context, d Database) Finding {
	handle, done, err := d.Open(ctx)
	if err != nil {
		return ok("the database cannot be opened")
	}
	defer done()
	hold, held, err := queue.OutgoingHold(ctx, handle)
	if err != nil {
		return warn(err.Error(), "Look at the check of the database.")
	}
	if held {
		return warn(fmt.Sprintf("held since %s (%s): no reply, webhook or notice is sent", hold.Since.Format(time.RFC3339), hold.Reason),
			"Run `kickstand release`, which lists what waits, and sends or discards it.")
	}
	return ok("it is sent")
}

// Attachments writes, reads and deletes a file in a store. open returns [fs.ErrNotExist]
// for a missing folder.
func Attachments(ctx context.Context, where string, open func() (blob.Store, func(), error)) Finding {
	store, done, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return warn(where+" does not exist yet", "Start the server, which creates it.")
	}
	const remedy = "Look at KICKSTAND_BLOB_URL, the disk or the bucket, and the permissions there."
	if err != nil {
		return fail(fmt.Sprintf("%s cannot be opened: %v", where, err), remedy)
	}
	defer done()
	content := make([]byte, 32)
	rand.Read(content)
	ref, err := store.Put(ctx, bytes.NewReader(content))
	if err != nil {
		return fail(fmt.Sprintf("%s cannot be written: %v", where, err), remedy)
	}
	got, err := readBack(ctx, store, ref.Key)
	if derr := store.Delete(ctx, ref.Key); derr != nil {
		return fail(fmt.Sprintf("a file cannot be deleted from %s: %v", where, derr), remedy)
	}
	if err != nil || !bytes.Equal(got, content) {
		return fail(fmt.Sprintf("%s does not return what was written: %v", where, err), remedy)
	}
	return ok("%s: written, read and deleted a file", where)
}

func readBack(ctx context.Context, store blob.Store, key string) ([]byte, error) {
	r, err := store.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// MailServer connects to the mail server and authenticates, without sending.
func MailServer(ctx context.Context, server *mail.SMTP) Finding {
	encrypted, err := server.Probe(ctx)
	if err != nil {
		return fail(strings.TrimPrefix(err.Error(), "mail: "), "Look at KICKSTAND_SMTP_URL: host, port, user and password.")
	}
	if !encrypted && !server.Local() {
		return warn(server.Address()+" accepts mail, but without TLS: others on the way can read sign-in links", "Use smtps://, or a server that offers STARTTLS, and ?tls=required.")
	}
	tls := "without TLS, on this machine"
	if encrypted {
		tls = "with TLS"
	}
	return ok("%s lets us in, %s", server.Address(), tls)
}

// NoMailServer checks a deployment without a mail server.
func NoMailServer(s Settings, deliveryAPI bool) Finding {
	switch {
	case deliveryAPI:
		return ok("by the delivery provider's API; the key is well-formed, and was not tried")
	case s.Loopback:
		return ok("none: mails are shown at /dev/mailbox, for development")
	}
	return fail("there is no way to send mail: nobody can sign in by link, be invited or reset a password", "Set KICKSTAND_SMTP_URL or KICKSTAND_EMAIL_DELIVERY_API_KEY.")
}

// Shared checks the connection to Redis.
func Shared(ctx context.Context, where string, ping func(context.Context) error) Finding {
	if err := ping(ctx); err != nil {
		return fail(fmt.Sprintf("%s cannot be used, so that each process counts on its own: %v", where, err), "Look at KICKSTAND_REDIS_URL and the Redis server.")
	}
	return ok("%s counts", where)
}

// Permissions lists the files that other users of the machine can access.
func Permissions(exposed []string, err error) Finding {
	switch {
	case err != nil:
		return fail(err.Error(), "Look at the data folder.")
	case len(exposed) > 0:
		return fail("others can reach "+strings.Join(exposed, ", "), "Start the server, which repairs them, or run chmod go= on each.")
	}
	return ok("the server's files are for its user alone")
}

// Key describes the storage of the secret key.
type Key struct {
	Path       string // of its file; empty: configured as a value
	Mode       fs.FileMode
	Missing    bool
	WithData   bool // in the folder of the database
	Unreadable error
}

// SecretKey checks the storage of the key that encrypts stored secrets.
func SecretKey(s Settings, k Key) Finding {
	const apart = "Move it to a folder of its own, readable by the server's user only, and set KICKSTAND_SECRET_KEY_FILE to its path."
	switch {
	case k.Missing:
		return warn(k.Path+" does not exist yet", "Start the server, which creates it; then back it up.")
	case k.Unreadable != nil:
		return fail(k.Unreadable.Error(), "Restore the key from your backup: without it, stored secrets cannot be read.")
	case k.Path == "":
		return ok("given as a value")
	case k.Mode.Perm()&0o077 != 0:
		return fail(fmt.Sprintf("others can read %s (mode %04o)", k.Path, k.Mode.Perm()), "Run chmod 600 on it.")
	case k.WithData && !s.Loopback:
		return warn(k.Path+" is beside the database: a copy of the folder holds both", apart)
	}
	return ok("%s, for its owner alone", k.Path)
}

// Organizations checks that there is an organization, and a default one for the inbound
// events of no connection.
func Organizations(count int, hasDefault bool, err error) Finding {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn("there is no database of this version yet", "Start the server, then run `kickstand org create` and `kickstand user create`.")
	case err != nil:
		return fail(fmt.Sprintf("they cannot be read: %v", err), "Look at the database.")
	case count == 0:
		return warn("there is none", "Sign up on the page, or run `kickstand org create` and `kickstand user create`.")
	case !hasDefault:
		return warn(fmt.Sprintf("%d, and none is the default: inbound events that no connection claims stay unrouted", count), "Run `kickstand org default` with the slug of one.")
	}
	return ok("%d; one is the default", count)
}

// Proofs counts connections by the proof of their address.
type Proofs struct {
	Proven, Pending int
	BeforeProofs    int      // proven by their age only: older than proofs
	UnknownSlugs    []string // in allowed-addresses, without an organization
}

// Addresses checks that the addresses of connections are proven to belong to their
// organizations. Pending ones are in order: anybody can create any number.
func Addresses(s Settings, p Proofs, err error) Finding {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("there is no database of this version yet")
	case err != nil:
		return fail(fmt.Sprintf("they cannot be read: %v", err), "Look at the database and KICKSTAND_ALLOWED_ADDRESSES.")
	case len(p.UnknownSlugs) > 0:
		return warn(fmt.Sprintf("KICKSTAND_ALLOWED_ADDRESSES names organizations that do not exist: %s; whoever signs up first under such a name gets the addresses",
			strings.Join(p.UnknownSlugs, ", ")), "Correct the slugs (`kickstand org list` shows them), or run `kickstand org create`.")
	case p.BeforeProofs > 0 && !s.Loopback:
		return warn(fmt.Sprintf("%d of %d connections were made before addresses had to be proven", p.BeforeProofs, p.Proven+p.Pending),
			"Look at `kickstand channel list`, and run `kickstand channel prove` for each before_proofs that is its organization's, with --revoke for each that is not.")
	case p.Pending > 0:
		return ok("%d proven, %d pending: `kickstand channel list` shows them, and `kickstand channel prove` vouches for one", p.Proven, p.Pending)
	}
	return ok("%d connected, all proven", p.Proven)
}
