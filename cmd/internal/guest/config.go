//go:build linux

// Package guest is what runs inside a sandbox, as process 1 and root: it serves
// E2B's envd on port 49983 and E2B's code interpreter on port 49999 over the
// channel to the host, connects the host to any other port, keeps the language
// kernels, and reaps what they leave behind. The code itself runs as an ordinary
// user. Everything inside a sandbox is one trust domain; the guest protects its
// token and nothing else, and the host relies on nothing that it says.
package guest

import (
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Languages that kernels are started for. TypeScript runs on JavaScript's.
const (
	python     = "python"
	javascript = "javascript"
	typescript = "typescript"
	bash       = "bash"
)

// Config says how a guest runs: what belongs to the template and the machine, and
// does not change. What belongs to the sandbox, and to each one that a machine
// becomes, the host says by POST /init (see protocol.InitRequest). ConfigFromEnv
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

// ConfigFromEnv reads what the host put into the environment (CUBBY_*, PATH,
// LANG). None of CUBBY_* reaches the code.
func ConfigFromEnv() Config {
	c := Config{
		UID: 1000, GID: 1000, SwitchUser: os.Getuid() == 0, UserName: "user", Home: "/home/user",
		KernelDir:    "/run/cubby/kernels",
		Interpreters: map[string]string{},
		Missing:      map[string]string{},
		Init:         os.Getpid() == 1,
	}
	for lang, name := range map[string]string{python: "PYTHON", javascript: "NODE", bash: "BASH"} {
		c.Interpreters[lang] = os.Getenv("CUBBY_" + name)
		c.Missing[lang] = os.Getenv("CUBBY_" + name + "_MISSING")
	}
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
