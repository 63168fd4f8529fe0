package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/rlimit"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Prober is the part of an engine that the doctor asks.
type Prober interface {
	// Probe's error says what to do about it.
	Probe(ctx context.Context) error
}

// Options say what to examine. The zero value examines what needs no engine.
type Options struct {
	// Engine is asked whether it can run here, if not nil.
	Engine Prober
	// EngineName and EngineCommit say which one it is, and of which build.
	EngineName, EngineCommit string
	// Program says which file the engine's program is; nil leaves that out.
	Program func(ctx context.Context) Check
	// TryNamespaces starts a harmless process as a sandbox would be started,
	// in its own user and mount namespaces; nil means to go by settings alone.
	TryNamespaces func(ctx context.Context) error
	Template      template.Options
	// DiskDir is where sandboxes keep what they write; empty means /var/tmp.
	DiskDir string
	// SecretsKey says where a server's key of secrets is; without a data folder that is
	// left out.
	SecretsKey SecretsKey
}

// host is where settings are read, so that tests can show other machines.
type host struct {
	root string // before /proc and /etc; normally empty
	uid  int
	arch string
}

// Examine looks at everything. It takes up to five seconds if an interpreter
// hangs, and a minute if the command of a secrets' key does, normally less than one.
func Examine(ctx context.Context, opts Options) Report {
	h := host{uid: os.Geteuid(), arch: runtime.GOARCH}
	r := Report{Version: version.Version, OK: true, Checks: []Check{}, Interpreters: []Interpreter{}, LimitsNotEnforced: []string{}}
	r.System = h.system()
	r.add(h.kernel())
	if opts.Engine != nil {
		r.add(engine(ctx, opts))
	}
	if opts.Program != nil {
		r.add(opts.Program(ctx))
	}
	r.add(h.namespaces(ctx, opts.TryNamespaces))
	manager, err := cgroup.Detect("", "", "")
	check, unenforced := cgroups(manager, err)
	r.add(check)
	r.LimitsNotEnforced = append(r.LimitsNotEnforced, unenforced...)
	toolchain(ctx, &r, opts.Template)
	r.add(disk(opts.DiskDir))
	r.add(h.network())
	r.add(limits(rlimit.Check(), rlimit.MostSandboxes()))
	r.add(h.settings())
	if opts.SecretsKey.DataDir != "" {
		r.add(opts.SecretsKey.check(ctx, os.Getenv))
	}
	return r
}

func (h host) read(path string) string {
	text, err := os.ReadFile(filepath.Join(h.root, path))
	if err != nil || len(text) > 1<<20 {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// number reads a setting; ok is false if this kernel does not have it.
func (h host) number(path string) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.read(path), 10, 64)
	return n, err == nil
}

// system describes the machine in one line.
func (h host) system() string {
	name := "Linux"
	for line := range strings.Lines(h.read("/etc/os-release") + "\n") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			name = strings.Trim(value, `"'`)
		}
	}
	parts := []string{name, "kernel " + h.read("/proc/sys/kernel/osrelease"), h.arch, count(runtime.NumCPU(), "processor")}
	for line := range strings.Lines(h.read("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				parts = append(parts, size(kb<<10)+" of memory")
			}
		}
	}
	return printable(strings.Join(parts, ", "))
}

func (h host) kernel() Check {
	c := Check{Name: "kernel", Status: OK}
	release := h.read("/proc/sys/kernel/osrelease")
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		c.Status, c.Detail = Warn, "its version could not be read"
		return c
	}
	c.Detail = fmt.Sprintf("Linux %d.%d on %s", major, minor, h.arch)
	older := func(a, b int) bool { return major < a || major == a && minor < b }
	switch {
	case h.arch != "amd64" && h.arch != "arm64":
		c.Status, c.Remedy = Fail, "use a machine with an amd64 or arm64 processor"
	case older(4, 15):
		c.Status, c.Remedy = Fail, "use Linux 4.15 or newer, better 5.12"
	case older(5, 12):
		c.Status, c.Remedy = Warn, "Linux 5.12 or newer makes read-only mounts in one step; older ones work less quickly"
	case h.arch == "arm64":
		c.Status, c.Detail = Warn, c.Detail+"; this architecture is built but not tested"
	}
	return c
}

func engine(ctx context.Context, opts Options) Check {
	name := opts.EngineName
	if name == "" {
		name = "engine"
	}
	if opts.EngineCommit != "" {
		name += " " + opts.EngineCommit
	}
	if err := opts.Engine.Probe(ctx); err != nil {
		detail, remedy := split(err)
		return Check{Name: "engine", Status: Fail, Detail: name + " cannot run here: " + detail, Remedy: remedy}
	}
	return Check{Name: "engine", Status: OK, Detail: name + " can run here"}
}

// split returns what went wrong, and the remedy if the error carries one.
func split(err error) (detail, remedy string) {
	if e := fault.In(err); e != nil {
		return e.Err.Error(), e.Hint
	}
	return err.Error(), ""
}

// namespaces tells whether this user may have user namespaces, and which
// setting stands in the way. Root does without.
func (h host) namespaces(ctx context.Context, try func(context.Context) error) Check {
	c := Check{Name: "user namespaces", Status: OK, Detail: "allowed"}
	blocked, remedy := h.namespaceSettings()
	if try != nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := try(ctx); err != nil {
			c.Status, c.Detail, c.Remedy = Fail, "starting a process in its own namespaces failed: "+err.Error(), remedy
			if blocked != "" {
				c.Detail += " (" + blocked + ")"
			} else {
				c.Remedy = "run Cubby as root, or, in a container, allow it user namespaces and mounts " +
					"(Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
			}
		} else {
			c.Detail = "allowed; starting a process in its own namespaces works"
			if blocked != "" {
				c.Detail += ", although " + blocked
			}
		}
	} else if blocked != "" {
		c.Status, c.Detail, c.Remedy = Fail, blocked, remedy
	}
	if c.Status == Fail && h.uid == 0 && try == nil {
		c.Status, c.Detail, c.Remedy = OK, "not needed by root ("+c.Detail+")", ""
	}
	return c
}

// namespaceSettings names the setting that forbids user namespaces to users,
// or nothing.
func (h host) namespaceSettings() (blocked, remedy string) {
	if n, ok := h.number("/proc/sys/user/max_user_namespaces"); ok && n == 0 {
		return "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000, or run Cubby as root"
	}
	if n, ok := h.number("/proc/sys/kernel/unprivileged_userns_clone"); ok && n == 0 {
		return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run Cubby as root"
	}
	if n, ok := h.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n != 0 {
		return "kernel.apparmor_restrict_unprivileged_userns is 1", "give cubby an AppArmor profile with the line `userns,`, or " +
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run Cubby as root"
	}
	if _, err := os.Stat(filepath.Join(h.root, "/proc/self/ns/user")); err != nil {
		return "this kernel has no user namespaces", "run Cubby as root, or use a kernel with CONFIG_USER_NS"
	}
	return "", ""
}

// cgroups tells which limits the kernel's control groups hold, and which limits
// hold less well or not at all without.
func cgroups(m *cgroup.Manager, err error) (c Check, unenforced []string) {
	c = Check{Name: "control groups", Status: OK}
	without := map[string]string{
		"cpu":    "processor shares are not enforced, only whole processors and niceness",
		"memory": "a watchdog guards memory",
		"pids":   "processes are limited inside the sandbox only",
	}
	var available []string
	if err == nil {
		available = m.Available()
		var names []string
		for _, v := range m.Versions() {
			names = append(names, "version "+strconv.Itoa(v))
		}
		c.Detail = strings.Join(names, " and ") + ": " + strings.Join(available, ", ")
	} else {
		c.Detail = strings.TrimPrefix(err.Error(), cgroup.ErrUnavailable.Error()+": ")
	}
	var losses []string
	for _, name := range cgroup.Controllers {
		if slices.Contains(available, name) {
			continue
		}
		loss := without[name]
		if err == nil {
			loss += " (" + m.Missing()[name] + ")"
		}
		losses = append(losses, loss)
		if name == "cpu" {
			unenforced = append(unenforced, name)
		}
	}
	if len(losses) > 0 {
		c.Status = Warn
		c.Detail += "; so " + strings.Join(losses, "; ")
		c.Remedy = "run Cubby as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes cubby …"
	}
	return c, unenforced
}

// toolchain finds the interpreters and asks each for its version.
func toolchain(ctx context.Context, r *Report, opts template.Options) {
	tc, err := template.Find(ctx, opts)
	if err != nil {
		detail, remedy := split(err)
		r.add(Check{Name: "toolchain", Status: Fail, Detail: detail, Remedy: remedy})
		return
	}
	languages := []struct {
		name string
		in   template.Interpreter
	}{{"python", tc.Python}, {"node", tc.Node}, {"bash", tc.Bash}}
	found := make([]template.Report, len(languages))
	errs := make([]error, len(languages))
	var wg sync.WaitGroup
	for i, l := range languages {
		if l.in.Missing == "" {
			wg.Go(func() { found[i], errs[i] = template.Inspect(ctx, l.in) })
		}
	}
	wg.Wait()
	for i, l := range languages {
		check, in := interpreter(l.name, l.in, found[i], errs[i])
		r.add(check)
		r.Interpreters = append(r.Interpreters, in)
	}
}

func interpreter(language string, in template.Interpreter, found template.Report, err error) (Check, Interpreter) {
	c := Check{Name: language, Status: OK}
	if in.Missing != "" {
		detail, remedy, _ := strings.Cut(in.Missing, ": install it with: ")
		c.Status, c.Detail, c.Remedy = Warn, detail, "install it: "+remedy
		if remedy == "" {
			c.Remedy = ""
		}
		return c, Interpreter{Language: language}
	}
	out := Interpreter{Language: language, Path: in.Path}
	if err != nil {
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "choose another with --"+language+" or CUBBY_"+strings.ToUpper(language)
		if language == "bash" {
			c.Remedy = ""
		}
		return c, out
	}
	out.Version, out.Modules = printable(found.Version), found.Modules
	c.Detail = found.Version + " at " + in.Path
	if language != "python" {
		return c, out
	}
	var have, lack []string
	for _, m := range template.Modules {
		if v, ok := found.Modules[m]; ok {
			have = append(have, m+" "+v)
		} else {
			lack = append(lack, m)
		}
	}
	if len(have) > 0 {
		c.Detail += ", with " + strings.Join(have, ", ")
	}
	if len(lack) > 0 {
		c.Detail += ", without " + strings.Join(lack, ", ")
	}
	return c, out
}

// size writes bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	default:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
}
