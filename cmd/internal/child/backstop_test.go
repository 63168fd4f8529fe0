package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangingVar makes this test's binary a server of sandboxes that hangs when it is
// to end.
const hangingVar = "CUBBY_TEST_HANGING"

func TestMain(m *testing.M) {
	if os.Getenv(hangingVar) == "" {
		os.Exit(m.Run())
	}
	kernel := exec.Command("sleep", "600")
	kernel.Args[0] = "kernel"
	isKernel := func(arg0 string) bool { return arg0 == "kernel" }
	other := exec.Command("sleep", "600")
	for _, cmd := range []*exec.Cmd{kernel, other} {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // as a sandbox's are
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	backstop(ctx, slog.New(slog.DiscardHandler), func() time.Duration { return killAfter }, isKernel) // nobody says that it ended
	_ = kernel.Process.Signal(syscall.SIGSTOP)
	cancel()
	_ = kernel.Wait()
	fmt.Println("the kernel:", kernel.ProcessState)
	fmt.Println("the other:", other.Process.Signal(syscall.Signal(0)))
	select {}
}

// TestBackstop: a process that is to end kills what it has of sandboxes, stopped
// or not, so that whoever waits for them goes on; and ends itself if that does not
// help.
func TestBackstop(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), hangingVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"the kernel: signal: killed", "the other: <nil>"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > 2*(killAfter+exitAfter) {
		t.Errorf("it took %v", took)
	}
}

// TestBackstopIsNotNeeded: what ends in time is left alone.
func TestBackstopIsNotNeeded(t *testing.T) {
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	done := backstop(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return time.Hour }, nil)
	cancel()
	done()
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

// TestPatience: a server has more time for its end where it has sandboxes to keep, and
// nobody else has.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		dataDir string
		keeps   int
		want    time.Duration
	}{{"", 0, killAfter}, {"", 3, killAfter}, {"/data", 0, killAfterServing}, {"/data", 1, killAfterServing + keepTimeout}} {
		if got := patience(tt.dataDir, func() int { return tt.keeps }); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
