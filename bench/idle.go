package main

import (
	"context"
	"fmt"
	"time"
)

// idle measures the cost of a fresh, idle `kickstand serve`: a process of its own, some
// seconds after its start. It needs Linux's /proc.
func idle(ctx context.Context, b *bench) ([]row, error) {
	settle, span := 20*time.Second, 20*time.Second
	if b.short {
		settle, span = time.Second, time.Second
	}
	s, err := b.newStore(ctx, sqlite, "idle")
	if err != nil {
		return nil, err
	}
	defer b.remove(s)
	p, err := b.serve(ctx, s, "web,worker")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before, err := cpuTime(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	after, err := cpuTime(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	share := 100 * float64(after-before) / float64(time.Since(begun))
	memory, err := resident(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	private, err := field(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), "RssAnon:")
	if err != nil {
		return nil, err
	}
	return []row{
		{What: "idle: a fresh serve without work, of a core", Got: fmt.Sprintf("%.2f %%", share), Aim: "< 0.2 %"},
		{What: "… resident memory", Got: fmt.Sprintf("%d MB", memory>>20), Aim: "≤ 40 MB"},
		{What: "… of it private: not pages of the program's file", Got: fmt.Sprintf("%d MB", private>>10)},
	}, p.stop()
}
