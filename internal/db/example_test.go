package db_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kickstand-dev/kickstand/internal/db"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "db")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	d, err := db.Open(ctx, "sqlite:"+filepath.Join(dir, "bikes.db"), db.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()

	err = d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE bikes (id TEXT PRIMARY KEY, created_at BIGINT NOT NULL)"); err != nil {
			return err
		}
		for _, id := range []string{"b1", "b2", "b3"} {
			if _, err := tx.Exec(ctx, "INSERT INTO bikes (id, created_at) VALUES ($1, $2)", id, db.Time(tx.Now)); err != nil {
				return err
			}
		}
		tx.AfterCommit(func() { fmt.Println("committed") })
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	ids, err := db.All(ctx, d, func(row db.Row) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM bikes WHERE id = ANY($1) ORDER BY id", []string{"b1", "b3", "b9"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)
	// Output:
	// committed
	// [b1 b3]
}
