package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// realManager returns a manager of this machine's tree, or skips.
func realManager(t *testing.T, controllers ...string) *Manager {
	t.Helper()
	m, err := Detect("", "", "")
	if err != nil {
		t.Skip(err)
	}
	for _, c := range controllers {
		if !slices.Contains(m.Available(), c) {
			t.Skip(c, m.Missing()[c])
		}
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		for _, h := range m.hierarchies {
			entries, _ := os.ReadDir(h.base())
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), m.owner) {
					t.Errorf("left behind: %s", e.Name())
				}
			}
		}
	})
	return m
}

func newGroup(t *testing.T, m *Manager, limits Limits, enforced ...string) *Group {
	t.Helper()
	g, err := m.New(strings.ReplaceAll(t.Name(), "/", "_"), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(g.Enforced(), enforced) {
		t.Fatalf("enforced %v, want %v; problems %v", g.Enforced(), enforced, g.Problems())
	}
	return g
}

// runIn starts a shell that waits for its standard input to close, so that it is
// in the group before it does anything.
func runIn(t *testing.T, g *Group, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("/bin/bash", "-c", "read line; "+script)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Procs(); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("processes %v, %v", pids, err)
	}
	stdin.Close()
	err = cmd.Wait()
	return out.String(), err
}

func TestMemoryLimitKills(t *testing.T) {
	m := realManager(t, "memory")
	g := newGroup(t, m, Limits{Memory: 64 << 20}, "memory")
	if n, err := g.OOMKills(); n != 0 || err != nil {
		t.Fatalf("before: %d, %v", n, err)
	}
	out, err := runIn(t, g, "exec python3 -c 'x = bytearray(200 << 20); print(len(x))'")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("got %v %s", err, out)
	}
	if n, err := g.OOMKills(); n < 1 || err != nil {
		t.Errorf("after: %d, %v", n, err)
	}
	if out, err := runIn(t, g, "echo still usable"); err != nil || out != "still usable\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestPIDsLimit(t *testing.T) {
	g := newGroup(t, realManager(t, "pids"), Limits{PIDs: 5}, "pids")
	out, _ := runIn(t, g, "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait")
	if !strings.Contains(out, "Resource temporarily unavailable") {
		t.Errorf("got %q", out)
	}
}

func TestCPULimit(t *testing.T) {
	g := newGroup(t, realManager(t, "cpu"), Limits{CPUs: 0.2}, "cpu")
	start := time.Now()
	cmd := `TIMEFORMAT=%U; time for ((i = 0; i < 100000; i++)); do :; done`
	out, err := runIn(t, g, cmd)
	var used float64
	if _, scanErr := fmt.Sscan(out, &used); err != nil || scanErr != nil {
		t.Fatal(out, err, scanErr)
	}
	if took := time.Since(start).Seconds(); used > 0.1 && took < 2*used {
		t.Errorf("%.2f s of processor time took only %.2f s", used, took)
	}
}

// TestSetLimits changes limits up, down and away, each with what it was before.
func TestSetLimits(t *testing.T) {
	g := newGroup(t, realManager(t, "cpu", "memory", "pids"), Limits{Memory: 64 << 20, PIDs: 5}, "memory", "pids")
	for _, tt := range []struct {
		limits   Limits
		enforced []string
	}{
		{Limits{Memory: 128 << 20, CPUs: 0.5, PIDs: 5}, Controllers},
		{Limits{Memory: 32 << 20, CPUs: 1, PIDs: 6}, Controllers},
		{Limits{PIDs: 5}, []string{"pids"}},
		{Limits{Memory: 64 << 20}, []string{"memory"}},
	} {
		if err := g.SetLimits(tt.limits); err != nil {
			t.Fatal(err)
		}
		if got := g.Enforced(); !slices.Equal(got, tt.enforced) || len(g.Problems()) > 0 {
			t.Errorf("%+v: enforced %v; %v", tt.limits, got, g.Problems())
		}
		out, _ := runIn(t, g, "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait")
		if refused := strings.Contains(out, "Resource temporarily unavailable"); refused != (tt.limits.PIDs > 0) {
			t.Errorf("%+v: eight processes: %q", tt.limits, out)
		}
	}
}

func TestCloseWaitsForTheLeaving(t *testing.T) {
	m := realManager(t)
	g := newGroup(t, m, Limits{})
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error("a second time:", err)
	}
}

func TestAddSkipsTheDead(t *testing.T) {
	g := newGroup(t, realManager(t), Limits{})
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := g.Add(0); err == nil {
		t.Error("process 0, which means ourselves, was accepted")
	}
}

func TestSweep(t *testing.T) {
	m := realManager(t)
	_ = newGroup(t, m, Limits{})
	namespace, err := pidNamespace("/proc")
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	zombie := exec.Command("true") // nobody waits for it until the end
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	stat := fmt.Sprintf("/proc/%d/stat", zombie.Process.Pid)
	state, start, err := processStat(stat)
	for ; err == nil && state != "Z"; time.Sleep(time.Millisecond) {
		state, start, err = processStat(stat)
	}
	if err != nil {
		t.Fatal(err)
	}
	base := m.hierarchies[0].base()
	for name, stays := range map[string]bool{
		fmt.Sprintf("%d.1.%s-dead", dead.Process.Pid, namespace):             false,
		fmt.Sprintf("%d.%s.%s-zombie", zombie.Process.Pid, start, namespace): false,
		fmt.Sprintf("%d.1.%s-reused", os.Getpid(), namespace):                false,
		fmt.Sprintf("%d.1.1-elsewhere", dead.Process.Pid):                    true,
		"somebody-elses":  true,
		m.owner + "alive": true,
	} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Sweep(); err != nil {
			t.Error(err)
		}
		_, err := os.Stat(dir)
		if (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(dir)
	}
}

func TestNewRefuses(t *testing.T) {
	m := realManager(t)
	for _, name := range []string{"", "a/b", "..", "a b", strings.Repeat("x", 65)} {
		if _, err := m.New(name, Limits{}); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	if _, err := m.New("x", Limits{Memory: -1}); err == nil {
		t.Error("a negative limit was accepted")
	}
}
