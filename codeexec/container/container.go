// Package container runs code in Docker containers, one for each execution id. It
// is a module of its own, so that programs without it do not carry Docker's
// client.
//
//	ex, err := container.New(ctx, container.Config{Image: "python:3-slim"})
//	if err != nil { … }
//	defer ex.Close()
//	r, err := ex.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print(6*7)"})
//
// A container has no network, a root that cannot be written, no capability, an
// ordinary user, and bounds on memory, processors, processes and disk; each can be
// loosened in [Config], and only there. One process stays in it and starts the
// programs, which costs a fiftieth of Docker's exec. It needs Python 3 with
// ctypes in the image; with an image that has only a shell, programs are started
// by exec, and a program that has to be ended takes its container with it.
//
// Each block is a process of its own: files stay from block to block, variables
// do not. Everything that a block started ends with it. What one execution id does
// stays in its container. A container that cannot go on is replaced before
// anything runs, and the result says that its files are lost.
//
// Docker shares the host's kernel with the code. Where that is too little, see
// package codeexec/sandbox, or [Config.Runtime].
package container

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Config says what the container is like. Image or Dockerfile must be set, and
// not both.
type Config struct {
	// Image is the image, such as "python:3-slim". One that the daemon does not
	// have is pulled, as Pull says.
	Image string
	// Dockerfile is a Dockerfile, or a folder with one, to build the image from;
	// its folder is the context, without what its .dockerignore names.
	Dockerfile string
	BuildArgs  map[string]string
	// BuildNetwork is the network of RUN steps of the build; empty means Docker's
	// default.
	BuildNetwork string
	Pull         PullPolicy

	// Host is the daemon: unix:///run/docker.sock, tcp://host:2376,
	// https://host:2376, npipe:////./pipe/docker_engine. Empty means DOCKER_HOST,
	// else the sockets where Docker, Docker Desktop, rootless Docker and Colima
	// listen.
	Host string
	// TLS is how a tcp host is reached. nil means DOCKER_TLS_VERIFY and
	// DOCKER_CERT_PATH; without those there is none.
	TLS *TLS

	// NamePrefix begins the container's name; empty means "cubby-".
	NamePrefix string
	Labels     map[string]string
	// Env adds to the image's environment.
	Env map[string]string
	// User runs everything in the container, as in docker run; empty means
	// 1000:1000.
	User string

	// Network is none if it is empty; else a Docker network, such as "bridge".
	Network string
	// Binds are folders of the daemon's host, as in docker run -v:
	// /host:/container:ro.
	Binds []string
	// GPUs is as in docker run --gpus: "all", "2", "device=0,1".
	GPUs string
	// Runtime is the OCI runtime, such as "runsc"; empty means the daemon's.
	Runtime string

	// Bounds of each container as a whole. Zero means the defaults below.
	// MemoryBytes includes what is in files. DiskBytes is what all files may
	// take: they live in memory, below /tmp.
	CPUs        float64
	MemoryBytes int64
	DiskBytes   int64
	MaxPIDs     int
	// MaxContainers bounds how many containers there are at a time, one for each
	// execution id, beside those of Fresh; 0 means DefaultMaxContainers. For one
	// more, the container that was not used for longest is removed with its files,
	// which its id is told; if something runs in all of them, the call waits.
	MaxContainers int

	// Timeout bounds each block of ExecuteCode; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxOutput bounds what is kept of the output of all blocks of a call, in
	// bytes; 0 means cubby.DefaultMaxOutput. What is more is dropped, and the
	// code goes on.
	MaxOutput int64
	// StartTimeout bounds creating and starting a container, without the pull or
	// build of its image; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// Fresh gives each ExecuteCode a container of its own, removed after it. They
	// then run side by side. Workspaces of an execution id share one that stays.
	Fresh bool

	// WorkspaceRoot is the folder of workspaces and of the code's files; empty
	// means codeexec.DefaultRoot. It must be below /tmp or a bind.
	WorkspaceRoot string
	// HostInputs, if set, is the only folder of this machine that host:// inputs
	// of workspaces may come from.
	HostInputs string

	// Delimiters is what CodeBlockDelimiters returns; nil means every fence in a
	// language that the image has. tRPC-Agent's container executor takes the fence
	// tool_code only.
	Delimiters []codeexec.CodeBlockDelimiter
	// Logger takes what happens to containers and images; nil discards it.
	// Executions are logged by [codeexec.Observe].
	Logger *slog.Logger

	// Customize, if set, has the last word on each container. It can undo every
	// protection. It is unstable: its types are those of moby's API, which changes
	// them without a new major version, and with it what this package needs.
	Customize func(*container.Config, *container.HostConfig)
}

// Defaults of [Config].
const (
	DefaultTimeout       = 60 * time.Second
	DefaultStartTimeout  = 60 * time.Second
	DefaultCPUs          = 1
	DefaultMemoryBytes   = 1 << 30
	DefaultDiskBytes     = 256 << 20
	DefaultMaxPIDs       = 256
	DefaultMaxContainers = 8
	DefaultUser          = "1000:1000"
	DefaultNamePrefix    = "cubby-"
)

// PullPolicy says when an image is pulled.
type PullPolicy string

// Policies; empty means PullMissing.
const (
	PullMissing PullPolicy = "missing"
	PullNever   PullPolicy = "never"
	PullAlways  PullPolicy = "always"
)

// TLS says how to reach a daemon on TCP. Files are PEM. Without a CA those of
// the system count.
type TLS struct {
	CAFile   string
	CertFile string
	KeyFile  string
}

// resolve checks the configuration and fills in defaults.
func (c Config) resolve() (Config, error) {
	switch {
	case c.Image == "" && c.Dockerfile == "":
		return c, invalid("neither Image nor Dockerfile is set", "set Config.Image, for example to python:3-slim, or Config.Dockerfile")
	case c.Image != "" && c.Dockerfile != "":
		return c, invalid("both Image and Dockerfile are set", "set one of Config.Image and Config.Dockerfile")
	case c.CPUs < 0, c.MemoryBytes < 0, c.DiskBytes < 0, c.MaxPIDs < 0, c.MaxContainers < 0,
		c.Timeout < 0, c.MaxOutput < 0, c.StartTimeout < 0:
		return c, invalid("a limit is negative", "")
	}
	switch c.Pull {
	case "":
		c.Pull = PullMissing
	case PullMissing, PullNever, PullAlways:
	default:
		return c, invalid("the pull policy "+string(c.Pull)+" is not known", "use missing, never or always")
	}
	if c.Network == "" {
		c.Network = "none"
	}
	setDefault(&c.User, DefaultUser)
	setDefault(&c.NamePrefix, DefaultNamePrefix)
	setDefault(&c.CPUs, DefaultCPUs)
	setDefault(&c.MemoryBytes, DefaultMemoryBytes)
	setDefault(&c.DiskBytes, DefaultDiskBytes)
	setDefault(&c.MaxPIDs, DefaultMaxPIDs)
	setDefault(&c.MaxContainers, DefaultMaxContainers)
	setDefault(&c.Timeout, DefaultTimeout)
	setDefault(&c.StartTimeout, DefaultStartTimeout)
	setDefault(&c.MaxOutput, cubby.DefaultMaxOutput)
	setDefault(&c.WorkspaceRoot, codeexec.DefaultRoot)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// remedies tell how to get a daemon.
func noDaemonHint() string {
	switch runtime.GOOS {
	case "darwin":
		return "install Docker Desktop (https://docs.docker.com/desktop) or Colima, start it, and try `docker ps`"
	case "windows":
		return "install Docker Desktop (https://docs.docker.com/desktop), start it, and try `docker ps`"
	}
	return "install Docker (https://docs.docker.com/engine/install, or `sudo apt-get install docker.io`), start it with `sudo systemctl start docker`, and try `docker ps`"
}
