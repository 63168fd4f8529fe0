package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
)

// The test binary runs itself again in the namespaces that Compose needs.
const (
	stageVar = "CUBBY_TEMPLATE_TEST_STAGE" // "user": make a user namespace; "compose": report
	jobVar   = "CUBBY_TEMPLATE_TEST_JOB"
)

type job struct {
	Options Options
	Dir     string
	Guest   string
}

// report is what the child saw of a composed root.
type report struct {
	Error    string
	Took     time.Duration
	Root     Root
	Chain    Toolchain
	Paths    map[string]string // below the root, outside /usr: mode
	Writable []string
	Output   map[string]string // by interpreter, run in a chroot
	Pip      string            // what is configured for pip
	Left     []string          // mounts after Close
}

func TestMain(m *testing.M) {
	switch os.Getenv(stageVar) {
	case "user":
		cmd := reexec("compose", os.Getenv(jobVar))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "compose":
		var j job
		if err := json.Unmarshal([]byte(os.Getenv(jobVar)), &j); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		json.NewEncoder(os.Stdout).Encode(composeAndLook(j))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func reexec(stage, job string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageVar+"="+stage, jobVar+"="+job)
	return cmd
}

func composeAndLook(j job) (r report) {
	ctx := context.Background()
	tc, err := Find(ctx, j.Options)
	if err != nil {
		return report{Error: err.Error()}
	}
	r.Chain = tc
	start := time.Now()
	root, err := Compose(ctx, j.Dir, tc, Additions{Programs: Programs{Guest: j.Guest, TypeScript: j.Guest},
		Earlier: []Programs{{ID: "e1", Guest: j.Guest}}})
	r.Took = time.Since(start)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Root = root
	r.Paths = map[string]string{}
	filepath.WalkDir(root.Dir, func(path string, d fs.DirEntry, err error) error {
		inside := strings.TrimPrefix(path, root.Dir)
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		r.Paths[inside] = info.Mode().String()
		if len(r.Paths) > 200_000 {
			return errors.New("too many files")
		}
		if inside == "/usr" || storeOf(inside+"/x") != "" || slices.Contains(tc.Python.Prefixes, inside) {
			if d.IsDir() {
				return filepath.SkipDir
			}
		}
		return nil
	})
	for _, dir := range append([]string{"/usr", "/usr/bin", "/etc/alternatives", "/etc/ssl/certs", Programs{}.GuestPath(), Programs{}.TypeScriptPath()}, tc.Python.Prefixes...) {
		probe := root.Dir + dir + "/cubby-write-test"
		if dir == (Programs{}).GuestPath() || dir == (Programs{}).TypeScriptPath() {
			probe = root.Dir + dir
		}
		if f, err := os.OpenFile(probe, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			f.Close()
			r.Writable = append(r.Writable, dir)
		}
	}
	for _, name := range []string{"/etc/pip.conf", offline.PipFile} {
		text, _ := os.ReadFile(root.Dir + name)
		r.Pip += string(text)
		delete(r.Paths, name) // the template's own
	}
	r.Output = map[string]string{}
	for name, run := range map[string][]string{
		"python": {root.Python, "-c", "import sys, json, decimal; print(sys.prefix)"},
		"node":   {root.Node, "-e", "console.log(6*7)"},
		"bash":   {root.Bash, "-c", "cd /home/user && echo $((6*7)) && whoami"},
	} {
		if run[0] == "" {
			continue
		}
		cmd := exec.Command(run[0], run[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + root.Path, "HOME=/home/user"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root.Dir}
		out, err := cmd.CombinedOutput()
		r.Output[name] = strings.TrimSpace(string(out))
		if err != nil {
			r.Output[name] += " " + err.Error()
		}
	}
	if err := root.Close(); err != nil {
		r.Error = err.Error()
	}
	info, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, j.Dir) {
			r.Left = append(r.Left, line)
		}
	}
	return r
}

// publicDir is a directory that other users can reach, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubby-template-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compose runs composeAndLook as root in a mount namespace, or as a plain user
// in a user namespace.
func compose(t *testing.T, asUser bool, opts Options, env ...string) report {
	t.Helper()
	if !asUser && os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := publicDir(t)
	mnt, guest := filepath.Join(dir, "root"), filepath.Join(dir, "guest")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(guest, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(job{Options: opts, Dir: mnt, Guest: guest})
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	if asUser {
		cmd = reexec("user", string(text))
		if os.Getuid() == 0 {
			// The test binary itself may lie where the other user cannot go.
			self := filepath.Join(dir, "self")
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cp", exe, self).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if err := os.Chown(mnt, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			cmd.Path, cmd.Args[0] = self, self
			cmd.Dir = "/"
			cmd.Env = append(cmd.Env, "HOME=/nonexistent")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	} else {
		cmd = reexec("compose", string(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Env = append(cmd.Env, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if strings.Contains(stderr.String(), "operation not permitted") && asUser {
			t.Skipf("user namespaces are forbidden here: %s", stderr.String())
		}
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

func TestCompose(t *testing.T) {
	for _, who := range []struct {
		name   string
		asUser bool
	}{{"root", false}, {"user", true}} {
		t.Run(who.name, func(t *testing.T) {
			r := compose(t, who.asUser, Options{})
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			t.Logf("composed in %v; %d paths outside /usr; python %s %v, node %s %v", r.Took, len(r.Paths),
				r.Chain.Python.Path, r.Chain.Python.Prefixes, r.Chain.Node.Path, r.Chain.Node.Prefixes)
			for path, mode := range map[string]string{
				"": "drwxr-xr-x", "/tmp": "dtrwxrwxrwx", "/var/tmp": "dtrwxrwxrwx", "/tmp/.cubby": "-rw-------",
				"/home/user": "drwxr-xr-x", "/root": "drwxr-xr-x", "/proc": "drwxr-xr-x", "/.cubby/cubby-guest": "-rwxr-xr-x", "/.cubby/cubby-typescript": "-rwxr-xr-x", "/.cubby/e1/cubby-guest": "-rwxr-xr-x",
				"/etc/passwd": "-rw-r--r--", "/etc/resolv.conf": "-rw-r--r--", "/var/lib": "drwxr-xr-x",
			} {
				if r.Paths[path] != mode {
					t.Errorf("%q: mode %q, want %q", path, r.Paths[path], mode)
				}
			}
			if len(r.Writable) > 0 {
				t.Errorf("writable: %v", r.Writable)
			}
			if len(r.Left) > 0 {
				t.Errorf("left mounted: %v", r.Left)
			}
			if r.Chain.Python.Missing == "" && !strings.HasPrefix(r.Output["python"], "/") {
				t.Errorf("python: %q", r.Output["python"])
			}
			if r.Chain.Node.Missing == "" && r.Output["node"] != "42" {
				t.Errorf("node: %q", r.Output["node"])
			}
			if r.Output["bash"] != "42\nroot" {
				t.Errorf("bash: %q", r.Output["bash"])
			}
		})
	}
}

// A virtual environment on an interpreter that lies elsewhere runs inside, and
// what stands beside it stays outside.
func TestComposeVirtualEnvironment(t *testing.T) {
	for _, asUser := range []bool{false, true} {
		t.Run(fmt.Sprintf("asUser=%v", asUser), func(t *testing.T) {
			dir := publicDir(t)
			venv := filepath.Join(dir, "project", "venv")
			if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			for _, secret := range []string{"project/.env", "project/venv/pip.conf"} {
				if err := os.WriteFile(filepath.Join(dir, secret), []byte("secret"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := compose(t, asUser, Options{Python: venv})
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if r.Output["python"] != venv {
				t.Errorf("sys.prefix is %q, want %q", r.Output["python"], venv)
			}
			for path := range r.Paths {
				if strings.HasSuffix(path, "/.env") || strings.HasSuffix(path, "/pip.conf") && !under(path, "/usr") {
					t.Errorf("reachable: %s", path)
				}
			}
		})
	}
}

// A copy whose mounts below have flags of their own is read-only throughout,
// by the new interface and by the old one.
func TestBindReadOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, bind := range map[string]func(source, target string) error{"new": bindReadOnly, "old": bindReadOnlyOld} {
		t.Run(name, func(t *testing.T) {
			source, target := t.TempDir(), t.TempDir()
			below := filepath.Join(source, "be low")
			if err := os.Mkdir(below, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("cubby-test", below, "tmpfs", unix.MS_NOEXEC|unix.MS_NOATIME, "size=64k"); err != nil {
				t.Skip(err)
			}
			defer unix.Unmount(below, unix.MNT_DETACH)
			if err := bind(source, target); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(target, unix.MNT_DETACH)
			for _, dir := range []string{target, filepath.Join(target, "be low")} {
				if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
					t.Errorf("%s: %v", dir, err)
				}
				var fs unix.Statfs_t
				if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
					t.Errorf("%s: flags %#x, %v", dir, fs.Flags, err)
				}
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(filepath.Join(target, "be low"), &fs); err != nil || fs.Flags&unix.ST_NOEXEC == 0 {
				t.Errorf("noexec was lost: flags %#x, %v", fs.Flags, err)
			}
			if err := os.WriteFile(filepath.Join(below, "x"), nil, 0o644); err != nil {
				t.Errorf("the source became read-only: %v", err)
			}
		})
	}
}

// Nothing of the host's homes, /var, credentials or sockets can be reached.
func TestComposeHidesTheHost(t *testing.T) {
	secret := regexp.MustCompile(`^/etc/(shadow|gshadow|sudoers|pip\.conf|npmrc|gitconfig|ssh|apt|ssl/private|environment|machine-id|krb5|docker|cron)|` +
		`/\.(ssh|aws|netrc|npmrc|gitconfig|config|cache|docker|kube|gnupg|bash_history|pypirc)|docker\.sock`)
	for _, asUser := range []bool{false, true} {
		t.Run(fmt.Sprintf("asUser=%v", asUser), func(t *testing.T) {
			r := compose(t, asUser, Options{})
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if r.Pip != pipConf+offline.Files(offline.Registries)[offline.PipFile] {
				t.Errorf("pip is configured by others: %s", r.Pip)
			}
			allowed := slices.Concat(baseDirs, r.Chain.Python.Prefixes, r.Chain.Node.Prefixes, r.Chain.Bash.Prefixes)
			for path, mode := range r.Paths {
				if covered(path, allowed) {
					continue
				}
				if secret.MatchString(path) {
					t.Errorf("reachable: %s", path)
				}
				switch mode[0] {
				case 'S', 'p', 'D':
					t.Errorf("%s is a socket, pipe or device: %s", path, mode)
				}
				if strings.HasPrefix(mode, "d") && under(userSite(r.Chain.Python.Path), path) && under(path, localDir) {
					continue // for packages of the sandbox's own; empty, or there would be more
				}
				for _, empty := range []string{"/var/lib/", "/var/log/", "/var/cache/", "/home/user/", "/run/", "/opt/",
					"/mnt/", "/srv/", "/proc/", "/sys/", "/dev/"} {
					if strings.HasPrefix(path, empty) && !slices.ContainsFunc(allowed, func(p string) bool { return under(p, path) }) {
						t.Errorf("%s is not empty: %s", empty, path)
					}
				}
				if (strings.HasPrefix(path, "/root/") || strings.HasPrefix(path, "/home/") && path != "/home/user") &&
					!slices.ContainsFunc(allowed, func(p string) bool { return under(p, path) }) &&
					r.Chain.Python.Links[path] == "" && r.Chain.Node.Links[path] == "" {
					t.Errorf("a home shows %s", path)
				}
			}
		})
	}
}

func TestComposeRefusesSharedMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("cubby-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Compose(context.Background(), dir, Toolchain{}, Additions{Programs: Programs{Guest: "/bin/true"}})
	if err == nil || !strings.Contains(err.Error(), "shared") {
		t.Fatalf("got %v", err)
	}
}

func TestComposeErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Compose(context.Background(), dir, Toolchain{},
		Additions{Programs: Programs{Guest: filepath.Join(dir, "none")}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no guest: %v", err)
	}
	if _, err := Compose(context.Background(), dir, Toolchain{}, Additions{Programs: Programs{Guest: dir}}); err == nil {
		t.Error("a directory as guest was accepted")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compose(ctx, dir, Toolchain{}, Additions{Programs: Programs{Guest: "/bin/true"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// BenchmarkCompose needs a mount namespace of its own: run it by unshare -m.
func BenchmarkCompose(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	ctx := context.Background()
	tc, err := Find(ctx, Options{})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for b.Loop() {
		root, err := Compose(ctx, dir, tc, Additions{Programs: Programs{Guest: "/bin/true"}})
		if err != nil {
			b.Skip(err)
		}
		if err := root.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
