package db_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// crashVariable makes this test binary the process to be killed; its value is the database URL.
const crashVariable = "KICKSTAND_TEST_CRASH"

// TestCrashVictim is the victim of TestKilled, not a test. It writes rows without end and
// reports durable ones on standard output.
func TestCrashVictim(t *testing.T) {
	rawURL := os.Getenv(crashVariable)
	if rawURL == "" {
		t.Skip("run by TestKilled")
	}
	d := dbtest.Open(t, rawURL)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := 0; ; j++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), i, j)
				if err := d.Write(context.Background(), func(tx *db.Tx) error {
					if _, err := tx.Exec(context.Background(), "INSERT INTO things (id, part) VALUES ($1, 1)", id); err != nil {
						return err
					}
					_, err := tx.Exec(context.Background(), "INSERT INTO things (id, part) VALUES ($1, 2)", id)
					return err
				}); err != nil {
					fmt.Println("error", err)
					return
				}
				fmt.Println(id)
			}
		})
	}
	wg.Wait()
}

// Rows reported as durable survive a kill, and transactions under way are committed as a whole
// or not at all.
func TestKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		testKilled(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		needPostgres(t)
		testKilled(t, dbtest.URL(t))
	})
}

func testKilled(t *testing.T, rawURL string) {
	d := dbtest.Open(t, rawURL)
	write(t, d, "CREATE TABLE things (id TEXT NOT NULL, part BIGINT NOT NULL, PRIMARY KEY (id, part))")
	told := make(map[string]bool)
	for round := range 5 {
		// A line may be cut by the death, so the victim's lines are read whole.
		victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashVictim$")
		victim.Env = append(os.Environ(), crashVariable+"="+rawURL)
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			var a, b, c int
			if _, err := fmt.Sscanf(line, "%d-%d-%d\n", &a, &b, &c); err != nil {
				t.Fatalf("the victim said %q", line)
			}
			told[line[:len(line)-1]] = true
			if n == 300+137*round {
				if err := victim.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		victim.Wait() // fails, of course
	}
	type found struct {
		id    string
		parts int
	}
	list, err := db.All(t.Context(), d, func(r db.Row) (f found, err error) {
		err = r.Scan(&f.id, &f.parts)
		return f, err
	}, "SELECT id, count(*) FROM things GROUP BY id")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.parts != 2 {
			t.Errorf("row %s: got %d parts, want 2", f.id, f.parts)
		}
		delete(told, f.id)
	}
	if len(told) > 0 {
		t.Errorf("%d rows that were told to be durable are missing", len(told))
	}
	if len(list) < 1500 {
		t.Errorf("got %d rows, want at least those of five victims", len(list))
	}
	if !d.Postgres() {
		var verdict string
		if err := d.QueryRow(t.Context(), "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
			t.Errorf("integrity: got %q, %v", verdict, err)
		}
	}
}
