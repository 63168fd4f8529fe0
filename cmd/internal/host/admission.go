package host

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// idleSandbox is what a sandbox that does nothing takes of the machine, in
// bytes: 11 MiB were measured for its kernel and the guest, and an interpreter
// that waits takes as much again and more.
const idleSandbox = 32 << 20

// minAvailable is the memory that must be free for another sandbox, in bytes:
// its own, and room for the machine to notice that it is getting tight.
const minAvailable = 4 * idleSandbox

// defaultBoots lets boots overlap where they wait for the disk or the kernel. More
// at a time make each slower and none sooner.
func defaultBoots() int { return 2 * runtime.NumCPU() }

// DefaultMaxSandboxes is how many sandboxes fit into this machine's memory.
func DefaultMaxSandboxes() int { return defaultMaxSandboxes(machineMemory()) }

// defaultMaxSandboxes is how many idle sandboxes fit into the machine. A limit is
// a bound, not a reservation: most sandboxes use a tenth of theirs, so the sum
// of limits would refuse nearly all that fit. What is really used is looked at
// when one is made, see admit.
func defaultMaxSandboxes(memory int64) int {
	if memory <= 0 {
		return 64 // unknown: it may be a small machine
	}
	return int(min(max(memory/idleSandbox, 4), 4096))
}

// admit takes a place for a sandbox whose machine takes that many bytes at once. After
// it the caller calls busy.Done in any case, and release if there will be no sandbox.
func (h *Host) admit(memory int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.room(memory); err != nil {
		return err
	}
	h.taken++
	h.busy.Add(1)
	return nil
}

// room says why there is no room for another sandbox whose machine takes that many bytes
// at once, or nil. The caller holds h.mu.
func (h *Host) room(memory int64) error {
	if h.closed {
		return ErrClosing
	}
	if h.taken >= h.cfg.MaxSandboxes {
		return busy(5*time.Second, "the server is full: it may have %d sandboxes; end some, or wait until they time out", h.cfg.MaxSandboxes)
	}
	// A machine that others have filled still makes the first one.
	if available, known := availableMemory(); known && available < minAvailable+memory && h.taken > 0 {
		return busy(5*time.Second, "the machine has only %d MiB of memory left: end sandboxes, or wait until they time out", available>>20)
	}
	return nil
}

// release gives back what admit took.
func (h *Host) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken--
}

// queue waits for a turn to boot, in the order of arrival, and returns what ends
// the turn. As many wait at most as there may be sandboxes.
func (h *Host) queue(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(h.cfg.QueueTime)
	defer timer.Stop()
	select {
	case h.boots <- struct{}{}:
		return func() { <-h.boots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, busy(2*time.Second, "too many sandboxes are being made at this moment: this one waited %v for its turn", h.cfg.QueueTime)
	}
}

// machineMemory is the memory of the machine, or of the container that this runs
// in, in bytes; 0 if it is unknown.
func machineMemory() int64 {
	total, _ := meminfo("MemTotal:")
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// "max", and numbers beyond all memory, mean no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}

// availableMemory is what the machine can still give away without swapping, in
// bytes.
func availableMemory() (n int64, known bool) { return meminfo("MemAvailable:") }

func meminfo(field string) (int64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == field {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
