package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of ceilings
	_ "modernc.org/sqlite"             // the driver "sqlite" of ceilings
)

// engine is a database engine.
type engine int

const (
	sqlite engine = iota
	postgres
)

// suffix marks the rows of an engine.
func (e engine) suffix() string {
	if e == postgres {
		return ", PostgreSQL"
	}
	return ""
}

// store is where a server stores: a data folder and, on PostgreSQL, a database of its own.
type store struct {
	data string
	url  string // of the PostgreSQL database; empty: SQLite in data
}

// newStore returns an empty store. The caller removes it.
func (b *bench) newStore(ctx context.Context, e engine, name string) (*store, error) {
	s := &store{data: filepath.Join(b.dir, name)}
	if err := os.MkdirAll(s.data, 0o700); err != nil || e == sqlite {
		return s, err
	}
	var err error
	s.url, err = b.createDatabase(ctx, "")
	return s, err
}

// copyDatabase returns a store with a copy of another's database and with its data folder. The
// caller drops it. Nothing may be connected to the other.
func (b *bench) copyDatabase(ctx context.Context, from *store) (*store, error) {
	u, err := url.Parse(from.url)
	if err != nil {
		return nil, err
	}
	at, err := b.createDatabase(ctx, " TEMPLATE "+u.Path[1:])
	return &store{data: from.data, url: at}, err
}

// createDatabase creates a PostgreSQL database and returns its URL.
func (b *bench) createDatabase(ctx context.Context, options string) (string, error) {
	u, err := url.Parse(b.postgres)
	if err != nil {
		return "", errors.New("the URL of PostgreSQL cannot be parsed")
	}
	b.databases++
	u.Path = fmt.Sprintf("/kickstand_bench_%d_%d", os.Getpid(), b.databases)
	return u.String(), b.administer(ctx, "CREATE DATABASE "+u.Path[1:]+options)
}

// administer runs a statement in the server's first database.
func (b *bench) administer(ctx context.Context, statement string) error {
	d, err := sql.Open("pgx", b.postgres)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.ExecContext(ctx, statement)
	return err
}

// remove removes the store and all connections to it.
func (b *bench) remove(s *store) {
	os.RemoveAll(s.data)
	b.drop(s)
}

// drop removes the database of a store on PostgreSQL, and all connections to it.
func (b *bench) drop(s *store) {
	if u, err := url.Parse(s.url); err == nil && s.url != "" {
		b.administer(context.Background(), "DROP DATABASE IF EXISTS "+u.Path[1:]+" WITH (FORCE)")
	}
}

// open opens the database of the helpdesk by the driver alone, beside servers.
func (s *store) open() (*sql.DB, error) {
	if s.url != "" {
		return sql.Open("pgx", s.url)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(s.data, "kickstand.db")+"?mode=rw&_pragma=busy_timeout(10000)")
}

// openBare opens a database for a ceiling: durable, with one connection.
func (s *store) openBare() (*sql.DB, error) {
	driver, source := "sqlite", "file:"+filepath.Join(s.data, "bare.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	if s.url != "" {
		driver, source = "pgx", s.url
	}
	d, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	d.SetMaxOpenConns(1)
	return d, nil
}

// number returns the result of a query for one number, by the driver alone.
func (s *store) number(ctx context.Context, query string) (n int64, err error) {
	d, err := s.open()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	err = d.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// exec runs a statement by the driver alone.
func (s *store) exec(ctx context.Context, statement string) error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.ExecContext(ctx, statement)
	return err
}
