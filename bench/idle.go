package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// idle measures the cost of a fresh, idle `kickstand serve`: a process of its own, some
// seconds after its start. It needs Linux's /proc.
func idle(ctx context.Context, b *bench) ([]row, error) {
	settle, span := 20*time.Second, 20*time.Second
	if b.short {
		settle, span = time.Second, time.Second
	}
	program := filepath.Join(b.dir, "kickstand")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/kickstand-dev/kickstand/cmd/kickstand")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program: %w: %s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	serve := exec.CommandContext(ctx, program, "serve", "--listen", address, "--data", filepath.Join(b.dir, "idle"), "--log-level", "error")
	serve.Cancel = func() error { return serve.Process.Signal(os.Interrupt) }
	serve.Stderr = os.Stderr
	if err := serve.Start(); err != nil {
		return nil, err
	}
	defer func() {
		serve.Process.Signal(os.Interrupt)
		serve.Wait() // its exit status does not matter here
	}()
	if err := answers(ctx, "http://"+address+"/healthz"); err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before, err := cpuTime(serve.Process.Pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	after, err := cpuTime(serve.Process.Pid)
	if err != nil {
		return nil, err
	}
	share := 100 * float64(after-before) / float64(time.Since(begun))
	memory, err := resident(serve.Process.Pid)
	if err != nil {
		return nil, err
	}
	return []row{
		{What: "idle: a fresh serve without work, of a core", Got: fmt.Sprintf("%.2f %%", share), Aim: "< 0.2 %"},
		{What: "… resident memory", Got: fmt.Sprintf("%d MB", memory>>20), Aim: "< 60 MB"},
	}, nil
}

// answers waits until a server responds.
func answers(ctx context.Context, url string) error {
	for range 300 {
		if resp, err := http.Get(url); err == nil {
			return resp.Body.Close()
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("the system does not say how much memory the server has")
}
