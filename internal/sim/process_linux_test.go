package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// atRandom is the type of the entry of the auxiliary vector with the address of sixteen random
// bytes (AT_RANDOM).
const atRandom = 25

// addrNoRandomize is the flag of a process's personality that gives it the same addresses in each
// run (ADDR_NO_RANDOMIZE).
const addrNoRandomize = 0x40000

// repeats reports whether a command has run so that it repeats itself exactly.
var repeats atomic.Bool

// output runs a command and returns what it writes. So that a Go program with GOMAXPROCS=1
// repeats itself exactly,
//
//   - it gets the bytes of seed instead of the sixteen random bytes that the kernel gives to a
//     new process: from them the runtime derives the order of maps, of select and of equal
//     timers, and math/rand/v2;
//   - its first thread beside the main one is never run: it is the runtime's monitor, which
//     interrupts goroutines by the time that they take;
//   - it has the same addresses in each run: maps with pointers as keys are ordered by them.
//
// Where that is not allowed the command runs all the same, and its runs differ a little.
func output(cmd *exec.Cmd, seed uint64) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	runtime.LockOSThread() // requests of ptrace come from one thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	before, _, errno := syscall.RawSyscall(syscall.SYS_PERSONALITY, 0xffffffff, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(syscall.SYS_PERSONALITY, before|addrNoRandomize, 0, 0)
		defer syscall.RawSyscall(syscall.SYS_PERSONALITY, before, 0, 0)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err == nil && status.Stopped() {
		setRandom(pid, seed)
		if monitor := firstThread(pid); monitor != 0 {
			repeats.Store(errno == 0)
			// The traced thread ends with the process, and has to be waited for first.
			for {
				if _, err := syscall.Wait4(monitor, &status, syscall.WALL, nil); err != nil || status.Exited() || status.Signaled() {
					break
				}
			}
		}
	}
	err := cmd.Wait()
	return out.String(), err
}

// firstThread continues a process until it starts a thread, detaches from the process, and
// returns the thread, which stays stopped. It returns 0 if there is none.
func firstThread(pid int) (thread int) {
	defer syscall.PtraceDetach(pid)
	if syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE) != nil {
		return 0
	}
	for signal := 0; ; {
		var status syscall.WaitStatus
		if syscall.PtraceCont(pid, signal) != nil {
			return 0
		}
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil || !status.Stopped() {
			return 0
		}
		if status.TrapCause() == syscall.PTRACE_EVENT_CLONE {
			id, err := syscall.PtraceGetEventMsg(pid)
			if err != nil {
				return 0
			}
			syscall.Wait4(int(id), &status, syscall.WALL, nil) // until it has stopped
			return int(id)
		}
		signal = int(status.StopSignal())
	}
}

// setRandom replaces the random bytes of a stopped process that has not run yet.
func setRandom(pid int, seed uint64) {
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.NativeEndian.Uint64(vector) == atRandom {
			bytes := binary.NativeEndian.AppendUint64(nil, seed^0x9e3779b97f4a7c15)
			bytes = binary.NativeEndian.AppendUint64(bytes, seed*0xbf58476d1ce4e5b9+1)
			syscall.PtracePokeData(pid, uintptr(binary.NativeEndian.Uint64(vector[8:])), bytes)
		}
	}
}
