package host

import (
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// E2B samples every five seconds. Ours are kept for an hour: 58 KB a sandbox.
const (
	sampleEvery = 5 * time.Second
	maxSamples  = 720
)

// Sample is what a sandbox used at a moment. Sizes are bytes.
type Sample struct {
	At                  time.Time // UTC
	CPUCount            int
	CPUPercent          float64 // of all its processors, since the sample before
	MemUsed, MemTotal   int64
	MemCache            int64
	DiskUsed, DiskTotal int64
}

// Samples returns what was measured in the last hour, oldest first.
func (s *Sandbox) Samples() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples.list()
}

// CPUCount is the number of processors that a client is told, at least one.
func CPUCount(l protocol.Limits) int { return max(1, int(l.CPUs)) }

// CPUCount is the number of processors that a client is told of the sandbox.
func (s *Sandbox) CPUCount() int { return CPUCount(s.Limits) }

// watchUsage takes a sample at once and then every five seconds.
func (m *machine) watchUsage() {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	var last time.Duration
	at := m.booted
	for {
		u, err1 := m.Usage(m.ctx)
		cpu, err2 := m.CPUTime(m.ctx)
		if err1 == nil && err2 == nil { // else watchMemory says so
			now := time.Now()
			m.s.addSample(now, u, cpu-last, now.Sub(at))
			last, at = cpu, now
		}
		select {
		case <-ticker.C:
		case <-m.ctx.Done():
			return
		}
	}
}

func (s *Sandbox) addSample(at time.Time, u engine.Usage, cpu, wall time.Duration) {
	sample := Sample{
		At: at.UTC(), CPUCount: s.CPUCount(),
		MemUsed: u.Memory, MemTotal: int64(s.Limits.MemoryMB) << 20, MemCache: u.Cache,
		DiskUsed: u.Disk, DiskTotal: int64(s.Limits.DiskMB) << 20,
	}
	if wall > 0 && s.Limits.CPUs > 0 {
		// The sandbox's own kernel counts too, so it can be a little more.
		sample.CPUPercent = min(100, max(0, 100*cpu.Seconds()/(wall.Seconds()*s.Limits.CPUs)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples.add(sample)
}
