//go:build linux

package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby/codeexec/container/internal/dockertest"
)

// Images of the tests' daemon, made of this machine's files.
const (
	imagePython = "cubby-test:python" // Python, Bash and tools
	imageShell  = "cubby-test:shell"  // the same without Python
	imageLiar   = "cubby-test:liar"   // its python3 is not what it seems
	imageEmpty  = "cubby-test:empty"  // no program at all
)

// daemon is the tests' own; noDaemon says why there is none.
var (
	daemon   *dockertest.Daemon
	noDaemon error
)

func TestMain(m *testing.M) {
	if os.Getenv(victimVar) != "" {
		os.Exit(victim())
	}
	os.Exit(withDaemon(m))
}

func withDaemon(m *testing.M) int {
	for _, name := range []string{client.EnvOverrideHost, client.EnvOverrideCertPath, client.EnvTLSVerify, client.EnvOverrideAPIVersion} {
		os.Unsetenv(name)
	}
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz=") || a == "-test.fuzzworker" }) {
		noDaemon = errors.New("fuzzing needs no daemon, and its processes end without notice")
		return m.Run()
	}
	if noDaemon = dockertest.Prepare(); noDaemon != nil {
		fmt.Fprintf(os.Stderr, "NOT TESTED with a real Docker: %v\n", noDaemon)
		// A machine that is to test everything has root and apt-get, or says so.
		if _, err := exec.LookPath("apt-get"); os.Getenv("CI") != "" && os.Getuid() == 0 && err == nil {
			return 1
		}
		return m.Run()
	}
	var err error
	if daemon, err = dockertest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests' dockerd:", err)
		return 1
	}
	defer daemon.Stop()
	if err := images(daemon); err != nil {
		fmt.Fprintln(os.Stderr, "the tests' images:", err)
		return 1
	}
	return m.Run()
}

func images(d *dockertest.Daemon) error {
	tree, err := dockertest.NewTree()
	if err != nil {
		return err
	}
	if err := d.Import(imageShell, tree.Write); err != nil {
		return err
	}
	if err := tree.AddPython(); err != nil {
		return err
	}
	if err := d.Import(imagePython, tree.Write); err != nil {
		return err
	}
	return d.Import(imageEmpty, (&dockertest.Tree{}).Write)
}

// needDocker skips a test where there is no daemon; TestMain has said so.
func needDocker(t testing.TB) {
	t.Helper()
	if noDaemon != nil {
		t.Skip("NOT TESTED: ", noDaemon)
	}
}

// open makes an executor on the tests' daemon, and checks in the end that no
// container is left.
func open(t testing.TB, cfg Config) *Executor {
	t.Helper()
	e, err := try(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func try(t testing.TB, cfg Config) (*Executor, error) {
	t.Helper()
	needDocker(t)
	if cfg.Host == "" {
		cfg.Host = daemon.Host
	}
	if cfg.Image == "" && cfg.Dockerfile == "" {
		cfg.Image = imagePython
	}
	if cfg.Pull == "" {
		cfg.Pull = PullNever
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Minute
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 3 * time.Minute
	}
	label := "t" + rand.Text()
	cfg.Labels = maps.Clone(cfg.Labels)
	if cfg.Labels == nil {
		cfg.Labels = map[string]string{}
	}
	cfg.Labels[label] = t.Name()
	e, err := New(t.Context(), cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left := containers(t, label); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return e, nil
}

// docker returns a client of the tests' daemon.
func dockerClient(t testing.TB) *client.Client {
	t.Helper()
	needDocker(t)
	api, err := client.New(client.WithHost(daemon.Host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return api
}

// containers returns the ids of containers with a label.
func containers(t testing.TB, label string) []string {
	t.Helper()
	found, err := dockerClient(t).ContainerList(context.Background(),
		client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range found.Items {
		ids = append(ids, c.ID)
	}
	return ids
}
