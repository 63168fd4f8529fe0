//go:build linux

package metrics

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMetrics(t *testing.T) {
	get := func(t *testing.T, b *box) metrics {
		resp, text := b.do("GET", "/metrics", nil)
		var m metrics
		if err := json.Unmarshal([]byte(text), &m); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.Status, text, err)
		}
		for _, key := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"} {
			if !strings.Contains(text, `"`+key+`":`) {
				t.Errorf("no %s in %s", key, text)
			}
		}
		if m.CPUUsedPct < 0 || m.CPUUsedPct > 100 || m.MemUsed <= 0 || m.DiskUsed <= 0 {
			t.Error(text)
		}
		return m
	}
	t.Run("limits that were told", func(t *testing.T) {
		b := newBox(t)
		b.tell(protocol.InitRequest{Limits: protocol.Limits{MemoryMB: 300, DiskMB: 700, CPUs: 2.5}})
		m := get(t, b)
		if m.CPUCount != 2 || m.MemTotal != 300<<20 || m.MemTotalMiB != 300 || m.DiskTotal != 700<<20 {
			t.Errorf("%+v", m)
		}
		if again := get(t, b); again.CPUUsedPct != m.CPUUsedPct && time.Since(b.g.load.at) < leastInterval/2 {
			t.Error("a load was measured over no time")
		}
	})
	t.Run("none: the kernel's", func(t *testing.T) {
		if m := get(t, newBox(t)); m.CPUCount < 1 || m.MemTotal <= m.MemUsed || m.DiskTotal < m.DiskUsed {
			t.Errorf("%+v", m)
		}
	})
}

// TestLoadAfterARestore: the hour on a disk is no part of what a load is measured over.
func TestLoadAfterARestore(t *testing.T) {
	busy, err := busyTime()
	guesttest.Must(t, err)
	l := load{busy: busy + time.Hour, at: time.Now().Add(-time.Hour), pct: 42}
	l.restored.Store(true)
	if got, err := l.measure(1); err != nil || got != 42 || time.Since(l.at) > time.Minute || l.busy >= busy+time.Hour {
		t.Error(got, l.at, l.busy, err)
	}
}

func TestLoad(t *testing.T) {
	l := load{busy: -time.Hour, at: time.Now().Add(-time.Minute)} // an hour's work in a minute
	if got, err := l.measure(1); err != nil || got != 100 {
		t.Error(got, err)
	}
	busy, err := busyTime()
	guesttest.Must(t, err)
	l = load{busy: busy - 15*time.Second, at: time.Now().Add(-time.Minute)} // a quarter of one, an eighth of two
	if got, err := l.measure(2); err != nil || got < 12 || got > 90 {
		t.Error(got, err)
	}
}

func TestKernelNumbers(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  100 20 3 9999 9999 4 5 6 7 8\ncpu0 1": 1380 * time.Millisecond,
		"cpu 1 1 1 1\n":                   30 * time.Millisecond,
		"cpu 99999999999999999 0 0 0 0\n": 1<<63 - 1,
		"cpu 1 x 1 1\n":                   -1,
		"cpu\n":                           -1,
		"":                                -1,
	} {
		got, err := parseBusy(text)
		if err != nil {
			got = -1
		}
		if got != want && (want < 1<<62 || got < 1<<62) {
			t.Errorf("%q: %v", text, got)
		}
	}
	m, err := parseMemory("MemTotal:       1000 kB\nMemFree:         300 kB\nBuffers:          50 kB\nCached:          200 kB\nShmem:           100 kB\nOdd: x kB\n")
	if want := (memoryUse{1000 << 10, 550 << 10, 150 << 10}); err != nil || m != want {
		t.Error(m, err)
	}
	// More files are mapped than memory is left: none of them is the sandbox's.
	m, err = parseMemory("MemTotal:  512000 kB\nMemFree:  0 kB\nCached:  300000 kB\nAnonPages:  400000 kB\nShmem:  0 kB\n")
	if want := (memoryUse{512000 << 10, 400000 << 10, 300000 << 10}); err != nil || m != want {
		t.Error(m, err)
	}
	if _, err := parseMemory("MemFree: 1 kB"); err == nil {
		t.Error("no total, no error")
	}
}
