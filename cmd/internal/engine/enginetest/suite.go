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
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
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
	// nothing of the engine's is left at its end; may be nil.
	Leaks func(t testing.TB)
	// Powers names the optional interfaces of package engine ("Restorer", …) that
	// the engine and its machines have, sorted. Tests of the others are skipped.
	Powers []string
	// Lacks says of walls that the engine does not build, or not on this machine,
	// why: by the name of their test, which is skipped with it.
	Lacks map[string]string
	// Contained is called with a running machine and fails the test if its host
	// processes have more rights than the engine promises. It may be nil if the
	// engine Lacks "Contained".
	Contained func(t *testing.T, m engine.Machine)
}

// test is one of the suite's.
type test struct {
	name string
	run  func(*testing.T)
	// lacking, if there is one, is run before the test is skipped for what the
	// engine Lacks: it says so itself, too.
	lacking func(*testing.T)
}

func (s Suite) tests() []test {
	return []test{
		{name: "Probe", run: s.testProbe},
		{name: "Powers", run: s.testPowers},
		{name: "StartDialClose", run: s.testStartDialClose},
		{name: "Init", run: s.testInit},
		{name: "CloseAtOnce", run: s.testCloseAtOnce},
		{name: "PortClosed", run: s.testPortClosed},
		{name: "DialOtherPort", run: s.testDialOtherPort},
		{name: "GuestCgroups", run: s.testGuestCgroups},
		{name: "WithoutCgroups", run: s.testWithoutCgroups},
		{name: "ManyMachines", run: s.testManyMachines},
		{name: "FirstProcessEnds", run: s.testFirstProcessEnds},
		{name: "MissingFirstProcess", run: s.testMissingFirstProcess},
		{name: "CheckpointRestore", run: s.testCheckpointRestore},
		{name: "CheckpointCommands", run: s.testCheckpointCommands},
		{name: "CheckpointFrozen", run: s.testCheckpointFrozen},
		{name: "CheckpointLife", run: s.testCheckpointLife},
		{name: "CheckpointAnyMoment", run: s.testCheckpointAnyMoment},
		{name: "CheckpointFails", run: s.testCheckpointFails},
		{name: "CheckpointConnections", run: s.testCheckpointConnections},
		{name: "ForeignCheckpoint", run: s.testForeignCheckpoint},
		{name: "FilesOnly", run: s.testFilesOnly},
		{name: "PauseResume", run: s.testPauseResume},
		{name: "Slow", run: s.testSlow},
		{name: "Usage", run: s.testUsage},
		{name: "DiskUsage", run: s.testDiskUsage},
		{name: "CPUTime", run: s.testCPUTime},
		{name: "RootIsNotWritten", run: s.testRootIsNotWritten},
		{name: "DiskLimit", run: s.testDiskLimit},
		{name: "ProcessLimit", run: s.testProcessLimit},
		{name: "CPULimit", run: s.testCPULimit},
		{name: "SetLimits", run: s.testSetLimits},
		{name: "SetCPULimit", run: s.testSetCPULimit},
		{name: "ShowsLimits", run: s.testShowsLimits},
		{name: "Fixed", run: s.testFixed},
		{name: "FixedInCheckpoints", run: s.testFixedInCheckpoints},
		{name: "NoNetwork", run: s.testNoNetwork},
		{name: "NetworkCard", run: s.testNetworkCard, lacking: s.testNoNetworkCard},
		{name: "RestoredNetworkCard", run: s.testRestoredNetworkCard},
		{name: "Contained", run: s.testContained},
	}
}

// Run runs every test and returns, by name, which of those that ran were skipped: an
// engine's own test compares them with what it expects.
func (s Suite) Run(t *testing.T) (skipped map[string]bool) {
	tests := s.tests()
	for name := range s.Lacks {
		if !slices.ContainsFunc(tests, func(test test) bool { return test.name == name }) {
			t.Errorf("the suite has no test %q that the engine could lack", name)
		}
	}
	skipped = map[string]bool{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			defer func() { skipped[test.name] = t.Skipped() }()
			if s.Leaks != nil {
				s.Leaks(t)
			}
			if why, lacks := s.Lacks[test.name]; lacks {
				if test.lacking != nil {
					test.lacking(t)
				}
				t.Skipf("%s: %s", s.Engine.Name(), why)
			}
			test.run(t)
		})
	}
	return skipped
}

// powers lists the optional interfaces of an engine and one of its machines, sorted.
func powers(e engine.Engine, m engine.Machine) []string {
	var names []string
	for name, has := range map[string]bool{
		"Checkpointer": is[engine.Checkpointer](m),
		"Limiter":      is[engine.Limiter](m),
		"Pauser":       is[engine.Pauser](m),
		"Restorer":     is[engine.Restorer](e),
		"Slower":       is[engine.Slower](m),
	} {
		if has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func is[Power any](v any) bool {
	_, ok := v.(Power)
	return ok
}

// testPowers: an engine has what it is said to have, so that no test is skipped by
// mistake.
func (s Suite) testPowers(t *testing.T) {
	if got := powers(s.Engine, s.start(t, engine.Limits{}).Machine); !slices.Equal(got, s.Powers) {
		t.Errorf("the engine and its machines have %q, and are said to have %q", got, s.Powers)
	}
	if s.Engine.Commit() == "" {
		t.Error("the engine does not say of which build it is")
	}
}

// can returns an engine or a machine as what it may be besides, or skips the test.
func can[Power any](t *testing.T, of any) Power {
	t.Helper()
	power, ok := of.(Power)
	if !ok {
		t.Skipf("%T is no %s", of, reflect.TypeFor[Power]().Name())
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

	once sync.Once // the guest is told what it is
	told error
}

func newMachine(t *testing.T, m engine.Machine) *machine {
	w := &machine{Machine: m, transport: map[int]*http.Transport{}}
	for _, port := range []int{protocol.EnvdPort, protocol.CodeInterpreterPort} {
		w.transport[port] = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.dial(ctx, port)
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
	return m.execute(t, language, code, nil)
}

func (m *machine) execute(t *testing.T, language, code string, header http.Header) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	body, _ := json.Marshal(protocol.ExecuteRequest{Code: code, Language: language})
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest/execute", bytes.NewReader(body))
	maps.Copy(req.Header, header)
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
	// One that was free a moment ago.
	port, err := strconv.Atoi(m.must(t, "", "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1]); s.close()"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Dial(t.Context(), port); !errors.Is(err, engine.ErrPortClosed) {
		t.Errorf("got %v", err)
	}
}

func (s Suite) testDialOtherPort(t *testing.T) {
	m := s.start(t, engine.Limits{})
	port, err := strconv.Atoi(m.must(t, "", `
import socket, threading
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
def serve():
    c, _ = s.accept()
    c.sendall(c.recv(100).upper()); c.close()
threading.Thread(target=serve, daemon=True).start()
print(s.getsockname()[1])`))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := m.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "hello")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "HELLO" {
		t.Errorf("got %q, %v", got, err)
	}
}

// testGuestCgroups: the kernel inside lets the guest have control groups, in which its
// cells are.
func (s Suite) testGuestCgroups(t *testing.T) {
	got := s.start(t, engine.Limits{}).must(t, "", "print(open('/proc/self/cgroup').read())")
	if !strings.Contains(got, "pids:/cell") {
		t.Errorf("a cell is in %q", got)
	}
}

// testWithoutCgroups: a guest that is offered none works all the same, and still ends
// what a cell has started when the cell's time is over.
func (s Suite) testWithoutCgroups(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	spec.Env = append(slices.Clone(spec.Env), protocol.CgroupVar+"=")
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	m.must(t, "", "pass")
	out := m.execute(t, "", `
import subprocess, time
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
time.sleep(1000)`, http.Header{protocol.HeaderTimeoutMS: {"3000"}})
	if out.end.ExitCode == 0 && out.err == nil {
		t.Errorf("the time was over, and it says %+v", out)
	}
	got := m.must(t, "", `
import time
def running(pid):
    try: return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError: return False
deadline = time.time() + 30
while running(`+strings.TrimSpace(out.stdout)+`) and time.time() < deadline: time.sleep(0.01)
print(running(`+strings.TrimSpace(out.stdout)+`))`)
	if got != "False" {
		t.Errorf("what the cell started runs on: %s", got)
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
	if after.Overhead < 0 || after.Overhead > 200<<20 {
		t.Errorf("overhead %d", after.Overhead)
	}
	if most := after.MaxOverhead; most < 0 || most > 0 && (after.Overhead == 0 || after.Overhead > most/2) {
		t.Errorf("overhead %d of at most %d", after.Overhead, most)
	}
	if after.Cache < 0 {
		t.Errorf("cache %d", after.Cache)
	}
}

func (s Suite) testDiskUsage(t *testing.T) {
	m := s.start(t, engine.Limits{})
	before, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.must(t, "bash", "head -c 16777216 /dev/zero > /home/user/16MiB")
	written, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if grown := written.Disk - before.Disk; grown < 16<<20 || grown > 32<<20 {
		t.Errorf("16 MiB were written, the disk went from %d to %d", before.Disk, written.Disk)
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

func (s Suite) testContained(t *testing.T) {
	m := s.start(t, engine.Limits{Memory: 128 << 20, CPUs: 1, PIDs: 64})
	m.healthy(t)
	s.Contained(t, m.Machine)
}
