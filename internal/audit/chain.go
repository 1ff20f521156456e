package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/google/uuid"
)

// row is the stored form of an entry.
type row struct {
	organizationID         string
	sequence               int64
	id                     string
	at                     int64 // microseconds
	action, outcome        string
	service, environment   string
	surface                string
	actorType              string
	actorID, actorEmail    string
	targetType, targetID   string
	targetName, partialKey string
	address, userAgent     string
	requestID              string
	changes, details       string
	keyID                  string
	previous, hash         []byte
}

const columns = `organization_id, sequence, id, at, action, outcome, service, environment, surface, actor_type, actor_id, actor_email,
	target_type, target_id, target_name, partial_key, address, user_agent, request_id, changes, details, key_id, previous, hash`

func scanRow(from db.Row) (*row, error) {
	r := new(row)
	err := from.Scan(&r.organizationID, &r.sequence, &r.id, &r.at, &r.action, &r.outcome, &r.service, &r.environment, &r.surface,
		&r.actorType, &r.actorID, &r.actorEmail, &r.targetType, &r.targetID, &r.targetName, &r.partialKey,
		&r.address, &r.userAgent, &r.requestID, &r.changes, &r.details, &r.keyID, &r.previous, &r.hash)
	return r, err
}

// canonical returns the input of the hash: the ledger and every column but the hash,
// length-delimited.
func (r *row) canonical(ledger string) []string {
	return []string{
		"entry", ledger, r.organizationID, strconv.FormatInt(r.sequence, 10), r.id, strconv.FormatInt(r.at, 10),
		r.action, r.outcome, r.service, r.environment, r.surface, r.actorType, r.actorID, r.actorEmail,
		r.targetType, r.targetID, r.targetName, r.partialKey, r.address, r.userAgent, r.requestID,
		r.changes, r.details, r.keyID, string(r.previous),
	}
}

// entry returns the row as an [Entry].
func (r *row) entry() (Entry, error) {
	e := Entry{
		OrganizationID: r.organizationID, Action: r.action, Outcome: Outcome(r.outcome),
		Target:  Target{Type: r.targetType, ID: r.targetID, Name: r.targetName, PartialKey: r.partialKey},
		Service: r.service, Environment: r.environment, ID: r.id, At: time.UnixMicro(r.at).UTC(), Sequence: r.sequence,
		Source: Source{
			Actor:     Actor{Type: ActorType(r.actorType), ID: r.actorID, Email: r.actorEmail},
			UserAgent: r.userAgent, RequestID: r.requestID, Surface: r.surface,
		},
		KeyID: r.keyID, Previous: r.previous, Hash: r.hash,
	}
	if r.address != "" {
		e.Source.Address, _ = netip.ParseAddr(r.address) // the zero address if invalid
	}
	if err := json.Unmarshal([]byte(r.changes), &e.Changes); err != nil {
		return e, err
	}
	return e, json.Unmarshal([]byte(r.details), &e.Details)
}

// head is the signed end of a chain.
type head struct {
	organizationID string
	sequence       int64
	hash           []byte
	keyID          string
	mac            []byte
}

const selectHead = "SELECT organization_id, sequence, hash, key_id, mac FROM audit_heads WHERE organization_id = $1"

func scanHead(from db.Row) (*head, error) {
	h := new(head)
	err := from.Scan(&h.organizationID, &h.sequence, &h.hash, &h.keyID, &h.mac)
	return h, err
}

func (h *head) canonical(ledger string) []string {
	return []string{"head", ledger, h.organizationID, strconv.FormatInt(h.sequence, 10), string(h.hash), h.keyID}
}

// chain appends r to its chain.
func (l *Log) chain(ctx context.Context, tx *db.Tx, r *row) error {
	h, created, err := l.lockHead(ctx, tx, r.organizationID)
	if err != nil {
		return err
	}
	if created {
		if err := l.recordStart(ctx, tx, h); err != nil {
			return err
		}
	}
	return l.extend(ctx, tx, h, r)
}

// extend stores r as the entry after h and sets h to r.
func (l *Log) extend(ctx context.Context, tx *db.Tx, h *head, r *row) error {
	r.id = uuid.Must(uuid.NewV7()).String()
	r.sequence, r.previous, r.keyID = h.sequence+1, h.hash, l.signer.KeyID()
	r.hash = l.signer.Sign(r.canonical(l.c.Ledger)...)
	if err := expectOneRow(tx.Exec(ctx, "INSERT INTO audit_entries ("+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
		$13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`,
		r.organizationID, r.sequence, r.id, r.at, r.action, r.outcome, r.service, r.environment, r.surface,
		r.actorType, r.actorID, r.actorEmail, r.targetType, r.targetID, r.targetName, r.partialKey,
		r.address, r.userAgent, r.requestID, r.changes, r.details, r.keyID, r.previous, r.hash)); err != nil {
		return err
	}
	h.sequence, h.hash, h.keyID = r.sequence, r.hash, r.keyID
	return l.store(ctx, tx, h)
}

// store signs and writes h.
func (l *Log) store(ctx context.Context, tx *db.Tx, h *head) error {
	return expectOneRow(tx.Exec(ctx, "UPDATE audit_heads SET sequence = $2, hash = $3, key_id = $4, mac = $5 WHERE organization_id = $1",
		h.organizationID, h.sequence, h.hash, h.keyID, l.signer.Sign(h.canonical(l.c.Ledger)...)))
}

// expectOneRow fails unless exactly one row was written: a trigger or rule may suppress
// writes, and no action may go unrecorded.
func expectOneRow(n int64, err error) error {
	if err == nil && n != 1 {
		err = fmt.Errorf("the database wrote %d rows instead of 1: look for triggers, rules and views on the tables of the audit log", n)
	}
	return err
}

// start creates the head of an organization's chain unless there is one. It locks the
// deployment's head first, which serializes processes.
func (l *Log) start(ctx context.Context, tx *db.Tx, organizationID string) error {
	d, created, err := l.lockHead(ctx, tx, "")
	if err != nil {
		return err
	}
	if created {
		if err := l.recordStart(ctx, tx, d); err != nil {
			return err
		}
	}
	h, created, err := l.lockHead(ctx, tx, organizationID)
	if err != nil || !created {
		return err
	}
	return l.recordStart(ctx, tx, h)
}

// recordStart records the start of h's chain in the deployment's. A head that is lost and
// created again leaves a second record, which [Log.Verify] reports.
func (l *Log) recordStart(ctx context.Context, tx *db.Tx, h *head) error {
	d := h
	if h.organizationID != "" {
		var created bool
		var err error
		if d, created, err = l.lockHead(ctx, tx, ""); err != nil {
			return err
		}
		if created {
			if err := l.recordStart(ctx, tx, d); err != nil {
				return err
			}
		}
	}
	r, err := l.row(Entry{
		Action: ChainStarted, Target: Target{Type: "audit_chain", ID: cmp.Or(h.organizationID, deployment)},
		Details: map[string]any{"after": h.sequence}, Source: Source{Actor: Actor{Type: System}},
	}, tx.Now)
	if err != nil {
		return err
	}
	return l.extend(ctx, tx, d, r)
}

// deployment is the target id of the deployment's chain.
const deployment = "deployment"

// lockHead locks the head of a chain until the transaction ends and returns it. It
// creates a missing one, after the last entry of the chain, if any.
func (l *Log) lockHead(ctx context.Context, tx *db.Tx, organizationID string) (h *head, created bool, err error) {
	const lock = selectHead + " FOR UPDATE"
	h, err = db.One(ctx, tx, scanHead, lock, organizationID)
	if !errors.Is(err, db.ErrNoRows) {
		return h, false, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO audit_heads (organization_id, sequence, hash, key_id, mac) VALUES ($1, 0, $2, '', $2)
		ON CONFLICT DO NOTHING`, organizationID, []byte{})
	if err != nil {
		return nil, false, err
	}
	if n == 0 { // created by another process
		h, err = db.One(ctx, tx, scanHead, lock, organizationID)
		return h, false, err
	}
	h = &head{organizationID: organizationID}
	err = tx.QueryRow(ctx, `SELECT sequence, hash FROM audit_entries WHERE organization_id = $1 AND sequence > 0
		ORDER BY sequence DESC LIMIT 1`, organizationID).Scan(&h.sequence, &h.hash)
	if errors.Is(err, db.ErrNoRows) {
		h.hash, _, err = genesis(ctx, tx, organizationID)
	}
	if err != nil {
		return nil, false, err
	}
	h.keyID = l.signer.KeyID()
	return h, true, l.store(ctx, tx, h)
}

// genesis returns the previous hash of a chain's entry 1: a digest of the n entries older
// than the chain.
func genesis(ctx context.Context, q db.Querier, organizationID string) (hash []byte, n int64, err error) {
	h := sha256.New()
	var size []byte
	for after, more := int64(-1<<62), true; more; {
		list, err := db.All(ctx, q, scanRow, "SELECT "+columns+` FROM audit_entries
			WHERE organization_id = $1 AND sequence > $2 AND sequence <= 0 ORDER BY sequence LIMIT $3`, organizationID, after, verifyBatch)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range list {
			for _, part := range r.canonical("") {
				size = binary.BigEndian.AppendUint64(size[:0], uint64(len(part)))
				h.Write(append(size, part...))
			}
			after = r.sequence
		}
		n += int64(len(list))
		more = len(list) == verifyBatch
	}
	return h.Sum(nil), n, nil
}

// verifyBatch is the number of entries read per statement.
const verifyBatch = 500
