//go:build linux

// Package settings has what a guest is told: its configuration, which belongs to the
// template and the machine and does not change, and what the host says of the sandbox by
// POST /init. It answers what follows from them: users and their paths, environments, and
// who may call.
package settings

import (
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Program is the base name of argv[0] under which the guest and its helpers are
// started.
const Program = "cubby-guest"

// Languages that kernels are started for. TypeScript runs on JavaScript's.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript"
	Bash       = "bash"
)

// Config says how a guest runs: what belongs to the template and the machine, and
// does not change. What belongs to the sandbox, and to each one that a machine
// becomes, the host says by POST /init (see protocol.InitRequest). FromEnv
// fills it for a sandbox; tests run guests as ordinary processes with another one.
type Config struct {
	UID, GID uint32
	// SwitchUser runs the code as UID and GID; without it, as the guest's own.
	SwitchUser bool
	UserName   string
	Home       string
	// KernelDir is where the kernels' scripts are written; the code must be able
	// to read it and not to change it.
	KernelDir string
	// Interpreters maps a language to the absolute path of its interpreter, and
	// Missing says for one that is not there what to install.
	Interpreters map[string]string
	Missing      map[string]string
	// TypeScript is the path of the program that package typescript describes, empty
	// if there is none.
	TypeScript string
	// Env is the environment of kernels beside HOME, USER and LOGNAME.
	Env []string
	// CgroupDir is the pids controller under which cells get groups of their
	// own; empty, or not writable, falls back to looking through /proc.
	CgroupDir string
	// Cgroup is the kind of control groups that a process 1 can mount to have a
	// CgroupDir, as the engine named it; see protocol.CgroupVar.
	Cgroup string
	// Init makes the guest a process 1: it reaps orphans, sets limits that its
	// children inherit, hides itself, owns Home's owner, and installs sudo.
	Init bool
}

// FromEnv reads what the host put into the environment (CUBBY_*, PATH,
// LANG). None of CUBBY_* reaches the code.
func FromEnv() Config {
	c := Config{
		UID: 1000, GID: 1000, SwitchUser: os.Getuid() == 0, UserName: protocol.DefaultUser, Home: protocol.DefaultHome,
		KernelDir:    "/run/cubby/kernels",
		Interpreters: map[string]string{},
		Missing:      map[string]string{},
		Init:         os.Getpid() == 1,
	}
	for lang, name := range map[string]string{Python: "PYTHON", JavaScript: "NODE", Bash: "BASH"} {
		c.Interpreters[lang] = os.Getenv("CUBBY_" + name)
		c.Missing[lang] = os.Getenv("CUBBY_" + name + "_MISSING")
	}
	c.TypeScript = os.Getenv("CUBBY_TYPESCRIPT")
	c.Cgroup = os.Getenv(protocol.CgroupVar)
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "CUBBY_"), name == "HOME", name == "USER", name == "LOGNAME":
		default:
			c.Env = append(c.Env, e)
		}
	}
	return c
}
