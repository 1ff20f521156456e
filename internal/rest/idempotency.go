package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
	"github.com/kickstand-dev/kickstand/internal/seal"
)

// Retention of answers and claims (fleet-api.md 4).
const (
	answerLife = 24 * time.Hour
	claimLife  = 60 * time.Second
)

// storeTimeout bounds the time to store the result of a request.
const storeTimeout = 10 * time.Second

const sealPurpose = "rest answer"

type fingerprint [sha256.Size]byte

// idempotentRequest is one request with an Idempotency-Key.
//
// Within this process, inFlight excludes concurrent runs. Between processes the row does.
// Before it exists, two locks of the transaction do: one for the key, which a request waits
// for, and one for the key with this exact request, which it only tries: its holder is
// executing the same request.
//
// The stored answer is sealed: it may contain a secret that is shown once.
type idempotentRequest struct {
	box          *seal.Box
	organization string
	key          string
	print        fingerprint
	stored       bool
}

// inFlight holds the running requests with an Idempotency-Key of this process.
type inFlight struct {
	mu sync.Mutex
	by map[[2]string]fingerprint
}

// begin registers a request, unless another one with its key is running.
func (s *inFlight) begin(t *idempotentRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := [2]string{t.organization, t.key}
	if print, ok := s.by[id]; ok {
		if print != t.print {
			return errReused()
		}
		return errInProgress()
	}
	if s.by == nil {
		s.by = make(map[[2]string]fingerprint)
	}
	s.by[id] = t.print
	return nil
}

func (s *inFlight) end(t *idempotentRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, [2]string{t.organization, t.key})
}

func errReused() error {
	return apiErrorf("idempotency_key_reused", "The Idempotency-Key belongs to another request: its method, path, query, body, or the permissions of its API key differ.")
}

func errInProgress() error {
	f := apiErrorf("idempotency_in_progress", "The first request with this Idempotency-Key is still running.")
	f.retry = time.Second
	return f
}

// idempotencyKey reads the header: plain or a structured-field string.
func idempotencyKey(lines []string) (string, error) {
	wrong := func() (string, error) {
		f := apiErrorf("invalid_idempotency_key", "The Idempotency-Key must be 1 to 255 visible ASCII characters, plain or as a quoted string.")
		f.fieldErrs = []schema.FieldError{{Code: "invalid_value", Detail: f.detail, Header: "Idempotency-Key"}}
		return "", f
	}
	if len(lines) != 1 {
		return wrong()
	}
	key := lines[0]
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem(lines)
		if err != nil {
			return wrong()
		}
		s, ok := item.Value.(string)
		if !ok {
			return wrong()
		}
		key = s
	}
	if len(key) < 1 || len(key) > 255 {
		return wrong()
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return wrong()
		}
	}
	return key, nil
}

// serveOnce runs an operation, or replays the stored answer for its Idempotency-Key.
func (a *API) serveOnce(w http.ResponseWriter, r *Request) error {
	key, err := idempotencyKey(r.http.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	t := &idempotentRequest{box: a.c.Box, organization: r.Key.OrganizationID, key: key, print: fingerprintOf(r)}
	if err := a.running.begin(t); err != nil {
		return err
	}
	defer a.running.end(t)
	ctx := r.http.Context()
	prior, err := t.find(ctx, a.c.DB, a.c.DB.Now())
	if err != nil {
		return err
	}
	if prior != nil {
		return a.replay(w, r, prior)
	}
	r.retry = t
	if r.route.Claim {
		if prior, err = t.claim(ctx, a.c.DB); err != nil {
			return err
		}
		if prior != nil {
			return a.replay(w, r, prior)
		}
	}
	got, err := a.handleOnce(r)
	if err != nil {
		return err
	}
	if got.replayed { // another process was faster
		return a.replay(w, r, &got)
	}
	a.answer(w, r, &got)
	return nil
}

// replay sends a stored answer again, if the request's scope covers its records.
func (a *API) replay(w http.ResponseWriter, r *Request, prior *Response) error {
	for id := range strings.FieldsSeq(prior.about) {
		if err := r.Within(id); err != nil {
			return err
		}
	}
	a.answer(w, r, prior)
	return nil
}

// handleOnce runs the operation. Either its answer is stored, or nothing.
func (a *API) handleOnce(r *Request) (got Response, err error) {
	t := r.retry
	// Finish and store even if the client has gone.
	ctx := context.WithoutCancel(r.http.Context())
	ended := false
	defer func() {
		if !ended && r.route.Claim { // after a panic
			a.drop(ctx, t)
		}
	}()
	got, err = a.handle(r)
	ended = true
	keep := got
	if err != nil {
		f := toAPIError(err, r.route.Input)
		if f.code == "idempotency_in_progress" {
			return got, err // another process runs it and will store the answer
		}
		keep = Response{encoded: true, about: r.recordSubaccount}
		keep.status, keep.body = a.document(f, r.ID)
	}
	if t.stored {
		return got, err
	}
	if !storable(keep.status) {
		if r.route.Claim {
			a.drop(ctx, t)
		}
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var prior *Response
	storeErr := a.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if !r.route.Claim {
			// If another process was faster, its answer applies.
			if prior, err = t.enter(ctx, tx); err != nil || prior != nil {
				return err
			}
		}
		return t.store(ctx, tx, &keep)
	})
	if prior != nil {
		return *prior, nil
	}
	if f, ok := errors.AsType[*apiError](storeErr); ok {
		return Response{}, f
	}
	if storeErr != nil {
		a.log.ErrorContext(ctx, "answer not stored for retries", "request", r.ID, "error", storeErr)
	}
	return got, err
}

// drop deletes a claim.
func (a *API) drop(ctx context.Context, t *idempotentRequest) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM idempotency_keys WHERE organization_id = $1 AND key = $2 AND status = 0 AND fingerprint = $3",
			t.organization, t.key, t.print[:])
		return err
	})
	if err != nil {
		a.log.ErrorContext(ctx, "claim of an idempotency key not deleted; it will expire", "error", err)
	}
}

// fingerprintOf hashes the parts of a request that must be equal in a retry. They include the
// permissions of the API key: a stored answer may show data, or secrets shown once, that need
// them. A rotated key has the same permissions.
func fingerprintOf(r *Request) fingerprint {
	body := sha256.Sum256(r.Body)
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q ", r.http.Method, r.http.URL.EscapedPath(), r.http.URL.RawQuery)
	h.Write(body[:])
	io.WriteString(h, r.importing.kind) // the same text may be JSON and NDJSON
	fmt.Fprintf(h, " %q %t", r.Key.Level, r.Key.Resources.All)
	named := r.Key.Resources.Named
	for _, resource := range slices.Sorted(maps.Keys(named)) {
		fmt.Fprintf(h, " %q %q", resource, slices.Sorted(slices.Values(named[resource])))
	}
	return fingerprint(h.Sum(nil))
}

// find returns the stored answer, or nil.
func (t *idempotentRequest) find(ctx context.Context, q db.Querier, now time.Time) (*Response, error) {
	type stored struct {
		print []byte
		Response
	}
	got, err := db.One(ctx, q, func(row db.Row) (s stored, err error) {
		err = row.Scan(&s.print, &s.status, &s.body, &s.location, &s.tag, &s.about)
		return s, err
	}, `SELECT fingerprint, status, body, location, etag, subaccount_id FROM idempotency_keys
		WHERE organization_id = $1 AND key = $2 AND expires_at > $3`, t.organization, t.key, db.Time(now))
	switch {
	case errors.Is(err, db.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up idempotency key: %w", err)
	case string(got.print) != string(t.print[:]):
		return nil, errReused()
	case got.status == 0:
		return nil, errInProgress()
	}
	if got.body, err = t.box.Open(sealPurpose, got.body, t.organization+" "+t.key); err != nil {
		return nil, fmt.Errorf("open the stored answer: %w", err)
	}
	got.encoded, got.replayed = true, true
	return &got.Response, nil
}

// enter excludes concurrent runs, within the transaction that will store the answer. It returns
// the stored answer of an earlier run, or nil.
func (t *idempotentRequest) enter(ctx context.Context, tx *db.Tx) (*Response, error) {
	name := "idempotency " + t.organization + " " + t.key
	free, err := tx.TryLock(ctx, fmt.Sprintf("%s %x", name, t.print))
	if err != nil {
		return nil, fmt.Errorf("lock idempotency key: %w", err)
	}
	if !free {
		return nil, errInProgress()
	}
	if err := tx.Lock(ctx, name); err != nil {
		return nil, fmt.Errorf("lock idempotency key: %w", err)
	}
	return t.find(ctx, tx, tx.Now)
}

// claim marks the request as running, in a separate transaction.
func (t *idempotentRequest) claim(ctx context.Context, d *db.DB) (prior *Response, err error) {
	err = d.Write(ctx, func(tx *db.Tx) error {
		if prior, err = t.enter(ctx, tx); err != nil || prior != nil {
			return err
		}
		return t.put(ctx, tx, new(Response), claimLife)
	})
	return prior, err
}

// store stores an answer in the caller's transaction.
func (t *idempotentRequest) store(ctx context.Context, tx *db.Tx, got *Response) error {
	if !storable(got.status) {
		return nil
	}
	return t.put(ctx, tx, got, answerLife)
}

func (t *idempotentRequest) put(ctx context.Context, tx *db.Tx, got *Response, life time.Duration) error {
	body := t.box.Seal(sealPurpose, got.body, t.organization+" "+t.key)
	_, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (organization_id, key, fingerprint, status, body, location, etag, expires_at, subaccount_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (organization_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
			body = excluded.body, location = excluded.location, etag = excluded.etag, expires_at = excluded.expires_at, subaccount_id = excluded.subaccount_id`,
		t.organization, t.key, t.print[:], got.status, body, got.location, got.tag, db.Time(tx.Now.Add(life)), got.about)
	if err != nil {
		return fmt.Errorf("store the answer: %w", err)
	}
	return nil
}

// OnceTx returns a Conflict if a transaction that called it with this key was committed within a day.
// Concurrent ones with the same key wait for each other. It is for forms, which have no stored answer; no
// request can have their keys.
func OnceTx(ctx context.Context, tx *db.Tx, organizationID, key string) error {
	n, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (organization_id, key, fingerprint, status, body, location, etag, expires_at, subaccount_id)
		VALUES ($1, $2, $3, 0, $3, '', '', $4, '') ON CONFLICT (organization_id, key) DO NOTHING`, organizationID, formKeys+key, []byte{}, db.Time(tx.Now.Add(answerLife)))
	if err != nil {
		return fmt.Errorf("store the key of a form: %w", err)
	}
	if n == 0 {
		return &problem.Error{Kind: problem.Conflict, Code: problem.CodeSavedBefore, Message: "this form was saved before"}
	}
	return nil
}

// formKeys is the prefix of the keys of forms. Those of requests have only printable characters.
const formKeys = "form\n"

// Purge deletes expired answers from a database. Expired ones are ignored anyway, so an hourly
// call suffices.
func Purge(ctx context.Context, d *db.DB) error {
	for more := true; more; {
		err := d.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE (organization_id, key) IN
				(SELECT organization_id, key FROM idempotency_keys WHERE expires_at <= $1 LIMIT 1000)`, db.Time(tx.Now))
			more = n == 1000
			return err
		})
		if err != nil {
			return fmt.Errorf("purge idempotency keys: %w", err)
		}
	}
	return nil
}
