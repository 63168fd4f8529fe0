// Package enginetest is the suite that every engine passes. It boots Cubby's
// own guest and drives it as the host does, over Machine.Dial.
package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Suite tests one engine.
type Suite struct {
	// Engine is what is tested.
	Engine engine.Engine
	// Spec returns the specification of a machine that runs Cubby's guest on a
	// root filesystem with Python. The suite sets ID and Limits.
	Spec func(t *testing.T) engine.Spec
	// Leaks is called at the begin of each test and registers a check that
	// nothing of the engine's is left at its end.
	Leaks func(t testing.TB)
	// Enforces lists the limits that hold on this machine.
	Enforces map[string]bool
	// Contained is called with a running machine and fails the test if its host
	// processes have more rights than the engine promises; may be nil.
	Contained func(t *testing.T, m engine.Machine)
}

// Run runs every test.
func (s Suite) Run(t *testing.T) {
	for _, test := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"Probe", s.testProbe},
		{"StartDialClose", s.testStartDialClose},
		{"CloseAtOnce", s.testCloseAtOnce},
		{"PortClosed", s.testPortClosed},
		{"DialOtherPort", s.testDialOtherPort},
		{"ManyMachines", s.testManyMachines},
		{"FirstProcessEnds", s.testFirstProcessEnds},
		{"MissingFirstProcess", s.testMissingFirstProcess},
		{"CheckpointRestore", s.testCheckpointRestore},
		{"CheckpointCommands", s.testCheckpointCommands},
		{"PauseResume", s.testPauseResume},
		{"Usage", s.testUsage},
		{"CPUTime", s.testCPUTime},
		{"RootIsNotWritten", s.testRootIsNotWritten},
		{"DiskLimit", s.testDiskLimit},
		{"ProcessLimit", s.testProcessLimit},
		{"CPULimit", s.testCPULimit},
		{"ShowsLimits", s.testShowsLimits},
		{"ShowsLimitsAfterCheckpoint", s.testShowsLimitsAfterCheckpoint},
		{"NoNetwork", s.testNoNetwork},
		{"Contained", s.testContained},
	} {
		t.Run(test.name, func(t *testing.T) {
			if s.Leaks != nil {
				s.Leaks(t)
			}
			test.f(t)
		})
	}
}

// can returns an engine or a machine as what it may be besides, or skips the test.
func can[Power any](t *testing.T, of any) Power {
	t.Helper()
	power, ok := of.(Power)
	if !ok {
		t.Skipf("the engine has no %s", reflect.TypeFor[Power]().Name())
	}
	return power
}

var lastID int

func (s Suite) spec(t *testing.T, limits engine.Limits) engine.Spec {
	t.Helper()
	spec := s.Spec(t)
	lastID++
	spec.ID = fmt.Sprintf("test%d", lastID)
	spec.Limits = limits
	return spec
}

func (s Suite) start(t *testing.T, limits engine.Limits) *machine {
	t.Helper()
	m, err := s.Engine.Start(t.Context(), s.spec(t, limits))
	if err != nil {
		t.Fatal(err)
	}
	return newMachine(t, m)
}

// machine is a machine with an HTTP client into it.
type machine struct {
	engine.Machine
	transport map[int]*http.Transport
}

func newMachine(t *testing.T, m engine.Machine) *machine {
	w := &machine{Machine: m, transport: map[int]*http.Transport{}}
	for _, port := range []int{protocol.EnvdPort, protocol.CodeInterpreterPort} {
		w.transport[port] = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.Dial(ctx, port)
		}}
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, tr := range w.transport {
			tr.CloseIdleConnections()
		}
	})
	return w
}

func (m *machine) healthy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/health", nil)
	resp, err := m.transport[protocol.EnvdPort].RoundTrip(req)
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("health: %s", resp.Status)
	}
}

// output is what an execution printed and how it ended.
type output struct {
	stdout, stderr string
	err            *protocol.ErrorData
	end            protocol.EndOfExecution
}

// run executes code in the machine; language "" is Python.
func (m *machine) run(t *testing.T, language, code string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	body, _ := json.Marshal(protocol.ExecuteRequest{Code: code, Language: language})
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest/execute", bytes.NewReader(body))
	resp, err := m.transport[protocol.CodeInterpreterPort].RoundTrip(req)
	if err != nil {
		t.Fatalf("execute: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("execute: %s: %s", resp.Status, text)
	}
	var out output
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("execute: stream ended early: %v (stdout %q, stderr %q)", err, out.stdout, out.stderr)
		}
		var e protocol.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("execute: %v in %q", err, line)
		}
		switch e.Type {
		case protocol.EventStdout:
			out.stdout += e.Text
		case protocol.EventStderr:
			out.stderr += e.Text
		case protocol.EventError:
			out.err = e.ErrorData
		case protocol.EventEnd:
			if e.EndOfExecution != nil {
				out.end = *e.EndOfExecution
			}
			return out
		}
	}
}

// must is run for code that is to succeed; it returns what was printed.
func (m *machine) must(t *testing.T, language, code string) string {
	t.Helper()
	out := m.run(t, language, code)
	if out.err != nil || out.end.ExitCode != 0 {
		t.Fatalf("code failed with status %d: %+v\n%s", out.end.ExitCode, out.err, out.stderr)
	}
	return strings.TrimSpace(out.stdout)
}

func (s Suite) testProbe(t *testing.T) {
	if err := s.Engine.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s Suite) testStartDialClose(t *testing.T) {
	m := s.start(t, engine.Limits{})
	m.healthy(t)
	if got := m.must(t, "", "print(6*7)"); got != "42" {
		t.Errorf("got %q", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case exit := <-m.Wait():
		if exit.Err != nil {
			t.Errorf("exit after Close: %v", exit.Err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Wait did not report the end")
	}
	if _, err := m.Dial(t.Context(), protocol.EnvdPort); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("dial after Close: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// testCloseAtOnce closes machines of which nothing else has begun yet, as a
// server does when a client does not wait for its sandbox.
func (s Suite) testCloseAtOnce(t *testing.T) {
	specs := make([]engine.Spec, 6)
	for i := range specs {
		specs[i] = s.spec(t, engine.Limits{})
	}
	var wg sync.WaitGroup
	for _, spec := range specs {
		wg.Go(func() {
			m, err := s.Engine.Start(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			if err := m.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if exit := <-m.Wait(); exit.Err != nil {
				t.Errorf("exit after Close: %v", exit.Err)
			}
		})
	}
	wg.Wait()
}

func (s Suite) testPortClosed(t *testing.T) {
	m := s.start(t, engine.Limits{})
	if _, err := m.Dial(t.Context(), 12345); !errors.Is(err, engine.ErrPortClosed) {
		t.Errorf("got %v", err)
	}
}

func (s Suite) testDialOtherPort(t *testing.T) {
	m := s.start(t, engine.Limits{})
	m.must(t, "", `
import socket, threading
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen()
def serve():
    c, _ = s.accept()
    c.sendall(c.recv(100).upper()); c.close()
threading.Thread(target=serve, daemon=True).start()`)
	conn, err := m.Dial(t.Context(), 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "hello")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "HELLO" {
		t.Errorf("got %q, %v", got, err)
	}
}

func (s Suite) testManyMachines(t *testing.T) {
	const n = 6
	machines := make(chan engine.Machine, n)
	for range n {
		spec := s.spec(t, engine.Limits{Memory: 256 << 20, CPUs: 1})
		go func() {
			m, err := s.Engine.Start(t.Context(), spec)
			if err != nil {
				t.Error(err)
			}
			machines <- m
		}()
	}
	for range n {
		if m := <-machines; m != nil {
			newMachine(t, m).healthy(t)
		}
	}
}

func (s Suite) testFirstProcessEnds(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	spec.Args = []string{"/bin/sh", "-c", "exit 3"}
	m, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	newMachine(t, m)
	select {
	case exit := <-m.Wait():
		if exit.Err == nil || !strings.Contains(exit.Err.Error(), "3") {
			t.Errorf("exit: %v", exit.Err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the end was not reported")
	}
}

func (s Suite) testMissingFirstProcess(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	spec.Args = []string{"/no/such/guest"}
	m, err := s.Engine.Start(t.Context(), spec)
	if err == nil {
		m.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "/no/such/guest") {
		t.Errorf("the error does not name the program: %v", err)
	}
}

func (s Suite) testCheckpointRestore(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{Memory: 256 << 20, CPUs: 1, Disk: 64 << 20, PIDs: 64})
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	checkpointer := can[engine.Checkpointer](t, m0)
	m.must(t, "", "x = 41; open('/home/user/kept', 'w').write('on disk'); open('/tmp/kept', 'w').write('in tmp')")

	dir := t.TempDir()
	running, stopped := dir+"/running", dir+"/stopped"
	for _, d := range []string{running, stopped} {
		mkdir(t, d)
	}
	if err := checkpointer.Checkpoint(t.Context(), running, engine.CheckpointOptions{Resume: true}); err != nil {
		t.Fatal(err)
	}
	if got := m.must(t, "", "x += 100; print(x)"); got != "141" {
		t.Errorf("after a checkpoint that resumes: %q", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	// The same image serves more than once.
	for i := range 2 {
		spec.ID = fmt.Sprintf("%sr%d", spec.ID, i)
		r0, err := restorer.Restore(t.Context(), spec, running)
		if err != nil {
			t.Fatal(err)
		}
		r := newMachine(t, r0)
		r.healthy(t)
		if got := r.must(t, "", "x += 1; print(x, open('/home/user/kept').read(), open('/tmp/kept').read())"); got != "42 on disk in tmp" {
			t.Errorf("restored %d: %q", i, got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (s Suite) testPauseResume(t *testing.T) {
	m := s.start(t, engine.Limits{})
	pauser := can[engine.Pauser](t, m.Machine)
	m.must(t, "", "pass")
	if err := pauser.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/health", nil)
	if resp, err := m.transport[protocol.EnvdPort].RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Error("a paused machine answered")
	}
	if err := pauser.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.healthy(t)
}

func (s Suite) testUsage(t *testing.T) {
	m := s.start(t, engine.Limits{})
	m.must(t, "", "pass")
	before, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.must(t, "", "b = bytearray(64 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1")
	after, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Memory - before.Memory; grown < 60<<20 || grown > 96<<20 {
		t.Errorf("64 MiB were taken, memory went from %d to %d", before.Memory, after.Memory)
	}
	if after.Overhead <= 0 || after.Overhead > 200<<20 {
		t.Errorf("overhead %d", after.Overhead)
	}
	if after.Cache < 0 {
		t.Errorf("cache %d", after.Cache)
	}
	m.must(t, "bash", "head -c 16777216 /dev/zero > /home/user/16MiB")
	written, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if grown := written.Disk - after.Disk; grown < 16<<20 || grown > 32<<20 {
		t.Errorf("16 MiB were written, the disk went from %d to %d", after.Disk, written.Disk)
	}
}

func (s Suite) testCPUTime(t *testing.T) {
	m := s.start(t, engine.Limits{})
	m.must(t, "", "pass")
	before := m.cpuTime(t)
	// A fixed amount of work, however busy the machine is: no processor does it
	// in less.
	m.must(t, "", "import hashlib\nh = hashlib.sha256()\nfor _ in range(300): h.update(bytes(1 << 20))")
	if took := m.cpuTime(t) - before; took < 50*time.Millisecond {
		t.Errorf("hashing 300 MiB took %v", took)
	}
}

func (m *machine) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := m.CPUTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s Suite) testRootIsNotWritten(t *testing.T) {
	m := s.start(t, engine.Limits{})
	const path = "/usr/cubby-suite-was-here"
	m.must(t, "bash", "echo mine > /home/user/mine; cat /home/user/mine")
	m.must(t, "", "import os\ntry: open('"+path+"','w')\nexcept PermissionError: pass")
	m.Close()
	if exists(path) || exists("/home/user/mine") {
		t.Error("the host's files were written")
	}
}

func (s Suite) testDiskLimit(t *testing.T) {
	m := s.start(t, engine.Limits{Disk: 32 << 20})
	got := m.must(t, "", `
import errno
def fill(path):
    try:
        with open(path, 'wb') as f:
            for _ in range(64): f.write(b'x' * (1 << 20)); f.flush()
    except OSError as e:
        print(errno.errorcode[e.errno])
    import os; os.remove(path)
fill('/home/user/big'); fill('/tmp/big')
open('/home/user/small', 'w').write('fits again')`)
	for _, line := range strings.Fields(got) {
		if line != "ENOSPC" && line != "EFBIG" {
			t.Errorf("got %q", got)
		}
	}
	if len(strings.Fields(got)) != 2 {
		t.Errorf("one quota for all of it: got %q", got)
	}
}

func (s Suite) testProcessLimit(t *testing.T) {
	spec := s.spec(t, engine.Limits{PIDs: 40})
	spec.Env = append(spec.Env, "CUBBY_PIDS=40")
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
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
	if !s.Enforces["cpu"] {
		t.Skip("no cgroup bounds processors on this machine")
	}
	m := s.start(t, engine.Limits{CPUs: 0.5})
	m.must(t, "", "pass")
	before := m.cpuTime(t)
	start := time.Now()
	m.must(t, "", "import time\nend = time.time() + 2\nwhile time.time() < end: pass")
	if used, wall := m.cpuTime(t)-before, time.Since(start); used > wall*8/10 {
		t.Errorf("half a processor: %v used in %v", used, wall)
	}
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

// testShowsLimitsAfterCheckpoint: what a machine shows is settled when it boots.
func (s Suite) testShowsLimitsAfterCheckpoint(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{Memory: 300 << 20, CPUs: 1})
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
	r, err := restorer.Restore(t.Context(), spec, image)
	if err != nil {
		t.Fatal(err)
	}
	if got := newMachine(t, r).must(t, "", askLimits); got != "1 314572800" {
		t.Errorf("after a checkpoint: %s", got)
	}
}

func (s Suite) testNoNetwork(t *testing.T) {
	m := s.start(t, engine.Limits{})
	got := m.must(t, "", `
import socket
for host in ("1.1.1.1", "169.254.169.254", "10.0.0.1"):
    s = socket.socket(); s.settimeout(1)
    try: s.connect((host, 80)); print("connected", host)
    except OSError as e: pass
print([n for _, n in socket.if_nameindex()])`)
	if got != "['lo']" {
		t.Errorf("got %q", got)
	}
}

func (s Suite) testContained(t *testing.T) {
	if s.Contained == nil {
		t.Skip("the engine promises nothing about host processes")
	}
	m := s.start(t, engine.Limits{Memory: 128 << 20, CPUs: 1, PIDs: 64})
	m.healthy(t)
	s.Contained(t, m.Machine)
}
