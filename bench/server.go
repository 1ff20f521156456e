package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// server is a running `kickstand serve`, a process of its own.
type server struct {
	cmd     *exec.Cmd
	url     string
	private string // URL of the metrics
}

// build returns the path of the program, which it builds once.
func (b *bench) build(ctx context.Context) (string, error) {
	if b.program != "" {
		return b.program, nil
	}
	path := filepath.Join(b.dir, "kickstand")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/kickstand-dev/kickstand/cmd/kickstand")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	b.program = path
	return path, nil
}

// serve starts the program on a store with the given roles and returns once it responds.
func (b *bench) serve(ctx context.Context, s *store, roles string) (*server, error) {
	program, err := b.build(ctx)
	if err != nil {
		return nil, err
	}
	if program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	public, private, err := freeAddresses()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--roles", roles, "--listen", public, "--metrics-listen", private, "--data", s.data,
		"--log-level", "error", "--allow-private-receivers", "--stop-timeout", "1s",
	}
	if s.url != "" {
		args = append(args, "--database-url", s.url)
	}
	p := &server{exec.CommandContext(ctx, program, args...), "http://" + public, "http://" + private}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = 20 * time.Second
	p.cmd.Dir = s.data // without a configuration file
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := answers(ctx, p.private+"/healthz"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// stop stops the program. Its exit status does not matter here.
func (p *server) stop() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	late := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	p.cmd.Wait()
	return nil
}

// freeAddresses returns two addresses of the loopback interface on which nothing listens.
func freeAddresses() (a, b string, err error) {
	var list [2]string
	for i := range list {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer ln.Close()
		list[i] = ln.Addr().String()
	}
	return list[0], list[1], nil
}

// answers waits until a server responds.
func answers(ctx context.Context, url string) error {
	for range 600 {
		if resp, err := http.Get(url); err == nil {
			return resp.Body.Close()
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the server does not answer")
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spent is what a process has used since its start.
type spent struct {
	cpu     time.Duration
	written int64 // bytes that reached the file system's store; 0 on tmpfs
	mallocs int64
}

func (u spent) since(v spent) spent {
	return spent{u.cpu - v.cpu, u.written - v.written, u.mallocs - v.mallocs}
}

// spent reads what the server has used. It needs Linux's /proc.
func (p *server) spent(ctx context.Context) (u spent, err error) {
	if u.cpu, err = cpuTime(p.cmd.Process.Pid); err != nil {
		return u, err
	}
	if u.written, err = field(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid), "write_bytes:"); err != nil {
		return u, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.private+"/metrics", nil)
	if err != nil {
		return u, err
	}
	text, _, err := exchange(http.DefaultClient, r)
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "go_memstats_mallocs_total "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			u.mallocs = int64(n)
			return u, err
		}
	}
	return u, errors.New("the metrics do not count allocations")
}

// cpuTime returns the CPU time of a process.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ns)
	}
	if sum == 0 {
		return 0, errors.New("the system does not say how long the server ran")
	}
	return sum, nil
}

// resident returns the resident memory of a process in bytes.
func resident(pid int) (int64, error) {
	kilobytes, err := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return kilobytes << 10, err
}

// field returns the number of a line that begins with name.
func field(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}

// Roles of processes that the program starts itself.
const (
	crowdRole = "crowd"
	bareRole  = "bare server"
)

// act runs a role. Its order is a line of JSON on in; it writes its result to out.
func act(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	order, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	switch role {
	case crowdRole:
		return runCrowd(ctx, order, out)
	case bareRole:
		return runBareServer(ctx, order, lines, out)
	}
	return fmt.Errorf("unknown role %q", role)
}

// actor returns the command of a role, and its order as the first line of its input.
func actor(ctx context.Context, role string, order any) (*exec.Cmd, []byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	line, err := json.Marshal(order)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-as", role)
	cmd.Stderr = os.Stderr
	return cmd, append(line, '\n'), nil
}

// bareServer is the ceiling of servers, a process of its own.
type bareServer struct {
	url  string
	stop func() error
}

// startBare starts a bare server on a store.
func startBare(ctx context.Context, s *store) (*bareServer, error) {
	cmd, order, err := actor(ctx, bareRole, bareOrder{s.data, s.url})
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := in.Write(order); err != nil {
		return nil, errors.Join(err, stop())
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &bareServer{strings.TrimSpace(url), stop}, nil
}

// machine describes what a run ran on.
func machine() string {
	return fmt.Sprintf("%s, %s/%s, %d cores (%s)", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor())
}

// processor returns the processor's name, if known.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
