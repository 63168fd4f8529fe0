package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// machine is a host whose files are those given; others are as on a healthy one.
func machine(t *testing.T, files map[string]string) host {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"/proc/sys/kernel/osrelease":             "6.1.0-18-amd64\n",
		"/proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread trap errno user_notif trace log allow\n",
		"/proc/sys/user/max_user_namespaces":     "31000\n",
		"/proc/self/ns/user":                     "",
		"/proc/meminfo":                          "MemTotal:       16384000 kB\n",
		"/etc/os-release":                        "PRETTY_NAME=\"Some Linux 12\"\n",
	}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		if content == "absent" {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host{root: root, uid: 1000, arch: "amd64"}
}

// expect compares a check; detail and remedy are parts of the texts.
func expect(t *testing.T, c Check, status Status, detail, remedy string) {
	t.Helper()
	if c.Status != status || !strings.Contains(c.Detail, detail) || !strings.Contains(c.Remedy, remedy) {
		t.Errorf("got %+v\nwant %s, %q, %q", c, status, detail, remedy)
	}
	if c.Status == OK && c.Remedy != "" {
		t.Errorf("a remedy for what is well: %+v", c)
	}
}

func TestKernel(t *testing.T) {
	for _, tt := range []struct {
		release, arch string
		status        Status
		detail        string
	}{
		{"6.18.44", "amd64", OK, "Linux 6.18 on amd64"},
		{"5.4.0-generic", "amd64", Warn, "Linux 5.4"},
		{"3.10.0-1160.el7", "amd64", Fail, "Linux 3.10"},
		{"6.1.0", "arm64", Warn, "not tested"},
		{"6.1.0", "riscv64", Fail, "riscv64"},
		{"", "amd64", Warn, "could not be read"},
	} {
		h := machine(t, map[string]string{"/proc/sys/kernel/osrelease": tt.release})
		h.arch = tt.arch
		expect(t, h.kernel(), tt.status, tt.detail, "")
	}
}

func TestNamespaces(t *testing.T) {
	works := func(context.Context) error { return nil }
	fails := func(context.Context) error { return errors.New("operation not permitted") }
	for _, tt := range []struct {
		name           string
		files          map[string]string
		uid            int
		try            func(context.Context) error
		status         Status
		detail, remedy string
	}{
		{"allowed", nil, 1000, works, OK, "works", ""},
		{"by settings alone", nil, 1000, nil, OK, "allowed", ""},
		{"none at all", map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, 1000, fails, Fail, "max_user_namespaces is 0", "sysctl -w user.max_user_namespaces"},
		{"Debian's switch", map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, 1000, fails, Fail, "userns_clone is 0", "userns_clone=1"},
		{"Ubuntu's AppArmor", map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, 1000, fails, Fail, "apparmor", "AppArmor profile"},
		{"Ubuntu with a profile", map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, 1000, works, OK, "although kernel.apparmor", ""},
		{"a container", nil, 1000, fails, Fail, "operation not permitted", "seccomp=unconfined"},
		{"root needs none", map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, 0, nil, OK, "not needed by root", ""},
		{"root that may not mount", nil, 0, fails, Fail, "operation not permitted", "Docker"},
		{"a kernel without", map[string]string{"/proc/self/ns/user": "absent"}, 1000, nil, Fail, "no user namespaces", "CONFIG_USER_NS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := machine(t, tt.files)
			h.uid = tt.uid
			expect(t, h.namespaces(t.Context(), tt.try), tt.status, tt.detail, tt.remedy)
		})
	}
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		name           string
		files          map[string]string
		status         Status
		detail, remedy string
	}{
		{"healthy", nil, OK, "nothing in the way", ""},
		{"no tracing", map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "3"}, Fail, "ptrace_scope is 3", "2 or less"},
		{"no seccomp", map[string]string{"/proc/sys/kernel/seccomp/actions_avail": "absent"}, Fail, "seccomp", "CONFIG_SECCOMP_FILTER"},
		{"strict memory", map[string]string{"/proc/sys/vm/overcommit_memory": "2"}, Warn, "overcommit_memory is 2", "overcommit_memory=0"},
		{"few mappings", map[string]string{"/proc/sys/vm/max_map_count": "1000"}, Warn, "vm.max_map_count is 1000", "vm.max_map_count=65530"},
		{"several", map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "3", "/proc/sys/kernel/pid_max": "100"}, Fail, "; kernel.pid_max is 100", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, machine(t, tt.files).settings(), tt.status, tt.detail, tt.remedy)
		})
	}
}

func TestNetwork(t *testing.T) {
	const certificates = "/etc/ssl/certs/ca-certificates.crt"
	for _, tt := range []struct {
		name           string
		files          map[string]string
		status         Status
		detail, remedy string
	}{
		{"as usual", map[string]string{"/etc/resolv.conf": "# c\nsearch x\nnameserver 192.0.2.53\nnameserver ::1\n", certificates: "x"},
			OK, "asked of 192.0.2.53, ::1", ""},
		{"no name server", map[string]string{"/etc/resolv.conf": "nameserver\nnameserver x\n", certificates: "x"}, Warn, "no names", "nameserver ADDRESS"},
		{"no file", map[string]string{certificates: "x"}, Warn, "no names", "nameserver ADDRESS"},
		{"no certificates", map[string]string{"/etc/resolv.conf": "nameserver 192.0.2.53\n"}, Warn, "no certificates", "ca-certificates"},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, machine(t, tt.files).network(), tt.status, tt.detail, tt.remedy) })
	}
}

func TestLimits(t *testing.T) {
	tight := &fault.Error{Err: errors.New("at most 128 open files are allowed here"), Hint: "raise it: `ulimit -n 4096`"}
	expect(t, limits(nil, 1<<20), OK, "as many sandboxes as memory holds", "")
	expect(t, limits(nil, 1000), OK, "enough for 1000 sandboxes", "")
	expect(t, limits(nil, 8), Warn, "enough for 8 sandboxes", "ulimit -n")
	expect(t, limits(tight, 0), Fail, "at most 128 open files", "ulimit -n 4096")
}

func TestDiskSpace(t *testing.T) {
	for _, tt := range []struct {
		free   int64
		memory bool
		err    error
		status Status
		detail string
	}{
		{50 << 30, false, nil, OK, "50 GiB free in /d"},
		{50 << 30, true, nil, Warn, "which is memory"},
		{1 << 30, false, nil, Warn, "1.0 GiB free"},
		{10 << 20, false, nil, Fail, "10 MiB free"},
		{50 << 30, false, os.ErrPermission, Warn, "cannot write to /d"},
	} {
		expect(t, diskSpace("/d", tt.free, tt.memory, tt.err), tt.status, tt.detail, "")
	}
	expect(t, disk("/nonexistent/dir"), Fail, "no such file", "make it")
}

func TestCgroups(t *testing.T) {
	_, err := cgroup.Detect("", "/nonexistent", "/nonexistent")
	c, unenforced := cgroups(nil, err)
	expect(t, c, Warn, "a watchdog guards memory", "systemd-run")
	if !slices.Equal(unenforced, []string{"cpu"}) {
		t.Errorf("unenforced %v", unenforced)
	}
	if m, err := cgroup.Detect("", "", ""); err == nil && len(m.Missing()) == 0 {
		c, unenforced := cgroups(m, nil)
		expect(t, c, OK, "cpu, memory, pids", "")
		if len(unenforced) > 0 {
			t.Errorf("unenforced %v", unenforced)
		}
	}
}

func TestInterpreter(t *testing.T) {
	python := template.Interpreter{Path: "/usr/bin/python3"}
	for _, tt := range []struct {
		name           string
		in             template.Interpreter
		found          template.Report
		err            error
		status         Status
		detail, remedy string
	}{
		{"rich", python, template.Report{Version: "3.11.2", Modules: map[string]string{"numpy": "1.24.2", "PIL": "9.4.0"}}, nil,
			OK, "3.11.2 at /usr/bin/python3, with numpy 1.24.2, PIL 9.4.0, without IPython, pandas, matplotlib", ""},
		{"missing", template.Interpreter{Missing: "python3 was not found in PATH: install it with: apk add python3"}, template.Report{}, nil,
			Warn, "python3 was not found in PATH", "install it: apk add python3"},
		{"broken", python, template.Report{}, errors.New("exit status 127"), Warn, "exit status 127", "--python"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, in := interpreter("python", tt.in, tt.found, tt.err)
			expect(t, c, tt.status, tt.detail, tt.remedy)
			if in.Path != tt.in.Path || in.Language != "python" {
				t.Errorf("%+v", in)
			}
		})
	}
}

func TestSecretsKey(t *testing.T) {
	const key = "11aa22bb33cc44dd55ee66ff77008811992233445566778899aabbccddeeff00"
	data, elsewhere := t.TempDir(), t.TempDir()
	write := func(dir, name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := func(mode os.FileMode) SecretsKey {
		dir := t.TempDir()
		write(dir, folderKey, strings.Repeat("x", 32), mode)
		return SecretsKey{DataDir: dir}
	}
	good, linked := write(elsewhere, "good", key, 0o600), filepath.Join(elsewhere, "linked")
	if err := os.Symlink(write(data, "inside", key, 0o640), linked); err != nil {
		t.Fatal(err)
	}
	uid := fmt.Sprintf("owner uid %d)", os.Geteuid())
	for _, tt := range []struct {
		name           string
		key            SecretsKey
		status         Status
		detail, remedy string
	}{
		{"no server yet", SecretsKey{DataDir: data}, OK, "no server has run here with the data folder " + data, ""},
		{"of the folder", folder(0o600), OK, "secret.key (mode 0600, " + uid + ", beside the database: it protects copies of cubby.db alone", ""},
		{"what is better", folder(0o600), OK, "For better: --secrets-key-file, --secrets-key-env or --secrets-key-command", ""},
		{"of the folder, open", folder(0o640), Warn, "(mode 0640, ", "chmod 600 "},
		{"a file", SecretsKey{DataDir: data, File: good}, OK, good + " (mode 0600, " + uid + ", which no copy of the data folder has", ""},
		{"a file in the folder", SecretsKey{DataDir: data, File: linked}, Warn, "inside of the data folder", "keep the key elsewhere"},
		{"a file that others read", SecretsKey{DataDir: data, File: write(elsewhere, "open", key, 0o644)}, Warn, "other users may use this key (mode 0644)", "openssl rand"},
		{"no file", SecretsKey{DataDir: data, File: good + ".gone"}, Warn, "no such file", "openssl rand"},
		{"no key", SecretsKey{DataDir: data, File: write(elsewhere, "none", "hunter2", 0o600)}, Warn, "it is no key", "openssl rand"},
		{"a variable", SecretsKey{DataDir: data, Env: "THE_KEY"}, OK, "the environment variable THE_KEY, which no copy of the data folder has", ""},
		{"no variable", SecretsKey{DataDir: data, Env: "NO_KEY"}, Warn, "the variable NO_KEY: it is no key", "openssl rand"},
		{"a command", SecretsKey{DataDir: data, Command: "cat " + good}, OK, "what the command prints, which no copy", ""},
		{"a command that fails", SecretsKey{DataDir: data, Command: "echo locked >&2; exit 3"}, Warn, "exit status 3: locked", "openssl rand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.key.check(t.Context(), func(name string) string { return map[string]string{"THE_KEY": key}[name] })
			expect(t, c, tt.status, tt.detail, tt.remedy)
			if text := c.Detail + c.Remedy; strings.Contains(text, key) || strings.Contains(text, "hunter2") {
				t.Errorf("the key is shown: %s", text)
			}
		})
	}
	if os.Geteuid() != 0 {
		t.Skip("that a key belongs to another user is shown as root")
	}
	other := folder(0o600)
	for _, path := range []string{good, filepath.Join(other.DataDir, folderKey)} {
		if err := os.Chown(path, 1234, 1234); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, other.check(t.Context(), os.Getenv), Warn, "owner uid 1234)", "chown 0 ")
	expect(t, SecretsKey{DataDir: data, File: good}.check(t.Context(), os.Getenv), Warn, "belongs to another user (uid 1234)", "chown 0 "+good)
}

type prober struct{ err error }

func (p prober) Probe(context.Context) error { return p.err }

func TestExamine(t *testing.T) {
	r := Examine(t.Context(), Options{Engine: prober{errors.New("no luck\x1b[2J")}, EngineName: "gvisor", EngineCommit: "v1.2", DiskDir: t.TempDir()})
	if r.OK {
		t.Error("well without an engine")
	}
	var names []string
	for _, c := range r.Checks {
		names = append(names, c.Name)
		if c.Name == "engine" {
			expect(t, c, Fail, "gvisor v1.2 cannot run here: no luck [2J", "")
		}
	}
	want := []string{"kernel", "engine", "user namespaces", "control groups", "python", "node", "bash", "disk", "network", "process limits", "kernel settings"}
	if !slices.Equal(names, want) {
		t.Errorf("checks %v", names)
	}
	r = Examine(t.Context(), Options{SecretsKey: SecretsKey{DataDir: t.TempDir()}, Template: template.Options{Python: "/nonexistent/python3"}})
	if last := r.Checks[len(r.Checks)-1]; last.Name != "secrets' key" || last.Status != OK {
		t.Errorf("%+v", last)
	}
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == "toolchain" })
	if i < 0 {
		t.Fatalf("no toolchain check in %+v", r)
	}
	expect(t, r.Checks[i], Fail, "/nonexistent/python3", "--python")
}

func TestWriteText(t *testing.T) {
	r := Report{Version: "1.2.3", System: "Some Linux", OK: true}
	r.add(Check{Name: "kernel", Status: OK, Detail: "Linux 6.1"})
	r.add(Check{Name: "python", Status: Warn, Detail: strings.Repeat("words ", 30), Remedy: "install it: apk add python3"})
	var b strings.Builder
	if err := r.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Cubby 1.2.3 on Some Linux\n", "  ✓ kernel             Linux 6.1\n", "→ install it: apk add python3\n",
		"Cubby can run code here. One thing could be better.\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if len([]rune(line)) > lineWidth+1 {
			t.Errorf("too long: %q", line)
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("colour where none was wanted")
	}

	r.add(Check{Name: "engine", Status: Fail, Detail: "no"})
	r.LimitsNotEnforced = []string{"cpu"}
	b.Reset()
	if err := r.WriteText(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[31m✗", "Cubby cannot run code here: one thing to mend first.", "do not always hold here: cpu."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(Examine(t.Context(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"version"`, `"ok"`, `"checks"`, `"interpreters"`, `"limits_not_enforced":[`} {
		if !strings.Contains(string(text), field) {
			t.Errorf("no %s in %s", field, text)
		}
	}
}
