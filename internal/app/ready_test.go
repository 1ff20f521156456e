package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// wantReady requests a new report and checks the failing part and its reason; empty:
// ready.
func (r *readiness) wantReady(t *testing.T, when, part, reason string) {
	t.Helper()
	r.at = time.Time{}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	var got struct {
		Status string
		Parts  map[string]struct{ Status, Reason string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v in %s", when, err, w.Body)
	}
	status, code := "failed", 503
	if part == "" {
		status, code = "ok", 200
	}
	if got.Status != status || w.Code != code || len(got.Parts) != 4 {
		t.Errorf("%s: got %d %s, want %d %s of four parts", when, w.Code, w.Body, code, status)
	}
	for name, p := range got.Parts {
		if failed := p.Status == "failed"; failed != (name == part) || failed && !strings.Contains(p.Reason, reason) {
			t.Errorf("%s: %s is %+v, want only %s failed with %q", when, name, p, part, reason)
		}
	}
}

// TestReady: /readyz names the failing part, for each kind of failure.
func TestReady(t *testing.T) {
	c := Config{}
	a := deployment(t, "http://127.0.0.1:8080", quiet, func(given *Config) { c = *given })
	r := a.openReadiness()
	r.wantReady(t, "at first", "", "")
	// A job without a worker.
	job := queue.New{ID: queue.NewID(), Kind: mailKind, Lane: "l"}
	if err := a.DB.Write(t.Context(), func(tx *db.Tx) error { return a.queue.EnqueueTx(t.Context(), tx, job) }); err != nil {
		t.Fatal(err)
	}
	r.wantReady(t, "with a young job", "", "")
	execute(t, a.DB, "UPDATE jobs SET created_at = $2 WHERE id = $1", job.ID, time.Now().Add(-time.Hour).UnixMicro())
	r.wantReady(t, "with an old job", "queue_age", "has been due for 1h0m")
	execute(t, a.DB, "DELETE FROM jobs")
	r.wantReady(t, "without it", "", "")
	// A missing store.
	files := strings.TrimPrefix(c.blobURL(), "file:")
	if err := os.Rename(files+"/tmp", files+"/away"); err != nil {
		t.Fatal(err)
	}
	r.wantReady(t, "without a folder of files", "blobs", "files cannot be written")
	if err := os.Rename(files+"/away", files+"/tmp"); err != nil {
		t.Fatal(err)
	}
	r.wantReady(t, "with it", "", "")
	if a.DB.Postgres() {
		return
	}
	// A database that was moved away.
	path := c.sqlitePaths()[1]
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	r.wantReady(t, "without the fleet's database", "database", databases[1].name+": its file was moved")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	// A full one.
	execute(t, a.DB, "PRAGMA query_only = 1")
	r.wantReady(t, "with a database that only reads", "database", "it can only be read")
}

// TestReadyLocked: a database locked by another program is reported in time.
func TestReadyLocked(t *testing.T) {
	c := Config{}
	a := deployment(t, "http://127.0.0.1:8080", quiet, func(given *Config) { c = *given })
	if a.DB.Postgres() {
		t.Skip("of SQLite; a frozen PostgreSQL is in package db")
	}
	other, err := db.Open(t.Context(), c.databaseURL(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r := a.openReadiness()
	r.limit = 100 * time.Millisecond
	release := errors.New("release")
	if err := other.Write(t.Context(), func(*db.Tx) error {
		r.wantReady(t, "while another program holds the lock", "database", "in time")
		return release
	}); !errors.Is(err, release) {
		t.Fatal(err)
	}
}

// TestReadyHangs: a hanging check is not run again and delays a response by two seconds
// at most.
func TestReadyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		end := make(chan struct{})
		defer close(end)
		fine := func(context.Context) outcome { return outcome{Status: partOK} }
		r := &readiness{limit: readyLimit, log: quiet, parts: []*readinessCheck{
			{name: "database", check: func(context.Context) outcome { begun++; <-end; return outcome{Status: partOK} }},
			{name: "blobs", check: fine}, {name: "clock", check: fine}, {name: "queue_age", check: fine},
		}}
		began := time.Now()
		for range 3 {
			r.wantReady(t, "with a disk that hangs", "database", "it does not answer in time")
		}
		if took := time.Since(began); begun != 1 || took != 2*time.Second {
			t.Errorf("%d checks were begun, and all took %v, want 1 and 2 s", begun, took)
		}
	})
}

// TestReadyOften: frequent requests run the checks once a second.
func TestReadyOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		r := &readiness{limit: readyLimit, log: quiet, parts: []*readinessCheck{
			{name: "database", check: func(context.Context) outcome { checks++; return outcome{Status: partOK} }},
		}}
		for range 40 {
			r.report()
			time.Sleep(100 * time.Millisecond)
		}
		if checks != 4 {
			t.Errorf("%d checks in four seconds, want 4", checks)
		}
	})
}

// TestReadyLongLine: overdue jobs that waited for earlier ones in their lane do not count
// as stuck.
func TestReadyLongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		a := &App{DB: d, queue: queue.Open(d, queue.Config{Logger: quiet})}
		a.queue.Handle(queue.Worker{Kind: mailKind, Run: func(context.Context, *queue.Job) error { return nil }}) // not started
		write := func(fn func(tx *db.Tx) error) {
			if err := d.Write(t.Context(), fn); err != nil {
				t.Error(err)
			}
		}
		jobs := []queue.New{{ID: queue.NewID(), Kind: mailKind, Lane: "l"}, {ID: queue.NewID(), Kind: mailKind, Lane: "l"}}
		write(func(tx *db.Tx) error { return a.queue.EnqueueTx(t.Context(), tx, jobs...) })
		time.Sleep(time.Hour)
		if o := a.queueReady(t.Context()); o.Status != partFailed {
			t.Errorf("while nobody runs them: %+v", o)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			write(func(tx *db.Tx) error { return a.queue.DeleteTx(t.Context(), tx, jobs[0].ID) })
		})
		if o := a.queueReady(t.Context()); o.Status != partOK {
			t.Errorf("while they are run: %+v", o)
		}
	})
}
