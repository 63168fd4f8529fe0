//go:build linux && cubby_packed

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/enginebin"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/supervisor"
)

// beEngine becomes the engine in a process that a program which embeds Cubby has
// started, where package enginebin did not find it unpacked.
func beEngine(ctx context.Context) {
	if !handshake.IsChild(os.Args[1:]) {
		return
	}
	located, err := openEngine(ctx)
	if err == nil {
		err = ready.Exec(int(located.File.Fd()), os.Args, os.Environ())
	}
	os.Exit(report(os.Stderr, err))
}

// enginePacked is the program that this one carries.
func enginePacked() packed.Program {
	return packed.New(enginebin.Name(), enginebin.Sum(), enginebin.Compressed(), enginebin.Variable())
}

// openEngine provides the engine's program. Where no folder will do to keep it, it is
// unpacked to one that lasts only until the file is open.
func openEngine(ctx context.Context) (*packed.Located, error) {
	dir, err := os.MkdirTemp(supervisor.TempDir(), "cubby-engine-")
	if err != nil {
		dir = ""
	}
	defer os.RemoveAll(dir)
	return packed.Open(ctx, enginePacked(), packed.Options{RunDir: dir})
}

// packedEngine starts the packed program by a descriptor of its file, which is opened at
// the first use and stays open as long as this process lives. So does the lock on it.
type packedEngine struct {
	open func() (path string, err error)
}

func newEngineProgram() engineProgram {
	return packedEngine{sync.OnceValues(func() (string, error) {
		located, err := openEngine(context.Background())
		if err != nil {
			return "", err
		}
		// Above those that a process is started with: see os.ProcAttr.
		const least = 16
		fd, err := unix.FcntlInt(located.File.Fd(), unix.F_DUPFD_CLOEXEC, least)
		if err != nil {
			return "", fmt.Errorf("start the engine: %w", err)
		}
		return "/proc/self/fd/" + strconv.Itoa(fd), located.Close()
	})}
}

// Path implements engineProgram.
func (e packedEngine) Path(context.Context) (string, error) { return e.open() }

// Keys implements engineProgram.
func (e packedEngine) Keys() keyadmin.Admin {
	return keyadmin.Remote{Command: func(ctx context.Context) (*exec.Cmd, error) {
		path, err := e.open()
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, path, keyadmin.Argument), nil
	}}
}

// Commit implements engineProgram: an engine is a module that the program is built from.
func (packedEngine) Commit(_ context.Context, engine string) string {
	info, err := debug.ParseBuildInfo(enginebin.Modules())
	if err != nil || engine != enginename.Default {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == "gvisor.dev/gvisor" {
			return module.Version
		}
	}
	return ""
}
