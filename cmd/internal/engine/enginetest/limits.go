package enginetest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (s Suite) testDiskLimit(t *testing.T) {
	s.start(t, engine.Limits{Disk: 32 << 20}).diskIsFull(t, 32<<20)
}

func (s Suite) testProcessLimit(t *testing.T) {
	m := s.start(t, engine.Limits{PIDs: 40})
	m.become(t, protocol.InitRequest{Limits: protocol.Limits{PIDs: 40}})
	got := m.must(t, "", `
import os, errno, signal
kids = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        kids.append(pid)
except OSError as e:
    print(errno.errorcode[e.errno], len(kids) <= 40)
for pid in kids: os.kill(pid, 9); os.waitpid(pid, 0)`)
	if got != "EAGAIN True" {
		t.Errorf("got %q", got)
	}
	m.healthy(t)
}

func (s Suite) testCPULimit(t *testing.T) {
	s.start(t, engine.Limits{CPUs: 0.5}).halfAProcessor(t)
}

// halfAProcessor fails the test if code inside gets more.
func (m *machine) halfAProcessor(t *testing.T) {
	t.Helper()
	m.must(t, "", "pass")
	before := m.cpuTime(t)
	start := time.Now()
	m.must(t, "", "import time\nend = time.time() + 2\nwhile time.time() < end: pass")
	if used, wall := m.cpuTime(t)-before, time.Since(start); used > wall*8/10 {
		t.Errorf("half a processor: %v used in %v", used, wall)
	}
}

// testSetLimits: the limits of a machine that runs change, and what was fixed when it
// booted does not.
func (s Suite) testSetLimits(t *testing.T) {
	booted := engine.Limits{Memory: 256 << 20, CPUs: 1, Disk: 64 << 20, PIDs: 64}
	m := s.start(t, booted)
	limiter := can[engine.Limiter](t, m.Machine)
	fixed := m.Fixed()
	for _, limits := range []engine.Limits{
		{Memory: 512 << 20, CPUs: 2, Disk: fixed.Disk, PIDs: 128},
		{Memory: 128 << 20, CPUs: 0.5, Disk: fixed.Disk, PIDs: 32},
		{Disk: fixed.Disk}, // no bounds
		booted,
		booted,
	} {
		if err := limiter.SetLimits(t.Context(), limits); err != nil {
			t.Fatalf("%+v: %v", limits, err)
		}
		if got := m.must(t, "", "print(6*7)"); got != "42" {
			t.Errorf("%+v: the machine says %q", limits, got)
		}
		if m.Fixed() != fixed {
			t.Errorf("%+v: what is fixed went from %+v to %+v", limits, fixed, m.Fixed())
		}
		if got := m.Unenforced(); limits == (engine.Limits{Disk: fixed.Disk}) && len(got) > 0 {
			t.Errorf("without limits %q are not enforced", got)
		}
	}
	for _, limits := range []engine.Limits{
		{Memory: 256 << 20, CPUs: 1, PIDs: 64},
		{Memory: 256 << 20, CPUs: 1, Disk: 2 * fixed.Disk, PIDs: 64},
	} {
		if err := limiter.SetLimits(t.Context(), limits); !errors.Is(err, engine.ErrNotSupported) {
			t.Errorf("another disk, %+v: %v", limits, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := limiter.SetLimits(t.Context(), booted); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("after Close: %v", err)
	}
}

func (s Suite) testSetCPULimit(t *testing.T) {
	m := s.start(t, engine.Limits{CPUs: 2})
	limiter := can[engine.Limiter](t, m.Machine)
	m.must(t, "", "pass")
	if err := limiter.SetLimits(t.Context(), engine.Limits{CPUs: 0.5}); err != nil {
		t.Fatal(err)
	}
	if got := m.Unenforced(); len(got) > 0 {
		t.Errorf("it is said not to enforce %q", got)
	}
	m.halfAProcessor(t)
}

// askLimits prints how many processors and how much memory there are, in every way
// that programs ask for it: one of each if all ways agree.
const askLimits = `
import os, subprocess
ask = lambda *args: subprocess.run(args, capture_output=True, text=True, check=True).stdout.split()
processors = {
    "os.cpu_count": os.cpu_count(), "affinity": len(os.sched_getaffinity(0)), "nproc": int(ask("nproc")[0]),
    "cpuinfo": open("/proc/cpuinfo").read().count("processor\t"), "getconf": int(ask("getconf", "_NPROCESSORS_ONLN")[0]),
    "node": int(ask("node", "-p", "os.cpus().length")[0]), "process": getattr(os, "process_cpu_count", os.cpu_count)(),
}
memory = {
    "sysinfo": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "free": int(ask("free", "-b")[7]),
    "meminfo": int(open("/proc/meminfo").read().split()[1]) << 10, "node": int(ask("node", "-p", "os.totalmem()")[0]),
}
print(*sorted({v for v in processors.values()}), *sorted({v for v in memory.values()}))`

// testShowsLimits: by what programs are told there is they size heaps and pools. It
// is what the limits are.
func (s Suite) testShowsLimits(t *testing.T) {
	for _, tt := range []struct {
		limits engine.Limits
		want   string
	}{
		{engine.Limits{Memory: 300 << 20, CPUs: 1}, "1 314572800"},
		{engine.Limits{Memory: 384 << 20, CPUs: 0.25}, "1 402653184"},
		{engine.Limits{Memory: 512 << 20, CPUs: 1.5}, fmt.Sprint(min(2, runtime.NumCPU()), 512<<20)},
	} {
		m := s.start(t, tt.limits)
		if got := m.must(t, "", askLimits); got != tt.want {
			t.Errorf("%+v: code inside is shown %s, want %s", tt.limits, got, tt.want)
		}
	}
}

// testFixed: a machine says what it shows, and how large its disk is.
func (s Suite) testFixed(t *testing.T) {
	m := s.start(t, engine.Limits{Memory: 300 << 20, CPUs: 1.5, Disk: 64 << 20})
	fixed := m.Fixed()
	if fixed.Disk != 64<<20 && !slices.Contains(m.Unenforced(), "disk") {
		t.Errorf("%+v, and the disk is enforced", fixed)
	}
	if fixed.CPUs < 0 || fixed.CPUs > 2 || fixed.Memory < 0 {
		t.Errorf("%+v", fixed)
	}
	if _, lacks := s.Lacks["ShowsLimits"]; lacks {
		return
	}
	if got, want := m.must(t, "", askLimits), fmt.Sprint(fixed.CPUs, fixed.Memory); got != want {
		t.Errorf("code inside is shown %s, and said to be shown %s", got, want)
	}
}

// testFixedInCheckpoints: what was fixed in a machine is so in what is restored from
// it, whatever the limits are then.
func (s Suite) testFixedInCheckpoints(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{Memory: 300 << 20, CPUs: 1, Disk: 32 << 20})
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	checkpointer := can[engine.Checkpointer](t, m0)
	m.must(t, "", "pass")
	image := t.TempDir()
	if err := checkpointer.Checkpoint(t.Context(), image, engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for i, limits := range []engine.Limits{spec.Limits, {Memory: 512 << 20, CPUs: 2, Disk: 256 << 20, PIDs: 99}, {}} {
		spec.ID, spec.Limits = fmt.Sprintf("%sr%d", spec.ID, i), limits
		r0, err := restorer.Restore(t.Context(), spec, image, engine.RestoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := newMachine(t, r0)
		if r.Fixed() != m.Fixed() {
			t.Errorf("restored with %+v: %+v is fixed, and was %+v", limits, r.Fixed(), m.Fixed())
		}
		if got := r.must(t, "", askLimits); got != "1 314572800" {
			t.Errorf("restored with %+v: code inside is shown %s", limits, got)
		}
		r.diskIsFull(t, 32<<20)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// diskIsFull fails the test if more than bytes can be written below "/".
func (m *machine) diskIsFull(t *testing.T, bytes int) {
	t.Helper()
	got := m.must(t, "", fmt.Sprintf(`
import errno, os
def fill(path):
    try:
        with open(path, 'wb') as f:
            for _ in range(%d): f.write(b'x' * (1 << 20)); f.flush()
    except OSError as e:
        print(errno.errorcode[e.errno])
    os.remove(path)
fill('/home/user/big'); fill('/tmp/big')
open('/home/user/small', 'w').write('fits again')`, bytes>>20+1))
	for _, line := range strings.Fields(got) {
		if line != "ENOSPC" && line != "EFBIG" {
			t.Errorf("got %q", got)
		}
	}
	if len(strings.Fields(got)) != 2 {
		t.Errorf("one quota for all of it: got %q", got)
	}
}

// testSlow: processes that are slowed run on.
func (s Suite) testSlow(t *testing.T) {
	m := s.start(t, engine.Limits{Memory: 256 << 20})
	slower := can[engine.Slower](t, m.Machine)
	m.must(t, "", "b = bytearray(64 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1")
	slower.Slow(32 << 20)
	m.healthy(t)
	if got := m.must(t, "", "print(sum(b[::4096]))"); got != "16384" {
		t.Errorf("got %q", got)
	}
}
