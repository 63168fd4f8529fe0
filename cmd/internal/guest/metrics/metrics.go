//go:build linux

// Package metrics tells what a sandbox uses of what it may use.
package metrics

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// metrics is the answer to GET /metrics under E2B's names. Sizes are in bytes,
// where the name does not say MiB.
type metrics struct {
	Timestamp   int64   `json:"ts"` // unix seconds
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"` // of all that the sandbox may use: 0 to 100
	MemTotal    int64   `json:"mem_total"`
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	DiskUsed    int64   `json:"disk_used"`
	DiskTotal   int64   `json:"disk_total"`
}

// leastInterval is the shortest time that a load is measured over: the kernel
// counts processor time in hundredths of a second.
const leastInterval = 250 * time.Millisecond

// load is the processor's load since it was last asked for. The zero value is
// ready.
type load struct {
	mu   sync.Mutex
	busy time.Duration // of all processors since the sandbox began
	at   time.Time
	pct  float64
	// restored says that the machine was, since at: what was counted before cannot be
	// compared with what is counted now.
	restored atomic.Bool
}

// measure returns the load in percent of cpus. The first time it is that since the
// sandbox began; what is asked for at once again is the same, and so is what is asked
// for first after a restore, from when on it is measured anew.
func (l *load) measure(cpus float64) (float64, error) {
	busy, err := busyTime()
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(l.at)
	if l.restored.Swap(false) {
		l.busy, l.at = busy, now
		return l.pct, nil
	}
	if l.at.IsZero() {
		if elapsed, err = uptime(); err != nil {
			return 0, err
		}
	} else if elapsed < leastInterval {
		return l.pct, nil
	}
	pct := 100 * (busy - l.busy).Seconds() / max(elapsed, leastInterval).Seconds() / cpus
	l.pct = math.Round(100*min(100, max(0, pct))) / 100
	l.busy, l.at = busy, now
	return l.pct, nil
}

// Service serves GET /metrics.
type Service struct {
	settings *settings.Store
	load     load
}

// New returns a service that knows the sandbox's limits by s.
func New(s *settings.Store) *Service { return &Service{settings: s} }

// Restored says that the machine was restored from a checkpoint.
func (s *Service) Restored() { s.load.restored.Store(true) }

// Answer tells what the sandbox uses of what it may use. How much that is
// the host says: the kernel inside knows only the machine.
func (s *Service) Answer(w http.ResponseWriter, _ *http.Request) {
	m, err := s.metrics()
	if err != nil {
		reply.Error(w, http.StatusInternalServerError, err.Error())
		return
	}
	reply.JSON(w, http.StatusOK, m)
}

func (s *Service) metrics() (metrics, error) {
	limits := s.settings.Load().Limits
	cpus := limits.CPUs
	if cpus <= 0 {
		cpus = float64(runtime.NumCPU())
	}
	pct, err := s.load.measure(cpus)
	if err != nil {
		return metrics{}, err
	}
	mem, err := memory()
	if err != nil {
		return metrics{}, err
	}
	if limits.MemoryMB > 0 {
		mem.total = int64(limits.MemoryMB) << 20
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.settings.Config.Home, &disk); err != nil {
		return metrics{}, fmt.Errorf("size of the disk: %w", err)
	}
	m := metrics{
		Timestamp: time.Now().Unix(), CPUCount: max(1, int(cpus)), CPUUsedPct: pct,
		MemTotal: mem.total, MemUsed: mem.used, MemCache: mem.cache, MemTotalMiB: mem.total >> 20, MemUsedMiB: mem.used >> 20,
		DiskTotal: int64(disk.Blocks) * disk.Frsize, DiskUsed: int64(disk.Blocks-disk.Bfree) * disk.Frsize,
	}
	if limits.DiskMB > 0 {
		m.DiskTotal = int64(limits.DiskMB) << 20
	}
	return m, nil
}

// busyTime returns the time that all processors together spent on the sandbox.
func busyTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(b))
}

// parseBusy reads the first line of /proc/stat: user, nice, system, idle, iowait,
// irq, softirq and steal, in hundredths of a second.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 5 || f[0] != "cpu" {
		return 0, errors.New("/proc/stat begins with no line of all processors")
	}
	ticks := uint64(0)
	for i, s := range f[1:min(len(f), 9)] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, iowait
			ticks += n
		}
	}
	return time.Duration(min(ticks, math.MaxInt64/uint64(10*time.Millisecond))) * 10 * time.Millisecond, nil
}

func uptime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(string(b), " ")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/uptime: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// memoryUse is in bytes; used does not count cache.
type memoryUse struct{ total, used, cache int64 }

func memory() (memoryUse, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memoryUse{}, err
	}
	return parseMemory(string(b))
}

// parseMemory reads /proc/meminfo. Shared memory is part of what the kernel calls
// cached, and can be dropped no more than a process's own.
func parseMemory(meminfo string) (memoryUse, error) {
	kb := map[string]int64{}
	for line := range strings.Lines(meminfo) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil && n >= 0 && n < math.MaxInt64>>10 {
			kb[name] = n << 10
		}
	}
	total, free := kb["MemTotal"], kb["MemFree"]
	if total == 0 {
		return memoryUse{}, errors.New("/proc/meminfo does not say how much memory there is")
	}
	cache := max(0, kb["Cached"]+kb["Buffers"]+kb["SReclaimable"]-kb["Shmem"])
	// The total is the sandbox's limit, and the host's files that are mapped are no
	// part of that: with many of them nothing is free, and the difference says too
	// little. gVisor counts shared memory among the anonymous.
	used := max(total-free-cache, kb["AnonPages"], 0)
	return memoryUse{total: total, used: used, cache: cache}, nil
}
