//go:build linux

// Package dockertest gives tests a Docker daemon of their own, with images that
// are made offline from this machine's Python and tools.
package dockertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

// Daemon is a private dockerd: its data, its containerd and its socket are below
// one folder, and it touches neither the firewall nor the network.
type Daemon struct {
	Host string
	dir  string
	cmd  *exec.Cmd
	gone chan struct{} // closed when the process has ended
	ids  []string      // of containers that a crash left to themselves
}

// ErrUnavailable says why there can be no daemon here.
var ErrUnavailable = errors.New("no Docker daemon for the tests")

// Prepare makes sure that dockerd is installed. As root it installs it where
// apt-get can.
func Prepare() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("%w: only root can start one", ErrUnavailable)
	}
	missing := false
	for _, name := range []string{"dockerd", "containerd", "runc", "iptables"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = true
		}
	}
	if !missing {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: dockerd is not installed, and there is no apt-get", ErrUnavailable)
	}
	const install = "apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends docker.io iptables"
	cmd := exec.Command("sh", "-c", install+" || { apt-get -qq update && "+install+"; }")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: apt-get: %w\n%s", ErrUnavailable, err, out)
	}
	return nil
}

// Start starts a daemon. It ends with Stop, or with this process.
func Start() (*Daemon, error) {
	dir, err := os.MkdirTemp("", "dk") // short: it holds sockets
	if err != nil {
		return nil, err
	}
	d := &Daemon{dir: dir, Host: "unix://" + dir + "/docker.sock"}
	if err := d.Restart(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return d, nil
}

// Restart starts the daemon again after Kill, on the same data.
func (d *Daemon) Restart() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	config := filepath.Join(d.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		return err
	}
	// What was killed may be a zombie still, which looks alive.
	os.Remove(filepath.Join(d.dir, "pid"))
	os.Remove(filepath.Join(d.dir, "exec/containerd/containerd.pid"))
	d.cmd = exec.Command("dockerd", "--config-file", config, "--data-root", d.dir+"/data", "--exec-root", d.dir+"/exec",
		"--pidfile", d.dir+"/pid", "-H", d.Host, "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	started, gone := make(chan error), make(chan struct{})
	d.gone = gone
	cmd := d.cmd
	go func() {
		// The death signal is the thread's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was told to end
		}
		close(gone)
	}()
	if err := <-started; err != nil {
		return err
	}
	api, err := client.New(client.WithHost(d.Host))
	if err != nil {
		return err
	}
	defer api.Close()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err = api.Ping(context.Background(), client.PingOptions{}); err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("dockerd ended:\n%s", d.Log())
		default:
		}
	}
	return fmt.Errorf("dockerd does not answer: %w\n%s", err, d.Log())
}

// Log returns the end of the daemon's log.
func (d *Daemon) Log() string {
	b, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	return string(b[max(0, len(b)-4000):])
}

// Kill ends the daemon as a crash of the machine's would: with its containerd and
// the shims of its containers.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	<-d.gone
	d.killAll()
	d.note()
}

// note remembers the containers that the daemon has.
func (d *Daemon) note() {
	dirs, _ := filepath.Glob(filepath.Join(d.dir, "data/containers/*"))
	for _, dir := range dirs {
		d.ids = append(d.ids, filepath.Base(dir))
	}
}

// killAll ends what belongs to the daemon and is left.
func (d *Daemon) killAll() {
	for range 100 {
		left := d.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the daemon, its containers, and what it left in the kernel.
func (d *Daemon) Stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.gone:
	case <-time.After(30 * time.Second):
		d.Kill()
	}
	d.killAll()
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 4 && strings.HasPrefix(f[4], d.dir+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH)
		}
	}
	d.note()
	os.RemoveAll(d.dir)
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/docker")
	roots = append(roots, "/sys/fs/cgroup/docker")
	for _, id := range d.ids {
		for _, root := range roots {
			removeGroup(filepath.Join(root, id))
		}
	}
	for _, root := range roots {
		os.Remove(root) // if nobody else has containers there
	}
}

// removeGroup ends what is in a control group and removes it.
func removeGroup(group string) {
	for range 100 {
		if err := os.Remove(group); err == nil || os.IsNotExist(err) {
			return
		}
		procs, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(procs)) {
			if pid, err := strconv.Atoi(field); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes are those of this daemon: the folder is among their arguments.
func (d *Daemon) processes() []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, proc := range procs {
		cmdline, _ := os.ReadFile(proc)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(proc))); err == nil &&
			pid != os.Getpid() && strings.Contains(string(cmdline), d.dir+"/exec") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Import makes an image of a tar stream.
func (d *Daemon) Import(name string, write func(io.Writer) error) error {
	api, err := client.New(client.WithHost(d.Host))
	if err != nil {
		return err
	}
	defer api.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	resp, err := api.ImageImport(context.Background(), client.ImageImportSource{Source: r, SourceName: "-"}, name, client.ImageImportOptions{
		Changes: []string{"ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	if err != nil {
		return err
	}
	defer resp.Close()
	_, err = io.Copy(io.Discard, resp)
	return err
}
