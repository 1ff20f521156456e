package tiles

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// mbtiles is an MBTiles file (version 1.3): a SQLite database.
type mbtiles struct{ pool *sqlitex.Pool }

func openMBTiles(path string) (*mbtiles, about, error) {
	pool, err := sqlitex.NewPool(path, sqlitex.PoolOptions{Flags: sqlite.OpenReadOnly, PoolSize: 4})
	if err != nil {
		return nil, about{}, err
	}
	m := &mbtiles{pool}
	a, err := m.metadata()
	if err != nil {
		return nil, about{}, errors.Join(fmt.Errorf("%s: %w", path, err), pool.Close())
	}
	return m, a, nil
}

func (m *mbtiles) close() error { return m.pool.Close() }

// metadata reads the description of the file.
func (m *mbtiles) metadata() (about, error) {
	conn, err := m.pool.Take(context.Background())
	if err != nil {
		return about{}, err
	}
	defer m.pool.Put(conn)
	values := make(map[string]string)
	err = sqlitex.Execute(conn, "SELECT name, value FROM metadata", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		values[row.ColumnText(0)] = row.ColumnText(1)
		return nil
	}})
	if err != nil {
		return about{}, fmt.Errorf("not an MBTiles file: %w", err)
	}
	a := about{attribution: values["attribution"]}
	switch values["format"] {
	case "pbf":
		a.vector = true
	case "png", "jpg", "jpeg", "webp":
	default:
		return about{}, fmt.Errorf("its tiles are %q, not pbf, png, jpg or webp", values["format"])
	}
	if a.maxZoom, err = strconv.Atoi(values["maxzoom"]); err != nil {
		err = sqlitex.Execute(conn, "SELECT max(zoom_level) FROM tiles", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			a.maxZoom = row.ColumnInt(0)
			return nil
		}})
		if err != nil {
			return about{}, err
		}
	}
	a.maxZoom = min(maxZoom, max(0, a.maxZoom))
	return a, nil
}

func (m *mbtiles) tile(ctx context.Context, id ID) (stored, error) {
	conn, err := m.pool.Take(ctx)
	if err != nil {
		return stored{}, err
	}
	defer m.pool.Put(conn)
	var s stored
	err = sqlitex.Execute(conn, "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?", &sqlitex.ExecOptions{
		Args: []any{id.Z, id.X, 1<<id.Z - 1 - id.Y}, // rows count from the south
		ResultFunc: func(row *sqlite.Stmt) error {
			n := row.ColumnLen(0)
			if n > maxTile {
				return fmt.Errorf("a tile has more than %d bytes", maxTile)
			}
			s.body = make([]byte, n)
			row.ColumnBytes(0, s.body)
			return nil
		},
	})
	return s, err
}
