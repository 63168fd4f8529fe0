//go:build linux

// Package testenv gives tests the real binaries and the namespaces that they
// need.
package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/namespace"
	"github.com/cubby-sandbox/cubby/internal/supervisor"
)

// Sandboxes keep their files where every user can reach them, and tests look for
// them below TMPDIR: a root's own may be closed to others.
func init() {
	if dir := supervisor.TempDir(); dir != os.TempDir() {
		os.Setenv("TMPDIR", dir)
	}
}

// binaries builds once for each test process; the build cache and the lock make
// it once for a whole run.
var binaries = sync.OnceValues(build)

// SetBinary points CUBBY_BINARY, by which package embedded finds its child, at
// Cubby's. For a TestMain: examples have no testing.TB.
func SetBinary() error {
	dir, err := binaries()
	if err != nil {
		return err
	}
	return os.Setenv("CUBBY_BINARY", filepath.Join(dir, "cubby"))
}

// Cubby returns a statically linked cubby of the sources under test.
func Cubby(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cubby")
}

// Engine returns the program in which sandboxes live, of the sources under test.
func Engine(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cubby-engine")
}

// Guest returns the guest of the sources under test.
func Guest(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cubby-guest")
}

// TypeScript returns the program that makes JavaScript of TypeScript, of the sources
// under test.
func TypeScript(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cubby-typescript")
}

// build returns where the binaries are: CUBBY_TEST_BIN if that is set (they are taken
// as they are), else bin/test in the repository.
func build() (string, error) {
	if dir := os.Getenv("CUBBY_TEST_BIN"); dir != "" {
		return dir, nil
	}
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(root, "scripts", "build"), dir)
	if os.Getenv("CUBBY_TEST_LINKED") != "" {
		cmd = exec.Command("go", "build", "-trimpath", "-o", dir, "./cmd/cubby", "./cmd/cubby-engine", "./cmd/cubby-guest", "./cmd/cubby-typescript")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cubby for tests: %w\n%s", err, bytes.TrimSpace(out))
	}
	return dir, nil
}

const namespacedVar = "CUBBY_TEST_NAMESPACED"

// RunNamespaced runs a package's tests in a mount namespace of their own (and
// without root in a user namespace, too): it starts the test binary again and
// does not return in the first process. Call it in TestMain.
func RunNamespaced(m *testing.M) {
	if os.Getenv(namespacedVar) != "" {
		os.Unsetenv(namespacedVar)
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mounts of our own:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespacedVar+"=1")
	cmd.SysProcAttr = namespace.Attr()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	runtime.LockOSThread() // Pdeathsig is about the thread
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "tests in namespaces:", err, namespace.Hint(err))
		os.Exit(1)
	}
	os.Exit(0)
}
