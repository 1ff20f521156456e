package main

import (
	"io"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestPointInTime recovers a PostgreSQL server to the time before a mistake, from a base backup and
// its archived log. All records are complete.
func TestPointInTime(t *testing.T) {
	s, archive := dbtest.NewArchivingServer(t)
	data := t.TempDir()
	do := func(s *dbtest.Server, args ...string) string {
		t.Helper()
		var out strings.Builder
		args = append(args, "--data="+data, "--database-url="+s.URL("postgres"))
		if err := run(t.Context(), args, noEnvironment, strings.NewReader(""), &out, io.Discard); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &out)
		}
		return out.String()
	}
	do(s, "org", "create", "--name=Early")
	base := s.BaseBackup()
	do(s, "org", "create", "--name=Later")
	do(s, "fleet", "seed", "--org=later", "--environment=live")
	until := s.Value("SELECT clock_timestamp()::text")
	do(s, "org", "create", "--name=Mistake")
	s.SwitchLog()
	s.Kill()

	base.Recover(archive, until)
	do(base, "verify", "--blobs")
	do(base, "hold", "--reason=recovered")
	if list := do(base, "release"); !strings.Contains(list, "recovered") {
		t.Errorf("outgoing work is not held: %s", list)
	}
	list := do(base, "org", "list")
	if !strings.Contains(list, "early") || !strings.Contains(list, "later") || strings.Contains(list, "mistake") {
		t.Errorf("the organizations at %s are\n%s", until, list)
	}
}
