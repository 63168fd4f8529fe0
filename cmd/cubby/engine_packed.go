//go:build linux && cubby_packed

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/enginebin"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/supervisor"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// beEngine becomes the engine in a process that a program which embeds Cubby has
// started, where package enginebin did not find it unpacked.
func beEngine(ctx context.Context) {
	if !handshake.IsChild(os.Args[1:]) {
		return
	}
	// Not given up when that program ends: it takes a moment, serves the next start, and
	// the engine then removes the run folder.
	located, err := openEngine(ctx)
	if err == nil {
		err = ready.Exec(int(located.File.Fd()), os.Args, os.Environ())
	}
	if refuse(err) == nil {
		os.Exit(exitCannotRun)
	}
	os.Exit(report(os.Stderr, err))
}

// refuse tells the program that started this one why it cannot be its engine, as the
// engine would.
func refuse(err error) error {
	hello := handshake.Hello{Version: version.Build(), Error: fault.ToWire(fault.Unavailable, err)}
	return json.NewEncoder(os.NewFile(handshake.FDReady, "ready")).Encode(hello)
}

// enginePacked is the program that this one carries.
func enginePacked() packed.Program {
	return packed.New(enginebin.Name(), enginebin.Sum(), enginebin.Compressed(), enginebin.Variable())
}

// openEngine provides the engine's program. Where no folder will do to keep it, it is
// unpacked to a file that lasts only as long as it is open or runs.
func openEngine(ctx context.Context) (*packed.Located, error) {
	return packed.Open(ctx, enginePacked(), packed.Options{TempDir: supervisor.TempDir()})
}

// packedEngine starts the packed program by a descriptor of its file, which is opened at
// the first use and stays open as long as this process lives. So does the lock on it.
type packedEngine struct {
	mu   sync.Mutex
	path string // empty before it is open
}

func newEngineProgram() engineProgram { return &packedEngine{} }

// Path implements engineProgram. What it waits for ends with ctx.
func (e *packedEngine) Path(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.path != "" {
		return e.path, nil
	}
	located, err := openEngine(ctx)
	if err != nil {
		return "", err
	}
	defer located.Close()
	// Above those that a process is started with: see os.ProcAttr.
	const least = 16
	fd, err := unix.FcntlInt(located.File.Fd(), unix.F_DUPFD_CLOEXEC, least)
	if err != nil {
		return "", fmt.Errorf("start the engine: %w", err)
	}
	e.path = "/proc/self/fd/" + strconv.Itoa(fd)
	return e.path, nil
}

// Keys implements engineProgram.
func (e *packedEngine) Keys() keyadmin.Admin {
	return keyadmin.Remote{Command: func(ctx context.Context) (*exec.Cmd, error) {
		path, err := e.Path(ctx)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, path, keyadmin.Argument)
		// Whoever is killed while the database is locked must not leave a process that
		// makes a key later, which nobody reads.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd, nil
	}}
}

// Commit implements engineProgram: an engine is a module that the program is built from.
func (*packedEngine) Commit(_ context.Context, engine string) string {
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

// Programs implements enginePack.
func (*packedEngine) Programs(ctx context.Context, verify bool) ([]packed.Report, error) {
	located, err := openEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer located.Close()
	own, question := enginePacked().Report(located), packed.AskPath
	if verify {
		question = packed.AskVerify
		if own, err = enginePacked().Verify(ctx, located); err != nil {
			return nil, err
		}
	}
	if own.Problem != "" {
		return []packed.Report{own}, nil // nothing else is asked of it
	}
	parts, err := packed.Ask(ctx, located, question)
	return append([]packed.Report{own}, parts...), err
}

// Unpack implements enginePack.
func (*packedEngine) Unpack(ctx context.Context, dir string) ([]packed.Report, error) {
	own, err := enginePacked().Write(ctx, dir)
	if err != nil {
		return nil, err
	}
	// Not the one that would run: CUBBY_ENGINE may name one that does not fit, which is
	// why somebody unpacks another, and the cache of whoever builds a package is not its
	// place.
	located, err := packed.Open(ctx, enginePacked(), packed.Options{TempDir: supervisor.TempDir(), Anew: true})
	if err != nil {
		return nil, err
	}
	defer located.Close()
	parts, err := packed.Ask(ctx, located, packed.AskUnpack, dir)
	return append([]packed.Report{own}, parts...), err
}

// Modules implements enginePack.
func (*packedEngine) Modules() []programModules {
	var all []programModules
	for name, text := range enginebin.AllModules() {
		all = append(all, programModules{name, text})
	}
	return all
}
