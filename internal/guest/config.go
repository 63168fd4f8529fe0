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
	"strconv"
	"strings"
)

// Languages that kernels are started for. TypeScript runs on JavaScript's.
const (
	python     = "python"
	javascript = "javascript"
	typescript = "typescript"
	bash       = "bash"
)

// Config says how a guest runs. ConfigFromEnv fills it for a sandbox; tests run
// guests as ordinary processes with another one.
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
	// Warm lists the languages whose kernels start before anybody asks.
	Warm []string
	// PIDs bounds the processes of the code; 0 is no bound of ours.
	PIDs int
	// MemoryMB, DiskMB (MiB) and CPUs (processors) are what the sandbox may use, as
	// /metrics tells it; 0 is what the kernel says. The host enforces them.
	MemoryMB, DiskMB int
	CPUs             float64
	// SandboxID and TemplateID are told to the code; empty ones are not.
	SandboxID, TemplateID string
	// Env is the environment of kernels beside HOME, USER and LOGNAME.
	Env []string
	// CgroupDir is the pids controller under which cells get groups of their
	// own; empty, or not writable, falls back to looking through /proc. A
	// process 1 mounts its own.
	CgroupDir string
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
	for lang := range strings.SplitSeq(os.Getenv("CUBBY_WARM"), ",") {
		if lang = strings.TrimSpace(lang); lang != "" {
			c.Warm = append(c.Warm, lang)
		}
	}
	c.PIDs, _ = strconv.Atoi(os.Getenv("CUBBY_PIDS"))
	c.MemoryMB, _ = strconv.Atoi(os.Getenv("CUBBY_MEMORY_MB"))
	c.DiskMB, _ = strconv.Atoi(os.Getenv("CUBBY_DISK_MB"))
	c.CPUs, _ = strconv.ParseFloat(os.Getenv("CUBBY_CPUS"), 64)
	c.SandboxID, c.TemplateID = os.Getenv("CUBBY_SANDBOX_ID"), os.Getenv("CUBBY_TEMPLATE_ID")
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

// settings are what the host tells a running guest through POST /init.
type settings struct {
	hostToken string // of /init and /cubby/
	token     string
	env       map[string]string
	user      string
	workdir   string
}
