package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClusterVariable names the environment variable that enables the tests with servers of their
// own.
const ClusterVariable = "KICKSTAND_TEST_CLUSTER"

// Server is a PostgreSQL server that belongs to one test, which may stop, freeze and replace
// it. It needs Debian's PostgreSQL.
type Server struct {
	t      testing.TB
	folder string // with the folder "data"
	port   string
	cmd    *exec.Cmd // nil: not running
}

// NewServer starts a server with the given settings ("name=value"), stopped at the end of the
// test. Without [ClusterVariable] it skips the test.
func NewServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return NewServerIn(t, "", settings...)
}

// NewServerIn is [NewServer] with the server's files below a folder; empty: that for temporary files.
func NewServerIn(t testing.TB, parent string, settings ...string) *Server {
	t.Helper()
	if os.Getenv(ClusterVariable) == "" {
		t.Skip("set " + ClusterVariable + " to test with servers of its own")
	}
	s := newServer(t, parent)
	s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	s.configure(append([]string{"fsync=off", "shared_buffers=64MB", "max_connections=100"}, settings...)...)
	s.Start()
	return s
}

func newServer(t testing.TB, parent string) *Server {
	t.Helper()
	folder, err := os.MkdirTemp(parent, "kickstand-server")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, folder: folder, port: FreePort(t)}
	if uid, gid, other := owner(t); other {
		if err := os.Chown(folder, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, "log"))
			t.Logf("PostgreSQL on port %s said, at last: %s", s.port, log[max(0, len(log)-3000):])
		}
		os.RemoveAll(folder)
	})
	return s
}

// owner returns the user that runs servers, if it is another one: PostgreSQL refuses root.
func owner(t testing.TB) (uid, gid int, other bool) {
	t.Helper()
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid, true
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// program returns a command of PostgreSQL, run by its owner in a process group of its own.
func program(t testing.TB, folder, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		path, err = slices.Max(found), nil
	}
	if err != nil {
		t.Fatalf("%s is not installed: %v", name, err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if uid, gid, other := owner(t); other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return cmd
}

func (s *Server) run(name string, args ...string) {
	s.t.Helper()
	if out, err := program(s.t, s.folder, name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *Server) configure(settings ...string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for _, setting := range append(settings, "port="+s.port, "listen_addresses='127.0.0.1'", "unix_socket_directories=''") {
		if _, err := fmt.Fprintln(f, setting); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Start starts the server and returns when it accepts connections. A server whose killed
// predecessor still has processes ends at once: it is started again.
func (s *Server) Start() {
	s.t.Helper()
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		if s.launch(end) {
			return
		}
	}
	said, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	s.t.Fatalf("PostgreSQL does not start: %s", said)
}

// launch starts the server. It returns false if the server ends, or accepts no connections in time.
func (s *Server) launch(end time.Time) bool {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = program(s.t, s.folder, "postgres", "-D", s.data())
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for ; time.Now().Before(end) && s.Running(); <-time.After(20 * time.Millisecond) {
		if s.try("SELECT 1") == nil {
			return true
		}
	}
	return false
}

// Address returns host and port.
func (s *Server) Address() string { return "127.0.0.1:" + s.port }

// URL returns the address of a database.
func (s *Server) URL(database string) string {
	return "postgres://postgres@" + s.Address() + "/" + database + "?sslmode=disable"
}

func (s *Server) try(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Exec runs a statement in the database postgres.
func (s *Server) Exec(statement string) {
	s.t.Helper()
	if err := s.try(statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// Value returns the text of a statement's single value.
func (s *Server) Value(statement string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(ctx)
	var value string
	if err := conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&value); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
	return value
}

// Standby starts a synchronous standby of the server.
func (s *Server) Standby() *Server {
	s.t.Helper()
	b := newServer(s.t, "")
	b.run("pg_basebackup", "-D", b.data(), "-h", "127.0.0.1", "-p", s.port, "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
	b.configure()
	b.Start()
	s.Exec("ALTER SYSTEM SET synchronous_standby_names = '*'")
	s.Exec("SELECT pg_reload_conf()")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if s.Value("SELECT count(*)::text FROM pg_stat_replication WHERE sync_state = 'sync'") == "1" {
			return b
		}
	}
	s.t.Fatal("the standby does not follow")
	return nil
}

// Promote makes a standby a primary of its own.
func (s *Server) Promote() {
	s.t.Helper()
	s.Exec("ALTER SYSTEM SET synchronous_standby_names = ''")
	s.run("pg_ctl", "promote", "-D", s.data(), "-w")
}

// Running reports whether the server's first process runs.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err == nil && pid == 0
}

// Kill ends all processes of the server by SIGKILL, as a loss of power does. Left alone, the
// receiver of a standby could still confirm a transaction.
func (s *Server) Kill() {
	if s.Running() {
		s.signal(syscall.SIGKILL)
		s.cmd.Wait()
	}
	s.cmd = nil
}

// Freeze stops all processes of the server, and Thaw continues them.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw continues a frozen server.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// signal sends a signal to the server's processes, the first one last. That one is stopped
// before, so as not to start others meanwhile.
func (s *Server) signal(which syscall.Signal) {
	syscall.Kill(s.cmd.Process.Pid, syscall.SIGSTOP)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid))
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			syscall.Kill(pid, which)
		}
	}
	syscall.Kill(s.cmd.Process.Pid, which)
}

// NewPooler starts a pgbouncer in transaction mode in front of a server. Only URL and Address of
// the result can be used.
func NewPooler(s *Server) *Server {
	t := s.t
	t.Helper()
	p := &Server{t: t, port: FreePort(t)}
	config := filepath.Join(s.folder, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = user=postgres host=127.0.0.1 port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 500\n", s.port, p.port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, s.folder, "pgbouncer", "-q", config)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer said: %s", said.String()[max(0, said.Len()-2000):])
		}
	})
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if p.try("SELECT 1") == nil {
			return p
		}
	}
	t.Fatal("pgbouncer does not start")
	return nil
}
