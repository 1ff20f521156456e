package dbtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// NewArchivingServer is [NewServer] with a server that archives its log in a folder.
func NewArchivingServer(t testing.TB) (s *Server, archive string) {
	t.Helper()
	archive, err := os.MkdirTemp("", "kickstand-archive")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(archive) })
	if uid, gid, other := owner(t); other {
		if err := os.Chown(archive, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return NewServer(t, "archive_mode=on", "archive_command='cp %p "+archive+"/%f'"), archive
}

// BaseBackup copies the running server. The copy is not started.
func (s *Server) BaseBackup() *Server {
	s.t.Helper()
	b := newServer(s.t, "")
	b.run("pg_basebackup", "-D", b.data(), "-h", "127.0.0.1", "-p", s.port, "-U", "postgres", "-c", "fast", "--no-sync")
	return b
}

// SwitchLog has the server archive its log up to now.
func (s *Server) SwitchLog() {
	s.t.Helper()
	file := s.Value("SELECT pg_walfile_name(pg_switch_wal())")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if s.Value("SELECT (coalesce(last_archived_wal, '') >= '"+file+"')::text FROM pg_stat_archiver") == "true" {
			return
		}
	}
	s.t.Fatal("the log is not archived")
}

// Recover starts a copy of [Server.BaseBackup] with the archived log up to a time.
func (s *Server) Recover(archive, until string) {
	s.t.Helper()
	s.configure("archive_mode=off", "restore_command='cp "+archive+"/%f %p'", "recovery_target_time='"+until+"'", "recovery_target_action=promote")
	signal := filepath.Join(s.data(), "recovery.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if uid, gid, other := owner(s.t); other {
		if err := os.Chown(signal, uid, gid); err != nil {
			s.t.Fatal(err)
		}
	}
	s.Start()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if s.Value("SELECT pg_is_in_recovery()::text") == "false" {
			return
		}
	}
	s.t.Fatal("the recovery does not end")
}
