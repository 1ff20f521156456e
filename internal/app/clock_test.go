package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestWrongClock: a skew is shown, from half a second on as a warning, and above five minutes
// nothing is served until the clock is right again.
func TestWrongClock(t *testing.T) {
	rawURL := dbtest.URL(t)
	offset := time.Duration(0)
	d, err := db.Open(t.Context(), rawURL, db.Options{MaxConns: 2, Wall: func() time.Time { return time.Now().Add(offset) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if !d.Postgres() {
		t.Skip("only on PostgreSQL: SQLite has no clock of its own")
	}
	a := &App{DB: d, Fleet: Fleet{DB: d}, Sandbox: Fleet{DB: d}, log: quiet}
	h := a.refuseWrongClock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, tt := range []struct {
		offset time.Duration
		status string
		code   int
	}{
		{0, partOK, 204},
		{time.Second, partWarned, 204},
		{-15 * time.Second, partWarned, 204},
		{4 * time.Minute, partWarned, 204},
		{6 * time.Minute, partFailed, 503},
		{-time.Hour, partFailed, 503},
		{0, partOK, 204},
	} {
		offset = tt.offset
		got := a.clockReady(t.Context())
		if got.Status != tt.status || got.Skew == nil || (time.Duration(*got.Skew*float64(time.Second))-tt.offset).Abs() > 400*time.Millisecond {
			t.Errorf("off by %s: the part is %+v, want %s", tt.offset, got, tt.status)
		}
		for path, code := range map[string]int{"/": tt.code, "/v1/tickets": tt.code, "/readyz": 204, "/healthz": 204} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != code || code == 503 && !strings.Contains(w.Body.String(), "clock") {
				t.Errorf("off by %s: GET %s is %d %q, want %d", tt.offset, path, w.Code, w.Body, code)
			}
		}
		if err := d.CheckClock(); (err != nil) != (tt.code == 503) {
			t.Errorf("off by %s: CheckClock is %v", tt.offset, err)
		}
	}
}
