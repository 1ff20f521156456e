// Package connection manages channel connections: an organization's address on a channel, with
// the secrets of its provider and the proof that the organization owns the address.
//
// # Proofs
//
// Any organization can claim an address and does not see competing claims. At most one
// organization has proven it. Only that one receives requests verified by the deployment's
// secrets and sends by the deployment's accounts; see [Proof]. A request verified by a
// connection's own secret reaches that connection, proven or not, because only its organization
// and its provider can sign it.
//
// A connection has several secrets while one replaces another. Secrets and credentials are
// encrypted at rest and never listed.
//
// Every inbound request looks up connections, so [Service.FindByAddresses] uses a cache. A
// process sees its own changes at once, those of others within [CacheTTL].
package connection

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/google/uuid"
)

// Connection is an organization's address on a channel.
type Connection struct {
	ID             string            `json:"id"`
	OrganizationID string            `json:"organization_id"`
	Channel        string            `json:"channel"`
	Address        string            `json:"address"`
	Name           string            `json:"name"`
	Settings       map[string]string `json:"settings"`
	Enabled        bool              `json:"enabled"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	Notice         *Notice           `json:"notice"` // nil if there is no problem
	Proof          Proof             `json:"proof"`

	sharedKey      bool // copy of [channel.Info.SharedKey]
	sharesSecret   bool
	secrets        []secret
	credentials    map[string]string
	api            channel.API // of the channel
	noticedAt      time.Time   // time of the current notice state; zero if it never changed
	noticeMailedAt time.Time   // time of the last mail to admins
}

// secret is a signing secret in the form that is encrypted and stored.
type secret struct {
	Value string `json:"value"`
	Until int64  `json:"until,omitzero"` // microseconds; 0 for no expiry
}

// Secrets returns the signing secrets that are valid at a time, newest first.
func (c *Connection) Secrets(at time.Time) []string {
	list := make([]string, 0, len(c.secrets))
	for _, s := range c.secrets {
		if s.Until == 0 || at.UnixMicro() < s.Until {
			list = append(list, s.Value)
		}
	}
	return list
}

// Credentials returns the connection's credentials for the provider's API.
func (c *Connection) Credentials() channel.Credentials {
	return channel.ConnectionCredentials(c.api, c.credentials)
}

// CredentialValues returns the credentials as entered, for editing. Calls use
// [Connection.Credentials].
func (c *Connection) CredentialValues() map[string]string { return c.credentials }

// New describes a connection to create.
type New struct {
	OrganizationID string
	Channel        string
	Address        string
	Name           string            // defaults to the address
	Secrets        []string          // newest first; if empty, one is generated unless only the provider can
	Credentials    map[string]string // for the provider's API
	Settings       map[string]string
	// ByOperator means that the operator connects the address, which proves it. It is a
	// Conflict if another organization has proven the address.
	ByOperator bool
}

// Service manages connections. It is safe for concurrent use.
type Service struct {
	db        *db.DB
	box       *seal.Box
	adapters  map[string]channel.Adapter
	apis      map[string]channel.API
	cache     caches
	observers []func(ctx context.Context, tx *db.Tx, c *Connection, gone bool) error // fixed before first use
	examiners []func(ctx context.Context, c *Connection, h *Health) error
	digestsMu sync.Mutex // serializes reads of credential digests
	health    healthNotes
	listing   chan struct{} // capacity 1: serializes reads of channel lists

	proofs  Proofs
	audit   *audit.Log  // nil disables the audit log
	admins  mail.Admins // nil disables mail
	mailer  mail.Enqueuer
	baseURL string
}

// Open returns the service for the given adapters.
func Open(d *db.DB, box *seal.Box, adapters []channel.Adapter) *Service {
	s := &Service{db: d, box: box, adapters: make(map[string]channel.Adapter), apis: make(map[string]channel.API), cache: newCaches(), listing: make(chan struct{}, 1)}
	for _, a := range adapters {
		s.adapters[a.Info().Name], s.apis[a.Info().Name] = a, channel.APIOf(a)
	}
	return s
}

// SetAuditLog enables the audit log. Call it before the service is used.
func (s *Service) SetAuditLog(log *audit.Log) { s.audit = log }

// sealPurpose separates these secrets from other values under the same key.
const sealPurpose = "connection"

// Connect creates a connection and returns it with the secrets for the provider, which cannot
// be read again. An address that the organization has already connected is a Conflict; claims
// of other organizations do not matter.
func (s *Service) Connect(ctx context.Context, n New) (c Connection, secrets []string, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		c, secrets, err = s.ConnectTx(ctx, tx, n)
		return err
	})
	return c, secrets, err
}

// ConnectTx is [Service.Connect] in the caller's transaction.
func (s *Service) ConnectTx(ctx context.Context, tx *db.Tx, n New) (Connection, []string, error) {
	var v problem.Validation
	n.Channel = channel.AdapterName(n.Channel)
	a, known := s.adapters[n.Channel]
	if !known {
		v.Add("channel", "is not a channel; one of %s", strings.Join(s.channels(), ", "))
	}
	address := strings.TrimSpace(n.Address)
	v.Length("address", address, 1, 320)
	if known && address != "" {
		if f, ok := a.(channel.AddressNormalizer); ok {
			formed, err := f.NormalizeAddress(address)
			if err != nil {
				v.AddCode("invalid_format", "address", "%v", err)
			}
			address = formed
		}
	}
	v.Line("name", n.Name, 0, maxName)
	checkMap(&v, "credentials", n.Credentials)
	checkOwnKey(&v, n.Credentials, s.apis[n.Channel])
	checkMap(&v, "settings", n.Settings)
	checkValues(&v, a, address, n.Credentials, n.Settings)
	for i, secret := range n.Secrets {
		checkSecret(&v, "secrets."+strconv.Itoa(i), secret, a)
	}
	values := slices.Clone(n.Secrets)
	if len(values) == 0 && (!known || !a.Info().Collected) {
		values = []string{newSecret(&v, "secrets", a)}
	}
	if err := v.Err(); err != nil {
		return Connection{}, nil, err
	}
	c := Connection{
		ID: uuid.Must(uuid.NewV7()).String(), OrganizationID: n.OrganizationID, Channel: n.Channel, Address: address,
		Name: n.Name, Settings: n.Settings, Enabled: true, CreatedAt: tx.Now, UpdatedAt: tx.Now, credentials: n.Credentials, api: s.apis[n.Channel],
		Proof: Proof{State: Pending}, sharedKey: a.Info().SharedKey,
	}
	for _, value := range values {
		c.secrets = append(c.secrets, secret{Value: value})
	}
	if c.Name == "" {
		c.Name = address
	}
	if c.Settings == nil {
		c.Settings = map[string]string{}
	}
	sealedSecrets, err := s.seal(c.ID, c.secrets)
	if err != nil {
		return Connection{}, nil, err
	}
	sealedCredentials, err := s.seal(c.ID, n.Credentials)
	if err != nil {
		return Connection{}, nil, err
	}
	inserted, err := tx.Exec(ctx, `INSERT INTO connections
		(id, organization_id, channel, medium, address, name, secrets, credentials, settings, enabled, created_at, updated_at, proof)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12) ON CONFLICT (organization_id, medium, address) DO NOTHING`,
		c.ID, c.OrganizationID, c.Channel, a.Info().TicketChannel, c.Address, c.Name,
		sealedSecrets, sealedCredentials, db.JSON(c.Settings), true, tx.Now.UnixMicro(), string(Pending))
	if err != nil {
		return Connection{}, nil, fmt.Errorf("connect %s: %w", n.Channel, err)
	}
	if inserted == 0 {
		return Connection{}, nil, errConnected(address)
	}
	if err := s.saveAliases(ctx, tx, &c); err != nil {
		return Connection{}, nil, err
	}
	tx.AfterCommit(s.cache.clear)
	if err := s.recordTx(ctx, tx, AuditConnected, &c, nil, nil); err != nil {
		return Connection{}, nil, err
	}
	if !a.Info().OwnName {
		if err := s.proveNew(ctx, tx, &c, n.ByOperator); err != nil {
			return Connection{}, nil, err
		}
	}
	return c, values, s.notifyObservers(ctx, tx, &c, false)
}

func errConnected(address string) error {
	return &problem.Error{
		Kind: problem.Conflict, Message: address + " is connected already",
		Code: "already_exists", Details: map[string]any{"member": "address"},
	}
}

const (
	maxName    = 255
	maxEntries = 50 // of credentials and of settings
	maxValue   = 4096
)

// checkSecret validates a signing secret. Issues never contain it.
func checkSecret(v *problem.Validation, path, value string, a channel.Adapter) {
	v.Length(path, value, 8, 1024)
	if strings.TrimSpace(value) == "" && !v.Has(path) {
		v.Add(path, "must not be blank")
	}
	if c, ok := a.(channel.SecretChecker); ok && !v.Has(path) {
		if err := c.CheckSecret(value); err != nil {
			v.AddCode("invalid_format", path, "%v", err)
		}
	}
}

// newSecret generates a signing secret, or adds an issue if only the provider can.
func newSecret(v *problem.Validation, path string, a channel.Adapter) string {
	value := rand.Text()
	if c, ok := a.(channel.SecretChecker); ok {
		if err := c.CheckSecret(value); err != nil {
			v.AddCode("required", path, "is required, because only the provider can generate it. It %v", err)
		}
	}
	return value
}

// checkMap validates credentials or settings. Issues never contain a value.
func checkMap(v *problem.Validation, path string, m map[string]string) {
	if len(m) > maxEntries {
		v.AddCode("too_long", path, "must have at most %d entries", maxEntries)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v.Line(path, name, 1, 64)
		v.Length(path, m[name], 0, maxValue)
	}
}

// checkValues adds what the channel finds wrong with credentials and settings.
func checkValues(v *problem.Validation, a channel.Adapter, address string, credentials, settings map[string]string) {
	if c, ok := a.(channel.ConnectionChecker); ok && v.Err() == nil {
		c.CheckConnection(v, address, credentials, settings)
	}
}

// checkOwnKey rejects an API URL without a key, because no key but the connection's own may be
// sent to it.
func checkOwnKey(v *problem.Validation, credentials map[string]string, api channel.API) {
	var address, key string
	for i := range api.Credentials {
		switch d := &api.Credentials[i]; {
		case d.Kind == channel.KindAPIURL && credentials[d.Name] != "":
			address = d.Name
		case d.Kind == channel.KindAPIKey && credentials[d.Name] != "":
			return
		case d.Kind == channel.KindAPIKey && key == "":
			key = d.Name
		}
	}
	if address != "" && key != "" {
		v.AddCode("required", "credentials."+key, "is required (%s) with %s, which is called with the connection's own key only", key, address)
	}
}

func (s *Service) channels() []string {
	var names []string
	for name := range s.adapters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Rotate adds a signing secret, generated if value is empty, and returns it; it cannot be read
// again. Previous secrets stay valid for overlap, so that the provider can be switched without
// interruption.
func (s *Service) Rotate(ctx context.Context, organizationID, id, value string, overlap time.Duration) (string, error) {
	err := s.db.Write(ctx, func(tx *db.Tx) (err error) {
		value, err = s.RotateTx(ctx, tx, organizationID, id, value, overlap)
		return err
	})
	return value, err
}

// RotateTx is [Service.Rotate] in the caller's transaction.
func (s *Service) RotateTx(ctx context.Context, tx *db.Tx, organizationID, id, value string, overlap time.Duration) (string, error) {
	c, err := s.lock(ctx, tx, organizationID, id)
	if err != nil {
		return "", err
	}
	var v problem.Validation
	if a := s.adapters[c.Channel]; value == "" {
		value = newSecret(&v, "secret", a)
	} else {
		checkSecret(&v, "secret", value, a)
	}
	if err := v.Err(); err != nil {
		return "", err
	}
	c.replaceSecrets([]string{value}, tx.Now, overlap)
	if err := s.recordTx(ctx, tx, AuditSecretRotated, &c, nil, nil); err != nil {
		return "", err
	}
	return value, s.save(ctx, tx, &c)
}

// replaceSecrets sets new secrets. Previous ones stay valid for overlap.
func (c *Connection) replaceSecrets(values []string, now time.Time, overlap time.Duration) {
	var kept []secret
	for _, value := range values {
		kept = append(kept, secret{Value: value})
	}
	until := now.Add(overlap).UnixMicro()
	for _, old := range c.secrets {
		if old.Until == 0 || old.Until > until {
			old.Until = until
		}
		if old.Until > now.UnixMicro() && !slices.Contains(values, old.Value) {
			kept = append(kept, old)
		}
	}
	c.secrets = kept
}

// SetEnabled enables or disables a connection. A disabled one keeps its address and verifies no
// requests.
func (s *Service) SetEnabled(ctx context.Context, organizationID, id string, enabled bool) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := s.UpdateTx(ctx, tx, organizationID, id, Change{Enabled: &enabled})
		return err
	})
}

// Change describes an update; nil fields stay unchanged. Enabling a connection removes its
// notice. Channel and address cannot change.
type Change struct {
	Name        *string // empty resets it to the address
	Enabled     *bool
	Secrets     []string          // newest first, at least one; previous ones stay valid for [Overlap]
	Credentials map[string]string // replaces all
	Settings    map[string]string // replaces all
}

// Overlap is how long a replaced secret stays valid by default.
const Overlap = 24 * time.Hour

// UpdateTx updates a connection in the caller's transaction. Errors: NotFound, also for another
// organization's; Invalid.
func (s *Service) UpdateTx(ctx context.Context, tx *db.Tx, organizationID, id string, change Change) (Connection, error) {
	var v problem.Validation
	if change.Name != nil {
		v.Line("name", *change.Name, 0, maxName)
	}
	checkMap(&v, "credentials", change.Credentials)
	checkMap(&v, "settings", change.Settings)
	if change.Secrets != nil && len(change.Secrets) == 0 {
		v.AddCode("too_short", "secrets", "must have at least one: unverified requests are refused")
	}
	c, err := s.lock(ctx, tx, organizationID, id)
	if err != nil {
		return Connection{}, err
	}
	checkOwnKey(&v, change.Credentials, s.apis[c.Channel])
	if change.Settings != nil || change.Credentials != nil {
		settings, credentials := c.Settings, c.credentials
		if change.Settings != nil {
			settings = change.Settings
		}
		if change.Credentials != nil {
			credentials = change.Credentials
		}
		checkValues(&v, s.adapters[c.Channel], c.Address, credentials, settings)
	}
	for i, secret := range change.Secrets {
		checkSecret(&v, "secrets."+strconv.Itoa(i), secret, s.adapters[c.Channel])
	}
	if err := v.Err(); err != nil {
		return Connection{}, err
	}
	before := c
	if change.Name != nil {
		c.Name = cmp.Or(*change.Name, c.Address)
	}
	if change.Enabled != nil {
		if *change.Enabled && !c.Enabled {
			c.Notice, c.noticedAt = nil, tx.Now
		}
		c.Enabled = *change.Enabled
	}
	if change.Secrets != nil {
		c.replaceSecrets(change.Secrets, tx.Now, Overlap)
	}
	if change.Credentials != nil {
		c.credentials = change.Credentials
	}
	if change.Settings != nil {
		c.Settings = change.Settings
	}
	if err := s.recordUpdateTx(ctx, tx, &before, &c, change); err != nil {
		return Connection{}, err
	}
	if change.Settings != nil {
		if err := s.saveAliases(ctx, tx, &c); err != nil {
			return Connection{}, err
		}
	}
	return c, s.save(ctx, tx, &c)
}

// DeleteTx deletes a connection in the caller's transaction: its address is free again, its
// secrets verify nothing, and tickets cannot be answered by it any more. Another organization's
// is NotFound.
func (s *Service) DeleteTx(ctx context.Context, tx *db.Tx, organizationID, id string) error {
	c, err := s.lock(ctx, tx, organizationID, id)
	if err != nil {
		return err
	}
	if err := tx.Queue(ctx, "DELETE FROM connections WHERE id = $1", id); err != nil {
		return fmt.Errorf("delete connection: %w", err)
	}
	if err := s.recordTx(ctx, tx, AuditDisconnected, &c, nil, nil); err != nil {
		return err
	}
	for _, table := range []string{"connection_challenges", "connection_aliases"} {
		if err := tx.Queue(ctx, "DELETE FROM "+table+" WHERE connection_id = $1", id); err != nil {
			return fmt.Errorf("delete %s: %w", table, err)
		}
	}
	tx.AfterCommit(s.cache.clear)
	return s.notifyObservers(ctx, tx, &c, true)
}

func errNotFound() error { return problem.New(problem.NotFound, "there is no such connection") }

// lock returns a connection and locks it until the transaction ends. Another organization's is
// NotFound.
func (s *Service) lock(ctx context.Context, tx *db.Tx, organizationID, id string) (Connection, error) {
	return s.get(ctx, tx, organizationID, id, " FOR UPDATE")
}

func (s *Service) get(ctx context.Context, q db.Querier, organizationID, id, suffix string) (Connection, error) {
	c, err := db.One(ctx, q, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1 AND organization_id = $2"+suffix, id, organizationID)
	if errors.Is(err, db.ErrNoRows) {
		return c, errNotFound()
	}
	if err != nil {
		return c, fmt.Errorf("find connection: %w", err)
	}
	return c, nil
}

// save stores an updated connection and notifies observers.
func (s *Service) save(ctx context.Context, tx *db.Tx, c *Connection) error {
	if err := s.update(ctx, tx, c); err != nil {
		return err
	}
	return s.notifyObservers(ctx, tx, c, false)
}

// update stores an updated connection.
func (s *Service) update(ctx context.Context, tx *db.Tx, c *Connection) error {
	secrets, err := s.seal(c.ID, c.secrets)
	if err != nil {
		return err
	}
	credentials, err := s.seal(c.ID, c.credentials)
	if err != nil {
		return err
	}
	c.UpdatedAt = tx.Now
	var text, kind any
	if c.Notice != nil {
		text, kind = c.Notice.Text, string(c.Notice.Kind)
	}
	if _, err = tx.Exec(ctx, `UPDATE connections SET name = $2, secrets = $3, credentials = $4, settings = $5, enabled = $6, updated_at = $7,
			notice = $8, notice_kind = $9, noticed_at = $10, notice_mailed_at = $11, proof = $12, proof_method = $13, proven_at = $14 WHERE id = $1`,
		c.ID, c.Name, secrets, credentials, db.JSON(c.Settings), c.Enabled, tx.Now.UnixMicro(),
		text, kind, db.Time(c.noticedAt), db.Time(c.noticeMailedAt),
		string(c.Proof.State), db.Text(string(c.Proof.Method)), db.Time(c.Proof.At)); err != nil {
		return fmt.Errorf("change connection: %w", err)
	}
	tx.AfterCommit(s.cache.clear)
	return nil
}

func (s *Service) seal(id string, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.box.Seal(sealPurpose, plain, id), nil
}

const columns = "id, organization_id, channel, address, name, secrets, credentials, settings, enabled, created_at, updated_at, notice, notice_kind, noticed_at, notice_mailed_at, proof, proof_method, proven_at, shares_secret"

func (s *Service) scan(row db.Row) (Connection, error) {
	var c Connection
	var secrets, credentials []byte
	var n Notice
	err := row.Scan(&c.ID, &c.OrganizationID, &c.Channel, &c.Address, &c.Name, &secrets, &credentials,
		db.IntoJSON(&c.Settings), &c.Enabled, db.IntoTime(&c.CreatedAt), db.IntoTime(&c.UpdatedAt),
		db.IntoText(&n.Text), db.IntoText((*string)(&n.Kind)), db.IntoTime(&c.noticedAt), db.IntoTime(&c.noticeMailedAt),
		&c.Proof.State, db.IntoText((*string)(&c.Proof.Method)), db.IntoTime(&c.Proof.At), &c.sharesSecret)
	if err != nil {
		return c, err
	}
	c.api = s.apis[c.Channel]
	if a, ok := s.adapters[c.Channel]; ok {
		c.sharedKey = a.Info().SharedKey
	}
	if n.Kind != "" {
		n.At = c.noticedAt
		c.Notice = &n
	}
	return c, errors.Join(s.unseal(c.ID, secrets, &c.secrets), s.unseal(c.ID, credentials, &c.credentials))
}

func (s *Service) unseal(id string, sealed []byte, into any) error {
	plain, err := s.box.Open(sealPurpose, sealed, id)
	if err != nil {
		return fmt.Errorf("secrets of connection %s: %w", id, err)
	}
	return json.Unmarshal(plain, into)
}

// List returns an organization's connections, oldest first.
func (s *Service) List(ctx context.Context, organizationID string) ([]Connection, error) {
	return db.All(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE organization_id = $1 ORDER BY id", organizationID)
}

// FindTx is [Service.FindOf] in the caller's transaction, and locks the connection until its
// end.
func (s *Service) FindTx(ctx context.Context, tx *db.Tx, organizationID, id string) (Connection, error) {
	return s.lock(ctx, tx, organizationID, id)
}

// Path returns the endpoint path of a channel, or "" if there is no such channel.
func (s *Service) Path(name string) string {
	if a, ok := s.adapters[name]; ok {
		return a.Info().Path
	}
	return ""
}

// FindOf returns one of an organization's connections, or a NotFound problem.
func (s *Service) FindOf(ctx context.Context, q db.Querier, organizationID, id string) (Connection, error) {
	return s.get(ctx, q, organizationID, id, "")
}

// maxClaims bounds the unproven connections per address, oldest first, that
// [Service.FindByAddresses] returns. The rest receive only requests to the URL that names them.
const maxClaims = 4

// FindByAddresses returns the connections of a ticket channel at the addresses, enabled or not, in the
// order of the addresses: for each the one that has proven it, if any, then the oldest unproven
// ones. They must not be modified.
func (s *Service) FindByAddresses(ctx context.Context, ticketChannel string, addresses []string) ([]*Connection, error) {
	start := s.cache.byAddress.Start()
	found, missing := s.cache.at(ticketChannel, addresses)
	if len(missing) == 0 {
		return found, nil
	}
	const where, order = "SELECT " + columns + ` FROM (SELECT c.*, row_number() OVER
		(PARTITION BY address ORDER BY CASE proof WHEN 'proven' THEN 0 ELSE 1 END, id) AS place
		FROM connections c WHERE medium = $1 AND address `, `) AS placed WHERE place <= $3 ORDER BY place`
	query, arg := where+"= ANY($2)"+order, any(missing)
	if len(missing) == 1 {
		query, arg = where+"= $2"+order, missing[0]
	}
	rows, err := db.All(ctx, s.db, s.scan, query, ticketChannel, arg, maxClaims+1)
	if err != nil {
		return nil, err
	}
	read := make([]*Connection, len(rows))
	for i := range rows {
		read[i] = &rows[i]
	}
	found = append(found, read...)
	if len(found) > 0 {
		s.cache.putAt(ticketChannel, missing, read, start)
	}
	slices.SortStableFunc(found, func(a, b *Connection) int {
		return slices.Index(addresses, a.Address) - slices.Index(addresses, b.Address)
	})
	return found, nil
}

// FindByAddress returns an organization's connection at an address, enabled or not, or nil.
func (s *Service) FindByAddress(ctx context.Context, organizationID, ticketChannel, address string) (*Connection, error) {
	c, err := db.One(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE organization_id = $1 AND medium = $2 AND address = $3",
		organizationID, ticketChannel, address)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find connection: %w", err)
	}
	return &c, nil
}

// Find returns a connection by id, or [db.ErrNoRows].
func (s *Service) Find(ctx context.Context, id string) (Connection, error) {
	return db.One(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1", id)
}

// Ambiguous is the error of a message that several connections could send.
type Ambiguous struct {
	Choices []Connection // enabled, by address
}

func (e *Ambiguous) Error() string {
	choices := make([]string, len(e.Choices))
	for i := range e.Choices {
		choices[i] = e.Choices[i].Address + " (" + e.Choices[i].ID + ")"
	}
	return "the organization has several connections of this channel: " + strings.Join(choices, ", ")
}

// FindForSending returns the connection that sends an organization's message: the one with the
// id, or, if id is empty, the only enabled one of the ticket channel. Errors: [db.ErrNoRows];
// [*Ambiguous] if there are several.
func (s *Service) FindForSending(ctx context.Context, q db.Querier, organizationID, id, ticketChannel string) (Connection, error) {
	if id != "" {
		return db.One(ctx, q, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1 AND organization_id = $2", id, organizationID)
	}
	list, err := db.All(ctx, q, s.scan, "SELECT "+columns+" FROM connections WHERE organization_id = $1 AND medium = $2 AND enabled ORDER BY address LIMIT 20", organizationID, ticketChannel)
	if err != nil {
		return Connection{}, err
	}
	switch len(list) {
	case 0:
		return Connection{}, db.ErrNoRows
	case 1:
		return list[0], nil
	}
	return Connection{}, &Ambiguous{list}
}

// SharesSecret reports whether a deployment secret has verified a request for the connection.
func (c *Connection) SharesSecret() bool { return c.sharesSecret }

// RecordSharedTx records that a deployment secret verified a request for a connection. A
// missing connection is no error.
func (s *Service) RecordSharedTx(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, "UPDATE connections SET shares_secret = TRUE WHERE id = $1 AND NOT shares_secret", id)
	if err != nil {
		return fmt.Errorf("record the secret of a connection: %w", err)
	}
	if n > 0 {
		tx.AfterCommit(s.cache.clear)
	}
	return nil
}

// SharedWithOthers reports whether another organization receives by the deployment's secret of
// one of the channels: it has an enabled and proven connection, and either the operator proved
// it or the secret has verified a request for it. Its own proof alone does not count: it may
// use another app.
func (s *Service) SharedWithOthers(ctx context.Context, q db.Querier, channels []string, organizationID string) (bool, error) {
	var shared bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM connections WHERE channel = ANY($1) AND organization_id <> $2 AND enabled AND proof = 'proven'
		AND (shares_secret OR proof_method IN ('operator', 'allowed')))`, channels, organizationID).Scan(&shared)
	return shared, err
}

// Owns reports whether the organization has a connection at the address, or with the address as an
// alias.
func (s *Service) Owns(ctx context.Context, q db.Querier, organizationID, ticketChannel, address string) (owns bool, err error) {
	_, domain, _ := strings.Cut(address, "@")
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM connections WHERE medium = $1 AND address = $2 AND organization_id = $3)
		OR EXISTS (SELECT 1 FROM connection_aliases WHERE medium = $1 AND address IN ($2, $4) AND organization_id = $3)`,
		ticketChannel, address, organizationID, "@"+domain).Scan(&owns)
	return owns, err
}
