//go:build linux

package plainproc_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/enginetest"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/enginetest/plainproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/hostproc"
)

func TestMain(m *testing.M) {
	plainproc.Dispatch()
	os.Exit(m.Run())
}

// TestSuite: an engine that can only do what each must passes the suite, which skips
// for it what it declares that it cannot do, and nothing else.
func TestSuite(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("the guest needs /usr/bin/python3")
	}
	args, err := plainproc.Args()
	if err != nil {
		t.Fatal(err)
	}
	node, _ := exec.LookPath("node")
	dir := t.TempDir()
	const nothing = "a machine is a plain process of the host, and bounds nothing"
	lacks := map[string]string{
		"Init":             "its guest is an ordinary process, and no root's",
		"GuestCgroups":     "its kernel is the host's, whose control groups are not the guest's",
		"RootIsNotWritten": nothing,
		"DiskUsage":        nothing,
		"DiskLimit":        nothing,
		"ProcessLimit":     nothing,
		"CPULimit":         nothing,
		"ShowsLimits":      nothing,
		"NoNetwork":        nothing,
		"NetworkCard":      "its network is the host's",
		"Contained":        nothing,
	}
	ran := enginetest.Suite{
		Engine: plainproc.New(dir),
		Spec: func(*testing.T) engine.Spec {
			return engine.Spec{Root: "/", Args: args, Env: []string{
				"PATH=/usr/local/bin:/usr/bin:/bin", "CUBBY_PYTHON=/usr/bin/python3", "CUBBY_NODE=" + node, "CUBBY_BASH=/bin/bash",
			}}
		},
		Leaks: func(t testing.TB) { nothingIsLeft(t, dir) },
		Lacks: lacks,
	}.Run(t)

	// What needs a power that it does not have.
	powerless := []string{
		"CheckpointRestore", "CheckpointCommands", "CheckpointFrozen", "CheckpointLife", "CheckpointAnyMoment",
		"CheckpointFails", "CheckpointConnections", "FilesOnly", "ForeignCheckpoint", "FixedInCheckpoints", "RestoredNetworkCard",
		"PauseResume", "SetLimits", "SetCPULimit", "Slow",
	}
	for test, skipped := range ran {
		_, lacking := lacks[test]
		if want := lacking || slices.Contains(powerless, test); skipped != want {
			t.Errorf("%s was skipped: %v, want %v", test, skipped, want)
		}
	}
}

// nothingIsLeft fails the test if when it ends there are processes or files of
// machines.
func nothingIsLeft(t testing.TB, dir string) {
	before := hostproc.Descendants(os.Getpid())
	t.Cleanup(func() {
		var left []int
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			left = slices.DeleteFunc(hostproc.Descendants(os.Getpid()), func(pid int) bool { return slices.Contains(before, pid) })
			if len(left) == 0 || time.Now().After(deadline) {
				break
			}
		}
		if len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("files are left: %v, %v", files, err)
		}
	})
}
