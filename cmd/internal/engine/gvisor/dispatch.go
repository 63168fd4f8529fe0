package gvisor

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	_ "github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor/early" // must be linked wherever Dispatch is
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor/precomp"
)

// softMemory is where a sentry that holds many objects (each file costs about 2
// KB) begins to collect often: at GOGC=400 it would take five times what it
// needs.
const softMemory = 128 << 20

// Dispatch turns this process into gVisor's sentry or gofer when it was started
// as one, and then does not return. Every binary that uses the engine calls it
// first thing in main (a test binary in TestMain).
func Dispatch() {
	name := os.Args[0]
	if base := filepath.Base(name); name != "/proc/self/exe" && !strings.HasPrefix(base, helperPrefix) && !strings.HasPrefix(base, "runsc[") {
		return
	}
	// A sentry that starts allocates much and lives long: collecting rarely
	// saves 10 ms of processor time a start. GOGC cannot be passed, for gVisor
	// clears the environment.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(softMemory)
	precomp.Install()
	showBootArgs()
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "internal",
		new(cmd.Gofer):        "internal",
		new(sentrycmd.Umount): "internal",
	}, nil)
	os.Exit(0)
}

// checkStatic refuses a helper that needs a dynamic loader: there is none in a
// sentry's empty root, and the failure there says nothing.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("gvisor: helper: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("gvisor: %s is linked dynamically and cannot be a sandbox's kernel: build it with CGO_ENABLED=0 and without -race", path)
		}
	}
	return nil
}
