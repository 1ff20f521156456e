package queue_test

import (
	"os"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue/queuetest"
)

func TestSQLite(t *testing.T) { queuetest.Run(t, dbtest.SQLiteURL) }

func TestPostgres(t *testing.T) {
	needPostgres(t)
	queuetest.Run(t, dbtest.URL)
}

func needPostgres(t *testing.T) {
	t.Helper()
	if os.Getenv(dbtest.Variable) == "" {
		t.Skip(dbtest.Variable + " is not set")
	}
}
