// Package connection keeps the channel connections: which address of which
// channel belongs to which organization, and the secrets that prove it.
//
// An address belongs to one connection only, whatever adapter serves it, so an
// event's recipient names its organization. A connection has several secrets
// while one replaces another. Secrets and credentials are sealed at rest and
// never leave in a listing.
//
// Every inbound request asks for connections, so [Service.At] answers from
// memory. What one process changes, it sees at once; another process sees it
// within [Fresh].
package connection

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/seal"

	"github.com/google/uuid"
)

// Connection is one address of one channel.
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

	secrets     []secret
	credentials map[string]string
}

// secret is a signing secret, with the form in which it is kept before sealing.
type secret struct {
	Value string `json:"value"`
	Until int64  `json:"until,omitzero"` // microseconds; 0: for ever
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

// Credentials returns what the provider's API wants from us.
func (c *Connection) Credentials() map[string]string { return c.credentials }

// New describes a connection to make.
type New struct {
	OrganizationID string
	Channel        string
	Address        string
	Name           string            // empty: the address
	Secrets        []string          // newest first; none: one is made
	Credentials    map[string]string // for the provider's API
	Settings       map[string]string
}

// Service makes and finds connections. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	box      *seal.Box
	adapters map[string]channel.Adapter
	memory   memory
}

// Open returns the service for the given adapters.
func Open(d *db.DB, box *seal.Box, adapters []channel.Adapter) *Service {
	s := &Service{db: d, box: box, adapters: make(map[string]channel.Adapter)}
	for _, a := range adapters {
		s.adapters[a.Info().Name] = a
	}
	return s
}

// sealPurpose separates these secrets from others under the same key.
const sealPurpose = "connection"

// Connect makes a connection and returns it with the secrets to give to the
// provider: this is the only time they can be read. An address that is
// connected already is a Conflict.
func (s *Service) Connect(ctx context.Context, n New) (Connection, []string, error) {
	var v problem.Validation
	a, known := s.adapters[n.Channel]
	if !known {
		v.Add("channel", "is not a channel; one of %s", strings.Join(s.channels(), ", "))
	}
	address := strings.TrimSpace(n.Address)
	v.Length("address", address, 1, 320)
	if known && address != "" {
		if f, ok := a.(channel.AddressFormer); ok {
			formed, err := f.FormAddress(address)
			if err != nil {
				v.Add("address", "%v", err)
			}
			address = formed
		}
	}
	v.Length("name", n.Name, 0, 255)
	for _, secret := range n.Secrets {
		checkSecret(&v, secret)
	}
	if err := v.Err(); err != nil {
		return Connection{}, nil, err
	}
	values := slices.Clone(n.Secrets)
	if len(values) == 0 {
		values = []string{rand.Text()}
	}
	c := Connection{
		ID: uuid.Must(uuid.NewV7()).String(), OrganizationID: n.OrganizationID, Channel: n.Channel, Address: address,
		Name: n.Name, Settings: n.Settings, Enabled: true, credentials: n.Credentials,
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
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		c.CreatedAt, c.UpdatedAt = tx.Now, tx.Now
		_, err := tx.Exec(ctx, `INSERT INTO connections
			(id, organization_id, channel, medium, address, name, secrets, credentials, settings, enabled, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)`,
			c.ID, c.OrganizationID, c.Channel, a.Info().Medium, c.Address, c.Name,
			sealedSecrets, sealedCredentials, db.JSON(c.Settings), true, tx.Now.UnixMicro())
		tx.AfterCommit(s.memory.forget)
		return err
	})
	if db.IsUnique(err) {
		return Connection{}, nil, problem.New(problem.Conflict, "%s is connected already", address).Because(err)
	}
	if err != nil {
		return Connection{}, nil, fmt.Errorf("connect %s: %w", n.Channel, err)
	}
	return c, values, nil
}

func checkSecret(v *problem.Validation, value string) { v.Length("secrets", value, 8, 1024) }

func (s *Service) channels() []string {
	var names []string
	for name := range s.adapters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Rotate gives a connection a new signing secret, made if value is empty, and
// returns it; this is the only time it can be read. Those before it stay valid
// for a while, so that the provider can be changed over without a gap.
func (s *Service) Rotate(ctx context.Context, organizationID, id, value string, overlap time.Duration) (string, error) {
	if value == "" {
		value = rand.Text()
	}
	var v problem.Validation
	checkSecret(&v, value)
	if err := v.Err(); err != nil {
		return "", err
	}
	err := s.change(ctx, organizationID, id, func(c *Connection, now time.Time) {
		kept := []secret{{Value: value}}
		until := now.Add(overlap).UnixMicro()
		for _, old := range c.secrets {
			if old.Until == 0 || old.Until > until {
				old.Until = until
			}
			if old.Until > now.UnixMicro() && old.Value != value {
				kept = append(kept, old)
			}
		}
		c.secrets = kept
	})
	return value, err
}

// SetEnabled switches a connection on or off. One that is off keeps its address
// and verifies nothing.
func (s *Service) SetEnabled(ctx context.Context, organizationID, id string, enabled bool) error {
	return s.change(ctx, organizationID, id, func(c *Connection, _ time.Time) { c.Enabled = enabled })
}

// change updates a connection. Another organization's is not found.
func (s *Service) change(ctx context.Context, organizationID, id string, apply func(c *Connection, now time.Time)) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		c, err := db.One(ctx, tx, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1 AND organization_id = $2 FOR UPDATE", id, organizationID)
		if errors.Is(err, db.ErrNoRows) {
			return problem.New(problem.NotFound, "there is no such connection")
		}
		if err != nil {
			return err
		}
		apply(&c, tx.Now)
		sealed, err := s.seal(c.ID, c.secrets)
		if err != nil {
			return err
		}
		tx.AfterCommit(s.memory.forget)
		_, err = tx.Exec(ctx, "UPDATE connections SET secrets = $2, enabled = $3, updated_at = $4 WHERE id = $1",
			c.ID, sealed, c.Enabled, tx.Now.UnixMicro())
		return err
	})
	if err != nil {
		return fmt.Errorf("change connection: %w", err)
	}
	return nil
}

func (s *Service) seal(id string, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.box.Seal(sealPurpose, plain, id), nil
}

const columns = "id, organization_id, channel, address, name, secrets, credentials, settings, enabled, created_at, updated_at"

func (s *Service) scan(row db.Row) (Connection, error) {
	var c Connection
	var secrets, credentials []byte
	err := row.Scan(&c.ID, &c.OrganizationID, &c.Channel, &c.Address, &c.Name, &secrets, &credentials,
		db.IntoJSON(&c.Settings), &c.Enabled, db.IntoTime(&c.CreatedAt), db.IntoTime(&c.UpdatedAt))
	if err != nil {
		return c, err
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

// At returns the connections of a medium at any of the addresses, enabled or
// not, in the order of the addresses. They must not be changed.
func (s *Service) At(ctx context.Context, medium string, addresses []string) ([]*Connection, error) {
	found, missing, since := s.memory.recall(medium, addresses)
	if len(missing) == 0 {
		return found, nil
	}
	query, arg := "SELECT "+columns+" FROM connections WHERE medium = $1 AND address = ANY($2)", any(missing)
	if len(missing) == 1 {
		query, arg = "SELECT "+columns+" FROM connections WHERE medium = $1 AND address = $2", missing[0]
	}
	rows, err := db.All(ctx, s.db, s.scan, query, medium, arg)
	if err != nil {
		return nil, err
	}
	read := make([]*Connection, len(rows))
	for i := range rows {
		read[i] = &rows[i]
	}
	found = append(found, read...)
	if len(found) > 0 {
		s.memory.keep(medium, missing, read, since)
	}
	slices.SortStableFunc(found, func(a, b *Connection) int {
		return slices.Index(addresses, a.Address) - slices.Index(addresses, b.Address)
	})
	return found, nil
}

// Find returns a connection by id; [db.ErrNoRows] when there is none.
func (s *Service) Find(ctx context.Context, id string) (Connection, error) {
	return db.One(ctx, s.db, s.scan, "SELECT "+columns+" FROM connections WHERE id = $1", id)
}

// Owns reports whether address is one of the organization's own.
func (s *Service) Owns(ctx context.Context, q db.Querier, organizationID, medium, address string) (bool, error) {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM connections WHERE medium = $1 AND address = $2 AND organization_id = $3",
		medium, address, organizationID).Scan(&n)
	return n > 0, err
}
